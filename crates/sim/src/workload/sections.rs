//! One lock, one critical section over some lines, a gap of NOPs: LibASL's motivation (Fig 1, Fig 4), Bench-4 and Bench-5.

use super::epochs::{Epochs, SLO, WINDOW};
use crate::load::{ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "sections",
    idea: "every thread: lock, read-modify-write shared lines, unlock, NOPs",
    source: "LibASL, PPoPP 2022, section 2.2 (Fig 1: 4 lines, Fig 4: 64 lines), Bench-4 (Fig 8e, 8f) and Bench-5 (Fig 8g: 2 lines)",
    params: &[
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that a critical section modifies",
            default: 4.0,
            min: 0.0,
            max: 4096.0,
        },
        ParamSpec {
            key: "gap",
            meaning: "NOPs between two critical sections",
            default: 0.0,
            min: 0.0,
            max: 1e9,
        },
        SLO,
        WINDOW,
    ],
    holds: false,
    setup: &setup,
};

fn setup(setup: &mut Setup) {
    let lines = setup.count("lines");
    let gap = setup.param("gap");
    let epochs = Epochs::of(setup);
    let (lock, data) = (setup.lock(), setup.data(lines));
    setup.threads(move |me| {
        while me.goes_on() {
            epochs.run(me, || me.locked(lock, || me.touch(data, 0..lines)));
            me.nops(gap);
        }
    });
}
