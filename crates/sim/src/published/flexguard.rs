//! flexguard: waiters stay awake until a thread that holds a lock, or is next to get one, loses its CPU; then all sleep. Only simulated.
//!
//! V. Laforet, S. Kashyap, C. Iorgulescu, J. Lawall and J.-P. Lozi, *FlexGuard: Fast Mutual Exclusion Independent of Subscription*,
//! SOSP 2025, and the authors' code (flexguard.c, flexguard.bpf.c). Its monitor is an eBPF program at `sched_switch`, which needs root and
//! sees every thread of the machine. So programs don't get it: their locks guess from time (`mcs-tp`, our front locks).
//!
//! ```text
//!     word   0 ◄── HELD ◄── competes for it ──┬──────────┐ next ┌───────────┐
//!            ▲                                │ A   NEXT ├─────►│ B  BEHIND ├ ◄── tail       nobody preempted: awake
//!            │                                └────┬─────┘      └─────┬─────┘
//!            └── HELD + SLEEPERS ◄── C asleep ◄────┴──────────────────┘                      somebody preempted: all sleep
//! ```
//!
//! State: (word, tail). lock: (0, _) -> (HELD, _); else, while nobody is preempted, (_, prev) -> (_, me), wait for NEXT, then (0, _) ->
//! (HELD, _), and leave the queue. While somebody is preempted: leave the queue, (_, _) -> (HELD + SLEEPERS, _), which got the lock if the
//! word was 0, else sleep. unlock: (_, _) -> (0, _), and wake one if there were SLEEPERS.
//!
//! 1. The word alone decides who holds the lock. The queue only keeps most waiters from asking: arrivals, `try_lock` and woken sleepers ask
//!    without it.
//! 2. A thread sleeps on HELD + SLEEPERS only. A thread that was woken writes SLEEPERS again: there may be others.
//! 3. A thread leaves the queue once for each time it joined: it makes its successor NEXT, or the queue empty. It may leave from anywhere.
//! 4. A node that left early may be made NEXT later, also after it has joined again. A thread that saw a preemption end may ask although it
//!    is BEHIND. So several threads of the queue may ask for the word at once; 1 still holds.
//! 5. Nodes belong to the lock, one for each thread, and stay valid as long as the lock: so 4 harms nobody.
//! 6. A thread is critical from when it has seen NEXT, or asks for the word, until it has unlocked or asks no longer. A waiter that lost its
//!    CPU while BEHIND doesn't count, also after it is made NEXT.
//!
//! Our deviations. The authors have one node for each thread of the process, in an array; ours are the lock's. What they read from the
//! thread's registers (is it before or behind the exchange?) ours say: [`Monitored::critical`]. Our first attempt at the word counts as
//! critical; the authors' doesn't. Here the monitor costs a context switch nothing (the authors measured less than 1 %), nor does it cost
//! anything to read its counter, which waiters do every 200 ns, or to tell it what a thread does.

use super::monitored::Monitored;
use lockwright_locks::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Ptr, RawLock, Sections, TryLock, Word};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::{from_ref, null_mut};

/// What the simulator's list says.
pub(super) static ENTRY: Entry = Entry {
    id: "flexguard",
    kind: Kind::Whole,
    preset_of: None,
    idea: "an mcs queue in front of a word; while a thread that holds any lock, or is next, is preempted, all waiters sleep",
    source: "V. Laforet et al., FlexGuard: Fast Mutual Exclusion Independent of Subscription, SOSP 2025, and its code",
    order: "none: arrivals take a free word, and sleepers compete",
    promise: Promise::Nothing,
    stands_by: false,
    space: "16 B per lock, and a line of 128 B for each thread that has waited",
    wakes: "waiters go to sleep while a critical thread of the process is preempted; each unlock wakes one",
    delay: "each waiter, by any number of others, without bound",
    advice: "only simulated, to compare with: the kernel has to tell who is preempted",
    options: &[],
};

/// The lock.
pub(super) type Lock<P> = FlexGuard<P>;

// The word.
const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_AND_SLEEPERS: u32 = 2;
// A node's gate.
const BEHIND: u32 = 0;
const NEXT: u32 = 1;

/// How long a waiter looks at one word before it looks at the monitor again, ns.
const LOOK_NS: u32 = 200;

/// A thread's node in the queue.
#[repr(align(128))]
struct QueueNode<P: Monitored> {
    /// The next one. Written by the owner before it joins, then once by the successor.
    next: P::Ptr<QueueNode<P>>,
    /// Written by the owner before it joins (BEHIND), and by predecessors (NEXT).
    gate: P::Word,
}

/// Each thread's node.
struct Nodes<P: Monitored>(RefCell<BTreeMap<usize, Box<QueueNode<P>>>>);

// SAFETY: all threads of a simulated machine run on one thread of the operating system, and none is suspended while it has the borrow.
unsafe impl<P: Monitored> Sync for Nodes<P> {}

impl<P: Monitored> Nodes<P> {
    /// The calling thread's.
    fn mine(&self) -> *mut QueueNode<P> {
        let new =
            || Box::new(QueueNode { next: P::Ptr::new(null_mut()), gate: P::Word::new(BEHIND) });
        let me = P::number();
        from_ref(&**self.0.borrow_mut().entry(me).or_insert_with(new)).cast_mut()
    }
}

/// A FlexGuard lock.
pub(super) struct FlexGuard<P: Monitored> {
    /// FREE, HELD, or HELD_AND_SLEEPERS. Written by who takes the lock, goes to sleep, or unlocks.
    word: P::Word,
    /// The last in the queue. Written by arriving threads, and by the last one that leaves.
    tail: P::Ptr<QueueNode<P>>,
    nodes: Nodes<P>,
}

impl<P: Monitored> FlexGuard<P> {
    /// Takes the lock if it is free.
    fn takes(&self) -> bool {
        // STATE: (FREE, _) -> (HELD, _), else unchanged.
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over. Relaxed on failure: nothing was gained.
        self.word.load(Relaxed) == FREE
            && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Takes the lock if it is free; else marks it as one with sleepers.
    fn takes_or_marks(&self) -> bool {
        // STATE: (FREE, _) -> (HELD_AND_SLEEPERS, _): held; or (_, _) -> (HELD_AND_SLEEPERS, _).
        // ORDERING: Acquire, pairs with [release], if it was free.
        self.word.swap(HELD_AND_SLEEPERS, Acquire) == FREE
    }

    /// Joins the queue, and waits until it is next or somebody is preempted.
    fn join(&self, node: *mut QueueNode<P>) {
        // SAFETY: by invariant 5.
        let me = unsafe { &*node };
        // Relaxed, both: published by [join].
        me.next.store(null_mut(), Relaxed);
        me.gate.store(BEHIND, Relaxed);
        // STATE: (_, prev) -> (_, me).
        // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's before we do.
        let prev = self.tail.swap(node, AcqRel);
        if prev.is_null() {
            return;
        }
        // ORDERING: Release, pairs with [see]: publishes our node, whose gate will be written.
        // SAFETY: by invariant 5.
        unsafe { (*prev).next.store(node, Release) };
        // Relaxed: the queue protects nothing.
        while P::spin_for(&me.gate, Relaxed, LOOK_NS, |gate| gate == NEXT) != NEXT
            && !P::is_preempted()
        {}
    }

    /// Leaves the queue, from anywhere.
    fn leave(&self, node: *mut QueueNode<P>) {
        // SAFETY: by invariant 5.
        let me = unsafe { &*node };
        // ORDERING: Acquire [see]: the successor's node was made before we write to it.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            // STATE: (_, me) -> (_, null).
            // Relaxed: the queue protects nothing. On failure the successor is read below.
            if self.tail.compare_exchange(node, null_mut(), Relaxed, Relaxed).is_ok() {
                return;
            }
            // ORDERING: Acquire [see]: the successor's node was made before we write to it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // Relaxed: the queue protects nothing.
        // SAFETY: by invariant 5.
        unsafe { (*next).gate.store(NEXT, Relaxed) };
    }

    /// Asks for the word, from the queue's head, until it has the lock (`true`), or has left the queue because somebody is preempted.
    fn asks_first(&self, node: *mut QueueNode<P>) -> bool {
        let mut got = self.takes();
        while !got && !P::is_preempted() {
            let seen = P::spin_for(&self.word, Relaxed, LOOK_NS, |word| word == FREE);
            got = seen == FREE && self.takes();
        }
        self.leave(node);
        got
    }

    /// Asks for the word, and sleeps, until it has the lock (`true`), or is woken while nobody is preempted.
    fn asks_asleep(&self) -> bool {
        let mut got = self.takes_or_marks();
        while !got {
            P::park(&self.word, HELD_AND_SLEEPERS, None);
            // By invariant 2.
            got = self.takes_or_marks();
            if !P::is_preempted() {
                break;
            }
        }
        got
    }

    #[cold]
    fn lock_slow(&self) {
        let node = self.nodes.mine();
        loop {
            if P::is_preempted() {
                P::critical(true);
                if self.asks_asleep() {
                    return;
                }
            } else {
                self.join(node);
                P::critical(true);
                if self.asks_first(node) {
                    return;
                }
            }
            P::critical(false);
        }
    }
}

impl<P: Monitored> Sections<P> for FlexGuard<P> {
    type Node = ();

    fn new() -> Self {
        let nodes = Nodes(RefCell::new(BTreeMap::new()));
        Self { word: P::Word::new(FREE), tail: P::Ptr::new(null_mut()), nodes }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Monitored> RawLock<P> for FlexGuard<P> {
    unsafe fn lock(&self, _: *mut ()) {
        P::critical(true);
        if !self.takes() {
            P::critical(false);
            self.lock_slow();
        }
    }

    unsafe fn unlock(&self, _: *mut ()) {
        // STATE: (_, _) -> (FREE, _).
        // ORDERING: Release [release]: the critical section comes before whatever the next holder does.
        let was = self.word.swap(FREE, Release);
        debug_assert_ne!(was, FREE, "the caller held it");
        if was == HELD_AND_SLEEPERS {
            P::unpark(&raw const self.word, 1);
        }
        P::critical(false);
    }
}

impl<P: Monitored> TryLock<P> for FlexGuard<P> {
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        P::critical(true);
        let got = self.takes();
        if !got {
            P::critical(false);
        }
        got
    }
}
