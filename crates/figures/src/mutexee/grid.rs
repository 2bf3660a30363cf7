//! Figure 12: throughput and TPP over a grid of configurations. The paper has 2084, which it doesn't list; here are 216
//! from the same ranges.

use super::common::{BASELINES, LOCKS, MUTEXEE, OURS, load, rank_correlation};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Measured, Plan, Results};

/// The paper's locks, and ours.
const ALL: [&str; 7] = ["glibc", "tas", "ttas", "ticket", "mcs", MUTEXEE, OURS];
const THREADS: [u32; 6] = [1, 2, 4, 8, 12, 16];
const CYCLES: [f64; 6] = [0.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0];
const COUNTS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 512.0];

/// How many critical sections a configuration should have, over all threads.
const SECTIONS: f64 = 3000.0;
/// Simulated time that counts, ms: long enough for a few sleeps and wake-ups, and no longer than the longest sections
/// need.
const SHORTEST_MS: f64 = 0.4;
const LONGEST_MS: f64 = 0.8;

/// How long to simulate, ms: less if many short sections run at once, because the cost of a run grows with their
/// number.
fn lasting(threads: u32, cs: f64, locks: f64) -> f64 {
    // The cost of an acquisition and a release, in cycles; and cycles per ms on the paper's machine.
    const LOCKING: f64 = 150.0;
    const PER_MS: f64 = 2.8e6;
    let at_once = f64::from(threads).min(locks);
    (SECTIONS * (cs + LOCKING) / at_once / PER_MS).clamp(SHORTEST_MS, LONGEST_MS)
}

/// Throughput and TPP of one lock in one configuration.
#[derive(Clone, Copy)]
struct Efficiency {
    throughput: f64,
    tpp: f64,
}

/// The results of one seed: configuration by configuration, lock by lock.
type Grid = Vec<Vec<Efficiency>>;

/// The grid, with all locks, or without MUTEXEE.
pub(super) fn figure_12(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let mut keys: Vec<Vec<Key>> = Vec::new();
    for threads in THREADS {
        for cs in CYCLES {
            for count in COUNTS {
                let ms = lasting(threads, cs, count);
                let load = |lock| load(lock, threads, cs, count).lasting(0.2, ms).often();
                keys.push(ALL.iter().map(|lock| plan.add(load(lock))).collect());
            }
        }
    }
    let results = plan.run(context)?;
    let grids = |locks: &[&str]| {
        let grids: Option<Vec<Grid>> =
            (0..context.often as usize).map(|seed| grid(&results, &keys, locks, seed)).collect();
        grids.unwrap_or_default()
    };
    let (all, baselines) = (grids(&LOCKS), grids(&BASELINES));
    let mut measured = Measured::new();
    let mut row = |name, grids: &[Grid], what: &dyn Fn(&Grid) -> f64| {
        measured.row(name, grids.iter().map(what).collect());
    };
    row("best is best", &all, &best_is_best);
    row("best is best, without mutexee", &baselines, &best_is_best);
    row("otherwise throughput", &all, &|grid| otherwise(grid, |point| point.throughput));
    row("otherwise tpp", &all, &|grid| otherwise(grid, |point| point.tpp));
    let pair = grids(&[MUTEXEE, "glibc"]);
    row("mutexee/glibc", &pair, &faster);
    row("tpp mutexee/glibc", &pair, &|grid| mean(grid.iter().map(|p| p[0].tpp / p[1].tpp)));
    row("glibc better", &pair, &|grid| share(grid, |p| p[1].throughput > p[0].throughput));
    row("throughput and tpp", &baselines, &correlation);
    let ours = grids(&[OURS, "glibc"]);
    measured.also("our mutexee/glibc", ours.iter().map(faster).collect());
    measured.plots = vec![plot(&results, &keys)];
    Ok(measured)
}

/// Throughput of the first of two locks to the other's: the mean over the configurations.
fn faster(grid: &Grid) -> f64 {
    mean(grid.iter().map(|pair| pair[0].throughput / pair[1].throughput))
}

/// `None` if one of the locks is missing.
fn grid(results: &Results, keys: &[Vec<Key>], locks: &[&str], seed: usize) -> Option<Grid> {
    let point = |keys: &Vec<Key>, lock: &str| {
        let lock = ALL.iter().position(|one| *one == lock).expect("one of those");
        let outcome = results.outcomes(keys[lock]).get(seed)?;
        Some(Efficiency { throughput: outcome.throughput, tpp: outcome.tpp })
    };
    keys.iter().map(|keys| locks.iter().map(|lock| point(keys, lock)).collect()).collect()
}

/// Which lock has the most of something.
fn best(points: &[Efficiency], of: impl Fn(&Efficiency) -> f64) -> usize {
    let order = |&a: &usize, &b: &usize| of(&points[a]).total_cmp(&of(&points[b]));
    (0..points.len()).max_by(order).expect("there are locks")
}

fn agree(points: &[Efficiency]) -> bool {
    best(points, |point| point.throughput) == best(points, |point| point.tpp)
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred")]
fn share(grid: &Grid, what: impl Fn(&[Efficiency]) -> bool) -> f64 {
    grid.iter().filter(|points| what(points)).count() as f64 / grid.len() as f64
}

fn best_is_best(grid: &Grid) -> f64 {
    share(grid, agree)
}

/// Where the two best locks differ: the best value of one measure, relative to that of the lock
/// that is best by the other.
fn otherwise(grid: &Grid, of: impl Fn(&Efficiency) -> f64) -> f64 {
    let apart = grid.iter().filter(|points| !agree(points));
    mean(apart.map(|points| {
        let by_throughput = of(&points[best(points, |point| point.throughput)]);
        let by_tpp = of(&points[best(points, |point| point.tpp)]);
        by_throughput.max(by_tpp) / by_throughput.min(by_tpp)
    }))
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred")]
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count)
}

fn correlation(grid: &Grid) -> f64 {
    let of = |what: fn(&Efficiency) -> f64| grid.iter().flatten().map(what).collect::<Vec<_>>();
    rank_correlation(&of(|point| point.throughput), &of(|point| point.tpp))
}

/// The paper's plot: TPP over throughput, both relative to the largest.
fn plot(results: &Results, keys: &[Vec<Key>]) -> Plot {
    let points = |lock: usize| {
        let outcomes = keys.iter().filter_map(move |keys| results.outcomes(keys[lock]).first());
        outcomes.map(|outcome| (outcome.throughput, outcome.tpp)).collect::<Vec<_>>()
    };
    let all: Vec<Vec<(f64, f64)>> = (0..LOCKS.len()).map(points).collect();
    let most = |of: fn(&(f64, f64)) -> f64| all.iter().flatten().map(of).fold(0.0, f64::max);
    let (throughput, tpp) = (most(|point| point.0), most(|point| point.1));
    let series = LOCKS.iter().zip(&all).filter(|(_, points)| !points.is_empty());
    let series = series.map(|(lock, points)| {
        let points = points.iter().map(|point| (point.0 / throughput, point.1 / tpp)).collect();
        Series::new(*lock, Kind::Dots, points)
    });
    Plot {
        name: "mutexee-12".to_owned(),
        title: format!(
            "mutexee-12: TPP and throughput of {} configurations, each to the largest",
            keys.len()
        ),
        x: Axis::linear("throughput"),
        left: Axis::linear("TPP"),
        right: None,
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(all: &[(f64, f64)]) -> Vec<Efficiency> {
        all.iter().map(|&(throughput, tpp)| Efficiency { throughput, tpp }).collect()
    }

    #[test]
    fn the_grid_is_of_two_hundred_points_and_short_where_much_is_done() {
        assert!(THREADS.len() * CYCLES.len() * COUNTS.len() >= 200);
        assert_eq!((lasting(1, 8000.0, 1.0), lasting(16, 0.0, 512.0)), (LONGEST_MS, SHORTEST_MS));
        let middle = lasting(1, 250.0, 1.0);
        assert!((SHORTEST_MS..LONGEST_MS).contains(&middle), "{middle}");
    }

    #[test]
    fn the_bests_agree_or_differ_by_so_much() {
        let together = points(&[(1.0, 10.0), (2.0, 20.0)]);
        let apart = points(&[(1.0, 30.0), (1.5, 20.0)]);
        let grid = vec![together.clone(), together, apart.clone(), apart];
        assert!((best_is_best(&grid) - 0.5).abs() < 1e-12);
        assert!((otherwise(&grid, |point| point.throughput) - 1.5).abs() < 1e-12);
        assert!((otherwise(&grid, |point| point.tpp) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn throughput_and_tpp_correlate_over_all_points() {
        let grid = vec![points(&[(1.0, 1.0), (2.0, 3.0)]), points(&[(3.0, 2.0), (4.0, 4.0)])];
        assert!((correlation(&grid) - 0.8).abs() < 1e-12);
    }
}
