//! Sleeping: futexes with their costs, and the kernel's hash buckets, where calls on one address wait for each other.
//!
//! A wait enters the kernel, takes the bucket, compares, queues, releases the bucket, and leaves the core. A wake
//! enters, takes the bucket, unqueues, and sends each woken thread on its way (on kernels before wake queues, with the
//! bucket still held). That takes `turnaround_ns`, and more from a deep idle core. Calls for one bucket get it first
//! come, first served, and spin for it. The more of them there are, the longer it takes to change hands. That is why
//! threads that share a futex are slower than threads one by one.

use crate::engine::{Ps, State, What, advance, engine, ps, suspend};
use crate::lines::{Access, reach};
use crate::sleepers::Sleeper;
use crate::timeline::Activity;
use lockwright_platform::Woken;

/// The share of a call that passes before the bucket is taken.
const ENTRY: f64 = 0.4;

/// The bucket of an address. It depends on the line's number, not on the address, so that runs don't depend on where
/// memory is.
fn bucket_of(address: usize) -> usize {
    let e = engine();
    let (line, offset) = e.lines.name_of(address);
    (line as usize * 31 + offset) % e.futexes.buckets.len()
}

/// Takes a bucket after earlier arrivals, and holds it for as long as a call does. A thread that has a bucket, or spins
/// for one, isn't preempted.
fn take_bucket(bucket: usize) {
    let e = engine();
    let me = e.me();
    let thread = &mut e.threads[me as usize];
    thread.unpreempted = true;
    let one = &mut e.futexes.buckets[bucket];
    if one.holder.is_none() {
        one.holder = Some(me);
    } else {
        one.queue.push_back(me);
        thread.state = State::InKernel(bucket);
        let cpu = e.my_cpu();
        e.is_doing(cpu, Activity::Kernel);
        suspend();
    }
    advance(share(engine().profile.kernel.bucket_ns, 1.0), Activity::Kernel);
}

/// Releases a bucket; the next in the queue has it when the line has passed all spinning threads.
fn let_go(bucket: usize) {
    let e = engine();
    let me = e.me();
    e.threads[me as usize].unpreempted = false;
    let one = &mut e.futexes.buckets[bucket];
    let spinning = one.queue.len();
    one.holder = one.queue.pop_front();
    if let Some(next) = one.holder {
        let kernel = &e.profile.kernel;
        #[allow(clippy::cast_precision_loss, reason = "at most as many as CPUs")]
        let travels = ps(kernel.bucket_ns * kernel.bucket_contention * spinning as f64);
        let travels = e.about(travels);
        let turn = e.threads[next as usize].turn;
        e.post(e.now + travels, What::Resume { thread: next, turn });
    }
}

/// A share of a call's length, which is longer while the core's other hardware thread is busy.
fn share(ns: f64, share: f64) -> Ps {
    let e = engine();
    let time = ps(ns * share * e.smt_factor(e.my_cpu()));
    e.about(time)
}

/// What is left of an uncontended call of `ns` once it has had the bucket.
fn after_bucket(ns: f64) -> f64 {
    (ns * (1.0 - ENTRY) - engine().profile.kernel.bucket_ns).max(0.0)
}

/// Sleeps while the word at `address` holds `seen`, until a wake or `deadline`.
///
/// # Safety
/// The word is live.
pub(crate) unsafe fn wait(
    address: *const u32,
    seen: u32,
    deadline: Option<Ps>,
    movable: bool,
) -> Woken {
    let sleep_ns = engine().profile.kernel.sleep_ns;
    advance(share(sleep_ns, ENTRY), Activity::Kernel);
    let bucket = bucket_of(address.addr());
    take_bucket(bucket);
    reach(address.addr(), Access::Load);
    // From here on nothing else happens until the thread is queued.
    // SAFETY: the caller's promise.
    if unsafe { address.read() } != seen {
        let_go(bucket);
        advance(share(sleep_ns, ENTRY / 2.0), Activity::Kernel);
        return Woken::Maybe;
    }
    let_go(bucket);
    let e = engine();
    if deadline.is_some_and(|end| end <= e.now) {
        return Woken::TimedOut;
    }
    let me = e.me();
    e.futexes.sleeps += 1;
    e.futexes.sleepers.push_back(Sleeper { thread: me, address: address.addr(), movable });
    let thread = &mut e.threads[me as usize];
    thread.state = State::Sleeping(address.addr());
    thread.timed_out = false;
    thread.evict = false;
    if deadline.is_none() {
        // A thread that gives up, or looks again, by itself waits for nobody.
        thread.seen_waiting.get_or_insert(e.now);
    }
    let (cpu, turn) = (thread.cpu, thread.turn);
    if let Some(end) = deadline {
        let slack = ps(e.profile.kernel.timer_slack_ns);
        let late = e.about(slack);
        e.post(end + late, What::Timer { thread: me, turn });
    }
    let rest = share(after_bucket(sleep_ns), 1.0);
    let e = engine();
    e.is_off_cpu(me, true);
    e.give_up_cpu(cpu, rest);
    suspend();
    let e = engine();
    e.is_off_cpu(me, false);
    if std::mem::take(&mut e.threads[me as usize].timed_out) {
        Woken::TimedOut
    } else {
        Woken::Maybe
    }
}

/// Wakes at most `count` sleepers at `address`; if `moved`, only movable ones.
pub(crate) fn wake(address: usize, count: u32, moved: bool) -> u32 {
    let e = engine();
    let kernel = &e.profile.kernel;
    let (wake_ns, turnaround) = (kernel.wake_ns, ps(kernel.turnaround_ns));
    let holding = kernel.wakes_in_bucket;
    let called = e.now;
    advance(share(wake_ns, ENTRY), Activity::Kernel);
    let bucket = bucket_of(address);
    take_bucket(bucket);
    let mut woken = Vec::new();
    for _ in 0..count {
        let meant = |s: &Sleeper| s.address == address && (!moved || s.movable);
        let futexes = &mut engine().futexes;
        let Some(index) = futexes.sleepers.iter().position(meant) else { break };
        let sleeper = futexes.sleepers.remove(index).expect("just found").thread;
        futexes.wakes += 1;
        // From here on its deadline no longer counts.
        let thread = &mut engine().threads[sleeper as usize];
        thread.state = State::Woken;
        thread.turn += 1;
        let e = engine();
        if let Some(paths) = &mut e.paths {
            paths.wakes(e.running.expect("a thread runs"), sleeper);
        }
        woken.push(sleeper);
    }
    if !holding {
        let_go(bucket);
    }
    let served = u32::try_from(woken.len()).unwrap_or(count);
    for sleeper in woken {
        let e = engine();
        let takes = e.about(turnaround);
        // The context switch to the woken thread is part of the turnaround, and the scheduler charges it.
        let switch = ps(e.profile.kernel.switch_ns);
        let at = (called + takes.saturating_sub(switch)).max(e.now);
        e.post(at, What::Ready { thread: sleeper });
        advance(share(after_bucket(wake_ns), 1.0), Activity::Kernel);
    }
    if holding {
        let_go(bucket);
    }
    served
}

/// Moves at most `count` sleepers from one address to another, if the first holds `seen`.
///
/// # Safety
/// The word at `from` is live.
pub(crate) unsafe fn requeue(from: *const u32, seen: u32, to: usize, count: u32) -> u32 {
    let wake_ns = engine().profile.kernel.wake_ns;
    advance(share(wake_ns, ENTRY), Activity::Kernel);
    let bucket = bucket_of(from.addr());
    take_bucket(bucket);
    // SAFETY: the caller's promise.
    if unsafe { from.read() } != seen {
        let_go(bucket);
        return 0;
    }
    let e = engine();
    let mut moved = 0;
    for sleeper in &mut e.futexes.sleepers {
        if moved < count && sleeper.address == from.addr() {
            sleeper.address = to;
            e.threads[sleeper.thread as usize].state = State::Sleeping(to);
            moved += 1;
        }
    }
    let_go(bucket);
    moved
}
