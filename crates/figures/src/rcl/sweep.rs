//! RCL's microbenchmark under some locks, over the delay: the load, and from which share of time in sections RCL is faster.

use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Key, Load, Plan, Results, median};
use lockwright_sim::Outcome;

/// Mean delay between two critical sections, cycles, from low contention to high.
pub(super) const DELAYS: [f64; 9] = [1e6, 5e5, 2e5, 1e5, 5e4, 2e4, 1e4, 1e3, 0.0];
/// Machines (`None`: the figure's own, or its replacement), their hardware threads, and how their rows' names begin.
pub(super) const MACHINES: [(Option<&str>, u32, &str); 2] =
    [(None, 48, ""), (Some("niagara2-128"), 128, "niagara2-128 ")];

/// The microbenchmark: sections of `lines` cache lines, and a mean delay of `delay` cycles between them.
pub(super) fn load(lock: &str, machine: Option<&str>, lines: f64, delay: f64) -> Load {
    let load = Load::new("rcl", lock).with("lines", lines).with("delay", delay).lasting(1.0, 5.0);
    match machine {
        Some(machine) => load.machine(machine),
        None => load,
    }
}

/// Some locks on one machine.
pub(super) struct Sweep {
    threads: u32,
    locks: &'static [&'static str],
    /// Indexed by lock, then by delay.
    keys: Vec<Vec<Key>>,
}

impl Sweep {
    pub(super) fn plan(
        plan: &mut Plan,
        locks: &'static [&'static str],
        machine: Option<&str>,
        threads: u32,
        lines: f64,
    ) -> Self {
        let mut all = |lock: &&str| {
            DELAYS.map(|delay| plan.add(load(lock, machine, lines, delay).threads(threads)))
        };
        Self { threads, locks, keys: locks.iter().map(|lock| all(lock).to_vec()).collect() }
    }

    pub(super) fn keys(&self, lock: &str) -> &[Key] {
        let at = self.locks.iter().position(|one| *one == lock);
        &self.keys[at.expect("one of the locks that ran")]
    }

    /// The share of time from which RCL is faster than another lock, seed by seed.
    pub(super) fn overtakes(&self, results: &Results, other: &str) -> Vec<f64> {
        let of = |lock, what: &dyn Fn(&Outcome) -> f64| -> Vec<Vec<f64>> {
            self.keys(lock).iter().map(|&key| results.of(key, what)).collect()
        };
        let shares = of("glibc", &|outcome| share_of_time(outcome, self.threads));
        // Without a delay glibc's lock stays with one thread, which comes back at once. The paper's axis is logarithmic.
        let delayed = |mut all: Vec<Vec<f64>>| {
            all.truncate(DELAYS.iter().filter(|delay| **delay > 0.0).count());
            all
        };
        let shares = delayed(shares);
        let (ours, theirs) = (delayed(of("rcl", &mean_ns)), delayed(of(other, &mean_ns)));
        let seeds = ours.iter().chain(&theirs).map(Vec::len).min().unwrap_or(0);
        let at =
            |all: &[Vec<f64>], seed: usize| all.iter().map(|one| one[seed]).collect::<Vec<_>>();
        (0..seeds)
            .map(|seed| overtakes(&at(&shares, seed), &at(&ours, seed), &at(&theirs, seed)))
            .collect()
    }

    pub(super) fn plot(&self, results: &Results, name: &str, lines: f64) -> Plot {
        let series = self.locks.iter().zip(&self.keys).map(|(lock, keys)| {
            let us = |key| results.of(key, |outcome| mean_ns(outcome) / 1000.0);
            // The axis is logarithmic, so the delay of 0 is left out.
            let points = DELAYS.iter().zip(keys).filter(|(delay, _)| **delay > 0.0);
            let point = |(&delay, &key): (&f64, &Key)| Some((delay, median(&us(key))?));
            Series::new(*lock, Kind::Line, points.filter_map(point).collect())
        });
        Plot {
            name: name.to_owned(),
            title: format!(
                "{name}: critical sections of {lines} line{}, {} threads",
                if lines > 1.0 { "s" } else { "" },
                self.threads
            ),
            x: Axis::log("mean delay between two critical sections, cycles"),
            left: Axis::log("from the request to the release, µs"),
            right: None,
            series: series.filter(|series| !series.points.is_empty()).collect(),
        }
    }
}

/// Mean length of an operation, ns.
#[allow(clippy::cast_precision_loss, reason = "counts and times far below 2^52")]
pub(super) fn mean_ns(outcome: &Outcome) -> f64 {
    let busy: u64 = outcome.threads.iter().map(|thread| thread.busy_ns).sum();
    busy as f64 / outcome.operations as f64
}

/// Share of the threads' time that is spent in operations.
#[allow(clippy::cast_precision_loss, reason = "counts and times far below 2^52")]
fn share_of_time(outcome: &Outcome, threads: u32) -> f64 {
    let busy: u64 = outcome.threads.iter().map(|thread| thread.busy_ns).sum();
    busy as f64 * 1e-9 / (outcome.seconds * f64::from(threads))
}

/// The share from which on `ours` is always shorter than `theirs`, interpolated logarithmically between two points. 0
/// if it is shorter everywhere; not a number if it isn't even at the last point.
fn overtakes(shares: &[f64], ours: &[f64], theirs: &[f64]) -> f64 {
    let ahead: Vec<f64> =
        ours.iter().zip(theirs).map(|(ours, theirs)| (theirs / ours).ln()).collect();
    match ahead.iter().rposition(|&ahead| ahead <= 0.0) {
        None => 0.0,
        Some(last) if last + 1 == ahead.len() => f64::NAN,
        Some(last) => {
            let part = -ahead[last] / (ahead[last + 1] - ahead[last]);
            shares[last] + part * (shares[last + 1] - shares[last])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_overtakes_where_it_begins_to_be_ahead_for_good() {
        let shares = [0.1, 0.2, 0.4, 0.8];
        let even = overtakes(&shares, &[2.0, 1.0, 2.0, 1.0], &[1.0, 2.0, 1.0, 2.0]);
        assert!((even - 0.6).abs() < 1e-12, "{even}");
        assert_eq!(overtakes(&shares, &[1.0; 4], &[2.0; 4]), 0.0);
        assert!(overtakes(&shares, &[2.0; 4], &[1.0; 4]).is_nan());
    }
}
