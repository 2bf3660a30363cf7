//! Malthusian: just enough threads circulate over the lock to keep it busy; the rest wait aside.
//!
//! Dave Dice, *Malthusian Locks*, EuroSys 2017, section 4, MCSCR: a saturated lock serves no more operations when
//! more threads compete for it, but they cost cache space, CPU time and context switches. So excess waiters are culled into a
//! passive set. One of them is let back now and then, for fairness, or when the lock falls idle.
//!
//! ```text
//!   circulating   holder, and `spinners` contend, awake
//!   passive       the line: its head competes once it has been overtaken `bypass` times, or finds the lock idle
//! ```
//!
//! Our deviations. The passive set is the line, first come first served (the paper's is a stack), so the waiter that is let
//! back has waited longest. An arrival that finds the circulating set full joins the passive set by itself; in the
//! paper unlock moves it. One in `bypass` acquisitions lets a waiter back; the paper does so with a probability of 1/1000.
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. Between two headships at most `bypass` arrivals overtake the head.
//! 2. A head holds back for 100 ms at most, and withholds no wake from others meanwhile.

use super::{Choose, Note, Observe, Rule, Taken, View};
use crate::entry::{Entry, Kind, Promise};
use crate::front::learn::saturation;
use crate::front::tuning::{self, Tuning};
use lockwright_platform::Machine;

/// Threads beside the holder that circulate, by default.
const SPINNERS: u32 = 1;

/// One in this many acquisitions lets a passive waiter back, by default.
const BYPASS: u32 = 500;

/// How long a passive head sleeps before it looks for the first time, ns; then twice as long, up to eight times.
const FIRST_LOOK_NS: u32 = 50_000;

/// How often it looks: for about 100 ms.
const LOOKS: u32 = 250;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "malthusian",
    kind: Kind::Front,
    preset_of: None,
    idea: "only enough threads circulate to keep the lock busy; the rest are set aside",
    source: "Dave Dice, Malthusian Locks, EuroSys 2017, section 4, MCSCR",
    order: "none among circulating threads; the rest by arrival",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool",
    wakes: "a passive head of the line wakes itself every 50 to 400 µs; else as barging",
    delay: "each waiter, by those ahead of it, and by `bypass` overtakers for each of them; at most 100 ms per head of the line",
    advice: "to compare: it shows what few circulating threads gain. With more threads than CPUs auto is faster (docs/choosing.md)",
    options: &[tuning::SPIN, tuning::SPINNERS.or(SPINNERS), tuning::BYPASS.or(BYPASS)],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { spinners: SPINNERS.min(tuning.spinners), bypass: BYPASS, budget_ns: 0, ..tuning }
    }

    fn arrive(lock: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        let mut taken = lock.take();
        if taken.is_none() && lock.count_in(lock.tuning.spinners) {
            taken = saturation::contend(lock);
            lock.count_out();
        }
        taken
    }

    /// Nobody in the passive set stays awake.
    fn awake_ns(_: &View<'_, P>, _: &Note) -> u32 {
        0
    }
}

impl<P: Machine> Choose<P> for Lock {
    const HOLDS_BACK: bool = true;

    fn hold_back(lock: &View<'_, P>, _: &Note) {
        for look in 0..LOOKS {
            // Hints: the threads that overtake it check how often they may.
            if lock.contenders() == 0 || lock.overtaken() >= lock.tuning.bypass || is_idle(lock) {
                break;
            }
            lock.sleep_aside(FIRST_LOOK_NS << look.min(3));
        }
    }
}

impl<P: Machine> Observe<P> for Lock {}

/// Is the lock free, now and a moment later? Then the contenders don't circulate: they wait by another rule, which
/// leaves a lock with a line to the line's head.
fn is_idle<P: Machine>(lock: &View<'_, P>) -> bool {
    lock.is_open() && {
        P::pause(GRACE_NS);
        lock.is_open()
    }
}

/// That moment, ns: longer than a hand-over takes.
const GRACE_NS: u32 = 2_000;
