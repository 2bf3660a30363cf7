//! A number of cycles under a lock that is drawn from several each time: MUTEXEE's microbenchmarks (Fig 8 to 12, Table
//! 2).
//!
//! As in the authors' programs (lockin, bmarks/stress_one_in.c and stress_test_in.c), a critical section computes and
//! touches no data. After a release, a thread waits for `fair` cycles per thread before it asks again, so that others
//! see the lock free. A thread that is alone doesn't wait.

use crate::load::{LockId, ParamSpec, Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "cycles",
    idea: "every thread: draw one of the locks, hold it for some cycles, wait a little for the others",
    source: "MUTEXEE (Unlocking Energy), USENIX ATC 2016, sections 5.1 and 5.2; the pause after a release as in lockin",
    params: &[
        ParamSpec {
            key: "locks",
            meaning: "locks, one of which is drawn each time",
            default: 1.0,
            min: 1.0,
            max: 65536.0,
        },
        ParamSpec {
            key: "cs",
            meaning: "cycles of computation in a critical section",
            default: 1000.0,
            min: 0.0,
            max: 1e9,
        },
        ParamSpec {
            key: "gap",
            meaning: "cycles of computation between two critical sections",
            default: 0.0,
            min: 0.0,
            max: 1e9,
        },
        ParamSpec {
            key: "fair",
            meaning: "cycles for each thread, if there are others, between a release and the next request",
            default: 30.0,
            min: 0.0,
            max: 1e6,
        },
    ],
    holds: false,
    setup: &setup,
};

fn setup(setup: &mut Setup) {
    let count = setup.count("locks");
    let locks: Vec<LockId> = (0..count).map(|_| setup.lock()).collect();
    let cs = setup.param("cs");
    let threads = setup.thread_count();
    let others = if threads > 1 { setup.param("fair") * f64::from(threads) } else { 0.0 };
    let gap = setup.param("gap") + others;
    setup.threads(move |me| {
        while me.goes_on() {
            let lock = locks[me.draw(0..count) as usize];
            me.operation(|| me.locked(lock, || me.cycles(cs)));
            me.cycles(gap);
        }
    });
}
