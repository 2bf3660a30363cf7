//! The contents of a report, its notes, and the README of a folder of results.

use crate::measured::{Measured, Sample, hogs_cpus};
use crate::plan::{Plan, Row};
use crate::point::hogs;
use crate::subject::Subject;
use crate::suite::Verdict;
use crate::summary::{Ceiling, Summary};
use crate::system::Machine;
use lockwright_numbers::Spread;
use lockwright_numbers::format::{time, with_range};
use serde::Serialize;
use std::collections::BTreeSet;

/// The contents of a report.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    /// The origin of the figures: all were measured on the machine below, none simulated.
    pub origin: &'static str,
    /// The machine, and the time of the measurement.
    pub machine: &'a Machine,
    /// The command line.
    pub command: String,
    /// The locks.
    pub subjects: &'a [Subject],
    /// The grid.
    pub rows: &'a [Row],
    /// Requested number of rounds.
    pub reps: u32,
    /// Length of one measurement in seconds.
    pub time_s: f64,
    /// The seed for the lengths.
    pub seed: u64,
    /// Every measurement.
    pub measured: &'a Measured,
    /// The summaries.
    pub summaries: &'a [Summary],
    /// The maximum rates of points.
    pub ceilings: &'a [Ceiling],
    /// The suite's bars, if a suite ran.
    pub verdicts: &'a [Verdict],
}

/// `real`, `emulated`, or both.
pub(crate) fn origin(rows: &[Row]) -> &'static str {
    let is = |origin| rows.iter().any(|row| row.point.origin() == origin);
    match (is("real"), is("emulated")) {
        (true, true) => "real and emulated",
        (false, true) => "emulated",
        _ => "real",
    }
}

/// With fewer rounds than this, a median says little.
const ROUNDS: u32 = 9;

/// Other programs disturb the figures if they use more than this share of the CPUs, or if the load average exceeds
/// [`LOAD`].
const OTHERS: f64 = 0.05;
const LOAD: f64 = 0.5;

/// One line that says why these figures may be noise, printed above them; `None`: no known reason.
pub(crate) fn caution(plan: &Plan, measured: &Measured, machine: &Machine) -> Option<String> {
    let loaded = match measured.others_cpus {
        Some(others) => (others > OTHERS * machine.cpus as f64)
            .then(|| format!("other programs used {others:.1} of {} CPUs", machine.cpus)),
        // The kernel doesn't say what others used. Programs from before the start may still be running.
        None => {
            (machine.load > LOAD).then(|| format!("load average {:.1} at the start", machine.load))
        }
    };
    let few = (plan.reps < ROUNDS).then(|| {
        let rounds = if plan.reps == 1 { "round" } else { "rounds" };
        format!("{} {rounds}; a steady median needs {ROUNDS}", plan.reps)
    });
    let why: Vec<String> = [loaded, few].into_iter().flatten().collect();
    (!why.is_empty()).then(|| format!("warning: {}", why.join("; ")))
}

/// How many groups were kept and discarded, and other facts that the reader must know.
pub(crate) fn notes(plan: &Plan, measured: &Measured) -> Vec<String> {
    let mut lines = vec![format!(
        "groups kept: {}, discarded because the line transfer changed by more than a factor of 1.6: {}{}",
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
            "line transfer, one way: {} [{} .. {}]",
            time(s.median),
            time(s.min),
            time(s.max)
        )),
        None => lines.push(
            "warning: one CPU: no line transfer to watch, and nothing runs in parallel".into(),
        ),
    }
    if plan.rows.iter().any(|r| r.point.latency) {
        lines.push(format!(
            "wait and hold: a separate pass of {} s that times every operation; it doesn't affect throughput",
            plan.time_s / 2.0
        ));
    }
    if plan.ceilings.iter().any(|row| !row.is_empty()) {
        lines.push(
            "(ceiling): two threads with a CPU each and a test-and-set lock, or one CPU alone, whichever does more; \
             from the same groups"
                .into(),
        );
        lines.push(
            "of the ceiling: may exceed 1: runs follow each other (noise), other locks may take turns better than \
             test-and-set, and on more than two CPUs more threads may do more"
                .into(),
        );
    }
    let counts: BTreeSet<u32> = plan.rows.iter().map(|row| row.point.hogs).collect();
    for count in counts.into_iter().filter(|&count| count > 0) {
        let own = |sample: &&Sample| plan.rows[sample.row].point.hogs == count;
        if let Some(cpus) = hogs_cpus(measured.samples.iter().filter(own)) {
            lines.push(format!(
                "beside {}: {} of ours computed all the time, on any CPU, and used {} CPUs",
                hogs(count),
                if count == 1 { "another process" } else { "other processes" },
                with_range(&Some(cpus)),
            ));
            if cpus.min == 0.0 {
                // On a crowded machine the kernel may keep a program waiting for some milliseconds.
                lines.push(
                    "warning: hogs got no CPU in some measurements: take a longer --time".into(),
                );
            }
        }
    }
    let answers = measured.samples.iter().filter(|sample| sample.answer.is_some()).count();
    lines.push(format!(
        "which lock ran: each of {answers} workers was asked, and ran the lock that its line names"
    ));
    lines.push(energy_line(measured));
    lines.extend(measured.energy.notes.iter().cloned());
    if measured.interrupted {
        lines.push("warning: interrupted: shows what was measured so far".into());
    }
    lines.extend(measured.notes.iter().map(|n| format!("warning: {n}")));
    lines.push("columns: docs/bench.md".into());
    lines
}

/// The source of the energy figures.
fn energy_line(measured: &Measured) -> String {
    let energy = &measured.energy;
    format!(
        "op/J: operations per joule of the machine; joules ({}): {}",
        energy.source.word(),
        energy.what
    )
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
         | one measurement | {} s, {} rounds, seed {} |\n\
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
    use crate::measured::tests::measured;

    #[test]
    fn where_there_are_ceilings_it_says_why_a_lock_may_exceed_them() {
        let said = |ceilings| {
            let plan = Plan {
                subjects: Vec::new(),
                rows: Vec::new(),
                ceilings,
                reps: 9,
                time_s: 1.0,
                limit_s: None,
                seed: 1,
            };
            let lines = notes(&plan, &measured(Vec::new()));
            lines.iter().any(|line| line.starts_with("of the ceiling: may exceed 1"))
        };
        assert!(said(vec![vec![0]]) && !said(vec![Vec::new()]));
    }

    #[test]
    fn figures_that_may_be_noise_say_so_in_one_line() {
        let of = |reps: u32, others: Option<f64>, load: f64| {
            let plan = Plan {
                subjects: Vec::new(),
                rows: Vec::new(),
                ceilings: Vec::new(),
                reps,
                time_s: 1.0,
                limit_s: None,
                seed: 1,
            };
            let machine = Machine { cpus: 2, load, ..Machine::here() };
            caution(&plan, &Measured { others_cpus: others, ..measured(Vec::new()) }, &machine)
        };
        assert_eq!(of(9, Some(0.05), 3.0), None, "the load average may be our own");
        assert_eq!(of(9, None, 0.4), None);
        let loaded = of(9, Some(0.42), 0.0).unwrap();
        assert_eq!(loaded, "warning: other programs used 0.4 of 2 CPUs");
        assert_eq!(of(9, None, 1.25).unwrap(), "warning: load average 1.2 at the start");
        assert_eq!(of(8, Some(0.0), 9.0).unwrap(), "warning: 8 rounds; a steady median needs 9");
        let both = of(1, Some(12.3), 0.0).unwrap();
        assert!(both.contains("CPUs; 1 round; ") && both.chars().count() <= 80, "{both}");
    }
}
