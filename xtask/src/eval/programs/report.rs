//! The report: one self-contained HTML page, its plot as a file, and the figures behind it.

use super::figures::{METRICS, Metric, RAW, Results};
use super::{Evaluation, GLIBC};
use crate::demo::chart::colour;
use crate::demo::stats::{disturbed, spread};
use crate::eval::{finish, save};
use anyhow::{Context, Result};
use lockwright_numbers::format::{self, si, time};
use lockwright_plot::{
    Axis, Block, Cell, Column, ColumnLine, Group, Head, Ink, Look, Mark, Row, Rows, Style, page,
};
use maud::{Markup, PreEscaped, html};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTERRUPTED: &str = "Interrupted: some programs, or rounds of the last one, are missing";
const QUICK: &str = "A quick run: it shows that everything works. The figures mean nothing";

/// Writes all files to `out`, and returns the page's path.
pub(super) fn write(evaluation: &Evaluation, out: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let mut raw = RAW.to_owned();
    for results in &evaluation.results {
        results.raw(&mut raw);
    }
    save(&out.join("runs.csv"), &raw)?;
    let summary = json!({
        "figures": "real",
        "machine": evaluation.conditions.host,
        "notes": evaluation.conditions.notes,
        "date": evaluation.conditions.date,
        "command": evaluation.conditions.command,
        "seconds": evaluation.seconds,
        "rounds": evaluation.conditions.rounds,
        "interrupted": evaluation.conditions.interrupted,
        "others_share": evaluation.conditions.disturbance,
        "energy": evaluation.energy,
        "skipped": evaluation.skipped,
        "failed": evaluation.failed,
        "programs": evaluation.results.iter().map(|r| r.summary(evaluation.is_judged)).collect::<Vec<_>>(),
    });
    let plot = plot(&evaluation.results);
    save(&out.join("programs.svg"), &plot)?;
    finish(out, &summary, &readme(evaluation), &report(evaluation, &plot))
}

/// Warnings that readers of the figures must see.
fn warnings(evaluation: &Evaluation) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(evaluation.conditions.quick.then(|| QUICK.to_owned()));
    warnings.extend(evaluation.conditions.interrupted.then(|| INTERRUPTED.to_owned()));
    warnings
        .extend(disturbed(evaluation.conditions.disturbance).map(|why| format!("Warning: {why}")));
    for (what, programs) in [("Skipped", &evaluation.skipped), ("Failed", &evaluation.failed)] {
        for (program, why) in programs {
            let why = why.lines().next().unwrap_or_default();
            warnings.push(format!("{what}: {program}: {why}"));
        }
    }
    warnings.extend(evaluation.conditions.notes.iter().cloned());
    warnings
}

/// The folder's README.
fn readme(evaluation: &Evaluation) -> String {
    let mut text = format!(
        "# {}: real\n\nAll figures are *real*. `report.html` has all of it; docs/eval.md of the project \
         says what runs and how it is compared.\n\n| what | value |\n|---|---|\n| machine | {} |\n| date | {} |\n\
         | command | `{}` |\n| runs | {} rounds of {} s |\n| other programs | {:.1} % of the CPUs |\n\n",
        evaluation.title,
        evaluation.conditions.host,
        evaluation.conditions.date,
        evaluation.conditions.command,
        evaluation.conditions.rounds,
        evaluation.seconds,
        evaluation.conditions.disturbance * 100.0,
    );
    for warning in warnings(evaluation) {
        let _ = writeln!(text, "{warning}.\n");
    }
    text.push_str("Ratios to glibc in the same round: medians, with smallest and largest in brackets.\n\n| program | lock |");
    for metric in METRICS {
        let _ = write!(text, " {} |", metric.head());
    }
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(METRICS.len()));
    for results in &evaluation.results {
        for (lock, name) in results.locks.iter().enumerate().skip(1) {
            let _ = write!(text, "| {} | {name} |", results.program.name);
            for metric in METRICS {
                let _ = match results.ratio(metric, lock) {
                    Some(ratio) => write!(
                        text,
                        " {}{:.2} [{:.2} .. {:.2}] |",
                        if is_missed(evaluation, results, metric, lock) {
                            "**missed** "
                        } else {
                            ""
                        },
                        ratio.median,
                        ratio.min,
                        ratio.max
                    ),
                    None => write!(text, " - |"),
                };
            }
            text.push('\n');
        }
    }
    let _ = writeln!(
        text,
        "\n{}. TPP (operations per joule) and EPO (its inverse) are in summary.json.",
        evaluation.energy
    );
    text + "\n![programs.svg](programs.svg)\n"
}

fn is_missed(evaluation: &Evaluation, results: &Results, metric: Metric, lock: usize) -> bool {
    evaluation.is_judged && results.is_met(metric, lock) == Some(false)
}

fn report(evaluation: &Evaluation, plot: &str) -> String {
    let body = html! {
        h1 { (evaluation.title) " " (page::tag("real", "measured on the machine named below, not simulated")) }
        p.lead { "Debian’s own programs, under glibc’s lock and under ours, on this machine." }
        @for text in warnings(evaluation) { (page::warning(text + ".")) }
        h2 { "Times glibc’s" }
        (page::figure(plot, "Large dots: median of the ratios within a round. Small dots: the rounds. Dashed lines: the \
            bars for auto. The scale is logarithmic; values beyond its ends are drawn at the ends."))
        @for results in &evaluation.results {
            h2 { (results.program.name) }
            p { (PreEscaped(results.program.workload)) }
            (table(evaluation, results))
        }
        (method(evaluation))
    };
    page::page("lockwright: programs", &body)
}

fn table(evaluation: &Evaluation, results: &Results) -> Markup {
    let mut rows = Vec::new();
    for (lock, name) in results.locks.iter().enumerate() {
        let value = |metric| match (results.value(metric, lock), metric) {
            (None, _) => html! { "–" },
            (Some(value), Metric::Rate) => html! { (si(value.median)) },
            (Some(value), _) => html! { (time(value.median)) },
        };
        let mut row = page::TableRow { first: true, ..page::TableRow::default() };
        row.cells = vec![html! { (page::chip(&colour(lock).css())) (name) }, html! { "median" }];
        row.cells.extend(METRICS.map(value));
        rows.push(row);
        if lock == 0 {
            continue;
        }
        let ratio = |metric| {
            let Some(ratio) = results.ratio(metric, lock) else { return html! { "–" } };
            let median = format::ratio(ratio.median);
            html! {
                @if is_missed(evaluation, results, metric, lock) { b { "missed " (median) } } @else { (median) }
                br; (format!("{} to {}", format::ratio(ratio.min), format::ratio(ratio.max)))
            }
        };
        let mut row = page::TableRow::of([String::new(), format!("of {GLIBC}’s")]);
        row.cells.extend(METRICS.map(ratio));
        rows.push(row);
    }
    let header = ["lock (real)", ""].into_iter().chain(METRICS.map(Metric::head));
    page::table(header, 2, false, rows)
}

fn method(evaluation: &Evaluation) -> Markup {
    html! {
        h2 { "How this was measured" }
        (page::terms([
            ("Machine", html! { (evaluation.conditions.host) }),
            ("Date", html! { (evaluation.conditions.date) }),
            ("Command", page::command(&evaluation.conditions.command)),
            ("Rounds", html! { (evaluation.conditions.rounds) ", of " (evaluation.seconds) " s a run; a first run of each program \
                isn’t counted. Every round runs every lock once, in an order that rotates; a lock is compared with glibc \
                in the same round." }),
            ("glibc", html! { "nothing preloaded." }),
            ("Our locks", html! { "the same program with " code { "LD_PRELOAD=liblockwright.so" } " and "
                code { "LOCKWRIGHT_LOCK" } "; each run made sure that the library was in the process, and had no \
                complaint." }),
            ("Loads", html! { "run on the same CPUs, without the library. Servers listen on the loopback; their data are in \
                memory where there is room." }),
            ("CPU", html! { "of the program alone, in user and kernel mode, counted in hundredths of a second." }),
            ("Batch", html! { "programs that run to their end: throughput is work per time, the longest operation is the whole \
                run. What they wrote was the same in all runs." }),
            ("Bars", html! { "of auto: throughput at least 0.98, P99 at most 1.05, longest at most 1.10 of glibc’s, \
                medians." }),
            ("Other load", html! { "other programs used " (format!("{:.1}", evaluation.conditions.disturbance * 100.0))
                " % of the CPUs during the measurement." }),
            ("Files", html! { code { "runs.csv" } ": each run; " code { "summary.json" } ": medians and verdicts." }),
        ]))
    }
}

/// One group of rows per program, one column per metric, one row per lock: its ratio to glibc.
fn plot(results: &[Results]) -> String {
    let column = |metric: Metric| {
        let better = if metric == Metric::Rate { "more is better" } else { "less is better" };
        let axis = Axis::log(better, |ratio| format!("{ratio}"));
        let axis = axis.within(0.25, 4.0).named_at(&[0.25, 0.5, 1.0, 2.0, 4.0]);
        let mut column = Column::new(metric.head(), axis, &[""]);
        let rule = |(at, _)| ColumnLine { at, name: String::new(), ink: Ink::SOFT };
        column.rules.extend(metric.bar().map(rule));
        column
    };
    let cell = |results: &Results, metric, lock| {
        let Some(ratios) = results.ratios(metric, lock) else { return Cell::default() };
        let spread = spread(&ratios);
        let mut marks = vec![Mark::span(spread.min, spread.max, colour(lock))];
        marks.extend(ratios.into_iter().map(Mark::round));
        marks.push(Mark::dot(spread.median, 0, colour(lock)));
        Cell { marks, words: vec![format::ratio(spread.median)] }
    };
    let group = |results: &Results| {
        let row = |(lock, name): (usize, &String)| Row {
            name: name.clone(),
            cells: METRICS.map(|metric| cell(results, metric, lock)).to_vec(),
        };
        let rows = results.locks.iter().enumerate().skip(1).map(row).collect();
        Group { title: results.program.id.to_owned(), rows }
    };
    let ours = results.first().into_iter().flat_map(|first| first.locks.iter().enumerate().skip(1));
    let head = Head {
        title: "Each program: times glibc’s".to_owned(),
        source: "real".to_owned(),
        key: ours
            .map(|(lock, name)| (name.clone(), Style::ink(colour(lock), Look::Marks)))
            .collect(),
    };
    let columns = METRICS.map(column).to_vec();
    Rows { head, blocks: vec![Block { columns, groups: results.iter().map(group).collect() }] }
        .svg()
}

#[cfg(test)]
mod tests {
    use super::super::super::kept::Conditions;
    use super::super::list::PROGRAMS;
    use super::*;

    #[test]
    fn the_report_says_what_is_missing() {
        let evaluation = Evaluation {
            title: "Unmodified programs",
            results: vec![Results::example(&PROGRAMS[0])],
            skipped: vec![("nginx", "no packages\nhint: be root".into())],
            failed: vec![("redis", "it <died>".into())],
            seconds: 1,
            energy: "energy: unavailable (nothing measures here)".into(),
            is_judged: true,
            conditions: Conditions {
                rounds: 1,
                quick: false,
                host: "a machine".into(),
                command: "cargo xtask eval programs".into(),
                date: "today".into(),
                interrupted: true,
                disturbance: 0.5,
                notes: Vec::new(),
            },
        };
        let dir = tempfile::tempdir().unwrap();
        let page = fs::read_to_string(write(&evaluation, dir.path()).unwrap()).unwrap();
        for text in
            ["Skipped: nginx: no packages.", "it &lt;died&gt;", INTERRUPTED, "50 %", "missed 0.18"]
        {
            assert!(page.contains(text), "{text}");
        }
        let readme = fs::read_to_string(dir.path().join("README.md")).unwrap();
        assert!(readme.contains("| **missed** 0.18 [0.18 .. 0.18] |"), "{readme}");
        let plot = fs::read_to_string(dir.path().join("programs.svg")).unwrap();
        // Each round has a disc and a ring; a median has a disc or an arrow; and the key has one mark.
        let locks = evaluation.results[0].locks.len() - 1;
        let rounds = evaluation.results[0].runs[0].len();
        let marks = plot.matches("<circle").count() + plot.matches("<polygon").count();
        assert_eq!(marks, locks * (METRICS.len() * (2 * rounds + 1) + 1));
    }
}
