//! A holder gets a waiter's priority until it releases, or the wait ends.
//!
//! The kernel decides whether we may: it needs CAP_SYS_NICE, or a limit (RLIMIT_NICE, RLIMIT_RTPRIO). A refusal is counted.
//!
//! ```text
//!   cell.boost:  0 ──waiter──► its id ──► and the holder's own priority ──► SET ──whoever takes it back──► OVER ──► 0
//!                                └──────────┴──the holder takes it back──► OVER: the waiter finds that, and undoes it
//! ```
//!
//! Until the word is 0 again, one thread makes the system calls: nobody takes a priority for the holder's own which isn't. A waiter that is
//! torn away meanwhile leaves them to the holder if the holder is making them.
//!
//! A holder that forks has the same priority in its child's memory as in the kernel's copy of it: nobody changes it meanwhile ([`forks`]).
//! So the child gets back its own. (Not what `vfork` and `posix_spawn` start: until the wait ends, that keeps the waiter's nice value. So
//! does a holder that calls `exec`.)
//!
//! The holder takes it back when it releases by a policy that boosts. The lock may have another policy by then, or none. So the waiter does
//! it when its wait ends, however that ends. A process that confines itself meanwhile leaves the priority as it is.

use super::cells::{self, KNOWN, ThreadCell};
use super::mailbox::lockwright_programs;
use super::scheduling::Scheduling;
use crate::{leave, thread};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_native::futex;

/// In [`ThreadCell::boost`], with [`OVER`]: the waiter has taken it back, not the holder.
const BACK: u64 = 1 << 32;
/// In [`ThreadCell::boost`]: the thread has another one now.
const SET: u64 = 1 << 34;
/// In [`ThreadCell::boost`]: it gets its own back.
const OVER: u64 = 1 << 35;
/// In [`ThreadCell::boost`]: the thread forks, and nobody changes its priority until it has. With [`OVER`]: it does so itself after that.
const FORKS: u64 = 1 << 36;
/// In [`ThreadCell::boost`], from this bit on: the waiter's thread id, which has 22 bits at most.
const WAITER: u32 = 37;

/// The word of a waiter that is about to give: of the calling thread.
fn mine() -> u64 {
    u64::from(thread::id()) << WAITER
}

/// The calling thread's priority, read again now and then.
pub(super) fn own_prio(cell: &ThreadCell) -> i32 {
    // Own thread only, as is all of this. The clock takes longer than the rest of a description.
    let until = cell.until_prio.load(Relaxed);
    if until != 0 {
        cell.until_prio.store(until - 1, Relaxed);
        return cell.prio.load(Relaxed);
    }
    cell.until_prio.store(15, Relaxed);
    let now = cells::seconds() + 1;
    // With another's priority, its own is what it was.
    if cell.prio_read.load(Relaxed) != now && !is_boosted(thread::id()) {
        cell.prio_read.store(now, Relaxed);
        if let Some(own) = Scheduling::of(0) {
            cell.prio.store(own.prio(), Relaxed);
        }
    }
    cell.prio.load(Relaxed)
}

/// The thread `holder` gets the calling thread's priority.
pub(super) fn boost(holder: u32) {
    let mailbox = &lockwright_programs;
    let (Some(own), Some(cell)) = (cells::own(), cells::claim_for(holder)) else {
        mailbox.unboosted.fetch_add(1, Relaxed); // a counter
        return;
    };
    if own.boosting.load(Relaxed) != 0 {
        take_back(); // own thread only
    }
    if holder == thread::id() || is_boosted(holder) {
        return;
    }
    let (ours, now) = (own_prio(own), cells::seconds() + 1);
    // What others know of its priority may be as old as what threads know of their own. (Hints.)
    if cell.prio_read.load(Relaxed) == now && ours <= cell.prio.load(Relaxed) {
        return;
    }
    leave::undisturbed(torn, || {
        own.boosting.store(holder, Relaxed); // own thread only; before the word, since `torn` looks here
        // Likewise, so that who finds 0 here has nothing to take back. Relaxed: a hint.
        mailbox.boosted.fetch_add(1, Relaxed);
        // ORDERING: AcqRel, pairs with the Release in `end`: the system calls of the one before are over; and for `torn`.
        if cell.boost.compare_exchange(0, mine(), AcqRel, Relaxed).is_err() {
            mailbox.boosted.fetch_sub(1, Relaxed); // it has another waiter's
            forget();
        } else if !give(cell, holder, ours, now) {
            forget();
        }
    });
}

/// Has this thread another one's priority, or is it about to get it? A hint.
pub(super) fn is_boosted(tid: u32) -> bool {
    cells::all_of(tid).any(|cell| cell.boost.load(Relaxed) != 0)
}

/// As [`boost`], for the waiter that owns the word. `now`: in seconds, + 1. `false`: the holder has its own priority.
fn give(cell: &ThreadCell, holder: u32, ours: i32, now: u32) -> bool {
    let mailbox = &lockwright_programs;
    let theirs = Scheduling::of(holder);
    if let Some(theirs) = theirs {
        // Hints: the next waiters needn't ask the kernel.
        cell.prio.store(theirs.prio(), Relaxed);
        cell.prio_read.store(now, Relaxed);
    }
    if theirs.is_some_and(|theirs| ours <= theirs.prio()) {
        cell.end();
        return false;
    }
    let word = mine() | KNOWN | theirs.map_or(0, |theirs| theirs.pack().into());
    // ORDERING: Release, here and below, pairs with the Acquire in `finish`, for whoever does that.
    if theirs.is_some() && cell.boost.compare_exchange(mine(), word, Release, Relaxed).is_err() {
        cell.end(); // it has released already
        return false;
    }
    if theirs.is_none() || !Scheduling::for_a_while(ours).set(holder) {
        mailbox.unboosted.fetch_add(1, Relaxed); // a counter, as the next
        cell.finish(holder); // it may have been set in part
        return false;
    }
    mailbox.boosts.fetch_add(1, Relaxed);
    let is_set = cell.boost.compare_exchange(word, word | SET, Release, Relaxed).is_ok();
    if !is_set {
        cell.finish(holder);
    }
    is_set
}

/// The calling thread releases a lock: it gives back what it got.
pub(super) fn unboost() {
    // Nobody has another's priority, as a rule. A hint: a waiter that comes later takes it back itself.
    if lockwright_programs.boosted.load(Relaxed) == 0 {
        return;
    }
    let tid = thread::id();
    // Another thread may have made a cell for this one, too.
    for own in cells::known().into_iter().chain(cells::all_of(tid)) {
        restore(own, tid, OVER);
    }
}

/// The calling thread doesn't wait any more: it takes back what it gave.
#[inline(always)]
pub(crate) fn has_waited() {
    // A hint, but what the calling thread gave is in it.
    if lockwright_programs.boosted.load(Relaxed) != 0 {
        take_back();
    }
}

/// Whom the calling thread has given its priority, or is about to.
fn boosted() -> Option<(&'static ThreadCell, u32)> {
    let holder = cells::known()?.boosting.load(Relaxed); // own thread only
    if holder == 0 {
        return None;
    }
    // The holder may have released, and got another waiter's. Relaxed: nobody else writes the calling thread's id there.
    let is_ours =
        |cell: &&ThreadCell| cell.boost.load(Relaxed) >> WAITER == u64::from(thread::id());
    cells::all_of(holder).find(is_ours).map(|cell| (cell, holder))
}

fn forget() {
    if let Some(own) = cells::known() {
        own.boosting.store(0, Relaxed); // own thread only
    }
}

#[cold]
#[inline(never)]
fn take_back() {
    if let Some((cell, holder)) = boosted() {
        leave::undisturbed(torn, || restore(cell, holder, OVER | BACK));
    }
    forget();
}

/// The calling thread has left a wait, since a signal handler doesn't return there. It may have been about to give.
pub(super) fn has_left() {
    // As in `has_waited`.
    if lockwright_programs.boosted.load(Relaxed) != 0 {
        torn();
    }
}

/// The calling thread was giving or taking back, and a signal handler doesn't return there.
fn torn() {
    if let Some((cell, holder)) = boosted() {
        let word = cell.boost.load(Relaxed);
        match word & (SET | OVER | BACK) {
            _ if word & FORKS != 0 && word & OVER != 0 => {} // left to the holder
            SET => restore(cell, holder, OVER | BACK),
            HOLDERS => {}
            _ => cell.finish(holder),
        }
    }
    forget();
}

/// The holder is giving itself its own priority back.
const HOLDERS: u64 = SET | OVER;

/// Gives a thread its own priority back, and says who does: [`OVER`], and [`BACK`] if the waiter does. If a waiter is just giving it
/// another one, that waiter does.
fn restore(cell: &ThreadCell, tid: u32, over: u64) {
    let mut word = cell.boost.load(Relaxed); // the exchange decides
    while word != 0 && word & OVER == 0 {
        // ORDERING: AcqRel, pairs with the Release in `give`, and goes before the Acquire in `finish`.
        match cell.boost.compare_exchange_weak(word, word | over, AcqRel, Relaxed) {
            Ok(_) if word & SET == 0 || word & FORKS != 0 => return,
            Ok(_) => return cell.finish(tid),
            Err(now) => word = now,
        }
    }
}

/// The thread `tid`, which calls this, is about to fork.
pub(super) fn forks(tid: u32) {
    cells::own(); // so that no waiter makes it one meanwhile
    for cell in cells::all_of(tid) {
        // Some system calls of a waiter's. We wait with a bound: a signal handler may have interrupted them on this very thread.
        for _ in 0..1000 {
            let word = cell.boost.load(Relaxed); // the exchange decides
            let frozen = match word & (SET | OVER) {
                _ if word == 0 => u64::from(tid) << WAITER, // it can't be given any
                SET => word | FORKS,
                _ => {
                    futex::yield_cpu();
                    continue;
                }
            };
            // ORDERING: Acquire, pairs with the Release in `end` and `give`: the system calls are over.
            if cell.boost.compare_exchange(word, frozen, Acquire, Relaxed).is_ok() {
                break;
            }
        }
    }
}

/// It has forked, or failed to: this is the parent.
pub(super) fn has_forked(tid: u32) {
    for cell in cells::all_of(tid) {
        let mut word = cell.boost.load(Relaxed); // the exchange decides
        while word & (OVER | FORKS) == FORKS {
            // ORDERING: Release, pairs with the AcqRel in `restore`.
            match cell.boost.compare_exchange(word, word & !FORKS, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        if word & FORKS != 0 {
            cell.finish(tid);
        } else if word & !OVER == u64::from(tid) << WAITER {
            cell.boost.store(0, Release); // ORDERING: Release, as in `end`. Nobody else writes it, and nobody has counted it.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_waiter_leaves_to_the_holder_what_the_holder_does() {
        let _alone = super::super::tests::alone();
        let (holder, own) = (thread::id(), Scheduling::of(0).unwrap());
        let (cell, boosted) = (cells::own().unwrap(), &lockwright_programs.boosted);
        std::thread::spawn(move || {
            let given = mine() | KNOWN | u64::from(own.pack());
            for (word, is_left) in [
                (mine(), false),
                (mine() | OVER, false),
                (given, false),
                (given | OVER, false),
                (given | SET, false),
                (given | SET | OVER, true),
                (given | SET | OVER | BACK, false),
            ] {
                cells::own().unwrap().boosting.store(holder, Relaxed);
                cell.boost.store(word, Relaxed);
                boosted.store(1, Relaxed);
                has_left();
                let left = (cell.boost.load(Relaxed), boosted.load(Relaxed));
                assert_eq!(left, if is_left { (word, 1) } else { (0, 0) });
            }
            cell.boost.store(0, Relaxed);
            boosted.store(0, Relaxed);
        })
        .join()
        .unwrap();
    }
}
