//! The report's three kinds of plot.

use super::drivers::NO_LIMIT_NS;
use super::figures::{Point, Results, slo};
use crate::demo::chart::{cumulative, curve, rounds};
use lockwright_numbers::format::{si, time};
use lockwright_plot::{
    Axis, Block, Cell, Column, Curves, Group, Head, Ink, Look, Mark, Note, Panel, Range, Row, Rows,
    Series, Style,
};

/// One colour and shape per class: the fastest blue, the slowest orange, all cores together black.
fn class_style(results: &Results, class: Option<usize>, look: Look) -> Style {
    match class {
        None => Style::ink(Ink::TEXT, look),
        Some(0) => Style::ink(Ink::GOOD, look).shaped(1),
        Some(class) if class == results.machine.little() => Style::ink(Ink::BAD, look).shaped(3),
        Some(class) => Style::of(1 + class, look).shaped(2),
    }
}

/// Our locks in colour, the others in greys.
fn lock_colour(point: &Point) -> Ink {
    match point.subject.lock.split(':').next() {
        Some("asl") => Ink::GOOD,
        Some("asl-max") => Ink::of(3),
        Some("fifo") => Ink::SOFT,
        _ => Ink::EVEN,
    }
}

fn head(results: &Results, what: &str, key: Vec<(String, Style)>) -> Head {
    let title = format!("{}: {what}", results.database.name);
    Head { title, source: results.machine.tag().to_owned(), key }
}

fn p99(point: &Point, class: Option<usize>) -> f64 {
    point.latency(class).quantile(0.99).max(1) as f64
}

/// For each lock, a bar for the throughput, and marks at the P99 of big, little and all cores.
pub(super) fn bars(results: &Results) -> String {
    let groups = results.groups();
    let fifo = results.point("fifo");
    let row = |point: &Point| {
        let ratio = fifo.map(|fifo| format!("{:.2}", Results::ratio(point, fifo).median));
        let rate = Cell {
            marks: rounds(point.rate(), &point.rates(), lock_colour(point)),
            words: ratio.into_iter().collect(),
        };
        let mark = |(class, _): &(Option<usize>, String)| {
            let Style { ink, shape, .. } = class_style(results, *class, Look::Marks);
            Mark::dot(p99(point, *class), shape, ink)
        };
        let tails = Cell { marks: groups.iter().map(mark).collect(), words: Vec::new() };
        Row { name: point.subject.name(), cells: vec![rate, tails] }
    };
    let rates = Axis::linear("operations per second (more is better)", si);
    let tails = Axis::log("logarithmic (further left is better)", time);
    let columns = vec![
        Column::new("Throughput", rates, &["of fifo"]),
        Column::new("P99 latency", tails, &[]),
    ];
    let rows = results.points.iter().map(row).collect();
    let key = groups
        .iter()
        .map(|(class, name)| (format!("P99, {name}"), class_style(results, *class, Look::Marks)));
    let head = head(results, "throughput and P99 latency, each lock", key.collect());
    let groups = vec![Group { title: String::new(), rows }];
    Rows { head, blocks: vec![Block { columns, groups }] }.svg()
}

/// Throughput, and P99 on little and on all cores, against the SLO. SLOs differ by a factor of 2; zero and no limit are
/// at the ends.
pub(super) fn sweep(results: &Results) -> Option<String> {
    let sweep = results.sweep();
    let slo_of = |point: &Point| point.subject.slo_ns.unwrap_or(0);
    let is_finite = |ns: &u64| (1..NO_LIMIT_NS).contains(ns);
    if !sweep.iter().any(|point| is_finite(&slo_of(point))) {
        return None;
    }
    let little = Some(results.machine.little());
    let name = &results.machine.classes[results.machine.little()].name;
    let axis = |title| Axis::names(title, sweep.iter().map(|point| slo(slo_of(point))).collect());
    let series = |style, of: &dyn Fn(&Point) -> Range| {
        let dots = sweep.iter().enumerate().map(|(at, point)| (at as f64, of(point)));
        Series { style, right: false, dots: dots.collect() }
    };
    let mut rates = Panel::new(
        "",
        axis(""),
        Axis::linear("operations per second (more is better)", si),
        vec![series(Style::ink(Ink::GOOD, Look::Line), &|point| {
            let rate = point.rate();
            Range { middle: rate.median, low: rate.min, high: rate.max }
        })],
    );
    for lock in ["fifo", "asl-max"] {
        let point = results.point(lock);
        rates.notes.extend(point.map(|point| Note::Level(point.rate().median, lock.to_owned())));
    }
    let diagonal = sweep.iter().map(|point| slo_of(point)).enumerate();
    let diagonal = diagonal.filter(|(_, ns)| is_finite(ns)).map(|(at, ns)| (at as f64, ns as f64));
    let classes = [None, little].map(|class| (class, class_style(results, class, Look::Line)));
    let mut all = vec![Series::exact(Style::ink(Ink::SOFT, Look::Guide), diagonal)];
    all.extend(
        classes.map(|(class, style)| series(style, &|point| Range::exactly(p99(point, class)))),
    );
    let mut tails = Panel::new(
        "",
        axis("SLO of each operation (none: max)"),
        Axis::log("P99 latency (less is better)", time),
        all,
    );
    let fifo = results.point("fifo");
    tails.notes.extend(fifo.map(|fifo| Note::Level(p99(fifo, little), format!("fifo, {name}"))));
    // SLOs that not even FIFO can keep.
    let lost = sweep.iter().rposition(|point| !results.feasible(slo_of(point)));
    if let Some(at) = lost {
        rates.notes.push(Note::Band(at as f64 + 0.3, "infeasible".to_owned()));
        tails.notes.push(Note::Band(at as f64 + 0.3, String::new()));
    }
    let key = [("P99 overall".to_owned(), classes[0].1), (format!("P99, {name}"), classes[1].1)];
    let guide = ("P99 = SLO".to_owned(), Style::ink(Ink::SOFT, Look::Guide));
    let head = head(
        results,
        "asl, throughput and P99 against the SLO",
        key.into_iter().chain([guide]).collect(),
    );
    Some(Curves { height: 210.0, ..Curves::new(head, vec![rates, tails]) }.svg())
}

/// The locks whose distributions are drawn: FIFO, asl with a medium SLO and without a limit, and the unfair lock.
fn chosen(results: &Results) -> Vec<&Point> {
    let sweep = results.sweep();
    let finite: Vec<_> = sweep
        .iter()
        .filter(|point| point.subject.slo_ns.is_some_and(|ns| ns > 0 && ns < NO_LIMIT_NS))
        .collect();
    let middle = finite.len().checked_sub(2).or(finite.len().checked_sub(1));
    let mut chosen: Vec<&Point> = results.point("fifo").into_iter().collect();
    chosen.extend(middle.map(|n| *finite[n]));
    chosen.extend(sweep.last().filter(|last| last.subject.slo_ns == Some(NO_LIMIT_NS)));
    chosen.extend(["tas", "glibc"].iter().filter_map(|lock| results.point(lock)));
    chosen
}

/// Distributions of latencies on big, little and all cores. Each step up the axis leaves a tenth of the operations
/// above it.
pub(super) fn cdfs(results: &Results) -> String {
    let chosen = chosen(results);
    let all = || chosen.iter().map(|point| point.latency(None));
    let low = all().map(|latency| latency.quantile(0.001)).min().unwrap_or(1).max(1) as f64;
    let high = all().map(|latency| latency.quantile(0.9999)).max().unwrap_or(10) as f64;
    let panel = |(class, name): (Option<usize>, String)| {
        let axis = Axis::log("latency of an operation", time).within(low, high.max(2.0 * low));
        let series = chosen.iter().enumerate();
        let series = series.map(|(n, point)| cumulative(&point.latency(class), curve(n)));
        let mut panel = Panel::new(name, axis, Axis::nines(4), series.collect());
        let slos = chosen.iter().filter_map(|point| point.subject.slo_ns);
        let slos = slos.filter(|ns| *ns < NO_LIMIT_NS && class != Some(0));
        let note = |ns| Note::Upright(ns as f64, "SLO".to_owned(), Ink::SOFT);
        panel.notes = slos.map(note).collect();
        panel
    };
    let panels: Vec<_> = results.groups().into_iter().map(panel).collect();
    let key = chosen.iter().enumerate().map(|(n, point)| (point.subject.name(), curve(n)));
    let head = head(results, "distribution of latencies (further left is better)", key.collect());
    Curves { columns: panels.len().min(3), ..Curves::new(head, panels) }.svg()
}
