//! LibASL's Bench-1: heavy contention for two locks. With two threads per core it is Bench-6.

use super::epochs::{Epochs, GAP, SLO, Sections, WINDOW};
use crate::load::{ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "bench1",
    idea: "every thread: an epoch of four critical sections of different lengths under two locks, then NOPs",
    source: "LibASL, PPoPP 2022, section 4.1, Bench-1 (Fig 8a, 8b) and Bench-6 (Fig 8h, 8i)",
    params: &[
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that an epoch modifies, split 4 : 12 : 28 : 20",
            default: 64.0,
            min: 0.0,
            max: 65536.0,
        },
        GAP,
        SLO,
        WINDOW,
    ],
    holds: false,
    setup: &setup,
};

fn setup(setup: &mut Setup) {
    let (lines, gap) = (setup.count("lines"), setup.param("gap"));
    let (epochs, sections) = (Epochs::of(setup), Sections::new(setup, lines));
    setup.threads(move |me| {
        while me.goes_on() {
            epochs.run(me, || sections.run(me, lines, 0.0));
            me.nops(gap);
        }
    });
}
