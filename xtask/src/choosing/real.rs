//! The runs on this machine: `lockwright bench`, which interleaves the rounds of all locks.

use super::data::{Figures, Machine, Part, Point};
use super::grid::{GLIBC, LENGTHS};
use crate::demo;
use anyhow::{Context, Result, bail, ensure};
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::entry::Kind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Numbers of threads: one per CPU of a small machine, and more.
const THREADS: &str = "2,8,32";
const ROUNDS: u32 = 9;
/// Length of one measurement, s.
const SECONDS: f64 = 0.2;
const SECONDS_QUICK: f64 = 0.02;

/// Builds what is needed, measures, and reads the results.
pub(super) fn measure(
    target: &Path,
    quick: bool,
    command: String,
    version: String,
) -> Result<Part> {
    demo::build_library(target)?;
    demo::build_one(target, "lockwright-cli", "the command")?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let mut sections: Vec<u32> = LENGTHS.iter().map(|(section, _)| *section).collect();
    sections.dedup();
    let seconds = if quick { SECONDS_QUICK } else { SECONDS };
    let rounds = if quick { 1 } else { ROUNDS };
    let mut part: Option<Part> = None;
    for section in sections {
        let gaps = LENGTHS.iter().filter(|(own, _)| *own == section);
        let gaps: Vec<String> = gaps.map(|(_, gap)| gap.to_string()).collect();
        let file = folder.path().join("results.json");
        let mut bench = Command::new(target.join("release/lockwright"));
        bench.args(["bench", "--no-ceiling", "--threads", if quick { "2" } else { THREADS }]);
        bench.args(["--cs", &section.to_string(), "--gap", &gaps.join(",")]);
        bench.args(["--time", &seconds.to_string(), "--rounds", &rounds.to_string()]);
        bench.arg("--json").arg(&file).arg("--lock");
        bench.args(CATALOG.iter().filter(|lock| lock.kind == Kind::Front).map(|lock| lock.id));
        let status = bench.stdout(Stdio::null()).status().context("cannot start the bench")?;
        ensure!(status.success(), "'lockwright bench' failed: {status}");
        let text = fs::read_to_string(&file).context("the bench has written nothing")?;
        let read = read(&serde_json::from_str(&text)?, &command, &version, quick)?;
        match &mut part {
            None => part = Some(read),
            Some(part) => {
                part.machines[0].points.extend(read.machines.into_iter().flat_map(|m| m.points))
            }
        }
    }
    let mut part = part.context("no section to measure")?;
    part.machines[0].points.sort_by_key(|point| (point.threads, point.section_ns, point.gap));
    Ok(part)
}

/// Reads the output of `lockwright bench --json`.
fn read(report: &Value, command: &str, version: &str, quick: bool) -> Result<Part> {
    let machine = &report["machine"];
    let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let whole = |value: &Value| value.as_f64().unwrap_or(0.0).round() as u64;
    let number = |value: &Value| u32::try_from(whole(value)).unwrap_or(u32::MAX);
    let list = |key: &str| report[key].as_array().with_context(|| format!("no {key} there"));
    let names: Vec<String> = list("subjects")?.iter().map(|one| word(&one["name"])).collect();
    let mut points = Vec::new();
    for row in list("rows")? {
        let point = &row["point"];
        points.push(Point {
            threads: number(&point["threads"]),
            section_ns: Some(number(&point["cs_ns"])),
            gap: number(&point["gap_ns"]),
            slo_us: None,
            of: BTreeMap::new(),
        });
    }
    for summary in list("summaries")? {
        let (row, subject) = (whole(&summary["row"]) as usize, whole(&summary["subject"]) as usize);
        let (Some(point), Some(name)) = (points.get_mut(row), names.get(subject)) else {
            bail!("a summary of what was not measured");
        };
        let median = |key: &str| summary[key]["median"].as_f64();
        let (Some(rate), Some(ratio)) = (median("rate"), median("ratio")) else { continue };
        let wait = &summary["wait"];
        let figures = Figures {
            rate: rate.round() as u64,
            p99_ns: whole(&wait["p99"]),
            slow_p99_ns: whole(&wait["p99"]),
            longest_ns: whole(&wait["max"]),
            cpu_ns: median("cpu_ns").unwrap_or(0.0).round() as u64,
            energy_nj: 0,
            of_glibc: (ratio * 1e6).round() as u64,
            starved: 0,
        };
        point.of.insert(name.clone(), figures);
    }
    ensure!(names.first().is_some_and(|name| name == GLIBC), "glibc is not the reference there");
    let title = [&machine["cpu"], &machine["kernel"], &machine["libc"]].map(word).join(", ")
        + ", "
        + &day(&word(&machine["date"]));
    Ok(Part {
        origin: word(&report["origin"]),
        version: version.to_owned(),
        command: command.to_owned(),
        seed: whole(&report["seed"]),
        run_ms: (report["time_s"].as_f64().unwrap_or(0.0) * 1e6).round() / 1e3,
        rounds: number(&report["reps"]),
        quick,
        locks: names,
        machines: vec![Machine {
            name: "this machine".into(),
            title,
            classes: vec![("CPU".into(), number(&machine["cpus"]))],
            points,
        }],
    })
}

fn day(date: &str) -> String {
    date.split('T').next().unwrap_or(date).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_benchs_report_is_read() {
        let summary = |subject: u32, ratio: f64| {
            json!({"row": 0, "subject": subject, "rate": {"median": 1e6 * ratio}, "ratio": {"median": ratio},
                "cpu_ns": {"median": 130.6}, "wait": {"p99": 120.0, "max": 5000.0}})
        };
        let report = json!({
            "origin": "real", "seed": 1, "reps": 9, "time_s": 0.2,
            "machine": {"cpu": "a CPU", "cpus": 2, "kernel": "6.1", "libc": "glibc 2.36", "date": "2026-11-22T14:59:16Z"},
            "subjects": [{"name": "glibc"}, {"name": "auto"}, {"name": "hung"}],
            "rows": [{"point": {"threads": 8, "cs_ns": 100, "gap_ns": 400}}],
            "summaries": [summary(0, 1.0), summary(1, 1.25), {"row": 0, "subject": 2, "status": "hung", "rate": null}],
        });
        let part = read(&report, "c", "v", false).unwrap();
        let (machine, point) = (&part.machines[0], &part.machines[0].points[0]);
        assert_eq!(machine.title, "a CPU, 6.1, glibc 2.36, 2026-11-22");
        assert_eq!((machine.cpus(), part.run_ms, part.rounds), (2, 200.0, 9));
        assert_eq!((point.threads, point.section_ns, point.gap), (8, Some(100), 400));
        assert_eq!(point.of.keys().collect::<Vec<_>>(), ["auto", "glibc"]);
        let auto = &point.of["auto"];
        assert_eq!((auto.of_glibc, auto.cpu_ns, auto.longest_ns), (1_250_000, 131, 5000));
    }
}
