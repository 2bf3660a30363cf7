//! ASL: big cores overtake little ones, as often as the latency SLO of the program's own operations allows.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, section 3.3, algorithm 3. A thread that asks on a core of
//! the fastest class joins the line at once. On any other core it stands by first, for a window of time
//! (amp/standby.rs), and takes the lock meanwhile only if it is free. The window belongs to the thread's current epoch;
//! feedback keeps it as long as the SLO allows (amp/feedback.rs). Outside epochs it is 100 ms.
//!
//! ```text
//!   arrival on a big core ─────────────────────────► line (fifo's) ─► head ─► word
//!   arrival on a little core ─ standby ─ window over ┘                         ▲
//!                                 └ free ──────────────────────────────────────┘
//! ```
//!
//! Our deviations. A thread that stands by *takes* a lock that it finds free, and stands by again if another was faster. (In
//! the paper it joins the queue.) The base is fifo's line in front of word 0. (The paper uses MCS.) With more waiters than CPUs
//! the base is barging's line, and standby sleeps, without an option for it. (The paper has a separate blocking version, with
//! pthread's mutex and nanosleep.)
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. A thread that stands by holds nothing, and nobody waits for it.
//! 2. After `window` ns, 100 ms at the most, the thread is in the line: so it waits for a bounded number of others.
//! 3. A window of 0 is fifo.

use super::{Choose, Note, Observe, Rule, Taken, View, barging, fifo};
use crate::amp::standby::{self, confirmed};
use crate::entry::{Entry, Kind, Promise};
use crate::front::tuning::{self, Tuning, Window};
use lockwright_platform::{Class, Machine};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "asl",
    kind: Kind::Front,
    preset_of: None,
    idea: "big cores overtake little ones, within the latency SLO of the program's epochs",
    source: "LibASL: Nian Liu, Jinyu Gu, Dahai Tang, Kenli Li, Binyu Zang, Haibo Chen, Asymmetry-aware \
             Scalable Locking, PPoPP 2022, algorithms 1 to 3",
    order: "arrival among threads in line; little cores join the line after their window",
    promise: Promise::ArrivalOrBypass,
    stands_by: true,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool; 24 bytes per thread and epoch",
    wakes: "as fifo; if waiters outnumber CPUs, as barging, and threads on standby sleep",
    delay: "a thread on a little core, by its window (the epoch's; 100 ms outside epochs); then as fifo",
    advice: "machines with unequal cores; give latency-critical operations an SLO (docs/epochs.md)",
    options: &[tuning::WAIT, tuning::SPIN, tuning::BYPASS.or(fifo::BYPASS)],
};

/// The rule. Outside the runtime (in bench, models and simulator) there are no epochs, and the window is the largest.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Epoch, ..<fifo::Lock as Rule<P>>::defaults(tuning) }
    }

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        arrive(lock, lock.tuning.window_ns, note)
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}

/// On a core that is not of the fastest class, lets others go first for `window_ns`; then arrives as at a lock without windows.
#[inline(always)] // each frame lies on the stack of a thread that waits
pub(super) fn arrive<P: Machine>(
    lock: &View<'_, P>,
    window_ns: u32,
    note: &mut Note,
) -> Option<Taken> {
    if window_ns != 0
        && !P::place().class.is_big()
        && let Some(taken) = stand_by_for(lock, window_ns, confirmed)
    {
        return Some(taken);
    }
    if lock.is_crowded() {
        barging::Lock::arrive(lock, note)
    } else {
        fifo::Lock::arrive(lock, note)
    }
}

/// Lets others go first for `window_ns`. `looks_for`: see [`standby::stand_by`].
pub(super) fn stand_by_for<P: Machine>(
    lock: &View<'_, P>,
    window_ns: u32,
    looks_for: impl Fn(Class) -> u8,
) -> Option<Taken> {
    // This clears a line from before a fork, which belongs to nobody: a free lock must not look as if it were in use.
    lock.is_line_empty();
    lock.take_if_free().or_else(|| reorder(lock, window_ns, looks_for))
}

/// Stands by, counted among the contenders.
fn reorder<P: Machine>(
    lock: &View<'_, P>,
    window_ns: u32,
    looks_for: impl Fn(Class) -> u8,
) -> Option<Taken> {
    let counted = lock.count_in(u32::MAX);
    let mut taken = None;
    standby::stand_by::<P>(
        window_ns,
        lock.tuning.waiting,
        looks_for,
        || lock.is_free(),
        // The threads that stand by, this one included, and the holder.
        || lock.is_crowded() || lock.contenders() + 1 > lock.tuning.cpus,
        || {
            taken = lock.take_if_free();
            taken.is_some()
        },
    );
    if counted {
        lock.count_out();
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::{FREE, HELD, acquire};
    use crate::front_tests::Memory;
    use crate::testing::{Threads, run_on};
    use lockwright_platform::Platform;
    use lockwright_platform::{Ordering::Relaxed, Ptr};

    #[test]
    fn line_of_a_forks_parent_delays_nobody() {
        let memory = Memory::new(FREE, 0);
        memory.tail.store(core::ptr::without_provenance_mut(64), Relaxed); // of era 0
        let tuning = <Lock as Rule<Threads>>::defaults(Tuning::for_cpus(2));
        run_on(1);
        let start = Threads::now();
        acquire::<Threads, Lock>(&memory.parts(), &Tuning { era: 1, ..tuning });
        assert_eq!(memory.word.now(), HELD);
        assert_eq!(Threads::now(), start);
    }
}
