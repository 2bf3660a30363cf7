//! Cal: waiters are served in the order that makes all of them suffer the same slowdown.
//!
//! Nie, Liu, Wang & Niu, *Core-Aware Lock for big.LITTLE Multicore Architecture*, Applied Sciences 14(15), 2024, section 3. A thread's slowdown is
//! the time from its request to its release, to that without any others. In first come first served order everybody waits equally long, so a big
//! core, which is done sooner, is slowed down more. Here the one that has waited longest *in proportion to its own section* is next (rows C01
//! to C13):
//!
//! ```text
//!   line   head ◄─ b1 ◄─ l1 ◄─ b2 ◄─ b3 ◄─ l2          the head chooses who follows it, while it waits for the word
//!   1      of the first WINDOW waiters of each class, the one with the largest slowdown:         b2, l1
//!   2      of those, the one with the larger PW = (waited + the other's section) / own section:  b2 goes past b1 and l1
//! ```
//!
//! How long sections are is measured (front/hold.rs). Until then all count as equally long.
//!
//! Our deviations. The paper has a queue for each class over a ticket lock; waiters here stand in one line, and a window of it is looked at. It
//! sorts each queue by trying every position for a newcomer, so that the smallest slowdown to the largest of the queue is as large as it can be; here
//! the largest slowdown comes first, which is the same choice for the place at the front. It measures sections in a warm-up
//! phase, for each place in the code; ours go on being measured, for each lock. No arrival overtakes the line (the paper's `no_steal`),
//! except in a crowd, as in fifo.rs.
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. A waiter is passed over `bypass` times at most, and then is next.
//! 2. Between two headships at most `bypass` arrivals overtake the head, and none unless the line is crowded.

use super::{Arrived, Note, Rule, Tuning, View, fifo, tuning};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::{Class, Platform};

/// A waiter may be passed over this often, by default.
const BYPASS: u32 = 64;

/// How many waiters of a class are looked at (the paper's sliding window; its released code has 4).
const WINDOW: usize = 4;

/// Classes that are told apart; the slowest ones count as one.
const CLASSES: usize = 3;

/// A section whose length is not known yet counts as this long, ns.
const UNKNOWN_NS: u64 = 1_000;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "cal",
    kind: Kind::Front,
    preset_of: None,
    idea: "the waiter that has waited longest in proportion to its own section is next: equal slowdown on all cores",
    source: "Nie, Liu, Wang & Niu, Core-Aware Lock for big.LITTLE Multicore Architecture, Applied Sciences 2024, section 3",
    order: "by slowdown, among the first waiters of each class of cores",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beside the mutex; 128 bytes per waiter, from a pool; 32 KiB a process for what is measured",
    wakes: "a waiter that sleeps is woken by unlock, not by the acquirer",
    delay: "a waiter waits for those before it, and is passed over `bypass` times at most",
    advice: "machines with unequal cores, where no thread may suffer more than the others",
    options: &[tuning::SPIN, tuning::BYPASS.or(BYPASS)],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Platform> Rule<P> for Lock {
    const AHEAD: usize = 2 * WINDOW + 1;

    const MEASURES: bool = true;

    fn grants(_: &Tuning) -> bool {
        true
    }

    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BYPASS, ..<fifo::Lock as Rule<P>>::defaults(tuning) }
    }

    fn arrive(lock: &View<'_, P>) -> Arrived {
        match <fifo::Lock as Rule<P>>::arrive(lock) {
            Arrived::Joins(_) => {
                let class = P::place().class;
                Arrived::Joins(Note { class, asked_ns: P::now(), own: lock.usual_hold_ns(class) })
            }
            took => took,
        }
    }

    fn release(lock: &View<'_, P>) {
        lock.end_of_hold();
    }

    /// Sections of cores of one class count as equally long: the first of each class will do.
    fn is_enough(waiters: &[Note]) -> bool {
        waiters.iter().any(|note| note.class != waiters[0].class)
    }

    fn next(_: &View<'_, P>, waiters: &[Note]) -> usize {
        next(P::now(), waiters)
    }
}

/// A waiter that may be next.
#[derive(Clone, Copy)]
struct Candidate {
    place: usize,
    waited: u64,
    own: u64,
}

impl Candidate {
    /// Is (waited + `other`) to its own section larger here than there? Equal: no.
    fn exceeds(self, other: u64, that: Self, others: u64) -> bool {
        (self.waited + other) * that.own > (that.waited + others) * self.own
    }
}

/// Who is next, by its place.
fn next(now: u64, waiters: &[Note]) -> usize {
    let mut first: [Option<Candidate>; CLASSES] = [None; CLASSES];
    let mut seen = [0; CLASSES];
    for (place, note) in waiters.iter().enumerate() {
        let Class(class) = note.class;
        let class = usize::from(class).min(CLASSES - 1);
        seen[class] += 1;
        if seen[class] > WINDOW {
            continue;
        }
        let own = if note.own == 0 { UNKNOWN_NS } else { note.own.into() };
        let this = Candidate { place, waited: now.saturating_sub(note.asked_ns), own };
        // The slowdown is 1 + waited / own.
        if first[class].is_none_or(|best| this.exceeds(0, best, 0)) {
            first[class] = Some(this);
        }
    }
    let mut chosen: Option<Candidate> = None;
    for this in first.into_iter().flatten() {
        if chosen.is_none_or(|best| this.exceeds(best.own, best, this.own)) {
            chosen = Some(this);
        }
    }
    chosen.map_or(0, |chosen| chosen.place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(class: u8, asked_ns: u64, own: u32) -> Note {
        Note { class: Class(class), asked_ns, own }
    }

    #[test]
    fn equal_sections_are_served_by_arrival() {
        let waiters = [note(0, 100, 500), note(1, 200, 500), note(0, 300, 500)];
        assert_eq!(next(1_000, &waiters), 0);
        assert_eq!(next(1_000, &waiters[1..]), 0);
    }

    #[test]
    fn a_shorter_section_comes_first_after_an_equal_wait() {
        assert_eq!(next(1_000, &[note(1, 0, 800), note(0, 0, 400)]), 1);
        assert_eq!(next(1_000, &[note(0, 0, 800), note(0, 0, 400)]), 1);
    }

    #[test]
    fn a_longer_wait_makes_up_for_a_longer_section() {
        // PW: (3000 + 400) / 800 = 4.25 to (1000 + 800) / 400 = 4.5, and then (3400 + 400) / 800 to the same.
        assert_eq!(next(3_000, &[note(1, 0, 800), note(0, 2_000, 400)]), 1);
        assert_eq!(next(3_400, &[note(1, 0, 800), note(0, 2_400, 400)]), 0);
    }

    #[test]
    fn only_the_first_of_each_class_are_looked_at() {
        let mut waiters = [note(0, 0, 800); WINDOW + 1];
        waiters[WINDOW].own = 1;
        assert_eq!(next(1_000, &waiters), 0);
        waiters[WINDOW - 1].own = 1;
        assert_eq!(next(1_000, &waiters), WINDOW - 1);
    }
}
