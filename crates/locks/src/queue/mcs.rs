//! mcs: a queue of waiters: each spins on its own node until its predecessor hands it the lock.
//!
//! J. M. Mellor-Crummey and M. L. Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*,
//! ACM TOCS 9(1), 1991, figure 5. Our deviation: a try_lock, which joins the queue only if it is empty.
//!
//! ```text
//!     tail ─────────────────────────────┐
//!                                       ▼
//!     ┌──────────┐ next ┌──────────┐ next ┌──────────┐
//!     │ A  (held)├─────►│ B   SHUT ├─────►│ C   SHUT │
//!     └──────────┘      └──────────┘      └──────────┘
//!       unlock by A: B.gate = OPEN
//! ```
//!
//! State: (tail, the next of the last node but one). lock: (null, _) -> (me, _) and held; (prev, _) -> (me, null)
//! -> (me, prev.next = me), then wait for me.gate = OPEN. unlock: (me, _) -> (null, _), or next.gate = OPEN.
//!
//! 1. Free exactly while tail = null.
//! 2. tail is the node of the last thread that arrived and has not unlocked.
//! 3. A node with a successor stays valid until its owner has opened the successor's gate: only the owner of a node
//!    ends its use, in unlock, after it has seen next.
//! 4. A gate is opened once per acquisition, by the predecessor, which touches the node for the last time with it.
//!
//! Facts: first come first served; 8 B per lock, one node of 16 B per waiter; nobody sleeps; each waiter is delayed by those
//! before it, and by each of them that is not running.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Probe, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "mcs",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a queue of waiters: each spins on its own node until its predecessor hands it the lock",
    source: "J. M. Mellor-Crummey, M. L. Scott, Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors, ACM TOCS 9(1), 1991, figure 5",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "8 B per lock, 16 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it",
    advice: "many cores, one thread per CPU; collapses when threads outnumber CPUs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Mcs<P>;

const SHUT: u32 = 0;
const OPEN: u32 = 1;

/// A waiter's or holder's place in the queue.
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, then once by the successor.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then once by the predecessor.
    gate: P::Word,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self { next: P::Ptr::new(null_mut()), gate: P::Word::new(SHUT) }
    }
}

impl<P: Platform> Node<P> {
    /// Readies it for another acquisition.
    fn reset(&self) {
        // Relaxed, both: nobody else knows the node yet.
        self.next.store(null_mut(), Relaxed);
        self.gate.store(SHUT, Relaxed);
    }
}

/// An MCS lock.
pub struct Mcs<P: Platform> {
    /// The last in line. Written by arriving threads, and by a holder that finds itself last.
    tail: P::Ptr<Node<P>>,
}

impl<P: Platform> Mcs<P> {
    #[cold]
    fn lock_slow(&self, me: &Node<P>, node: *mut Node<P>, prev: *mut Node<P>) {
        // STATE: (me, null) -> (me, prev.next = me).
        // ORDERING: Release, pairs with [see]: publishes our node, whose gate will be written.
        // SAFETY: by invariant 3, prev lives until its owner has seen this store.
        unsafe { (*prev).next.store(node, Release) };
        // ORDERING: Acquire, pairs with [open]: the predecessor's critical section is over.
        P::spin_until(&me.gate, Acquire, |gate| gate == OPEN);
    }
}

impl<P: Platform> Sections<P> for Mcs<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Mcs<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        me.reset();
        // STATE: (null, _) -> (me, _): held; or (prev, _) -> (me, null).
        // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's
        // before we do. Acquire also pairs with [leave]: the last holder's critical section is over.
        let prev = self.tail.swap(node, AcqRel);
        if !prev.is_null() {
            self.lock_slow(me, node, prev);
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        // ORDERING: Acquire [see]: the successor's node was made before we write to it.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            // STATE: (me, _) -> (null, _).
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
            // Relaxed on failure: the successor is read below.
            if self.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // Somebody has joined, and will link its node in a moment.
            // ORDERING: Acquire [see]: the successor's node was made before we write to it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
        // SAFETY: by invariant 4, next waits for this store.
        unsafe { (*next).gate.store(OPEN, Release) };
    }
}

impl<P: Platform> TryLock<P> for Mcs<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // SAFETY: the caller's duty; others, too, only ever share it.
        unsafe { &*node }.reset();
        // STATE: (null, _) -> (me, _), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        self.tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok()
    }
}

impl<P: Platform> Probe<P> for Mcs<P> {
    #[inline]
    fn is_free(&self) -> bool {
        self.tail.load(Relaxed).is_null() // invariant 1; a hint
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor.
unsafe impl<P: Platform> InPlace for Mcs<P> {}

#[cfg(test)]
mod tests {
    use super::Mcs;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Mcs<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Mcs<Threads>>();
    }
}
