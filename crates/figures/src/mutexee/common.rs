//! What MUTEXEE's figures share: the paper's locks by our names, critical sections of so many cycles, and ranks.

use crate::{Key, Load, Results};
use lockwright_sim::Placement;

/// The paper's locks, by our names: without its own, and with it.
pub(super) const BASELINES: [&str; 5] = ["glibc", "tas", "ttas", "ticket", "mcs"];
pub(super) const LOCKS: [&str; 6] = ["glibc", "tas", "ttas", "ticket", "mcs", MUTEXEE];
/// MUTEXEE as published, with its constants in cycles.
pub(super) const MUTEXEE: &str = "mutexee-textbook";
/// Our rule of that idea, shown beside it.
pub(super) const OURS: &str = "mutexee";
/// Threads of figures with a thread on each core.
pub(super) const CROWD: u32 = 20;
/// Hardware threads of the paper's machine.
pub(super) const CPUS: u32 = 40;

/// Critical sections of `cs` cycles under one of `locks` locks.
pub(super) fn load(lock: &str, threads: u32, cs: f64, locks: f64) -> Load {
    let load = Load::new("cycles", lock).threads(threads).with("cs", cs).with("locks", locks);
    if threads > CPUS { load.placement(Placement::Free) } else { load }
}

pub(super) fn tpp(results: &Results, key: Key) -> Vec<f64> {
    results.of(key, |outcome| outcome.tpp)
}

/// The largest value among several locks, seed by seed; empty if one of them is missing.
pub(super) fn largest(locks: &[Vec<f64>]) -> Vec<f64> {
    by_seed(locks, |values| values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The smallest value, likewise.
pub(super) fn smallest(locks: &[Vec<f64>]) -> Vec<f64> {
    by_seed(locks, |values| values.iter().copied().fold(f64::INFINITY, f64::min))
}

fn by_seed(locks: &[Vec<f64>], what: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let seeds = locks.iter().map(Vec::len).min().unwrap_or(0);
    let of = |seed: usize| what(&locks.iter().map(|lock| lock[seed]).collect::<Vec<_>>());
    (0..seeds).map(of).collect()
}

/// Spearman's rank correlation; not a number with fewer than two different values on a side.
#[allow(clippy::cast_precision_loss, reason = "small counts")]
pub(super) fn rank_correlation(xs: &[f64], ys: &[f64]) -> f64 {
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
