//! Barging: whoever finds the word free takes it; who has waited longest is woken first.
//!
//! The idea is glibc's (an arrival may overtake sleepers: a lock that is free and a thread that runs
//! should not wait for one that has yet to wake up), with two differences. Waiters first stay awake for
//! about as long as a sleep and a wake would cost (Karlin et al., *Competitive Randomized Algorithms for
//! Non-Uniform Problems*, SODA 1990), few at a time. And sleepers stand in a line of which only the head
//! is ever woken, once: the many wakes of glibc's lock, whose woken threads find it taken again and
//! mark it "wake somebody" again, are what makes it slow with more threads than CPUs.
//!
//! A lock whose last holder comes back for it before a waiter could have it is *saturated*: handing it to
//! another core would only move its data there. Then the line's head naps for `batch` ns, and leaves it to
//! those who come back (front/batch.rs).
//!
//! Overtaking has a bound: after `bypass` arrivals the head's turn has come, and arrivals join the line.
//! So a head that was woken but waits for a CPU gets one, because those who overtook it go to sleep.
//!
//! ```text
//!   arrival ─ line empty? spin (at most `spinners` threads, `spin` ns) and take
//!           ├ free, and the head was overtaken fewer than `bypass` times? take
//!           └ join the line ─► head ─► take
//! ```
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. Between two headships at most `bypass` arrivals overtake the head.

use super::{ANY, Arrival, OPTION_SPIN, OPTION_SPINNERS, Parts, Tuning};
use super::{batch, line, option_bypass, overtake, side, try_take};
use crate::catalog::{Entry, Kind, OptionSpec};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// Arrivals that may overtake the line's head, by default: a fraction of a millisecond of short critical
/// sections, against which a sleep and a wake are little.
pub const BYPASS: u32 = 500;

/// How long a saturated lock is left to those who come back for it, ns, by default.
pub const BATCH_NS: u32 = 100_000;

/// The option `batch`.
pub(super) const OPTION_BATCH: OptionSpec = OptionSpec {
    key: "batch",
    meaning: "ns for which the line's head leaves a saturated lock to those who come back for it",
    min: 0,
    max: 10_000_000,
    default: Some(BATCH_NS),
};

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
    delay: "a waiter waits for those before it, and `bypass` overtakers for each; where saturated, naps of `batch` ns",
    advice: "the fastest where throughput counts; use fifo where the order of waiters does",
    options: &[OPTION_SPIN, OPTION_SPINNERS, option_bypass(BYPASS), OPTION_BATCH],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Barging;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, Barging>;

impl<P: Platform> Arrival<P> for Barging {
    #[cold]
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        let got = if line::is_empty(&parts, tuning.era) {
            try_take::<P>(parts.word) || spin_in_front(parts, tuning)
        } else {
            overtake(parts, tuning) || spin_in_front(parts, tuning)
        };
        if got {
            return;
        }
        line::wait(parts, tuning);
    }
}

/// Awake, beside the line, if few enough are; `true` if that got us the lock.
fn spin_in_front<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) -> bool {
    if batch::is_saturated(&parts, tuning) {
        return false;
    }
    let now = parts.side.load(Relaxed); // a hint: one spinner or overtaker too many is no harm
    if now & side::BYPASSES >= tuning.bypass * side::BYPASS {
        return false;
    }
    if tuning.spinners == ANY {
        return batch::spin(&parts, tuning);
    }
    if now & side::SPINNERS >= tuning.spinners * side::SPINNER {
        return false;
    }
    // Relaxed, here and below: a count, nothing is published by it. Not a fetch_add: from 7 on it would
    // carry into the next field, which others clear.
    if parts.side.compare_exchange(now, now + side::SPINNER, Relaxed, Relaxed).is_err() {
        return false;
    }
    let got = batch::spin(&parts, tuning);
    parts.side.fetch_sub(side::SPINNER, Relaxed);
    got
}
