//! ASL over clh: the reorderable lock on a CLH queue.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, algorithms 1 and 3; `asl` is the same idea on word 0.
//!
//! ```text
//!   big cores ─────────────► clh
//!   little cores ─ standby ─┘
//! ```
//!
//! Invariants: [`reorderable`](super::reorderable)'s and clh's.

use super::reorderable::Reorderable;
use crate::catalog::{Entry, Kind};
use crate::queue::clh;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "asl-clh",
    kind: Kind::Whole,
    idea: "clh, and little cores stand by for their window before they ask",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, algorithms 1 and 3",
    order: "arrival among those who have asked; little cores ask after their window",
    space: "as clh",
    wakes: "nobody sleeps, nobody is woken",
    delay: "a little core, by its window (the epoch's, 100 ms outside epochs); then as clh",
    advice: "as clh; asl for programs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Reorderable<clh::Lock<P>>;

#[cfg(test)]
mod tests {
    use super::Lock;
    use crate::testing::{Threads, counts_right, lives_in_zeroed_memory};

    #[test]
    fn zeroed_memory_is_an_unlocked_lock() {
        lives_in_zeroed_memory::<Lock<Threads>>();
    }

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Lock<Threads>>();
    }
}
