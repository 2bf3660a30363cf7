//! The report of a study, as text, JSON, CSV and HTML.

use super::csv::csv;
use super::notes::notes;
use super::plan::{At, Plan};
use super::transfers::Cells;
use super::{SeedRuns, class, classes, late, place, placement, replay, source, transfers};
use crate::hints::{Failure, cause};
use crate::output;
use lockwright_numbers::Spread;
use lockwright_numbers::format::{si, time};
use lockwright_plot::page;
use lockwright_sim::{Outcome, Quantiles};
use maud::html;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A latency of one class or of all, as the median over the seeds; `none` if no operation completed, `-` if there was
/// no thread.
fn latency(row: &SeedRuns<'_>, name: Option<&str>, of: fn(&Quantiles) -> u64) -> String {
    let sound = row.outcomes.iter().filter(|outcome| outcome.violation.is_none());
    let ran = sound.filter_map(|outcome| match name {
        None => Some(outcome.latency),
        Some(name) => class(outcome, name).filter(|class| class.ran()).map(|class| class.latency),
    });
    let ran: Vec<Quantiles> = ran.collect();
    let ended = |latency: &&Quantiles| latency.count > 0;
    if !ran.is_empty() && 2 * ran.iter().filter(ended).count() <= ran.len() {
        return "none".into();
    }
    // An unfinished operation took longer than all finished ones.
    let value = |latency| if ended(&latency) { of(latency) as f64 } else { f64::MAX };
    let values: Vec<f64> = ran.iter().map(value).collect();
    Spread::of(&values).map_or("-".into(), |spread| time(spread.median))
}

fn cells(plan: &Plan, rows: &[SeedRuns<'_>]) -> Cells {
    let classes = classes(plan);
    let any_late = rows.iter().flat_map(|row| row.outcomes).any(|outcome| late(outcome) > 0.0);
    let void: Vec<usize> = rows.iter().map(|row| row.violations().count()).collect();
    let any_void = void.iter().any(|count| *count > 0);
    let compared = plan.locks.len() > 1;
    let mut header: Vec<String> = place(&rows[0], None).into_iter().map(|(key, _)| key).collect();
    header.extend(["lock", "op/s", "[min .. max]"].map(str::to_owned));
    if compared {
        header.push(format!("of {}", plan.locks[0].name()));
    }
    header.extend(["P50", "P99", "max"].map(str::to_owned));
    if classes.len() > 1 {
        header.extend(classes.iter().map(|class| format!("P99 {class}")));
    }
    header.push("op/J".into());
    header.extend(any_late.then(|| "over SLO".to_owned()));
    header.extend(any_void.then(|| "void runs".to_owned()));

    let mut first = None;
    let body = rows.iter().map(|row| {
        let rate = row.spread(|outcome| outcome.throughput);
        if row.at().lock == 0 {
            first = rate;
        }
        let figure = |of: &dyn Fn(&Outcome) -> f64, text: &dyn Fn(f64) -> String| {
            row.spread(of).map_or("-".into(), |spread| text(spread.median))
        };
        let mut cells: Vec<String> = place(row, None).into_iter().map(|(_, value)| value).collect();
        cells.push(row.lock().to_owned());
        cells.push(rate.map_or("-".into(), |rate| si(rate.median)));
        cells.push(
            rate.map_or("-".into(), |rate| format!("[{} .. {}]", si(rate.min), si(rate.max))),
        );
        if compared {
            let ratio = rate.zip(first).filter(|(_, first)| first.median > 0.0);
            cells.push(
                ratio.map_or("-".into(), |(rate, first)| {
                    format!("{:.2}", rate.median / first.median)
                }),
            );
        }
        for of in [(|l| l.p50_ns) as fn(&Quantiles) -> u64, |l| l.p99_ns, |l| l.max_ns] {
            cells.push(latency(row, None, of));
        }
        if classes.len() > 1 {
            cells.extend(classes.iter().map(|name| latency(row, Some(name), |l| l.p99_ns)));
        }
        cells.push(figure(&|outcome| outcome.tpp, &si));
        if any_late {
            cells.push(figure(&late, &|share| format!("{:.2} %", 100.0 * share)));
        }
        if any_void {
            cells.push(match void[row.number] {
                0 => String::new(),
                count => format!("{count} of {}", row.outcomes.len()),
            });
        }
        cells
    });
    let body = body.collect();
    (header, body)
}

/// Prefixes of the latency columns. They form a separate table if one table would be too wide.
const LATENCIES: [&str; 3] = ["P50", "P99", "max"];

/// The printed report.
pub(crate) fn text(plan: &Plan, rows: &[SeedRuns<'_>]) -> String {
    let (header, body) = cells(plan, rows);
    let left = place(&rows[0], None).len() + 1;
    let draw = |is_shown: &dyn Fn(usize) -> bool| {
        let chosen = |cells: &[String]| -> Vec<String> {
            let shown = cells.iter().enumerate().filter(|(at, _)| is_shown(*at));
            shown.map(|(_, cell)| cell.clone()).collect()
        };
        let mut table =
            output::table(&chosen(&header).iter().map(String::as_str).collect::<Vec<_>>())
                .least(&["[min .. max]", "op/J", "max", "P50"])
                .all_by("--format json");
        for cells in &body {
            table.add_row(chosen(cells));
        }
        output::right(&mut table, left..header.len());
        table
    };
    let is_latency = |at: usize| at >= left && LATENCIES.iter().any(|l| header[at].starts_with(l));
    let whole = draw(&|_| true);
    let mut text = output::wrapped(&source(plan)) + "\n\n";
    if output::fits(&whole, 1) {
        text += &output::plain(&whole);
    } else {
        text += &output::plain(&draw(&|at| !is_latency(at)));
        text.push('\n');
        text += &output::plain(&draw(&|at| at < left || is_latency(at)));
    }
    if let Some(cells) = transfers::cells(plan, rows) {
        let _ = write!(text, "\n{}\n\n", output::wrapped(transfers::TITLE));
        text += &output::plain(&transfers::table(&cells, left));
    }
    let notes = notes(plan, rows);
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "{}", output::wrapped(&format!("note: {note}")));
    }
    text
}

/// One line per failed check, with the command that reproduces it.
pub(crate) fn violations(plan: &Plan, rows: &[SeedRuns<'_>]) -> Vec<String> {
    let of = |row: &SeedRuns<'_>| {
        let at: &At = row.at();
        let name = row.run().profile.name.clone();
        let line = move |(run, violation): (&lockwright_sim::Run, _)| {
            format!(
                "{} on {name}, {} threads, seed {}: {violation}\nreplay: {}",
                run.lock.name(),
                run.threads,
                run.seed,
                replay(plan, at, run)
            )
        };
        row.violations().map(line).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of).collect()
}

/// Every option of the workload, with its value.
fn params(row: &SeedRuns<'_>) -> Map<String, Value> {
    let run = row.run();
    let value = |key: &str, default| run.params.get(key).copied().unwrap_or(default);
    let all = run.workload.params.iter();
    all.map(|spec| (spec.key.to_owned(), value(spec.key, spec.default).into())).collect()
}

fn as_json(spread: Option<Spread>) -> Value {
    spread.map_or(Value::Null, |s| json!({"median": s.median, "low": s.min, "high": s.max}))
}

/// A latency over those seeds in whose runs an operation completed.
fn latency_json(row: &SeedRuns<'_>, of: fn(&Quantiles) -> u64) -> Value {
    let sound = row.outcomes.iter().filter(|outcome| outcome.violation.is_none());
    let ended = sound.map(|outcome| outcome.latency).filter(|latency| latency.count > 0);
    as_json(Spread::of(&ended.map(|latency| of(&latency) as f64).collect::<Vec<_>>()))
}

/// The complete report.
pub(crate) fn json(plan: &Plan, rows: &[SeedRuns<'_>], command: &str) -> Result<Value, Failure> {
    let mut points = Vec::new();
    for row in rows {
        let mut runs = Vec::new();
        for (run, outcome) in row.runs().iter().zip(row.outcomes) {
            let mut one = json!({"seed": run.seed});
            let Value::Object(all) = serde_json::to_value(outcome).map_err(Failure::new)? else {
                unreachable!("an outcome has fields")
            };
            one.as_object_mut().expect("just made").extend(all);
            runs.push(one);
        }
        let swept = plan.sweeps.iter().zip(&row.at().swept);
        points.push(json!({
            "machine": row.run().profile.name, "workload": row.run().workload.id,
            "params": params(row), "threads": row.at().threads, "lock": row.run().lock.name(),
            "swept": swept.map(|(sweep, value)| (sweep.key.clone(), Value::from(*value)))
                .collect::<Map<_, _>>(),
            "throughput": as_json(row.spread(|o| o.throughput)),
            "p50_ns": latency_json(row, |l| l.p50_ns),
            "p99_ns": latency_json(row, |l| l.p99_ns),
            "tpp": as_json(row.spread(|o| o.tpp)),
            "epo": as_json(row.spread(|o| o.epo)),
            "violations": violations(plan, std::slice::from_ref(row)),
            "runs": runs,
        }));
    }
    let machine = |machine: &std::sync::Arc<lockwright_sim::profile::Profile>| json!({"name": machine.name, "title": machine.title, "cpus": machine.cpus()});
    Ok(json!({
        "origin": "simulated", "command": command,
        "machines": plan.machines.iter().map(machine).collect::<Value>(),
        "placement": placement(&plan.placement), "seeds": plan.seeds,
        "warmup_ns": plan.warmup_ns, "duration_ns": plan.duration_ns,
        "units": "throughput: operations per second; tpp: operations per joule; epo: joules per operation; \
                  _ns: nanoseconds of simulated time; low and high: smallest and largest of the seeds",
        "notes": notes(plan, rows),
        "points": points,
    }))
}

fn report(plan: &Plan, rows: &[SeedRuns<'_>], command: &str, plots: &[(&str, String)]) -> String {
    let title = match &plan.machines[..] {
        [one] => one.title.clone(),
        many => format!("{} machines", many.len()),
    };
    let (header, body) = cells(plan, rows);
    let words = place(&rows[0], None).len() + 1;
    let body = html! {
        h1 { (title) " " (page::tag("simulated", "")) }
        p.soft { (source(plan)) }
        @for line in violations(plan, rows) { (page::warning(format!("Violation: {line}"))) }
        @for (_, svg) in plots { (page::figure(svg, "")) }
        (page::table(header, words, false, body.into_iter().map(page::TableRow::of)))
        @if let Some((header, body)) = transfers::cells(plan, rows) {
            h2 { (transfers::TITLE) }
            (page::table(header, words, false, body.into_iter().map(page::TableRow::of)))
        }
        @for note in notes(plan, rows) { p { "Note: " (note) } }
        h2 { "How this was simulated" }
        (page::terms([
            ("Command", page::command(command)),
            ("Runs", html! { (plan.runs.len()) ": a run for each seed; figures are medians over the seeds, bars \
                their range. The same command gives the same figures." }),
            ("Figures", html! { "Throughput: the workload’s operations per second. Latency: of an operation, from \
                its start to its end; " i { "none" } ": no operation ended on such a core, -: no thread was there. \
                op/J: operations per joule of the whole machine. All of simulated time, after a warm-up of "
                (time(plan.warmup_ns as f64)) "." }),
            ("simulated", html! { "No machine was measured: the locks’ own source ran on a model of one. "
                code { "lockwright sim --machine NAME --list" }
                " shows its figures and where each comes from." }),
        ]))
    };
    page::page(&format!("lockwright sim: {title}"), &body)
}

/// Writes all files, and returns their names.
pub(crate) fn write(
    plan: &Plan,
    rows: &[SeedRuns<'_>],
    command: &str,
    dir: &Path,
) -> Result<Vec<PathBuf>, Failure> {
    let plots = super::plot::all(plan, rows);
    let mut files = vec![
        ("report.html", report(plan, rows, command, &plots)),
        ("results.json", format!("{:#}\n", json(plan, rows, command)?)),
        ("results.csv", csv(plan, rows)?),
    ];
    files.extend(plots);
    let write = |(name, text): (&str, String)| {
        let path = dir.join(name);
        lockwright_files::write(&path, text).map_err(|error| {
            Failure::new(format!("cannot write '{}': {}", path.display(), cause(&error)))
                .hint("--output sim-report, or any folder that exists or can be made")
        })?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::Asked;
    use super::*;
    use lockwright_sim::Violation;
    use lockwright_sim::batch::run_all;

    #[test]
    fn a_failed_check_voids_its_run_and_says_how_to_see_it_again() {
        let word = |text: &str| vec![text.to_owned()];
        let (locks, machines, workloads) = (word("mcs"), word("m1"), word("sections"));
        let plan = Plan::new(&Asked {
            locks: &locks,
            machines: &machines,
            workloads: &workloads,
            trace: None,
            threads: Some("2"),
            placement: "0,4",
            seeds: vec![1, 2],
            warmup: Some("10us"),
            duration: Some("50us"),
            sweeps: &[],
            transfers: false,
        });
        let plan = plan.unwrap_or_else(|failure| panic!("{failure}"));
        let mut outcomes = run_all(&plan.runs, |_| {});
        let sound = outcomes[0].throughput;
        // No lock of the catalogue violates a rule, so plant a violation.
        outcomes[1].violation = Some(Violation::Lost { expected: 7, missing: 2 });
        outcomes[1].throughput = 1e30;
        let rows = SeedRuns::all(&plan, &outcomes);
        assert_eq!(
            violations(&plan, &rows),
            [
                "mcs on m1, 2 threads, seed 2: 2 of 7 updates of shared data were lost\nreplay: lockwright sim \
              --machine m1 --lock mcs --workload sections --threads 2 --placement 0,4 --seed 2 --duration 50us \
              --warmup 10us"
            ]
        );
        let shown = text(&plan, &rows);
        assert!(shown.contains("void runs") && shown.contains("1 of 2"), "{shown}");
        let whole = json(&plan, &rows, "a command").unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(whole["points"][0]["throughput"]["high"], sound);
        assert_eq!(whole["points"][0]["violations"].as_array().map(Vec::len), Some(1));
        let lines = csv(&plan, &rows).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(lines.contains("2 of 7 updates of shared data were lost"), "{lines}");
    }
}
