//! Barging: whoever finds the word free takes it; who has waited longest is woken first.
//!
//! The idea is glibc's (an arrival may overtake sleepers: a lock that is free and a thread that runs
//! should not wait for one that has yet to wake up), with two differences. Waiters first stay awake for
//! about as long as a sleep and a wake would cost (Karlin et al., *Competitive Randomized Algorithms for
//! Non-Uniform Problems*, SODA 1990), few at a time. And sleepers stand in a line of which only the head
//! is ever woken, once: the many wakes of glibc's lock, whose woken threads find it taken again and
//! mark it "wake somebody" again, are what makes it slow with more threads than CPUs.
//!
//! ```text
//!   arrival ─ spin (at most `spinners` threads, `spin` ns) ─► take, or join the line ─► head ─► take
//! ```
//!
//! Invariants: those of the front locks (front/mod.rs).

use super::{Arrival, OPTION_SPIN, OPTION_SPINNERS, Parts, Tuning, line, side, try_take};
use crate::catalog::{Entry, Kind};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "barging",
    kind: Kind::Front,
    idea: "whoever finds it free takes it; waiters spin briefly, then sleep in a line",
    source: "glibc's 0/1/2 futex word (Drepper, Futexes Are Tricky, 2011) with a K42-style line of \
             sleepers; spin budget after Karlin et al., SODA 1990",
    order: "none among runners; sleepers are woken first come first served",
    space: "0 bytes beside the mutex; 64 bytes of stack per waiter",
    wakes: "unlock wakes the line's head, at most one thread on its way at a time",
    delay: "a waiter may be overtaken while it wakes up; no bound but the scheduler's",
    advice: "the fastest where throughput counts; use fifo where the order of waiters does",
    options: &[OPTION_SPIN, OPTION_SPINNERS],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Barging;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, Barging>;

impl<P: Platform> Arrival<P> for Barging {
    #[cold]
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        if try_take::<P>(parts.word) || spin_in_front(parts, tuning) {
            return;
        }
        line::wait(parts, tuning);
    }
}

/// Awake, beside the line, if few enough are; `true` if that got us the lock.
fn spin_in_front<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) -> bool {
    let spinners = parts.side.load(Relaxed) & side::SPINNERS; // a hint: one too many is no harm
    if spinners >= tuning.spinners.min(7) * side::SPINNER {
        return false;
    }
    // Relaxed, here and below: a count, nothing is published by it.
    if parts.side.fetch_add(side::SPINNER, Relaxed) & side::SPINNERS == side::SPINNERS {
        parts.side.fetch_sub(side::SPINNER, Relaxed); // it just went from 7 to 8: into the next field
        return false;
    }
    let mut got = false;
    P::spin_for(parts.word, Relaxed, tuning.spin_ns, |value| {
        got = value == super::FREE && try_take::<P>(parts.word);
        got
    });
    parts.side.fetch_sub(side::SPINNER, Relaxed);
    got
}
