//! ASL-MAX: asl without SLOs: little cores stand by for the largest window, whatever the epoch.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, section 4.1, "LibASL-MAX": the most throughput that
//! reordering can give, and the longest waits of little cores.
//!
//! ```text
//!   arrival on a little core ─ standby, 100 ms or until free ─► line
//! ```
//!
//! Invariants: asl's.

use super::asl::{self, Asl};
use super::{Arrival, Parts, Tuning};
use crate::catalog::{Entry, Kind};
use lockwright_platform::Platform;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "asl-max",
    kind: Kind::Front,
    idea: "asl with the largest window, 100 ms, inside and outside of epochs",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4.1, LibASL-MAX",
    order: "as asl",
    space: "as asl",
    wakes: "as asl",
    delay: "a little core, by up to 100 ms; then as fifo",
    advice: "to see what reordering can give; programs that care for throughput alone",
    options: asl::ENTRY.options,
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct AslMax;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, AslMax>;

impl<P: Platform> Arrival<P> for AslMax {
    fn defaults(tuning: Tuning) -> Tuning {
        asl::fixed::<P>(tuning)
    }

    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        Asl::lock_slow(parts, tuning);
    }
}
