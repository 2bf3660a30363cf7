//! `lockwright bench`: measures locks side by side in one run.
//!
//! ```text
//!  args ─► grid ─► plan (subjects x points) ─► run ─► child ═══ process ═══ worker (any lock, any workload)
//!                                               └─► measured ─► summary, suite ─► report, plot
//! ```
//!
//! Each measurement is a separate process. The same program runs for every lock: glibc's, ours and a peer's are loaded
//! by LD_PRELOAD; `parking_lot`, `std` and the catalogue are compiled in. docs/bench.md has the definitions and the
//! reasons.
//!
//! The layers, which `cargo xtask tidy` enforces: a module uses only modules in lower layers, and there are no cycles.
//!
//! ```text
//!  command    this file
//!  in, out    grid: what is asked        report, plot: what is told
//!  judged     args      run      summary: the sums      suite: the bars      rcl: for other crates
//!  measured   worker    child    hogs    measured: one measurement, one lock by another
//!  planned    plan: points, who runs at each, and what shows how much it can reach
//!  chosen     subject: which locks       compute: work that takes time
//!  spoken     spec: the question to a worker and its answer, as JSON
//!  named      point: what the threads do, how many, how long
//! //!  ground     stats     paired     system     progress     names
//! ```

mod args;
mod child;
mod compute;
mod grid;
mod hogs;
mod measured;
mod names;
mod paired;
mod plan;
mod plot;
mod point;
mod progress;
mod rcl;
mod report;
mod run;
mod spec;
mod stats;
mod subject;
mod suite;
mod summary;
mod system;
mod worker;

pub use args::{Args, Pin, SuiteName, Workload};
pub use compute::calibrate as turns_per_ns;
pub use hogs::{Hogs, Used, hog};
pub use names::{Names, advice, misspelt_class, split};
pub use paired::{ENOUGH, FEWEST, Finding, Interval, is_look};
pub use point::hogs;
pub use progress::{progress, timed};
pub use rcl::{Rcl, RclResult};
pub use system::{
    Machine, catch_ends, catch_interrupts, children_time, command_line, cpu_time, cpus,
    ending_signal, interrupted, line_transfer_between, pin_to, shown_command,
};

use anyhow::{Context, Result, bail};
use lockwright_energy::Watts;
use lockwright_shards::{Merge, Plan, Session};
use lockwright_text::{cause, wrapped};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the command; `library` is the liblockwright.so to preload, or the reason why it is missing; `watts` is what the
/// machine draws, should nothing measure it; `merged` are shards whose report is to be made.
///
/// The worker processes are the program itself, called as `PROGRAM bench --worker JSON`: the program's
/// `bench` subcommand must come here.
pub fn main(
    mut args: Args,
    library: Result<PathBuf, String>,
    watts: impl FnOnce() -> Watts,
    merged: Option<Merge>,
) -> Result<ExitCode> {
    if let Some(merged) = &merged {
        if args.worker.is_some() || args.hog.is_some() {
            bail!(
                "the shards are from a command that makes none: bench --worker or --hog\n\
                 hint: run the shards again"
            );
        }
        // Paths in the shards' files belong to the machines that made them, and anyone could have written the files.
        if [&args.json, &args.csv, &args.svg].into_iter().any(Option::is_some) {
            eprintln!(
                "note: --json, --csv and --svg of the shards write nothing here\n\
                 hint: merge with --output DIR: it gets all of them"
            );
        }
        (args.json, args.csv, args.svg) = (None, None, None);
        args.out = merged.output().map(Path::to_owned);
    }
    if let Some(parent) = args.hog {
        hogs::hog(parent);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(spec) = &args.worker {
        worker::main(spec)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !(0.001..=600.0).contains(&args.time_s()) {
        bail!(
            "'{}' is not a length for a measurement\nhint: --time 400ms, from 1ms to 600s",
            args.time_s()
        );
    }
    if let Some(limit) = args.limit.filter(|limit| !(1.0..=86_400.0).contains(limit)) {
        bail!("bad --limit '{limit}s': not within 1s to 86400s\nhint: for example --limit 60s");
    }
    let (plan, suite) = grid::plan(&args, library.as_deref().map_err(String::as_str))?;
    let session = open(&plan, &args, merged)?;
    run::complete(&plan, &session)?;
    // Files are written last. If that will fail, say so before hours of work, but only after checking the rest of the
    // command, because existing files are overwritten.
    for dir in [&args.svg, &args.out].into_iter().flatten() {
        std::fs::create_dir_all(dir).map_err(|cause| unwritable(dir, &cause))?;
    }
    let is_reported = args.shards.shard.is_none();
    let json = args.json.as_deref().filter(|_| is_reported).map(create).transpose()?;
    let csv = args.csv.as_deref().filter(|_| is_reported).map(create).transpose()?;

    let here = Machine::here();
    let run::Done { measured, machine } = run::run(&plan, &session, args.quiet, watts())?;
    if session.is_part() {
        if measured.interrupted {
            let command = session.resume().unwrap_or_default();
            eprintln!("interrupted: the rounds that were complete are kept\nhint: {command}");
            return Ok(ExitCode::from(130));
        }
        print!("{}", session.summary());
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine { origin: report::origin(&plan.rows), ..machine.unwrap_or(here) };
    let summaries = summary::summarise(&plan, &measured);
    let ceilings = summary::ceilings(&plan, &measured);
    let verdicts = suite.as_ref().map(|s| s.judge(&plan, &measured)).unwrap_or_default();

    let text = |wide| {
        let machine_line = wrapped(&machine.line());
        if measured.samples.is_empty() {
            let nothing = "interrupted before the first group was complete: nothing to show";
            return format!("{machine_line}\n\n{nothing}\n");
        }
        let mut text = format!("{machine_line}\n");
        if let Some(caution) = report::caution(&plan, &measured, &machine) {
            text += &format!("{}\n", wrapped(&caution));
        }
        // For a suite, the bars are the result.
        if wide || verdicts.is_empty() {
            text += &format!("\n{}", report::tables(&plan, &summaries, &ceilings, wide));
        }
        if !verdicts.is_empty() {
            text += &format!("\n{}", report::bars(&plan, &verdicts));
        }
        let mut notes = report::notes(&plan, &measured);
        let points: Vec<String> = plan.rows.iter().map(|row| row.point.label()).collect();
        notes.extend(session.shared_out(&points));
        text + &format!("\n{}\n", wrapped(&notes.join("\n")))
    };
    print!("{}", text(args.wide));

    let whole = report::Report {
        origin: machine.origin,
        machine: &machine,
        command: session.words().map_or_else(command_line, |words| {
            shown_command(std::iter::once("lockwright".to_owned()).chain(words))
        }),
        subjects: &plan.subjects,
        rows: &plan.rows,
        reps: plan.reps,
        time_s: plan.time_s,
        seed: plan.seed,
        measured: &measured,
        summaries: &summaries,
        ceilings: &ceilings,
        verdicts: &verdicts,
    };
    if let Some(file) = json {
        serde_json::to_writer_pretty(file, &whole).context("cannot write the JSON file")?;
    }
    if let Some(file) = csv {
        report::raw(&plan, &measured, file)?;
    }
    let draw = |dir: &Path| -> Result<Vec<String>> {
        let plots = [
            ("throughput.svg", plot::throughput(&plan, &summaries, &ceilings, &machine)),
            ("latency.svg", plot::latency(&plan, &summaries, &machine)),
        ];
        let mut drawn = Vec::new();
        for (name, svg) in plots {
            let (Some(svg), path) = (svg, dir.join(name)) else { continue };
            std::fs::write(&path, svg).map_err(|cause| unwritable(&path, &cause))?;
            drawn.push(name.to_owned());
        }
        Ok(drawn)
    };
    if let Some(dir) = &args.svg {
        draw(dir)?;
    }
    if let Some(dir) = &args.out {
        let plots = draw(dir)?;
        report::raw(&plan, &measured, create(&dir.join("raw.csv"))?)?;
        report::sums(&plan, &summaries, &ceilings, create(&dir.join("summary.csv"))?)?;
        serde_json::to_writer_pretty(create(&dir.join("results.json"))?, &whole)?;
        let page = dir.join("README.md");
        std::fs::write(&page, report::readme(&whole, &text(true), &plots))
            .map_err(|cause| unwritable(&page, &cause))?;
    }
    Ok(if measured::ours_failed(&plan, &measured) {
        ExitCode::from(2)
    } else if measured.interrupted {
        ExitCode::from(130)
    } else if verdicts.iter().any(|v| v.met == Some(false)) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// The session that the flags request, or the session of merged shards.
fn open(plan: &plan::Plan, args: &Args, merged: Option<Merge>) -> Result<Session> {
    if merged.is_none() && args.shards.are_unused() {
        return Ok(Session::transient()); // don't read the libraries, which may be large
    }
    let inputs = plan.inputs()?;
    let named = |words: Vec<String>| Plan::new("lockwright", words, &inputs);
    if let Some(merged) = merged {
        let plan = named(merged.words());
        return Ok(merged.session(&plan)?);
    }
    let here = Machine::here().host();
    let plan = named(lockwright_shards::words()?);
    let session = args.shards.open(&plan, args.out.as_deref(), || here.clone())?;
    session.stays_on(&here, "a point")?;
    Ok(session)
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).map_err(|why| unwritable(path, &why))?))
}

fn unwritable(path: &Path, why: &std::io::Error) -> anyhow::Error {
    let path = path.display();
    anyhow::anyhow!("cannot write '{path}': {}\nhint: ls -ld \"$(dirname '{path}')\"", cause(why))
}
