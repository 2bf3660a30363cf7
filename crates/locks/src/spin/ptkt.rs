//! ptkt: a ticket lock whose "now serving" is spread over slots, so that few waiters watch the same cache line.
//!
//! D. Dice, *Brief Announcement: A Partitioned Ticket Lock*, SPAA 2011. Our deviations: the holder's number lies
//! in its node, not in the lock (the paper has both variants); 8 slots; a try_lock, which takes a ticket only if it is the one
//! being served.
//!
//! ```text
//!     next = 45      slots, number modulo 8, each in a cache line of its own
//!                    ┌────┬────┬────┬────┬────┬────┬────┬────┐
//!                    │ 40 │ 41 │ 34 │ 35 │ 36 │ 37 │ 38 │ 39 │    41 holds; 42 to 44 wait at slots 2 to 4
//!                    └────┴────┴────┴────┴────┴────┴────┴────┘
//!       unlock by 41: slot 2 = 42
//! ```
//!
//! State: (next, the largest number in a slot), both wrap. lock: (n, s) -> (n+1, s), then wait until slot n mod 8 is n.
//! unlock: (n, s) -> (n, s+1), in slot s+1 mod 8.
//!
//! 1. Free exactly while slot next mod 8 = next; fewer than 2^32 hold or wait.
//! 2. Each number is drawn once per round, and written to its slot once, so at most one thread finds its own.
//! 3. Only the holder writes to slots.
//!
//! Facts: first come first served; nine lines of 128 B per lock, 4 B per waiter; nobody sleeps; a hand-over disturbs only every
//! eighth waiter; each waiter is delayed by those before it, and by each of them that is not running.

use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::array;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "ptkt",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a ticket lock whose waiters are spread over slots, so that few spin on the same cache line",
    source: "D. Dice, Brief Announcement: A Partitioned Ticket Lock, SPAA 2011",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "1.2 KB per lock (under the preload, only while in use), 4 B per waiter",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it",
    advice: "to compare with ticket and mcs: no queue, and a hand-over disturbs few waiters",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Ptkt<P>;

/// The number of slots: a power of two, so that numbers may wrap.
const SLOTS: usize = 8;

/// A holder's number. Touched by the holder only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticket(u32);

/// A partitioned ticket lock.
pub struct Ptkt<P: Platform> {
    /// The next number to be drawn. Written by arriving threads.
    next: Apart<P, P::Word>,
    /// The last number that was called in each slot. Written by the holder.
    slots: [Apart<P, P::Word>; SLOTS],
}

impl<P: Platform> Ptkt<P> {
    /// A free lock whose next number is `number`.
    fn starting_at(number: u32) -> Self {
        let at = number as usize % SLOTS;
        let word = |slot| P::Word::new(if slot == at { number } else { number.wrapping_sub(1) });
        Self {
            next: Apart::new(P::Word::new(number)),
            slots: array::from_fn(|slot| Apart::new(word(slot))),
        }
    }

    #[inline]
    fn slot(&self, number: u32) -> &P::Word {
        &self.slots[number as usize % SLOTS]
    }
}

impl<P: Platform> Sections<P> for Ptkt<P> {
    type Node = Ticket;

    fn new() -> Self {
        Self::starting_at(0)
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Ptkt<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Ticket) {
        // STATE: (n, s) -> (n+1, s).
        // Relaxed: a number carries no message; the slot does.
        let me = self.next.fetch_add(1, Relaxed);
        // ORDERING: Acquire, pairs with [call]: every critical section before ours is over.
        P::spin_until(self.slot(me), Acquire, |called| called == me);
        // SAFETY: the caller's, and no other thread looks at it.
        unsafe { node.write(Ticket(me)) };
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Ticket) {
        // SAFETY: the caller locked with this node.
        let next = unsafe { node.read() }.0.wrapping_add(1);
        // STATE: (n, s) -> (n, s+1).
        // ORDERING: Release [call]: the critical section comes before whatever the next holder does.
        self.slot(next).store(next, Release);
    }
}

impl<P: Platform> TryLock<P> for Ptkt<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Ticket) -> bool {
        // Relaxed: checked below.
        let next = self.next.load(Relaxed);
        // ORDERING: Acquire, pairs with [call]: every critical section before `next` is over.
        if self.slot(next).load(Acquire) != next {
            return false;
        }
        // STATE: (s, s) -> (s+1, s), else unchanged. If we get the number, the slot can't have moved on: nobody else
        // could call the number after it.
        // Relaxed: as in `lock`.
        let got = self.next.compare_exchange(next, next.wrapping_add(1), Relaxed, Relaxed).is_ok();
        if got {
            // SAFETY: the caller's, and no other thread looks at it.
            unsafe { node.write(Ticket(next)) };
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use super::Ptkt;
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::{RawLock, TryLock};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Ptkt<Threads>>();
    }

    #[test]
    fn the_numbers_wrap_around() {
        let lock = Ptkt::<Threads>::starting_at(u32::MAX - 9);
        let (mut mine, mut other) = Default::default();
        for _ in 0..10 {
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
}
