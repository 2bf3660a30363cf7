//! LibASL's Bench-2: the length of the epochs changes four times in 350 ms.

use super::epochs::{Epochs, SLO, Sections, WINDOW};
use crate::load::{Me, ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "bench2",
    idea: "bench1 whose epochs are 128 times longer from 100 to 200 ms, of random length from 250 to 300 ms, then 1024 times",
    source: "LibASL, PPoPP 2022, section 4.1, Bench-2 (Fig 8d)",
    params: &[
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that an epoch of the original length modifies, split 4 : 12 : 28 : 20",
            default: 2.0,
            min: 0.0,
            max: 64.0,
        },
        ParamSpec {
            key: "gap",
            meaning: "NOPs between two epochs",
            default: 600.0,
            min: 0.0,
            max: 1e9,
        },
        ParamSpec { default: 100.0, ..SLO },
        WINDOW,
    ],
    setup,
};

/// How much longer its epochs are in the second phase, and at the end.
const LONGER: u32 = 128;
const IMPOSSIBLE: u32 = 1024;

/// The number of lines of an epoch that begins now; `lines` is the original length.
fn length(me: &Me, lines: u32) -> u32 {
    match me.now_ns() / 1_000_000 {
        0..100 | 200..250 => lines,
        100..200 => lines * LONGER,
        250..300 => me.draw(0..lines * LONGER + 1),
        _ => lines * IMPOSSIBLE,
    }
}

fn setup(setup: &mut Setup) {
    let (lines, gap) = (setup.count("lines"), setup.param("gap"));
    let (epochs, sections) = (Epochs::of(setup), Sections::new(setup, lines * IMPOSSIBLE));
    setup.threads(move |me| {
        while me.goes_on() {
            let lines = length(me, lines);
            epochs.run(me, || sections.run(me, lines, 0.0));
            me.nops(gap);
        }
    });
}
