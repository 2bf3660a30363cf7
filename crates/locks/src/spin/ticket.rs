//! ticket: draw a number, wait until it is called.
//!
//! D. P. Reed and R. K. Kanodia, *Synchronization with Eventcounts and Sequencers*, CACM 22(2), 1979; as a spin lock:
//! J. M. Mellor-Crummey and M. L. Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*,
//! ACM TOCS 9(1), 1991, figure 2. Our deviations: no proportional back-off (how to wait is up to the machine), and
//! a try_lock, which takes a ticket only if it is the one being served.
//!
//! ```text
//!     serving                next
//!        │                    │
//!     ┌──▼─┬────┬────┬────┬───▼┐
//!     │ 41 │ 42 │ 43 │ 44 │ 45 │      41 holds, 42 to 44 wait, 45 is the next to be drawn
//!     └────┴────┴────┴────┴────┘
//! ```
//!
//! State: (next, serving), both wrap. lock: (n, s) -> (n+1, s), then wait for s = n. unlock: (n, s) -> (n, s+1).
//!
//! 1. Free exactly while next = serving; next - serving threads hold or wait, fewer than 2^32.
//! 2. Each number is drawn once per round, so at most one thread finds its own served.
//! 3. Only the holder writes serving.
//!
//! Facts: first come first served; 8 B per lock, 0 B per waiter; nobody sleeps; each waiter is delayed by those before it,
//! and by each of them that is not running.

use crate::entry::{Entry, Kind, Promise};
use crate::numa::cohort::Local;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Probe, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "ticket",
    kind: Kind::Whole,
    preset_of: None,
    idea: "draw a number, wait until it is called",
    source: "J. M. Mellor-Crummey, M. L. Scott, Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors, ACM TOCS 9(1), 1991, figure 2",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "8 B per lock, 0 B per waiter",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it",
    advice: "few threads, each on its own CPU; collapses when threads outnumber CPUs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Ticket<P>;

/// A ticket lock.
pub struct Ticket<P: Platform> {
    /// The next number to be drawn. Written by arriving threads.
    next: P::Word,
    /// The number that may hold the lock. Written by the holder.
    serving: P::Word,
}

impl<P: Platform> Ticket<P> {
    /// The first half of `lock`: draws a number.
    #[inline]
    pub(crate) fn draw(&self) -> u32 {
        // STATE: (n, s) -> (n+1, s).
        // Relaxed: a number carries no message; `serving` does.
        self.next.fetch_add(1, Relaxed)
    }

    /// The second half: waits until `number`, which the caller has drawn, is called.
    #[inline]
    pub(crate) fn wait(&self, number: u32) {
        // ORDERING: Acquire, pairs with [call]: every critical section before ours is over.
        P::spin_until(&self.serving, Acquire, |serving| serving == number);
    }

    /// How many threads hold or wait. A hint.
    #[inline]
    pub(crate) fn users(&self) -> u32 {
        let serving = self.serving.load(Relaxed);
        // `serving` may be the newer of the two.
        self.next.load(Relaxed).wrapping_sub(serving).cast_signed().max(0).cast_unsigned()
    }

    /// Waits until fewer than `most` of the threads that hold or wait now are left.
    pub(crate) fn wait_for_room(&self, most: u32) {
        // Relaxed, both: hints.
        let enough = self.next.load(Relaxed).wrapping_add(1).wrapping_sub(most);
        let is_enough = |serving: u32| serving.wrapping_sub(enough).cast_signed() >= 0;
        P::spin_until(&self.serving, Relaxed, is_enough);
    }
}

impl<P: Platform> Sections<P> for Ticket<P> {
    type Node = ();

    fn new() -> Self {
        Self { next: P::Word::new(0), serving: P::Word::new(0) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Ticket<P> {
    #[inline]
    unsafe fn lock(&self, _node: *mut ()) {
        let me = self.draw();
        self.wait(me);
    }

    #[inline]
    unsafe fn unlock(&self, _node: *mut ()) {
        // Relaxed: only we write it (invariant 3).
        let me = self.serving.load(Relaxed);
        // STATE: (n, s) -> (n, s+1).
        // ORDERING: Release [call]: the critical section comes before whatever the next holder does.
        self.serving.store(me.wrapping_add(1), Release);
    }
}

impl<P: Platform> TryLock<P> for Ticket<P> {
    #[inline]
    unsafe fn try_lock(&self, _node: *mut ()) -> bool {
        // ORDERING: Acquire, pairs with [call]: every critical section before `serving` is over.
        let serving = self.serving.load(Acquire);
        // STATE: (s, s) -> (s+1, s), else unchanged. If we get the number, `serving` can't have moved on: nobody
        // else could call the number after it.
        // Relaxed: as in `lock`.
        self.next.compare_exchange(serving, serving.wrapping_add(1), Relaxed, Relaxed).is_ok()
    }
}

impl<P: Platform> Probe<P> for Ticket<P> {
    #[inline]
    fn is_free(&self) -> bool {
        // Relaxed, both: a hint. The two are read at different moments, so it may wrongly say "free".
        self.next.load(Relaxed) == self.serving.load(Relaxed)
    }
}

impl<P: Platform> Local<P> for Ticket<P> {
    #[inline]
    fn has_waiters(&self) -> bool {
        // Relaxed: a drawn number stays drawn, so an old value does no harm.
        self.next.load(Relaxed).wrapping_sub(self.served()) > 1
    }

    #[inline]
    fn served(&self) -> u32 {
        self.serving.load(Relaxed) // only the holder writes it (invariant 3)
    }
}

// SAFETY: zero is a free lock (invariant 1); two 4-byte words without a destructor.
unsafe impl<P: Platform> InPlace for Ticket<P> {}

#[cfg(test)]
mod tests {
    use super::Ticket;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};
    use core::ptr::null_mut;
    use lockwright_platform::{RawLock, TryLock, Word};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Ticket<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Ticket<Threads>>();
    }

    #[test]
    fn the_numbers_wrap_around() {
        let lock = Ticket::<Threads> { next: Word::new(u32::MAX), serving: Word::new(u32::MAX) };
        for _ in 0..3 {
            // SAFETY: a ticket lock uses no node; one thread.
            unsafe {
                lock.lock(null_mut());
                assert!(!lock.try_lock(null_mut()));
                lock.unlock(null_mut());
                assert!(lock.try_lock(null_mut()));
                lock.unlock(null_mut());
            }
        }
    }
}
