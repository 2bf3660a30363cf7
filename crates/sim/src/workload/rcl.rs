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
        ParamSpec {
            key: "locks",
            meaning: "locks, with data of their own; thread i uses lock i mod locks",
            default: 1.0,
            min: 1.0,
            max: 64.0,
        },
        ParamSpec {
            key: "servers",
            meaning: "servers for these locks, if the lock has any; all locks begin at the first one",
            default: 1.0,
            min: 1.0,
            max: 64.0,
        },
        ParamSpec {
            key: "block",
            meaning: "for how long a section of the last lock sleeps, ns",
            default: 0.0,
            min: 0.0,
            max: 1e9,
        },
        ParamSpec {
            key: "phase",
            meaning: "if not 0: the load changes this often, ns; in every second phase the delay is `other`",
            default: 0.0,
            min: 0.0,
            max: 1e10,
        },
        ParamSpec {
            key: "other",
            meaning: "the delay in every second phase, cycles",
            default: 0.0,
            min: 0.0,
            max: 1e9,
        },
        ParamSpec {
            key: "counts",
            meaning: "which phases' sections count: 0 all, 1 the first, third, ..., 2 the others",
            default: 0.0,
            min: 0.0,
            max: 2.0,
        },
    ],
    holds: false,
    setup: &setup,
};

fn setup(setup: &mut Setup) {
    let (lines, delay) = (setup.count("lines"), setup.param("delay"));
    let (locks, servers) = (setup.count("locks"), setup.count("servers"));
    let (block_ns, counts) = (setup.count("block"), setup.count("counts"));
    let (phase_ns, other) = (setup.param("phase") as u64, setup.param("other"));
    let first = setup.lock();
    let mut all = vec![(first, setup.data(lines))];
    for number in 1..locks {
        let lock = setup.lock_beside(first, number < servers);
        all.push((lock, setup.data(lines)));
    }
    setup.threads(move |me| {
        let number = me.number() as usize % all.len();
        let (lock, data) = all[number];
        let blocks = block_ns > 0 && number == all.len() - 1;
        while me.goes_on() {
            let section = || {
                me.locked(lock, || {
                    me.touch(data, 0..lines);
                    if blocks {
                        me.sleep(block_ns);
                    }
                });
            };
            let is_other = phase_ns > 0 && me.now_ns() / phase_ns % 2 == 1;
            match counts == 0 || (counts == 2) == is_other {
                true => me.operation(section),
                false => section(),
            }
            let delay = if is_other { other } else { delay };
            me.cycles(2.0 * delay * me.chance());
        }
    });
}
