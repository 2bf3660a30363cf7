//! ASL: big cores overtake little ones, as often as the latency SLO of the program's own operations allows.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, section 3.3, algorithm 3. A thread that runs on a core of the
//! fastest class when it asks joins the line at once. One that runs on any other stands by first, for a window of
//! time (amp/standby.rs), and takes the lock meanwhile only if it is free. The window is the thread's current
//! epoch's, which feedback keeps as long as the SLO allows (amp/feedback.rs); outside epochs it is 100 ms.
//!
//! ```text
//!   arrival on a big core ─────────────────────────► line (fifo's) ─► head ─► word
//!   arrival on a little core ─ standby ─ window over ┘                         ▲
//!                                 └ free ──────────────────────────────────────┘
//! ```
//!
//! Our deviations: who stands by *takes* a lock that it finds free, and stands by again if somebody was faster (the
//! paper joins the queue); the base is fifo's line in front of word 0 (the paper: MCS). With more waiters than CPUs
//! it is barging's, and standby sleeps (the paper's blocking version: pthread's mutex and nanosleep), by itself.
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. Standby holds nothing, and nobody waits for who stands by.
//! 2. After `window` ns, 100 ms at the most, the thread is in the line: who asks waits for a bounded number of others.
//! 3. A window of 0 is fifo.

use super::barging::Barging;
use super::fifo::{self, Fifo};
use super::tuning::OPTION_WAIT;
use super::{
    Arrival, OPTION_SPIN, Parts, Tuning, Window, is_free, line, option_bypass, side, try_take,
};
use crate::amp::standby::{confirmed, stand_by};
use crate::catalog::{Entry, Kind};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "asl",
    kind: Kind::Front,
    idea: "big cores overtake little ones, within the latency SLO of the program's epochs",
    source: "LibASL: Nian Liu, Jinyu Gu, Dahai Tang, Kenli Li, Binyu Zang, Haibo Chen, Asymmetry-aware \
             Scalable Locking, PPoPP 2022, algorithms 1 to 3",
    order: "arrival among those who have asked; little cores ask after their window",
    space: "0 bytes beside the mutex; 64 bytes of stack per waiter; 24 bytes per thread and epoch",
    wakes: "as fifo; as barging where waiters are more than CPUs, and standby sleeps there",
    delay: "a little core, by its window (the epoch's, 100 ms outside epochs); then as fifo",
    advice: "machines with unequal cores; give latency-critical operations an SLO (docs/epochs.md)",
    options: &[OPTION_WAIT, OPTION_SPIN, option_bypass(fifo::BYPASS)],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Asl;

/// In a program of its own (bench, models, simulator): there are no epochs, the window is the largest.
pub type Lock<P> = super::Alone<P, Asl>;

impl<P: Platform> Arrival<P> for Asl {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Epoch, ..fixed::<P>(tuning) }
    }

    #[cold]
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        let may_wait = tuning.window_ns > 0 && !P::place().class.is_big();
        if may_wait {
            // A line from before a fork is nobody's, and is cleared: a free lock must not look as if it were in use.
            line::is_empty(&parts, tuning.era);
            if take_if_free(&parts) || reorder(&parts, tuning) {
                return;
            }
        }
        if parts.side.load(Relaxed) & side::CROWDED != 0 {
            Barging::lock_slow(parts, tuning);
        } else {
            Fifo::lock_slow(parts, tuning);
        }
    }
}

/// The defaults of all of this family, with a fixed window.
pub(super) fn fixed<P: Platform>(tuning: Tuning) -> Tuning {
    <Fifo as Arrival<P>>::defaults(tuning)
}

fn take_if_free<P: Platform>(parts: &Parts<'_, P>) -> bool {
    is_free(parts) && try_take::<P>(parts.word)
}

/// Stands by; `true` if the lock was free, and is ours.
fn reorder<P: Platform>(parts: &Parts<'_, P>, tuning: &Tuning) -> bool {
    let counted = count_in(parts);
    let got = stand_by::<P>(
        tuning.window_ns,
        tuning.waiting,
        confirmed,
        || is_free(parts),
        || is_crowded(parts, tuning),
        || take_if_free(parts),
    );
    if counted {
        parts.side.fetch_sub(side::SPINNER, Relaxed); // a count: it publishes nothing
    }
    got
}

/// Counts one more thread that waits beside the line; `false`: there are too many to count.
fn count_in<P: Platform>(parts: &Parts<'_, P>) -> bool {
    let mut now = parts.side.load(Relaxed); // re-checked by the exchange
    while now & side::SPINNERS != side::SPINNERS {
        // Relaxed: a count, it publishes nothing.
        match parts.side.compare_exchange(now, now + side::SPINNER, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(seen) => now = seen,
        }
    }
    false
}

/// Are the threads that stand by, and the holder, more than the CPUs? The asking thread is one of the former.
///
/// A hint, like everything that it looks at: it decides how to wait, not who holds the lock.
fn is_crowded<P: Platform>(parts: &Parts<'_, P>, tuning: &Tuning) -> bool {
    let side = parts.side.load(Relaxed);
    side & side::CROWDED != 0 || (side & side::SPINNERS) / side::SPINNER + 1 > tuning.cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::{FREE, HELD, Waiter};
    use crate::testing::{Threads, run_on};
    use lockwright_platform::Ptr;

    #[test]
    fn line_of_a_forks_parent_delays_nobody() {
        type Line = <Threads as Platform>::Ptr<Waiter<Threads>>;
        let new = <<Threads as Platform>::Word as Word>::new;
        let (word, side, mood) = (new(FREE), new(0), new(0));
        let gone = core::ptr::without_provenance_mut(64); // of era 0
        let (tail, head) = (Line::new(gone), Line::new(gone));
        let parts: Parts<'_, Threads> =
            Parts { word: &word, side: &side, mood: &mood, tail: &tail, head: &head };
        let tuning = Tuning { era: 1, ..fixed::<Threads>(Tuning::for_cpus(2)) };
        run_on(1);
        let start = Threads::now();
        Asl::lock_slow(parts, &tuning);
        assert_eq!(word.load(Relaxed), HELD);
        assert_eq!(Threads::now(), start);
    }
}
