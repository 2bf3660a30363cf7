//! Delegation on big and little cores: whoever runs the sections does so on a big core.

use super::sweep::load;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, median, ratio};

/// Class of the little cores.
const LITTLE: usize = 1;
/// Those that run the sections where the data is: `rcl`'s server has the first big core, and one of the eight threads.
const DELEGATED: [&str; 2] = ["combiner", "rcl"];
/// Those that they are compared with.
const RIVALS: [&str; 2] = ["asl-max", "auto"];
/// Shown beside them.
const BESIDE: [&str; 2] = ["mcs", "cc-synch"];
/// Lines a section.
const LINES: [u32; 2] = [1, 4];
/// Mean delay between two critical sections, cycles.
const DELAYS: [f64; 5] = [500.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0];

/// One lock, with one or more lines a section.
struct Curve {
    lock: &'static str,
    lines: u32,
    /// Where rows are measured: for longer, since under asl-max a thread on a little core waits for up to 100 ms.
    at: Key,
    /// Over the delay.
    keys: [Key; DELAYS.len()],
}

pub(super) fn measure(context: &Context<'_>) -> Result<Measured, Error> {
    let delay = chosen("rcl-amp", "delay")?;
    let mut plan = Plan::new();
    let mut curves = Vec::new();
    for lines in LINES {
        for lock in [DELEGATED, RIVALS, BESIDE].concat() {
            let load = |delay| -> Load { load(lock, None, lines.into(), delay) };
            let keys = DELAYS.map(|delay| plan.add(load(delay).lasting(1.0, 5.0)));
            let at = plan.add(load(delay).lasting(10.0, 100.0));
            curves.push(Curve { lock, lines, at, keys });
        }
    }
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for lines in LINES {
        let of = |lock: &str| {
            let is_it = |curve: &&Curve| curve.lock == lock && curve.lines == lines;
            curves.iter().find(is_it).expect("it was planned").at
        };
        let throughput = |lock: &str| results.throughput(of(lock));
        let tail = |lock: &str| results.p99_of(of(lock), LITTLE);
        for lock in DELEGATED {
            for rival in RIVALS {
                measured.row(
                    format!("{lock}/{rival}, lines {lines}"),
                    ratio(&throughput(lock), &throughput(rival)),
                );
                measured.row(
                    format!("p99 little {lock}/{rival}, lines {lines}"),
                    ratio(&tail(lock), &tail(rival)),
                );
            }
        }
        for lock in BESIDE {
            let to = throughput("asl-max");
            measured.also(format!("{lock}/asl-max, lines {lines}"), ratio(&throughput(lock), &to));
        }
        measured.plots.push(plot(&curves, &results, lines, "throughput"));
        measured.plots.push(plot(&curves, &results, lines, "p99-little"));
    }
    Ok(measured)
}

fn plot(curves: &[Curve], results: &Results, lines: u32, what: &str) -> Plot {
    let is_tail = what != "throughput";
    let value = |key| match is_tail {
        true => median(&results.p99_of(key, LITTLE)).filter(|us| us.is_finite()),
        false => median(&results.throughput(key)).map(|rate| rate / 1e6),
    };
    let of_lines = curves.iter().filter(|curve| curve.lines == lines);
    let series = of_lines.map(|curve| {
        let point = |(&delay, &key): (&f64, &Key)| Some((delay, value(key)?));
        let points = DELAYS.iter().zip(&curve.keys).filter_map(point).collect();
        Series::new(curve.lock, Kind::Line, points).of_operations()
    });
    let left = match is_tail {
        true => Axis::log("P99 of little cores, µs"),
        false => Axis::linear("million sections a second"),
    };
    Plot {
        name: format!("rcl-amp-{lines}-{what}"),
        title: format!("rcl-amp: 8 threads, lines a section: {lines}"),
        x: Axis::log("mean delay between two critical sections, cycles"),
        left,
        right: None,
        series: series.collect(),
    }
}
