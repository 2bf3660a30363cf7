//! hapax: each acquisition has a number that nobody uses again; a waiter waits until its predecessor's number has departed.
//!
//! D. Dice and A. Kogan, *Hapax Locks: Scalable Value-Based Mutual Exclusion*, PPoPP 2026 (arXiv 2511.14608, 2025): the variant with
//! visible waiters, listing 5. No pointer to a waiter leaves its thread: what threads exchange are numbers.
//!
//! ```text
//!     arrive = C                                          the waiting array, one for all locks
//!     depart = the last number that left                  ┌───┬───┬───┬───┐
//!                                                         │ A │   │   │ B │     at a place that the number tells
//!     A (holds) ◄─ B waits for A ◄─ C waits for B         └───┴───┴───┴───┘
//!       unlock by A: takes A out of the array, and B holds; if A isn't there, depart = A
//! ```
//!
//! State: (arrive, depart, array). lock: (p, p, s) -> (me, p, s), and held; (p, d, s) -> (me, d, s), then (_, d, s) -> (_, d, s + p) and
//! wait until p is not in the array, or, if its place is taken, until depart = p. unlock: (a, d, s + me) -> (a, d, s), and the next holds;
//! or (a, d, s) -> (a, me, s).
//!
//! 1. No two acquisitions, of any locks, have the same number. Free exactly while arrive = depart (null in a new lock).
//! 2. arrive is the number of the last acquisition. So each number has at most one successor, which alone waits for it, and shows it.
//! 3. Only the acquisition whose number it is writes it to depart, when its section is over. The number leaves the array then, or before:
//!    its owner takes it out when the section is over, its successor when it has seen it in depart.
//! 4. depart need not be the last number that left: a hand-over by the array leaves it as it was. It is that number if nobody waits.
//! 5. A thread that has departed touches the array only: the next holder may destroy the lock.
//!
//! Our deviations. A thread's numbers come from the machine (`Unique`), which has no thread-locals on Linux, and takes one from its
//! CPU's counter. The array is the table in which readers of biased locks show themselves (`ReaderTable`), one place in each of its cache
//! lines. The paper's is its own, with 4096 places. Our numbers are odd, and no lock's address is. A number's place does
//! not depend on the lock's address (the paper adds it), so that simulations don't. Orderings take the place of the paper's fence.
//! And a try_lock arrives only if the last number has departed.
//!
//! Facts: first come first served; 16 B per lock; nobody sleeps; lock and unlock take a bounded number of steps, but for the wait; an
//! unlock disturbs one waiter, and those whose place was taken; each waiter is delayed by those before it, and by each of them that is not
//! running.

use crate::entry::{Entry, Kind, Promise};
use core::ptr::{null_mut, without_provenance_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release, SeqCst};
use lockwright_platform::{BLOCK, Ptr, RawLock, ReaderTable, Sections, TryLock, Unique};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "hapax",
    kind: Kind::Whole,
    preset_of: None,
    idea: "each acquisition has a number that is never used again; a waiter waits until its predecessor's has departed",
    source: "D. Dice, A. Kogan, Hapax Locks: Scalable Value-Based Mutual Exclusion, PPoPP 2026, listing 5",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "16 B per lock (under the preload, a line of 128 B while in use), 8 B per waiter; a table of 32 KB for all locks",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it",
    advice: "to compare with mcs: no queue nodes, and unlock never waits for a successor",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Hapax<P>;

/// A number, as a word of 64 bits holds it: odd. Null is no acquisition's.
type Number = *mut u8;

/// An acquisition's number. Touched by its owner alone.
#[derive(Debug)]
pub struct Episode(Number);

impl Default for Episode {
    fn default() -> Self {
        Self(null_mut())
    }
}

// SAFETY: a number, not a pointer.
unsafe impl Send for Episode {}

/// A hapax lock.
pub struct Hapax<P: Unique + ReaderTable> {
    /// The last number that has come. Written by arriving threads.
    arrive: P::Ptr<u8>,
    /// A number that has left. Written by holders.
    depart: P::Ptr<u8>,
}

impl<P: Unique + ReaderTable> Hapax<P> {
    /// A number for an acquisition.
    #[inline]
    fn draw() -> Number {
        const { assert!(usize::BITS == 64, "fewer numbers would be used twice") }
        without_provenance_mut(P::unique() << 1 | 1)
    }

    /// Looks at a number's place in the array; `None`: there is no array.
    #[inline]
    fn place<R>(number: Number, look: impl FnOnce(&P::Ptr<u8>) -> R) -> Option<R> {
        let block = number.addr() / (2 * BLOCK);
        P::shown(block % P::ROWS.max(1) * P::ROW, look)
    }

    /// Takes `me`, whose section is over, out of the array, if a successor waits there.
    #[inline]
    fn hand_over(place: &P::Ptr<u8>, me: Number) -> bool {
        // STATE: (a, d, s + me) -> (a, d, s), else unchanged.
        // ORDERING: Release [hand over]: the critical section comes before whatever the next holder does.
        // Relaxed on failure: nobody was there, and that is no news.
        place.compare_exchange(me, null_mut(), Release, Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self, before: Number) {
        let by_array = |place: &P::Ptr<u8>| {
            // STATE: (_, d, s) -> (_, d, s + before).
            // ORDERING: SeqCst [show], with [departed?], [depart] and [shown?]: either we see that it has departed, or its owner sees us.
            // Acquire, pairs with [hand over] and with readers' [take back]: who waits for them comes after them, though it sees our write.
            // EXPLORED: the models have a fence between a write and a look, for each of the two, and one is enough.
            if place.compare_exchange(null_mut(), before, SeqCst, Relaxed).is_err() {
                return false; // taken
            }
            // ORDERING: SeqCst [departed?], as at [show]. Acquire, pairs with [depart]: the last critical section is over.
            // EXPLORED: as there.
            if self.depart.load(SeqCst) == before {
                // STATE: (_, before, s + before) -> (_, before, s). Its owner may have done that.
                // Relaxed, both: nobody waits for this place.
                let _ = place.compare_exchange(before, null_mut(), Relaxed, Relaxed);
            } else {
                // ORDERING: Acquire, pairs with [hand over]: the last critical section is over. Whoever has written here since then has
                // exchanged, or acquired first.
                P::spin_until_ptr(place, Acquire, |shown| shown != before);
            }
            true
        };
        if Self::place(before, by_array) != Some(true) {
            // ORDERING: Acquire, pairs with [depart]: the last critical section is over.
            P::spin_until_ptr(&self.depart, Acquire, |departed| departed == before);
        }
    }
}

impl<P: Unique + ReaderTable> Sections<P> for Hapax<P> {
    type Node = Episode;

    fn new() -> Self {
        Self { arrive: P::Ptr::new(null_mut()), depart: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Unique + ReaderTable> RawLock<P> for Hapax<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Episode) {
        let me = Self::draw();
        // STATE: (p, d, s) -> (me, d, s).
        // Relaxed: a number carries no message; its departure does.
        let before = self.arrive.swap(me, Relaxed);
        debug_assert!(before != me, "invariant 1");
        // ORDERING: Acquire, pairs with [depart]: the last critical section is over.
        if self.depart.load(Acquire) != before {
            self.wait(before);
        }
        // SAFETY: the caller's, and no other thread looks at it.
        unsafe { node.write(Episode(me)) };
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Episode) {
        // SAFETY: the caller locked with this node, and no other thread looks at it.
        let me = unsafe { (*node).0 };
        if Self::place(me, |place| Self::hand_over(place, me)) == Some(true) {
            return;
        }
        // STATE: (a, d, s) -> (a, me, s).
        // ORDERING: SeqCst [depart], as at [show]. Release: the critical section comes before whatever the next holder does.
        // EXPLORED: as there.
        self.depart.store(me, SeqCst);
        // From here on the lock may be gone (invariant 5).
        Self::place(me, |place| {
            // ORDERING: SeqCst [shown?], as at [show]. EXPLORED: as there.
            place.load(SeqCst) == me && Self::hand_over(place, me)
        });
    }
}

impl<P: Unique + ReaderTable> TryLock<P> for Hapax<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Episode) -> bool {
        // ORDERING: Acquire, pairs with [depart]: every critical section up to that number's is over.
        let departed = self.depart.load(Acquire);
        // Relaxed: saves drawing a number; the exchange decides.
        if self.arrive.load(Relaxed) != departed {
            return false;
        }
        let me = Self::draw();
        // STATE: (d, d, s) -> (me, d, s), else unchanged. If nobody came after that number, it was the last one (invariant 1).
        // Relaxed, both: as in `lock`.
        let got = self.arrive.compare_exchange(departed, me, Relaxed, Relaxed).is_ok();
        if got {
            // SAFETY: the caller's, and no other thread looks at it.
            unsafe { node.write(Episode(me)) };
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use super::Hapax;
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::{BLOCK, RawLock, Sections, TryLock, numbered};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Hapax<Threads>>();
    }

    #[test]
    fn it_is_free_when_the_last_number_has_departed() {
        let lock = Hapax::<Threads>::new();
        let (mut mine, mut other) = Default::default();
        for _ in 0..3 {
            // SAFETY: the nodes outlive their use; one thread.
            unsafe {
                lock.lock(&mut mine);
                assert!(!lock.try_lock(&mut other));
                lock.unlock(&mut mine);
                assert!(lock.try_lock(&mut other));
                lock.unlock(&mut other);
            }
        }
    }

    #[test]
    fn sources_have_blocks_by_turns() {
        let first = |source| numbered(source, 3, 0);
        assert_eq!([0, 1, 2].map(first), [0, BLOCK, 2 * BLOCK]);
        assert_eq!(numbered(1, 3, BLOCK - 1), 2 * BLOCK - 1);
        assert_eq!(numbered(1, 3, BLOCK), 4 * BLOCK);
    }
}
