//! ASL over ticket: the reorderable lock on a ticket lock.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, algorithms 1 and 3; `asl` is the same idea on word 0.
//!
//! ```text
//!   big cores ─────────────► ticket
//!   little cores ─ standby ─┘
//! ```
//!
//! Invariants: [`reorderable`](super::reorderable)'s and ticket's.

use super::reorderable::Reorderable;
use crate::catalog::{Entry, Kind};
use crate::spin::ticket;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "asl-ticket",
    kind: Kind::Whole,
    idea: "ticket, and little cores stand by for their window before they ask",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, algorithms 1 and 3",
    order: "arrival among those who have asked; little cores ask after their window",
    space: "as ticket",
    wakes: "nobody sleeps, nobody is woken",
    delay: "a little core, by its window (the epoch's, 100 ms outside epochs); then as ticket",
    advice: "as ticket; asl for programs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Reorderable<ticket::Lock<P>>;

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
