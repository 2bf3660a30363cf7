//! cna: an mcs queue whose holder prefers a successor on its own cluster, and sets the waiters before that one aside, in a second queue.
//!
//! D. Dice and A. Kogan, *Compact NUMA-aware Locks*, EuroSys 2019. Our deviations: hand-overs within a cluster
//! are bounded by 63, counted in the gate's low bits (the paper ends a turn by chance, one in 65536 by default). A waiter's cluster is
//! the one on which it arrives. And a try_lock joins the queue only if it is empty.
//!
//! ```text
//!     main       ┌─────────────┐ next ┌──────────────┐ next
//!     queue      │ A (held)  0 ├─────►│ D          0 ├─────► ... ◄── tail         0, 1: clusters
//!                └──────┬──────┘      └──────────────┘
//!                  gate │ (and the turn)
//!     aside      ┌──────▼──────┐ next ┌──────────────┐
//!                │ B         1 ├─────►│ C          1 ├─────► null                 B.last = C
//!                └─────────────┘      └──────────────┘
//!       unlock by A: D.gate = B; after 63 in a row, or if nobody of cluster 0 waits: C.next = D, B.gate = null and open
//! ```
//!
//! State: (tail, main queue after the holder, queue aside). lock: (null, _, _) -> (me, _, _) and held; (prev, q, a) -> (me, q me, a),
//! then wait for my gate. unlock, where w waits first on our cluster: (t, x w y, a) -> (t, y, a x) and w holds; else (t, q, a) -> (t,
//! rest of a q, -) and the first of a holds; with nobody in a, the first of q; with nobody in either, (me, -, -) -> (null, -, -); with
//! nobody in q, (me, -, a) -> (last of a, rest of a, -), and the first of a holds.
//!
//! 1. Free exactly while tail = null.
//! 2. tail is in the main queue, or is the holder's: only a node that has a next is set aside.
//! 3. A node with a successor stays valid until its owner has opened the successor's gate, or until its owner has
//!    left as a holder with nobody behind it in the main queue.
//! 4. A gate is opened once per acquisition, by the thread that holds the lock, which touches the node for the last time with it.
//!    It says where the queue aside begins, and how many hand-overs the turn has had.
//! 5. Only the holder writes anything except tail, and the next of the last node in the main queue.
//!
//! Facts: by arrival within a cluster; 63 hand-overs may overtake; 8 B per lock, one node of 128 B per waiter; nobody sleeps; an unlock
//! looks at as many waiters as it sets aside.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Probe, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "cna",
    kind: Kind::Whole,
    preset_of: None,
    idea: "an mcs queue whose holder prefers its own cluster and sets aside the waiters of others",
    source: "D. Dice, A. Kogan, Compact NUMA-aware Locks, EuroSys 2019",
    order: "up to 63 hand-overs within a cluster of cores; otherwise by arrival",
    promise: Promise::Nothing,
    stands_by: false,
    space: "8 B per lock, 128 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it, and by up to 63 of each other cluster; a preempted one stalls all behind it",
    advice: "machines with several sockets; with one cluster it is just mcs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Cna<P>;

/// The most hand-overs within a cluster.
const TURN: usize = 63;

/// The cluster of a holder that did not wait: it has not looked where it runs.
const UNKNOWN: u32 = u32::MAX;

/// A gate's low bit: open. The six bits above it count the turn's hand-overs; a node's address leaves them free.
const OPEN: usize = 1;
const LOW: usize = TURN << 1 | OPEN;

/// An open gate.
fn open<P: Platform>(aside: *mut Node<P>, turn: usize) -> *mut Node<P> {
    aside.map_addr(|address| address | turn << 1 | OPEN)
}

/// A waiter's or holder's place in a queue.
#[repr(align(128))]
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, once by the successor, then by holders.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then once by the holder.
    gate: P::Ptr<Node<P>>,
    /// In the first node aside: the last node aside. Written by holders.
    last: P::Ptr<Node<P>>,
    /// Where the owner runs. Written by the owner before it links.
    cluster: P::Word,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self {
            next: P::Ptr::new(null_mut()),
            gate: P::Ptr::new(null_mut()),
            last: P::Ptr::new(null_mut()),
            cluster: P::Word::new(UNKNOWN),
        }
    }
}

fn here<P: Platform>() -> u32 {
    P::place().domain.into()
}

impl<P: Platform> Node<P> {
    /// Readies it for another acquisition.
    fn reset(&self) {
        // Relaxed, all: nobody else knows the node yet.
        self.next.store(null_mut(), Relaxed);
        self.gate.store(null_mut(), Relaxed);
        self.cluster.store(UNKNOWN, Relaxed);
    }
}

/// A compact NUMA-aware lock.
pub struct Cna<P: Platform> {
    /// The last in the main queue. Written by arriving threads, and by a holder that finds itself last there.
    tail: P::Ptr<Node<P>>,
}

impl<P: Platform> Cna<P> {
    #[cold]
    fn wait(me: &Node<P>, node: *mut Node<P>, prev: *mut Node<P>) {
        me.cluster.store(here::<P>(), Relaxed); // published by the link
        // STATE: (me, q, a) -> (me, q me, a).
        // ORDERING: Release, pairs with [see]: publishes our node.
        // SAFETY: by invariant 3, prev lives until its owner or a holder has seen this store.
        unsafe { (*prev).next.store(node, Release) };
        // ORDERING: Acquire, pairs with [open]: the last critical section is over, and the queues are as its holder left them.
        P::spin_until_ptr(&me.gate, Acquire, |gate| !gate.is_null());
    }

    /// Opens the gate of `node`.
    ///
    /// # Safety
    /// The caller holds the lock, and `node` waits for it.
    unsafe fn hand_over(node: *mut Node<P>, aside: *mut Node<P>, turn: usize) {
        // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
        // SAFETY: by invariant 4 the node waits for this store.
        unsafe { (*node).gate.store(open(aside, turn), Release) };
    }

    /// Appends the nodes from `first` to `last` to the queue aside; returns that queue's first node.
    ///
    /// # Safety
    /// The caller holds the lock; the nodes wait for it, in this order.
    unsafe fn set_aside(
        aside: *mut Node<P>,
        first: *mut Node<P>,
        last: *mut Node<P>,
    ) -> *mut Node<P> {
        // SAFETY: by invariant 5; the nodes aside wait, too. Relaxed, all: [open] publishes it.
        unsafe {
            (*last).next.store(null_mut(), Relaxed);
            let head = if aside.is_null() {
                first
            } else {
                (*(*aside).last.load(Relaxed)).next.store(first, Relaxed);
                aside
            };
            (*head).last.store(last, Relaxed);
            head
        }
    }

    /// The first waiter on `cluster` in the main queue, from `first` on, and the waiter before that one.
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn near(first: *mut Node<P>, cluster: u32) -> Option<(*mut Node<P>, *mut Node<P>)> {
        let (mut before, mut node) = (null_mut::<Node<P>>(), first);
        while !node.is_null() {
            // SAFETY: it waits for the lock, which we hold.
            unsafe {
                // Relaxed: the link publishes it.
                if (*node).cluster.load(Relaxed) == cluster {
                    return Some((node, before));
                }
                before = node;
                // ORDERING: Acquire, as [see]: the next node was made before we look at it.
                node = (*node).next.load(Acquire);
            }
        }
        None
    }
}

impl<P: Platform> Sections<P> for Cna<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Cna<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        me.reset();
        // STATE: (null, _, _) -> (me, _, _): held; or (prev, q, a) -> (me, q, a).
        // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's
        // before we do. Acquire also pairs with [leave]: the last holder's critical section is over.
        let prev = self.tail.swap(node, AcqRel);
        if !prev.is_null() {
            Self::wait(me, node, prev);
        }
    }

    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        // Relaxed: nobody writes to it any more.
        let gate = me.gate.load(Relaxed);
        let aside = gate.map_addr(|address| address & !LOW);
        // ORDERING: Acquire [see]: the successor's node was made before we look at it.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            let last = if aside.is_null() {
                null_mut()
            } else {
                // SAFETY: it waits for the lock, which we hold. Relaxed: only the holder writes it.
                unsafe { (*aside).last.load(Relaxed) }
            };
            // STATE: (me, -, -) -> (null, -, -), or (me, -, a) -> (last of a, -, a).
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does, and the last node
            // aside is complete before somebody links to it. Relaxed on failure: the successor is read below.
            if self.tail.compare_exchange(node, last, Release, Relaxed).is_ok() {
                if !aside.is_null() {
                    // STATE: (_, -, a) -> (_, rest of a, -).
                    // SAFETY: the first node aside waits for the lock.
                    unsafe { Self::hand_over(aside, null_mut(), 0) };
                }
                return;
            }
            // Somebody has joined, and will link its node in a moment.
            // ORDERING: Acquire [see]: the successor's node was made before we look at it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        let turn = (gate.addr() & LOW) >> 1;
        let mut cluster = me.cluster.load(Relaxed); // ours
        if cluster == UNKNOWN {
            cluster = here::<P>();
        }
        // SAFETY: we hold the lock; all of these nodes wait for it.
        unsafe {
            let near = if turn < TURN { Self::near(next, cluster) } else { None };
            if let Some((near, before)) = near {
                // STATE: (t, x near y, a) -> (t, y, a x).
                let aside =
                    if before.is_null() { aside } else { Self::set_aside(aside, next, before) };
                Self::hand_over(near, aside, turn + 1);
            } else if aside.is_null() {
                Self::hand_over(next, null_mut(), 0);
            } else {
                // STATE: (t, q, a) -> (t, rest of a q, -). Relaxed, both: [open] publishes them.
                (*(*aside).last.load(Relaxed)).next.store(next, Relaxed);
                Self::hand_over(aside, null_mut(), 0);
            }
        }
    }
}

impl<P: Platform> TryLock<P> for Cna<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // SAFETY: the caller's duty; others, too, only ever share it.
        unsafe { &*node }.reset();
        // STATE: (null, _, _) -> (me, _, _), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        self.tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok()
    }
}

impl<P: Platform> Probe<P> for Cna<P> {
    #[inline]
    fn is_free(&self) -> bool {
        self.tail.load(Relaxed).is_null() // invariant 1; a hint
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor.
unsafe impl<P: Platform> InPlace for Cna<P> {}

#[cfg(test)]
mod tests {
    use super::{Cna, Node, TURN, open};
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory, run_on};
    use lockwright_platform::Ordering::Relaxed;
    use lockwright_platform::{Ptr, RawLock, Sections, Word};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Cna<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Cna<Threads>>();
    }

    /// As [`Cna::wait`], up to the wait.
    fn joins(lock: &Cna<Threads>, node: &Node<Threads>, cluster: u32) {
        let address = (&raw const *node).cast_mut();
        node.reset();
        node.cluster.store(cluster, Relaxed);
        let prev = lock.tail.swap(address, Relaxed);
        // SAFETY: the nodes of this test outlive it.
        unsafe { (*prev).next.store(address, Relaxed) };
    }

    #[test]
    fn the_holders_cluster_goes_first_and_the_others_by_arrival() {
        run_on(0);
        let lock = Cna::<Threads>::new();
        let nodes: [Node<Threads>; 7] = Default::default();
        let pinned = nodes.each_ref().map(|node| (&raw const *node).cast_mut());
        let order = |cluster: [u32; 7], full: usize| {
            // SAFETY: pinned, and unlocked by whoever holds.
            unsafe {
                lock.lock(pinned[0]);
                for (node, cluster) in nodes.iter().zip(cluster).skip(1) {
                    joins(&lock, node, cluster);
                }
                let mut served = [0; 7];
                for turn in 1..7 {
                    let holder = served[turn - 1];
                    if turn == full {
                        let gate = &nodes[holder].gate;
                        gate.store(open(gate.load(Relaxed), TURN), Relaxed);
                    }
                    lock.unlock(pinned[holder]);
                    let is_new = |one: &usize| !served[..turn].contains(one);
                    let has_it = |one: &usize| !nodes[*one].gate.load(Relaxed).is_null();
                    served[turn] = (0..7).filter(is_new).find(has_it).expect("it was handed over");
                }
                lock.unlock(pinned[served[6]]);
                served
            }
        };
        assert_eq!(order([0, 1, 0, 1, 2, 0, 1], 0), [0, 2, 5, 1, 3, 6, 4]);
        assert_eq!(order([0, 1, 0, 1, 2, 0, 1], 2), [0, 2, 1, 3, 6, 4, 5]);
        assert_eq!(order([0, 1, 1, 0, 0, 0, 0], 0), [0, 3, 4, 5, 6, 1, 2]);
        assert!(lock.tail.load(Relaxed).is_null(), "free");
    }
}
