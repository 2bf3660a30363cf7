//! Two plots: throughput relative to the first lock of each group (glibc, except in suites), and percentiles of waits.

use crate::plan::{Plan, Row};
use crate::subject::Role;
use crate::summary::{Ceiling, Summary};
use crate::system::Machine;
use lockwright_numbers::format::{self, si, time};
use lockwright_plot::{
    Axis, Block, Cell, Column, ColumnLine, Group, Head, Ink, Look, Mark, Row as Line, Rows, Style,
};

fn colour(role: Role) -> Ink {
    match role {
        Role::Reference => Ink::EVEN,
        Role::Ours => Ink::of(0),
        Role::InProcess => Ink::of(5),
        Role::Peer => Ink::of(4),
        Role::Ceiling => Ink::ALARM,
    }
}

/// The meaning of the colours; ceilings only occur in throughput plots.
const KEY: [(Role, &str); 5] = [
    (Role::Reference, "glibc"),
    (Role::Ours, "ours, through the preload"),
    (Role::InProcess, "from our catalogue, in process"),
    (Role::Peer, "peers"),
    (Role::Ceiling, "the point's ceiling"),
];

/// One group per point, with a row for each lock that has a cell.
fn draw(
    plan: &Plan,
    summaries: &[Summary],
    column: Column,
    (title, machine, key): (String, &Machine, &[(Role, &str)]),
    cell: impl Fn(&Summary, Ink) -> Option<Cell>,
) -> Option<String> {
    let mut groups: Vec<Group> = Vec::new();
    let mut last = None;
    for summary in summaries {
        let who = &plan.subjects[summary.subject];
        let Some(cell) = cell(summary, colour(who.role)) else { continue };
        if last != Some(summary.row) {
            let title = plan.rows[summary.row].point.label();
            groups.push(Group { title, rows: Vec::new() });
            last = Some(summary.row);
        }
        let row = Line { name: who.name.clone(), cells: vec![cell] };
        groups.last_mut().expect("just made").rows.push(row);
    }
    if groups.is_empty() {
        return None;
    }
    let key = key.iter();
    let key = key.map(|(role, name)| ((*name).to_owned(), Style::ink(colour(*role), Look::Bars)));
    let head = Head { title, source: machine.line(), key: key.collect() };
    Some(Rows { head, blocks: vec![Block { columns: vec![column], groups }] }.svg())
}

/// Throughput relative to the group's first lock. Lines show the range of the repetitions.
pub(crate) fn throughput(
    plan: &Plan,
    summaries: &[Summary],
    ceilings: &[Ceiling],
    machine: &Machine,
) -> Option<String> {
    let ceiling = |s: &Summary| {
        let of_row = ceilings.iter().find(|c| c.row == s.row);
        of_row.and_then(|c| c.ratio).map(|ratio| ratio.median)
    };
    let with_ratio = summaries.iter().filter_map(|s| Some([s.ratio?.median, ceiling(s)?]));
    let ratios = summaries.iter().filter_map(|s| Some(s.ratio?.median));
    let max = ratios.chain(with_ratio.flatten()).fold(1.0, f64::max) * 1.12;
    let glibc = |row: &Row| plan.subjects[row.subjects[0]].role == Role::Reference;
    let first = if plan.rows.iter().all(glibc) { "glibc" } else { "the first" };
    let name = format!("ratio to {first}'s throughput (more is better)");
    // One extreme repetition must not squeeze the others together.
    let mut column = Column::new("", Axis::linear(name, si).within(0.0, max), &["ratio", "rate"]);
    column.rules = vec![ColumnLine { at: 1.0, name: String::new(), ink: Ink::TEXT }];
    let title = format!(
        "Throughput, ratio to {first} in the same group (median; line: smallest to largest repetition)"
    );
    draw(plan, summaries, column, (title, machine, &KEY), |s, ink| {
        let (ratio, rate) = (s.ratio?, s.rate?);
        let mut marks =
            vec![Mark::bar(ratio.median, ink), Mark::span(ratio.min, ratio.max, Ink::TEXT)];
        marks.extend(ceiling(s).map(|most| Mark::stop(most, Ink::ALARM)));
        let rate = format::rate(rate.median);
        Some(Cell { marks, words: vec![format!("{:.2}", ratio.median), rate] })
    })
}

/// The percentiles of waits, on a logarithmic axis.
pub(crate) fn latency(plan: &Plan, summaries: &[Summary], machine: &Machine) -> Option<String> {
    let name = "time from requesting the lock to getting it (less is better)";
    let column = Column::new("", Axis::log(name, time), &["P50", "P99", "P99.9", "max"]);
    let title = "Waits: P50 (ring), P90, P99, P99.9 (dots), longest (bar)".to_owned();
    let key = &KEY[..KEY.len() - 1];
    draw(plan, summaries, column, (title, machine, key), |s, ink| {
        let w = s.wait?;
        let [p50, p90, p99, p999, max] = [w.p50, w.p90, w.p99, w.p999, w.max].map(|ns| ns.max(1.0));
        let mut marks = vec![Mark::span(p50, max, ink)];
        marks.extend([p90, p99, p999].map(|ns| Mark::dot(ns, 0, ink)));
        marks.extend([Mark::ring(p50, ink), Mark::stop(max, ink)]);
        Some(Cell { marks, words: [w.p50, w.p99, w.p999, w.max].map(time).to_vec() })
    })
}
