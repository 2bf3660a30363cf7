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

use super::{Arrival, FREE, OPTION_SPIN, Parts, Tuning, line, side, try_take};
use crate::catalog::{Entry, Kind, OptionSpec};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// Arrivals that may overtake the head of a crowded line, by default.
pub const BYPASS: u32 = 63;

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
    options: &[
        OPTION_SPIN,
        OptionSpec {
            key: "bypass",
            meaning: "arrivals that may overtake the head of a crowded line while it wakes up",
            min: 0,
            max: 63,
            default: Some(BYPASS),
        },
    ],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Fifo;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, Fifo>;

impl<P: Platform> Arrival<P> for Fifo {
    #[cold]
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        if line::is_empty(&parts, tuning.era) {
            if try_take::<P>(parts.word) {
                return;
            }
        } else if may_overtake(parts, tuning) && try_take::<P>(parts.word) {
            return;
        }
        line::wait(parts, tuning);
    }
}

/// Counts us among the overtakers of a crowded line whose head has yet to wake up, if there is room.
fn may_overtake<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) -> bool {
    let now = parts.side.load(Relaxed);
    if now & side::CROWDED == 0 || parts.word.load(Relaxed) != FREE {
        return false;
    }
    if now & side::BYPASSES >= tuning.bypass.min(63) * side::BYPASS {
        return false;
    }
    // A compare-and-swap, so that the count can't pass its bound. Relaxed: a count, it publishes nothing.
    parts.side.compare_exchange(now, now + side::BYPASS, Relaxed, Relaxed).is_ok()
}
