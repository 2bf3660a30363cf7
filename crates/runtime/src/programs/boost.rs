//! A holder gets a waiter's priority until it releases.
//!
//! The kernel decides whether we may: it needs CAP_SYS_NICE, or a limit (RLIMIT_NICE, RLIMIT_RTPRIO). A refusal is counted.
//!
//! ```text
//!   cell.boost:  0 ──waiter: about to──► the holder's own priority ──waiter: done──► the same, SET
//!                ▲                                │                                       │
//!                └──── whoever makes it 0 gives the holder its own priority back ─────────┘
//! ```
//!
//! The holder does that when it releases, else the waiter, when it releases the lock in turn. A waiter that finds the word gone when it
//! is done has come too late, and takes the priority back itself.

use super::cells::{self, ThreadCell};
use super::lockwright_programs;
use super::world::read_prio;
use crate::thread;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use lockwright_native::system_call;

/// In [`ThreadCell::boost`]: there is a priority below.
const KNOWN: u64 = 1 << 32;
/// In [`ThreadCell::boost`]: the thread has another one now.
const SET: u64 = 1 << 33;

/// The thread `holder` gets the calling thread's priority.
pub(super) fn boost(holder: u32) {
    let mailbox = &lockwright_programs;
    let refused = || {
        mailbox.unboosted.fetch_add(1, Relaxed); // a counter
    };
    let (Some(own), Some((cell, _))) = (cells::own(), cells::claim_for(holder)) else {
        return refused();
    };
    let ours = own.prio.load(Relaxed); // own thread only
    if cell.boost.load(Relaxed) != 0 || holder == thread::id() {
        return; // it has another waiter's
    }
    let Some(theirs) = read_prio(holder) else { return refused() };
    if ours <= theirs {
        return;
    }
    let word = KNOWN | u64::from(theirs as u32);
    // ORDERING: AcqRel, pairs with the swap in `restore`.
    if cell.boost.compare_exchange(0, word, AcqRel, Relaxed).is_err() {
        return; // it has another waiter's
    }
    own.boosting.store(holder, Relaxed); // own thread only
    let was_set = give(holder, ours);
    // ORDERING: AcqRel, pairs with the swap in `restore`.
    if was_set && cell.boost.compare_exchange(word, word | SET, AcqRel, Relaxed).is_ok() {
        mailbox.boosts.fetch_add(1, Relaxed); // counters, here and below
        mailbox.boosted.fetch_add(1, Relaxed);
    } else if was_set {
        give(holder, theirs);
    } else {
        refused();
        let _ = cell.boost.compare_exchange(word, 0, Relaxed, Relaxed); // nothing was set
    }
}

/// The calling thread releases a lock: it gives back what it got, and takes back what it gave.
pub(super) fn unboost() {
    // Nobody has another's priority, as a rule. A waiter that is about to give one finds out that it is late.
    if lockwright_programs.boosted.load(Relaxed) == 0 {
        return; // a hint
    }
    // Another thread may have made the cell.
    let Some(own) = cells::known().or_else(|| cells::of(thread::id())) else { return };
    restore(own, thread::id());
    let holder = own.boosting.swap(0, Relaxed); // own thread only
    if let Some(cell) = cells::of(holder).filter(|_| holder != 0) {
        restore(cell, holder);
    }
}

/// Gives a thread its own priority back.
fn restore(cell: &ThreadCell, tid: u32) {
    // ORDERING: AcqRel, pairs with the exchanges in `boost`: the system calls are made in the order of the word's changes.
    let word = cell.boost.swap(0, AcqRel);
    if word & SET != 0 {
        give(tid, word as u32 as i32);
        lockwright_programs.boosted.fetch_sub(1, Relaxed); // a counter
    }
}

/// Sets a thread's priority, as `hooks::Node::prio` has it.
fn give(tid: u32, prio: i32) -> bool {
    let class = if prio > 0 { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let priority = prio.max(0);
    // SAFETY: numbers, and one that the kernel reads.
    unsafe {
        system_call!(libc::SYS_sched_setscheduler, tid, class, &raw const priority) == 0
            && (prio > 0
                || system_call!(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, -prio) == 0)
    }
}
