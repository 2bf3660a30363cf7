//! ttas: look before you swap, and back off longer after each lost race.
//!
//! L. Rudolph and Z. Segall, *Dynamic Decentralized Cache Schemes for MIMD Parallel Processors*, ISCA 1984 (test before
//! test-and-set); exponential back-off as in J. M. Mellor-Crummey and M. L. Scott, *Algorithms for Scalable
//! Synchronization on Shared-Memory Multiprocessors*, ACM TOCS 9(1), 1991, figure 1. Our deviations: the back-off comes
//! after a lost race, not after each look (looking costs nothing while the cache line stays shared), and it doubles up to a bound.
//!
//! ```text
//!            lock: swap finds 0
//!        ┌──────────────────────────┐
//!     ┌──┴─┐                      ┌─▼──┐
//!     │ 0  │                      │ 1  │   waiters: look until 0, swap; lost the race: pause 2^n, look again
//!     └──▲─┘                      └─┬──┘
//!        └──────────────────────────┘
//!               unlock: store 0
//! ```
//!
//! State: (word). lock: (0) -> (1). unlock: (1) -> (0). A lost race: (1) -> (1).
//!
//! 1. word = 1 exactly while a thread holds the lock.
//! 2. Only the holder writes 0.
//! 3. A waiter writes only after it has read 0.
//!
//! Facts: no order; 4 B per lock, 0 B per waiter; nobody sleeps; a waiter may be delayed forever, by up to the longest
//! pause after each release.

use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "ttas",
    kind: Kind::Whole,
    preset_of: None,
    idea: "look before you swap, and back off longer after each lost race",
    source: "L. Rudolph, Z. Segall, Dynamic Decentralized Cache Schemes for MIMD Parallel Processors, ISCA 1984; back-off: J. M. Mellor-Crummey, M. L. Scott, Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors, ACM TOCS 9(1), 1991, figure 1",
    order: "none: any waiter may win, most easily the one that backed off least",
    promise: Promise::Nothing,
    stands_by: false,
    space: "4 B per lock, 0 B per waiter",
    wakes: "none: waiters spin and never sleep",
    delay: "any waiter, without bound; the back-off starts at 50 ns and doubles after each lost race, up to 3.2 µs",
    advice: "short critical sections, and no more threads than CPUs; unfair under load",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Ttas<P>;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The pause after the first lost race, ns.
const PAUSE_NS_MIN: u32 = 50;
/// The longest pause, after many lost races, ns.
const PAUSE_NS_MAX: u32 = 3_200;

/// A test-and-test-and-set lock with exponential back-off.
pub struct Ttas<P: Platform> {
    /// Written by threads that take the lock, and by the holder.
    word: P::Word,
}

impl<P: Platform> Ttas<P> {
    #[cold]
    fn lock_slow(&self) {
        let mut pause_ns = PAUSE_NS_MIN;
        loop {
            // Relaxed: only the swap decides.
            P::spin_until(&self.word, Relaxed, |word| word == FREE);
            // STATE: (0) -> (1), or (1) -> (1): somebody was faster.
            // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over.
            if self.word.swap(HELD, Acquire) == FREE {
                return;
            }
            P::pause(pause_ns);
            pause_ns = (2 * pause_ns).min(PAUSE_NS_MAX);
        }
    }
}

impl<P: Platform> Sections<P> for Ttas<P> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::Word::new(FREE) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Ttas<P> {
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

impl<P: Platform> TryLock<P> for Ttas<P> {
    #[inline]
    unsafe fn try_lock(&self, _node: *mut ()) -> bool {
        // Relaxed: only a hint that saves a write to a held lock.
        // STATE: (0) -> (1), or (1) -> (1).
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over.
        self.word.load(Relaxed) == FREE && self.word.swap(HELD, Acquire) == FREE
    }
}

// SAFETY: FREE is 0; one 4-byte word without a destructor.
unsafe impl<P: Platform> InPlace for Ttas<P> {}

#[cfg(test)]
mod tests {
    use super::Ttas;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Ttas<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Ttas<Threads>>();
    }
}
