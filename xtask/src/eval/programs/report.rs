//! The report: one HTML page that needs nothing else, its plot as a file, and the figures behind it.

use super::figures::{METRICS, Metric, RAW, Results, rate};
use super::{Evaluation, GLIBC};
use crate::demo::chart::{colour, escape, line, text};
use crate::demo::report::{STYLE, machine};
use crate::demo::stats::{disturbed, time};
use crate::eval::chart::begin;
use crate::eval::save;
use anyhow::{Context, Result};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const INTERRUPTED: &str = "Interrupted: some programs, or rounds of the last one, are missing";
const QUICK: &str = "A quick run: it shows that everything works. The figures mean nothing";

/// Writes all files to `out`; the answer is the page's path.
pub(super) fn write(evaluation: &Evaluation, out: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let mut raw = RAW.to_owned();
    for results in &evaluation.results {
        results.raw(&mut raw);
    }
    save(&out.join("runs.csv"), &raw)?;
    let summary = json!({
        "figures": "real",
        "machine": machine(&evaluation.libc),
        "date": evaluation.date,
        "command": evaluation.command,
        "seconds": evaluation.seconds,
        "rounds": evaluation.rounds,
        "interrupted": evaluation.interrupted,
        "others_share": evaluation.disturbance,
        "energy": evaluation.energy,
        "skipped": evaluation.skipped,
        "failed": evaluation.failed,
        "programs": evaluation.results.iter().map(|r| r.summary(!evaluation.quick)).collect::<Vec<_>>(),
    });
    save(&out.join("summary.json"), &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    let plot = plot(&evaluation.results);
    save(&out.join("programs.svg"), &plot)?;
    save(&out.join("README.md"), &readme(evaluation))?;
    let page_path = out.join("report.html");
    save(&page_path, &page(evaluation, &plot))?;
    Ok(page_path)
}

/// Sentences that the figures must not be read without.
fn warnings(evaluation: &Evaluation) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(evaluation.quick.then(|| QUICK.to_owned()));
    warnings.extend(evaluation.interrupted.then(|| INTERRUPTED.to_owned()));
    warnings.extend(disturbed(evaluation.disturbance).map(|why| format!("Warning: {why}")));
    for (what, programs) in [("Skipped", &evaluation.skipped), ("Failed", &evaluation.failed)] {
        for (program, why) in programs {
            let why = why.lines().next().unwrap_or_default();
            warnings.push(format!("{what}: {program}: {why}"));
        }
    }
    warnings
}

/// What lies in the folder, for people who find it.
fn readme(evaluation: &Evaluation) -> String {
    let mut text = format!(
        "# Unmodified programs: real\n\nAll figures are *real*. `report.html` has all of it; docs/eval.md of the project \
         says what runs and how it is compared.\n\n| what | value |\n|---|---|\n| machine | {} |\n| date | {} |\n\
         | command | `{}` |\n| runs | {} rounds of {} s |\n| other programs | {:.1} % of the CPUs meanwhile |\n\n",
        machine(&evaluation.libc),
        evaluation.date,
        evaluation.command,
        evaluation.rounds,
        evaluation.seconds,
        evaluation.disturbance * 100.0,
    );
    for warning in warnings(evaluation) {
        let _ = writeln!(text, "{warning}.\n");
    }
    text.push_str("Times glibc's of the same round: medians, smallest and largest in brackets.\n\n| program | lock |");
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
        "\n{}. TPP (operations a joule) and EPO (its inverse) stand in summary.json.",
        evaluation.energy
    );
    text + "\n![programs.svg](programs.svg)\n"
}

fn is_missed(evaluation: &Evaluation, results: &Results, metric: Metric, lock: usize) -> bool {
    !evaluation.quick && results.is_met(metric, lock) == Some(false)
}

fn page(evaluation: &Evaluation, plot: &str) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>lockwright: programs</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>Unmodified programs <span class=\"tag\" title=\"measured on the machine named below, not \
         simulated\">real</span></h1>\n<p class=\"lead\">Debian’s own programs, under glibc’s lock and under ours, on \
         this machine.</p>\n"
    );
    for warning in warnings(evaluation) {
        let _ = writeln!(page, "<p class=\"warning\">{}.</p>", escape(&warning));
    }
    page.push_str("</header>\n<section>\n<h2>Times glibc’s</h2>\n<figure>");
    page.push_str(plot);
    page.push_str(
        "<figcaption>Large dots: median of the ratios within a round. Small dots: the rounds. Dashed lines: what is wanted \
         of auto. The scale is logarithmic; what lies beyond its ends is drawn at them.</figcaption></figure>\n</section>\n",
    );
    for results in &evaluation.results {
        let _ = writeln!(
            page,
            "<section>\n<h2>{}</h2>\n<p>{}</p>",
            escape(results.program.name),
            results.program.workload
        );
        table(&mut page, evaluation, results);
        page.push_str("</section>\n");
    }
    method(&mut page, evaluation);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn table(page: &mut String, evaluation: &Evaluation, results: &Results) {
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr><th>lock (real)</th><th></th>");
    for metric in METRICS {
        let _ = write!(page, "<th>{}</th>", metric.head());
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (lock, name) in results.locks.iter().enumerate() {
        let _ = write!(
            page,
            "<tr class=\"first\"><td><i style=\"background:{}\"></i>{}</td><td>median</td>",
            colour(lock),
            escape(name)
        );
        for metric in METRICS {
            let value = results.value(metric, lock).map(|value| match metric {
                Metric::Rate => rate(value.median),
                _ => time(value.median as u64),
            });
            let _ = write!(page, "<td>{}</td>", value.unwrap_or_else(|| "–".into()));
        }
        page.push_str("</tr>\n");
        if lock == 0 {
            continue;
        }
        let _ = write!(page, "<tr><td></td><td>of {GLIBC}’s</td>");
        for metric in METRICS {
            let ratio = results.ratio(metric, lock).map_or("–".into(), |ratio| {
                let missed = is_missed(evaluation, results, metric, lock);
                let median = format!("{:.2}", ratio.median);
                let median = if missed { format!("<b>missed {median}</b>") } else { median };
                format!("{median}<br>{:.2} to {:.2}", ratio.min, ratio.max)
            });
            let _ = write!(page, "<td>{ratio}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn method(page: &mut String, evaluation: &Evaluation) {
    let _ = writeln!(
        page,
        "<section class=\"method\">\n<h2>How this was measured</h2>\n<dl>\n\
         <dt>Machine</dt><dd>{}</dd>\n<dt>Date</dt><dd>{}</dd>\n<dt>Command</dt><dd><code>{}</code></dd>\n\
         <dt>Rounds</dt><dd>{}, of {} s a run; a first run of each program isn’t counted. Every round runs every lock once, \
         in an order that rotates; a lock is compared with glibc in the same round.</dd>\n\
         <dt>glibc</dt><dd>nothing preloaded.</dd>\n\
         <dt>Our locks</dt><dd>the same program with <code>LD_PRELOAD=liblockwright.so</code> and <code>LOCKWRIGHT_LOCK</code>; \
         each run made sure that the library was in the process, and had no complaint.</dd>\n\
         <dt>Loads</dt><dd>run on the same CPUs, without the library. Servers listen on the loopback; data lie in memory \
         where there is room.</dd>\n\
         <dt>CPU</dt><dd>of the program alone, in user and kernel mode, counted in hundredths of a second.</dd>\n\
         <dt>Batch</dt><dd>programs that only end: throughput is work by time, the longest operation is the whole run. \
         What they wrote was the same in all runs.</dd>\n\
         <dt>Bars</dt><dd>of auto: throughput at least 0.98, P99 at most 1.05, longest at most 1.10 of glibc’s, medians.</dd>\n\
         <dt>Other load</dt><dd>other programs used {:.1} % of the CPUs meanwhile.</dd>\n\
         <dt>Files</dt><dd><code>runs.csv</code>: each run; <code>summary.json</code>: medians and verdicts.</dd>\n\
         </dl>\n</section>",
        escape(&machine(&evaluation.libc)),
        escape(&evaluation.date),
        escape(&evaluation.command),
        evaluation.rounds,
        evaluation.seconds,
        evaluation.disturbance * 100.0,
    );
}

/// Each program a line, each metric a panel, each lock a colour: its ratio to glibc's.
fn plot(results: &[Results]) -> String {
    const LEFT: f64 = 130.0;
    const PANEL: f64 = 158.0;
    const PLOT: f64 = 132.0;
    const TOP: f64 = 74.0;
    const STEP: f64 = 15.0;
    const GAP: f64 = 8.0;
    /// Ratios that are drawn: 1/4 to 4.
    const OCTAVES: f64 = 2.0;
    let ours = results.first().map_or(0, |first| first.locks.len() - 1);
    let height = ours as f64 * STEP + GAP;
    let bottom = TOP + results.len() as f64 * height;
    let width = LEFT + METRICS.len() as f64 * PANEL;
    let mut svg = begin(width, bottom + 44.0, "Each program: times glibc’s", "real");
    let mut legend = 0.0;
    for (lock, name) in
        results.iter().take(1).flat_map(|first| first.locks.iter().enumerate().skip(1))
    {
        let _ = write!(
            svg,
            r#"<circle cx="{:.1}" cy="36" r="4.4" fill="{}"/>"#,
            legend + 5.0,
            colour(lock)
        );
        text(&mut svg, (legend + 15.0, 40.5), "tick", &escape(name));
        legend += 40.0 + 7.0 * name.len() as f64;
    }
    for (panel, metric) in METRICS.into_iter().enumerate() {
        let left = LEFT + panel as f64 * PANEL;
        let x = |ratio: f64| {
            let octaves = ratio.max(1e-9).log2().clamp(-OCTAVES, OCTAVES);
            left + (octaves + OCTAVES) / (2.0 * OCTAVES) * PLOT
        };
        text(&mut svg, (left, TOP - 14.0), "group", metric.head());
        for (ratio, label) in [(0.25, "¼"), (0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4")] {
            let class = if ratio == 1.0 { "axis" } else { "grid" };
            line(&mut svg, (x(ratio), TOP - 6.0), (x(ratio), bottom), class);
            text(&mut svg, (x(ratio), bottom + 17.0), "tick middle", label);
        }
        if let Some((bound, _)) = metric.bar() {
            line(&mut svg, (x(bound), TOP - 6.0), (x(bound), bottom), "reference");
        }
        let better = if metric == Metric::Rate { "more is better" } else { "less is better" };
        text(&mut svg, (left + PLOT / 2.0, bottom + 36.0), "tick middle", better);
        for (row, results) in results.iter().enumerate() {
            let top = TOP + row as f64 * height;
            if panel == 0 {
                let y = top + ours as f64 * STEP / 2.0 + 4.5;
                text(&mut svg, (LEFT - 12.0, y), "end", &escape(results.program.id));
            }
            for lock in 1..results.locks.len() {
                let Some(ratios) = results.ratios(metric, lock) else { continue };
                let y = top + (lock as f64 - 0.5) * STEP;
                let spread = crate::demo::stats::spread(&ratios);
                line(&mut svg, (x(spread.min), y), (x(spread.max), y), "spread");
                for ratio in ratios {
                    let _ = write!(
                        svg,
                        r#"<circle cx="{:.1}" cy="{y:.1}" r="2.1" class="round"/>"#,
                        x(ratio)
                    );
                }
                let _ = write!(
                    svg,
                    r#"<circle cx="{:.1}" cy="{y:.1}" r="4.4" fill="{}"/>"#,
                    x(spread.median),
                    colour(lock)
                );
            }
        }
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::super::list::PROGRAMS;
    use super::*;

    #[test]
    fn the_report_says_what_is_missing() {
        let evaluation = Evaluation {
            results: vec![Results::example(&PROGRAMS[0])],
            skipped: vec![("nginx", "no packages\nhint: be root".into())],
            failed: vec![("redis", "it <died>".into())],
            seconds: 1,
            rounds: 1,
            quick: false,
            libc: "glibc".into(),
            command: "cargo xtask eval programs".into(),
            date: "today".into(),
            interrupted: true,
            disturbance: 0.5,
            energy: "energy: unavailable (nothing measures here)".into(),
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
        assert_eq!(plot.matches("r=\"2.1\"").count(), METRICS.len());
    }
}
