//! Tables for people, JSON and CSV for programs.

use crate::run::{Measured, Plan, Status, Summary};
use crate::spec::Work;
use crate::stats::Spread;
use crate::suite::Verdict;
use crate::system::Machine;
use anyhow::Result;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, presets};
use serde::Serialize;
use std::io::Write;

/// All that a report says.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    /// Every figure was measured on the machine below, none simulated.
    pub origin: &'static str,
    /// Where and when.
    pub machine: &'a Machine,
    /// The command line.
    pub command: String,
    /// Locks and points.
    pub subjects: &'a [crate::subject_list::Subject],
    /// The grid.
    pub rows: &'a [crate::run::Row],
    /// Repetitions asked for.
    pub reps: u32,
    /// Length of one measurement in seconds.
    pub time_s: f64,
    /// Seed of the lengths.
    pub seed: u64,
    /// Every measurement.
    pub measured: &'a Measured,
    /// Sums.
    pub summaries: &'a [Summary],
    /// The suite's bars, if a suite was run.
    pub verdicts: &'a [Verdict],
}

/// Three significant digits and an SI prefix: `1.23 M`.
pub fn si(value: f64) -> String {
    for (limit, factor, prefix) in [(1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e3, 1e3, " k")] {
        // Rounding must not make 1000 of 999.9.
        if value.abs() >= limit * 0.9995 {
            return format!("{}{prefix}", digits(value / factor));
        }
    }
    digits(value)
}

/// A time: `123 ns`, `4.56 us`, `7.89 ms`, `1.23 s`.
pub fn time(ns: f64) -> String {
    for (limit, factor, unit) in [(1e9, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "us")] {
        if ns >= limit * 0.9995 {
            return format!("{} {unit}", digits(ns / factor));
        }
    }
    format!("{} ns", digits(ns))
}

fn digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "inf".into(),
        0.0 => "0".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `1.23 [1.10 .. 1.31]`.
fn with_range(spread: &Option<Spread>) -> String {
    spread.map_or("-".into(), |s| {
        format!("{} [{} .. {}]", ratio(s.median), ratio(s.min), ratio(s.max))
    })
}

/// A ratio keeps two decimals, and more where they would all be zero.
fn ratio(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.095 { format!("{value:.4}") } else { digits(value) }
}

fn option<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or("-".into(), text)
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "",
        Status::Unsupported => "not offered",
        Status::Hung => "hung",
        Status::Failed => "failed",
    }
}

/// A cell that numbers are read in: aligned to the right.
fn aligned(mut table: Table, text_columns: usize) -> Table {
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Columns of a terminal that a table with long cells takes; they are wrapped.
const WIDTH: u16 = 100;

fn empty(header: &[&str]) -> Table {
    let mut table = Table::new();
    // A line under each row would cut the blocks of a point apart.
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_header(header.iter().copied());
    table
}

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
    let is_glibc = |row: &crate::run::Row| plan.subjects[row.subjects[0]].name == "glibc";
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

/// `real`, `emulated`, or both.
pub(crate) fn origin(rows: &[crate::run::Row]) -> &'static str {
    let is = |origin| rows.iter().any(|row| row.point.origin() == origin);
    match (is("real"), is("emulated")) {
        (true, true) => "real and emulated",
        (false, true) => "emulated",
        _ => "real",
    }
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

/// `1.2 M` + unit reads `1.2 Mop/s`; a number without prefix keeps a space before its unit.
pub(crate) fn spaced(number: String) -> String {
    if number.ends_with(char::is_alphabetic) { number } else { number + " " }
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

/// What was kept and discarded, and whatever else the reader must know.
pub(crate) fn notes(plan: &Plan, measured: &Measured, machine: &Machine) -> Vec<String> {
    let mut lines = vec![format!(
        "groups kept: {}, discarded because the line transfer changed by more than 1.6 times: {}{}",
        measured.kept,
        measured.discarded,
        match measured.given_up {
            0 => String::new(),
            n => format!(" (of these {n} not repeated: they changed in every attempt)"),
        }
    )];
    let lines_ns: Vec<f64> = measured.samples.iter().filter_map(|s| s.line_ns.0).collect();
    match Spread::of(&lines_ns) {
        Some(s) => lines.push(format!(
            "line transfer, one way: {:.0} ns [{:.0} .. {:.0}]",
            s.median, s.min, s.max
        )),
        None => lines
            .push("warning: one CPU: no line transfer to watch, nothing runs in parallel".into()),
    }
    if plan.rows.iter().any(|r| r.point.latency) {
        lines.push(format!(
            "wait and hold: a separate pass of {} s that takes the time of every operation; throughput is untouched",
            plan.time_s / 2.0
        ));
    }
    if machine.load > 0.5 {
        lines.push(format!(
            "warning: load average {} at the start: others were running",
            machine.load
        ));
    }
    if plan.reps < 9 {
        lines.push(format!(
            "warning: {} {}: medians want at least 9",
            plan.reps,
            if plan.reps == 1 { "repetition" } else { "repetitions" }
        ));
    }
    if measured.interrupted {
        lines.push("warning: interrupted: what was measured until then".into());
    }
    lines.extend(measured.notes.iter().map(|n| format!("warning: {n}")));
    lines.push("columns: docs/bench.md".into());
    lines
}

/// Every measurement, one a line.
pub(crate) fn raw_csv(plan: &Plan, measured: &Measured, to: impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record([
        "rep",
        "workload",
        "point",
        "lock",
        "role",
        "threads",
        "cs_ns",
        "gap_ns",
        "pinned",
        "status",
        "kept",
        "line_before_ns",
        "line_after_ns",
        "ops",
        "elapsed_ns",
        "rate_per_s",
        "cpu_ns_per_op",
        "failures",
        "wait_p50_ns",
        "wait_p90_ns",
        "wait_p99_ns",
        "wait_p999_ns",
        "wait_max_ns",
        "hold_p50_ns",
        "hold_p99_ns",
        "hold_max_ns",
        "jain",
        "cal",
        "bytes_per_lock",
        "size_of",
        "overtaken",
        "overtaken_late",
        "bypass_p999",
        "longest_bypass",
        "epoch_p50_ns",
        "epoch_p99_ns",
        "slowest_class_epoch_p99_ns",
        "epoch_ticks",
        "bytes_per_epoch",
        "origin",
    ])?;
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
    for s in &measured.samples {
        let (point, who) = (&plan.rows[s.row].point, &plan.subjects[s.subject]);
        let answer = s.answer.as_ref().filter(|_| s.status == Status::Ok);
        let get = |f: &dyn Fn(&crate::spec::Answer) -> Option<f64>| number(answer.and_then(f));
        csv.write_record([
            s.rep.to_string(),
            point.workload().into(),
            point.label(),
            who.name.clone(),
            serde_json::to_value(who.role)?.as_str().unwrap_or_default().into(),
            crate::worker::threads_of(point).to_string(),
            point.cs_ns.to_string(),
            point.gap_ns.to_string(),
            point.pin.to_string(),
            if s.status == Status::Ok { "ok" } else { status(s.status) }.into(),
            s.kept.to_string(),
            number(s.line_ns.0),
            number(s.line_ns.1),
            answer.map_or(String::new(), |a| a.ops.to_string()),
            answer.map_or(String::new(), |a| a.elapsed_ns.to_string()),
            get(&|a| Some(a.rate())),
            get(&|a| Some(a.cpu_per_op())),
            answer.map_or(String::new(), |a| a.failures.to_string()),
            get(&|a| Some(a.wait?.p50)),
            get(&|a| Some(a.wait?.p90)),
            get(&|a| Some(a.wait?.p99)),
            get(&|a| Some(a.wait?.p999)),
            get(&|a| Some(a.wait?.max)),
            get(&|a| Some(a.hold?.p50)),
            get(&|a| Some(a.hold?.p99)),
            get(&|a| Some(a.hold?.max)),
            get(&|a| a.jain()),
            get(&|a| a.cal()),
            get(&|a| a.bytes_per_lock),
            answer.map_or(String::new(), |a| a.size_of.to_string()),
            get(&|a| a.overtaken),
            get(&|a| a.overtaken_late),
            answer.and_then(|a| a.bypass_p999).map_or(String::new(), |b| b.to_string()),
            answer.and_then(|a| a.longest_bypass).map_or(String::new(), |b| b.to_string()),
            get(&|a| Some(a.latency?.p50)),
            get(&|a| Some(a.latency?.p99)),
            get(&|a| a.slowest_p99()),
            get(&|a| a.epoch_ticks),
            get(&|a| a.bytes_per_epoch),
            point.origin().into(),
        ])?;
    }
    csv.flush()?;
    Ok(())
}

/// The sums, one point and lock a line.
pub(crate) fn summary_csv(plan: &Plan, summaries: &[Summary], to: impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record([
        "workload",
        "point",
        "lock",
        "status",
        "n",
        "rate_per_s",
        "ratio",
        "ratio_min",
        "ratio_q1",
        "ratio_q3",
        "ratio_max",
        "cpu_ns_per_op",
        "cpu_ratio",
        "wait_p50_ns",
        "wait_p99_ns",
        "wait_max_ns",
        "wait_max_ratio",
        "jain",
        "cal",
        "bytes_per_lock",
        "overtaken",
        "longest_bypass",
        "origin",
    ])?;
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
    for s in summaries {
        let point = &plan.rows[s.row].point;
        csv.write_record([
            point.workload().into(),
            point.label(),
            plan.subjects[s.subject].name.clone(),
            if s.status == Status::Ok { "ok" } else { status(s.status) }.into(),
            s.rate.or(s.bytes_per_lock).map_or(0, |r| r.n).to_string(),
            number(s.rate.map(|r| r.median)),
            number(s.ratio.map(|r| r.median)),
            number(s.ratio.map(|r| r.min)),
            number(s.ratio.map(|r| r.q1)),
            number(s.ratio.map(|r| r.q3)),
            number(s.ratio.map(|r| r.max)),
            number(s.cpu_ns.map(|c| c.median)),
            number(s.cpu_ratio.map(|c| c.median)),
            number(s.wait.map(|w| w.p50)),
            number(s.wait.map(|w| w.p99)),
            number(s.wait.map(|w| w.max)),
            number(s.wait_max_ratio.map(|w| w.median)),
            number(s.jain),
            number(s.cal),
            number(s.bytes_per_lock.map(|b| b.median)),
            number(s.overtaken.map(|o| o.0)),
            s.bypass.map_or(String::new(), |b| b.1.to_string()),
            point.origin().into(),
        ])?;
    }
    csv.flush()?;
    Ok(())
}

/// The README of a folder of results.
pub(crate) fn readme(report: &Report<'_>, text: &str, plots: &[String]) -> String {
    let machine = report.machine;
    let mut page = format!(
        "# Locks side by side, {}\n\n\
         All figures are {}: measured on the machine below, none simulated.\n\n\
         | what | value |\n|---|---|\n\
         | processor | {} |\n| CPUs used | {} |\n| kernel | Linux {} |\n| C library | {} |\n| date | {} |\n\
         | load average at the start | {} |\n| command | `{}` |\n\
         | one measurement | {} s, {} repetitions, seed {} |\n\
         | groups kept, discarded, given up | {}, {}, {} |\n\n",
        machine.date.split('T').next().unwrap_or_default(),
        match report.origin {
            "real" => "*real*",
            "emulated" => "*emulated* (docs/emulation.md)",
            _ => "*real*, or *emulated* where the point says so (docs/emulation.md)",
        },
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.libc,
        machine.date,
        machine.load,
        report.command,
        report.time_s,
        report.reps,
        report.seed,
        report.measured.kept,
        report.measured.discarded,
        report.measured.given_up,
    );
    page += "`raw.csv` has every measurement (also the discarded ones), `summary.csv` the medians, \
             `results.json` both. docs/bench.md of the project defines each figure.\n\n";
    page += &format!("```text\n{}\n```\n", text.trim_end());
    for plot in plots {
        page += &format!("\n![{0}]({0})\n", plot);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(si(1234.0), "1.23 k");
        assert_eq!(si(999_900.0), "1.00 M");
        assert_eq!(si(12.34), "12.3");
        assert_eq!(time(123.4), "123 ns");
        assert_eq!(time(14_000.0), "14.0 us");
        assert_eq!(time(0.0), "0 ns");
        assert_eq!(ratio(0.0123), "0.0123");
        assert_eq!(spaced(si(7.0)) + "op/s", "7.00 op/s");
        assert_eq!(spaced(si(7e6)) + "op/s", "7.00 Mop/s");
    }
}
