//! Figures 8e and 8f: Bench-4, from 1 to 8 threads; the workload is that of Figure 4.

use super::common::{ASL, OURS, dot};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, median, ratio};

const THREADS: std::ops::RangeInclusive<u32> = 1..=8;

/// A curve: its name, and its points from 1 to 8 threads.
struct Curve {
    name: String,
    keys: Vec<Key>,
}

impl Curve {
    fn at(&self, threads: usize) -> Key {
        self.keys[threads - 1]
    }
}

/// Both figures.
struct Scaling {
    /// MCS, TAS, LibASL-0, LibASL-MAX, our lock without an SLO.
    results: Results,
    curves: [Curve; 5],
    /// MCS and LibASL-0 on 8 cores: under a queue lock the order of the threads, and how often the lock crosses between
    /// big and little cores, changes so slowly that short runs differ by 9 %.
    fifo: [Key; 2],
    /// LibASL with TAS's tail on 8 cores as its SLO, which is known only after that run.
    as_tas: Curve,
}

impl Scaling {
    fn run(context: &Context<'_>) -> Result<Self, Error> {
        let (lines, gap) = (chosen("libasl-4", "lines")?, chosen("libasl-4", "gap")?);
        // The same as in Figure 4, so that shared runs are made only once.
        let load = |lock: &str| {
            Load::new("sections", lock).with("lines", lines).with("gap", gap).lasting(1.0, 20.0)
        };
        let curve = |plan: &mut Plan, name: &str, load: Load| {
            let keys = THREADS.map(|threads| plan.add(load.clone().threads(threads))).collect();
            Curve { name: name.to_owned(), keys }
        };
        let mut plan = Plan::new();
        let curves = [
            curve(&mut plan, "mcs", load("mcs")),
            curve(&mut plan, "tas", load("tas")),
            curve(&mut plan, "asl-0", load(ASL).with("slo_us", 0.0)),
            curve(&mut plan, "asl-max", load(ASL)),
            curve(&mut plan, "our asl-max", load(OURS)),
        ];
        let long = |load: Load| load.threads(8).lasting(20.0, 400.0);
        let fifo =
            [long(load("mcs")), long(load(ASL).with("slo_us", 0.0))].map(|load| plan.add(load));
        // That tail is looked at first.
        let mut first = Plan::new();
        let tas = first.add(load("tas").threads(8));
        let tail = median(&first.look(context)?.p99(tas)).unwrap_or_default();
        // Little cores end about one epoch per SLO. This gives their windows time to settle, and enough epochs after
        // that.
        let with_slo = load(ASL).with("slo_us", tail).lasting(20.0, 100.0);
        let as_tas = curve(&mut plan, &format!("asl-{tail:.0}"), with_slo);
        Ok(Self { results: plan.run(context)?, curves, fifo, as_tas })
    }

    fn plot(
        &self,
        figure: &str,
        label: &str,
        shown: &[usize],
        of: &dyn Fn(&Results, Key) -> Vec<f64>,
    ) -> Plot {
        let series = |curve: &Curve| {
            let points = THREADS.zip(&curve.keys);
            let points = points.filter_map(|(x, &key)| dot(f64::from(x), &of(&self.results, key)));
            Series::new(curve.name.clone(), Kind::Line, points.collect())
        };
        let curves = shown.iter().map(|&n| &self.curves[n]);
        let all = curves.chain([&self.as_tas]).map(series).collect();
        Plot {
            name: figure.to_owned(),
            title: format!("{figure}: Bench-4, 1 to 4 big cores, then 1 to 4 little ones"),
            x: Axis::linear("threads"),
            left: Axis::linear(label),
            right: None,
            series: all,
        }
    }
}

/// Throughput.
pub(super) fn figure_8e(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context)?;
    let throughput = |n: usize, threads| scaling.results.throughput(scaling.curves[n].at(threads));
    let as_tas = scaling.results.throughput(scaling.as_tas.at(8));
    let [mcs, asl_0] = scaling.fifo;
    let mut measured = Measured::new();
    measured.row("asl-max-8/asl-max-4", ratio(&throughput(3, 8), &throughput(3, 4)));
    measured.row(
        "asl-0-8/mcs-8",
        ratio(&scaling.results.throughput(asl_0), &scaling.results.throughput(mcs)),
    );
    measured.row("asl-tas-8/tas-8", ratio(&as_tas, &throughput(1, 8)));
    measured.also("our asl-max-8/asl-max-4", ratio(&throughput(4, 8), &throughput(4, 4)));
    let millions = |results: &Results, key| results.of(key, |outcome| outcome.throughput / 1e6);
    let label = "million critical sections a second";
    measured.plots.push(scaling.plot("libasl-8e", label, &[0, 1, 2, 3, 4], &millions));
    Ok(measured)
}

/// Tail latency.
pub(super) fn figure_8f(context: &Context<'_>) -> Result<Measured, Error> {
    let scaling = Scaling::run(context)?;
    let p99 = |n: usize| scaling.results.p99(scaling.curves[n].at(8));
    let as_tas = scaling.results.p99(scaling.as_tas.at(8));
    let [mcs, asl_0] = scaling.fifo;
    let mut measured = Measured::new();
    measured.row("p99 tas-8", p99(1));
    measured.row("p99 asl-tas-8/tas-8", ratio(&as_tas, &p99(1)));
    measured
        .row("p99 asl-0-8/mcs-8", ratio(&scaling.results.p99(asl_0), &scaling.results.p99(mcs)));
    let tails = |results: &Results, key| results.p99(key);
    measured.plots.push(scaling.plot("libasl-8f", "P99 latency, µs", &[0, 1, 2], &tails));
    Ok(measured)
}
