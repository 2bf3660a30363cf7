//! reciprocating: arrivals push themselves onto a stack. The holder detaches the whole stack, and its members are served, last come
//! first served, before threads that arrive meanwhile.
//!
//! D. Dice and A. Kogan, *Reciprocating Locks*, PPoPP 2025 (arXiv 2501.02380). Our deviations: an acquisition's
//! node lies on its caller's stack, not in the thread, and holds what lock tells unlock. And a try_lock pushes only onto a free
//! lock.
//!
//! ```text
//!     arrivals ──► F ──► E ──► (LOCKED)        entry segment:  A holds ──► C ──► B   end = null
//!                  pushed since it was detached                served next  last
//!       unlock by A: C.gate = end. Unlock by B, the last: arrivals = LOCKED, and F's segment is the next one
//! ```
//!
//! State: (arrivals, the holder's successor, the end of its segment). lock: (null, _, _) -> (me, null, me) and held; (LOCKED, _, _) ->
//! (me, _, _), or (prev, _, _) -> (me, _, _), then wait for my gate, which says where the segment ends. unlock: with a successor,
//! its gate = the end; otherwise (end, null, end) -> (null, _, _) if nobody has arrived, or (f, null, end) -> (LOCKED, _, _), and
//! f's gate = end.
//!
//! 1. Free exactly while arrivals = null.
//! 2. A node that was pushed onto another node is served before it: that other node is its successor. A node that was pushed onto
//!    LOCKED has none.
//! 3. When a thread takes a free lock, its node stays in arrivals, where it ends the segment above it. Others only compare its
//!    address, and don't touch it: its owner may have left, and may even wait again.
//! 4. A gate is opened once per acquisition, by the thread that holds the lock, which touches the node for the last time with it.
//!
//! Facts: an arrival overtakes a waiter only if both wait in the same segment, and at most once; 8 B per lock, 24 B per waiter;
//! arrival and release take constant time; nobody sleeps.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::{null_mut, without_provenance_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Ptr, RawLock, Sections, TryLock};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "reciprocating",
    kind: Kind::Whole,
    preset_of: None,
    idea: "arrivals push themselves onto a stack; the holder detaches the whole stack and serves it last in, first out",
    source: "D. Dice, A. Kogan, Reciprocating Locks, PPoPP 2025",
    order: "segments by arrival; within a segment, last come first served",
    promise: Promise::Nothing,
    stands_by: false,
    space: "8 B per lock, 24 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by its own segment and the one before; a preempted one stalls all behind it",
    advice: "like mcs, with constant-time lock and unlock; unfair by at most a factor of two",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Reciprocating<P>;

/// In arrivals: held, and the stack is empty. As an end: the segment ends with the bottom of the stack.
fn locked<P: Platform>() -> *mut Node<P> {
    without_provenance_mut(1)
}

/// An acquisition.
pub struct Node<P: Platform> {
    /// Null: shut. Otherwise open; the value says where the segment ends. Written by the owner before it arrives, then once by
    /// the holder.
    gate: P::Ptr<Node<P>>,
    /// The node that is served after us; null: the segment ends here. Only the owner touches this and the next field.
    next: *mut Node<P>,
    /// The value of arrivals, if nobody has arrived since.
    end: *mut Node<P>,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self { gate: P::Ptr::new(null_mut()), next: null_mut(), end: null_mut() }
    }
}

/// A reciprocating lock.
pub struct Reciprocating<P: Platform> {
    /// The last arrival. Written by arriving threads, and by a holder that is the last of its segment.
    arrivals: P::Ptr<Node<P>>,
}

impl<P: Platform> Reciprocating<P> {
    /// Waits; returns our successor, and the end.
    #[cold]
    fn wait(gate: &P::Ptr<Node<P>>, pushed_on: *mut Node<P>) -> (*mut Node<P>, *mut Node<P>) {
        // ORDERING: Acquire, pairs with [open]: the last critical section is over.
        let end = P::spin_until_ptr(gate, Acquire, |gate| !gate.is_null());
        if pushed_on == end {
            // We were pushed onto LOCKED, or onto the node of a thread that took a free lock: the segment ends with us. When
            // our segment was detached, arrivals became LOCKED, and only later arrivals have changed it.
            (null_mut(), locked::<P>())
        } else {
            (pushed_on, end)
        }
    }
}

impl<P: Platform> Sections<P> for Reciprocating<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { arrivals: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Reciprocating<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others touch only the gate.
        let gate = unsafe { &(*node).gate };
        // Relaxed: nobody else knows the node yet.
        gate.store(null_mut(), Relaxed);
        // STATE: (null, _, _) -> (me, null, me): held; or (prev, _, _) -> (me, _, _).
        // ORDERING: AcqRel [push], pairs with itself: our gate is shut before it is opened, and our successor's before we
        // open it. Acquire also pairs with [leave]: the last holder's critical section is over.
        let prev = self.arrivals.swap(node, AcqRel);
        let (next, end) = if prev.is_null() { (null_mut(), node) } else { Self::wait(gate, prev) };
        // SAFETY: only the owner touches these two.
        unsafe {
            (*node).next = next;
            (*node).end = end;
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's node; only the owner touches these two.
        let (mut next, end) = unsafe { ((*node).next, (*node).end) };
        if next.is_null() {
            // STATE: (end, null, end) -> (null, _, _).
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
            // Relaxed on failure: somebody has arrived; the swap below reads who.
            if self.arrivals.compare_exchange(end, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // STATE: (f, null, end) -> (LOCKED, _, _).
            // ORDERING: Acquire, pairs with [push]: f's gate is shut before we open it.
            next = self.arrivals.swap(locked::<P>(), Acquire);
        }
        // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
        // SAFETY: by invariant 4, next waits for this store.
        unsafe { (*next).gate.store(end, Release) };
    }
}

impl<P: Platform> TryLock<P> for Reciprocating<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // STATE: (null, _, _) -> (me, null, me), else unchanged.
        // ORDERING: Acquire, pairs with [leave]. Nobody touches our node (invariant 3). Relaxed on failure: nothing was gained.
        let got = self.arrivals.compare_exchange(null_mut(), node, Acquire, Relaxed).is_ok();
        if got {
            // SAFETY: only the owner touches these two.
            unsafe {
                (*node).next = null_mut();
                (*node).end = node;
            }
        }
        got
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor.
unsafe impl<P: Platform> InPlace for Reciprocating<P> {}

#[cfg(test)]
mod tests {
    use super::Reciprocating;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Reciprocating<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Reciprocating<Threads>>();
    }
}
