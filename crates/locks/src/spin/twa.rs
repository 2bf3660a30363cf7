//! twa: a ticket lock whose next in line alone watches "now serving"; the others wait at an array.
//!
//! D. Dice and A. Kogan, *TWA: Ticket Locks Augmented with a Waiting Array*, Euro-Par 2019, with its long-term
//! threshold of 1.
//!
//! ```text
//!     next = 45     serving = 41 ◄── 42 watches: short-term
//!     array, number modulo 8, each slot in a cache line of its own
//!     ┌────┬────┬────┬────┬────┬────┬────┬────┐
//!     │ 40 │ 41 │ 42 │ 35 │ 36 │ 37 │ 38 │ 39 │    43 and 44 wait at slots 3 and 4: long-term
//!     └────┴────┴────┴────┴────┴────┴────┴────┘
//!       unlock by 41: serving = 42; 42, which has it, writes 43 to slot 3, and 43 goes to watch serving
//! ```
//!
//! State: (next, serving), and a hint: the array. lock: (n, s) -> (n+1, s); if n - s > 1, wait until slot n mod 8 is n; then wait
//! for s = n, and write n+1 to slot n+1 mod 8. unlock: (n, s) -> (n, s+1).
//!
//! 1. Free exactly while next = serving; fewer than 2^32 hold or wait.
//! 2. Each number is drawn once per round, so at most one thread finds its own served.
//! 3. Only the holder writes to serving and to the array; it writes the number after its own, once.
//! 4. Once n is in the array, serving is at least n - 1: the long-term waiter with number n has at most one thread before it.
//!
//! Our deviations. The array belongs to the lock. (The paper's is shared by all locks of a program, so its slots are counters, and
//! a waiter that sees a change has to check whether it was meant.) And the new holder tells the waiter after it. In the paper the old
//! holder does that, after its release; but then an unlock would touch the lock when another thread may already have destroyed it.
//!
//! Facts: first come first served; ten lines of 128 B per lock, 0 B per waiter; nobody sleeps; each waiter is delayed by those before
//! it, and by each of them that is not running.

use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::array;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "twa",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a ticket lock on which only the next in line spins; the others wait at an array",
    source: "D. Dice, A. Kogan, TWA: Ticket Locks Augmented with a Waiting Array, Euro-Par 2019",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "1.4 KB per lock (under the preload, only while in use), 0 B per waiter",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it",
    advice: "to compare with ticket: as fast with few waiters, and it scales like a queue",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Twa<P>;

/// The number of slots: a power of two, so that numbers may wrap.
const SLOTS: usize = 8;

/// A ticket lock with a waiting array.
pub struct Twa<P: Platform> {
    /// The next number to be drawn. Written by arriving threads.
    next: Apart<P, P::Word>,
    /// The number that may hold the lock. Written by the holder.
    serving: Apart<P, P::Word>,
    /// In each slot, the last number whose turn has come near. Written by the holder.
    array: [Apart<P, P::Word>; SLOTS],
}

impl<P: Platform> Twa<P> {
    /// A free lock whose next number is `number`.
    fn starting_at(number: u32) -> Self {
        let word = || Apart::new(P::Word::new(number));
        Self { next: word(), serving: word(), array: array::from_fn(|_| word()) }
    }

    #[inline]
    fn slot(&self, number: u32) -> &P::Word {
        &self.array[number as usize % SLOTS]
    }

    /// The new holder, with number `me`, tells the waiter with the next number to watch `serving`.
    #[inline]
    fn tell(&self, me: u32) {
        let after = me.wrapping_add(1);
        // Relaxed: it only says "look at serving".
        self.slot(after).store(after, Relaxed);
    }

    #[cold]
    fn wait(&self, me: u32, serving: u32) {
        if me.wrapping_sub(serving) > 1 {
            // Relaxed: as in `tell`.
            P::spin_until(self.slot(me), Relaxed, |near| near == me);
        }
        // ORDERING: Acquire, pairs with [call]: every critical section before ours is over.
        P::spin_until(&self.serving, Acquire, |serving| serving == me);
    }
}

impl<P: Platform> Sections<P> for Twa<P> {
    type Node = ();

    fn new() -> Self {
        Self::starting_at(0)
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Twa<P> {
    #[inline]
    unsafe fn lock(&self, _node: *mut ()) {
        // STATE: (n, s) -> (n+1, s).
        // Relaxed: a number carries no message; `serving` does.
        let me = self.next.fetch_add(1, Relaxed);
        // ORDERING: Acquire, pairs with [call]: every critical section before ours is over.
        let serving = self.serving.load(Acquire);
        if serving != me {
            self.wait(me, serving);
        }
        self.tell(me);
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

impl<P: Platform> TryLock<P> for Twa<P> {
    #[inline]
    unsafe fn try_lock(&self, _node: *mut ()) -> bool {
        // ORDERING: Acquire, pairs with [call]: every critical section before `serving` is over.
        let serving = self.serving.load(Acquire);
        // STATE: (s, s) -> (s+1, s), else unchanged. If we get the number, `serving` can't have moved on: nobody
        // else could call the number after it.
        // Relaxed: as in `lock`.
        let next = serving.wrapping_add(1);
        let got = self.next.compare_exchange(serving, next, Relaxed, Relaxed).is_ok();
        if got {
            self.tell(serving);
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use super::Twa;
    use crate::testing::{Threads, counts_right};
    use core::ptr::null_mut;
    use lockwright_platform::{RawLock, TryLock};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Twa<Threads>>();
    }

    #[test]
    fn the_numbers_wrap_around() {
        let lock = Twa::<Threads>::starting_at(u32::MAX - 9);
        for _ in 0..10 {
            // SAFETY: the lock uses no node; one thread.
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
