//! How long critical sections take: T_alone of CAL (*Core-Aware Lock for the big.LITTLE Multicore Architecture*, Applied Sciences
//! 2024, section 3.2: measured "in the warm-up phase").
//!
//! A section is measured in its first 32 acquisitions that had to wait; the shortest hold counts. After that nobody reads the clock
//! for it. Times are converted to the fastest cores. While others want the lock, most of a hold goes into fetching data, on all cores
//! alike, so the time that a thread would need alone can't be seen for each class. A thread that has moved to a core of another class
//! meanwhile does not count.

use crate::wide::Apart;
use core::array;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Class, FULL_SPEED, Learning, Word};

/// How many sections are told apart.
const SITES: usize = 8;
/// How many acquisitions of a section are measured.
const WARM_UP: u32 = 32;
/// A section that isn't known yet counts as this long on the fastest cores, ns.
const UNKNOWN_NS: u32 = 1_000;

/// A section, on a class of cores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) class: Class,
    site: usize,
}

impl Section {
    /// The section that the calling thread is about to enter.
    pub(super) fn here<P: Learning>() -> Self {
        Self { class: P::place().class, site: P::site() as usize % SITES }
    }

    fn speed<P: Learning>(self) -> u64 {
        P::speed(self.class).max(1).into()
    }
}

impl Default for Section {
    fn default() -> Self {
        Self { class: Class::BIG, site: 0 }
    }
}

/// The sections' lengths, in a cache line.
pub(super) struct Lengths<P: Learning> {
    /// For each section: ns on the fastest cores, times 64, plus how often it was measured. Written by holders.
    known: Apart<P, [P::Word; SITES]>,
}

impl<P: Learning> Lengths<P> {
    pub(super) fn new() -> Self {
        Self { known: Apart::new(array::from_fn(|_| P::Word::new(0))) }
    }

    /// T_alone, ns; and is the section still being measured? Relaxed: hints.
    pub(super) fn of(&self, section: Section) -> (u32, bool) {
        let now = self.known[section.site].load(Relaxed);
        let alone = if now == 0 { UNKNOWN_NS } else { now / 64 };
        let alone = u64::from(alone) * u64::from(FULL_SPEED) / section.speed::<P>();
        (alone.min(u32::MAX.into()) as u32, now % 64 < WARM_UP)
    }

    /// The holder has held the lock for `held` ns.
    #[cold]
    pub(super) fn note(&self, section: Section, held: u32) {
        if section.class != P::place().class {
            return;
        }
        let held = u64::from(held) * section.speed::<P>() / u64::from(FULL_SPEED);
        let known = &self.known[section.site];
        let now = known.load(Relaxed); // holders alone write it
        let least = if now == 0 { held as u32 } else { (held as u32).min(now / 64) };
        known.store(least.clamp(1, u32::MAX / 64) * 64 + (now % 64 + 1).min(WARM_UP), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Lengths, Section, WARM_UP};
    use crate::testing::{Threads, run_on};

    #[test]
    fn the_least_time_of_the_warm_up_counts() {
        let lengths = Lengths::<Threads>::new();
        run_on(1);
        let section = Section::here::<Threads>();
        assert_eq!(lengths.of(section), (1_000, true));
        for held in [500, 300, 700] {
            lengths.note(section, held);
        }
        run_on(0);
        lengths.note(section, 1); // it has moved
        run_on(1);
        for _ in 3..WARM_UP {
            assert_eq!(lengths.of(section), (300, true));
            lengths.note(section, 400);
        }
        assert_eq!(lengths.of(section), (300, false));
    }
}
