//! LibASL's Bench-3: short and long epochs under one SLO.

use super::epochs::{Epochs, GAP, SLO, Sections, WINDOW};
use crate::load::{ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "bench3",
    idea: "bench1 of which a share of epochs is long by NOPs in its critical sections",
    source: "LibASL, PPoPP 2022, section 4.1, Bench-3 (Fig 8c)",
    params: &[
        ParamSpec {
            key: "long",
            meaning: "share of epochs that are long, 0 to 1",
            default: 0.5,
            min: 0.0,
            max: 1.0,
        },
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that an epoch modifies, split 4 : 12 : 28 : 20",
            default: 2.0,
            min: 0.0,
            max: 65536.0,
        },
        ParamSpec {
            key: "nops",
            meaning: "NOPs in the critical sections of a short epoch, split alike; a long one has 100 times as many",
            default: 3700.0,
            min: 0.0,
            max: 1e7,
        },
        GAP,
        ParamSpec { default: 100.0, ..SLO },
        WINDOW,
        ParamSpec {
            key: "window_long_us",
            meaning: "fixed reorder window of long epochs, µs; negative: as short ones",
            default: -1.0,
            min: -1.0,
            max: 100_000.0,
        },
    ],
    holds: false,
    setup: &setup,
};

/// The factor by which a long epoch has more NOPs.
const LONGER: f64 = 100.0;

fn setup(setup: &mut Setup) {
    let (lines, gap) = (setup.count("lines"), setup.param("gap"));
    let (share, nops) = (setup.param("long"), setup.param("nops"));
    let (short, sections) = (Epochs::of(setup), Sections::new(setup, lines));
    let long = short.within(setup.param("window_long_us"));
    setup.threads(move |me| {
        while me.goes_on() {
            if me.chance() < share {
                long.run(me, || sections.run(me, lines, nops * LONGER));
            } else {
                short.run(me, || sections.run(me, lines, nops));
            }
            me.nops(gap);
        }
    });
}
