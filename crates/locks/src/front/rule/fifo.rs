//! Fifo: first come, first served.
//!
//! The line of front/line.rs (after Mellor-Crummey & Scott, TOCS 1991), and a rule: no arrival overtakes
//! a waiter while threads don't outnumber the CPUs. When they do, strict order makes queue locks collapse:
//! the next in line has to be woken, and may have to wait for a CPU, while the lock stands idle. So
//! then up to `bypass` arrivals, counted from one headship to the next, may take the lock in between,
//! but only while it is free because its next holder has yet to wake up.
//!
//! ```text
//!   arrival ─ line empty? take ─ crowded, free, and fewer than `bypass` so far? take, counted
//!           └ join the line ─► head ─► take
//! ```
//!
//! While the line isn't crowded and its next waiter is awake, unlock grants it the lock (front/grant.rs).
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. If the line was not crowded when a thread last left it, only its head takes the lock (and trylock, timed
//!    locks and sleepers on the word, which don't queue; timed locks are counted).
//! 2. Between two headships at most `bypass` arrivals overtake the head.

use super::{Choose, Note, Observe, Rule, Taken, View};
use crate::entry::{Entry, Kind, Promise};
use crate::front::tuning::{self, Tuning};
use lockwright_platform::Machine;

/// How many arrivals may overtake the head of a crowded line, by default.
pub const BYPASS: u32 = 250;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "fifo",
    kind: Kind::Front,
    preset_of: None,
    idea: "first come, first served; with more threads than CPUs, a bounded number of arrivals may overtake the line",
    source: "Mellor-Crummey & Scott, Algorithms for Scalable Synchronization on Shared-Memory \
             Multiprocessors, TOCS 1991, algorithm 4, in front of a futex word",
    order: "arrival; with more threads than CPUs, at most `bypass` arrivals overtake each head of the line",
    promise: Promise::ArrivalOrBypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool",
    wakes: "unlock hands the lock to a spinning waiter, or wakes a sleeping one; an acquirer never wakes anybody",
    delay: "each waiter, by those ahead of it, and by `bypass` overtakers for each of them",
    advice: "when fairness or the longest wait matters more than throughput",
    options: &[tuning::SPIN, tuning::BYPASS.or(BYPASS)],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BYPASS, budget_ns: 0, grants_above: 0, ..tuning }
    }

    fn arrive(lock: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        overtake(lock)
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}

/// Takes a free lock; if the line is crowded, past its head. From a quarter of the bound on, one arrival in 32 joins the
/// line instead: the head, woken long ago, may be waiting for a CPU, and gets one when that arrival goes to sleep.
fn overtake<P: Machine>(lock: &View<'_, P>) -> Option<Taken> {
    if !lock.is_open() {
        return None; // the fewer looks at the mutex, the sooner it has joined
    }
    let is_sent = |so_far| so_far >= lock.tuning.bypass / 4 && so_far % 32 == 31;
    let may = lock.is_line_empty() || lock.is_crowded() && !is_sent(lock.overtaken());
    if may { lock.take() } else { None }
}
