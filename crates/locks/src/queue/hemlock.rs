//! hemlock: a queue in which nobody knows its successor; each waiter watches a word of its predecessor, and acknowledges the grant.
//!
//! D. Dice and A. Kogan, *Hemlock: Compact and Scalable Mutual Exclusion*, SPAA 2021. Our deviations: the word lies in
//! the acquisition's node, not in the thread (locks here have no thread-locals). So it need not say which lock is granted, and
//! the locks that a thread holds don't delay each other's release. And a try_lock joins the queue only if it is empty. How a waiter
//! looks (the paper's CTR uses compare-and-swap) is up to the machine.
//!
//! ```text
//!                  looks at          looks at
//!     ┌──────────┐ grant  ┌──────────┐ grant  ┌──────────┐
//!     │ A (held) │◄───────┤ B  EMPTY │◄───────┤ C  EMPTY │◄── tail
//!     └──────────┘        └──────────┘        └──────────┘
//!       unlock by A: A.grant = GRANTED, then waits until B has made it EMPTY again
//! ```
//!
//! State: (tail, the holder's grant). lock: (null, _) -> (me, EMPTY) and held; (prev, _) -> (me, _), then wait for prev's GRANTED,
//! and take it: prev's grant = EMPTY. unlock: (me, EMPTY) -> (null, _); or (_, EMPTY) -> (_, GRANTED), then wait for EMPTY.
//!
//! 1. Free exactly while tail = null.
//! 2. tail is the node of the last thread that arrived and has not unlocked.
//! 3. At most one thread looks at a grant: the one whose swap returned the node. That thread makes it EMPTY, and does
//!    not touch the node after that; so then the owner may end the node.
//! 4. grant is EMPTY except while its owner unlocks.
//!
//! Facts: first come first served; 8 B per lock, one word per waiter; nobody sleeps; each waiter is delayed by those before it, and
//! an unlock by its successor, until the successor has seen the grant.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "hemlock",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a queue without links: each waiter spins on its predecessor's word and acknowledges the hand-over",
    source: "D. Dice, A. Kogan, Hemlock: Compact and Scalable Mutual Exclusion, SPAA 2021",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "8 B per lock, 4 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; an unlock, until the successor acknowledges it",
    advice: "like mcs, in less memory; collapses when threads outnumber CPUs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Hemlock<P>;

const EMPTY: u32 = 0;
const GRANTED: u32 = 1;

/// The word that the next in line watches.
pub struct Node<P: Platform> {
    /// Written by the owner (GRANTED), and then once by the successor (EMPTY).
    grant: P::Word,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self { grant: P::Word::new(EMPTY) }
    }
}

/// A Hemlock.
pub struct Hemlock<P: Platform> {
    /// The last in line. Written by arriving threads, and by a holder that finds itself last.
    tail: P::Ptr<Node<P>>,
}

impl<P: Platform> Sections<P> for Hemlock<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Hemlock<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // STATE: (null, _) -> (me, EMPTY): held; or (prev, _) -> (me, _).
        // ORDERING: AcqRel [join], pairs with itself: our node is made before our successor looks at it, and prev's
        // before we do. Acquire also pairs with [leave]: the last holder's critical section is over.
        let prev = self.tail.swap(node, AcqRel);
        if !prev.is_null() {
            // SAFETY: by invariant 3, prev stays until we have made it EMPTY.
            let grant = unsafe { &raw const (*prev).grant };
            // ORDERING: Acquire, pairs with [grant]: the predecessor's critical section is over.
            // SAFETY: as above.
            P::spin_until(unsafe { &*grant }, Acquire, |grant| grant == GRANTED);
            // STATE: prev's grant, GRANTED -> EMPTY.
            // ORDERING: Release [take], pairs with [end]: we have looked at the node for the last time.
            // SAFETY: as above; this is our last access.
            unsafe { (*grant).store(EMPTY, Release) };
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // STATE: (me, EMPTY) -> (null, _).
        // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
        // Relaxed on failure: we have a successor, which watches our grant.
        if self.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_ok() {
            return;
        }
        // SAFETY: the caller's node; others, too, only ever share it.
        let grant = unsafe { &(*node).grant };
        // STATE: (_, EMPTY) -> (_, GRANTED).
        // ORDERING: Release [grant]: the critical section comes before whatever the next holder does.
        grant.store(GRANTED, Release);
        // ORDERING: Acquire [end], pairs with [take]: the successor is done with our node, which may end.
        P::spin_until(grant, Acquire, |grant| grant == EMPTY);
    }
}

impl<P: Platform> TryLock<P> for Hemlock<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // STATE: (null, _) -> (me, EMPTY), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        self.tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok()
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor.
unsafe impl<P: Platform> InPlace for Hemlock<P> {}

#[cfg(test)]
mod tests {
    use super::Hemlock;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Hemlock<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Hemlock<Threads>>();
    }
}
