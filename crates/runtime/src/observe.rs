//! What locks do, counted in shared memory (`contract`'s `counters`): who waits, for how long, and for whom.
//!
//! ```text
//!   waits        if this wait is sampled (one in several), notes when, and makes the holder unlock by the slow path
//!     sleeps     notes when it began to wait, each time
//!   has_waited   takes the time, if the thread slept or the wait is sampled; keeps the result, and counts it later
//!   releases     takes the time, and since when somebody has waited                  │ the mutex may be gone
//!   released     counts: this wait, this hold, and the waits that the holder caused  ◄────┘
//! ```
//!
//! All of it lies on paths that wait anyway; the uncontended path knows nothing of it. Counting happens after a release, so that
//! nobody waits for it. We also see a holder that never had to wait: the waiter sends its unlock to the slow path, and there the
//! caller's address and stack are those of the critical section.
//!
//! Other objects have files of their own: [`semaphores`] and [`foreign`] mutexes, since they stay glibc's; [`rwlocks`], [`spins`] and
//! [`conditions`]. So have attempts that don't wait ([`tries`]).
//!
//! The level is a word that commands write ([`lockwright_observe`]). The first thread that has to wait makes the segment. A
//! process that can't have one goes on without it.

pub(crate) mod conditions;
pub(crate) mod foreign;
pub(crate) mod maps;
mod open;
pub(crate) mod rwlocks;
pub(crate) mod semaphores;
pub(crate) mod spins;
mod stack;
pub(crate) mod tries;
pub(crate) mod wrappers;

pub(crate) use open::{load, lockwright_observe};

use crate::caller::Call;
use crate::fork;
use crate::layout::Mutex;
use crate::thread::{self, Room};
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use lockwright_contract::counters::control::{Level, NONE, OPEN, Sampling, Settled};
use lockwright_contract::counters::layout::LockKind;
use lockwright_contract::counters::{Blame, Segment, Wait};
use lockwright_locks::front::counts;
use lockwright_locks::posix::{self, Releasing};
use lockwright_native::futex::{self, Clock};
use lockwright_native::place;
use lockwright_platform::Word;
use open::{is_full, opened};
use stack::stack;

/// A thread's account. Zeroes are the account of a thread that waits for nothing.
#[repr(C)]
pub(crate) struct Account {
    /// The lock that it waits for; 0: none.
    lock: Cell<u64>,
    /// Since when, ns; 0: it hasn't read the clock.
    since_ns: Cell<u64>,
    /// Until when its waits are accounted for.
    settled: Cell<Settled>,
    /// The same before its last counted wait, ns.
    before_ns: Cell<u64>,
    /// The call that asked for the lock.
    at: Cell<Call>,
    /// The thread's last call to us; consumed by the code that needs it.
    call: Cell<Call>,
    /// A wait that has ended, and is not counted yet; if its lock is 0: none.
    ended: Cell<Wait>,
    /// Since when it has held `ended.lock`, ns; 0: the hold isn't timed.
    held_since_ns: Cell<u64>,
    sampling: Cell<Sampling>,
    /// A lock, and how many waits for it have yet to be added to its record.
    uncounted_lock: Cell<u64>,
    uncounted: Cell<u32>,
    /// How many waits the current one stands for; 0: it isn't sampled.
    counts: Cell<u32>,
    /// How long it had been awake when it last fell asleep, ns.
    awake_ns: Cell<u32>,
    /// Has it slept in this wait? Between waits: in the last one?
    slept: Cell<bool>,
    /// `call` must not change: the program has called a function of ours there, which releases a mutex, or acquires it again.
    is_within: Cell<bool>,
    /// What kind of lock `lock` is.
    kind: Cell<LockKind>,
    /// How often it has tried in vain to take `tried_lock`, from `tried_from`, since the segment was told at `tried_ns`.
    tried: Cell<u32>,
    tried_lock: Cell<u64>,
    tried_from: Cell<u64>,
    tried_ns: Cell<u64>,
    /// The condition variable that it waited for last; 0: none.
    condition: Cell<u64>,
    /// The mutex that it holds since it was woken there; 0: it has released the mutex since, or wasn't woken.
    woken_with: Cell<u64>,
}

/// Bytes of an [`Account`].
pub(crate) const ACCOUNT: usize = 224;
const _: () = assert!(size_of::<Account>() == ACCOUNT);
const _: () = assert!(size_of::<Room<ACCOUNT>>() == ACCOUNT);

fn account() -> &'static Account {
    // SAFETY: the calling thread's own memory, always of this type.
    unsafe { (*thread::this()).observed.account() }
}

/// Is anything counted?
#[inline(always)]
pub(crate) fn is_on() -> bool {
    lockwright_observe.level.load(Relaxed) != Level::Off as u32 // a hint
}

/// The segment; makes it if the process has none yet.
#[inline]
fn segment() -> Option<Segment> {
    // ORDERING: Acquire, pairs with the Release in `publish`.
    match lockwright_observe.state.load(Acquire) {
        OPEN => opened(),
        NONE => open::open(in_child, before_sleep),
        _ => None,
    }
}

/// When counting began: notes from before that are out of date.
fn begun() -> u64 {
    lockwright_observe.since_ns.load(Relaxed) // a hint: written before the level
}

/// The calling thread has to wait; `caller` is the address of its call, or 0. `false`: the wait isn't counted.
#[cold]
pub(crate) fn waits(mutex: &Mutex, caller: usize) -> bool {
    let Some(segment) = awaited() else { return false };
    let (lock, call) = (core::ptr::from_ref(mutex).addr() as u64, account().call.take());
    let call = if caller == 0 { call } else { Call { from: caller, ..call } };
    let place = || mutex.counts.load(Relaxed) & counts::LOCK;
    let counts = begins(&segment, (lock, LockKind::Mutex), place, call);
    if counts != 0 {
        posix::ask(mutex);
    }
    true
}

/// The segment, for a thread that may be the first of a forked child to ask.
fn seen_fork() -> Option<Segment> {
    fork::era(); // so that a child notices the fork even if no fork handler ran
    segment()
}

/// As [`seen_fork`], for a thread that has to wait for a lock in any case. If another thread is making the segment, waits for it.
fn awaited() -> Option<Segment> {
    seen_fork().or_else(open::opening)
}

/// The calling thread has to wait for a lock, by this call; `place` says where the lock is in the table. Returns how many waits this one
/// counts for; 0: it isn't sampled.
fn begins(
    segment: &Segment,
    (lock, kind): (u64, LockKind),
    place: impl FnOnce() -> u32,
    call: Call,
) -> u32 {
    let account = account();
    count(account, segment);
    // The lock may be free again, and both a clock and the lock's cache line, which the holder needs, take as long as a short
    // wait. So this touches them only now and then. But a thread that has slept will probably sleep again.
    let slept = account.slept.replace(false);
    let mut sampling = account.sampling.get();
    let (mut now, mut counts) = (0, 0);
    if sampling.wants_clock() || slept {
        now = futex::now(Clock::Monotonic);
        looks(segment, now);
        counts = sampling.next(now);
    }
    account.sampling.set(sampling);
    arrives(account, segment, (lock, kind), place, now, counts != 0);
    account.lock.set(lock);
    account.kind.set(kind);
    account.since_ns.set(now);
    account.at.set(call);
    account.counts.set(counts);
    if counts != 0 && kind != LockKind::Spin {
        segment.blocks(lock, now, counts, begun());
    }
    counts
}

/// The time is `now`: what is due?
fn looks(segment: &Segment, now: u64) {
    lockwright_observe.expire(now);
    if maps::is_due(now) {
        maps::tell(segment, now);
    }
}

/// Counts one more wait. The segment is told only now and then: each time would cost as much as a short wait. `now` is 0 if
/// nobody has read the clock.
#[inline]
fn arrives(
    account: &Account,
    segment: &Segment,
    (lock, kind): (u64, LockKind),
    place: impl FnOnce() -> u32,
    now: u64,
    tell: bool,
) {
    let (of, count) = (account.uncounted_lock.replace(lock), account.uncounted.get());
    if of == lock && !tell {
        return account.uncounted.set(count + 1);
    }
    let now = if now == 0 { futex::now(Clock::Monotonic) } else { now };
    if of == lock || count == 0 {
        segment.arrived_at(lock, kind, place(), now, u64::from(count) + 1);
    } else {
        segment.arrived_before(of, u64::from(count));
        segment.arrived_at(lock, kind, place(), now, 1);
    }
    account.uncounted.set(0);
}

/// Before any sleep of a thread.
fn before_sleep() {
    let account = account();
    let lock = account.lock.get();
    let is_again = lock != 0 && account.slept.replace(true);
    if lock == 0 || is_again && account.kind.get() != LockKind::ReadWrite {
        return;
    }
    let now = futex::now(Clock::Monotonic);
    let since = match account.since_ns.get() {
        // Others have overtaken it: now it waits for them.
        _ if is_again => now,
        // As long as before its last sleep.
        0 => now.saturating_sub(account.awake_ns.get().into()),
        since => since,
    };
    if !is_again {
        account.since_ns.set(since);
        account.awake_ns.set(now.saturating_sub(since).min(u32::MAX.into()) as u32);
    }
    if let Some(segment) = opened() {
        segment.blocks(lock, since, 1, begun());
    }
}

/// The wait has ended.
#[cold]
pub(crate) fn has_waited(mutex: &Mutex, acquired: bool) {
    let lock = core::ptr::from_ref(mutex).addr() as u64;
    let Some((segment, wait)) = ends(lock, acquired) else { return };
    let account = account();
    account.ended.set(wait);
    if !acquired {
        if posix::waiters(mutex) == 0 {
            segment.blocked_since(lock); // as the holder may have noted for this thread
        }
        return count(account, &segment);
    }
    segment.answers(lock, wait.ended_ns, posix::waiters(mutex) > 0);
    account.held_since_ns.set(wait.ended_ns);
    // We hold it: nobody else uses the mutex's count.
    if let Some(count) = posix::acquisitions(mutex) {
        segment.acquired(lock, count.into());
    }
    posix::ask(mutex); // asks our own unlock to come by the slow path
}

/// The calling thread's wait for this lock has ended. `None`: nothing is counted.
fn ends(lock: u64, acquired: bool) -> Option<(Segment, Wait)> {
    let account = account();
    // It is another lock if a signal handler has waited meanwhile.
    let is_this = account.lock.replace(0) == lock;
    let (slept, counts) = (account.slept.get(), account.counts.get());
    let timed = is_this && (slept || counts != 0 || !acquired);
    // Readers hold a lock together, and nobody knows who is the owner.
    let is_owned = is_full() && acquired && account.kind.get() != LockKind::ReadWrite;
    if !timed && !is_owned {
        return None;
    }
    let segment = opened()?;
    let follows = is_owned && (timed || segment.is_followed(lock));
    if !timed && !follows {
        return None;
    }
    let here = place::among_usable();
    if follows {
        segment.follow(lock, thread::id(), here.cpu, timed);
    }
    if !timed {
        return None;
    }
    if account.uncounted_lock.get() == lock && account.uncounted.get() != 0 {
        segment.arrived_before(lock, account.uncounted.take().into());
    }
    let (now, at) = (futex::now(Clock::Monotonic), wrappers::beyond(account.at.get()));
    let since = match account.since_ns.get() {
        0 => now, // it gave up, and neither slept nor was to be timed
        since => since,
    };
    let ns = now.saturating_sub(since);
    let (mut sampling, mut settled) = (account.sampling.get(), account.settled.get());
    // Waits with a sleep are all timed, so such a wait stands only for itself. So does one that gave up.
    let before = settled.until(since, begun());
    let span =
        if slept || !acquired { settled.alone(before, ns) } else { settled.all(before, now) };
    let counts = sampling.cap(counts, ns, span);
    account.sampling.set(sampling);
    account.settled.set(settled);
    account.before_ns.set(before);
    let wait = Wait {
        lock,
        site: at.from as u64,
        stack: 0,
        tid: thread::id(),
        ended_ns: now,
        ns,
        weight: if slept || !acquired { 1 } else { counts },
        class: here.class.0,
        asleep: slept,
        acquired,
        by_thread: is_full(),
    };
    // Now, while the frames of the call still exist. We hold the lock here, but few stacks are wanted.
    let wants = is_full() && segment.wants_stack(lock, wait.site, wait.ns);
    let stack = if wants { stack(&segment, at) } else { 0 };
    if !acquired {
        segment.gives_up(lock, since);
    }
    Some((segment, Wait { stack, ..wait }))
}

/// The wait has ended: another thread has run the section, so the caller holds nothing.
#[cold]
pub(crate) fn was_served(mutex: &Mutex) {
    let lock = core::ptr::from_ref(mutex).addr() as u64;
    let Some((segment, wait)) = ends(lock, true) else { return };
    let account = account();
    account.ended.set(wait);
    account.held_since_ns.set(0);
    segment.answers(lock, wait.ended_ns, posix::waiters(mutex) > 0);
    count(account, &segment);
}

/// A wait since `since`, which took `ns`, counts only for itself: waits that stand for others don't count its time again.
fn alone(since: u64, ns: u64) {
    let settled = &account().settled;
    let mut until = settled.get();
    until.alone(until.until(since, begun()), ns);
    settled.set(until);
}

/// The calling thread is in a child process: the segment, and what it has yet to count, were in the parent.
fn in_child() {
    open::forget();
    let account = account();
    account.settled.take();
    account.ended.take();
    account.held_since_ns.set(0);
    account.sampling.take();
    account.uncounted_lock.set(0);
    account.uncounted.set(0);
    account.tried.set(0);
    account.tried_ns.set(0);
    account.condition.set(0);
    account.woken_with.set(0);
}

/// The process ends.
pub(crate) fn at_exit() {
    if account().tried.get() != 0
        && let Some(segment) = seen_fork()
    {
        count_tries(account(), &segment);
    }
    open::at_exit();
}

/// Counts what the thread has tried in vain since the segment was told.
fn count_tries(account: &Account, segment: &Segment) {
    if account.tried.get() != 0 {
        let count = account.tried.take().into();
        segment.tried_before(
            account.tried_lock.get(),
            account.tried_from.get(),
            thread::id(),
            count,
        );
    }
}

/// Counts the wait that has ended, and the tries, if any.
fn count(account: &Account, segment: &Segment) {
    count_tries(account, segment);
    // Looked at before it is taken: most threads have nothing to count.
    if account.ended.get().lock != 0 {
        segment.waited(&account.ended.take());
        account.held_since_ns.set(0);
    }
}

/// The calling thread is about to release a mutex, by the slow path. Notes since when somebody waits for it: the thread that it wakes
/// may run before [`released`] does, and then writes its own time.
#[cold]
pub(crate) fn releases(mutex: &Mutex) -> Releasing {
    let Some(segment) = opened() else { return Releasing::default() };
    let since_ns = segment.blocked_since(core::ptr::from_ref(mutex).addr() as u64);
    Releasing { now_ns: futex::now(Clock::Monotonic), since_ns }
}

/// The mutex has been released; `release` is what [`releases`] said, or zeroes if the lock was granted to a waiter.
#[cold]
pub(crate) fn released(address: usize, release: Releasing) {
    let Releasing { now_ns: release, since_ns } = release;
    let (account, lock) = (account(), address as u64);
    let call = account.call.take();
    let is_woken = account.woken_with.get() == lock;
    let ended = account.ended.get();
    let timed = ended.lock == lock && ended.ended_ns > begun();
    let Some(segment) = opened().filter(|_| release != 0 || timed || is_woken) else { return };
    if is_woken {
        account.woken_with.set(0);
        segment.condition_got_on(account.condition.get());
    }
    if release == 0 && !timed {
        return;
    }
    let now = if release != 0 { release } else { futex::now(Clock::Monotonic) };
    let call = wrappers::beyond(call);
    let stack = || stack(&segment, call);
    let blame = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
    if timed {
        let since = account.held_since_ns.get();
        count(account, &segment);
        if since != 0 {
            let held = now.saturating_sub(since);
            // The holds that this one stands for all happened after the waits that were accounted for before, so together they
            // can't have lasted longer than that.
            let most = now.saturating_sub(account.before_ns.get()) / held.max(1);
            let weight = ended.weight.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1);
            segment.held(lock, held, weight, blame);
            if release == 0 {
                segment.blocked_by_hold(lock, held, weight, blame, stack);
            }
        }
    }
    if release != 0 {
        segment.tries_end(lock, blame, stack);
        segment.blocked_from(lock, since_ns, now, begun(), blame, stack);
    }
}

/// The program has called us, by this call, to lock or to unlock by a slow path.
#[inline]
pub(crate) fn called(call: Call) {
    let account = account();
    if !account.is_within.get() {
        account.call.set(call);
    }
}

/// The program's last call to us, as [`called`] noted it.
pub(crate) fn last_call() -> Call {
    account().call.take()
}

/// The place of the call from `caller`, for rules: if wrappers passed it on, where the outermost of them was called.
pub(crate) fn beyond_wrappers(caller: usize) -> usize {
    if !wrappers::are_known() {
        return caller;
    }
    let call = account().call.get();
    if call.from == caller { wrappers::beyond(call).from } else { caller }
}

/// Where the program has called us: by this call, unless it is one of our own, in [`within`].
fn place_of(call: Call) -> Call {
    let account = account();
    if account.is_within.get() { account.call.get() } else { call }
}

/// Runs `act`, in which a function of ours that the program called, by this call, releases a mutex or acquires it.
#[inline]
pub(crate) fn within<R>(call: Call, act: impl FnOnce() -> R) -> R {
    if !is_on() || call.from == 0 {
        return act();
    }
    let account = account();
    account.is_within.set(true);
    account.call.set(call);
    let result = act();
    account.is_within.set(false);
    result
}

/// A mutex is destroyed.
#[cold]
pub(crate) fn retire(mutex: &Mutex) {
    if let Some(segment) = opened() {
        let lock = core::ptr::from_ref(mutex).addr() as u64;
        segment.retire(lock);
    }
}
