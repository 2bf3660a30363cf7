//! Evaluations. `cargo xtask eval libasl-apps` repeats a paper's: it runs the databases of LibASL (PPoPP 2022, section
//! 4.2) under its locks, on emulated big and little cores, and writes one report. `cargo xtask eval programs` runs
//! unmodified Debian programs on this machine's own cores.
//!
//! Every round runs every lock once, in an order that rotates. Comparisons are always within the same round. SLOs are
//! multiples of FIFO's own P99 on little cores, which is measured first.

mod build;
mod chart;
mod drivers;
mod figures;
mod kept;
mod machine;
mod measure;
mod programs;
mod report;
mod scratch;
mod traces;

use crate::answer::No;
use crate::demo;
use crate::test::install_packages;
use anyhow::{Context, Result, ensure};
use drivers::{Database, Driver};
use figures::{Bar, Results};
use kept::{Conditions, ResultsPlace};
use lockwright_bench::split;
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_shards::{Flags, Merge, Session};
use lockwright_tests::target_dir;
use lockwright_text::table::{plain, table};
use machine::Cores;
use measure::{DatabasePlan, Measured, measure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The packages that the drivers need.
const PACKAGES: [&str; 3] = ["build-essential", "libkyotocabinet-dev", "libleveldb-dev"];

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    suite: Suite,
}

/// The evaluation to run.
#[derive(clap::Subcommand)]
enum Suite {
    /// LibASL's databases on emulated cores: SQLite, LMDB, Kyoto Cabinet, LevelDB. (upscaledb is not available: Debian 12 has
    /// no package.)
    LibaslApps(Databases),
    /// Unmodified programs from Debian, on this machine's own cores: each lock against glibc's.
    Programs(programs::Args),
    /// Programs after those of RCL's authors: as they are, with `run --delegate` (the lock `delegate`), and rewritten.
    Delegation(programs::Args),
    /// Record the databases' operations anew, for the simulator (crates/sim/traces).
    Traces(traces::Args),
}

/// Flags of `libasl-apps`.
#[derive(clap::Args)]
struct Databases {
    /// Databases.
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
        default_values = ["sqlite", "lmdb", "kyoto", "leveldb"])]
    db: Vec<String>,
    /// Locks; asl is run at several SLOs.
    #[arg(long, value_name = "LOCKS",
        default_values = ["glibc", "tas", "ticket", "mcs", "fifo", "pb10", "asl", "asl-max"])]
    lock: Vec<String>,
    /// How long each run lasts, after its warm-up.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = demo::seconds)]
    time: f64,
    /// Warm-up time of each run, not counted: windows take hundreds to thousands of epochs to settle.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = demo::seconds)]
    warmup: f64,
    /// How many rounds; every round runs every lock once.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Threads, pinned to the CPUs in turn (default: one per CPU of the classes).
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Classes of cores, and how many times slower the library makes them; without factors they stay as they are.
    #[arg(long, value_name = "CLASSES", default_value = "big:0,little:1x3.75")]
    emulate: String,
    /// Folder for the report (default: `eval/libasl-apps` in cargo's target folder).
    #[arg(long = "output", alias = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// One round of 0.15 s: shows that everything works; no verdicts.
    #[arg(long, conflicts_with_all = ["time", "warmup", "rounds"])]
    quick: bool,
    #[command(flatten)]
    shards: Flags,
}

impl Databases {
    fn threads(&self, machine: &Cores) -> usize {
        self.threads.unwrap_or_else(|| machine.classes.iter().map(|class| class.cpus.len()).sum())
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("must be from 1 to 1024".into()),
    }
}

/// All measurements, with the conditions for the report.
struct Evaluation {
    results: Vec<Results>,
    machine: Cores,
    threads: usize,
    seconds: f64,
    warmup: f64,
    /// Did the program's operations have epochs?
    epochs: bool,
    conditions: Conditions,
}

/// `merged`: the shards whose report is to be made.
pub(crate) fn main(args: Args, merged: Option<Merge>) -> Result<()> {
    match args.suite {
        Suite::LibaslApps(args) => databases(args, merged),
        Suite::Programs(args) => programs::main(&programs::UNMODIFIED, args, merged),
        Suite::Delegation(args) => programs::main(&programs::DELEGATED, args, merged),
        Suite::Traces(args) => record(&args),
    }
}

/// Builds the drivers, and records what they do.
fn record(args: &traces::Args) -> Result<()> {
    let databases: Vec<Database> =
        args.db.iter().map(|id| Database::find(id)).collect::<Result<_>>()?;
    install_packages(&PACKAGES)?;
    demo::build(&target_dir()?)?;
    let source = |database: &Database| -> Result<_> {
        let (id, name, flags) = (database.id, database.name, database.quick_flags());
        Ok(traces::Source { id, name, program: database.program()?, flags })
    };
    traces::main(&databases.iter().map(source).collect::<Result<Vec<_>>>()?)
}

fn databases(mut args: Databases, merged: Option<Merge>) -> Result<()> {
    if args.quick {
        (args.time, args.warmup, args.rounds) = (0.15, 0.05, 1);
    }
    let machine = Cores::parse(&args.emulate)?;
    if merged.is_none() {
        machine.check_here()?;
    }
    let mut databases: Vec<Database> = Vec::new();
    for id in &args.db {
        let database = Database::find(id)?;
        if !databases.contains(&database) {
            databases.push(database);
        }
    }
    args.lock = args.lock.iter().flat_map(|locks| split(locks)).collect();
    args.lock.iter().try_for_each(|lock| check_lock(lock))?;
    let plan = DatabasePlan {
        databases,
        locks: args.lock.clone(),
        threads: args.threads(&machine),
        machine,
        seconds: args.time,
        warmup: args.warmup,
        rounds: args.rounds,
        quick: args.quick,
    };
    let usual = || Ok(target_dir()?.join("eval/libasl-apps"));
    let (output, whole) = (args.out.as_deref(), "a database");
    let place = ResultsPlace::open(&args.shards, output, merged, plan.inputs(), whole, usual)?;
    let jobs = (0..plan.databases.len()).flat_map(|database| plan.jobs(database));
    place.session.complete(&jobs.collect::<Vec<_>>())?;
    let drivers = drivers(&plan, &args, &place.session)?;

    let interrupted = interruption()?;
    let measured = measure(&plan, &drivers, &place.session, &interrupted)?;
    if place.session.is_part() {
        if measured.interrupted {
            return Err(place.interrupted("the rounds that were complete are kept").into());
        }
        print!("{}", place.session.summary());
        return Ok(());
    }
    if measured.results.is_empty() {
        return Err(place.interrupted("no round was complete: nothing to report").into());
    }
    let evaluation = Evaluation::of(plan, measured, &place);
    let page = place.report.as_deref().map(|out| report::write(&evaluation, out)).transpose()?;

    print!("{}", verdicts(&evaluation.bars(), evaluation.conditions.quick));
    println!("violations: of the SLO, on little cores; -: not judged (the report says why)");
    println!(
        "{}: {}; of all rounds together; medians of ratios within each round",
        evaluation.machine.tag(),
        evaluation.machine.spec
    );
    evaluation.conditions.notes.iter().for_each(|note| println!("{note}"));
    if let Some(warning) = demo::stats::disturbed(evaluation.conditions.disturbance) {
        eprintln!("warning: {warning}\nhint: run it again on a quiet machine");
    }
    if let Some(page) = page {
        println!("report: {}", page.display());
    }
    if evaluation.conditions.interrupted {
        return Err(place.interrupted("the report has the rounds that were complete").into());
    }
    let missed = evaluation.bars().iter().filter(|bar| bar.met == Some(false)).count();
    if missed > 0 && !args.quick {
        return Err(No(format!("{missed} {} missed: see the table", bars(missed))).into());
    }
    Ok(())
}

/// The drivers of those databases of which something is to be measured here.
fn drivers(
    plan: &DatabasePlan,
    args: &Databases,
    session: &Session,
) -> Result<Vec<Option<Driver>>> {
    let is_left = |place: &usize| plan.is_left(*place, session);
    if (0..plan.databases.len()).any(|place| is_left(&place)) {
        install_packages(&PACKAGES)?;
        demo::build(&target_dir()?)?;
    }
    let driver = |(place, database): (usize, &Database)| {
        is_left(&place).then(|| Driver::new(*database, args, &plan.machine)).transpose()
    };
    plan.databases.iter().enumerate().map(driver).collect()
}

/// Checks that the lock exists. The library checks its options.
fn check_lock(lock: &str) -> Result<()> {
    let name = lock.split(':').next().unwrap_or(lock);
    ensure!(
        name == "glibc" || find(name).is_some(),
        "unknown lock '{name}'\nhint: glibc, or one of {}",
        CATALOG.iter().map(|entry| entry.id).collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

impl Evaluation {
    /// Of measurements of which a round is whole.
    fn of(plan: DatabasePlan, measured: Measured, place: &ResultsPlace) -> Self {
        let Measured { results, circumstances, interrupted } = measured;
        let names: Vec<String> =
            plan.databases.iter().map(|database| database.name.to_owned()).collect();
        Self {
            epochs: results.iter().all(|one| one.points[0].runs[0].epochs),
            results,
            machine: plan.machine,
            threads: plan.threads,
            seconds: plan.seconds,
            warmup: plan.warmup,
            conditions: Conditions::of(
                (plan.rounds, plan.quick),
                (circumstances, interrupted),
                place,
                &names,
            ),
        }
    }

    fn bars(&self) -> Vec<Bar> {
        self.results.iter().flat_map(Results::bars).collect()
    }
}

/// The bars, for a terminal.
fn verdicts(bars: &[Bar], quick: bool) -> String {
    let mut table = table(&["bar", "wanted", "measured", ""]);
    for bar in bars {
        let verdict = bar.met.filter(|_| !quick).map_or("-".into(), |_| bar.verdict());
        table.add_row([&*bar.what, &*bar.wanted, &*bar.measured, &*verdict]);
    }
    plain(&table)
}

/// The word for this many bars.
fn bars(number: usize) -> &'static str {
    if number == 1 { "bar" } else { "bars" }
}

/// A flag that the first Ctrl-C sets. It ends an evaluation after the current run. The second Ctrl-C ends it at once.
fn interruption() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let flag = &interrupted;
        signal_hook::flag::register_conditional_default(signal, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(interrupted)
}

/// Writes the files that every report ends with; the answer is the page's path.
fn finish(out: &Path, summary: &Value, readme: &str, page: &str) -> Result<PathBuf> {
    save(&out.join("summary.json"), &(serde_json::to_string_pretty(summary)? + "\n"))?;
    save(&out.join("README.md"), readme)?;
    let path = out.join("report.html");
    save(&path, page)?;
    Ok(path)
}

/// Writes a file of the report.
pub(crate) fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))
}

#[cfg(test)]
mod tests;
