//! shfllock: a test-and-set word in front of a queue; one of the first waiters reorders those behind it, by a policy.
//!
//! S. Kashyap, I. Calciu, X. Cheng, C. Min and T. Kim, *Scalable and Practical Locking with Shuffling*, SOSP 2019: the spinning lock.
//! The policy is a type (shuffling.rs). It groups by cluster, as published; or it keeps a proportion between classes of cores, like the
//! SHFL-PB10 that LibASL is compared with (*Asymmetry-aware Scalable Locking*, PPoPP 2022, section 4).
//!
//! ```text
//!     locked, no_steal
//!        ▲
//!        │ takes           ┌───────────── behind the last of its group ────────────┐
//!     ┌──┴───┐ next ┌──────▼───┐ next ┌───┐ next ┌───┐ next ┌───┐ next ┌───┐     ┌─┴─┐
//!     │ head ├─────►│ shuffler ├─────►│ 0 ├─────►│ 1 ├─────►│ 1 ├─────►│ 0 │ ... │ 0 │ ◄── tail, never moved
//!     └──────┘   0  └──────────┘  0   └───┘      └───┘      └───┘      └─┬─┘     └───┘     0, 1: clusters
//!                                       ▲────────────── moved ───────────┘
//! ```
//!
//! State: (locked, no_steal, queue). lock: (0, 0, q) -> (1, 0, q) and held, or (l, _, -) -> (l, 1, me), or (l, n, q) -> (l, n, q me); as
//! head: (0, n, me q) -> (1, n, q) and the first of q is head, or (0, 1, me) -> (1, 0, -). unlock: (1, n, q) -> (0, n, q).
//!
//! 1. Held exactly while locked = 1. An arrival takes it past the queue only while no_steal = 0.
//! 2. At most one waiter is shuffler. It alone changes the links behind its own node, but never that of the last node. Those nodes stay
//!    until it has left the queue.
//! 3. The shuffler passes its role to the last node that it has placed. Nodes that were placed have a number, and stand between the head
//!    and the shuffler. So if a head has no number, nobody is shuffler, and the head becomes shuffler.
//! 4. A thread leaves the queue before its lock returns, so unlock uses no node.
//!
//! Our deviations: the two bytes of the published lock word are separate words, and the tail has a line of its own; no_steal is
//! cleared before the queue is left empty, and set again if it turns out not to be empty; a shuffler looks five times for waiters to
//! move; the proportion goes on where the last shuffler ended.
//!
//! Facts: up to 1024 of a cluster in a row; two lines of 128 B per lock, 128 B per waiter; nobody sleeps.

use super::shuffling::{Clusters, Policy, Proportion};
use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::marker::PhantomData;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "shfllock",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a test-and-set word in front of a queue; the first waiter groups those behind it by cluster",
    source: "S. Kashyap, I. Calciu, X. Cheng, C. Min, T. Kim, Scalable and Practical Locking with Shuffling, SOSP 2019",
    order: "up to 1024 hand-overs within a cluster of cores; otherwise by arrival",
    promise: Promise::Nothing,
    stands_by: false,
    space: "0.4 KB per lock (under the preload, only while in use), 128 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it, and by up to 1024 of each other cluster; a preempted one stalls all behind it",
    advice: "machines with several sockets; with one cluster it is nearly mcs",
    options: &[],
};

/// The catalogue's entry for the lock with the proportion.
pub(crate) const fn proportional(id: &'static str) -> Entry {
    Entry {
        id,
        preset_of: Some(ENTRY.id),
        idea: "a shuffling queue that moves up one waiter on a little core for every ten on big cores",
        source: "SHFL-PB10 in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4; S. Kashyap et al., SOSP 2019",
        order: "one little core after ten big ones, if both wait; by arrival within each class",
        delay: "a waiter on a little core, by ten on big ones for each little one ahead of it; a preempted one stalls all behind it",
        advice: "to compare with asl-mcs; in programs, use pb10",
        ..ENTRY
    }
}

/// The name that the catalogue uses.
pub type Lock<P> = Shfl<P, Clusters>;
/// As [`Lock`].
pub type Pb10<P> = Shfl<P, Proportion>;

// A gate's bits.
const HEAD: u32 = 1;
const SHUFFLER: u32 = 2;

/// How long a shuffler first waits for nodes to move, ns; the time doubles, up to the second constant.
const LOOK_NS: u32 = 200;
const LONGEST_NS: u32 = 4_000;

/// A waiter's place in the queue.
#[repr(align(128))]
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, once by the successor, then by the shuffler.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then by its predecessor and by the shuffler.
    gate: P::Word,
    /// See [`Policy`]. Written by the owner before it arrives.
    group: P::Word,
    /// 0: not placed. Written by the shuffler; by the owner, if it is head.
    number: P::Word,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        let [gate, group, number] = [(); 3].map(|()| P::Word::new(0));
        Self { next: P::Ptr::new(null_mut()), gate, group, number }
    }
}

struct Words<P: Platform> {
    /// 1: held. Written by threads that take it, and by the holder.
    locked: P::Word,
    /// Does somebody queue? Written by the first to arrive, and by the last to leave.
    no_steal: P::Word,
    /// The last head's number. The head's.
    last: P::Word,
}

/// A shuffling lock.
pub struct Shfl<P: Platform, Y> {
    words: Apart<P, Words<P>>,
    /// The last in the queue. Written by arriving threads, and by a head that finds itself last.
    tail: Apart<P, P::Ptr<Node<P>>>,
    policy: PhantomData<fn(Y)>,
}

impl<P: Platform, Y: Policy> Shfl<P, Y> {
    fn take(&self) -> bool {
        // STATE: (0, n, q) -> (1, n, q).
        // ORDERING: Acquire, pairs with [unlock]: the last holder's critical section is over.
        self.words.locked.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Takes the lock past the queue, if that is allowed.
    #[inline]
    fn steal(&self) -> bool {
        let Words { locked, no_steal, .. } = &*self.words;
        // Relaxed, both: hints.
        no_steal.load(Relaxed) == 0 && locked.load(Relaxed) == 0 && self.take()
    }

    #[cold]
    fn lock_slow(&self, me: &Node<P>, node: *mut Node<P>) {
        let Words { locked, no_steal, last } = &*self.words;
        // Relaxed, all: nobody else knows the node yet.
        me.next.store(null_mut(), Relaxed);
        me.gate.store(0, Relaxed);
        me.group.store(Y::group(P::place()), Relaxed);
        me.number.store(0, Relaxed);
        // STATE: (l, n, q) -> (l, n, q me).
        // ORDERING: AcqRel [join], pairs with itself: our node is made before the successor writes to it, and prev's before we do.
        let prev = self.tail.swap(node, AcqRel);
        let mut shuffles = false;
        if prev.is_null() {
            // STATE: (l, 0, me) -> (l, 1, me).
            no_steal.store(1, Relaxed); // a hint
        } else {
            // ORDERING: Release, pairs with [see]: publishes our node.
            // SAFETY: a node with a successor stays until it has made that one head.
            unsafe { (*prev).next.store(node, Release) };
            shuffles = self.wait_in_queue(me);
        }
        if me.number.load(Relaxed) == 0 {
            // By invariant 3 nobody is shuffler. Relaxed, all: only the head uses them.
            me.number.store(Y::first(last.load(Relaxed), me.group.load(Relaxed)), Relaxed);
            shuffles = true;
        }
        let mut look = LOOK_NS;
        while locked.load(Relaxed) != 0 {
            let is_held = || locked.load(Relaxed) != 0;
            shuffles = shuffles && look <= LONGEST_NS && !self.shuffle(me, is_held);
            if shuffles {
                P::spin_for(locked, Relaxed, look, |now| now == 0);
                look *= 2;
            } else {
                P::spin_until(locked, Relaxed, |now| now == 0);
            }
        }
        while !self.take() {
            P::spin_until(locked, Relaxed, |now| now == 0);
        }
        self.leave(me, node);
    }

    /// Waits until the predecessor has left; `true`: the caller is shuffler now.
    fn wait_in_queue(&self, me: &Node<P>) -> bool {
        // ORDERING: Acquire, here and below, pairs with [head] and [role]: the links are as the last shuffler left them.
        let gate = P::spin_until(&me.gate, Acquire, |gate| gate != 0);
        if gate & HEAD != 0 {
            return gate & SHUFFLER != 0;
        }
        let is_head = |gate| gate & HEAD != 0;
        let mut look = LOOK_NS;
        while look <= LONGEST_NS && !is_head(me.gate.load(Relaxed)) {
            if self.shuffle(me, || !is_head(me.gate.load(Relaxed))) {
                P::spin_until(&me.gate, Acquire, is_head);
                return false;
            }
            P::spin_for(&me.gate, Relaxed, look, is_head);
            look *= 2;
        }
        P::spin_until(&me.gate, Relaxed, is_head); // the links behind us are our own
        true
    }

    /// The shuffler puts the waiters behind it into the policy's order, as long as it `may`, and passes its role on; `false`: it has
    /// placed nobody.
    fn shuffle(&self, me: &Node<P>, may: impl Fn() -> bool) -> bool {
        // Relaxed, both: published by the link and by [role].
        let own = |node: &Node<P>| (node.group.load(Relaxed), node.number.load(Relaxed));
        let ((mut group, mut number), mut last, mut prev) = (own(me), me, me);
        while may() {
            // ORDERING: Acquire, both, as [see].
            let at = prev.next.load(Acquire);
            if at.is_null() {
                break;
            }
            // SAFETY: by invariant 2.
            let node = unsafe { &*at };
            let behind = node.next.load(Acquire);
            if behind.is_null() {
                break; // the last one: somebody may be joining behind it
            }
            let next = node.group.load(Relaxed); // published by the link
            let Some(its) = Y::follow(group, number, next) else {
                prev = node;
                continue;
            };
            // Relaxed, all: [role] and [head] publish them.
            node.number.store(its, Relaxed);
            if core::ptr::eq(prev, last) {
                prev = node;
            } else {
                prev.next.store(behind, Relaxed);
                node.next.store(last.next.load(Relaxed), Relaxed);
                last.next.store(at, Relaxed);
                if Y::follow(next, its, next).is_none() {
                    prev = node; // now another group is wanted: one of those that were skipped may be in it
                }
            }
            (last, group, number) = (node, next, its);
        }
        if core::ptr::eq(last, me) {
            return false;
        }
        // ORDERING: Release [role]: the links are as we have left them.
        // SURVIVES: it takes a holder and four waiters to move a node that then reads its link; explorations have four threads.
        // SURVIVES no-store: the next head that has no number shuffles.
        last.gate.fetch_or(SHUFFLER, Release);
        true
    }

    /// The caller, head, has the lock, and leaves the queue.
    fn leave(&self, me: &Node<P>, node: *mut Node<P>) {
        let Words { no_steal, last, .. } = &*self.words;
        last.store(me.number.load(Relaxed), Relaxed); // the head's
        // ORDERING: Acquire [see]: the successor's node was made before we look at it.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            no_steal.store(0, Relaxed); // a hint
            // STATE: (1, 0, me) -> (1, 0, -).
            // ORDERING: Release, pairs with [join]: the next thread to come first comes after us. Relaxed on failure: the successor is read
            // below.
            // SURVIVES: all that we wrote before are hints.
            if self.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            no_steal.store(1, Relaxed);
            // ORDERING: Acquire [see]: the successor's node was made before we look at it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // STATE: (1, n, me q) -> (1, n, q).
        // ORDERING: Release [head]: publishes the links behind us, if we shuffled, and the last number.
        // SAFETY: the successor waits for this.
        unsafe { (*next).gate.fetch_or(HEAD, Release) };
    }
}

impl<P: Platform, Y: Policy> Sections<P> for Shfl<P, Y> {
    type Node = Node<P>;

    fn new() -> Self {
        let [locked, no_steal, last] = [(); 3].map(|()| P::Word::new(0));
        let words = Apart::new(Words { locked, no_steal, last });
        Self { words, tail: Apart::new(P::Ptr::new(null_mut())), policy: PhantomData }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform, Y: Policy> RawLock<P> for Shfl<P, Y> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        if !self.steal() {
            // SAFETY: the caller's duty; others, too, only ever share it.
            self.lock_slow(unsafe { &*node }, node);
        }
    }

    #[inline]
    unsafe fn unlock(&self, _node: *mut Node<P>) {
        // STATE: (1, n, q) -> (0, n, q).
        // ORDERING: Release [unlock]: the critical section comes before whatever the next holder does.
        self.words.locked.store(0, Release);
    }
}

impl<P: Platform, Y: Policy> TryLock<P> for Shfl<P, Y> {
    #[inline]
    unsafe fn try_lock(&self, _node: *mut Node<P>) -> bool {
        self.steal()
    }
}

#[cfg(test)]
#[path = "shfllock_tests.rs"]
mod tests;
