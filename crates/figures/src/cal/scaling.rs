//! Figures 3, 7 and 8: one lock, four lengths of critical sections, from 1 to 10 threads.

use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, median, ratio};
use lockwright_sim::{Outcome, Placement};

/// The paper's locks, by our names. `cptltkt` is a cohort lock of a partitioned and a plain ticket lock. The last one
/// is the paper's own lock as published.
const LOCKS: [&str; 7] = ["cal", "ticket", "cptltkt", "ttas", "tas", "glibc", PUBLISHED];
/// CAL as published; `cal` is our rule of that idea.
const PUBLISHED: &str = "cal-textbook";
const THREADS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// The figure of LevelDB.
const DATABASE: &str = "cal-9";
/// The figures in which a row is judged by its sign, and the locks of that row.
const SIGNS: [&str; 2] = ["cal-7", DATABASE];
const SIGN_OF: [&str; 2] = ["cal", "ticket"];
/// Big cores of the machine, which are filled first.
const BIG: u32 = 6;

struct Scaling {
    results: Results,
    locks: &'static [&'static str],
    threads: &'static [u32],
    /// Indexed by lock, then by threads.
    keys: Vec<Vec<Key>>,
    /// For each lock: a thread alone on a big core, and alone on a little one.
    alone: Vec<[Key; 2]>,
}

impl Scaling {
    fn run(
        context: &Context<'_>,
        figure: &str,
        locks: &'static [&'static str],
        threads: &'static [u32],
    ) -> Result<Self, Error> {
        let points = match figure {
            DATABASE => Load::new("leveldb", "ticket").with("scale", chosen(figure, "scale")?),
            _ => {
                let load = Load::new("cal", "ticket").with("rows", chosen(figure, "rows")?);
                load.with("gap", chosen(figure, "gap")?)
            }
        };
        let mut plan = Plan::new();
        let load = |lock: &str, threads| {
            let load = points.clone().lock(lock).threads(threads).lasting(1.0, 10.0);
            if SIGNS.contains(&figure) && SIGN_OF.contains(&lock) { load.often() } else { load }
        };
        let mut keys = Vec::new();
        let mut alone = Vec::new();
        for lock in locks {
            keys.push(threads.iter().map(|&threads| plan.add(load(lock, threads))).collect());
            alone.push(
                [0, BIG].map(|cpu| plan.add(load(lock, 1).placement(Placement::Cpus(vec![cpu])))),
            );
        }
        Ok(Self { results: plan.run(context)?, locks, threads, keys, alone })
    }

    fn lock(&self, lock: &str) -> usize {
        self.locks.iter().position(|one| *one == lock).expect("a row asks for locks that were run")
    }

    fn key(&self, lock: &str, threads: u32) -> Key {
        let place = self.threads.iter().position(|&one| one == threads);
        self.keys[self.lock(lock)][place.expect("a row asks for threads that were run")]
    }

    fn throughput(&self, lock: &str, threads: u32) -> Vec<f64> {
        self.results.throughput(self.key(lock, threads))
    }

    fn p99(&self, lock: &str, threads: u32) -> Vec<f64> {
        self.results.p99(self.key(lock, threads))
    }

    fn fairness(&self, lock: &str, threads: u32) -> Vec<f64> {
        let [big, little] = self.alone[self.lock(lock)].map(|key| self.results.outcomes(key));
        let shared = self.results.outcomes(self.key(lock, threads));
        let alone =
            big.iter().zip(little).map(|(big, little)| [mean_ns(big, 0), mean_ns(little, 0)]);
        shared.iter().zip(alone).map(|(shared, alone)| fairness(shared, alone)).collect()
    }

    /// The largest value among several locks, seed by seed; empty if one of them is missing.
    fn largest(locks: &[Vec<f64>]) -> Vec<f64> {
        let seeds = locks.iter().map(Vec::len).min().unwrap_or(0);
        let largest = |seed: usize| locks.iter().map(|lock| lock[seed]).fold(0.0, f64::max);
        (0..seeds).map(largest).collect()
    }

    fn plots(&self, figure: &str) -> Vec<Plot> {
        let panel = |part: &str, label: &str, of: &dyn Fn(&str, u32) -> Vec<f64>| {
            let series = self.locks.iter().map(|lock| {
                let point =
                    |&threads: &u32| Some((f64::from(threads), median(&of(lock, threads))?));
                let kind = if self.threads.len() > 1 { Kind::Line } else { Kind::Marks };
                Series::new(*lock, kind, self.threads.iter().filter_map(point).collect())
            });
            Plot {
                name: format!("{figure}-{part}"),
                title: format!("{figure}: {part}, from 1 to 6 big cores, then 1 to 4 little ones"),
                x: Axis::linear("threads"),
                left: Axis::linear(label),
                right: None,
                series: series.filter(|series| !series.points.is_empty()).collect(),
            }
        };
        let throughput = |lock: &str, threads| {
            self.throughput(lock, threads).into_iter().map(|one| one / 1e6).collect()
        };
        vec![
            panel("fairness", "smallest slowdown to largest (ratio)", &|lock, n| {
                self.fairness(lock, n)
            }),
            panel("throughput", "critical sections a microsecond", &throughput),
            panel("latency", "P99 latency, µs", &|lock, n| self.p99(lock, n)),
        ]
    }
}

/// Mean length of a thread's critical sections, from the request to the release, ns; infinite if it had none.
#[allow(clippy::cast_precision_loss, reason = "counts and times far below 2^52")]
fn mean_ns(outcome: &Outcome, thread: usize) -> f64 {
    let thread = &outcome.threads[thread];
    if thread.operations == 0 {
        return f64::INFINITY;
    }
    thread.busy_ns as f64 / thread.operations as f64
}

/// The smallest slowdown divided by the largest; `alone` is how long a big core takes, and a little one.
fn fairness(shared: &Outcome, alone: [f64; 2]) -> f64 {
    let slowdown = |thread| mean_ns(shared, thread) / alone[usize::from(thread >= BIG as usize)];
    let slowdowns: Vec<f64> = (0..shared.threads.len()).map(slowdown).collect();
    smallest_to_largest(&slowdowns)
}

fn smallest_to_largest(values: &[f64]) -> f64 {
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    smallest / values.iter().copied().fold(0.0, f64::max)
}

/// Fairness of a ticket lock.
pub(super) fn figure_3(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context, "cal-3", &["ticket"], &THREADS)?;
    let fairness = |threads| scaling.fairness("ticket", threads);
    let mut measured = Measured::new();
    measured.row("fairness ticket-6", fairness(6));
    measured.row("fairness ticket-10", fairness(10));
    measured.row("fairness ticket-7/ticket-6", ratio(&fairness(7), &fairness(6)));
    measured.plots = scaling.plots("cal-3");
    measured.plots.truncate(1);
    Ok(measured)
}

/// All cores.
pub(super) fn figure_7(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context, "cal-7", &LOCKS, &[10])?;
    let fairness = |lock| scaling.fairness(lock, 10);
    let throughput = |lock| scaling.throughput(lock, 10);
    let p99 = |lock| scaling.p99(lock, 10);
    let to_ticket = |lock| ratio(&throughput(lock), &throughput("ticket"));
    let p99_to_ticket = |lock| ratio(&p99(lock), &p99("ticket"));
    let mut measured = Measured::new();
    measured.row("fairness ticket", fairness("ticket"));
    measured.row("fairness cal", fairness("cal"));
    measured.row("fairness cal/ticket", ratio(&fairness("cal"), &fairness("ticket")));
    measured.row("cal/ticket", to_ticket("cal"));
    measured.row("p99 cal/ticket", p99_to_ticket("cal"));
    let others = Scaling::largest(&["ticket", "tas", "glibc"].map(throughput));
    measured.row("ttas/best other", ratio(&throughput("ttas"), &others));
    measured.row("p99 ttas/ticket", p99_to_ticket("ttas"));
    measured.row("spinlock/ticket", to_ticket("tas"));
    measured.row("glibc/ticket", to_ticket("glibc"));
    measured.row("p99 spinlock/ticket", p99_to_ticket("tas"));
    measured.row("p99 glibc/ticket", p99_to_ticket("glibc"));
    measured.row("cptltkt/ticket", to_ticket("cptltkt"));
    measured.also(format!("{PUBLISHED}/ticket"), to_ticket(PUBLISHED));
    measured.also(format!("p99 {PUBLISHED}/ticket"), p99_to_ticket(PUBLISHED));
    for lock in [PUBLISHED, "ttas", "tas", "glibc"] {
        measured.also(format!("fairness {lock}"), fairness(lock));
    }
    measured.plots = scaling.plots("cal-7");
    Ok(measured)
}

/// From 1 to 10 threads.
pub(super) fn figure_8(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context, "cal-8", &LOCKS, &THREADS)?;
    let fairness = |lock, threads| scaling.fairness(lock, threads);
    let throughput = |lock, threads| scaling.throughput(lock, threads);
    let to_ticket =
        |lock, threads| ratio(&throughput(lock, threads), &throughput("ticket", threads));
    let p99_to_ticket = |lock| ratio(&scaling.p99(lock, 10), &scaling.p99("ticket", 10));
    let little = |lock| ratio(&throughput(lock, 10), &throughput(lock, BIG));
    let mut measured = Measured::new();
    measured.row("fairness ticket-6", fairness("ticket", 6));
    let competing = Scaling::largest(&["ttas", "tas", "glibc"].map(|lock| fairness(lock, 6)));
    measured.row("fairness ticket-6/competing", ratio(&fairness("ticket", 6), &competing));
    // Fewer threads share big cores alone, and any lock is fair to them.
    for threads in THREADS.into_iter().filter(|threads| *threads >= BIG) {
        measured.row(format!("fairness cal-{threads}"), fairness("cal", threads));
    }
    measured.row("ttas-2/ticket-2", to_ticket("ttas", 2));
    measured.row("tas-2/ticket-2", to_ticket("tas", 2));
    measured.row("glibc-2/ticket-2", to_ticket("glibc", 2));
    measured.row("ticket-10/ticket-6", little("ticket"));
    measured.row("ttas-10/ticket-10", to_ticket("ttas", 10));
    measured.row("p99 ttas-10/ticket-10", p99_to_ticket("ttas"));
    measured.row("tas-10/tas-6", little("tas"));
    measured.row("glibc-10/glibc-6", little("glibc"));
    measured.row("cal-10/ticket-10", to_ticket("cal", 10));
    measured.row("p99 cal-10/ticket-10", p99_to_ticket("cal"));
    measured.also(format!("fairness {PUBLISHED}-10"), fairness(PUBLISHED, 10));
    measured.also(format!("{PUBLISHED}-10/ticket-10"), to_ticket(PUBLISHED, 10));
    measured.plots = scaling.plots("cal-8");
    Ok(measured)
}

/// LevelDB's gets.
pub(super) fn figure_9(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context, DATABASE, &LOCKS, &[10])?;
    let throughput = |lock| scaling.throughput(lock, 10);
    let p99 = |lock| scaling.p99(lock, 10);
    let mut measured = Measured::new();
    measured.row("fairness ttas", scaling.fairness("ttas", 10));
    measured.row("fairness cal", scaling.fairness("cal", 10));
    for lock in ["ticket", "cptltkt", "glibc", "ttas"] {
        measured.row(format!("cal/{lock}"), ratio(&throughput("cal"), &throughput(lock)));
    }
    measured.row("spinlock/cal", ratio(&throughput("tas"), &throughput("cal")));
    measured.row("p99 cal/glibc", ratio(&p99("cal"), &p99("glibc")));
    for (name, lock) in [("ticket", "ticket"), ("spinlock", "tas"), ("ttas", "ttas")] {
        measured.row(format!("p99 {name}/cal"), ratio(&p99(lock), &p99("cal")));
    }
    measured.also(format!("fairness {PUBLISHED}"), scaling.fairness(PUBLISHED, 10));
    let published = ratio(&throughput(PUBLISHED), &throughput("ticket"));
    measured.also(format!("{PUBLISHED}/ticket"), published);
    measured.plots = scaling.plots(DATABASE);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_the_smallest_slowdown_to_the_largest() {
        assert!((smallest_to_largest(&[4.0, 2.0, 8.0]) - 0.25).abs() < 1e-12);
        assert!((smallest_to_largest(&[3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert_eq!(
            smallest_to_largest(&[3.0, f64::INFINITY]),
            0.0,
            "who never got it is not served fairly"
        );
    }

    #[test]
    fn the_largest_of_locks_of_which_one_is_missing_is_nothing() {
        assert_eq!(Scaling::largest(&[vec![1.0, 5.0], vec![2.0, 3.0]]), [2.0, 5.0]);
        assert!(Scaling::largest(&[vec![1.0], vec![]]).is_empty());
    }
}
