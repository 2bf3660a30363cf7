//! The figures of MUTEXEE (*Unlocking Energy*, USENIX ATC 2016).
//!
//! MUTEX is glibc's default mutex: the authors' programs initialize that one (lockin, bmarks/stress_one_in.c), although
//! the paper's Table 1 describes a mutex that spins first. Threads are placed like the paper's: on the cores of one
//! socket, then on those of the other, then on hyper-threads. With more threads than hardware threads, the scheduler
//! places them.

mod alone;
mod grid;
mod single;
mod systems;

use crate::{Experiment, Key, Load, Results};
use lockwright_sim::Placement;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "mutexee-1", measure: systems::figure_1 },
    Experiment { id: "mutexee-8", measure: single::figure_8 },
    Experiment { id: "mutexee-9", measure: single::figure_9 },
    Experiment { id: "mutexee-10", measure: single::figure_10 },
    Experiment { id: "mutexee-11", measure: single::figure_11 },
    Experiment { id: "mutexee-12", measure: grid::figure_12 },
    Experiment { id: "mutexee-13", measure: systems::figure_13 },
    Experiment { id: "mutexee-t2", measure: alone::table_2 },
];

/// The parts that fits need: the fitted rows, measured as in the whole figure.
pub static FITTED: &[Experiment] = &[Experiment { id: "mutexee-11", measure: single::rows_of_11 }];

/// The paper's locks, by our names: without its own, and with it.
const BASELINES: [&str; 5] = ["glibc", "tas", "ttas", "ticket", "mcs"];
const LOCKS: [&str; 6] = ["glibc", "tas", "ttas", "ticket", "mcs", MUTEXEE];
/// MUTEXEE as published, with its constants in cycles.
const MUTEXEE: &str = "mutexee-textbook";
/// Our rule of that idea, shown beside it.
const OURS: &str = "mutexee";
/// Threads of figures with a thread on each core.
const CROWD: u32 = 20;
/// Hardware threads of the paper's machine.
const CPUS: u32 = 40;

/// Critical sections of `cs` cycles under one of `locks` locks.
fn load(lock: &str, threads: u32, cs: f64, locks: f64) -> Load {
    let load = Load::new("cycles", lock).threads(threads).with("cs", cs).with("locks", locks);
    if threads > CPUS { load.placement(Placement::Free) } else { load }
}

fn tpp(results: &Results, key: Key) -> Vec<f64> {
    results.of(key, |outcome| outcome.tpp)
}

/// The largest value among several locks, seed by seed; empty if one of them is missing.
fn largest(locks: &[Vec<f64>]) -> Vec<f64> {
    by_seed(locks, |values| values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The smallest value, likewise.
fn smallest(locks: &[Vec<f64>]) -> Vec<f64> {
    by_seed(locks, |values| values.iter().copied().fold(f64::INFINITY, f64::min))
}

fn by_seed(locks: &[Vec<f64>], what: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let seeds = locks.iter().map(Vec::len).min().unwrap_or(0);
    let of = |seed: usize| what(&locks.iter().map(|lock| lock[seed]).collect::<Vec<_>>());
    (0..seeds).map(of).collect()
}

/// Spearman's rank correlation; not a number with fewer than two different values on a side.
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn rank_correlation(xs: &[f64], ys: &[f64]) -> f64 {
    let (xs, ys) = (ranks(xs), ranks(ys));
    let mean = (xs.len() as f64 + 1.0) / 2.0;
    let covariance = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    covariance(&xs, &ys) / (covariance(&xs, &xs) * covariance(&ys, &ys)).sqrt()
}

/// Ranks from 1; equal values share the mean of their ranks.
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_is_that_of_ranks() {
        assert!((rank_correlation(&[1.0, 2.0, 30.0], &[5.0, 6.0, 7.0]) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!(
            (rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 4.0, 3.0]) - 0.6).abs() < 1e-12
        );
        assert!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
        assert_eq!(ranks(&[5.0, 7.0, 5.0]), [1.5, 3.0, 1.5]);
    }

    #[test]
    fn locks_are_compared_seed_by_seed_and_only_if_all_are_there() {
        let locks = [vec![1.0, 5.0], vec![2.0, 3.0]];
        assert_eq!((largest(&locks), smallest(&locks)), (vec![2.0, 5.0], vec![1.0, 3.0]));
        assert!(largest(&[vec![1.0], vec![]]).is_empty());
    }

    #[test]
    fn threads_beyond_the_cpus_are_the_schedulers() {
        assert!(format!("{:?}", load("mcs", 40, 1.0, 1.0)).contains("Pinned"));
        assert!(format!("{:?}", load("mcs", 60, 1.0, 1.0)).contains("Free"));
    }
}
