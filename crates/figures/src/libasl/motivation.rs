//! Figures 1 and 4: MCS and TAS from 1 to 8 threads.

use super::common::{BIG, LITTLE};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, median, ratio};

const LOCKS: [&str; 2] = ["mcs", "tas"];
const THREADS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// The numbers of threads that the rows compare.
const ROWS: [u32; 2] = [4, 8];
/// The figure in which a row about 8 threads is judged by its sign.
const SIGN: &str = "libasl-4";

/// Both figures; they differ only in the number of lines.
struct Scaling {
    results: Results,
    threads: &'static [u32],
    /// Indexed by lock, then by threads.
    keys: Vec<Vec<Key>>,
}

impl Scaling {
    fn run(context: &Context<'_>, figure: &str, threads: &'static [u32]) -> Result<Self, Error> {
        let (lines, gap) = (chosen(figure, "lines")?, chosen(figure, "gap")?);
        let mut plan = Plan::new();
        let load = |lock, threads| {
            let load = Load::new("sections", lock).threads(threads).lasting(1.0, 20.0);
            let load = load.with("lines", lines).with("gap", gap);
            // Under a queue lock the order of the threads changes so slowly that runs of 20 ms differ by a third.
            if figure == SIGN && threads == 8 { load.lasting(20.0, 400.0).often() } else { load }
        };
        let keys = LOCKS
            .map(|lock| threads.iter().map(|&threads| plan.add(load(lock, threads))).collect())
            .to_vec();
        Ok(Self { results: plan.run(context)?, threads, keys })
    }

    fn mcs(&self, threads: u32) -> Key {
        self.key(0, threads)
    }

    fn tas(&self, threads: u32) -> Key {
        self.key(1, threads)
    }

    fn key(&self, lock: usize, threads: u32) -> Key {
        let place = self.threads.iter().position(|&one| one == threads);
        self.keys[lock][place.expect("a row asks for threads that were run")]
    }

    /// The throughput of one by that of the other.
    fn throughput(&self, one: Key, other: Key) -> Vec<f64> {
        ratio(&self.results.throughput(one), &self.results.throughput(other))
    }

    /// The same of the P99 latency.
    fn p99(&self, one: Key, other: Key) -> Vec<f64> {
        ratio(&self.results.p99(one), &self.results.p99(other))
    }

    /// The paper's two panels.
    fn plots(&self, figure: &str) -> Vec<Plot> {
        let panel = |part: &str, label: &str, of: &dyn Fn(Key) -> Vec<f64>| {
            let series = LOCKS.iter().zip(&self.keys).map(|(lock, keys)| {
                let points = self.threads.iter().zip(keys);
                let points =
                    points.filter_map(|(&x, key)| Some((f64::from(x), median(&of(*key))?)));
                Series::new(*lock, Kind::Line, points.collect())
            });
            Plot {
                name: format!("{figure}-{part}"),
                title: format!("{figure}: {part}, from 1 to 4 big cores, then 1 to 4 little ones"),
                x: Axis::linear("threads"),
                left: Axis::linear(label),
                right: None,
                series: series.collect(),
            }
        };
        let throughput = |key| self.results.of(key, |outcome| outcome.throughput / 1e6);
        vec![
            panel("throughput", "million critical sections a second", &throughput),
            panel("latency", "P99 latency, µs", &|key| self.results.p99(key)),
        ]
    }
}

/// Little-core affinity: critical sections of 4 lines.
pub(super) fn figure_1(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context, "libasl-1", &THREADS)?;
    Ok(Measured { plots: scaling.plots("libasl-1"), ..rows_1(&scaling) })
}

/// Its rows alone.
pub(super) fn rows_of_1(context: &Context<'_>) -> Result<Measured, Error> {
    Ok(rows_1(&Scaling::run(context, "libasl-1", &ROWS)?))
}

fn rows_1(scaling: &Scaling) -> Measured {
    let mut measured = Measured::new();
    measured.row("mcs-8/mcs-4", scaling.throughput(scaling.mcs(8), scaling.mcs(4)));
    measured.row("tas-8/tas-4", scaling.throughput(scaling.tas(8), scaling.tas(4)));
    measured.row("tas-8/mcs-8", scaling.throughput(scaling.tas(8), scaling.mcs(8)));
    measured.row("p99 tas-8/mcs-8", scaling.p99(scaling.tas(8), scaling.mcs(8)));
    measured.row("little share of tas-8", scaling.results.share_of(scaling.tas(8), LITTLE));
    measured
}

/// Big-core affinity: critical sections of 64 lines.
pub(super) fn figure_4(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context, "libasl-4", &THREADS)?;
    Ok(Measured { plots: scaling.plots("libasl-4"), ..rows_4(&scaling) })
}

/// Its rows alone.
pub(super) fn rows_of_4(context: &Context<'_>) -> Result<Measured, Error> {
    Ok(rows_4(&Scaling::run(context, "libasl-4", &ROWS)?))
}

fn rows_4(scaling: &Scaling) -> Measured {
    let mut measured = Measured::new();
    measured.row("mcs-8/mcs-4", scaling.throughput(scaling.mcs(8), scaling.mcs(4)));
    measured.row("tas-8/mcs-8", scaling.throughput(scaling.tas(8), scaling.mcs(8)));
    measured.row("p99 tas-8/mcs-8", scaling.p99(scaling.tas(8), scaling.mcs(8)));
    measured.row("p99 mcs-8/mcs-4", scaling.p99(scaling.mcs(8), scaling.mcs(4)));
    measured.row("big share of tas-8", scaling.results.share_of(scaling.tas(8), BIG));
    measured
}
