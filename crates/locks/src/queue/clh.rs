//! clh: a queue of waiters; each spins on its predecessor's cell, and inherits that cell.
//!
//! T. S. Craig, *Building FIFO and Priority-Queuing Spin Locks from Atomic Swap*, University of Washington TR 93-02-02,
//! 1993; P. Magnusson, A. Landin and E. Hagersten, *Queue Locks on Cache Coherent Multiprocessors*, IPPS 1994. Our
//! deviations: a holder that finds itself last takes its cell back and leaves the tail null, so a free lock owns no
//! memory (and zeroed memory is a lock); cells come from the machine's pool instead of the thread's last acquisition.
//!
//! ```text
//!     ┌──────────┐      ┌──────────┐      ┌──────────┐
//!     │ A's cell │◄─────┤ B        │      │          │
//!     │   SHUT   │ pred │  B's cell│◄─────┤ C        │◄──── tail = C's cell
//!     └──────────┘      │   SHUT   │ pred │  C's cell│
//!       A holds         └──────────┘      └──────────┘
//!       unlock by A: A's cell = OPEN; from now on it belongs to B
//! ```
//!
//! State: (tail, the holder's cell). lock: (null, _) -> (mine, SHUT) and held; (pred, _) -> (mine, _), then wait for
//! pred = OPEN. unlock: (mine, SHUT) -> (null, _), or (_, SHUT) -> (_, OPEN).
//!
//! 1. Free exactly while tail = null.
//! 2. tail is the cell of the last thread that arrived and has not unlocked, so a cell in tail is SHUT.
//! 3. At most one thread reads a cell: the one whose swap returned it.
//! 4. A cell belongs to its maker. From the store of OPEN on it belongs to the successor, which alone gives it back.
//!
//! Facts: first come first served; 8 B per lock, a line of 128 B per waiter and holder; nobody sleeps; each waiter is delayed
//! by those before it, and by each of them that is not running.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Probe, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "clh",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a queue of waiters: each spins on its predecessor's cell, then reuses that cell",
    source: "T. S. Craig, Building FIFO and Priority-Queuing Spin Locks from Atomic Swap, UW TR 93-02-02, 1993; P. Magnusson, A. Landin, E. Hagersten, Queue Locks on Cache Coherent Multiprocessors, IPPS 1994",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "8 B per lock, 128 B per waiter or holder, from a pool",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it",
    advice: "like mcs, with a cheaper unlock; collapses when threads outnumber CPUs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Clh<P>;

const SHUT: u32 = 0;
const OPEN: u32 = 1;

/// The word that the next in line watches.
struct Cell<P: Platform> {
    /// Written once, by the maker, on unlock.
    gate: P::Word,
}

impl<P: Platform> Cell<P> {
    /// Takes a SHUT cell.
    fn take() -> *mut Self {
        const { assert!(size_of::<Self>() <= 128 && align_of::<Self>() <= 128) }
        let cell: *mut Self = P::take_line().cast();
        // SAFETY: a line is large enough, and ours alone by invariants 3 and 4.
        unsafe { cell.write(Self { gate: P::Word::new(SHUT) }) };
        cell
    }

    /// Gives a cell back.
    ///
    /// # Safety
    /// The cell came from `take` and belongs to the caller (invariant 4).
    unsafe fn give(cell: *mut Self) {
        // SAFETY: ours alone, by invariant 4.
        unsafe {
            cell.drop_in_place();
            P::give_line(cell.cast());
        }
    }
}

/// What an acquisition remembers. Touched by its owner only.
pub struct Node<P: Platform> {
    /// Our cell, which our successor watches.
    mine: *mut Cell<P>,
    /// Our predecessor's cell, ours since it opened; null if the lock was free.
    pred: *mut Cell<P>,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self { mine: null_mut(), pred: null_mut() }
    }
}

/// A CLH lock.
pub struct Clh<P: Platform> {
    /// The last in line. Written by arriving threads, and by a holder that finds itself last.
    tail: P::Ptr<Cell<P>>,
}

impl<P: Platform> Sections<P> for Clh<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Clh<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        let mine = Cell::<P>::take();
        // STATE: (null, _) -> (mine, SHUT): held; or (pred, _) -> (mine, _).
        // ORDERING: AcqRel [join], pairs with itself: our cell is SHUT before our successor looks, and pred's before we
        // do. Acquire also pairs with [leave]: the last holder's critical section is over.
        let pred = self.tail.swap(mine, AcqRel);
        // SAFETY: the node is the caller's, and no other thread looks at it.
        unsafe { node.write(Node { mine, pred }) };
        if !pred.is_null() {
            // ORDERING: Acquire, pairs with [open]: the predecessor's critical section is over.
            // SAFETY: by invariant 4, only we give pred back.
            P::spin_until(unsafe { &(*pred).gate }, Acquire, |gate| gate == OPEN);
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller locked with this node.
        let Node { mine, pred } = unsafe { node.read() };
        // STATE: (mine, SHUT) -> (null, _).
        // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
        // Relaxed on failure: we have a successor, and our node says all that we need to know.
        if self.tail.compare_exchange(mine, null_mut(), Release, Relaxed).is_ok() {
            // SAFETY: nobody has swapped it out, so nobody looks at it (invariant 3).
            unsafe { Cell::give(mine) };
        } else {
            // STATE: (_, SHUT) -> (_, OPEN).
            // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
            // SAFETY: ours up to and including this store, by invariant 4.
            unsafe { (*mine).gate.store(OPEN, Release) };
        }
        if !pred.is_null() {
            // After the release, to keep the critical section short.
            // SAFETY: ours since it opened, by invariant 4.
            unsafe { Cell::give(pred) };
        }
    }
}

impl<P: Platform> TryLock<P> for Clh<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // Relaxed: only a hint that saves a cell.
        if !self.tail.load(Relaxed).is_null() {
            return false;
        }
        let mine = Cell::<P>::take();
        // STATE: (null, _) -> (mine, SHUT), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        if self.tail.compare_exchange(null_mut(), mine, AcqRel, Relaxed).is_ok() {
            // SAFETY: the node is the caller's, and no other thread looks at it.
            unsafe { node.write(Node { mine, pred: null_mut() }) };
            true
        } else {
            // SAFETY: nobody else has ever seen it.
            unsafe { Cell::give(mine) };
            false
        }
    }
}

impl<P: Platform> Probe<P> for Clh<P> {
    #[inline]
    fn is_free(&self) -> bool {
        self.tail.load(Relaxed).is_null() // invariant 1; a hint
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor, and a free lock owns no cell.
unsafe impl<P: Platform> InPlace for Clh<P> {}

#[cfg(test)]
mod tests {
    use super::Clh;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Clh<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Clh<Threads>>();
    }
}
