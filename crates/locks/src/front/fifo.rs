//! FIFO: waiters get the lock in the order in which they came.
//!
//! The line of front/line.rs (after Mellor-Crummey & Scott, TOCS 1991), and a rule: no arrival overtakes
//! a waiter while the threads fit the CPUs. When they don't, strict order is what makes queue locks
//! collapse, because the next in line has to be woken, and may have to wait for a CPU, while the lock
//! stands idle. So then, and only while the lock is free because its next holder has yet to wake up, up
//! to `bypass` arrivals may take it in between, counted from one headship to the next.
//!
//! ```text
//!   arrival ─ line empty? take ─ crowded, free, and fewer than `bypass` so far? take, counted
//!           └ join the line ─► head ─► take
//! ```
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. If the line was not crowded when it was last left, only its head takes the lock (and trylock, timed
//!    locks and sleepers on the word, which don't queue).
//! 2. Between two headships at most `bypass` arrivals overtake the head.

use super::{Arrival, OPTION_SPIN, Parts, Tuning, line, option_bypass, overtake, side, try_take};
use crate::catalog::{Entry, Kind};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// Arrivals that may overtake the head of a crowded line, by default.
pub const BYPASS: u32 = 250;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "fifo",
    kind: Kind::Front,
    idea: "first come, first served; a crowded line may be overtaken a bounded number of times",
    source: "Mellor-Crummey & Scott, Algorithms for Scalable Synchronization on Shared-Memory \
             Multiprocessors, TOCS 1991, algorithm 4, in front of a futex word",
    order: "arrival; with more threads than CPUs at most `bypass` arrivals overtake each head",
    space: "0 bytes beside the mutex; 64 bytes of stack per waiter",
    wakes: "the head spins, then sleeps; the holder's unlock, not the acquirer, wakes it",
    delay: "a waiter waits for those before it, and `bypass` overtakers for each of them",
    advice: "where the order of waiters or the longest wait matters more than throughput",
    options: &[OPTION_SPIN, option_bypass(BYPASS)],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Fifo;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, Fifo>;

impl<P: Platform> Arrival<P> for Fifo {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BYPASS, batch_ns: 0, ..tuning }
    }

    #[cold]
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        if line::is_empty(&parts, tuning.era) {
            if try_take::<P>(parts.word) {
                return;
            }
        } else if parts.side.load(Relaxed) & side::CROWDED != 0 && overtake(parts, tuning) {
            return; // a hint decides who may try; the count decides how many
        }
        line::wait(parts, tuning);
    }
}
