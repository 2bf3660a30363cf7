//! The report: one HTML page that needs nothing else, its plots as files, and the figures behind it.

use super::chart::{bars, cdfs, sweep};
use super::figures::{self, Point, Results, VIOLATIONS};
use super::{Evaluation, save};
use crate::demo::chart::escape;
use crate::demo::report::{STYLE, machine};
use crate::demo::stats::{disturbed, thousands, time};
use anyhow::{Context, Result};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTERRUPTED: &str = "Interrupted: some databases, or rounds of the last one, are missing";

/// Writes all files to `out`; the answer is the page's path.
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
        "machine": machine(&evaluation.libc),
        "classes": evaluation.machine.spec,
        "date": evaluation.date,
        "command": evaluation.command,
        "threads": evaluation.threads,
        "seconds": evaluation.seconds,
        "warmup_seconds": evaluation.warmup,
        "rounds": evaluation.rounds,
        "interrupted": evaluation.interrupted,
        "epochs": evaluation.epochs,
        "others_share": evaluation.disturbance,
        "databases": evaluation.results.iter().map(|r| r.summary(!evaluation.quick)).collect::<Vec<_>>(),
    });
    save(&out.join("summary.json"), &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    save(&out.join("README.md"), &readme(evaluation))?;
    let page_path = out.join("report.html");
    save(&page_path, &page(evaluation))?;
    Ok(page_path)
}

/// What lies in the folder, for people who find it.
fn readme(evaluation: &Evaluation) -> String {
    let tag = evaluation.machine.tag();
    let mut text = format!(
        "# LibASL's databases: {tag}\n\nAll figures are *{tag}*: {}. `report.html` has all of it; docs/eval.md of the \
         project says what runs and how it is compared.\n\n\
         | what | value |\n|---|---|\n| machine | {} |\n| classes | `{}` |\n| date | {} |\n| command | `{}` |\n\
         | runs | {} rounds of {} s after {} s of warm-up, {} threads |\n\
         | other programs | {:.1} % of the CPUs meanwhile |\n\n\
         | bar | wanted | measured ({tag}) | |\n|---|---|---|---|\n",
        whence(evaluation),
        machine(&evaluation.libc),
        evaluation.machine.spec,
        evaluation.date,
        evaluation.command,
        evaluation.rounds,
        evaluation.seconds,
        evaluation.warmup,
        evaluation.threads,
        evaluation.disturbance * 100.0,
    );
    for bar in evaluation.bars() {
        let verdict = if evaluation.quick { "too short" } else { bar.verdict() };
        let _ = writeln!(text, "| {} | {} | {} | {verdict} |", bar.what, bar.wanted, bar.measured);
    }
    if evaluation.interrupted {
        let _ = write!(text, "\n{INTERRUPTED}.\n");
    }
    for results in &evaluation.results {
        for (name, _) in plots(results) {
            let id = results.database.id;
            let _ = write!(text, "\n![{id}-{name}.svg]({id}-{name}.svg)\n");
        }
    }
    text
}

/// Where the figures come from.
fn whence(evaluation: &Evaluation) -> &'static str {
    match evaluation.machine.emulated() {
        true => "the little cores’ slowness is added by the library",
        false => "measured on cores as they are",
    }
}

/// A database's plots, by name.
fn plots(results: &Results) -> Vec<(&'static str, String)> {
    let mut plots = vec![("bars", bars(results))];
    plots.extend(sweep(results).map(|svg| ("sweep", svg)));
    plots.push(("cdf", cdfs(results)));
    plots
}

fn page(evaluation: &Evaluation) -> String {
    let tag = evaluation.machine.tag();
    let what = whence(evaluation);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>lockwright: LibASL’s databases</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>LibASL’s databases <span class=\"tag\" title=\"{what}\">{tag}</span></h1>\n\
         <p class=\"lead\">Four databases of <i>Asymmetry-aware Scalable Locking</i> (PPoPP 2022, section 4.2) under \
         its locks and ours, on {} ({tag}: {what}). Upscaledb, the fifth, is not available: Debian 12 has no \
         package of it.</p>\n",
        escape(&evaluation.machine.spec)
    );
    if evaluation.quick {
        page.push_str(
            "<p class=\"warning\">A quick run: it only shows that everything works. The figures mean nothing.</p>\n",
        );
    }
    if evaluation.interrupted {
        let _ = writeln!(page, "<p class=\"warning\">{INTERRUPTED}.</p>");
    }
    if !evaluation.epochs {
        page.push_str(
            "<p class=\"warning\">The library offered no epochs: SLOs had no effect.</p>\n",
        );
    }
    if let Some(warning) = disturbed(evaluation.disturbance) {
        let _ = writeln!(page, "<p class=\"warning\">Warning: {}.</p>", escape(&warning));
    }
    page.push_str("</header>\n");
    verdicts(&mut page, evaluation);
    for results in &evaluation.results {
        section(&mut page, results);
    }
    method(&mut page, evaluation);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn verdicts(page: &mut String, evaluation: &Evaluation) {
    let _ = writeln!(
        page,
        "<section>\n<h2>Bars</h2>\n<p>An SLO is the P99 that an operation is allowed. It is <i>infeasible</i> if \
         more than 1 % of the operations on little cores exceed it even under FIFO, where nobody is overtaken; \
         then it is not judged. Others are kept if at most {:.1} % exceed it.</p>\n\
         <div class=\"scroll\"><table>\n<thead><tr><th>bar</th><th>wanted</th><th>measured ({})</th><th></th></tr>\
         </thead>\n<tbody>",
        VIOLATIONS * 100.0,
        evaluation.machine.tag()
    );
    for bar in evaluation.bars() {
        let verdict = if evaluation.quick { "too short" } else { bar.verdict() };
        let verdict = if verdict == "missed" { "<b>missed</b>" } else { verdict };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{verdict}</td></tr>",
            escape(&bar.what),
            escape(&bar.wanted),
            escape(&bar.measured)
        );
    }
    page.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn section(page: &mut String, results: &Results) {
    let engine = &results.points[0].runs[0].engine;
    let _ = writeln!(
        page,
        "<section>\n<h2>{}</h2>\n<p>{}</p>",
        escape(engine),
        results.database.workload
    );
    for (name, svg) in plots(results) {
        let caption = match name {
            "bars" => {
                "Bars: median of the rounds. Dots: the rounds. Beside them: times FIFO’s, median of the ratios \
                 within a round. Right: P99 of all rounds together. Asl stands with its SLO."
            }
            "sweep" => {
                "SLO 0 is FIFO, “max” means no limit. Little cores’ P99 should follow Y = X where the SLO is \
                 feasible, until the window no longer matters."
            }
            _ => "Latencies include the wait for locks. Dashed line: asl’s SLO.",
        };
        let _ = writeln!(page, "<figure>{svg}<figcaption>{caption}</figcaption></figure>");
    }
    table(page, results);
    page.push_str("</section>\n");
}

fn table(page: &mut String, results: &Results) {
    let _ = write!(
        page,
        "<div class=\"scroll\"><table>\n<thead><tr><th>lock ({})</th><th>operations/s</th><th>of fifo</th>\
         <th>spread</th>",
        results.machine.tag()
    );
    for (class, name) in results.groups() {
        let name = escape(&name);
        if class.is_some() {
            let _ = write!(page, "<th>{name} share</th>");
        }
        let _ = write!(page, "<th>{name} P50</th><th>P99</th>");
    }
    page.push_str("<th>longest</th><th>over SLO</th></tr></thead>\n<tbody>\n");
    let fifo = results.point("fifo");
    for point in &results.points {
        row(page, results, point, fifo);
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn row(page: &mut String, results: &Results, point: &Point, fifo: Option<&Point>) {
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{}</td>",
        escape(&point.subject.name()),
        thousands(point.rate().median)
    );
    match fifo.map(|fifo| Results::ratio(point, fifo)) {
        Some(ratio) => {
            let _ = write!(
                page,
                "<td>{:.2}</td><td>{:.2} to {:.2}</td>",
                ratio.median, ratio.min, ratio.max
            );
        }
        None => page.push_str("<td></td><td></td>"),
    }
    for (class, _) in results.groups() {
        let latency = point.latency(class);
        if let Some(class) = class {
            let _ = write!(page, "<td>{:.0} %</td>", point.share(class) * 100.0);
        }
        let _ = write!(
            page,
            "<td>{}</td><td>{}</td>",
            time(latency.quantile(0.5)),
            time(latency.quantile(0.99))
        );
    }
    let over = match point.subject.slo_ns {
        Some(_) => format!("{:.2} %", point.violations(results.machine.little()) * 100.0),
        None => String::new(),
    };
    let _ = writeln!(page, "<td>{}</td><td>{over}</td></tr>", time(point.latency(None).max()));
}

fn method(page: &mut String, evaluation: &Evaluation) {
    let tag = evaluation.machine.tag();
    let (name, spec) = evaluation.machine.variable();
    let slowness = if evaluation.machine.emulated() {
        format!(
            "<dt>{tag}</dt><dd>the machine’s CPUs are equal. With <code>{name}={}</code> the library lets threads \
             on little CPUs compute longer by these factors, in and outside of critical sections, and never while they \
             wait. What moving data between unequal cores costs is not emulated.</dd>\n",
            escape(spec)
        )
    } else {
        format!(
            "<dt>{tag}</dt><dd>classes by <code>{name}={}</code>; nothing is slowed.</dd>\n",
            escape(spec)
        )
    };
    let _ = writeln!(
        page,
        "<section class=\"method\">\n<h2>How this was measured</h2>\n<dl>\n\
         <dt>Machine</dt><dd>{}</dd>\n<dt>Date</dt><dd>{}</dd>\n<dt>Command</dt><dd><code>{}</code></dd>\n{slowness}\
         <dt>Runs</dt><dd>{} rounds, each of {} s after {} s of warm-up, {} threads, each pinned to one CPU. Every round \
         runs every lock once, in an order that rotates; ratios are of the same round. Latencies are of all \
         rounds together.</dd>\n\
         <dt>Epochs</dt><dd>every operation is an epoch, under each lock; only asl heeds its SLO. SLOs are 0, ½, 1, \
         2, 4 and 8 times the P99 that FIFO had on little cores in first runs (their median), and none.</dd>\n\
         <dt>glibc</dt><dd>its algorithm, run by the library, since the library emulates the cores.</dd>\n\
         <dt>Other load</dt><dd>other programs used {:.1} % of the CPUs meanwhile.</dd>\n\
         <dt>Correctness</dt><dd>the drivers checked every answer and, at the end, the whole database: all runs \
         were right (else there would be no report).</dd>\n\
         <dt>Files</dt><dd><code>runs.csv</code>: each run and class; <code>cdf.csv</code>: the distributions; \
         <code>summary.json</code>: medians and verdicts.</dd>\n\
         </dl>\n</section>",
        escape(&machine(&evaluation.libc)),
        escape(&evaluation.date),
        escape(&evaluation.command),
        evaluation.rounds,
        evaluation.seconds,
        evaluation.warmup,
        evaluation.threads,
        evaluation.disturbance * 100.0,
    );
}
