//! Unmodified Debian programs under load, each lock compared with glibc's: `cargo xtask eval programs`.
//!
//! Programs run one after the other. Each round runs every lock once, in an order that rotates. Within rounds, it
//! compares throughput, P99, P99.9, the longest operation, and CPU time per operation.

mod bench;
mod figures;
mod list;
mod load;
mod report;

use super::{Meter, check_lock, interruption, progress};
use crate::demo::{self, stats};
use crate::test::install_packages;
use crate::{Interrupted, No};
use anyhow::{Context, Result, bail, ensure};
use bench::{Bench, Sample};
use figures::{METRICS, Metric, Results};
use list::{PROGRAMS, Program};
use lockwright_bench::split;
use lockwright_energy::{Kind, Source, Watts};
use lockwright_numbers::format::{self, joules, si};
use lockwright_numbers::units;
use lockwright_tests::{library, target_dir};
use lockwright_text::table::{plain, right, table};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, process};
use tempfile::TempDir;

/// The reference for all locks: nothing is preloaded.
const GLIBC: &str = "glibc";

/// The prefix of our folders' names; the process's id follows.
const SCRATCH: &str = "lockwright-eval-";

/// Flags.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Programs, or the first letters of their names (default: all; --list prints them).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Locks to compare with glibc's, with options such as `fifo:bypass=64`.
    #[arg(long, value_name = "LOCKS", default_values = ["auto"])]
    lock: Vec<String>,
    /// How long each load lasts; programs that end by themselves get work for about as long.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = whole_seconds)]
    time: u32,
    /// How many rounds; every round runs every lock once.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Folder for the report (default: `eval/programs` in cargo's target folder).
    #[arg(long = "output", alias = "out", value_name = "DIR")]
    out: Option<PathBuf>,
    /// One round of 1 s: shows that everything works; no verdicts.
    #[arg(long, conflicts_with_all = ["time", "rounds"])]
    quick: bool,
    /// Print the programs.
    #[arg(long)]
    list: bool,
}

/// Loads count in whole seconds, up to a minute.
fn whole_seconds(text: &str) -> Result<u32, String> {
    let seconds = units::seconds(text)?;
    match (1.0..=60.0).contains(&seconds) && seconds.fract() == 0.0 {
        true => Ok(seconds as u32),
        false => Err("not a number of whole seconds within 1s to 60s".into()),
    }
}

/// All measurements, with the conditions for the report.
struct Evaluation {
    results: Vec<Results>,
    /// Programs that are not available here, and those that failed: name and reason.
    skipped: Vec<(&'static str, String)>,
    failed: Vec<(&'static str, String)>,
    seconds: u32,
    rounds: u32,
    quick: bool,
    libc: String,
    command: String,
    date: String,
    /// Was it interrupted by Ctrl-C? Then some rounds or programs are missing.
    interrupted: bool,
    /// The share of the machine that other programs used, 0 to 1.
    disturbance: f64,
    /// The source of energy figures, or why there is none.
    energy: String,
}

/// The source of energy figures, if there is one, and a note about it. The model doesn't count, because its watts are
/// assumed.
fn energy() -> (Option<Source>, String) {
    let source = Source::here(Watts::assumed());
    if source.kind() == Kind::Model {
        let why = source.notes().join("; ");
        return (None, format!("energy: unavailable ({why})"));
    }
    let said = format!("energy: {}: {}", source.tag(), source.what());
    (Some(source), said)
}

pub(super) fn main(mut args: Args) -> Result<()> {
    if args.list {
        for program in PROGRAMS {
            println!("{:<15} {}", program.id, program.name);
        }
        return Ok(());
    }
    if args.quick {
        (args.time, args.rounds) = (1, 1);
    }
    let programs = chosen(&args.only)?;
    let mut locks = vec![GLIBC.to_owned()];
    args.lock = args.lock.iter().flat_map(|locks| split(locks)).collect();
    for lock in &args.lock {
        check_lock(lock)?;
        if !locks.contains(lock) {
            locks.push(lock.clone());
        }
    }
    ensure!(locks.len() > 1, "--lock glibc: nothing to compare it with\nhint: --lock auto");
    let mut skipped = Vec::new();
    let mut ready = Vec::new();
    for program in programs {
        match install_packages(program.packages) {
            Ok(()) => ready.push(program),
            Err(error) => {
                let why = crate::describe(&error, None);
                eprintln!("skipped: {}: {why}", program.id);
                skipped.push((program.id, why));
            }
        }
    }
    let target = target_dir()?;
    demo::build_library(&target)?;

    let evaluation = measure(&ready, skipped, &locks, &args)?;
    let out = args.out.clone().unwrap_or_else(|| target.join("eval/programs"));
    let page = report::write(&evaluation, &out)?;
    tell(&evaluation, &page);
    if evaluation.interrupted {
        return Err(Interrupted("the report has the rounds that were complete").into());
    }
    if let Some((program, why)) = evaluation.failed.first() {
        return Err(No(format!("{program}: {why}")).into());
    }
    let missed = evaluation.missed().len();
    if missed > 0 && !args.quick {
        return Err(No(format!("{missed} bars missed")).into());
    }
    let skipped: Vec<_> = evaluation.skipped.iter().map(|(program, _)| *program).collect();
    ensure!(
        skipped.is_empty(),
        "skipped, because packages are missing: {}\nhint: as root, or after apt-get install",
        skipped.join(", ")
    );
    Ok(())
}

/// The programs that `only` names.
fn chosen(only: &[String]) -> Result<Vec<&'static Program>> {
    let is_named = |program: &Program, name: &str| program.id.starts_with(name);
    if let Some(name) =
        only.iter().find(|name| !PROGRAMS.iter().any(|program| is_named(program, name)))
    {
        let known: Vec<_> = PROGRAMS.iter().map(|program| program.id).collect();
        bail!("unknown program '{name}'\nhint: one of {}", known.join(", "));
    }
    let wanted =
        |program: &&Program| only.is_empty() || only.iter().any(|name| is_named(program, name));
    Ok(PROGRAMS.iter().filter(wanted).collect())
}

/// A folder for programs' data. It is in memory if there is room, because disks are not the subject.
fn scratch() -> Result<TempDir> {
    const ROOM: u64 = 4 << 30;
    let memory = Path::new("/dev/shm");
    let is_large = rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= ROOM);
    let parent = if is_large { memory.to_owned() } else { env::temp_dir() };
    remove_stale(&parent);
    tempfile::Builder::new()
        .prefix(&format!("{SCRATCH}{}-", process::id()))
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a folder in '{}'", parent.display()))
}

/// Removes the data of killed evaluations, which takes up memory.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(SCRATCH)) else {
            continue;
        };
        let pid = rest.split('-').next().unwrap_or_default();
        if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
            // Ignores errors: another user's folder can't be removed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn measure(
    programs: &[&'static Program],
    skipped: Vec<(&'static str, String)>,
    locks: &[String],
    args: &Args,
) -> Result<Evaluation> {
    let runs_each = 1 + locks.len() * args.rounds as usize;
    let total = (programs.len() * runs_each) as u64;
    eprintln!(
        "measuring (real): {total} runs of about {} s, about {:.0} min in all",
        args.time,
        (total as f64 * (f64::from(args.time) + 0.7) / 60.0).ceil()
    );
    let bar = progress(total)?;
    let interrupted = interruption()?;
    let library = library()?;
    let scratch = scratch()?;
    let (source, energy) = energy();
    let (meter, before) = (Meter::start(), bench::cpu_seconds("self", bench::CHILDREN)?);
    let mut results = Vec::new();
    let mut failed = Vec::new();
    for program in programs {
        let shared = scratch.path().join(program.id);
        fs::create_dir_all(&shared)?;
        let mut runner = Runner {
            program,
            library: &library,
            seconds: args.time,
            rate: None,
            shared: &shared,
            energy: source.as_ref(),
            dir: scratch.path().join("run"),
            output: None,
        };
        let outcome = rounds(&mut runner, locks, args.rounds, &interrupted, &|lock, round| {
            bar.set_message(format!("{}, {lock}, round {round}", program.id));
            bar.inc(u64::from(round > 0));
        });
        match outcome {
            Ok(runs) if runs[0].is_empty() => {}
            Ok(runs) => results.push(Results { program, locks: locks.to_vec(), runs }),
            Err(error) => {
                let why = crate::describe(&error, None);
                bar.suspend(|| eprintln!("failed: {}: {why}", program.id));
                failed.push((program.id, why));
            }
        }
        fs::remove_dir_all(&shared)?;
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    bar.finish_and_clear();
    let interrupted = interrupted.load(Ordering::Relaxed);
    if interrupted && results.is_empty() {
        return Err(Interrupted("no round was complete: nothing to report").into());
    }
    let ours = bench::cpu_seconds("self", bench::CHILDREN)? - before;
    Ok(Evaluation {
        results,
        skipped,
        failed,
        seconds: args.time,
        rounds: args.rounds,
        quick: args.quick,
        libc: libc_version()?,
        command: super::command(),
        date: demo::report::date()?,
        interrupted,
        disturbance: Meter { ours, ..meter }.share(),
        energy,
    })
}

/// Everything that the runs of one program share.
struct Runner<'a> {
    program: &'static Program,
    library: &'a Path,
    seconds: u32,
    /// Operations per second in the preliminary run.
    rate: Option<f64>,
    shared: &'a Path,
    energy: Option<&'a Source>,
    /// A new folder for each run.
    dir: PathBuf,
    /// The first output of a batch program.
    output: Option<u64>,
}

impl Runner<'_> {
    fn run(&mut self, lock: &str) -> Result<Sample> {
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)?;
        }
        fs::create_dir(&self.dir)?;
        let bench = Bench {
            lock: (lock != GLIBC).then_some(lock),
            library: self.library,
            seconds: self.seconds,
            rate: self.rate,
            dir: &self.dir,
            shared: self.shared,
            energy: self.energy,
        };
        let sample = (self.program.run)(&bench).with_context(|| format!("under {lock}"))?;
        if self.output.is_some() && self.output != sample.output {
            return Err(No(format!("under {lock}: its output differs from before")).into());
        }
        self.output = sample.output;
        Ok(sample)
    }
}

/// The runs of each lock. Only whole rounds, because comparisons are within rounds.
fn rounds(
    runner: &mut Runner,
    locks: &[String],
    rounds: u32,
    interrupted: &AtomicBool,
    tell: &dyn Fn(&str, u32),
) -> Result<Vec<Vec<Sample>>> {
    tell(GLIBC, 0);
    // This run creates the inputs and warms the caches. It doesn't count.
    runner.rate = Some(runner.run(GLIBC)?.rate);
    let mut runs = vec![Vec::new(); locks.len()];
    'rounds: for round in 0..rounds as usize {
        for turn in 0..locks.len() {
            if interrupted.load(Ordering::Relaxed) {
                break 'rounds;
            }
            let index = (turn + round) % locks.len();
            tell(&locks[index], round as u32 + 1);
            runs[index].push(runner.run(&locks[index])?);
        }
    }
    let whole = runs.iter().map(Vec::len).min().unwrap_or(0);
    runs.iter_mut().for_each(|runs| runs.truncate(whole));
    Ok(runs)
}

/// `glibc 2.36`.
fn libc_version() -> Result<String> {
    let outcome = lockwright_tests::Child::new("getconf").args(["GNU_LIBC_VERSION"]).run()?;
    Ok(outcome.text().trim().to_owned())
}

impl Evaluation {
    /// One line for each missed bar; none for a quick run.
    fn missed(&self) -> Vec<String> {
        if self.quick {
            Vec::new()
        } else {
            self.results.iter().flat_map(Results::missed).collect()
        }
    }
}

fn tell(evaluation: &Evaluation, page: &Path) {
    if !evaluation.results.is_empty() {
        print!("{}", metrics_table(&evaluation.results));
        println!("real; glibc: medians; others: times glibc's of the same round, medians");
        if let Some(table) = energy_table(&evaluation.results) {
            print!("\n{table}");
        }
        println!("{}", evaluation.energy);
    }
    if evaluation.quick {
        println!("a quick run: it shows that everything works, the figures mean nothing");
    }
    for line in evaluation.missed() {
        println!("missed: {line}");
    }
    for (program, why) in &evaluation.skipped {
        println!("skipped: {program}: {}", why.lines().next().unwrap_or_default());
    }
    if let Some(warning) = stats::disturbed(evaluation.disturbance) {
        eprintln!("warning: {warning}\nhint: run it again on a quiet machine");
    }
    println!("report: {}", page.display());
}

/// Throughput per power and energy per operation, if there is a source of energy figures.
fn energy_table(results: &[Results]) -> Option<String> {
    let mut drawn = table(&["program", "lock", "TPP, ops/J", "times glibc's", "EPO, J/op"]);
    for results in results {
        for (lock, name) in results.locks.iter().enumerate() {
            let Some(all) = results.joules(lock) else { continue };
            let epo = stats::spread(&all).median;
            let to_glibc = results.tpp_ratio(lock).filter(|_| lock > 0);
            drawn.add_row([
                if lock == 0 { results.program.id.to_owned() } else { String::new() },
                name.clone(),
                si(1.0 / epo),
                to_glibc.map_or(String::new(), |ratio| format::ratio(ratio.median)),
                joules(epo),
            ]);
        }
    }
    right(&mut drawn, 2..5);
    (!drawn.is_empty()).then(|| plain(&drawn))
}

fn metrics_table(results: &[Results]) -> String {
    let heads = METRICS.map(Metric::head);
    let [rate, others @ ..] = heads;
    let mut drawn = table(&[&["program", "lock", rate, "(spread)"], &others[..]].concat());
    for results in results {
        for (lock, name) in results.locks.iter().enumerate() {
            let mut row = vec![
                if lock == 0 { results.program.id.to_owned() } else { String::new() },
                name.clone(),
            ];
            for metric in METRICS {
                row.push(results.cell(metric, lock));
                if metric == Metric::Rate {
                    let spread = results.ratio(metric, lock).filter(|_| lock > 0);
                    row.push(spread.map_or(String::new(), |ratio| {
                        format!("{} .. {}", format::ratio(ratio.min), format::ratio(ratio.max))
                    }));
                }
            }
            drawn.add_row(row);
        }
    }
    right(&mut drawn, 2..4 + others.len());
    plain(&drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_their_first_letters() {
        let ids = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| name.to_string()).collect();
            chosen(&only).map(|programs| programs.iter().map(|p| p.id).collect::<Vec<_>>())
        };
        assert_eq!(
            ids(&["zstd", "leveldb-fill"]).unwrap(),
            ["leveldb-fill4", "leveldb-fill16", "zstd"]
        );
        assert_eq!(ids(&[]).unwrap().len(), PROGRAMS.len());
        assert!(ids(&["oracle"]).is_err());
    }

    #[test]
    fn folders_of_the_dead_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        // No process can have this id (PID_MAX_LIMIT is 2^22).
        let folders = [process::id(), 1 << 23].map(|pid| {
            let folder = parent.path().join(format!("{SCRATCH}{pid}-x"));
            fs::create_dir(&folder).unwrap();
            folder
        });
        remove_stale(parent.path());
        assert_eq!(folders.map(|folder| folder.exists()), [true, false]);
    }

    #[test]
    fn the_table_fits_eighty_columns() {
        let results: Vec<_> = PROGRAMS.iter().map(Results::example).collect();
        let table = metrics_table(&results);
        let widest = table.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(widest <= Some(80), "{table}");
    }
}
