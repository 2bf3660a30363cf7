//! The demo: runs an ordinary database program (`crates/demo`, which doesn't use lockwright) under glibc's lock and
//! under ours, side by side. There are three panels: *this machine* as it is (real), the same beside *hogs*, which are other
//! processes that compute all the time (real), and a big and a little core (emulated) with latency objectives. It prints
//! tables and a verdict, and writes an HTML report, a picture and a Markdown table.
//!
//! Every round runs every lock once, in an order that rotates. So other load on the machine affects all locks equally.
//! Comparisons are always within the same round.
//!
//! ```text
//!       readme
//!   report └ picture   words      what is told
//!      └─ chart ─┘       │
//!            stats ──────┘        what was measured amounts to
//!   measure: one run    cores     how it is measured
//! ```

pub(crate) mod chart;
mod cores;
pub(crate) mod measure;
mod picture;
mod readme;
pub(crate) mod report;
pub(crate) mod stats;
pub(crate) mod words;

use crate::answer::No;
use crate::progress::progress;
use anyhow::{Context, Result, bail, ensure};
use cores::Cores;
use indicatif::ProgressBar;
use lockwright_bench::split;
use lockwright_locks::catalog::find;
use lockwright_locks::spec::Spec;
use lockwright_numbers::units;
use lockwright_tests::{library, target_dir};
use measure::{Disturbance, Program, Run, Setting, Subject};
use stats::{Group, Panel, spread, summarise};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The reference for all locks. On this machine, it is the C library's own lock, without a preload.
const GLIBC: &str = "glibc";

/// First come, first served: no thread is overtaken.
const FIFO: &str = "fifo";

/// LibASL's lock, whose epochs have SLOs.
const ASL: &str = "asl";

/// Our own lock for unequal cores. It is left out while the catalogue has no lock with this name.
const OURS: &str = "slo";

/// Numbers of other processes that compute all the time, because users' machines are seldom idle.
const HOGS: [u32; 2] = [1, 2];

/// Number of rounds beside them, at most (what gives a verdict), and how long a run is beside the others: the demo must stay
/// short.
const BUSY_ROUNDS: u32 = stats::ROUNDS as u32;
const BUSY_LENGTH: f64 = 5.0 / 7.0;

/// Number of threads on the two unequal cores: one each.
const PAIR: u32 = 2;

/// Number of preliminary runs of glibc on these cores. Their median P99 becomes the objective.
const LOOKS: usize = 3;

/// Building SQLite on a slow machine takes minutes. After a quarter of an hour, it counts as hung.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each run lasts.
    #[arg(long = "time", alias = "seconds", value_name = "TIME", default_value = "350ms", value_parser = seconds)]
    seconds: f64,
    /// Numbers of threads on this machine.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 8],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// How many rounds; every round runs every lock once.
    #[arg(long = "rounds", alias = "reps", value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Locks to compare with glibc's on this machine, separated by commas, with options such as `fifo:bypass=64`.
    #[arg(long = "lock", value_name = "LOCKS", default_values = ["auto"])]
    locks: Vec<String>,
    /// Folder for report.html, picture.svg and table.md (default: `demo` in cargo's target folder).
    #[arg(long = "output", alias = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write README's table and pictures.
    #[arg(long, conflicts_with_all = ["quick", "threads", "locks"])]
    readme: bool,
    /// Measure nothing: draw README's picture of a terminal from what a run printed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["readme", "quick", "out"])]
    terminal: Option<PathBuf>,
    /// One round of 0.2 s: shows that everything works, but its figures mean nothing.
    #[arg(long, conflicts_with_all = ["seconds", "reps"])]
    quick: bool,
}

/// Of a run: 50 ms to 10 minutes.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = units::seconds(text)?;
    match (0.05..=600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("not within 50ms to 600s".into()),
    }
}

/// All results, for the tables and the report.
struct DemoResults {
    panels: Vec<Panel>,
    engines: Vec<(&'static str, String)>,
    libc: String,
    seconds: f64,
    rounds: u32,
    /// The share of the machine that other programs used, 0 to 1.
    disturbance: f64,
    /// A command for the user's own program.
    next: String,
    /// The runs that failed. Their rounds don't count.
    failed: Vec<String>,
}

impl DemoResults {
    /// Is the panel missing that needs two CPUs?
    fn has_one_cpu(&self) -> bool {
        self.panels.iter().all(|panel| panel.cores.is_none())
    }

    /// The rounds beside hogs: `5 of 0.25 s`.
    fn busy_rounds(&self) -> String {
        let busy = self.panels.iter().find(|panel| panel.is_busy());
        busy.map_or("none".into(), |panel| format!("{} of {:.2} s", panel.rounds, panel.seconds))
    }
}

pub(crate) fn main(mut args: Args) -> Result<()> {
    if let Some(file) = &args.terminal {
        let output = fs::read_to_string(file)
            .with_context(|| format!("cannot read '{}'", file.display()))?;
        return readme::terminal(&crate::root::root(), "cargo xtask demo", &output);
    }
    if args.quick {
        (args.seconds, args.reps) = (0.2, 1);
    }
    args.locks = args.locks.iter().flat_map(|locks| split(locks)).collect();
    for lock in &args.locks {
        if let Err(bad) = Spec::parse(lock) {
            bail!("{bad}\nhint: cargo run -q -p lockwright-cli -- list");
        }
    }
    if args.readme {
        readme::check(args.reps)?;
    }
    let target = target_dir()?;
    build(&target)?;
    let program = Program {
        path: target.join("release/lockwright-demo"),
        library: library()?,
        length: args.seconds,
    };
    program.check_library()?;

    let results = measure_all(&program, &args)?;
    if args.readme && !results.failed.is_empty() {
        return failed(&results.failed);
    }
    let out = args.out.clone().unwrap_or_else(|| target.join("demo"));
    fs::create_dir_all(&out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let command = format!("cargo xtask {}", crate::answer::shown_words().join(" "));
    for (name, text) in [
        ("report.html", report::report(&results, command.trim())?),
        ("picture.svg", picture::svg(&results, &report::machine(&results.libc))),
        ("table.md", picture::markdown(&results)),
    ] {
        let file = out.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write '{}'", file.display()))?;
    }

    let mut output = words::tables(&results.panels, &report::machine(&results.libc));
    if results.has_one_cpu() {
        output += "big and little cores: left out, because they need two CPUs\n";
    }
    print!("{output}");
    // Before the conclusions that it qualifies.
    if let Some(warning) = stats::disturbed(results.disturbance) {
        eprintln!("\nwarning: {warning}\nhint: run 'cargo xtask demo' again on a quiet machine");
    }
    let said = words::verdict(&results.panels).into_iter().map(|said| words::wrapped(&said) + "\n");
    let said = format!(
        "\n{}\n{}\n",
        said.collect::<String>(),
        words::wrapped(&words::next(&results.next))
    );
    print!("{said}");
    output += &said;
    if args.readme {
        readme::write(&crate::root::root(), &results, command.trim())?;
        readme::terminal(&crate::root::root(), command.trim(), &output)?;
    }
    println!("\nreport: {}", out.join("report.html").display());
    failed(&results.failed)
}

/// Says which runs failed.
fn failed(runs: &[String]) -> Result<()> {
    let what = match runs.len() {
        0 => return Ok(()),
        1 => "a run failed, and its round doesn't count".to_owned(),
        number => format!("{number} runs failed, and their rounds don't count"),
    };
    Err(No(format!("{what}:\n{}", runs.join("\n"))).into())
}

/// Builds the library and the program separately. In a single build they would share libc's features, and the library
/// must not use the `std` feature.
pub(crate) fn build(target: &Path) -> Result<()> {
    build_library(target)?;
    build_one(target, "lockwright-demo", "the database program (SQLite takes longest)")
}

/// Builds only the library.
pub(crate) fn build_library(target: &Path) -> Result<()> {
    build_one(target, "lockwright-preload", "the library to preload (liblockwright.so)")
}

pub(crate) fn build_one(target: &Path, package: &str, what: &str) -> Result<()> {
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

/// The command that runs any program with the library, from the folder where this command was started.
fn next_command(library: &Path, here: &Path) -> String {
    let library = match library.strip_prefix(here) {
        Ok(below) => format!("$PWD/{}", below.display()),
        Err(_) => library.display().to_string(),
    };
    format!("LD_PRELOAD=\"{library}\" ./your-program")
}

/// The subjects on the two unequal cores, once the objective is known.
fn pair_subjects(slo_ns: u64) -> Vec<Subject> {
    let subject = |lock: &str, slo_ns| Subject { lock: lock.into(), slo_ns };
    let mut subjects = vec![subject(GLIBC, None), subject(FIFO, None)];
    for lock in [ASL, OURS].into_iter().filter(|lock| find(lock).is_some()) {
        subjects.extend([subject(lock, Some(slo_ns)), subject(lock, None)]);
    }
    subjects
}

fn measure_all(program: &Program, args: &Args) -> Result<DemoResults> {
    let databases = ["sqlite", "lmdb"];
    let setting = |database, threads| Setting { database, threads, hogs: 0 };
    let own: Vec<_> = databases
        .into_iter()
        .flat_map(|database| args.threads.iter().map(move |&threads| setting(database, threads)))
        .collect();
    let beside = |&own: &Setting| HOGS.map(|hogs| Setting { hogs, ..own });
    let busy: Vec<_> = own.iter().flat_map(beside).collect();
    let busy_rounds = args.reps.min(BUSY_ROUNDS);
    let busy_program = Program { length: program.length * BUSY_LENGTH, ..program.clone() };
    let mut subjects = vec![Subject { lock: GLIBC.into(), slo_ns: None }];
    for lock in &args.locks {
        let subject = Subject { lock: lock.clone(), slo_ns: None };
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let cores = Cores::here()?;
    let looks = if args.quick { 1 } else { LOOKS };
    let pairs = if cores.is_some() {
        databases.map(|database| setting(database, PAIR)).to_vec()
    } else {
        Vec::new()
    };
    let busy_total = busy.len() * subjects.len() * busy_rounds as usize;
    let total = own.len() * subjects.len() * args.reps as usize
        + pairs.len() * (pair_subjects(1).len() * args.reps as usize + looks);
    let seconds =
        total as f64 * (program.length + 0.05) + busy_total as f64 * (busy_program.length + 0.05);
    let total = total + busy_total;
    eprintln!(
        "measuring: {total} runs of {} s, those beside hogs of {:.2} s, about {seconds:.0} s in all",
        program.length, busy_program.length,
    );
    let bar = progress(total as u64, "runs")?;
    let mut rounds = Rounds { program, bar, meter: Disturbance::default(), failed: Vec::new() };
    let mut panels = Vec::new();
    let mut engines = Vec::new();
    let mut libc = String::new();
    for (settings, reps, program) in
        [(&own, args.reps, program), (&busy, busy_rounds, &busy_program)]
    {
        rounds.program = program;
        let plan = settings.iter().map(|setting| (*setting, subjects.clone(), None));
        let plan = plan.collect::<Vec<_>>();
        let mut groups = Vec::new();
        for ((setting, subjects, slo_ns), runs) in plan.iter().zip(rounds.all(&plan, None, reps)?) {
            if runs[0].is_empty() {
                continue; // each of its rounds failed
            }
            let first = &runs[0][0];
            if engines.iter().all(|(database, _)| *database != setting.database) {
                engines.push((setting.database, first.engine.clone()));
            }
            libc.clone_from(&first.libc);
            let summaries = summarise(subjects, &runs);
            groups.push(Group { setting: *setting, slo_ns: *slo_ns, summaries });
        }
        if groups.is_empty() {
            rounds.bar.abandon();
            failed(&rounds.failed)?;
        }
        panels.push(Panel { cores: None, rounds: reps, seconds: program.length, groups });
    }
    rounds.program = program;
    let beside = |group: &&Group| group.summaries.iter().all(|own| own.hogs_cpus.median > 0.0);
    ensure!(
        panels[1].groups.iter().all(|group| beside(&group)),
        "the demo did not measure all databases beside hogs\nhint: a longer --time"
    );
    if let Some(cores) = cores {
        let mut plan = Vec::new();
        for setting in pairs {
            let glibc = &subjects[0];
            let mut p99 = Vec::new();
            for _ in 0..looks {
                let run = rounds.one_or_fails(setting, glibc, Some(&cores), 0)?;
                p99.extend(run.map(|run| run.latency.quantile(0.99) as f64));
            }
            if p99.is_empty() {
                continue;
            }
            let slo_ns = objective(spread(&p99).median);
            plan.push((setting, pair_subjects(slo_ns), Some(slo_ns)));
        }
        let runs = rounds.all(&plan, Some(&cores), args.reps)?;
        let group = |((setting, subjects, slo_ns), runs): (_, Vec<Vec<Run>>)| {
            let subjects: Vec<Subject> = subjects;
            Group { setting, slo_ns, summaries: summarise(&subjects, &runs) }
        };
        let runs = plan.into_iter().zip(runs).filter(|(_, runs)| !runs[0].is_empty());
        let groups: Vec<_> = runs.map(group).collect();
        if groups.is_empty() {
            rounds.bar.abandon();
            failed(&rounds.failed)?;
        }
        panels.push(Panel {
            cores: Some(cores),
            rounds: args.reps,
            seconds: program.length,
            groups,
        });
    }
    rounds.bar.finish_and_clear();
    Ok(DemoResults {
        panels,
        engines,
        libc,
        seconds: program.length,
        rounds: args.reps,
        disturbance: rounds.meter.share(),
        next: next_command(&program.library, &env::current_dir()?),
        failed: rounds.failed,
    })
}

/// An objective slightly above a P99: two digits, rounded up.
fn objective(p99_ns: f64) -> u64 {
    let unit = 10_f64.powf((p99_ns.max(10.0)).log10().floor() - 1.0);
    ((p99_ns / unit - 1e-9).ceil() * unit).round().max(1.0) as u64
}

/// The settings, the subjects of each, and its objective.
type Plan = [(Setting, Vec<Subject>, Option<u64>)];

/// Does the runs, one after the other.
struct Rounds<'a> {
    program: &'a Program,
    bar: ProgressBar,
    meter: Disturbance,
    /// The runs that failed: what was said of each.
    failed: Vec<String>,
}

impl Rounds<'_> {
    /// The runs for each setting and subject, one per round. A round in which one of a setting's runs failed doesn't count there: only runs
    /// of the same round are compared.
    fn all(
        &mut self,
        plan: &Plan,
        cores: Option<&Cores>,
        rounds: u32,
    ) -> Result<Vec<Vec<Vec<Run>>>> {
        let empty =
            |(_, subjects, _): &(_, Vec<Subject>, _)| subjects.iter().map(|_| Vec::new()).collect();
        let mut runs: Vec<Vec<Vec<Run>>> = plan.iter().map(empty).collect();
        for round in 0..rounds as usize {
            for (place, (setting, subjects, _)) in plan.iter().enumerate() {
                let mut own: Vec<Option<Run>> = subjects.iter().map(|_| None).collect();
                for turn in 0..subjects.len() {
                    let index = (turn + round) % subjects.len();
                    own[index] = self.one_or_fails(*setting, &subjects[index], cores, round + 1)?;
                }
                if own.iter().all(Option::is_some) {
                    runs[place].iter_mut().zip(own).for_each(|(runs, run)| runs.extend(run));
                }
            }
        }
        Ok(runs)
    }

    /// As [`one`](Self::one), but a lock's failure is kept for the end, and the demo goes on.
    fn one_or_fails(
        &mut self,
        setting: Setting,
        subject: &Subject,
        cores: Option<&Cores>,
        round: usize,
    ) -> Result<Option<Run>> {
        match self.one(setting, subject, cores, round) {
            Ok(run) => Ok(Some(run)),
            Err(why) if why.is::<No>() => {
                self.bar.println(format!("{why}"));
                self.failed.push(format!("{why}"));
                Ok(None)
            }
            Err(why) => {
                self.bar.abandon();
                Err(why)
            }
        }
    }

    fn one(
        &mut self,
        setting: Setting,
        subject: &Subject,
        cores: Option<&Cores>,
        round: usize,
    ) -> Result<Run> {
        let what = match cores {
            None => setting.load(),
            Some(_) => "big and little".into(),
        };
        self.bar.set_message(format!("{}, {what}, {}", setting.name(), subject.name()));
        let run = self.meter.watch(|| {
            let run = self.program.run(setting, subject, cores, round as u64)?;
            let ours = run.cpu_seconds + run.hogs.cpu.as_secs_f64();
            Ok((run, ours))
        });
        self.bar.inc(1);
        run
    }
}

#[cfg(test)]
mod tests;
