//! mcscr: an mcs queue whose holder sends surplus waiters to a passive list, so that few threads circulate. Waiters spin, then sleep.
//!
//! Dave Dice, *Malthusian Locks*, EuroSys 2017, section 4: MCSCR, with waiters that spin and then park (mcs_stp.rs). Once in 1000 unlocks
//! the waiter that has been passive for longest is let back. `malthusian` is a rule with that idea, for programs.
//!
//! ```text
//!     tail ─────────────────────────────────────┐
//!     ┌──────────┐ next ┌──────────┐ next ┌─────▼────┐
//!     │ A  (held)├─────►│ B        ├─────►│ C        │       unlock by A: B is surplus, since C waits, too; C.gate = OPEN
//!     └──────────┘      └────┬─────┘      └──────────┘
//!                            ▼
//!     passive   first ─► B ─► E ─► F ◄─ last                 queue empty: first goes on; every 1000th time: last
//! ```
//!
//! State: (queue, passive list). lock: (-, -) -> (me, -) and held; (q, p) -> (q me, p), then wait for my gate. unlock by me: (me, -) ->
//! (-, -); (me, f p) -> (f, p) and f holds; (me b c q, p) -> (c q, b p) and c holds; (me b, p) -> (b, p) and b holds; every 1000th time
//! (me q, p l) -> (l q, p) and l holds.
//!
//! 1. Free exactly while tail = null; then nobody is passive.
//! 2. Only a node that has a next is made passive, so tail is in the queue, or is the holder's.
//! 3. Only the holder writes the list, and the next of each node in it.
//! 4. A gate is opened once per acquisition, by the holder. From then on the node may be gone: the holder keeps its address for the
//!    wake, and nothing else. A gate that was ASLEEP when opened gets one wake.
//!
//! Our deviations: the paper lets a waiter back with a probability of 1/1000; we count, and let the first one back early. And a
//! try_lock, which joins the queue only if it is empty.
//!
//! Facts: last come first served among those that circulate; one in 1000 by arrival; a line of 128 B per lock, one node of 128 B per
//! waiter; waiters sleep; each waiter is delayed by those that circulate, and by 1000 hand-overs for each one before it in the list.

use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "mcscr",
    kind: Kind::Whole,
    preset_of: None,
    idea: "an mcs queue whose waiters spin, then sleep; the holder sets surplus waiters aside, and lets one back in every 1000 hand-overs",
    source: "Dave Dice, Malthusian Locks, EuroSys 2017, section 4, MCSCR",
    order: "circulating threads take turns; of those set aside, the longest waiter rejoins every 1000 hand-overs",
    promise: Promise::Nothing,
    stands_by: false,
    space: "0.3 KB per lock (under the preload, only while in use), 128 B per waiter, on its stack",
    wakes: "a waiter sleeps after spinning for 5 µs; unlock wakes the thread it hands the lock to",
    delay: "a waiter set aside, by 1000 hand-overs for each one set aside before it, or until the queue is empty",
    advice: "to compare with mcs-stp when threads outnumber CPUs; in programs, use malthusian",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Mcscr<P>;

const SHUT: u32 = 0;
const ASLEEP: u32 = 1;
const OPEN: u32 = 2;

/// How long a waiter stays awake: about the cost of a sleep and a wake.
const SPIN_NS: u32 = 5_000;

/// One unlock in this many lets a passive waiter back.
const FAIR: u32 = 1_000;

/// A waiter's or holder's place in the queue, or in the passive list.
#[repr(align(128))]
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, once by the successor, then by holders.
    next: P::Ptr<Node<P>>,
    /// In the list: the node before. Written by holders.
    prev: P::Ptr<Node<P>>,
    /// Written by the owner (SHUT, ASLEEP), and once by a holder (OPEN).
    gate: P::Word,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        let [next, prev] = [(); 2].map(|()| P::Ptr::new(null_mut()));
        Self { next, prev, gate: P::Word::new(SHUT) }
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
        // ORDERING: Acquire, pairs with [open]: the last critical section is over.
        let mut gate = P::spin_for(&self.gate, Acquire, SPIN_NS, |gate| gate == OPEN);
        if gate == SHUT {
            // ORDERING: Acquire on failure, pairs with [open]. Relaxed on success: we publish nothing but ASLEEP itself.
            match self.gate.compare_exchange(SHUT, ASLEEP, Relaxed, Acquire) {
                Ok(_) => gate = ASLEEP,
                Err(now) => gate = now,
            }
        }
        while gate != OPEN {
            P::park(&self.gate, ASLEEP, None);
            // ORDERING: Acquire, pairs with [open]: the last critical section is over.
            gate = self.gate.load(Acquire);
        }
    }

    /// Opens the gate, and is done with the node.
    ///
    /// # Safety
    /// The caller holds the lock, and the node waits for it.
    unsafe fn open(node: *const Self) {
        // SAFETY: by invariant 4 the node waits for us.
        let gate: *const P::Word = unsafe { &raw const (*node).gate };
        // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
        // SAFETY: as above; this is our last access to the node.
        let was = unsafe { (*gate).swap(OPEN, Release) };
        if was == ASLEEP {
            P::unpark(gate, 1);
        }
    }
}

struct Words<P: Platform> {
    /// The last in the queue. Written by arriving threads, and by a holder that finds itself last.
    tail: P::Ptr<Node<P>>,
    /// The passive list. The holder's.
    first: P::Ptr<Node<P>>,
    last: P::Ptr<Node<P>>,
    /// Unlocks since one was let back. The holder's.
    unlocks: P::Word,
}

/// An MCS lock that restricts its concurrency.
pub struct Mcscr<P: Platform> {
    words: Apart<P, Words<P>>,
}

impl<P: Platform> Mcscr<P> {
    /// The holder makes a waiter passive. Relaxed, all, here and below: [open] or [leave] publishes them.
    fn cull(&self, node: &Node<P>) {
        let Words { first, last, .. } = &*self.words;
        let (address, old) = (from_ref(node).cast_mut(), first.load(Relaxed));
        node.next.store(old, Relaxed);
        node.prev.store(null_mut(), Relaxed);
        if old.is_null() {
            last.store(address, Relaxed);
        } else {
            // SAFETY: it waits for the lock, which we hold.
            unsafe { (*old).prev.store(address, Relaxed) };
        }
        first.store(address, Relaxed);
    }

    /// The holder takes the first node out of the list, or the last (`oldest`); null: the list is empty.
    fn let_back(&self, oldest: bool) -> *mut Node<P> {
        let Words { first, last, .. } = &*self.words;
        let node = if oldest { last.load(Relaxed) } else { first.load(Relaxed) };
        if node.is_null() {
            return node;
        }
        // SAFETY: all of them wait for the lock, which we hold.
        unsafe {
            let (prev, next) = ((*node).prev.load(Relaxed), (*node).next.load(Relaxed));
            if prev.is_null() {
                first.store(next, Relaxed)
            } else {
                (*prev).next.store(next, Relaxed)
            }
            if next.is_null() {
                last.store(prev, Relaxed)
            } else {
                (*next).prev.store(prev, Relaxed)
            }
        }
        node
    }

    /// Is it the turn of the waiter that has been passive for longest?
    fn is_fair(&self) -> bool {
        let Words { unlocks, last, .. } = &*self.words;
        let count = unlocks.load(Relaxed) + 1;
        let fair = count >= FAIR && !last.load(Relaxed).is_null();
        unlocks.store(if fair { 0 } else { count.min(FAIR) }, Relaxed);
        fair
    }
}

impl<P: Platform> Sections<P> for Mcscr<P> {
    type Node = Node<P>;

    fn new() -> Self {
        let [tail, first, last] = [(); 3].map(|()| P::Ptr::new(null_mut()));
        let unlocks = P::Word::new(FAIR - 2);
        Self { words: Apart::new(Words { tail, first, last, unlocks }) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Mcscr<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        me.reset();
        // STATE: (-, -) -> (me, -): held; or (q, p) -> (q me, p).
        // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's before we
        // do. Acquire also pairs with [leave]: the last holder's critical section is over.
        let prev = self.words.tail.swap(node, AcqRel);
        if !prev.is_null() {
            // ORDERING: Release, pairs with [see]: publishes our node.
            // SAFETY: a node with a successor stays until its owner has seen this link.
            unsafe { (*prev).next.store(node, Release) };
            me.wait();
        }
    }

    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        let fair = self.is_fair();
        // ORDERING: Acquire [see]: the successor's node was made before we write to it.
        let mut next = me.next.load(Acquire);
        let mut back = if fair || next.is_null() { self.let_back(fair) } else { null_mut() };
        if next.is_null() {
            if !back.is_null() {
                // SAFETY: it waits for the lock, which we hold. Relaxed: published by the exchange.
                unsafe { (*back).next.store(null_mut(), Relaxed) };
            }
            // STATE: (me, -) -> (-, -), or (me, f p) -> (f, p).
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does, and that node's next before
            // its successor's. Relaxed on failure: the successor is read below.
            if self.words.tail.compare_exchange(node, back, Release, Relaxed).is_ok() {
                if !back.is_null() {
                    // SAFETY: as above.
                    unsafe { Node::open(back) };
                }
                return;
            }
            // Somebody has joined, and will link its node in a moment.
            // ORDERING: Acquire [see]: the successor's node was made before we write to it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // SAFETY: all of them wait for the lock, which we hold.
        unsafe {
            if back.is_null() {
                // ORDERING: Acquire, as [see].
                let after = (*next).next.load(Acquire);
                back = next;
                if !after.is_null() {
                    // STATE: (me b c q, p) -> (c q, b p).
                    self.cull(&*next);
                    back = after;
                }
            } else {
                // STATE: (me q, p l) -> (l q, p). Relaxed: [open] publishes it.
                (*back).next.store(next, Relaxed);
            }
            Node::open(back);
        }
    }
}

impl<P: Platform> TryLock<P> for Mcscr<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // SAFETY: the caller's duty; others, too, only ever share it.
        unsafe { &*node }.reset();
        // STATE: (-, -) -> (me, -), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        self.words.tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{FAIR, Mcscr, Node, OPEN};
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::Ordering::Relaxed;
    use lockwright_platform::{Ptr, RawLock, Sections, Word};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Mcscr<Threads>>();
    }

    #[test]
    fn surplus_waiters_are_set_aside_and_come_back() {
        let lock = Mcscr::<Threads>::new();
        lock.words.unlocks.store(FAIR - 5, Relaxed);
        let nodes: [Node<Threads>; 6] = Default::default();
        let pinned = nodes.each_ref().map(|node| (&raw const *node).cast_mut());
        // SAFETY: pinned, and unlocked by whoever holds.
        unsafe {
            lock.lock(pinned[0]);
            for n in 1..6 {
                // As `lock`, up to the wait.
                nodes[n].reset();
                (*lock.words.tail.swap(pinned[n], Relaxed)).next.store(pinned[n], Relaxed);
            }
            let mut served = [0; 6];
            for turn in 1..6 {
                lock.unlock(pinned[served[turn - 1]]);
                let is_new = |n: &usize| !served[..turn].contains(n);
                let holds = |n: &usize| nodes[*n].gate.load(Relaxed) == OPEN;
                served[turn] = (0..6).filter(is_new).find(holds).expect("it was handed over");
            }
            lock.unlock(pinned[served[5]]);
            // 1 and 3 are surplus. When the queue is empty, the last one set aside comes back; at the fifth unlock, the first one.
            assert_eq!(served, [0, 2, 4, 5, 3, 1]);
        }
        assert!(lock.words.tail.load(Relaxed).is_null(), "free");
    }
}
