//! cc-synch: a queue of cells. An asker leaves a fresh cell at the tail, and its request in the one before; the first runs
//! the sections of all, and after some of them leaves the rest to the next.
//!
//! P. Fatourou and N. D. Kallimanis, *Revisiting the Combining Synchronization Technique*, PPoPP 2012, algorithm 1 (CC-Synch).
//! Our deviation: cells come from the machine's pool, where the paper's threads keep one each.
//!
//! ```text
//!                                                     tail
//!                                                      ▼
//!     ┌───────────┐ next ┌───────────┐ next ┌───────────┐
//!     │ A's, runs ├─────►│ B's       ├─────►│ nobody's  │   an asker: swaps tail for a fresh cell, writes its request
//!     └───────────┘      └───────────┘      └───────────┘   into the cell that it got, and links it to the fresh one
//! ```
//!
//! State: (tail, next of each cell, its state). ask: (cell, ..) -> (fresh, cell.next = fresh), then wait for RUN or OURS.
//! combine: run; state = RUN; on to next; the cell without a next, or after MOST sections: OURS.
//!
//! 1. tail is a cell without a request. If nobody combines, it is OURS.
//! 2. Exactly one thread combines at a time: the asker whose cell became OURS.
//! 3. A cell belongs to its asker from the swap on; the asker gives it back after it was answered.
//! 4. The combiner reads `next` of a cell before it answers that cell.
//!
//! Facts: first come first served; 8 B and a cell per lock, 128 B per waiter, from a pool; nobody sleeps; a combiner is
//! delayed by MOST sections, a waiter by those before it, and by a combiner that doesn't run.

use super::dsm_synch::MOST;
use super::waiting::{Patience, Spins, Yields};
use super::{Job, carried, give, lay};
use crate::entry::{Entry, Kind, Promise};
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Ptr, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "cc-synch",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "a queue of cells that change hands; the first waiter runs the sections of those behind it",
    source: "P. Fatourou, N. D. Kallimanis, Revisiting the Combining Synchronization Technique, PPoPP 2012, algorithm 1",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "136 B per lock, 128 B per waiter, from a pool",
    wakes: "none: waiters spin and never sleep",
    delay: "the thread that runs the others' sections, by 256 of them; all, by its preemption",
    advice: "many cores, one thread per CPU, short sections; to compare with combiner",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = CcSynch<P, Spins, MOST>;
/// Its variant that yields.
pub type Yielding<P> = CcSynch<P, Yields, MOST>;

const WAITING: u32 = 0;
/// Somebody has run the asker's section.
const RUN: u32 = 1;
/// Its asker is to run its section, and those after it.
const OURS: u32 = 2;

/// A place in the queue.
struct Slip<P: Platform> {
    /// The next cell. Written once, by the asker.
    next: P::Ptr<Slip<P>>,
    /// Written once, by the combiner; OURS from the start in a lock's first cell.
    state: P::Word,
    /// Written by the asker before `next`.
    job: Cell<Job>,
}

impl<P: Platform> Slip<P> {
    /// A cell without a request.
    fn empty(state: u32) -> Self {
        Self {
            next: P::Ptr::new(null_mut()),
            state: P::Word::new(state),
            job: Cell::new(Job::NONE),
        }
    }
}

/// A CC-Synch lock, whose waiters wait as `W` says; a combiner runs `MOST` sections.
pub struct CcSynch<P: Platform, W, const MOST: u32> {
    /// The cell for the next asker.
    tail: P::Ptr<Slip<P>>,
    waiting: PhantomData<fn(W)>,
}

impl<P: Platform, W: Patience<P>, const MOST: u32> CcSynch<P, W, MOST> {
    /// Runs the section in `first`, and those that follow it.
    ///
    /// # Safety
    /// `first` is the caller's, with its request, and OURS.
    unsafe fn combine(&self, first: *mut Slip<P>) {
        let mut at = first;
        for served in 0.. {
            // SAFETY: the first is ours, others wait for an answer (invariant 3); the last is nobody's before it is answered.
            let cell = unsafe { &*at };
            // ORDERING: Acquire, pairs with [follow]: the request is there.
            let next = cell.next.load(Acquire);
            if next.is_null() || served >= MOST {
                // STATE: (.., WAITING) -> (.., OURS).
                // SAFETY: its asker waits, or will look before it waits; we don't touch it again.
                return unsafe { W::answer(&raw const (*at).state, OURS) };
            }
            // SAFETY: its asker waits for us; it is answered once.
            unsafe { cell.job.get().run() };
            if at != first {
                // SAFETY: it waits. We don't touch it again (invariant 4).
                unsafe { W::answer(&raw const (*at).state, RUN) };
            }
            at = next;
        }
    }
}

impl<P: Platform, W: Patience<P>, const MOST: u32> Sections<P> for CcSynch<P, W, MOST> {
    type Node = ();

    fn new() -> Self {
        Self { tail: P::Ptr::new(lay::<P, _>(Slip::empty(OURS))), waiting: PhantomData }
    }

    unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
        let ask = |job| {
            let fresh = lay::<P, _>(Slip::<P>::empty(WAITING));
            // STATE: (cell, ..) -> (fresh, ..).
            // ORDERING: AcqRel [join], pairs with itself: the cell that we get was made before.
            let mine = self.tail.swap(fresh, AcqRel);
            // SAFETY: ours from now on (invariant 3).
            let cell = unsafe { &*mine };
            cell.job.set(job);
            // ORDERING: Release [follow]: the request is there before it is found, and the fresh cell was made.
            cell.next.store(fresh, Release);
            if W::wait(&cell.state, WAITING) == OURS {
                // SAFETY: ours, and OURS.
                unsafe { self.combine(mine) };
            }
            // SAFETY: answered; the combiner doesn't touch it any more (invariant 4).
            unsafe { give::<P, _>(mine) };
        };
        // SAFETY: `ask` returns after the combiner has run it: this thread, or the one that answered RUN [answer].
        unsafe { carried::<P, R>(section, ask) }
    }
}

impl<P: Platform, W: Patience<P>, const MOST: u32> Delegated<P> for CcSynch<P, W, MOST> {}

impl<P: Platform, W, const MOST: u32> Drop for CcSynch<P, W, MOST> {
    fn drop(&mut self) {
        // Relaxed: whoever drops it has synchronized with all askers.
        // SAFETY: nobody asks any more, so the last cell is nobody's.
        unsafe { give::<P, _>(self.tail.load(Relaxed)) };
    }
}
