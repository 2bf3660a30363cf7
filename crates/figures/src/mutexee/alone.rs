//! Table 2: one thread, critical sections of 100 cycles.

use super::common::{BASELINES, LOCKS, MUTEXEE, load, smallest};
use crate::{Context, Error, Measured, Plan, ratio};

/// Throughput and TPP without contention.
pub(super) fn table_2(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let keys = LOCKS.map(|lock| plan.add(load(lock, 1, 100.0, 1.0).lasting(1.0, 5.0)));
    let results = plan.run(context)?;
    let key = |lock| keys[LOCKS.iter().position(|one| *one == lock).expect("one of the paper's")];
    let throughput = |lock| results.throughput(key(lock));
    let tpp = |lock| results.of(key(lock), |outcome| outcome.tpp);
    let mut measured = Measured::new();
    for lock in ["tas", "ttas", "ticket"] {
        measured.row(format!("{lock}/glibc"), ratio(&throughput(lock), &throughput("glibc")));
    }
    let simple = smallest(&["tas", "ttas", "ticket"].map(throughput));
    measured.row("mcs/worst simple", ratio(&throughput("mcs"), &simple));
    measured.row("mutexee/worst simple", ratio(&throughput(MUTEXEE), &simple));
    for lock in BASELINES {
        let of = |scale: f64, values: Vec<f64>| values.into_iter().map(|one| one / scale).collect();
        measured.also(format!("{lock}, M acquisitions a second"), of(1e6, throughput(lock)));
        measured.also(format!("{lock}, TPP, K acquisitions a joule"), of(1e3, tpp(lock)));
    }
    Ok(measured)
}
