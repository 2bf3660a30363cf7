//! LibASL's Bench-2: the length of the epochs changes four times in 350 ms.

use super::epochs::{Epochs, GAP, SLO, Sections, WINDOW};
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
        GAP,
        ParamSpec {
            key: "phase_ms",
            meaning: "half of the first phase, a seventh of all, ms",
            default: 50.0,
            min: 0.001,
            max: 1e6,
        },
        ParamSpec { default: 100.0, ..SLO },
        WINDOW,
    ],
    holds: false,
    setup: &setup,
};

/// The factor by which epochs are longer in the second phase, and at the end.
const LONGER: u32 = 128;
const IMPOSSIBLE: u32 = 1024;

/// The number of lines of an epoch that begins now; `lines` is the original length.
fn length(me: &Me, lines: u32, phase_ns: u64) -> u32 {
    match me.now_ns() / phase_ns {
        0..2 | 4 => lines,
        2..4 => lines * LONGER,
        5 => me.draw(0..lines * LONGER + 1),
        _ => lines * IMPOSSIBLE,
    }
}

fn setup(setup: &mut Setup) {
    let (lines, gap) = (setup.count("lines"), setup.param("gap"));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked range")]
    let phase_ns = (setup.param("phase_ms") * 1e6) as u64;
    let (epochs, sections) = (Epochs::of(setup), Sections::new(setup, lines * IMPOSSIBLE));
    setup.threads(move |me| {
        while me.goes_on() {
            let lines = length(me, lines, phase_ns);
            epochs.run(me, || sections.run(me, lines, 0.0));
            me.nops(gap);
        }
    });
}
