//! The latency-throughput graph: throughput above; below, latency against the SLO, with the line Y = X.

use super::advice::{Advice, rate};
use super::{Curve, Point};
use crate::epochs::Verdict;
use lockwright_numbers::Spread;
use lockwright_numbers::format::{given, si, time};
use lockwright_plot::{Axis, Curves, Head, Ink, Look, Note, Panel, Range, Series, Style};

const SLOW: Style = Style::of(0, Look::Line);
const ALL: Style = Style::of(3, Look::Line).shaped(1);
const FAST: Style = Style::of(2, Look::Line).shaped(2);
const RATE: Style = Style::ink(Ink::TEXT, Look::Line);

/// Other locks: each has its own shape.
const fn other(which: usize) -> Style {
    Style::of(1, Look::Marks).shaped([2, 1, 3][which % 3])
}

pub(crate) fn range(spread: Spread) -> Range {
    Range { middle: spread.median, low: spread.min, high: spread.max }
}

/// The graph of one epoch as an SVG document. `origin` is the origin of its figures.
pub(crate) fn graph(curve: &Curve, advice: &Advice, lock: &str, origin: &str) -> String {
    let at = &curve.percentile;
    let mut key = vec![(format!("{at} on {}", curve.slow_cores()), SLOW)];
    if let Some((fast, _)) = &curve.classes {
        key.push((format!("{at} overall"), ALL));
        key.push((format!("{at} on {fast} cores"), FAST));
    }
    if !curve.locks.is_empty() {
        key.push(("another lock, at its own latency".to_owned(), other(0)));
    }
    key.push(("lines: smallest to largest round".to_owned(), Style::ink(Ink::TEXT, Look::Nothing)));
    let head = Head {
        title: format!("Epoch '{}' under {lock}: latency and throughput by SLO", curve.epoch),
        source: origin.to_owned(),
        key,
    };
    // Both time axes have the same ends. Curves of the fastest class may be far below and leave the panel; those of the
    // SLOs may not.
    let points = curve.slos.iter().map(|(_, point)| point);
    let tails = points.chain(curve.locks.iter().map(|(_, point)| point));
    let tails = tails.map(|point| point.slow.median.max(1.0));
    let times = tails.chain(curve.slos.iter().map(|(ns, _)| *ns as f64));
    let (low, high) = times.fold((f64::INFINITY, 1.0_f64), |(l, h), ns| (l.min(ns), h.max(ns)));
    let (low, high) = (low / 1.5, high * 1.3);
    let slo = |ns: f64| given(ns.round() as u64);
    let axis = |name: &str| Axis::log(name, slo).within(low, high);

    let rates = Axis::linear("executions per second", si);
    let mut above = Panel::new("", axis(""), rates, vec![]);
    let mut below = Panel::new("", axis("SLO"), axis(&format!("latency, {at}")), vec![]);
    if let Some(end) = infeasible(curve, low) {
        above.notes.push(Note::Band(end, "infeasible".to_owned()));
        below.notes.push(Note::Band(end, String::new()));
    }
    if let Some(slo) = advice.slo_ns {
        let name = format!("recommended: {}", given(slo));
        above.notes.push(Note::Upright(slo as f64, name, Ink::TEXT));
        below.notes.push(Note::Upright(slo as f64, String::new(), Ink::TEXT));
    }
    type Figure = fn(&Point) -> Option<Spread>;
    let series = |style, figure: Figure| {
        let dots = curve.slos.iter();
        let dots = dots.filter_map(|(ns, point)| Some((*ns as f64, range(figure(point)?))));
        Series { style, right: false, dots: dots.collect() }
    };
    above.series.push(series(RATE, |point| Some(point.rate)));
    below
        .series
        .push(Series::exact(Style::ink(Ink::SOFT, Look::Guide), [(low, low), (high, high)]));
    below.notes.push(Note::Words(high / 1.5, high / 1.5, "Y = X: latency = SLO".into(), Ink::SOFT));
    below.series.push(series(FAST, |point| point.fast));
    below.series.push(series(ALL, |point| point.fast.map(|_| point.all)));
    below.series.push(series(SLOW, |point| Some(point.slow)));
    // Other locks have no SLO. Each is placed where the SLO would equal its latency.
    for (which, (lock, point)) in curve.locks.iter().enumerate() {
        let (tail, own) = (point.slow.median, other(which));
        above.series.push(Series::exact(own, [(tail, point.rate.median)]));
        below.series.push(Series::exact(own, [(tail, tail)]));
        let rate = format!("{lock} {}", rate(point));
        above.notes.push(Note::Words(tail, point.rate.median, rate, own.ink));
        below.notes.push(Note::Words(tail, tail, format!("{lock} {}", time(tail)), own.ink));
    }
    Curves::new(head, vec![above, below]).svg()
}

/// The SLO up to which no order of threads can keep it.
fn infeasible(curve: &Curve, low: f64) -> Option<f64> {
    let infeasible = |(_, point): &&(u64, Point)| point.verdict == Verdict::Infeasible;
    // Single infeasible SLOs above that are noise.
    let last = curve.slos.iter().take_while(infeasible).count().checked_sub(1)?;
    // Extends half-way to the next SLO.
    let here = (curve.slos[last].0 as f64).max(low);
    Some(curve.slos.get(last + 1).map_or(here * 1.1, |(next, _)| (here * *next as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_its_parts() {
        let curve = crate::tune::tests::example();
        let advice = crate::tune::advice::advise(&curve);
        let svg = graph(&curve, &advice, "asl", "emulated (big:0,little:1x3.75): a machine");
        let parts = [
            "emulated (big:0,little:1x3.75)",
            "infeasible",
            "Y = X",
            "recommended: 400 µs",
            "fifo 60.0 µs",
            "barging 400 µs",
            "P99 on little cores",
            "prefers-color-scheme: dark",
        ];
        for part in parts {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }
}
