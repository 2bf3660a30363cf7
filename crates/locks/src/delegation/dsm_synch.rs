//! dsm-synch: a queue of waiters. The first runs its own section, then those of its followers, and after some of them leaves
//! the rest to the next.
//!
//! P. Fatourou and N. D. Kallimanis, *Revisiting the Combining Synchronization Technique*, PPoPP 2012, section 3 (DSM-Synch).
//! Our deviation: a thread has one node, on its stack, where the paper's has two that it uses by turns: an asker's node has
//! been left by the combiner when the asker is answered.
//!
//! ```text
//!     tail ─────────────────────────────────┐
//!                                           ▼
//!     ┌──────────┐ next ┌───────────┐ next ┌───────────┐
//!     │ A  runs  ├─────►│ B  WAITING├─────►│ C  WAITING│
//!     └──────────┘      └───────────┘      └───────────┘
//!       A runs A's section, then B's: B = RUN, then C's: C = RUN; after MOST of them: next = OURS
//! ```
//!
//! State: (tail, next of each node, its state). ask: (null, ..) -> (me, ..) and combiner; (prev, ..) -> (me, prev.next = me),
//! then wait for RUN or OURS. combine: run; state = RUN; on to next, or (me, ..) -> (null, ..).
//!
//! 1. Exactly one thread combines while tail is not null: the one that found it null, or whose node became OURS.
//! 2. A node stays valid until it is RUN, or, for the combiner's own, until `with` returns.
//! 3. The combiner reads `next` of a node before it answers that node.
//!
//! Facts: first come first served; 8 B per lock, one node of 32 B per waiter; nobody sleeps; a combiner is delayed by MOST
//! sections, a waiter by those before it, and by a combiner that doesn't run.

use super::waiting::{Patience, Spins, Yields};
use super::{Job, carried};
use crate::entry::{Entry, Kind, Promise};
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Ptr, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "dsm-synch",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "a queue of waiters, whose first runs the sections of those behind it",
    source: "P. Fatourou, N. D. Kallimanis, Revisiting the Combining Synchronization Technique, PPoPP 2012, section 3",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "8 B per lock, 32 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "the thread that runs the others' sections, by 256 of them; all, by its preemption",
    advice: "many cores, one thread per CPU, short sections; to compare with combiner",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = DsmSynch<P, Spins, MOST>;
/// Its variant that yields.
pub type Yielding<P> = DsmSynch<P, Yields, MOST>;

/// Our section has not run.
const WAITING: u32 = 0;
/// Somebody has run our section.
const RUN: u32 = 1;
/// We are to run our section, and those after it.
const OURS: u32 = 2;

/// How many sections one thread runs before it leaves the rest to the next.
pub(super) const MOST: u32 = 256;

/// A waiter's place in the queue.
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, then once by the successor.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then once by the combiner.
    state: P::Word,
    /// Written by the owner before it arrives.
    job: Cell<Job>,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self {
            next: P::Ptr::new(null_mut()),
            state: P::Word::new(WAITING),
            job: Cell::new(Job::NONE),
        }
    }
}

/// A DSM-Synch lock, whose waiters wait as `W` says; a combiner runs `MOST` sections.
pub struct DsmSynch<P: Platform, W, const MOST: u32> {
    /// The last in line. Written by arriving threads, and by a combiner that finds itself last.
    tail: P::Ptr<Node<P>>,
    waiting: PhantomData<fn(W)>,
}

impl<P: Platform, W: Patience<P>, const MOST: u32> DsmSynch<P, W, MOST> {
    /// Runs the section of `first`, and those that follow it.
    ///
    /// # Safety
    /// `first` is the caller's own, and the caller is the combiner (invariant 1).
    unsafe fn combine(&self, first: *mut Node<P>) {
        let mut at = first;
        for served in 1.. {
            // SAFETY: by invariant 2: its owner waits, or is the caller.
            let node = unsafe { &*at };
            // SAFETY: its owner waits, and we saw its node by [follow], or it is ours. It is answered once.
            unsafe { node.job.get().run() };
            // ORDERING: Acquire, pairs with [follow]: the next node is ready.
            let mut next = node.next.load(Acquire);
            if next.is_null() {
                // STATE: (at, ..) -> (null, ..).
                // ORDERING: Release [leave]: the sections come before those of the next combiner. Relaxed on failure: the
                // successor is read below.
                if self.tail.compare_exchange(at, null_mut(), Release, Relaxed).is_err() {
                    // ORDERING: Acquire, pairs with [follow]: the next node is ready.
                    next = P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null());
                }
            }
            if at != first {
                // SAFETY: it waits. We don't touch it again (invariant 3).
                unsafe { W::answer(&raw const (*at).state, RUN) };
            }
            if next.is_null() {
                return;
            }
            if served >= MOST {
                // SAFETY: it waits for us, or will look before it waits.
                return unsafe { W::answer(&raw const (*next).state, OURS) };
            }
            at = next;
        }
    }
}

impl<P: Platform, W: Patience<P>, const MOST: u32> Sections<P> for DsmSynch<P, W, MOST> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()), waiting: PhantomData }
    }

    unsafe fn with<R: Send>(&self, node: *mut Node<P>, section: impl FnOnce() -> R + Send) -> R {
        let ask = |job| {
            // SAFETY: the caller's duty; others, too, only ever share it.
            let me = unsafe { &*node };
            me.job.set(job);
            // Relaxed, both: nobody else knows the node yet.
            me.next.store(null_mut(), Relaxed);
            me.state.store(WAITING, Relaxed);
            // STATE: (null, ..) -> (me, ..): combiner; or (prev, ..) -> (me, ..).
            // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it. Acquire also
            // pairs with [leave]: earlier sections are over.
            let prev = self.tail.swap(node, AcqRel);
            let mut state = OURS;
            if !prev.is_null() {
                // ORDERING: Release [follow]: our node is ready before it is found.
                // SAFETY: by invariants 2 and 3, its combiner waits for this store before it answers.
                unsafe { (*prev).next.store(node, Release) };
                state = W::wait(&me.state, WAITING);
            }
            if state == OURS {
                // SAFETY: ours, and we are the combiner.
                unsafe { self.combine(node) };
            }
        };
        // SAFETY: `ask` returns after the combiner has run it: this thread, or the one that answered RUN [answer].
        unsafe { carried::<P, R>(section, ask) }
    }
}

impl<P: Platform, W: Patience<P>, const MOST: u32> Delegated<P> for DsmSynch<P, W, MOST> {}
