//! tas: swap 1 into the word: the thread that gets 0 back has the lock.
//!
//! The oldest spin lock; as a baseline in T. E. Anderson, *The Performance of Spin Lock Alternatives for
//! Shared-Memory Multiprocessors*, IEEE TPDS 1(1), 1990, section II ("spin on test-and-set"). Our deviation: a short
//! constant pause between two attempts, because attempts without a pause would only test the memory bus.
//!
//! ```text
//!            lock: swap finds 0
//!        ┌──────────────────────────┐
//!     ┌──┴─┐                      ┌─▼──┐
//!     │ 0  │                      │ 1  │◄─┐ waiters: swap finds 1
//!     └──▲─┘                      └─┬──┴──┘
//!        └──────────────────────────┘
//!               unlock: store 0
//! ```
//!
//! State: (word). lock: (0) -> (1). unlock: (1) -> (0). A failed attempt: (1) -> (1).
//!
//! 1. word = 1 exactly while a thread holds the lock.
//! 2. Only the holder writes 0.
//!
//! Facts: no order; 4 B per lock, 0 B per waiter; nobody sleeps; a waiter may be delayed forever.

use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::{Acquire, Release};
use lockwright_platform::{InPlace, Platform, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "tas",
    kind: Kind::Whole,
    preset_of: None,
    idea: "swap 1 into the word: the thread that gets 0 back has the lock",
    source: "T. E. Anderson, The Performance of Spin Lock Alternatives for Shared-Memory Multiprocessors, IEEE TPDS 1(1), 1990, section II",
    order: "none: any waiter may win, most easily one on the releasing core",
    promise: Promise::Nothing,
    stands_by: false,
    space: "4 B per lock, 0 B per waiter",
    wakes: "none: waiters spin and never sleep",
    delay: "any waiter, without bound; unlock competes with every waiter's swap for the cache line",
    advice: "a baseline for experiments; not for programs, least of all with more threads than CPUs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Tas<P>;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The pause between two attempts, ns.
const PAUSE_NS: u32 = 20;

/// A test-and-set lock.
pub struct Tas<P: Platform> {
    /// Written by threads that take the lock, and by the holder.
    word: P::Word,
}

impl<P: Platform> Tas<P> {
    #[cold]
    fn lock_slow(&self) {
        // STATE: (1) -> (1), until (0) -> (1).
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over.
        while self.word.swap(HELD, Acquire) != FREE {
            P::pause(PAUSE_NS);
        }
    }
}

impl<P: Platform> Sections<P> for Tas<P> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::Word::new(FREE) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Tas<P> {
    #[inline]
    unsafe fn lock(&self, _node: *mut ()) {
        // STATE: (0) -> (1).
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over.
        if self.word.swap(HELD, Acquire) != FREE {
            self.lock_slow();
        }
    }

    #[inline]
    unsafe fn unlock(&self, _node: *mut ()) {
        // STATE: (1) -> (0).
        // ORDERING: Release [release]: the critical section comes before whatever the next holder does.
        self.word.store(FREE, Release);
    }
}

impl<P: Platform> TryLock<P> for Tas<P> {
    #[inline]
    unsafe fn try_lock(&self, _node: *mut ()) -> bool {
        // STATE: (0) -> (1), or (1) -> (1).
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over.
        self.word.swap(HELD, Acquire) == FREE
    }
}

// SAFETY: FREE is 0; one 4-byte word without a destructor.
unsafe impl<P: Platform> InPlace for Tas<P> {}

#[cfg(test)]
mod tests {
    use super::Tas;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Tas<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Tas<Threads>>();
    }
}
