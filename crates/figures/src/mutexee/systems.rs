//! Figures 1 and 13: two programs.

use super::common::{CROWD, MUTEXEE, load, tpp};
use crate::{Context, Error, Key, Load, Measured, Plan, chosen, ratio};
use lockwright_sim::Placement;

/// CopyOnWriteArrayList.
pub(super) fn figure_1(context: &Context<'_>) -> Result<Measured, Error> {
    let cs = chosen("mutexee-1", "cs")?;
    let mut plan = Plan::new();
    let load = |lock| load(lock, CROWD, cs, 1.0).lasting(2.0, 20.0).often();
    let (spinlock, mutex) = (plan.add(load("ttas")), plan.add(load("glibc")));
    let results = plan.run(context)?;
    let watts = |key| results.of(key, |outcome| outcome.watts);
    let mut measured = Measured::new();
    let throughput = ratio(&results.throughput(spinlock), &results.throughput(mutex));
    measured.row("spinlock/mutex", throughput);
    measured.row("power spinlock/mutex", ratio(&watts(spinlock), &watts(mutex)));
    measured.row("tpp spinlock/mutex", ratio(&tpp(&results, spinlock), &tpp(&results, mutex)));
    Ok(measured)
}

/// SQLite.
pub(super) fn figure_13(context: &Context<'_>) -> Result<Measured, Error> {
    let scale = chosen("mutexee-13", "scale")?;
    let mut plan = Plan::new();
    let mut add = |lock: &str, threads: u32| {
        let load = Load::new("sqlite", lock).with("scale", scale).threads(threads);
        let load =
            if threads > super::common::CPUS { load.placement(Placement::Free) } else { load };
        plan.add(load.lasting(5.0, 50.0).often())
    };
    let pairs = [32, 64].map(|threads| (threads, add(MUTEXEE, threads), add("glibc", threads)));
    let ticket = add("ticket", 64);
    let results = plan.run(context)?;
    let watts = |key: Key| results.of(key, |outcome| outcome.watts);
    let throughput = |key: Key| results.throughput(key);
    let mut measured = Measured::new();
    for (threads, mutexee, glibc) in pairs {
        let power = ratio(&watts(mutexee), &watts(glibc));
        measured.row(format!("power mutexee/glibc {threads}"), power);
        let faster = ratio(&throughput(mutexee), &throughput(glibc));
        measured.also(format!("mutexee/glibc {threads}"), faster);
    }
    let (_, _, glibc) = pairs[1];
    measured.row("ticket/glibc 64", ratio(&throughput(ticket), &throughput(glibc)));
    measured.row("p99 ticket/glibc 64", ratio(&results.p99(ticket), &results.p99(glibc)));
    Ok(measured)
}
