//! `lockwright profile --kernel`.

use crate::format::FormatFlags;
use crate::hints::{Failure, nearest};
use crate::interrupt::INTERRUPTED;
use crate::kernel::names::{Names, has_function, is_lock};
use crate::kernel::observe;
use crate::kernel::report::Report;
use crate::{launch, output, signals};
use lockwright_bench::split;
use lockwright_kernel::{By, Chosen, Named, Observer, UnknownType, WaitedFor, kinds_of};
use lockwright_numbers::units;
use lockwright_observer::find;
use lockwright_observer::process::proc_text;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Show which kernel locks programs wait for, how long, and which code asked for them
///
/// Observes the whole machine, some processes, or a program that it runs, with eBPF on the kernel's own tracepoints.
/// With --futex it observes futex waits instead: locks, condition variables and joins of programs that don't run
/// under lockwright.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo lockwright profile --kernel --time 5s      the whole machine
  sudo lockwright profile --kernel -- ./program   it and its children
  sudo lockwright profile --kernel --pid 4242 --lock mmap_lock
                                                  until Ctrl-C
  sudo lockwright profile --kernel --type mutex,rwsem --by caller --time 5s
  sudo lockwright profile --kernel --futex --pid 4242 --time 5s
  sudo lockwright profile --kernel --time 5s --format json | jq .groups[0].name

Needs Linux 5.19 or later, CAP_BPF and CAP_PERFMON. The report goes to standard
output. With a program it goes to standard error, and the exit code is the
program's. Ctrl-C ends the observation and prints the report (exit code 130 if
--time was not over). docs/kernel.md says what it costs.")]
pub(crate) struct Args {
    /// Observe these processes, separated by commas, and the children they start
    #[arg(long, value_name = "PID", value_delimiter = ',', conflicts_with = "command",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Vec<u32>,
    /// End after this time, such as 500ms; without a unit: seconds [default: at Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = units::seconds, conflicts_with = "command")]
    time: Option<f64>,
    /// Report only waits for this lock: mmap_lock, a kernel variable, or an address
    #[arg(long, value_name = "LOCK")]
    lock: Option<String>,
    /// Report only waits with this function among their callers
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Observe only these types of locks: mutex, rwsem, spinlock, rwlock, semaphore, percpu-rwsem, rt-mutex, rt-rwlock
    #[arg(long, value_name = "TYPES", conflicts_with = "futex")]
    r#type: Option<String>,
    /// Observe futex waits of user space instead of the kernel's locks
    #[arg(long)]
    futex: bool,
    /// What the report groups by
    #[arg(long, value_enum, default_value = "lock")]
    by: Sorted,
    /// Rows of the report, each with its parts below
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Draw a histogram of each row
    #[arg(long)]
    histogram: bool,
    /// Show whole chains of callers
    #[arg(long)]
    stacks: bool,
    #[command(flatten)]
    format: FormatFlags,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
    /// Where the report goes
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A program to run and observe, and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Sorted {
    /// Locks, and their callers
    Lock,
    /// Functions that asked for locks
    Caller,
    /// Types of locks
    Type,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    if args.format.is_json()
        && let Some(flag) = [(args.histogram, "--histogram"), (args.stacks, "--stacks")]
            .iter()
            .find_map(|(given, flag)| given.then_some(flag))
    {
        return Err(Failure::new(format!("{flag} is of --format text: JSON has both"))
            .hint("lockwright profile --kernel --time 5s --format json"));
    }
    let limit = args.time.map(super::tune::limit).transpose()?;
    let what = what(&args)?;
    let program = args.command.split_first();
    let path = program.map(|(name, _)| find::program(name)).transpose()?;
    let processes = args.pid.iter().map(|pid| process(*pid)).collect::<Result<Vec<_>, _>>()?;
    let (chosen, whose) = match (program, processes.is_empty()) {
        (Some((name, _)), _) => {
            let name = name.to_string_lossy();
            let name = name.rsplit('/').next().unwrap_or_default();
            (Chosen::Children, format!("of {name} and its children"))
        }
        (None, true) => (Chosen::All, "of the whole machine".to_owned()),
        (None, false) => {
            let ids = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let noun = if processes.len() == 1 { "process" } else { "processes" };
            (Chosen::Processes(processes), format!("of {noun} {ids} and their children"))
        }
    };
    // The file is written last. If that will fail, say so first.
    if let Some(file) = &args.output {
        launch::can_write(file).map_err(|error| launch::unwritable(file, &error))?;
    }
    let observer = Observer::attach(what, &chosen).map_err(|obstacle| {
        Failure::new(format!("cannot observe the kernel: {obstacle}"))
            .hint(obstacle.mend("lockwright profile --kernel --time 5s"))
    })?;
    let mut names = Names::read();
    let (status, interrupted) = match (program, path) {
        (Some((name, arguments)), Some(path)) => {
            let mut command = Command::new(&path);
            command.arg0(name).args(arguments);
            (Some(observe::program(&mut command, &path, &observer, &mut names)?), false)
        }
        _ => {
            if limit.is_none() {
                output::say("observing; Ctrl-C ends it\n");
            }
            (None, observe::time(limit, args.quiet, &observer, &mut names))
        }
    };
    let profile = observer
        .finish()
        .map_err(|obstacle| Failure::new(format!("cannot read what was observed: {obstacle}")))?;
    let all = names.of(&profile.waits);
    let waits = filtered(&args, &all);
    let report = Report {
        profile: &profile,
        waits: &waits,
        by: match args.by {
            Sorted::Lock => By::Lock,
            Sorted::Caller => By::Caller,
            Sorted::Type => By::Type,
        },
        top: args.top as usize,
        with_histograms: args.histogram,
        with_stacks: args.stacks,
        what: if args.futex { "futexes" } else { "kernel locks" },
        whose: &whose,
        filters: &filters(&args),
        machine: &lockwright_bench::Machine::here().kernel,
    };
    let text = match args.format.is_json() {
        true => output::json(&report.json()),
        false => report.text(),
    };
    match &args.output {
        Some(file) => {
            lockwright_files::write(file, text).map_err(|error| launch::unwritable(file, &error))?
        }
        // Standard output belongs to the program, so the report goes to standard error.
        None if status.is_some() => output::say(&text),
        None => output::print(&text)?,
    }
    if waits.is_empty() && !all.is_empty() {
        unmatched(&args, &all);
    }
    Ok(match status {
        Some(status) => signals::end_as(status),
        None if interrupted && limit.is_some() => ExitCode::from(INTERRUPTED),
        None => ExitCode::SUCCESS,
    })
}

fn what(args: &Args) -> Result<WaitedFor, Failure> {
    if args.futex {
        return Ok(WaitedFor::Futexes);
    }
    let Some(types) = &args.r#type else { return Ok(WaitedFor::Locks(u64::MAX)) };
    let kinds = kinds_of(split(types).iter().map(String::as_str));
    let kinds = kinds.map_err(|UnknownType { name }| {
        let failure = Failure::new(format!("unknown lock type '{name}' (--type)"));
        failure.hint(match nearest(&name, UnknownType::known()) {
            _ if name.starts_with("futex") => "lockwright profile --kernel --futex".to_owned(),
            Some(close) => format!("did you mean '{close}'?"),
            None => UnknownType::known().collect::<Vec<_>>().join(", "),
        })
    })?;
    match kinds {
        0 => Err(Failure::new("--type names no lock type").hint("for example --type mutex,rwsem")),
        kinds => Ok(WaitedFor::Locks(kinds)),
    }
}

/// The process with this id, or the process of the thread with this id.
fn process(pid: u32) -> Result<u32, Failure> {
    let status = proc_text(format!("/proc/{pid}/status"))
        .map_err(|_| Failure::new(format!("no process {pid}")).hint("pgrep --list-name SERVER"))?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    Ok(group.unwrap_or(pid))
}

fn filtered(args: &Args, all: &[Named]) -> Vec<Named> {
    let is_asked = |wait: &&Named| {
        args.lock.as_ref().is_none_or(|lock| is_lock(wait, lock))
            && args.function.as_ref().is_none_or(|function| has_function(wait, function))
    };
    all.iter().filter(is_asked).cloned().collect()
}

/// Describes the filters.
fn filters(args: &Args) -> Vec<String> {
    let types = args.r#type.as_ref().map(|types| format!("locks of type {types}"));
    let lock = args.lock.as_ref().map(|lock| format!("the lock {lock}"));
    let function =
        args.function.as_ref().map(|name| format!("waits with {name} among their callers"));
    [types, lock, function].into_iter().flatten().collect()
}

/// The filters match nothing: reports what they left out.
fn unmatched(args: &Args, all: &[Named]) {
    let functions: BTreeSet<_> = all.iter().flat_map(|wait| &wait.callers).collect();
    let locks: BTreeSet<_> =
        all.iter().map(|wait| wait.lock.split(" of ").next().unwrap_or("")).collect();
    let functions = || functions.iter().map(|name| name.as_str());
    let close = match (&args.lock, &args.function) {
        (_, Some(function)) if !functions().any(|name| name == function) => {
            nearest(function, functions())
        }
        (Some(lock), _) => nearest(lock, locks.iter().copied()),
        _ => None,
    };
    let count: u64 = all.iter().map(|wait| wait.sum.count).sum();
    output::say(&format!("{count} waits were observed, but none matches the filters\n"));
    if let Some(close) = close {
        output::say(&format!("hint: did you mean '{}'?\n", output::shown(close)));
    }
}
