//! `lockwright bench`'s loop, for comparisons with real machines: lines, then computation, of fixed or of random length.

use crate::load::{Me, ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "bench",
    idea: "every thread: lock, read-modify-write shared lines, compute, unlock, compute",
    source: "lockwright bench (docs/bench.md), so that the same can be measured on a real machine: docs/sim.md, Validation",
    params: &[
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that a critical section modifies",
            default: 1.0,
            min: 0.0,
            max: 4096.0,
        },
        CS,
        GAP,
        EXPONENTIAL,
    ],
    holds: false,
    setup: &setup,
};

pub(super) const CS: ParamSpec = ParamSpec {
    key: "cs",
    meaning: "computation in a critical section after that, ns on the fastest class",
    default: 100.0,
    min: 0.0,
    max: 1e9,
};

pub(super) const GAP: ParamSpec = ParamSpec {
    key: "gap",
    meaning: "computation between two critical sections, ns on the fastest class",
    default: 400.0,
    min: 0.0,
    max: 1e9,
};

pub(super) const EXPONENTIAL: ParamSpec = ParamSpec {
    key: "exponential",
    meaning: "1: lengths of computation are drawn each time, exponentially, with these means; 0: they are fixed",
    default: 0.0,
    min: 0.0,
    max: 1.0,
};

/// Computes for a time whose mean is `mean_ns`.
pub(super) fn compute(me: &Me, mean_ns: f64, exponential: bool) {
    // Without any computation nothing is called, as in the real loop.
    if mean_ns > 0.0 {
        me.compute(if exponential { -mean_ns * (1.0 - me.chance()).ln() } else { mean_ns });
    }
}

fn setup(setup: &mut Setup) {
    let (lines, exponential) = (setup.count("lines"), setup.count("exponential") == 1);
    let (cs, gap) = (setup.param("cs"), setup.param("gap"));
    let (lock, data) = (setup.lock(), setup.data(lines));
    setup.threads(move |me| {
        while me.goes_on() {
            me.operation(|| {
                me.locked(lock, || {
                    me.touch(data, 0..lines);
                    compute(me, cs, exponential);
                });
            });
            compute(me, gap, exponential);
        }
    });
}
