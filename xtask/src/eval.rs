//! Evaluations. `cargo xtask eval libasl-apps` repeats a paper's: it runs the databases of LibASL (PPoPP 2022, section
//! 4.2) under its locks, on emulated big and little cores, and writes one report. `cargo xtask eval programs` runs
//! unmodified Debian programs on this machine's own cores.
//!
//! Every round runs every lock once, in an order that rotates. Comparisons are always within the same round. SLOs are
//! multiples of FIFO's own P99 on little cores, which is measured first.

mod chart;
mod drivers;
mod figures;
mod machine;
mod programs;
mod report;

use crate::demo::{self, measure::busy_seconds, stats::spread};
use crate::test::install_packages;
use crate::{Interrupted, No};
use anyhow::{Context, Result, ensure};
use drivers::{Database, Driver, NO_LIMIT_NS, Subject};
use figures::{Point, Results};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use lockwright_bench::split;
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_tests::target_dir;
use lockwright_text::table::{plain, right, table};
use machine::Machine;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The packages that the drivers need.
const PACKAGES: [&str; 3] = ["build-essential", "libkyotocabinet-dev", "libleveldb-dev"];

/// The lock whose epochs have SLOs.
const ASL: &str = "asl";

/// Number of preliminary runs of FIFO. Their median determines the SLOs.
const LOOKS: usize = 3;

/// SLOs as multiples of FIFO's P99 on little cores. There is also a run without a limit.
const FACTORS: [f64; 6] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0];
const FACTORS_QUICK: [f64; 2] = [0.0, 4.0];

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
    machine: Machine,
    threads: usize,
    seconds: f64,
    warmup: f64,
    rounds: u32,
    quick: bool,
    /// Did the program's operations have epochs?
    epochs: bool,
    libc: String,
    command: String,
    date: String,
    /// Was it interrupted by Ctrl-C? Then some rounds or databases are missing.
    interrupted: bool,
    /// The share of the machine that other programs used, 0 to 1.
    disturbance: f64,
}

pub(crate) fn main(args: Args) -> Result<()> {
    match args.suite {
        Suite::LibaslApps(args) => databases(args),
        Suite::Programs(args) => programs::main(args),
    }
}

fn databases(mut args: Databases) -> Result<()> {
    if args.quick {
        (args.time, args.warmup, args.rounds) = (0.15, 0.05, 1);
    }
    let machine = Machine::parse(&args.emulate)?;
    machine.check_here()?;
    let mut databases: Vec<Database> = Vec::new();
    for id in &args.db {
        let database = Database::find(id)?;
        if !databases.contains(&database) {
            databases.push(database);
        }
    }
    args.lock = args.lock.iter().flat_map(|locks| split(locks)).collect();
    args.lock.iter().try_for_each(|lock| check_lock(lock))?;
    install_packages(&PACKAGES)?;
    let target = target_dir()?;
    demo::build(&target)?;
    let drivers = databases
        .into_iter()
        .map(|database| Driver::new(database, &args, &machine))
        .collect::<Result<Vec<_>>>()?;

    let evaluation = measure(&drivers, &args, machine)?;
    let out = args.out.clone().unwrap_or_else(|| target.join("eval/libasl-apps"));
    let page = report::write(&evaluation, &out)?;

    print!("{}", bars(&evaluation));
    println!(
        "{}: {}; of all rounds together; medians of ratios within each round",
        evaluation.machine.tag(),
        evaluation.machine.spec
    );
    if let Some(warning) = demo::stats::disturbed(evaluation.disturbance) {
        eprintln!("warning: {warning}\nhint: run it again on a quiet machine");
    }
    println!("report: {}", page.display());
    if evaluation.interrupted {
        return Err(Interrupted("the report has the rounds that were complete").into());
    }
    let missed = evaluation.bars().iter().filter(|bar| bar.met == Some(false)).count();
    if missed > 0 && !args.quick {
        return Err(No(format!("{missed} bars missed: see the table")).into());
    }
    Ok(())
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
    fn bars(&self) -> Vec<figures::Bar> {
        self.results.iter().flat_map(Results::bars).collect()
    }
}

fn bars(evaluation: &Evaluation) -> String {
    let mut table = table(&["bar", "wanted", "measured", ""]);
    for bar in evaluation.bars() {
        let verdict = if evaluation.quick { "too short" } else { bar.verdict() };
        table.add_row([&*bar.what, &*bar.wanted, &*bar.measured, verdict]);
    }
    right(&mut table, 1..2);
    plain(&table)
}

/// The subjects for one database: the plain locks, and asl with its SLOs once FIFO's latency is known.
fn subjects(locks: &[String], base_ns: u64, quick: bool) -> Vec<Subject> {
    let factors: &[f64] = if quick { &FACTORS_QUICK } else { &FACTORS };
    let mut subjects: Vec<Subject> = Vec::new();
    for lock in locks {
        if lock.split(':').next() != Some(ASL) {
            subjects.push(Subject { lock: lock.clone(), slo_ns: None });
            continue;
        }
        let slos = factors.iter().map(|factor| match factor {
            0.0 => 0,
            _ => figures::round(base_ns as f64 * factor),
        });
        for slo_ns in slos.chain([NO_LIMIT_NS]) {
            subjects.push(Subject { lock: lock.clone(), slo_ns: Some(slo_ns) });
        }
    }
    let mut unique = Vec::new();
    for subject in subjects {
        if !unique.contains(&subject) {
            unique.push(subject);
        }
    }
    unique
}

fn measure(drivers: &[Driver], args: &Databases, machine: Machine) -> Result<Evaluation> {
    let looks = if args.quick { 1 } else { LOOKS };
    let swept = args.lock.iter().filter(|lock| lock.split(':').next() == Some(ASL)).count();
    let of_asl = if args.quick { FACTORS_QUICK.len() } else { FACTORS.len() };
    let runs_each = (args.lock.len() + swept * of_asl) * args.rounds as usize + looks;
    let total = (drivers.len() * runs_each) as u64;
    let length = args.time + args.warmup;
    eprintln!(
        "measuring ({}): {total} runs of {length:.2} s, about {:.0} s in all",
        machine.tag(),
        total as f64 * (length + 0.4)
    );
    let bar = progress(total)?;
    let interrupted = interruption()?;
    let mut meter = Meter::start();
    let mut run = |driver: &Driver, subject: &Subject, round: u32| {
        bar.set_message(format!(
            "{}, {}, {}",
            driver.database.name,
            subject.name(),
            if round == 0 { "first look".into() } else { format!("round {round}") }
        ));
        let run = match round {
            0 => driver.first_look(subject),
            _ => driver.run(subject, u64::from(round)),
        };
        let run = run.inspect_err(|_| bar.abandon())?;
        meter.ours += run.cpu_seconds;
        bar.inc(1);
        Ok::<_, anyhow::Error>(run)
    };

    let fifo = Subject { lock: "fifo".into(), slo_ns: None };
    let mut results = Vec::new();
    for driver in drivers {
        let looks = (0..looks)
            .map(|_| run(driver, &fifo, 0))
            .map(|look| Ok(look?.classes[machine.little()].latency.quantile(0.99) as f64))
            .collect::<Result<Vec<_>>>()?;
        let base_ns = spread(&looks).median as u64;
        let subjects = subjects(&args.lock, base_ns, args.quick);
        let mut points: Vec<_> =
            subjects.into_iter().map(|subject| Point { subject, runs: Vec::new() }).collect();
        'rounds: for round in 0..args.rounds {
            for turn in 0..points.len() {
                if interrupted.load(Ordering::Relaxed) {
                    break 'rounds;
                }
                let index = (turn + round as usize) % points.len();
                let done = run(driver, &points[index].subject, round + 1)?;
                points[index].runs.push(done);
            }
        }
        // Only whole rounds, because comparisons are within rounds.
        let rounds = points.iter().map(|point| point.runs.len()).min().unwrap_or(0);
        points.iter_mut().for_each(|point| point.runs.truncate(rounds));
        if rounds > 0 {
            results.push(Results { database: driver.database, points, machine: machine.clone() });
        }
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    bar.finish_and_clear();
    let Some(first) = results.first().map(|results| &results.points[0].runs[0]) else {
        return Err(Interrupted("no round was complete: nothing to report").into());
    };
    Ok(Evaluation {
        libc: first.libc.clone(),
        epochs: first.epochs,
        results,
        machine,
        threads: drivers[0].threads,
        seconds: args.time,
        warmup: args.warmup,
        rounds: args.rounds,
        quick: args.quick,
        command: command(),
        date: demo::report::date()?,
        interrupted: interrupted.load(Ordering::Relaxed),
        disturbance: meter.share(),
    })
}

/// Our command line.
fn command() -> String {
    format!("cargo xtask {}", env::args().skip(1).collect::<Vec<_>>().join(" "))
}

/// A progress bar for this number of runs.
pub(crate) fn progress(total: u64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(total).with_style(
        ProgressStyle::with_template("{bar:32.cyan/dim} {pos:>3}/{len} {msg:<40} {left}")?
            .with_key("left", |state: &ProgressState, to: &mut dyn std::fmt::Write| {
                // Before the first run, the remaining time is unknown.
                if state.pos() > 0 {
                    let _ = write!(to, "{:#} left", HumanDuration(state.eta()));
                }
            }),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
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

/// Measures how much of the machine other programs use.
struct Meter {
    busy: Option<f64>,
    start: Instant,
    /// CPU seconds of our own runs.
    ours: f64,
}

impl Meter {
    fn start() -> Meter {
        Meter { busy: busy_seconds(), start: Instant::now(), ours: 0.0 }
    }

    /// 0 to 1.
    fn share(&self) -> f64 {
        let (Some(before), Some(after)) = (self.busy, busy_seconds()) else { return 0.0 };
        let cpus = thread::available_parallelism().map_or(1, usize::from) as f64;
        let machine = self.start.elapsed().as_secs_f64() * cpus;
        ((after - before - self.ours) / machine).clamp(0.0, 1.0)
    }
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
mod tests {
    use super::*;

    #[test]
    fn asl_is_run_at_each_slo_and_others_once() {
        let locks = ["fifo".to_owned(), "asl".into(), "asl-max".into(), "fifo".into()];
        let of = |quick| {
            let subjects = subjects(&locks, 1234, quick);
            subjects.iter().map(|s| (s.lock.clone(), s.slo_ns)).collect::<Vec<_>>()
        };
        let slos: Vec<_> = of(false).iter().filter_map(|(_, slo)| *slo).collect();
        assert_eq!(slos, [0, 620, 1200, 2500, 4900, 9900, NO_LIMIT_NS]);
        assert_eq!(of(false).len(), 2 + slos.len());
        assert_eq!(of(true).len(), 2 + 3);
    }
}
