//! ASL-OPT: asl with a window that somebody chose, instead of feedback.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, section 4.1, "LibASL-OPT": the best static window, found by
//! trying, is what feedback is measured against.
//!
//! ```text
//!   arrival on a little core ─ standby, `window` ns or until free ─► line
//! ```
//!
//! Invariants: asl's.

use super::asl::{self, Asl};
use super::tuning::OPTION_WAIT;
use super::{Arrival, OPTION_SPIN, Parts, Tuning, fifo, option_bypass};
use crate::amp::standby::WINDOW_MAX_NS;
use crate::catalog::{Entry, Kind, OptionSpec};
use lockwright_platform::Platform;

/// The window, by default, ns.
const WINDOW_NS: u32 = 50_000;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "asl-opt",
    kind: Kind::Front,
    idea: "asl with a fixed window, inside and outside of epochs",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4.1, LibASL-OPT",
    order: "as asl",
    space: "as asl",
    wakes: "as asl",
    delay: "a little core, by `window`; then as fifo",
    advice: "to compare with asl; where one window suits all that a program does",
    options: &[
        OptionSpec {
            key: "window",
            meaning: "ns for which little cores let others go first (0: as fifo)",
            min: 0,
            max: WINDOW_MAX_NS,
            default: Some(WINDOW_NS),
        },
        OPTION_WAIT,
        OPTION_SPIN,
        option_bypass(fifo::BYPASS),
    ],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct AslOpt;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, AslOpt>;

impl<P: Platform> Arrival<P> for AslOpt {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { window_ns: WINDOW_NS, ..asl::fixed::<P>(tuning) }
    }

    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        Asl::lock_slow(parts, tuning);
    }
}
