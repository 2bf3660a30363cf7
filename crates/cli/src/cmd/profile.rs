//! `lockwright profile`.

use crate::cmd::run::LOCK;
use crate::delegate::{self, Delegating};
use crate::format::Format;
use crate::hints::Failure;
use crate::interrupt::INTERRUPTED;
use crate::machine::MachineFile;
use crate::observed::page::Besides;
use crate::observed::report::ROWS;
use crate::observed::sections;
use crate::observed::watched::Looks;
use crate::observed::{self, run};
use crate::output::say;
use crate::profile::{flame, report};
use crate::standing;
use crate::{catalog, launch, output, preference, signals};
use lockwright_bench::{catch_interrupts, interrupted, timed};
use lockwright_contract::counters::control::Level;
use lockwright_locks::spec::GLIBC;
use lockwright_numbers::units;
use lockwright_observer::counts::counter::Event;
use lockwright_observer::counts::observation::Observed;
use lockwright_observer::counts::outcome::copy;
use lockwright_observer::counts::sections::Sections;
use lockwright_observer::counts::wrapper;
use lockwright_observer::elf::Program;
use lockwright_observer::order::outcome as order;
use lockwright_observer::sampler::family::Looked;
use lockwright_observer::sampler::outcome::{Folded, outcome};
use lockwright_observer::sampler::sample::{End, sample};
use lockwright_observer::sampler::target::Target;
use lockwright_observer::standing::Standing;
use serde_json::json;
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Show which locks a program waits for, where, and who makes it wait
///
/// Runs PROGRAM until it ends, or watches a process that already runs under our library for a while. The library counts every wait, how
/// long it takes, and who holds the lock: the report names the critical section that others wait for. PROGRAM's mutexes work as glibc's do,
/// by the same algorithm, unless --lock names another lock.
/// The report goes to standard error after PROGRAM, else to standard output. For a process, it begins with who waits now, and for
/// whom, if a thread has waited for half a second or longer.
///
/// --sample works for any process with glibc's locks: it loads nothing into it and stops none of its threads. Many times a
/// second it looks where each thread sleeps. If a thread sleeps in a lock, the lock says who holds it, and the sample includes
/// what that holder does. docs/profile.md says what each way can see, and what it costs.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright profile -- ./server --port 8080
  lockwright profile --flame locks.svg -- ./server
  lockwright profile --order -- ./tests     which deadlocks can happen?
  lockwright profile --sections -- ./server    would delegation pay?
  lockwright profile -p $(pidof server) --time 30s --pprof locks.pb.gz
  lockwright profile -p 4242 --format json | jq '.processes[0].locks[0].name'
  lockwright profile -p 4242 --sample       a process not under our library
  lockwright profile --read locks.observe   a copy from `lockwright switch`

Ctrl-C stops watching a process and reports what was seen so far (exit code
130). After PROGRAM, the exit code is PROGRAM's.")]
pub(crate) struct Args {
    /// The process
    #[arg(long, short, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<libc::pid_t>,
    /// Report on a file that `lockwright switch PID dump` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "lock", "rwlock", "level", "library", "sections"])]
    read: Option<PathBuf>,
    /// Sample the process from outside; all shares are estimates
    #[arg(long, requires = "pid")]
    sample: bool,
    /// How long to watch, such as 500ms; without a unit: seconds [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = units::seconds, requires = "pid")]
    time: Option<f64>,
    /// Samples per second [default: 99]
    #[arg(long, value_name = "HZ", requires = "sample",
          value_parser = clap::value_parser!(u32).range(1..=2000))]
    rate: Option<u32>,
    /// Lock for PROGRAM's mutexes, NAME[:key=value,...], see `lockwright list` [default: glibc's own]
    #[arg(long, value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true,
          conflicts_with = "pid")]
    lock: Option<String>,
    /// Who goes first at readers-writer locks: own (as the program asks), readers, writers, strict (a thread that reads again
    /// may deadlock) or patient (by turns: no writer starves)
    #[arg(long, value_name = "WHO", conflicts_with = "pid")]
    rwlock: Option<String>,
    #[command(flatten)]
    delegating: Delegating,
    /// How much to count
    #[arg(long, value_enum, default_value_t = Detail::Full, conflicts_with = "sample")]
    level: Detail,
    /// Also record the order in which threads take locks, contended or not, and warn of possible deadlocks; slows down
    /// every lock operation
    #[arg(long, conflicts_with = "pid")]
    order: bool,
    /// With --order: exit with 1 if a deadlock is possible and PROGRAM exited with 0
    #[arg(long, requires = "order")]
    fail_on_inversion: bool,
    /// Also record every critical section: the share of time in each lock's, and cache misses (or --event) in them; slows
    /// down every lock operation
    #[arg(long, conflicts_with = "pid")]
    sections: bool,
    /// Also count this event: how many of them happen in the functions that hold each lock
    #[arg(long, value_enum, value_name = "EVENT", conflicts_with_all = ["sample", "read"])]
    event: Option<Countable>,
    /// A function that only passes a lock on, such as my_mutex_lock: what is counted goes to its callers. Functions whose names say
    /// so needn't be given. One without a name: as reports show it, libfoo.so+0x1234
    #[arg(long, value_name = "FUNCTION", value_delimiter = ',')]
    wrapper: Vec<String>,
    /// Show the first N locks [default: those that matter, ten at most]
    #[arg(long, value_name = "N", conflicts_with = "sample")]
    top: Option<usize>,
    /// The report's format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where the report goes
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a flame graph of waiters and holders there
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
    /// Write waits and their culprits there, for `go tool pprof` and the like
    #[arg(long, value_name = "FILE.pb.gz", conflicts_with = "sample")]
    pprof: Option<PathBuf>,
    /// Write the report there as a page, with flame graph and contention over time
    #[arg(long, value_name = "FILE", conflicts_with = "sample")]
    html: Option<PathBuf>,
    /// Write waits over time there, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE.json", conflicts_with = "sample")]
    timeline: Option<PathBuf>,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
    /// The library to preload [default: the one beside this command]
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required_unless_present_any = ["pid", "read"],
        conflicts_with_all = ["pid", "read"],
        trailing_var_arg = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Detail {
    /// Waits, holds, and who makes others wait
    Counters,
    /// And who calls them: stacks; threads, owners and CPUs
    Full,
}

/// An event to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Countable {
    /// Memory that no cache had; by the CPU's counters
    CacheMisses,
    /// Memory that the kernel had to map first
    PageFaults,
    /// Time that threads computed, ns
    CpuClock,
}

impl From<Countable> for Event {
    fn from(event: Countable) -> Self {
        match event {
            Countable::CacheMisses => Self::CacheMisses,
            Countable::PageFaults => Self::PageFaults,
            Countable::CpuClock => Self::CpuClock,
        }
    }
}

/// Number of locks on a page, unless users ask for others.
const ON_PAGE: usize = 50;
/// At most a day.
const LONGEST: f64 = 86_400.0;

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    wrapper::give(&args.wrapper);
    crate::leftovers::remove_counts();
    let seconds = args.time.unwrap_or(5.0);
    if !(0.01..=LONGEST).contains(&seconds) {
        return Err(Failure::new(format!("bad --time '{seconds}s': not within 10ms to 24 hours"))
            .hint("for example --time 5s"));
    }
    if args.delegating.is_on() && args.command.is_empty() {
        return Err(Failure::new("--delegate: only for a program that starts here")
            .hint("lockwright profile --delegate FUNCTION -- PROGRAM"));
    }
    if args.sample && args.pid.is_none() {
        return Err(Failure::new("--sample: only for a process that already runs")
            .hint("./server & lockwright profile -p $! --sample"));
    }
    let time = Duration::from_secs_f64(seconds);
    if let Some(file) = &args.read {
        check(&args)?;
        let title = format!("Locks in {}", file.display());
        report_on(&args, &title, &[copy(file)?], None, None, None, None)?;
        return Ok(ExitCode::SUCCESS);
    }
    match args.pid {
        Some(pid) if args.sample => sampled(&args, pid, time),
        Some(pid) => watched(&args, pid, time),
        None => program(&args),
    }
}

/// Checks that the files can be written. They are written last, so if that will fail, say so first.
fn check(args: &Args) -> Result<(), Failure> {
    let files = [&args.output, &args.flame, &args.html, &args.pprof, &args.timeline];
    for file in files.into_iter().flatten() {
        launch::can_write(file).map_err(|error| launch::unwritable(file, &error))?;
    }
    Ok(())
}

/// With which a report in a file begins: who waits now. On a terminal that has been said at once.
fn first_in_file(args: &Args, standing: &Standing) -> String {
    match args.output.is_some() && !standing.is_empty() {
        true => format!("{}\n", standing::text(standing)),
        false => String::new(),
    }
}

/// With which the report on a program that has ended begins.
fn last_seen(standing: &Standing) -> String {
    format!("at the last look before the end:\n{}\n", standing::text(standing))
}

/// Who waits now, if anybody does for long. In a report for people that comes first, and at once: perhaps the program hangs.
fn waiting_now(args: &Args, pid: libc::pid_t) -> Result<Standing, Failure> {
    // Whoever may not look gets to know by what follows.
    let standing = Standing::of(pid).unwrap_or_default();
    let is_for_people = args.format == Format::Text && args.output.is_none();
    if is_for_people && !standing.is_empty() {
        output::print(&format!("{}\n", standing::text(&standing)))?;
    }
    Ok(standing)
}

fn sampled(args: &Args, pid: libc::pid_t, time: Duration) -> Result<ExitCode, Failure> {
    let target = Target::open(pid)?;
    check(args)?;
    let standing = waiting_now(args, target.pid)?;
    let bar = timed(time, args.quiet);
    bar.set_message(format!("sampling {pid}"));
    catch_interrupts();
    let goes_on = |_: Duration| !interrupted();
    let title = format!("Locks of {} ({})", target.name, target.pid);
    let mut sampled = sample(target, time, args.rate.unwrap_or(99).into(), goes_on);
    bar.set_message("naming");
    let (outcome, folded) = outcome(&mut sampled);
    bar.finish_and_clear();
    let text = match args.format {
        Format::Text => first_in_file(args, &standing) + &report::text(&outcome),
        Format::Json => {
            let mut report = serde_json::to_value(&outcome).map_err(Failure::new)?;
            report["waiting_now"] = standing::json(&standing);
            output::json(&report)
        }
    };
    deliver(args, &title, &text, "samples", &folded)?;
    Ok(match sampled.end {
        End::Interrupted => INTERRUPTED.into(),
        End::TimeIsUp | End::ProcessEnded => ExitCode::SUCCESS,
    })
}

fn watched(args: &Args, pid: libc::pid_t, time: Duration) -> Result<ExitCode, Failure> {
    check(args)?;
    let standing = waiting_now(args, pid)?;
    let bar = timed(time, args.quiet);
    bar.set_message(format!("watching {pid}"));
    let seen = run::process(pid, args.level.into(), time, args.event.map(Event::from), &bar);
    bar.finish_and_clear();
    let (title, seen) = (format!("Locks of {pid}"), seen?);
    // A process that has counted nothing doesn't say under which lock it runs.
    if seen.lock.is_empty() && standing.is_empty() && seen.own_locks.is_empty() {
        say(&format!("hint: to watch for longer: lockwright profile -p {pid} --time 60s\n"));
    }
    report_on(args, &title, &[seen], None, Some(&standing), None, None)?;
    if let Some(delegated) = delegate::of_process(pid) {
        say(&delegated);
    }
    Ok(if interrupted() { INTERRUPTED.into() } else { ExitCode::SUCCESS })
}

fn program(args: &Args) -> Result<ExitCode, Failure> {
    check(args)?;
    // Readers-writer locks are ours, whatever lock the mutexes have.
    preference::check(args.rwlock.as_deref(), None)?;
    let lock = args.lock.as_deref().or(as_it_is(args));
    let library = args.library.as_deref();
    let counts = run::WhatToCount {
        level: args.level.into(),
        in_order: args.order,
        sections: args.sections,
        event: args.event.map(Event::from),
    };
    let mut delegation = None;
    let prepare = |command: &mut Command, program: &Program, library: &Path| {
        delegation = args.delegating.prepare(command, program, library)?;
        if let Some(who) = &args.rwlock {
            command.env(preference::VARIABLE, who);
        }
        Ok(())
    };
    let ran = run::program(&args.command, lock, counts, library, prepare)?;
    let here = MachineFile::here().and_then(|machine| machine.delegation);
    let sections = ran.sections.map(Sections::of);
    let sections = sections.map(|all| sections::advised(all, here.as_ref()));
    let title = format!("Locks of {}", args.command[0].to_string_lossy());
    report_on(
        args,
        &title,
        &ran.outcomes,
        Some((&ran.sums, &ran.looked)),
        ran.waited.last(),
        ran.orders.as_deref(),
        sections.as_ref(),
    )?;
    if let Some(delegation) = delegation {
        say(&delegation.report());
    }
    let is_inverted = ran.orders.is_some_and(|all| all.iter().any(order::Orders::has_inversion));
    if args.fail_on_inversion && is_inverted && ran.status.success() {
        return Ok(ExitCode::from(1));
    }
    Ok(signals::end_as(ran.status))
}

/// The program's own locks are glibc's. Delegation is a lock of ours; and LOCKWRIGHT_LOCK, if it is set, says which lock runs.
fn as_it_is(args: &Args) -> Option<&'static str> {
    let is_ours = args.delegating.is_on() || env::var_os(LOCK).is_some_and(|lock| !lock.is_empty());
    (!is_ours).then_some(GLIBC)
}

fn report_on(
    args: &Args,
    title: &str,
    outcomes: &[Observed],
    sums: Option<(&[Observed], &Looked)>,
    standing: Option<&Standing>,
    orders: Option<&[order::Orders]>,
    sections: Option<&Sections>,
) -> Result<(), Failure> {
    let looked = || outcomes.iter().map(|outcome| outcome.samples).sum();
    let unseen = || outcomes.iter().find_map(|outcome| outcome.running_unseen.clone());
    let looks = Looks {
        count: sums.map_or_else(looked, |(_, looked)| looked.looks),
        running_unseen: sums.map_or_else(unseen, |(_, looked)| looked.running_unseen.clone()),
        some_wait: standing.is_some_and(|standing| !standing.is_empty()),
        is_crowded: sums.is_some_and(|(_, looked)| looked.is_crowded),
    };
    let sums = sums.map(|(sums, _)| sums);
    let text = match args.format {
        Format::Text => {
            let mut text = match standing {
                Some(last) if sums.is_some() => last_seen(last),
                Some(now) => first_in_file(args, now),
                None => String::new(),
            };
            text += &observed::report::all(sums.unwrap_or(outcomes), &looks, args.top);
            if let Some(sections) = sections {
                text += &format!("\n{}", sections::text(sections, args.top.unwrap_or(ROWS)));
            }
            if let Some(orders) = orders {
                text += &format!("\n{}", crate::order::report::all(orders));
            }
            text
        }
        Format::Json => {
            let mut report = json!({ "processes": outcomes });
            let sums: Vec<&Observed> =
                sums.into_iter().flatten().filter(|sum| !sum.processes.is_empty()).collect();
            if !sums.is_empty() {
                report["programs"] = serde_json::to_value(sums).map_err(Failure::new)?;
            }
            if let Some(standing) = standing {
                report["waiting_now"] = standing::json(standing);
            }
            if let Some(orders) = orders {
                report["order"] = serde_json::to_value(orders).map_err(Failure::new)?;
            }
            if let Some(sections) = sections {
                report["sections"] = serde_json::to_value(sections).map_err(Failure::new)?;
            }
            output::json(&report)
        }
    };
    if let Some(file) = &args.pprof {
        write(file, |to| observed::pprof::write(outcomes, to))?;
    }
    if let Some(file) = &args.html {
        let all = sums.unwrap_or(outcomes);
        let besides = Besides { looks: &looks, standing, orders, sections };
        let page = observed::page::page(title, all, besides, args.top.unwrap_or(ON_PAGE))?;
        write(file, |to| to.write_all(page.as_bytes()))?;
    }
    if let Some(file) = &args.timeline {
        let timeline = output::json(&observed::timeline::timeline(outcomes));
        write(file, |to| to.write_all(timeline.as_bytes()))?;
    }
    deliver(args, title, &text, flame::TIMES, &observed::report::folded(outcomes))
}

/// Writes the report, and a flame graph of the values counted in `unit`.
fn deliver(
    args: &Args,
    title: &str,
    text: &str,
    unit: &str,
    folded: &Folded,
) -> Result<(), Failure> {
    if let Some(file) = &args.flame {
        match folded.is_empty() {
            true => {
                output::say(&format!("nothing to draw: '{}' was not written\n", file.display()))
            }
            false => write(file, |to| flame::draw(title, unit, folded, to))?,
        }
    }
    match &args.output {
        Some(file) => write(file, |to| to.write_all(text.as_bytes())),
        None if !args.command.is_empty() => {
            output::say(text);
            Ok(())
        }
        None => output::print(text),
    }
}

impl From<Detail> for Level {
    fn from(detail: Detail) -> Self {
        match detail {
            Detail::Counters => Self::Counters,
            Detail::Full => Self::Full,
        }
    }
}

fn write(
    file: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let mut to = BufWriter::new(launch::create(file)?);
    let written = content(&mut to).and_then(|()| to.flush());
    written.map_err(|error| launch::unwritable(file, &error))
}
