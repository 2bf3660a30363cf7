//! Cal: waiters are served in the order that makes all of them suffer the same slowdown.
//!
//! *CAL: Core-Aware Lock for the big.LITTLE Multicore Architecture*, Applied Sciences 14(15), 6449, 2024, section 3. A thread's
//! slowdown is the time from its request to its release, divided by the time that it takes when alone. In first-come-first-served
//! order all wait equally long. So a big core, whose section is shorter, is slowed down more. Here the waiter that has waited longest
//! *in proportion to its own section* is next (rows C01 to C13):
//!
//! ```text
//!   line   first ◄─ l1 ◄─ l2 ◄─ b1 ◄─ b2          the first in line chooses who follows it, while it waits; then
//!                                                 the next one chooses, too (choice.rs)
//!   1      the first waiter of each class:                                            l1, b1
//!   2      the larger PW = (waited + the other's section) / own section is next:      b1 goes past l1 and l2
//! ```
//!
//! The lengths of sections are measured, for each lock and each place in the code that locks it (learn/memos.rs). Until then they count as
//! 1 us on the fastest cores. Where they are short (below 0.45 us), a choice costs more than it gains, and hardly anybody chooses:
//! waiters are served by arrival.
//!
//! Our deviations. The paper has a queue for each class over a ticket lock; here waiters stand in one line, and a choice looks at a
//! window of it. The paper sorts each queue by the lengths of sections; here waiters of one class are served by arrival (C09: simulated, sorting
//! gains 0.01 of fairness, and costs 5 % of throughput and a quarter of P99; docs/reproduce.md). The paper
//! always chooses. No arrival overtakes the line (the paper's `no_steal`), except in a crowd, as in fifo.rs.
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. A waiter is passed over at most `bypass` times, and then it is next.
//! 2. Between two headships at most `bypass` arrivals overtake the head, and none unless the line is crowded.

use super::{Choose, Note, Observe, Rule, Taken, View, fifo};
use crate::entry::{Entry, Kind, Promise};
use crate::front::choice::Waiters;
use crate::front::learn::memos;
use crate::front::tuning::{self, Tuning};
use crate::front::waiter::Waiter;
use lockwright_platform::{Class, FULL_SPEED, Machine};

/// A waiter may be passed over this often, by default.
const BYPASS: u32 = 250;

/// How many waiters behind the next one a choice looks at (the paper's sliding window).
const WINDOW: usize = 8;

/// The number of classes that are told apart; the slowest ones count as one.
const CLASSES: usize = 3;

/// A longer wait counts as this long, ns.
const LONGEST_NS: u64 = 1_000_000_000;

/// A choice moves some cache lines between cores. If the chooser's own section usually takes less than this, ns, on the fastest cores,
/// the choice slows the hand-overs down, and everybody waits longer than without it (simulated i5-13400: 0.62 of a ticket lock's
/// throughput, and both classes' P99 doubled).
const WORTH_NS: u32 = 450;

/// Even then, one waiter in this many chooses.
const TRY_EACH: u64 = 32;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "cal",
    kind: Kind::Front,
    preset_of: None,
    idea: "the waiter that has waited longest relative to its critical section goes next: equal slowdown on all cores",
    source: "CAL: Core-Aware Lock for the big.LITTLE Multicore Architecture, Applied Sciences 2024, section 3",
    order: "by slowdown between the first waiters of the core classes; by arrival within a class",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool; 32 KiB per process for measurements",
    wakes: "unlock wakes a sleeping waiter; an acquirer never wakes anybody",
    delay: "each waiter, by those ahead of it and at most `bypass` overtakers; a small `bypass` nearly stalls a crowd",
    advice: "unequal cores, if no thread may be slowed down more than another, and critical sections above 0.45 µs (shorter ones are \
             served by arrival); slow with more threads than CPUs",
    options: &[tuning::SPIN, tuning::BYPASS.or(BYPASS)],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BYPASS, ..<fifo::Lock as Rule<P>>::defaults(tuning) }
    }

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        let taken = fifo::Lock::arrive(lock, note);
        if taken.is_none() {
            note.class = P::place().class;
            (note.asked_ns, note.own) = (P::now(), memos::usual_hold_ns(lock, note.class));
        }
        taken
    }
}

impl<P: Machine> Choose<P> for Lock {
    const AHEAD: usize = WINDOW;

    fn is_worth(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
        memos::usual_hold_ns(lock, Class::BIG) >= WORTH_NS
            || (node.note.asked_ns / 64).is_multiple_of(TRY_EACH)
    }

    /// The first of each class will do.
    fn is_enough(waiters: &[Note]) -> bool {
        let seen = waiters.iter().fold(0_u32, |seen, note| seen | 1 << told_apart(note.class));
        // A class that the machine lacks counts as the fastest.
        let is_there = P::speed(Class(CLASSES as u8 - 1)) < FULL_SPEED;
        seen.count_ones() as usize >= CLASSES - usize::from(!is_there)
    }

    fn next(_: &View<'_, P>, waiters: &mut Waiters<'_, P>) -> u32 {
        while !<Self as Choose<P>>::is_enough(waiters.notes()) && waiters.look() {}
        1 << next(P::now(), waiters.notes())
    }
}

impl<P: Machine> Observe<P> for Lock {
    fn measures(_: &View<'_, P>) -> bool {
        true
    }

    fn release(lock: &View<'_, P>) {
        memos::end_of_hold(lock);
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
    /// Is its PW larger than the other's?
    fn precedes(self, that: Self) -> bool {
        (self.waited + that.own) * that.own > (that.waited + self.own) * self.own
    }
}

/// The class's number among the classes that are told apart.
fn told_apart(class: Class) -> usize {
    usize::from(class.0).min(CLASSES - 1)
}

/// The place of the waiter that is next.
fn next(now: u64, waiters: &[Note]) -> usize {
    let mut seen = [false; CLASSES];
    let mut chosen: Option<Candidate> = None;
    for (place, note) in waiters.iter().enumerate() {
        if core::mem::replace(&mut seen[told_apart(note.class)], true) {
            continue;
        }
        let waited = now.saturating_sub(note.asked_ns).min(LONGEST_NS);
        let this = Candidate { place, waited, own: u64::from(note.own).max(1) };
        if chosen.is_none_or(|best| this.precedes(best)) {
            chosen = Some(this);
        }
    }
    chosen.map_or(0, |chosen| chosen.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_platform::Class;

    fn note(class: u8, asked_ns: u64, own: u32) -> Note {
        Note { class: Class(class), asked_ns, own, ..Note::default() }
    }

    #[test]
    fn equal_sections_are_served_by_arrival() {
        let waiters = [note(0, 100, 500), note(1, 200, 500), note(0, 300, 500)];
        assert_eq!(next(1_000, &waiters), 0);
        assert_eq!(next(1_000, &waiters[1..]), 0);
    }

    #[test]
    fn a_shorter_section_comes_first_after_an_equal_wait() {
        assert_eq!(next(1_000, &[note(1, 0, 800), note(1, 0, 800), note(0, 0, 400)]), 2);
    }

    #[test]
    fn a_longer_wait_makes_up_for_a_longer_section() {
        // PW: (3000 + 400) / 800 = 4.25 to (1000 + 800) / 400 = 4.5, and then (3400 + 400) / 800 to the same.
        assert_eq!(next(3_000, &[note(1, 0, 800), note(0, 2_000, 400)]), 1);
        assert_eq!(next(3_400, &[note(1, 0, 800), note(0, 2_400, 400)]), 0);
    }

    #[test]
    fn only_the_first_of_each_class_may_be_next() {
        assert_eq!(next(1_000, &[note(0, 0, 800), note(0, 0, 1), note(1, 900, 800)]), 0);
    }
}
