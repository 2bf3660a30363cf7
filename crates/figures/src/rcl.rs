//! RCL's microbenchmark (Lozi, *Towards More Scalable Mutual Exclusion for Multicore Architectures*, PhD defence).
//!
//! The profiler's thresholds are shares of time in critical sections, from the request to the release, under POSIX
//! locks. A threshold is the smallest share from which on RCL is faster than another lock.

use crate::experiment::Experiment;
use crate::{Context, Error, Load, Measured, Plan, chosen, ratio};
use sweep::{MACHINES, Sweep, mean_ns};

mod amp;
mod combining;
mod crowded;
mod servers;
mod sweep;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "rcl-micro", measure: micro },
    Experiment { id: "rcl-combining", measure: combining::measure },
    Experiment { id: "rcl-crowded", measure: crowded::measure },
    Experiment { id: "rcl-amp", measure: amp::measure },
    Experiment { id: "rcl-servers", measure: servers::measure },
];

/// Spinlock, POSIX, MCS, the combining locks, and RCL; our own, for comparison.
const LOCKS: [&str; 8] =
    ["tas", "glibc", "mcs", "flat-combining", "cc-synch", "dsm-synch", "rcl", "combiner"];
fn micro(context: &Context<'_>) -> Result<Measured, Error> {
    let lines = chosen("rcl-micro", "lines")?;
    let mut plan = Plan::new();
    let sweeps = MACHINES
        .map(|(machine, threads, _)| Sweep::plan(&mut plan, &LOCKS, machine, threads, lines));
    let more = Sweep::plan(&mut plan, &LOCKS, MACHINES[0].0, MACHINES[0].1, 5.0);
    let mut tries =
        |threads| plan.add(Load::new("tries", "tas").threads(threads).lasting(1.0, 2.0));
    let (alone, together) = (tries(1), tries(MACHINES[0].1));
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for ((_, _, prefix), sweep) in MACHINES.iter().zip(&sweeps) {
        let over = |other| sweep.overtakes(&results, other);
        let all = [over("glibc"), over("tas"), over("mcs")];
        let largest = |seed: usize| all.iter().map(|one| one[seed]).fold(0.0, nan_or_max);
        measured.row(format!("{prefix}rcl overtakes glibc"), all[0].clone());
        measured
            .row(format!("{prefix}rcl overtakes all"), (0..all[0].len()).map(largest).collect());
    }
    let time = |key| results.of(key, mean_ns);
    measured.row("tas 48/1", ratio(&time(together), &time(alone)));
    let back_to_back = |lock: &str| time(*sweeps[0].keys(lock).last().expect("there are delays"));
    measured.row("tas/mcs, back to back", ratio(&back_to_back("tas"), &back_to_back("mcs")));
    measured.plots = vec![
        sweeps[0].plot(&results, "rcl-micro", lines),
        more.plot(&results, "rcl-micro-5", 5.0),
        sweeps[1].plot(&results, "rcl-micro-niagara2-128", lines),
    ];
    Ok(measured)
}

/// As `f64::max`, but NaN stays NaN.
fn nan_or_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

#[cfg(test)]
mod tests {
    use super::nan_or_max;

    #[test]
    fn without_a_number_there_is_no_largest() {
        assert!(nan_or_max(f64::NAN, 0.5).is_nan() && nan_or_max(0.5, f64::NAN).is_nan());
    }
}
