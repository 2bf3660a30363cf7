//! The tables of the terminal.

use super::cell::status;
use crate::format::{digits, option, ratio, si, spaced, time, with_range};
use crate::plan::{Plan, Row};
use crate::point::Work;
use crate::suite::Verdict;
use crate::summary::Summary;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, presets};

/// Columns of a terminal that a table with long cells takes; they are wrapped.
const WIDTH: u16 = 100;

/// One table a kind of row; each point is a block of lines.
/// Without `wide`, what fits a terminal of 100 columns.
pub(crate) fn tables(plan: &Plan, summaries: &[Summary], wide: bool) -> String {
    let kind = |row: usize| match plan.rows[row].point.work {
        Work::Memory { .. } => 1,
        Work::Order { .. } => 2,
        Work::Epoch { .. } => 3,
        Work::EpochCost => 4,
        _ => 0,
    };
    let mut text = String::new();
    // A row's first lock is what the others are compared with.
    let is_glibc = |row: &Row| plan.subjects[row.subjects[0]].name == "glibc";
    let reference = if plan.rows.iter().all(is_glibc) { "glibc" } else { "the first" };
    let of_reference = format!("of {reference} [min .. max]");
    let of = |wanted| summaries.iter().filter(move |s| kind(s.row) == wanted);
    let label = |s: &Summary, last: &mut usize| {
        let new = std::mem::replace(last, s.row) != s.row;
        if new { plan.rows[s.row].point.label() } else { String::new() }
    };
    let name = |s: &Summary| plan.subjects[s.subject].name.clone();
    if of(0).next().is_some() {
        // Each with: only if `wide`.
        let columns = [
            ("point", false),
            ("lock", false),
            ("rate", false),
            (of_reference.as_str(), false),
            ("IQR", true),
            ("CPU/op", false),
            ("wait P50", true),
            (if wide { "P99" } else { "wait P99" }, false),
            ("P99.9", true),
            ("max", false),
            ("hold P50", true),
            ("Jain", true),
            ("CAL", true),
            ("", false),
        ];
        let mut table = empty(&columns.map(|(name, _)| name));
        let mut last = usize::MAX;
        for s in of(0) {
            let unit = plan.rows[s.row].point.unit();
            table.add_row([
                label(s, &mut last),
                name(s),
                option(s.rate, |r| format!("{}{unit}", spaced(si(r.median)))),
                with_range(&s.ratio),
                option(s.ratio, |r| digits(r.iqr())),
                option(s.cpu_ns, |c| time(c.median)),
                option(s.wait, |w| time(w.p50)),
                option(s.wait, |w| time(w.p99)),
                option(s.wait, |w| time(w.p999)),
                option(s.wait, |w| time(w.max)),
                option(s.hold, |h| time(h.p50)),
                option(s.jain, |j| format!("{j:.2}")),
                option(s.cal, |c| format!("{c:.2}")),
                match s.failed_share {
                    Some(share) => format!("{:.1} % not acquired", 100.0 * share),
                    None => status(s.status).into(),
                },
            ]);
        }
        let waits = of(0).any(|s| s.wait.is_some());
        for (column, (name, only_wide)) in table.column_iter_mut().zip(columns) {
            // Between columns there is a blank anyway.
            column.set_padding((0, 1));
            let empty = !waits && ["wait P99", "max"].contains(&name);
            if (only_wide && !wide) || empty {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
        text += &format!("{}\n", aligned(table, 2));
        if of(0).any(|s| s.classes.len() > 1) {
            let mut table = empty(&["point", "lock", "class", "op/s per thread", "wait P99"]);
            let mut last = usize::MAX;
            for s in of(0) {
                for (class, rate, p99) in &s.classes {
                    table.add_row([
                        label(s, &mut last),
                        name(s),
                        class.to_string(),
                        si(*rate),
                        option(*p99, time),
                    ]);
                }
            }
            text += &format!("\nper class of cores (0 is the fastest)\n{}\n", aligned(table, 2));
        }
    }
    if of(3).next().is_some() {
        text += "\nepochs, by class of cores (0 is the fastest); without the first third of each run, in which \
                 windows settle\n";
    }
    for (number, row) in plan.rows.iter().enumerate() {
        let Work::Epoch { slo_ns, .. } = row.point.work else { continue };
        let all: Vec<_> = of(3).filter(|s| s.row == number).collect();
        text += &format!("\n{}\n{}", row.point.label(), epochs(plan, &all, slo_ns));
    }
    if of(4).next().is_some() {
        let mut table =
            empty(&["point", "lock", "ticks of start + end", "bytes a thread and epoch"]);
        let mut last = usize::MAX;
        for s in of(4) {
            table.add_row([
                label(s, &mut last),
                name(s),
                with_range(&s.epoch_ticks),
                with_range(&s.bytes_per_epoch),
            ]);
        }
        text += &format!("\n{}\n", aligned(table, 2));
    }
    if of(1).next().is_some() {
        let mut table =
            empty(&["point", "lock", "size of the lock", "bytes beside it [min .. max]", ""]);
        let mut last = usize::MAX;
        for s in of(1) {
            table.add_row([
                label(s, &mut last),
                name(s),
                option(s.size_of, |b| format!("{b} B")),
                option(s.bytes_per_lock, |b| {
                    format!("{:.1} B [{:.1} .. {:.1}]", b.median, b.min, b.max)
                }),
                status(s.status).into(),
            ]);
        }
        text += &format!("\n{}\n", aligned(table, 2));
    }
    if of(2).next().is_some() {
        let mut table = empty(&[
            "point",
            "lock",
            "rate",
            of_reference.as_str(),
            "overtaken",
            "beyond grace",
            "bypass P99.9",
            "longest",
            "",
        ]);
        let mut last = usize::MAX;
        for s in of(2) {
            table.add_row([
                label(s, &mut last),
                name(s),
                option(s.rate, |r| format!("{}op/s", spaced(si(r.median)))),
                with_range(&s.ratio),
                option(s.overtaken, |o| format!("{:.3} %", 100.0 * o.0)),
                option(s.overtaken, |o| format!("{:.3} %", 100.0 * o.1)),
                option(s.bypass, |b| b.0.to_string()),
                option(s.bypass, |b| b.1.to_string()),
                status(s.status).into(),
            ]);
        }
        text += &format!("\n{}\n", aligned(table, 2));
    }
    text
}

/// Epochs at one point: throughput and latency by class of cores, against the SLO.
fn epochs(plan: &Plan, rows: &[&Summary], slo_ns: u64) -> String {
    let mut table = empty(&[
        "lock",
        "class",
        "epochs/s",
        "of the first [min .. max]",
        "P50",
        "P99",
        "P99 / SLO",
        "over SLO",
        "",
    ]);
    let of_slo = |p99: f64| if slo_ns == 0 { "-".into() } else { ratio(p99 / slo_ns as f64) };
    for s in rows {
        table.add_row([
            plan.subjects[s.subject].name.clone(),
            "all".into(),
            option(s.rate, |r| si(r.median)),
            with_range(&s.ratio),
            option(s.latency, |l| time(l.p50)),
            option(s.latency, |l| time(l.p99)),
            option(s.latency, |l| of_slo(l.p99)),
            String::new(),
            status(s.status).into(),
        ]);
        for class in &s.epochs {
            table.add_row([
                String::new(),
                class.class.to_string(),
                si(class.rate),
                String::new(),
                time(class.p50),
                time(class.p99),
                of_slo(class.p99),
                format!("{:.2} %", 100.0 * class.violations),
                String::new(),
            ]);
        }
    }
    format!("{}\n", aligned(table, 1))
}

/// The bars and what was measured against them.
pub(crate) fn bars(verdicts: &[Verdict]) -> String {
    let mut table = empty(&["bar", "wanted", "measured [min .. max]", "what"]);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    for v in verdicts {
        let met = match (v.met, v.measured) {
            (Some(true), _) => "met",
            (Some(false), _) => "missed",
            (None, Some(_)) => "",
            (None, None) => "not measured",
        };
        let against = v.against.iter().map(|text| format!("; {text}"));
        let what = format!("{} {}\n{}{}", v.lock, v.figure, v.what, against.collect::<String>());
        table.add_row([met.into(), v.bar.clone(), with_range(&v.measured), what]);
    }
    table.to_string()
}

fn empty(header: &[&str]) -> Table {
    let mut table = Table::new();
    // A line under each row would cut the blocks of a point apart.
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_header(header.iter().copied());
    table
}

/// A cell that numbers are read in: aligned to the right.
fn aligned(mut table: Table, text_columns: usize) -> Table {
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
