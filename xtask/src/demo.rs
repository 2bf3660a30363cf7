//! The demo: an ordinary database program (`crates/demo`, which knows nothing of lockwright) under glibc's
//! lock and under ours, side by side. A table on standard output, a report in HTML.
//!
//! Every round runs every lock once, in an order that rotates, so that whatever else the machine does
//! meets all locks alike; what is compared is always of the same round.

pub(crate) mod chart;
pub(crate) mod measure;
pub(crate) mod report;
pub(crate) mod stats;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, LineStyle, Table, presets};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_tests::{library, target_dir};
use measure::{Program, Run, Setting};
use stats::{Summary, summarise};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// What all locks are compared with: the C library's own, nothing preloaded.
const GLIBC: &str = "glibc";

/// Building SQLite on a slow machine takes minutes; a quarter of an hour is a hang.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each run lasts.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.6, value_parser = seconds)]
    seconds: f64,
    /// Numbers of threads.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 8],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// How many rounds; every round runs every lock once.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// A lock to compare with glibc's, with options as in `fifo:bypass=64`; may be given again.
    #[arg(long = "lock", value_name = "LOCK", default_values = ["auto", "fifo"])]
    locks: Vec<String>,
    /// Folder of the report (default: `demo` in cargo's target folder).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One round of 0.2 s: shows that all works, measures nothing.
    #[arg(long, conflicts_with_all = ["seconds", "reps"])]
    quick: bool,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be from 0.05 to 600".into()),
        Err(_) => Err("not a number".into()),
    }
}

/// All that was measured, for the table and the report.
struct Results {
    summaries: Vec<(Setting, Vec<Summary>)>,
    engines: Vec<(&'static str, String)>,
    libc: String,
    seconds: f64,
    rounds: u32,
    /// Share of the machine that other programs took meanwhile, 0 to 1.
    disturbance: f64,
}

pub(crate) fn main(mut args: Args) -> Result<()> {
    if args.quick {
        (args.seconds, args.reps) = (0.2, 1);
    }
    for lock in &args.locks {
        let name = lock.split(':').next().unwrap_or(lock);
        ensure!(
            find(name).is_some(),
            "unknown lock '{name}'\nhint: one of {}",
            CATALOG.iter().map(|entry| entry.id).collect::<Vec<_>>().join(", ")
        );
    }
    let target = target_dir()?;
    build(&target)?;
    let program = Program {
        path: target.join("release/lockwright-demo"),
        library: library()?,
        length: args.seconds,
    };
    let mut locks = vec![GLIBC.to_owned()];
    for lock in &args.locks {
        if !locks.contains(lock) {
            locks.push(lock.clone());
        }
    }
    program.check_library()?;

    let settings: Vec<_> = ["sqlite", "lmdb"]
        .into_iter()
        .flat_map(|database| args.threads.iter().map(move |&threads| Setting { database, threads }))
        .collect();
    let results = measure_all(&program, &settings, &locks, args.reps)?;

    let out = args.out.clone().unwrap_or_else(|| target.join("demo"));
    fs::create_dir_all(&out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let file = out.join("report.html");
    let command = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let page = report::page(&results, &format!("cargo xtask {command}"))?;
    fs::write(&file, page).with_context(|| format!("cannot write '{}'", file.display()))?;

    println!("{}", table(&results));
    println!("of glibc: median of the ratios within each round; spread: smallest to largest");
    println!("\n{}", stats::headline(&results.summaries));
    if let Some(warning) = stats::disturbed(results.disturbance) {
        eprintln!("warning: {warning}\nhint: run 'cargo xtask demo' again on a quiet machine");
    }
    println!("report: {}", file.display());
    Ok(())
}

/// Builds the library and the program, apart: built together, they would share libc's features, and the
/// library must not have std's.
pub(crate) fn build(target: &Path) -> Result<()> {
    build_library(target)?;
    build_one(target, "lockwright-demo", "the database program (SQLite takes longest)")
}

/// Builds the library alone.
pub(crate) fn build_library(target: &Path) -> Result<()> {
    build_one(target, "lockwright-preload", "the library to preload (liblockwright.so)")
}

fn build_one(target: &Path, package: &str, what: &str) -> Result<()> {
    eprintln!("building {what}");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["build", "--release", "--package", package, "--target-dir"])
        .arg(target)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .spawn()
        .context("cannot start cargo")?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > BUILD_LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("building {package}: stopped after {} s", BUILD_LIMIT.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    };
    ensure!(
        status.success(),
        "cannot build {package}: {status}\nhint: cargo build --release --package {package}"
    );
    Ok(())
}

fn measure_all(
    program: &Program,
    settings: &[Setting],
    locks: &[String],
    rounds: u32,
) -> Result<Results> {
    let total = u64::from(rounds) * (settings.len() * locks.len()) as u64;
    eprintln!(
        "measuring: {total} runs of {} s, about {:.0} s in all",
        program.length,
        total as f64 * (program.length + 0.1)
    );
    let bar = ProgressBar::new(total).with_style(
        ProgressStyle::with_template("{bar:32.cyan/dim} {pos:>3}/{len} {msg:<36} {left}")?
            .with_key("left", |state: &ProgressState, to: &mut dyn std::fmt::Write| {
                // Before the first run nothing is known of the time left.
                if state.pos() > 0 {
                    let _ = write!(to, "{:#} left", HumanDuration(state.eta()));
                }
            }),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut runs: Vec<Vec<Vec<Run>>> =
        settings.iter().map(|_| locks.iter().map(|_| Vec::new()).collect()).collect();
    let mut meter = measure::Disturbance::default();
    for round in 0..rounds as usize {
        for (place, setting) in settings.iter().enumerate() {
            for turn in 0..locks.len() {
                let index = (turn + round) % locks.len();
                let lock = &locks[index];
                bar.set_message(format!(
                    "{}, {}, {lock}, round {}",
                    setting.name(),
                    stats::threads(setting.threads),
                    round + 1
                ));
                let lock = (lock != GLIBC).then_some(lock.as_str());
                let run = meter.watch(|| program.run(*setting, lock, round as u64 + 1));
                match run {
                    Ok(run) => runs[place][index].push(run),
                    Err(error) => {
                        bar.abandon();
                        return Err(error);
                    }
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();

    let first = |database: &'static str| {
        let place = settings.iter().position(|s| s.database == database)?;
        Some((database, runs[place][0].first()?.engine.clone()))
    };
    Ok(Results {
        engines: ["sqlite", "lmdb"].into_iter().filter_map(first).collect(),
        libc: runs[0][0][0].libc.clone(),
        seconds: program.length,
        rounds,
        disturbance: meter.share(),
        summaries: settings.iter().zip(&runs).map(|(s, r)| (*s, summarise(locks, r))).collect(),
    })
}

fn table(results: &Results) -> Table {
    let mut table = Table::new();
    let under_header = LineStyle::new('─', '─', '─', '─');
    table.load_style(presets::NOTHING.header_separator(under_header)).set_header([
        "database", "threads", "lock", "ops/s", "of glibc", "(spread)", "P50", "P99", "max",
        "CPU/op",
    ]);
    for (setting, summaries) in &results.summaries {
        for (n, summary) in summaries.iter().enumerate() {
            let (database, threads) = match n {
                0 => (setting.name().to_owned(), setting.threads.to_string()),
                _ => (String::new(), String::new()),
            };
            let ratio = summary.ratio;
            table.add_row([
                database,
                threads,
                summary.lock.clone(),
                stats::thousands(summary.rate.median),
                format!("{:.2}", ratio.median),
                if n == 0 {
                    String::new()
                } else {
                    format!("{:.2} to {:.2}", ratio.min, ratio.max)
                },
                stats::time(summary.latency.quantile(0.5)),
                stats::time(summary.latency.quantile(0.99)),
                stats::time(summary.latency.max()),
                stats::time(summary.cpu_ns.median as u64),
            ]);
        }
    }
    for column in [1, 3, 4, 5, 6, 7, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
