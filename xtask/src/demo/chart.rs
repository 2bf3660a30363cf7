//! The report's plots for one database.

use super::stats::{Figure, Group, Summary};
use lockwright_numbers::format::{ns, ratio, si, time};
use lockwright_numbers::{Spread, Times};
use lockwright_plot::{
    Axis, Block, Cell, Column, ColumnLine, Curves, Head, Ink, Look, Mark, Panel, Row, Rows, Series,
    Style,
};

/// One colour per lock, the same in all plots: glibc is grey, ours follow.
pub(crate) fn colour(lock: usize) -> Ink {
    lock.checked_sub(1).map_or(Ink::EVEN, Ink::of)
}

/// One line style per lock.
pub(crate) fn curve(lock: usize) -> Style {
    Style::ink(colour(lock), Look::Curve).dashed(lock.saturating_sub(1))
}

/// A bar for the median, a line for the range of the rounds, and a dot for each round.
pub(crate) fn rounds(spread: Spread, rounds: &[f64], ink: Ink) -> Vec<Mark> {
    let mut marks =
        vec![Mark::bar(spread.median, ink), Mark::span(spread.min, spread.max, Ink::TEXT)];
    marks.extend(rounds.iter().map(|round| Mark::round(*round)));
    marks
}

/// The throughput of each lock. Each group has a title.
pub(super) fn bars(name: &str, groups: &[(String, &[Summary])]) -> String {
    let row = |(lock, summary): (usize, &Summary)| {
        let marks = rounds(summary.rate, &summary.rates, colour(lock));
        let to_glibc = summary.ratio(Figure::Throughput).spread.median;
        let times = if lock == 0 { String::new() } else { ratio(to_glibc) + " ×" };
        let words = vec![si(summary.rate.median), times];
        Row { name: summary.name(), cells: vec![Cell { marks, words }] }
    };
    let group = |(title, own): &(String, &[Summary])| lockwright_plot::Group {
        title: title.clone(),
        rows: own.iter().enumerate().map(row).collect(),
    };
    let axis = Axis::linear("operations per second (more is better)", si);
    let columns = vec![Column::new("", axis, &["median", "times glibc's"])];
    let groups = groups.iter().map(group).collect();
    let head = Head { title: format!("{name}: throughput"), ..Head::default() };
    Rows { head, blocks: vec![Block { columns, groups }] }.svg()
}

/// A distribution's curve over [`Axis::nines`].
pub(crate) fn cumulative(latency: &Times, style: Style) -> Series {
    Series::exact(style, latency.cumulative().map(|(ns, share)| (ns as f64, share)))
}

/// Distributions of latencies. Each step up the vertical axis leaves a tenth of the operations above it.
pub(super) fn cdf(name: &str, groups: &[(String, &[Summary])]) -> String {
    let panel = |(title, own): &(String, &[Summary])| {
        let all = || own.iter().map(|summary| &summary.latency);
        let low = all().map(|latency| latency.quantile(0.001)).min().unwrap_or(1).max(1) as f64;
        let high = all().map(Times::max).max().unwrap_or(10) as f64;
        let axis = Axis::log("latency of an operation", time).within(low, high.max(2.0 * low));
        let series = own.iter().enumerate();
        let series = series.map(|(lock, summary)| cumulative(&summary.latency, curve(lock)));
        Panel::new(title, axis, Axis::nines(5), series.collect())
    };
    let key = groups.first().map_or(&[][..], |(_, own)| own).iter().enumerate();
    let head = Head {
        title: format!("{name}: distribution of latencies (further left is better)"),
        source: String::new(),
        key: key.map(|(lock, summary)| (summary.name(), curve(lock))).collect(),
    };
    let columns = groups.len().min(2);
    Curves { columns, ..Curves::new(head, groups.iter().map(panel).collect()) }.svg()
}

/// The slow end of each lock's latencies, compared with the objective: from P50 to the longest operation.
pub(super) fn tails(name: &str, group: &Group, slo_ns: u64) -> String {
    let row = |(lock, own): (usize, &Summary)| {
        let at = |share| own.latency.quantile(share).max(1) as f64;
        let (ink, longest) = (colour(lock), own.latency.max().max(1) as f64);
        let marks = vec![
            Mark::span(at(0.5), longest, ink),
            Mark::dot(at(0.99), 0, ink),
            Mark::dot(at(0.999), 0, ink),
            Mark::ring(at(0.5), ink),
            Mark::stop(longest, ink),
        ];
        let words = vec![time(at(0.99)), ratio(own.of_slo(slo_ns))];
        Row { name: own.name(), cells: vec![Cell { marks, words }] }
    };
    let axis = Axis::log("latency of an operation (logarithmic; further left is better)", time);
    let mut column = Column::new("", axis, &["P99", "of SLO"]);
    let name_of_slo = format!("SLO {}", ns(slo_ns));
    column.rules = vec![ColumnLine { at: slo_ns as f64, name: name_of_slo, ink: Ink::ALARM }];
    let rows = group.summaries.iter().enumerate().map(row).collect();
    let groups = vec![lockwright_plot::Group { title: String::new(), rows }];
    let head = Head {
        title: format!("{name}: latency on the little core"),
        source: "P50 (ring), P99, P99.9 (dots), longest (bar)".into(),
        key: Vec::new(),
    };
    Rows { head, blocks: vec![Block { columns: vec![column], groups }] }.svg()
}
