//! One lock, critical sections of different lengths, a gap of NOPs: CAL's microbenchmark (Fig 3, 7 and 8).
//!
//! The paper doesn't publish how many rows (cache lines) a critical section touches, or which thread runs which
//! section. We use four lengths, from `rows` up in equal steps. A thread draws one each time.
//!
//! An operation is what the paper calls the completion of a critical section: from the request to the release. So a
//! thread's mean operation is its `T_shared`, or its `T_alone` where it runs alone.

use crate::load::{ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "cal",
    idea: "every thread: lock, one of four lengths of read-modify-write of shared lines, unlock, NOPs",
    source: "CAL, Applied Sciences 2024, section 4.2 (Fig 7, Fig 8) and 2.3.2 (Fig 3)",
    params: &[
        ParamSpec {
            key: "rows",
            meaning: "shared cache lines that the shortest of the four critical sections modifies; the longest, 4 times as many",
            default: 8.0,
            min: 1.0,
            max: 1024.0,
        },
        ParamSpec {
            key: "gap",
            meaning: "NOPs between two critical sections",
            default: 12_000.0,
            min: 0.0,
            max: 1e9,
        },
    ],
    holds: false,
    setup: &setup,
};

/// Lengths of critical sections.
const LENGTHS: u32 = 4;

fn setup(setup: &mut Setup) {
    let (rows, gap) = (setup.count("rows"), setup.param("gap"));
    let (lock, data) = (setup.lock(), setup.data(rows * LENGTHS));
    setup.threads(move |me| {
        while me.goes_on() {
            let length = me.draw(0..LENGTHS);
            let lines = rows * (1 + length);
            me.asks_for(1 + length);
            me.operation(|| me.locked(lock, || me.touch(data, 0..lines)));
            me.nops(gap);
        }
    });
}
