//! The verbs of `lockwright switch PID`.

use super::change::{GuardArgs, change};
use crate::ctl::delegated::{Delegated, How};
use crate::ctl::list::List;
use crate::ctl::target::{For, Target};
use crate::ctl::{epochs, segment};
use crate::format::Format;
use crate::hints::Failure;
use crate::{catalog, output};
use clap::Subcommand;
use lockwright_contract::counters::control::Level;
use lockwright_numbers::units;
use lockwright_observer::counts::live::Live;
use lockwright_observer::mailbox::{self, Remote};
use lockwright_observer::process::Process;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Subcommand)]
pub(super) enum Verb {
    List(ListArgs),
    Set(SetArgs),
    Slo(SloArgs),
    Delegate(DelegateArgs),
    Level(LevelArgs),
    Dump(DumpArgs),
    /// Reset all counts of locks to 0
    Reset,
}

/// Show rules, contended locks and epochs (the default)
#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// How long to watch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::cmd::top::interval)]
    time: Duration,
    /// How many locks to show, those with the most waiting time
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// The output's format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// Change options of TARGET's current lock: spin, budget, ...
///
/// `lockwright explain LOCK` lists a lock's options. TARGET is as in `switch PID TARGET LOCK`.
#[derive(clap::Args)]
pub(super) struct SetArgs {
    /// Which locks
    #[arg(value_name = "TARGET")]
    target: String,
    /// Such as spin=20us,budget=5ms
    #[arg(value_name = "KEY=VALUE,...")]
    options: String,
    #[command(flatten)]
    guard: GuardArgs,
}

/// Override the SLO of an epoch
#[derive(clap::Args)]
pub(super) struct SloArgs {
    /// The epoch's name or number, or `all`
    #[arg(value_name = "EPOCH")]
    epoch: String,
    /// Such as 100us; `own`: back to the program's own
    #[arg(value_name = "TIME")]
    slo: epochs::Slo,
}

/// Say who runs the sections of delegated data
///
/// For data that the program keeps in Delegated<T> (Rust), lw_delegated_t (C) or lockwright::delegated (C++). docs/delegation.md says more.
#[derive(clap::Args)]
pub(super) struct DelegateArgs {
    /// As the list names it, its address, or `all`
    #[arg(value_name = "DATA")]
    data: String,
    /// Who
    #[arg(value_enum, value_name = "HOW")]
    how: How,
}

/// Choose what the process counts
#[derive(clap::Args)]
pub(super) struct LevelArgs {
    /// How much
    #[arg(value_enum, value_name = "LEVEL")]
    level: Counts,
    /// For this time only, such as 60s [default: until changed]
    #[arg(long = "for", value_name = "TIME", value_parser = units::seconds)]
    time: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Counts {
    /// Nothing, unless another command asks for it
    Off,
    /// Waits, holds, and who makes others wait
    Counters,
    /// The same, plus stacks, owners and CPUs
    Full,
}

/// Copy the counts to a file, for `lockwright profile --read`
#[derive(clap::Args)]
pub(super) struct DumpArgs {
    /// The file [default: lockwright-PID.observe]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn main(pid: libc::pid_t, verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::List(args) => list(pid, &args),
        Verb::Set(args) => set(pid, &args),
        Verb::Slo(args) => set_slo(pid, &args),
        Verb::Delegate(args) => delegate(pid, &args),
        Verb::Level(args) => level(pid, &args),
        Verb::Dump(args) => dump(pid, args),
        Verb::Reset => reset(pid),
    }
}

/// The verbs' names.
pub(super) fn names() -> Vec<String> {
    let command = Verb::augment_subcommands(clap::Command::new("switch"));
    command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}

impl Verb {
    /// What `switch PID` does.
    pub(super) fn default(format: Option<Format>, quiet: bool) -> Self {
        let time = Duration::from_secs(1);
        Self::List(ListArgs { time, top: 20, format: format.unwrap_or(Format::Text), quiet })
    }
}

fn list(pid: libc::pid_t, args: &ListArgs) -> Result<ExitCode, Failure> {
    let list = List::look(pid, args.time, args.top, args.quiet, args.format == Format::Text)?;
    output::print(&match args.format {
        Format::Text => list.text(),
        Format::Json => output::json(&list.json()?),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn set(pid: libc::pid_t, args: &SetArgs) -> Result<ExitCode, Failure> {
    change(pid, (&args.target, For::Mutexes), &args.guard, |target, table| {
        if *target == Target::All {
            for rule in &mut table.rules {
                rule.lock = with(&rule.lock, &args.options)?;
            }
        }
        let lock = with(target.lock(table), &args.options)?;
        match target {
            Target::All => table.default = lock,
            _ => target.put(table, Some(&lock)),
        }
        Ok(())
    })
}

/// A lock with changed options, checked.
fn with(lock: &str, options: &str) -> Result<String, Failure> {
    let (name, own) = lock.split_once(':').unwrap_or((lock, ""));
    let key = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let new: Vec<String> = options.split(',').map(key).collect();
    let kept = own.split(',').filter(|option| !option.is_empty() && !new.contains(&key(option)));
    let all: Vec<&str> = kept.chain([options]).collect();
    let lock = format!("{name}:{}", all.join(","));
    catalog::check_rule(&lock, &[])?;
    Ok(lock)
}

fn set_slo(pid: libc::pid_t, args: &SloArgs) -> Result<ExitCode, Failure> {
    let process = Process::open(pid)?;
    mailbox::refuse_detached(&process, &Remote::find(&process)?)?;
    let names = epochs::Remote::find(&process)?.set_slo(&process, &args.epoch, args.slo)?;
    output::print(&format!("{pid} ({}): {}: {}\n", process.name(), names.join(", "), args.slo))?;
    Ok(ExitCode::SUCCESS)
}

fn delegate(pid: libc::pid_t, args: &DelegateArgs) -> Result<ExitCode, Failure> {
    let process = Process::open(pid)?;
    mailbox::refuse_detached(&process, &Remote::find(&process)?)?;
    let names = Delegated::read(&process)?.set(&process, &args.data, args.how)?;
    let now = match args.how {
        How::IfFaster => "a combiner runs the sections if that is faster",
        How::Never => "each thread runs its own sections",
        How::Always => "a combiner runs the sections of threads that have to wait",
    };
    output::print(&format!("{pid} ({}): {}: {now}\n", process.name(), names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

fn level(pid: libc::pid_t, args: &LevelArgs) -> Result<ExitCode, Failure> {
    let asked = match args.level {
        Counts::Off => Level::Off,
        Counts::Counters => Level::Counters,
        Counts::Full => Level::Full,
    };
    let bad = |seconds: f64| {
        Failure::new(format!("bad --for '{seconds}s': not within 100ms to 24 hours"))
            .hint("for example --for 60s")
    };
    let process = Process::open(pid)?;
    let live = Live::find(&process)?;
    mailbox::refuse_detached(&process, &Remote::find(&process)?)?;
    match args.time {
        Some(_) if asked == Level::Off => {
            return Err(Failure::new(
                "'off' takes no --for: it lasts until a command asks for more",
            )
            .hint(format!("lockwright switch {pid} level off")));
        }
        Some(seconds) if !(0.1..=86_400.0).contains(&seconds) => return Err(bad(seconds)),
        Some(seconds) => live.ask(&process, asked, Duration::from_secs_f64(seconds))?,
        None => live.begin(&process, asked)?,
    }
    let now = live.level(&process)?;
    // A process that can't count says so when a thread has to wait for the first time.
    let is_sure = now == Level::Off
        || live.counts(&process).inspect_err(|_| {
            let _ = live.begin(&process, Level::Off); // nothing is counted all the same
        })?;
    let why = match (now == asked, is_sure) {
        (false, _) => ", because another command asks for it",
        (true, false) => ", as soon as a thread has to wait for a lock",
        (true, true) => "",
    };
    output::print(&format!("{pid} ({}) counts: {}{why}\n", process.name(), now.name()))?;
    Ok(ExitCode::SUCCESS)
}

fn dump(pid: libc::pid_t, args: DumpArgs) -> Result<ExitCode, Failure> {
    let file = args.file.unwrap_or_else(|| format!("lockwright-{pid}.observe").into());
    segment::dump(&Process::open(pid)?, &file)?;
    output::print(&format!(
        "written: {0}\nhint: lockwright profile --read '{0}'\n",
        file.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn reset(pid: libc::pid_t) -> Result<ExitCode, Failure> {
    let process = Process::open(pid)?;
    mailbox::refuse_detached(&process, &Remote::find(&process)?)?;
    let locks = segment::reset(&process)?;
    output::print(&format!(
        "{pid} ({}): reset the counts of {locks} locks to 0\n",
        process.name()
    ))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_replace_those_that_the_lock_has() {
        assert_eq!(with("fifo", "spin=5").unwrap(), "fifo:spin=5");
        assert_eq!(with("fifo:spin=9,bypass=3", "spin=5").unwrap(), "fifo:bypass=3,spin=5");
        assert!(with("fifo", "window=5").is_err() && with("fifo", "spin").is_err());
    }
}
