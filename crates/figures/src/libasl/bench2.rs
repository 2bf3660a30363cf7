//! Figure 8d: Bench-2, a load that changes.

use super::common::{ASL, BIG, LITTLE};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Load, Measured, Plan, chosen};
use lockwright_sim::{Outcome, Sample};
use std::ops::Range;

/// The phases in which the SLO can be met, ms, as the rows name them.
const FEASIBLE: [(&str, Range<u64>); 4] = [
    ("violations 0-100ms", 0..100),
    ("violations 100-200ms", 100..200),
    ("violations 200-250ms", 200..250),
    ("violations 250-300ms", 250..300),
];
const IMPOSSIBLE: Range<u64> = 300..350;
/// Time to settle after a change of load, ms.
const SETTLE_MS: u64 = 5;
/// Number of dots that a plot shows for each class of cores in each phase.
const DOTS: usize = 600;

/// Every epoch's latency while the epochs' length changes.
pub(super) fn figure_8d(context: &Context<'_>) -> Result<Measured, Error> {
    let slo_us = chosen("libasl-8d", "slo_us")?;
    let mut load = Load::new("bench2", ASL).lasting(0.0, 350.0).samples().with("slo_us", slo_us);
    load = load.with("phase_ms", 50.0 * context.length);
    for key in ["lines", "gap"] {
        load = load.with(key, chosen("libasl-8d", key)?);
    }
    let mut plan = Plan::new();
    let key = plan.add(load);
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for (row, phase) in FEASIBLE {
        measured.row(row, results.of(key, |outcome| violations(outcome, &phase, context.length)));
    }
    let tail = |outcome: &Outcome, class| p99(outcome, &IMPOSSIBLE, context.length, class);
    let little_to_big = |outcome: &Outcome| tail(outcome, LITTLE) / tail(outcome, BIG);
    measured.row("p99 little/big after 300ms", results.of(key, little_to_big));
    measured.plots.extend(
        results.outcomes(key).first().map(|outcome| scatter(outcome, slo_us, context.length)),
    );
    Ok(measured)
}

#[allow(clippy::cast_precision_loss, reason = "a time far below 2^52 ns")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
fn ns(ms: u64, length: f64) -> u64 {
    (ms as f64 * 1e6 * length) as u64
}

/// The epochs of a class that began in a phase, without its first milliseconds.
fn settled<'a>(
    outcome: &'a Outcome,
    phase: &Range<u64>,
    length: f64,
    class: usize,
) -> impl Iterator<Item = &'a Sample> {
    let phase = ns(phase.start + SETTLE_MS, length)..ns(phase.end, length);
    let began = move |sample: &&Sample| phase.contains(&(sample.end_ns - sample.latency_ns));
    outcome.samples.iter().filter(move |sample| sample.class == class).filter(began)
}

/// Share of little cores' epochs that took longer than the SLO.
#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn violations(outcome: &Outcome, phase: &Range<u64>, length: f64) -> f64 {
    let all: Vec<&Sample> = settled(outcome, phase, length, LITTLE).collect();
    let violated = |sample: &&&Sample| sample.slo_ns.is_some_and(|slo| sample.latency_ns > slo);
    all.iter().filter(violated).count() as f64 / all.len() as f64
}

#[allow(clippy::cast_precision_loss, reason = "times far below 2^52 ns")]
fn p99(outcome: &Outcome, phase: &Range<u64>, length: f64, class: usize) -> f64 {
    let mut all: Vec<u64> =
        settled(outcome, phase, length, class).map(|sample| sample.latency_ns).collect();
    all.sort_unstable();
    all.get(all.len().saturating_sub(1) * 99 / 100).map_or(f64::NAN, |&ns| ns as f64)
}

/// Latencies over time with the first seed: the longest of each group of epochs, so that no violation is left
/// out.
#[allow(clippy::cast_precision_loss, reason = "times far below 2^52 ns")]
fn scatter(outcome: &Outcome, slo_us: f64, length: f64) -> Plot {
    let dots = |class| {
        let mut points = Vec::new();
        for phase in FEASIBLE.iter().map(|(_, phase)| phase).chain([&IMPOSSIBLE]) {
            let phase = ns(phase.start, length)..ns(phase.end, length);
            let of = |sample: &&Sample| sample.class == class && phase.contains(&sample.end_ns);
            let all: Vec<&Sample> = outcome.samples.iter().filter(of).collect();
            for some in all.chunks(all.len().div_ceil(DOTS).max(1)) {
                let longest = some.iter().max_by_key(|sample| sample.latency_ns);
                points.extend(longest.map(|s| (s.end_ns as f64 / 1e6, s.latency_ns as f64 / 1e3)));
            }
        }
        points
    };
    Plot {
        name: "libasl-8d".to_owned(),
        title: "libasl-8d: Bench-2, one seed; a dot is the longest of its neighbours".to_owned(),
        x: Axis::linear("time, ms"),
        left: Axis::log("latency of an epoch, µs"),
        right: None,
        series: vec![
            Series::new("little cores", Kind::Dots, dots(LITTLE)).of_operations(),
            Series::new("big cores", Kind::Dots, dots(BIG)).of_operations(),
            Series::new("SLO", Kind::Guide, vec![(0.0, slo_us), (350.0 * length, slo_us)]),
        ],
    }
}
