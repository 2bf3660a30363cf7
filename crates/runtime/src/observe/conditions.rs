//! What condition variables do, for observers: who waits, who wakes whom, and whether a wake-up was of use.
//!
//! A thread that was woken holds the mutex again, and so asks itself to release it by the slow path. If that release comes first, the
//! thread has got on. If it waits for the same condition variable first, the wake-up was wasted.

use super::{Account, account, alone, awaited, is_full, looks, opened, place_of, stack, wrappers};
use crate::caller::Call;
use crate::layout::Mutex;
use crate::thread;
use lockwright_contract::counters::{Blame, Segment, Wait, Waking};
use lockwright_locks::condvar::Given;
use lockwright_locks::posix;
use lockwright_native::futex::{self, Clock};
use lockwright_native::place;

/// The calling thread, which holds the mutex, is about to wait. Returns since when, ns; 0: the wait isn't counted.
#[cold]
pub(crate) fn waits(condition: usize, mutex: usize) -> u64 {
    let Some(segment) = awaited() else { return 0 };
    let (account, now) = (account(), futex::now(Clock::Monotonic));
    looks(&segment, now);
    segment.condition_waits(condition as u64, mutex as u64, now);
    settle(account, &segment, condition as u64, mutex as u64);
    now
}

/// The thread waits, after it may have been woken before.
fn settle(account: &Account, segment: &Segment, condition: u64, mutex: u64) {
    let before = account.condition.replace(condition);
    // If it waits for another condition variable, it has got on.
    if account.woken_with.get() == mutex && before == condition {
        account.woken_with.set(0);
        segment.condition_wasted(condition);
    } else if account.woken_with.replace(0) != 0 {
        segment.condition_got_on(before);
    }
}

/// The wait, which began at `since`, has ended: by a signal, or because the deadline has passed. The thread doesn't hold the mutex.
#[cold]
pub(crate) fn has_waited(condition: usize, since: u64, signalled: bool, call: Call) {
    let Some(segment) = opened() else { return };
    let now = futex::now(Clock::Monotonic);
    let ns = now.saturating_sub(since);
    alone(since, ns);
    let call = wrappers::beyond(call);
    let (lock, site) = (condition as u64, call.from as u64);
    let wants = is_full() && segment.wants_stack(lock, site, ns);
    segment.condition_waited(&Wait {
        lock,
        site,
        stack: if wants { stack(&segment, call) } else { 0 },
        tid: thread::id(),
        ended_ns: now,
        ns,
        weight: 1,
        class: place::among_usable().class.0,
        asleep: true,
        acquired: signalled,
        by_thread: is_full(),
    });
}

/// The thread that was woken holds the mutex again.
#[cold]
pub(crate) fn goes_on(mutex: &Mutex) {
    if opened().is_some() && posix::is_ours(mutex) {
        account().woken_with.set(core::ptr::from_ref(mutex).addr() as u64);
        posix::ask(mutex);
    }
}

/// The calling thread has woken waiters, by this call. The condition variable may be gone.
#[cold]
pub(crate) fn wakes(condition: usize, all: bool, given: Given, call: Call) {
    let Some(segment) = opened().filter(|_| given.threads != 0) else { return };
    let (condition, call) = (condition as u64, wrappers::beyond(place_of(call)));
    let known = if given.timed == 0 { 0 } else { futex::now(Clock::Monotonic) };
    let waking = Waking {
        all,
        threads: given.threads,
        // The sums may wrap, their difference doesn't.
        waited_ns: known.wrapping_mul(given.timed.into()).wrapping_sub(given.since_ns),
        longest_ns: known.saturating_sub(given.first_ns),
        by_waiter: account().condition.get() == condition,
    };
    let by = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
    segment.condition_wakes(condition, waking, by, || stack(&segment, call));
}

/// The condition variable at this address is destroyed.
#[cold]
pub(crate) fn retire(condition: usize) {
    if let Some(segment) = opened() {
        segment.retire_condition(condition as u64);
    }
}
