//! `lockwright explore`.

use crate::explore::Fates;
use crate::explore::shared::Shared;
use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::interrupt::INTERRUPTED;
use crate::{catalog, explore, output, shards};
use lockwright_bench::{catch_interrupts, interrupted};
use lockwright_locks::catalog::all;
use lockwright_numbers::units;
use lockwright_shards::{Flags, Merge, Session};
use lockwright_sim::LockSpec;
use lockwright_sim::explore::{
    Exploration, Hit, MOST_USUAL, Mutant, RUNTIME, Search, Strategy, Subject, THREADS, Tally,
};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

fn about() -> String {
    format!(
        "Search a lock for schedules that break a rule

2 to {MOST_USUAL} threads (up to {THREADS} if the lock's rule chooses the next waiter), on big and little cores, take the lock a few \
times in every way it offers. At each operation, the next thread to run is drawn at random. Checks mutual exclusion, \
happens-before, lost wake-ups, livelocks, order and bypass bounds, and use after destruction."
    )
}

/// Search a lock for schedules that break a rule
#[derive(clap::Args)]
#[command(long_about = about(), after_help = "Examples:
  lockwright explore mcs               ten seconds of schedules
  lockwright explore fifo:bypass=1 --time 60
  lockwright explore all --time 1
  lockwright explore runtime           a pthread mutex on several locks at once
  lockwright explore mcs --strategy pct --seed 17 --schedules 1 --story
  lockwright explore mcs --mutants     would it notice a bug in the lock?
  lockwright explore all --schedules 1000000 --shard 1/8 --output shards
  lockwright explore mcs --mutant queue/mcs.rs:140:31:relaxed

Exit codes: 0 nothing found (with --mutants: every fault of the hand-over
found), 1 otherwise, 2 wrong usage.
The last line of a finding is the command that replays it: docs/explore.md")]
pub(crate) struct Args {
    /// Locks, NAME[:key=value,...], or all; options that you don't give are drawn at random, too. Or runtime: a pthread
    /// mutex and condition variable on several locks at once
    #[arg(value_parser = catalog::SUBJECT, hide_possible_values = true)]
    lock: String,
    /// Which thread runs next: a random walk, or random priorities (PCT) [default: both in turn]
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<Choice>,
    /// Seed of the first schedule; each next one adds 1
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Explore this many schedules [default: as many as fit into --time; with --mutants: 30000 each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    schedules: Option<u64>,
    /// Explore each lock for this long, in seconds or with a unit, such as 500ms [default: 10; with --schedules: as long
    /// as they take]
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Explore the lock with one fault, FILE:LINE:COLUMN:MUTATION: a heading of --mutants, and a row below it
    #[arg(long, value_name = "MUTANT", conflicts_with = "mutants")]
    mutant: Option<String>,
    /// Plant faults in the lock's operations, one at a time, and check that each is found
    #[arg(long)]
    mutants: bool,
    /// Threads that explore [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Show step by step what happened in the schedule that was found
    #[arg(long)]
    story: bool,
    #[command(flatten)]
    shards: Flags,
    /// Where --shard and --resume keep results
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: FormatFlags,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Choice {
    /// A random walk
    Random,
    /// Random priorities, and a few changes of them
    Pct,
}

pub(crate) fn main(args: Args, merged: Option<Merge>) -> Result<ExitCode, Failure> {
    let mut locks: Vec<Subject> = Vec::new();
    for word in catalog::split(&args.lock) {
        if word == catalog::ALL {
            let all = all().map(|entry| subject(entry.id));
            locks.extend(all.collect::<Result<Vec<_>, _>>()?);
        } else {
            locks.push(subject(&word)?);
        }
    }
    if locks.is_empty() {
        return Err(Failure::new("no lock is named").hint("lockwright explore mcs"));
    }
    let session = session(&args, &locks, merged)?;
    let time = match (&args.time, args.schedules) {
        (Some(text), _) => time(text)?,
        (None, Some(_)) => Duration::MAX,
        (None, None) => Duration::from_secs(10),
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let search = Search {
        strategy: args.strategy.map(|choice| match choice {
            Choice::Random => Strategy::Random,
            Choice::Pct => Strategy::Pct,
        }),
        first: args.seed,
        time,
        schedules: args.schedules.unwrap_or(u64::MAX),
        jobs: args.jobs.map_or(cpus, usize::from),
        stop: interrupted,
    };
    catch_interrupts();
    let mut fault = None;
    if let Some(text) = &args.mutant {
        for lock in &locks {
            fault = Some(mutant(lock, text)?);
        }
    }
    let mutant = fault;
    let faults = if args.mutants { explore::all_mutants(&locks) } else { Vec::new() };
    let shared = Shared { search, session: &session, locks: &locks, mutant };
    if args.mutants {
        let jobs = faults.iter().flatten().map(|(job, _, _)| job.clone());
        session.complete(&jobs.collect::<Vec<_>>()).map_err(shards::failure)?;
    } else {
        shared.complete().map_err(shards::failure)?;
    }
    let (mut well, mut schedules, mut all) = (true, 0, Vec::new());
    for (number, lock) in locks.iter().enumerate() {
        if args.mutants {
            let schedules = explore::per_mutant(args.schedules);
            let search = Search { schedules, ..search };
            match explore::mutants(lock, &faults[number], search, &session, args.format.is_json())?
            {
                Fates::All(is_well, json) => {
                    well &= is_well;
                    all.push(json);
                }
                Fates::Part => {}
                Fates::Interrupted => return Ok(ExitCode::from(INTERRUPTED)),
            }
        } else {
            let exploration = Exploration::new(lock.clone(), mutant);
            let quiet = args.format.is_json() || time == Duration::MAX;
            let bar = lockwright_bench::timed(time, quiet);
            bar.set_message(format!("exploring {}", lock.name()));
            let result = match session.is_transient() {
                true => Some(search.run(&exploration)),
                false => shared.run(number).map_err(shards::failure)?,
            };
            bar.finish_and_clear();
            if let Some((tally, hit)) = result {
                schedules += tally.schedules;
                well &= hit.is_none();
                all.push(tell(&exploration, &tally, hit.as_ref(), mutant, &args)?);
            }
        }
        if interrupted() {
            break;
        }
    }
    if interrupted()
        && let Some(command) = session.resume()
    {
        output::say(&format!("interrupted: what was explored is kept\nhint: {command}\n"));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if session.is_part() {
        output::print(&session.summary())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.format.is_json() {
        output::print_json(&Value::Array(all))?;
    }
    if !well {
        return Ok(ExitCode::FAILURE);
    }
    if interrupted() {
        let plural = if schedules == 1 { "" } else { "s" };
        output::say(&format!(
            "interrupted: {schedules} schedule{plural} explored without a finding\n"
        ));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shards need a fixed number of schedules.
fn session(args: &Args, locks: &[Subject], merged: Option<Merge>) -> Result<Session, Failure> {
    let is_shared = merged.is_some() || !args.shards.are_unused();
    if is_shared && args.time.is_some() {
        return Err(Failure::new(
            "--shard and --resume are for a number of schedules, not for a time",
        )
        .hint("--schedules 1000000 instead of --time"));
    }
    if is_shared && args.schedules.is_none() && !args.mutants {
        return Err(Failure::new("--shard and --resume need a number of schedules")
            .hint("add --schedules 1000000"));
    }
    let names = locks.iter().map(|lock| lock.name().to_owned());
    let strategy = args.strategy.map_or("both", |choice| match choice {
        Choice::Random => "random",
        Choice::Pct => "pct",
    });
    let schedules = args.schedules.map_or(String::new(), |number| number.to_string());
    let what = [
        strategy.to_owned(),
        args.seed.to_string(),
        schedules,
        args.mutant.clone().unwrap_or_default(),
        args.mutants.to_string(),
    ];
    shards::session(&args.shards, args.output.as_deref(), merged, names.chain(what))
}

/// Reports what was explored and found, as text or JSON.
fn tell(
    exploration: &Exploration,
    tally: &Tally,
    hit: Option<&Hit>,
    mutant: Option<Mutant>,
    args: &Args,
) -> Result<Value, Failure> {
    let replay = hit.map(|hit| explore::replay(exploration.subject(), hit, mutant));
    if !args.format.is_json() {
        output::print(&explore::report(exploration.subject(), tally, hit, args.story))?;
        if let Some(replay) = &replay {
            output::print(&format!("replay: {replay}\n"))?;
        }
    }
    Ok(explore::as_json(exploration.subject(), tally, hit, replay))
}

/// A number of seconds, or a time with a unit.
fn time(text: &str) -> Result<Duration, Failure> {
    let read = units::seconds(text).and_then(|seconds| {
        Duration::try_from_secs_f64(seconds).map_err(|_| "not a time in seconds".to_owned())
    });
    read.map_err(|why| {
        Failure::new(format!("bad --time '{text}': {why}"))
            .hint("for example --time 10, --time 500ms")
    })
}

fn subject(text: &str) -> Result<Subject, Failure> {
    if text == RUNTIME {
        return Ok(Subject::runtime());
    }
    match LockSpec::parse_published(text) {
        Some(published) => published.map(Subject::from).map_err(Failure::new),
        None => catalog::check_any(text).map(|spec| LockSpec::from(spec).into()),
    }
}

fn mutant(lock: &Subject, text: &str) -> Result<Mutant, Failure> {
    let sites = explore::sites(lock);
    Mutant::find(text, &sites).map_err(|error| {
        Failure::new(error).hint(format!("lockwright explore {} --mutants", lock.name()))
    })
}
