//! Tries in vain: threads that try to take a lock, and don't wait if they can't.
//!
//! A thread that does something else meanwhile may try many times in a row. So it tells the segment of the first try, and then of
//! several at once. What it has tried just before it ends is not counted.

use super::{account, count_tries, is_full, looks, place_of, seen_fork, stack, wrappers};
use crate::caller::Call;
use crate::layout::Mutex;
use crate::thread;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::counters::Blame;
use lockwright_contract::counters::layout::LockKind;
use lockwright_locks::front::counts;
use lockwright_locks::posix;
use lockwright_native::futex::{self, Clock};
use lockwright_platform::Word;

/// A thread tells of this many tries at once, at most.
const MOST: u32 = 64;
/// After this time it tells of any, ns.
const SLOW_NS: u64 = 1_000_000;

/// The calling thread has tried to take a mutex, by this call, and didn't get it.
#[cold]
pub(crate) fn mutex(m: &Mutex, call: Call) {
    let lock = (core::ptr::from_ref(m).addr(), LockKind::Mutex);
    let place = || m.counts.load(Relaxed) & counts::LOCK;
    let asks = || {
        posix::ask(m);
        posix::is_asked(m)
    };
    failed(lock, place, asks, call);
}

/// The same, with a readers-writer lock. `asks` makes its holder release it by the slow path; `false`: it doesn't.
#[cold]
pub(crate) fn rwlock(lock: usize, asks: impl FnOnce() -> bool, call: Call) {
    failed((lock, LockKind::ReadWrite), || 0, asks, call);
}

/// The same, with a spin lock.
#[cold]
pub(crate) fn spin(lock: usize, call: Call) {
    failed((lock, LockKind::Spin), || 0, || false, call);
}

fn failed(
    (lock, kind): (usize, LockKind),
    place: impl FnOnce() -> u32,
    asks: impl FnOnce() -> bool,
    call: Call,
) {
    let Some(segment) = seen_fork() else { return };
    let (account, lock, call) = (account(), lock as u64, place_of(call));
    let from = call.from as u64;
    if account.tried_lock.get() != lock || account.tried_from.get() != from {
        count_tries(account, &segment);
        account.tried_lock.set(lock);
        account.tried_from.set(from);
        account.tried_ns.set(0);
    }
    let count = account.tried.get() + 1;
    account.tried.set(count);
    if !count.is_power_of_two() {
        return; // the clock takes as long as a try
    }
    let now = futex::now(Clock::Monotonic);
    if count < MOST && now.saturating_sub(account.tried_ns.get()) < SLOW_NS {
        return;
    }
    looks(&segment, now);
    account.tried.set(0);
    account.tried_ns.set(now);
    // Now that it is recorded.
    let call = wrappers::beyond(call);
    let at = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
    let stack = || stack(&segment, call);
    segment.tried((lock, kind, place()), now, count.into(), asks(), at, stack);
}
