//! Unmodified Debian programs under load, each lock compared with glibc's: `cargo xtask eval programs`.
//!
//! Programs run one after the other. Each round runs every lock once, in an order that rotates. Within rounds, it
//! compares throughput, P99, P99.9, the longest operation, and CPU time per operation.

mod bench;
mod delegation;
mod figures;
mod list;
mod load;
mod measure;
mod report;

use super::kept::{Conditions, ResultsPlace};
use super::scratch::Scratch;
use super::{bars, check_lock, interruption};
use crate::answer::No;
use crate::demo::{self, stats};
use crate::test::install_packages;
use anyhow::{Result, bail, ensure};
use bench::{DELEGATE, Program};
use delegation::DELEGATION;
use figures::{METRICS, Metric, Results};
use list::PROGRAMS;
use lockwright_bench::split;
use lockwright_energy::{Source, SourceKind, Watts};
use lockwright_numbers::format::{self, joules, si};
use lockwright_numbers::units;
use lockwright_shards::{Flags, Merge, Session};
use lockwright_tests::{library, target_dir};
use lockwright_text::table::{plain, right, table};
use measure::{ProgramRuns, ProgramsPlan, measure};
use rustix::fs::StatVfsMountFlags;
use std::env;
use std::path::{Path, PathBuf};

/// The reference for all locks: nothing is preloaded.
const GLIBC: &str = "glibc";

/// Flags.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Programs, or the first letters of their names (default: all; --list prints them).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Locks to compare with glibc's, with options such as `fifo:bypass=64` (default: auto; `eval delegation`: auto, fifo, delegate).
    #[arg(long, value_name = "LOCKS")]
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
    #[command(flatten)]
    shards: Flags,
}

/// Loads count in whole seconds, up to a minute.
fn whole_seconds(text: &str) -> Result<u32, String> {
    let seconds = units::seconds(text)?;
    match (1.0..=60.0).contains(&seconds) && seconds.fract() == 0.0 {
        true => Ok(seconds as u32),
        false => Err("not a number of whole seconds within 1s to 60s".into()),
    }
}

/// Which programs, and under what name.
pub(super) struct Suite {
    id: &'static str,
    title: &'static str,
    programs: &'static [Program],
    /// Compared with glibc's, if nobody says otherwise.
    locks: &'static [&'static str],
    /// Do its programs have bars to keep?
    is_judged: bool,
}

/// Unmodified Debian programs.
pub(super) const UNMODIFIED: Suite = Suite {
    id: "programs",
    title: "Unmodified programs",
    programs: PROGRAMS,
    locks: &["auto"],
    is_judged: true,
};

/// Programs for delegation.
pub(super) const DELEGATED: Suite = Suite {
    id: "delegation",
    title: "Delegation",
    programs: DELEGATION,
    locks: &["auto", "fifo", DELEGATE],
    is_judged: false,
};

/// All measurements, with the conditions for the report.
struct Evaluation {
    /// What the report is about.
    title: &'static str,
    results: Vec<Results>,
    /// Programs that are not available here, and those that failed: name and reason.
    skipped: Vec<(&'static str, String)>,
    failed: Vec<(&'static str, String)>,
    seconds: u32,
    /// The source of energy figures, or why there is none.
    energy: String,
    /// Are there bars to keep?
    is_judged: bool,
    conditions: Conditions,
}

/// The source of energy figures, if there is one, and a note about it. The model doesn't count, because its watts are
/// assumed.
fn energy() -> (Option<Source>, String) {
    let source = Source::here(Watts::assumed());
    if source.kind() == SourceKind::Model {
        let why = source.notes().join("; ");
        return (None, format!("energy: unavailable ({why})"));
    }
    let said = format!("energy: {}: {}", source.tag(), source.what());
    (Some(source), said)
}

pub(super) fn main(suite: &Suite, mut args: Args, merged: Option<Merge>) -> Result<()> {
    if args.list {
        if merged.is_some() {
            return Err(crate::shards::refused(&format!("eval {} --list", suite.id)));
        }
        for program in suite.programs {
            println!("{:<20} {}", program.id, program.name);
        }
        return Ok(());
    }
    if args.quick {
        (args.time, args.rounds) = (1, 1);
    }
    let mut locks = vec![GLIBC.to_owned()];
    if args.lock.is_empty() {
        args.lock = suite.locks.iter().map(|lock| (*lock).to_owned()).collect();
    }
    args.lock = args.lock.iter().flat_map(|locks| split(locks)).collect();
    for lock in &args.lock {
        if suite.is_judged || lock != DELEGATE {
            check_lock(lock)?;
        }
        if !locks.contains(lock) {
            locks.push(lock.clone());
        }
    }
    ensure!(locks.len() > 1, "--lock glibc: nothing to compare it with\nhint: --lock auto");
    let (programs, seconds, rounds) = (chosen(suite.programs, &args.only)?, args.time, args.rounds);
    let plan = ProgramsPlan { programs, locks, seconds, rounds, quick: args.quick };
    let usual = || Ok(target_dir()?.join("eval").join(suite.id));
    let (output, whole) = (args.out.as_deref(), "a program");
    let place = ResultsPlace::open(&args.shards, output, merged, plan.inputs(), whole, usual)?;
    let session = &place.session;
    let needed = (0..plan.programs.len()).map(|program| plan.needed(program, session));
    session.complete(&needed.collect::<Result<Vec<_>>>()?.concat())?;
    let (library, skipped) = prepare(&plan, session)?;

    let interrupted = interruption()?;
    let measured = measure(&plan, &library, skipped, session, &interrupted)?;
    if session.is_part() {
        if measured.interrupted {
            return Err(place.interrupted("the rounds that were complete are kept").into());
        }
        lacks(&measured.skipped)?;
        print!("{}", session.summary());
        return Ok(());
    }
    if measured.interrupted && measured.results.is_empty() {
        return Err(place.interrupted("no round was complete: nothing to report").into());
    }
    let mut evaluation = Evaluation::of(&plan, measured, &place);
    evaluation.title = suite.title;
    evaluation.is_judged = suite.is_judged && !args.quick;
    let page = place.report.as_deref().map(|out| report::write(&evaluation, out)).transpose()?;
    tell(&evaluation, page.as_deref());
    if evaluation.conditions.interrupted {
        return Err(place.interrupted("the report has the rounds that were complete").into());
    }
    if let Some((program, why)) = evaluation.failed.first() {
        return Err(No(format!("{program}: {why}")).into());
    }
    let missed = evaluation.missed().len();
    if missed > 0 {
        return Err(No(format!("{missed} {} missed", bars(missed))).into());
    }
    lacks(&evaluation.skipped)
}

/// Makes ready what is to be measured here: the library's path. Programs whose packages can't be had are skipped: name and why.
fn prepare(
    plan: &ProgramsPlan,
    session: &Session,
) -> Result<(PathBuf, Vec<(&'static str, String)>)> {
    let (mut skipped, mut is_any_ready) = (Vec::new(), false);
    for (place, program) in plan.programs.iter().enumerate() {
        if !plan.is_left(place, session)? {
            continue;
        }
        match install_packages(program.packages) {
            Ok(()) => is_any_ready = true,
            Err(error) => {
                let why = crate::answer::describe(&error, None);
                eprintln!("skipped: {}: {why}", program.id);
                skipped.push((program.id, why));
            }
        }
    }
    if !is_any_ready {
        return Ok((PathBuf::new(), skipped));
    }
    demo::build_library(&target_dir()?)?;
    if plan.locks.iter().any(|lock| lock == DELEGATE) {
        let what = "the library that delegates (liblockwright_delegate.so)";
        demo::build_one(&target_dir()?, "lockwright-delegate", what)?;
    }
    Ok((library()?, skipped))
}

/// Is an error if programs were skipped.
fn lacks(skipped: &[(&'static str, String)]) -> Result<()> {
    let skipped: Vec<_> = skipped.iter().map(|(program, _)| *program).collect();
    ensure!(
        skipped.is_empty(),
        "skipped, because packages are missing: {}\nhint: as root, or after apt-get install",
        skipped.join(", ")
    );
    Ok(())
}

/// The programs that `only` names.
fn chosen(all: &'static [Program], only: &[String]) -> Result<Vec<&'static Program>> {
    let is_named = |program: &Program, name: &str| program.id.starts_with(name);
    if let Some(name) = only.iter().find(|name| !all.iter().any(|program| is_named(program, name)))
    {
        let known: Vec<_> = all.iter().map(|program| program.id).collect();
        bail!("unknown program '{name}'\nhint: one of {}", known.join(", "));
    }
    let wanted =
        |program: &&Program| only.is_empty() || only.iter().any(|name| is_named(program, name));
    Ok(all.iter().filter(wanted).collect())
}

/// A folder for programs' data. It is in memory if there is room, because disks are not the subject.
fn scratch() -> Result<Scratch> {
    const ROOM: u64 = 4 << 30;
    let memory = Path::new("/dev/shm");
    let is_fit = rustix::fs::statvfs(memory).is_ok_and(|fs| {
        let is_written = !fs.f_flag.contains(StatVfsMountFlags::RDONLY);
        is_written && fs.f_bavail * fs.f_frsize >= ROOM
    });
    Scratch::new(&if is_fit { memory.to_owned() } else { env::temp_dir() })
}

impl Evaluation {
    fn of(plan: &ProgramsPlan, measured: ProgramRuns, place: &ResultsPlace) -> Self {
        let ProgramRuns { results, skipped, failed, circumstances, interrupted, energy } = measured;
        let names: Vec<String> =
            plan.programs.iter().map(|program| program.id.to_owned()).collect();
        Self {
            title: UNMODIFIED.title,
            results,
            skipped,
            failed,
            seconds: plan.seconds,
            energy,
            is_judged: !plan.quick,
            conditions: Conditions::of(
                (plan.rounds, plan.quick),
                (circumstances, interrupted),
                place,
                &names,
            ),
        }
    }

    /// One line for each bar that is missed.
    fn missed(&self) -> Vec<String> {
        if self.is_judged {
            self.results.iter().flat_map(Results::missed).collect()
        } else {
            Vec::new()
        }
    }
}

fn tell(evaluation: &Evaluation, page: Option<&Path>) {
    if !evaluation.results.is_empty() {
        print!("{}", metrics_table(&evaluation.results));
        println!("real; glibc: medians; others: times glibc's of the same round, medians");
        if let Some(table) = energy_table(&evaluation.results) {
            print!("\n{table}");
        }
        println!("{}", evaluation.energy);
    }
    if evaluation.conditions.quick {
        println!("a quick run: it shows that everything works, the figures mean nothing");
    }
    for line in evaluation.missed() {
        println!("missed: {line}");
    }
    for (program, why) in &evaluation.skipped {
        println!("skipped: {program}: {}", why.lines().next().unwrap_or_default());
    }
    if let Some(warning) = stats::disturbed(evaluation.conditions.disturbance) {
        eprintln!("warning: {warning}\nhint: run it again on a quiet machine");
    }
    evaluation.conditions.notes.iter().for_each(|note| println!("{note}"));
    if let Some(page) = page {
        println!("report: {}", page.display());
    }
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
            chosen(PROGRAMS, &only)
                .map(|programs| programs.iter().map(|p| p.id).collect::<Vec<_>>())
        };
        assert_eq!(
            ids(&["zstd", "leveldb-fill"]).unwrap(),
            ["leveldb-fill4", "leveldb-fill16", "zstd"]
        );
        assert_eq!(ids(&[]).unwrap().len(), PROGRAMS.len());
        assert!(ids(&["oracle"]).is_err());
    }

    #[test]
    fn the_table_fits_eighty_columns() {
        let results: Vec<_> = PROGRAMS.iter().map(Results::example).collect();
        let table = metrics_table(&results);
        let widest = table.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(widest <= Some(80), "{table}");
    }
}
