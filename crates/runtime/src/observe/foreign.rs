//! Mutexes that glibc serves (robust, shared, with priorities), for observers: who waits, and who makes others wait.
//!
//! While something is counted, locking begins with a look, so that only waits count: glibc's own trylock would take a mutex that can't be
//! recovered, and looks at no argument. Of other processes, which may hold or want a
//! shared mutex, nothing is seen.

use super::{account, before_sleep, begins, begun, count, ends, is_full, opened, place_of};
use super::{awaited, stack, wrappers};
use crate::caller::Call;
use crate::thread;
use core::ffi::c_int;
use lockwright_contract::counters::Blame;
use lockwright_contract::counters::layout::LockKind;
use lockwright_native::futex::{self, Clock};

/// Locks, by this call. `busy`: does another thread seem to hold it? Returns what `locks` returns.
#[cold]
pub(crate) fn lock(lock: usize, call: Call, busy: bool, locks: impl FnOnce() -> c_int) -> c_int {
    if !busy {
        return locks();
    }
    let Some(segment) = awaited() else { return locks() };
    begins(&segment, (lock as u64, LockKind::Mutex), || 0, place_of(call));
    before_sleep(); // glibc doesn't spin, or not for long
    let answer = locks();
    let acquired = matches!(answer, 0 | libc::EOWNERDEAD);
    if let Some((segment, wait)) = ends(lock as u64, acquired) {
        if acquired {
            segment.answers(lock as u64, wait.ended_ns, false); // whoever still waits notes it at the next sleep
        }
        let account = account();
        account.ended.set(wait);
        count(account, &segment);
    }
    answer
}

/// Unlocks, by this call. Returns what `unlocks` returns.
#[cold]
pub(crate) fn unlock(lock: usize, call: Call, unlocks: impl FnOnce() -> c_int) -> c_int {
    let since_ns = opened().map_or(0, |segment| segment.blocked_since(lock as u64));
    let now_ns = if since_ns == 0 { 0 } else { futex::now(Clock::Monotonic) };
    let answer = unlocks();
    if let Some(segment) = opened().filter(|_| since_ns != 0 && answer == 0) {
        let call = wrappers::beyond(place_of(call));
        let blame = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
        let stack = || stack(&segment, call);
        segment.blocked_from(lock as u64, since_ns, now_ns, begun(), blame, stack);
    }
    answer
}
