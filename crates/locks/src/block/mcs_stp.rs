//! mcs-stp: an mcs queue whose waiters spin for a bounded time, then sleep.
//!
//! The queue: J. M. Mellor-Crummey and M. L. Scott, *Algorithms for Scalable Synchronization on Shared-Memory
//! Multiprocessors*, ACM TOCS 9(1), 1991, figure 5. Spin, then park: J. K. Ousterhout, *Scheduling Techniques for
//! Concurrent Systems*, ICDCS 1982; for about the cost of sleeping: A. R. Karlin et al., *Empirical Studies of
//! Competitive Spinning for a Shared-Memory Multiprocessor*, SOSP 1991. Together, under this name: D. Dice, *Malthusian
//! Locks*, EuroSys 2017.
//!
//! ```text
//!     tail ─────────────────────────────┐             a gate:   spun in vain
//!                                       ▼                   SHUT ──────────► ASLEEP
//!     ┌──────────┐ next ┌──────────┐ next ┌──────────┐        │                │
//!     │ A  (held)├─────►│ B   SHUT ├─────►│ C ASLEEP │        └────► OPEN ◄────┘ and wake
//!     └──────────┘      └──────────┘      └──────────┘           predecessor
//! ```
//!
//! State: (tail, the next of the last node but one, my gate). lock: (null, _, _) -> (me, _, _) and held; (prev, _, _)
//! -> (me, null, SHUT) -> (me, prev.next = me, SHUT), then wait for OPEN. unlock: (me, _, _) -> (null, _, _), or
//! next.gate = OPEN, and wake it if it was ASLEEP.
//!
//! 1. Free exactly while tail = null.
//! 2. tail is the node of the last thread that arrived and has not unlocked.
//! 3. A node with a successor stays valid until its owner has opened the successor's gate: only the owner of a node
//!    ends its use, in unlock, after it has seen next.
//! 4. A gate is opened once per acquisition, by the predecessor. From then on the node may be gone: the predecessor
//!    keeps its address for the wake, and nothing else.
//! 5. A gate that was ASLEEP when opened gets one wake. If another thread sleeps at that address by then, the wake
//!    may reach that thread, too.
//!
//! Facts: first come first served; 8 B per lock, one node of 16 B per waiter; waiters sleep, the unlocker wakes the next;
//! each waiter is delayed by those before it, and by the wake of each that sleeps.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "mcs-stp",
    kind: Kind::Whole,
    preset_of: None,
    idea: "an mcs queue whose waiters spin for a bounded time, then sleep",
    source: "queue: J. M. Mellor-Crummey, M. L. Scott, ACM TOCS 9(1), 1991, figure 5; spin then park: A. R. Karlin et al., Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor, SOSP 1991; the name: D. Dice, Malthusian Locks, EuroSys 2017",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "8 B per lock, 16 B per waiter, on its stack",
    wakes: "a waiter sleeps after spinning for 5 µs; unlock wakes the next in line",
    delay: "each waiter, by those ahead of it, and by a wake-up for each of them that sleeps",
    advice: "strict order with more threads than CPUs, but slow: each hand-over then costs a wake-up; prefer fifo",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = McsStp<P>;

const SHUT: u32 = 0;
const ASLEEP: u32 = 1;
const OPEN: u32 = 2;

/// How long a waiter stays awake: about the cost of a sleep and a wake.
const SPIN_NS: u32 = 5_000;

/// A waiter's or holder's place in the queue.
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, then once by the successor.
    next: P::Ptr<Node<P>>,
    /// Written by the owner (SHUT, ASLEEP), and once by the predecessor (OPEN).
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

    /// Returns when the gate is open.
    fn wait(&self) {
        // ORDERING: Acquire, pairs with [open]: the predecessor's critical section is over.
        let mut gate = P::spin_for(&self.gate, Acquire, SPIN_NS, |gate| gate == OPEN);
        if gate == SHUT {
            // STATE: (_, _, SHUT) -> (_, _, ASLEEP), unless OPEN came first.
            // ORDERING: Acquire on failure, pairs with [open]. Relaxed on success: we publish nothing but ASLEEP itself.
            match self.gate.compare_exchange(SHUT, ASLEEP, Relaxed, Acquire) {
                Ok(_) => gate = ASLEEP,
                Err(now) => gate = now,
            }
        }
        while gate != OPEN {
            P::park(&self.gate, ASLEEP, None);
            // ORDERING: Acquire, pairs with [open]: the predecessor's critical section is over.
            gate = self.gate.load(Acquire);
        }
    }

    /// Opens the gate of `node`.
    ///
    /// # Safety
    /// The caller is the predecessor, and has not opened it yet (invariant 4).
    unsafe fn open(node: *mut Self) {
        // SAFETY: by invariant 4 the node waits for us.
        let gate: *const P::Word = unsafe { &raw const (*node).gate };
        // STATE: (_, _, SHUT or ASLEEP) -> (_, _, OPEN).
        // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
        // SAFETY: as above; this is our last access to the node.
        let was = unsafe { (*gate).swap(OPEN, Release) };
        if was == ASLEEP {
            P::unpark(gate, 1);
        }
    }
}

/// An MCS lock whose waiters spin, then park.
pub struct McsStp<P: Platform> {
    /// The last in line. Written by arriving threads, and by a holder that finds itself last.
    tail: P::Ptr<Node<P>>,
}

impl<P: Platform> McsStp<P> {
    #[cold]
    fn lock_slow(&self, me: &Node<P>, node: *mut Node<P>, prev: *mut Node<P>) {
        // STATE: (me, null, SHUT) -> (me, prev.next = me, SHUT).
        // ORDERING: Release, pairs with [see]: publishes our node, whose gate will be written.
        // SAFETY: by invariant 3, prev lives until its owner has seen this store.
        unsafe { (*prev).next.store(node, Release) };
        me.wait();
    }
}

impl<P: Platform> Sections<P> for McsStp<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for McsStp<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        me.reset();
        // STATE: (null, _, _) -> (me, _, _): held; or (prev, _, _) -> (me, null, SHUT).
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
            // STATE: (me, _, _) -> (null, _, _).
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
            // Relaxed on failure: the successor is read below.
            if self.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // Somebody has joined, and will link its node in a moment: it is awake, one store away.
            // ORDERING: Acquire [see]: the successor's node was made before we write to it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // SAFETY: we are its predecessor, and unlock once.
        unsafe { Node::open(next) };
    }
}

impl<P: Platform> TryLock<P> for McsStp<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // SAFETY: the caller's duty; others, too, only ever share it.
        unsafe { &*node }.reset();
        // STATE: (null, _, _) -> (me, _, _), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        self.tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok()
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor.
unsafe impl<P: Platform> InPlace for McsStp<P> {}

#[cfg(test)]
mod tests {
    use super::McsStp;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<McsStp<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<McsStp<Threads>>();
    }
}
