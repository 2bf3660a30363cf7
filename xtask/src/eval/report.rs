//! The report: one self-contained HTML page, its plots as files, and the figures behind it.

use super::chart::{bars, cdfs, sweep};
use super::figures::{self, Point, Results, VIOLATIONS};
use super::{Evaluation, finish, save};
use crate::demo::stats::disturbed;
use anyhow::{Context, Result};
use lockwright_numbers::format::{self, ns, si};
use lockwright_plot::page;
use maud::{Markup, PreEscaped, html};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTERRUPTED: &str = "Interrupted: some databases, or rounds of the last one, are missing";

/// Writes all files to `out`, and returns the page's path.
pub(super) fn write(evaluation: &Evaluation, out: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let (mut raw, mut cdf) = (figures::RAW.to_owned(), figures::CDF.to_owned());
    for results in &evaluation.results {
        results.raw(&mut raw);
        results.cdf(&mut cdf);
        for (name, svg) in plots(results) {
            save(&out.join(format!("{}-{name}.svg", results.database.id)), &svg)?;
        }
    }
    save(&out.join("runs.csv"), &raw)?;
    save(&out.join("cdf.csv"), &cdf)?;
    let summary = json!({
        "figures": evaluation.machine.tag(),
        "machine": evaluation.conditions.host,
        "notes": evaluation.conditions.notes,
        "classes": evaluation.machine.spec,
        "date": evaluation.conditions.date,
        "command": evaluation.conditions.command,
        "threads": evaluation.threads,
        "seconds": evaluation.seconds,
        "warmup_seconds": evaluation.warmup,
        "rounds": evaluation.conditions.rounds,
        "interrupted": evaluation.conditions.interrupted,
        "epochs": evaluation.epochs,
        "others_share": evaluation.conditions.disturbance,
        "databases": evaluation.results.iter().map(|r| r.summary(!evaluation.conditions.quick)).collect::<Vec<_>>(),
    });
    finish(out, &summary, &readme(evaluation), &report(evaluation))
}

/// The folder's README.
fn readme(evaluation: &Evaluation) -> String {
    let tag = evaluation.machine.tag();
    let mut text = format!(
        "# LibASL's databases: {tag}\n\nAll figures are *{tag}*: {}. `report.html` has all of it; docs/eval.md of the \
         project says what runs and how it is compared.\n\n\
         | what | value |\n|---|---|\n| machine | {} |\n| classes | `{}` |\n| date | {} |\n| command | `{}` |\n\
         | runs | {} rounds of {} s after {} s of warm-up, {} threads |\n\
         | other programs | {:.1} % of the CPUs |\n\n\
         | bar | wanted | measured ({tag}) | |\n|---|---|---|---|\n",
        whence(evaluation),
        evaluation.conditions.host,
        evaluation.machine.spec,
        evaluation.conditions.date,
        evaluation.conditions.command,
        evaluation.conditions.rounds,
        evaluation.seconds,
        evaluation.warmup,
        evaluation.threads,
        evaluation.conditions.disturbance * 100.0,
    );
    for bar in evaluation.bars() {
        let verdict = if evaluation.conditions.quick { "too short".into() } else { bar.verdict() };
        let _ = writeln!(text, "| {} | {} | {} | {verdict} |", bar.what, bar.wanted, bar.measured);
    }
    if evaluation.conditions.interrupted {
        let _ = write!(text, "\n{INTERRUPTED}.\n");
    }
    for note in &evaluation.conditions.notes {
        let _ = write!(text, "\n{note}.\n");
    }
    for results in &evaluation.results {
        for (name, _) in plots(results) {
            let id = results.database.id;
            let _ = write!(text, "\n![{id}-{name}.svg]({id}-{name}.svg)\n");
        }
    }
    text
}

/// The origin of the figures.
fn whence(evaluation: &Evaluation) -> &'static str {
    match evaluation.machine.emulated() {
        true => "the little cores’ slowness is added by the library",
        false => "measured on cores as they are",
    }
}

/// A database's plots, with their names.
fn plots(results: &Results) -> Vec<(&'static str, String)> {
    let mut plots = vec![("bars", bars(results))];
    plots.extend(sweep(results).map(|svg| ("sweep", svg)));
    plots.push(("cdf", cdfs(results)));
    plots
}

fn report(evaluation: &Evaluation) -> String {
    let (tag, what) = (evaluation.machine.tag(), whence(evaluation));
    let mut warnings = Vec::new();
    if evaluation.conditions.quick {
        let quick = "A quick run: it only shows that everything works. The figures mean nothing";
        warnings.push(quick.to_owned());
    }
    warnings.extend(evaluation.conditions.interrupted.then(|| INTERRUPTED.to_owned()));
    if !evaluation.epochs {
        warnings.push("The library offered no epochs: SLOs had no effect".to_owned());
    }
    warnings
        .extend(disturbed(evaluation.conditions.disturbance).map(|why| format!("Warning: {why}")));
    warnings.extend(evaluation.conditions.notes.iter().cloned());
    let body = html! {
        h1 { "LibASL’s databases " (page::tag(tag, what)) }
        p.lead {
            "Four databases of " i { "Asymmetry-aware Scalable Locking" } " (PPoPP 2022, section 4.2) under its locks and \
            ours, on " (evaluation.machine.spec) " (" (tag) ": " (what) "). Upscaledb, the fifth, is not available: \
            Debian 12 has no package of it."
        }
        @for text in warnings { (page::warning(text + ".")) }
        (verdicts(evaluation))
        @for results in &evaluation.results { (section(results)) }
        (method(evaluation))
    };
    page::page("lockwright: LibASL’s databases", &body)
}

fn verdicts(evaluation: &Evaluation) -> Markup {
    let measured = format!("measured ({})", evaluation.machine.tag());
    let rows = evaluation.bars().into_iter().map(|bar| {
        let verdict = if evaluation.conditions.quick { "too short".into() } else { bar.verdict() };
        let mut row = page::TableRow::of([&*bar.what, &*bar.wanted, &*bar.measured]);
        row.cells.push(match &*verdict {
            "missed" => html! { b { "missed" } },
            other => html! { (other) },
        });
        row
    });
    html! {
        h2 { "Bars" }
        p {
            "An SLO is the P99 that an operation is allowed. It is " i { "infeasible" } " if more than 1 % of the \
            operations on little cores exceed it even under FIFO, which allows no overtaking. An infeasible SLO is not judged. Others \
            are kept if at most " (format!("{:.1}", VIOLATIONS * 100.0)) " % exceed it."
        }
        (page::table(["bar", "wanted", &measured, ""], 3, true, rows))
    }
}

fn section(results: &Results) -> Markup {
    let caption = |name| match name {
        "bars" => {
            "Bars: median of the rounds. Dots: the rounds. Behind them: times FIFO’s, median of the ratios within a \
             round. Right: P99 of all rounds together. Asl is shown with its SLO."
        }
        "sweep" => {
            "SLO 0 is FIFO, “max” means no limit. Little cores’ P99 should follow the SLO where it is feasible, until \
             the window no longer matters."
        }
        _ => "Latencies include the wait for locks. Dashed line: asl’s SLO.",
    };
    html! {
        h2 { (results.points[0].runs[0].engine) }
        p { (PreEscaped(results.database.workload)) }
        @for (name, svg) in plots(results) { (page::figure(&svg, caption(name))) }
        (table(results))
    }
}

fn table(results: &Results) -> Markup {
    let mut header = vec![format!("lock ({})", results.machine.tag())];
    header.extend(["operations/s", "of fifo", "spread"].map(str::to_owned));
    for (class, name) in results.groups() {
        header.extend(class.map(|_| format!("{name} share")));
        header.extend([format!("{name} P50"), "P99".to_owned()]);
    }
    header.extend(["longest", "over SLO"].map(str::to_owned));
    let fifo = results.point("fifo");
    let rows = results.points.iter().map(|point| page::TableRow::of(row(results, point, fifo)));
    page::table(header, 1, false, rows)
}

fn row(results: &Results, point: &Point, fifo: Option<&Point>) -> Vec<String> {
    let mut cells = vec![point.subject.name(), si(point.rate().median)];
    let ratio = fifo.map(|fifo| Results::ratio(point, fifo));
    cells.extend(ratio.map_or([String::new(), String::new()], |ratio| {
        [
            format::ratio(ratio.median),
            format!("{} to {}", format::ratio(ratio.min), format::ratio(ratio.max)),
        ]
    }));
    for (class, _) in results.groups() {
        let latency = point.latency(class);
        cells.extend(class.map(|class| format!("{:.0} %", point.share(class) * 100.0)));
        cells.extend([ns(latency.quantile(0.5)), ns(latency.quantile(0.99))]);
    }
    cells.push(ns(point.latency(None).max()));
    cells.push(match point.subject.slo_ns {
        Some(_) => format!("{:.2} %", point.violations(results.machine.little()) * 100.0),
        None => String::new(),
    });
    cells
}

fn method(evaluation: &Evaluation) -> Markup {
    let tag = evaluation.machine.tag();
    let (name, spec) = evaluation.machine.variable();
    let slowness = match evaluation.machine.emulated() {
        true => html! {
            "the machine’s CPUs are equal. With " code { (name) "=" (spec) } " the library lets threads on little CPUs \
            compute longer by these factors, in and outside of critical sections, and never while they wait. The cost of moving \
            data between unequal cores is not emulated."
        },
        false => html! { "classes by " code { (name) "=" (spec) } "; nothing is slowed down." },
    };
    html! {
        h2 { "How this was measured" }
        (page::terms([
            ("Machine", html! { (evaluation.conditions.host) }),
            ("Date", html! { (evaluation.conditions.date) }),
            ("Command", page::command(&evaluation.conditions.command)),
            (tag, slowness),
            ("Runs", html! { (evaluation.conditions.rounds) " rounds, each of " (evaluation.seconds) " s after "
                (evaluation.warmup) " s of warm-up, " (evaluation.threads) " threads, each pinned to one CPU. Every \
                round runs every lock once, in an order that rotates; ratios are of the same round. Latencies are of all \
                rounds together." }),
            ("Epochs", html! { "every operation is an epoch, under each lock; only asl uses its SLO. SLOs are 0, ½, 1, \
                2, 4 and 8 times the P99 that FIFO had on little cores in first runs (their median), and none." }),
            ("glibc", html! { "its algorithm, run by the library, because the library emulates the cores." }),
            ("Other load", html! { "other programs used " (format!("{:.1}", evaluation.conditions.disturbance * 100.0))
                " % of the CPUs during the measurement." }),
            ("Correctness", html! { "the drivers checked every answer and, at the end, the whole database: all runs \
                were right (else there would be no report)." }),
            ("Files", html! { code { "runs.csv" } ": each run and class; " code { "cdf.csv" } ": the distributions; "
                code { "summary.json" } ": medians and verdicts." }),
        ]))
    }
}
