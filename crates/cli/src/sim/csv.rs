//! A study as CSV: one line per run.

use super::plan::Plan;
use super::{SeedRuns, class, classes, late, transfers, with_options};
use crate::hints::Failure;
use crate::output;
use lockwright_sim::{ClassOutcome, Outcome, Quantiles};

type Column = (&'static str, fn(&Outcome) -> Option<f64>);

/// The columns for a run's figures.
const COLUMNS: [Column; 22] = [
    ("operations", |o| Some(o.operations as f64)),
    ("throughput", |o| Some(o.throughput)),
    ("mean_ns", |o| of(o.latency, |l| l.mean_ns)),
    ("p50_ns", |o| of(o.latency, |l| l.p50_ns as f64)),
    ("p90_ns", |o| of(o.latency, |l| l.p90_ns as f64)),
    ("p99_ns", |o| of(o.latency, |l| l.p99_ns as f64)),
    ("p999_ns", |o| of(o.latency, |l| l.p999_ns as f64)),
    ("max_ns", |o| of(o.latency, |l| l.max_ns as f64)),
    ("joules", |o| Some(o.joules)),
    ("watts", |o| Some(o.watts)),
    ("tpp", |o| Some(o.tpp)),
    ("epo", |o| Some(o.epo)),
    ("cpu_s", |o| Some(o.cpu_seconds)),
    ("unused", |o| Some(o.unused)),
    ("over_slo", |o| Some(late(o))),
    ("starved", |o| Some(starved(o))),
    ("acquisitions", |o| Some(o.acquisitions as f64)),
    ("hand_overs", |o| Some(o.hand_overs as f64)),
    ("most_overtaken", |o| Some(f64::from(o.most_overtaken))),
    ("line_transfers", |o| Some(o.transfers as f64)),
    ("sleeps", |o| Some(o.sleeps as f64)),
    ("wakes", |o| Some(o.wakes as f64)),
];

type ClassColumn = (&'static str, fn(&ClassOutcome) -> Option<f64>);

/// The columns for each class of cores.
const CLASS_COLUMNS: [ClassColumn; 6] = [
    ("threads", |c| Some(c.threads.into())),
    ("operations", |c| Some(c.operations as f64)),
    ("p50_ns", |c| of(c.latency, |l| l.p50_ns as f64)),
    ("p99_ns", |c| of(c.latency, |l| l.p99_ns as f64)),
    ("wait_p99_ns", |c| of(c.wait, |l| l.p99_ns as f64)),
    ("over_slo", |c| Some(c.violations as f64 / (c.operations as f64).max(1.0))),
];

/// A figure of the latencies, if there are any.
fn of(latency: Quantiles, figure: fn(Quantiles) -> f64) -> Option<f64> {
    (latency.count > 0).then(|| figure(latency))
}

/// The share of threads that finished no operation.
fn starved(outcome: &Outcome) -> f64 {
    let none = outcome.threads.iter().filter(|thread| thread.operations == 0).count();
    none as f64 / outcome.threads.len().max(1) as f64
}

fn cell(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// One line per run.
pub(crate) fn csv(plan: &Plan, rows: &[SeedRuns<'_>]) -> Result<String, Failure> {
    let classes = classes(plan);
    let swept: Vec<_> = plan.sweeps.iter().filter(|sweep| sweep.key != "threads").collect();
    let mut header: Vec<String> =
        ["origin", "machine", "workload", "threads", "lock", "seed"].map(str::to_owned).into();
    header.extend(swept.iter().map(|sweep| sweep.key.clone()));
    header.extend(COLUMNS.map(|(name, _)| name.to_owned()));
    if plan.transfers {
        header.extend(transfers::COLUMNS.map(|(name, _)| name.to_owned()));
    }
    for class in &classes {
        header.extend(CLASS_COLUMNS.map(|(name, _)| format!("{class}_{name}")));
    }
    header.push("violation".into());
    let mut records = vec![header];
    for row in rows {
        for (run, outcome) in row.runs().iter().zip(row.outcomes) {
            let (lock, seed) = (run.lock.name().to_owned(), run.seed.to_string());
            let mut cells = vec!["simulated".to_owned(), run.profile.name.clone()];
            let workload = with_options(run.workload.id, &run.params);
            cells.extend([workload, run.threads.to_string(), lock, seed]);
            let values = plan.sweeps.iter().zip(&row.at().swept);
            cells.extend(
                values.filter(|(s, _)| s.key != "threads").map(|(_, value)| value.to_string()),
            );
            cells.extend(COLUMNS.map(|(_, of)| cell(of(outcome))));
            if plan.transfers {
                let figure = |of: fn(&_) -> f64| outcome.path.as_ref().map(of);
                cells.extend(transfers::COLUMNS.map(|(_, of)| cell(figure(of))));
            }
            for name in &classes {
                let found = class(outcome, name);
                cells.extend(CLASS_COLUMNS.map(|(_, of)| cell(found.and_then(of))));
            }
            cells.push(outcome.violation.as_ref().map_or(String::new(), ToString::to_string));
            records.push(cells);
        }
    }
    output::csv(records)
}
