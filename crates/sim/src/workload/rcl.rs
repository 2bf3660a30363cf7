//! A critical section over one or a few shared lines, then a delay of random length: RCL's microbenchmark.
//!
//! An operation is a critical section, from the request to the release. The paper plots its time over the delay.

use crate::load::{ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "rcl",
    idea: "every thread: lock, read-modify-write shared lines, unlock, a delay of random length",
    source: "RCL: Lozi, Towards More Scalable Mutual Exclusion, PhD defence (\"custom microbenchmark\"); USENIX ATC 2012, section 5",
    params: &[
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that a critical section modifies (the paper has 1 and 5)",
            default: 1.0,
            min: 0.0,
            max: 4096.0,
        },
        ParamSpec {
            key: "delay",
            meaning: "cycles between two critical sections, on average; each is drawn evenly from 0 to twice that",
            default: 0.0,
            min: 0.0,
            max: 1e9,
        },
    ],
    holds: false,
    setup: &setup,
};

fn setup(setup: &mut Setup) {
    let (lines, delay) = (setup.count("lines"), setup.param("delay"));
    let (lock, data) = (setup.lock(), setup.data(lines));
    setup.threads(move |me| {
        while me.goes_on() {
            me.operation(|| me.locked(lock, || me.touch(data, 0..lines)));
            me.cycles(2.0 * delay * me.chance());
        }
    });
}
