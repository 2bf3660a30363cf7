//! Sleeping: futexes with their costs, and the kernel's hash buckets, where calls on one address wait for each other.
//!
//! A wait is: enter the kernel, take the bucket, compare, queue, leave the core. A wake: enter, take the bucket, unqueue, send
//! each of the woken on its way, which takes `turnaround_ns` and, from a deep idle core, more. Whoever waits for a bucket
//! makes it slower for its holder (its line moves), which is why many threads at one futex are slower than one by one.

use crate::engine::{Ps, State, Tid, What, advance, engine, ps, suspend};
use crate::lines::{Access, reach};
use crate::profile::Profile;
use crate::timeline::Activity;
use lockwright_platform::Woken;
use std::collections::VecDeque;

/// What share of a call goes by before the bucket is taken.
const ENTRY: f64 = 0.4;

struct Sleeper {
    thread: Tid,
    address: usize,
    movable: bool,
}

/// All sleepers, in the order of their coming.
pub(crate) struct Futexes {
    sleepers: VecDeque<Sleeper>,
    buckets: Vec<Ps>,
    /// Calls that found the word changed, sleeps, and wakes of somebody, for reports.
    pub(crate) sleeps: u64,
    pub(crate) wakes: u64,
}

impl Futexes {
    pub(crate) fn new(profile: &Profile) -> Self {
        let buckets = vec![0; profile.kernel.buckets.max(1) as usize];
        Self { sleepers: VecDeque::new(), buckets, sleeps: 0, wakes: 0 }
    }

    /// A sleeper whose time is up.
    pub(crate) fn leave(&mut self, thread: Tid) {
        self.sleepers.retain(|sleeper| sleeper.thread != thread);
    }
}

/// Takes the bucket of `address`, waiting for those before us, and lets it go.
fn pass_bucket(address: usize) {
    let e = engine();
    // The line's number, not the address, so that runs do not depend on where memory is.
    let (line, offset) = e.lines.name_of(address);
    let count = e.futexes.buckets.len();
    let bucket = (line as usize * 31 + offset) % count;
    let hold = ps(e.profile.kernel.bucket_ns);
    let free_at = e.futexes.buckets[bucket].max(e.now);
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let waiters = (free_at - e.now) as f64 / hold.max(1) as f64;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ps")]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
    let hold = (hold as f64 * (1.0 + e.profile.kernel.bucket_contention * waiters)) as Ps;
    let hold = e.about(hold);
    e.futexes.buckets[bucket] = free_at + hold;
    advance(free_at + hold - e.now, Activity::Kernel);
}

fn share(ns: f64, share: f64) -> Ps {
    let time = ps(ns * share);
    engine().about(time)
}

/// Sleeps while the word at `address` holds `seen`, until a wake or `deadline`.
///
/// # Safety
/// The word is there.
pub(crate) unsafe fn wait(
    address: *const u32,
    seen: u32,
    deadline: Option<Ps>,
    movable: bool,
) -> Woken {
    let sleep_ns = engine().profile.kernel.sleep_ns;
    advance(share(sleep_ns, ENTRY), Activity::Kernel);
    pass_bucket(address.addr());
    reach(address.addr(), Access::Load);
    // From here on nothing else happens until the thread is queued.
    // SAFETY: the caller's promise.
    if unsafe { address.read() } != seen {
        advance(share(sleep_ns, ENTRY / 2.0), Activity::Kernel);
        return Woken::Maybe;
    }
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
    thread.seen_waiting.get_or_insert(e.now);
    let (cpu, turn) = (thread.cpu, thread.turn);
    if let Some(end) = deadline {
        let slack = ps(e.profile.kernel.timer_slack_ns);
        let late = e.about(slack);
        e.post(end + late, What::Timer { thread: me, turn });
    }
    let rest = share(sleep_ns, 1.0 - ENTRY);
    engine().give_up_cpu(cpu, rest);
    suspend();
    let e = engine();
    if std::mem::take(&mut e.threads[me as usize].timed_out) {
        Woken::TimedOut
    } else {
        Woken::Maybe
    }
}

/// Wakes at most `count` of those who sleep at `address`; if `moved`, only those who sleep there movably.
pub(crate) fn wake(address: usize, count: u32, moved: bool) {
    let e = engine();
    let kernel = &e.profile.kernel;
    let (wake_ns, turnaround) = (kernel.wake_ns, ps(kernel.turnaround_ns));
    let called = e.now;
    advance(share(wake_ns, ENTRY), Activity::Kernel);
    pass_bucket(address);
    for _ in 0..count {
        let e = engine();
        let meant = |s: &Sleeper| s.address == address && (!moved || s.movable);
        let Some(index) = e.futexes.sleepers.iter().position(meant) else { break };
        let sleeper = e.futexes.sleepers.remove(index).expect("just found").thread;
        e.futexes.wakes += 1;
        let thread = &mut e.threads[sleeper as usize];
        thread.state = State::Woken;
        thread.turn += 1;
        let takes = e.about(turnaround);
        // A context switch to the woken is part of the turnaround, and is paid by the scheduler.
        let switch = ps(e.profile.kernel.switch_ns);
        let at = (called + takes.saturating_sub(switch)).max(e.now);
        e.post(at, What::Ready { thread: sleeper });
        advance(share(wake_ns, 1.0 - ENTRY), Activity::Kernel);
    }
}

/// Moves at most `count` sleepers from one address to another, if the first holds `seen`.
///
/// # Safety
/// The word at `from` is there.
pub(crate) unsafe fn requeue(from: *const u32, seen: u32, to: usize, count: u32) -> u32 {
    let wake_ns = engine().profile.kernel.wake_ns;
    advance(share(wake_ns, ENTRY), Activity::Kernel);
    pass_bucket(from.addr());
    // SAFETY: the caller's promise.
    if unsafe { from.read() } != seen {
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
    moved
}
