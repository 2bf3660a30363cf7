//! `lockwright bench --workload rwlock`: most sections only read.

use super::bench::{CS, EXPONENTIAL, GAP, compute};
use crate::load::{ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "rwlock",
    idea: "every thread: read or write shared lines under a readers-writer lock, compute, unlock, compute",
    source: "lockwright bench --workload rwlock (docs/bench.md); a mutex serves readers as writers. Waits are the writers' alone",
    params: &[
        ParamSpec {
            key: "reads",
            meaning: "sections that only read, per cent, drawn each time",
            default: 90.0,
            min: 0.0,
            max: 100.0,
        },
        ParamSpec {
            key: "writers",
            meaning: "threads that only write, while the others only read; 0: each thread draws, see `reads`",
            default: 0.0,
            min: 0.0,
            max: 4096.0,
        },
        ParamSpec {
            key: "lines",
            meaning: "shared cache lines that a section reads, or reads and modifies",
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

fn setup(setup: &mut Setup) {
    let (lines, exponential) = (setup.count("lines"), setup.count("exponential") == 1);
    let (cs, gap) = (setup.param("cs"), setup.param("gap"));
    let (reads, writers) = (setup.param("reads") / 100.0, setup.count("writers"));
    let (lock, data) = (setup.lock(), setup.data(lines));
    setup.threads(move |me| {
        while me.goes_on() {
            let is_read = match writers {
                0 => me.chance() < reads,
                some => me.number() >= some,
            };
            me.operation(|| {
                if is_read {
                    me.reading(lock, || {
                        me.look(data, 0..lines);
                        compute(me, cs, exponential);
                    });
                } else {
                    me.locked(lock, || {
                        me.touch(data, 0..lines);
                        compute(me, cs, exponential);
                    });
                }
            });
            compute(me, gap, exponential);
        }
    });
}
