//! Barging: any thread that finds the word free takes it; the one that has waited longest is woken first.
//!
//! The idea is glibc's: an arrival may overtake sleepers, because a free lock and a running thread should not wait for a thread that
//! has yet to wake up. There are two differences. Waiters first stay awake for about as long as a sleep and a wake would cost (Karlin
//! et al., *Competitive Randomized Algorithms for Non-Uniform Problems*, SODA 1990), few at a time. And sleepers stand in a line, and
//! only its head is ever woken, once. glibc's lock wakes many threads, which find it taken again and mark it "wake somebody" again:
//! that makes it slow with more threads than CPUs.
//!
//! A lock whose last holder comes back for it before a waiter could have it, or, on two CPUs, keeps it busy, is
//! *saturated*: handing it to another core would only move its data there. Then the line's head naps until its turn,
//! and leaves the lock to the thread that comes back (front/batch.rs).
//!
//! Overtaking has a bound: after `bypass` arrivals the head's turn has come, and arrivals join the line.
//! So, unless the lock is saturated, a head that was woken but waits for a CPU gets one: those who overtook it go to sleep.
//!
//! ```text
//!   arrival ─ line empty? spin (at most `spinners` threads, `spin` ns) and take
//!           ├ free, and the head was overtaken fewer than `bypass` times? take
//!           └ join the line ─► head ─► take
//! ```
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. Between two headships at most `bypass` arrivals overtake a head that is awake, and neither naps nor watches. While the lock is
//!    saturated, a head that does not get a CPU is overtaken without a bound (a real-time thread on its CPU, say).

use super::{ANY, Arrived, Rule, Taken, View, tuning};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Platform;

/// Arrivals that may overtake the line's head, by default: a fraction of a millisecond of short critical
/// sections, compared with which a sleep and a wake cost little.
pub const BYPASS: u32 = 500;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "barging",
    kind: Kind::Front,
    preset_of: None,
    idea: "any thread that finds it free takes it; waiters spin briefly, then sleep in a line",
    source: "glibc's 0/1/2 futex word (Drepper, Futexes Are Tricky, 2011) with a K42-style line of \
             sleepers; spin budget after Karlin et al., SODA 1990",
    order: "none among runners; sleepers are woken first come first served",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beside the mutex; 128 bytes per waiter, from a pool",
    wakes: "unlock wakes the line's head, at most one thread on its way at a time",
    delay: "a waiter waits for those before it, and `bypass` overtakers for each; where saturated, `budget` and 0.1 ms a waiter",
    advice: "the fastest where throughput counts; use fifo where the order of waiters does",
    options: &[tuning::SPIN, tuning::SPINNERS, tuning::BYPASS.or(BYPASS), tuning::BUDGET],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Platform> Rule<P> for Lock {
    fn arrive(lock: &View<'_, P>) -> Arrived {
        Arrived::or_joins(lock.take().or_else(|| spin_in_front(lock)))
    }
}

/// Awake, beside the line, if few enough are.
fn spin_in_front<P: Platform>(lock: &View<'_, P>) -> Option<Taken> {
    // All of these are hints: `take` decides who may have the lock.
    if lock.is_saturated() || lock.overtaken() >= lock.tuning.bypass || lock.is_turn() {
        return None;
    }
    if lock.tuning.spinners == ANY {
        return lock.spin();
    }
    if !lock.count_in(lock.tuning.spinners) {
        return None;
    }
    let taken = lock.spin();
    lock.count_out();
    taken
}
