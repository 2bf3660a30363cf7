//! Figure 5: a fixed proportion of big cores' turns.

use super::common::dot;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, chosen, ratio};

/// The paper's is a ShflLock; its proportion is fixed here, and ours is an option. Ours must not sleep within any wait here.
const PROPORTIONAL: &str = "pb10:spin=10ms";

/// Turns of big cores for each turn of a little core.
const PROPORTIONS: [u32; 5] = [1, 2, 5, 10, 20];

/// Throughput and tail by proportion.
pub(super) fn figure_5(context: &Context<'_>) -> Result<Measured, Error> {
    let (lines, gap) = (chosen("libasl-5", "lines")?, chosen("libasl-5", "gap")?);
    let mut plan = Plan::new();
    let load = |big| {
        let load = Load::new("sections", &format!("{PROPORTIONAL},big={big}")).with("lines", lines);
        load.with("gap", gap).lasting(2.0, 50.0)
    };
    let keys = PROPORTIONS.map(|big| plan.add(load(big)));
    let results = plan.run(context)?;
    let (throughput, p99) = (|key: Key| results.throughput(key), |key: Key| results.p99(key));
    let mut measured = Measured::new();
    let (first, last) = (keys[0], keys[PROPORTIONS.len() - 1]);
    measured.row("pb-20/pb-1", ratio(&throughput(last), &throughput(first)));
    measured.row("p99 pb-20/pb-1", ratio(&p99(last), &p99(first)));
    measured.row("smallest step", smallest_step(&keys, &throughput));
    measured.row("p99 smallest step", smallest_step(&keys, &p99));
    let curve = |what: &dyn Fn(Key) -> Vec<f64>, scale: f64| {
        let points = PROPORTIONS.iter().zip(&keys);
        let points = points.filter_map(|(&big, &key)| dot(f64::from(big), &what(key)));
        points.map(|(x, y)| (x, y / scale)).collect()
    };
    measured.plots.push(Plot {
        name: "libasl-5".to_owned(),
        title: "libasl-5: throughput and tail, by proportion".to_owned(),
        x: Axis::linear("turns of big cores for one of a little core's"),
        left: Axis::linear("million critical sections a second"),
        right: Some(Axis::linear("P99 latency, µs")),
        series: vec![
            Series::new("throughput", Kind::Line, curve(&throughput, 1e6)),
            Series::new("P99", Kind::Line, curve(&p99, 1.0)).on_the_right(),
        ],
    });
    Ok(measured)
}

/// Seed by seed, the smallest ratio of a point to its predecessor.
fn smallest_step(keys: &[Key], of: &dyn Fn(Key) -> Vec<f64>) -> Vec<f64> {
    let steps: Vec<Vec<f64>> =
        keys.windows(2).map(|pair| ratio(&of(pair[1]), &of(pair[0]))).collect();
    crate::measured::across(&steps, f64::min)
}
