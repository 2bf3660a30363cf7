//! What readers-writer locks do, for observers: who waits, for readers or for a writer, and who lets the waiters in.
//!
//! A release that finds nobody waiting isn't seen. Of readers that hold a lock together, the last one to leave is to blame. If a
//! policy has sent readers to the table, their releases are not seen either.

use super::{account, awaited, begins, begun, ends, is_full, opened, place_of, stack, wrappers};
use crate::caller::Call;
use crate::thread;
use lockwright_contract::counters::layout::LockKind;
use lockwright_contract::counters::{Blame, RwWait};
use lockwright_native::futex::{self, Clock};

/// A release that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// When, ns.
    now_ns: u64,
    /// Since when somebody has waited, according to the segment; 0: nobody has.
    since_ns: u64,
}

/// The calling thread has to wait for the lock at this address. `false`: the wait isn't counted.
#[cold]
pub(crate) fn waits(lock: usize, call: Call) -> bool {
    let Some(segment) = awaited() else { return false };
    begins(&segment, (lock as u64, LockKind::ReadWrite), || 0, place_of(call));
    true
}

/// The wait has ended. `others`: somebody else seems to wait.
#[cold]
pub(crate) fn has_waited(lock: usize, acquired: bool, rw: RwWait, others: bool) {
    let lock = lock as u64;
    let Some((segment, wait)) = ends(lock, acquired) else { return };
    if acquired && others && !rw.writes {
        // Another reader, which got in with this one, may have noted it.
        segment.blocks(lock, wait.ended_ns, 1, begun());
    } else if acquired {
        segment.answers(lock, wait.ended_ns, others);
    }
    segment.rw_waited(&wait, rw);
}

/// The calling thread has been torn out of its wait.
pub(crate) fn left(lock: usize) {
    let account = account();
    if account.lock.get() == lock as u64 {
        account.lock.set(0);
        if let Some(segment) = opened() {
            segment.gives_up(lock as u64, account.since_ns.get());
        }
    }
}

/// The calling thread is about to release a lock that somebody waits for. `None`: the release isn't counted.
#[cold]
pub(crate) fn releases(lock: usize) -> Option<Release> {
    let since_ns = opened()?.blocked_since(lock as u64);
    Some(Release { now_ns: futex::now(Clock::Monotonic), since_ns })
}

/// It has been released, and may be gone.
#[cold]
pub(crate) fn released(lock: usize, release: Release, call: Call) {
    let Some(segment) = opened() else { return };
    let call = wrappers::beyond(place_of(call));
    let blame = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
    let stack = || stack(&segment, call);
    segment.tries_end(lock as u64, blame, stack);
    segment.blocked_from(lock as u64, release.since_ns, release.now_ns, begun(), blame, stack);
}
