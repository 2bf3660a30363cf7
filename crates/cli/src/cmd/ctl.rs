//! `lockwright ctl`.

use crate::ctl::delegated::{Delegated, How};
use crate::ctl::guard::{End, Guard};
use crate::ctl::judge::Terms;
use crate::ctl::list::List;
use crate::ctl::target::{self, For, Target, contended};
use crate::ctl::{epochs, segment};
use crate::format::Format;
use crate::hints::Failure;
use crate::interrupt::INTERRUPTED;
use crate::{catalog, machine, output};
use lockwright_contract::counters::control::Level;
use lockwright_numbers::units;
use lockwright_observer::counts::live::Live;
use lockwright_observer::mailbox::{self, Remote};
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use lockwright_observer::targets::is_rwlocks;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// See and change the locks of a running process: rules, options, SLOs, what it counts
///
/// The process runs under `lockwright run`, was attached to, or has our library linked in. It takes up a new lock the next time one of
/// its threads has to wait for a mutex. If this command is killed, the process keeps the locks it has at that moment, and what
/// `switch FUNCTION` has told it of its wrappers. Nothing else is left behind. The list begins with who waits now, and for whom, if a
/// thread has waited for half a second or longer. docs/ctl.md says more.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright ctl 4242                            its locks and what they do
  lockwright ctl 4242 switch all fifo            every mutex on another lock
  lockwright ctl 4242 switch g_lock fifo --guard 5s
                                                 and back if that is worse
  lockwright ctl 4242 switch 0x55d0c4a012a0 cal  one lock in the heap
  lockwright ctl 4242 switch libfoo.so default   back to the default lock
  lockwright ctl 4242 switch g_table rwlock:prefer=patient
                                                 who goes first at an rwlock
  lockwright ctl 4242 set g_lock spin=20us       an option of its current lock
  lockwright ctl 4242 slo get 100us              another SLO for an epoch
  lockwright ctl 4242 level full --for 60s       count owners and stacks
  lockwright ctl 4242 dump locks.observe         for `profile --read`")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: libc::pid_t,
    #[command(subcommand)]
    what: Option<CtlCommand>,
}

#[derive(clap::Subcommand)]
enum CtlCommand {
    List(ListArgs),
    Switch(SwitchArgs),
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
struct ListArgs {
    /// How long to watch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::top::interval)]
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

// No doc comment: clap would show it instead of the command's.
#[derive(clap::Args)]
struct GuardArgs {
    /// Measure old and new lock alternately, for this time each (twice as long if noise may hide a loss); go back if the new one
    /// is worse (exit code 1)
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    guard: Option<f64>,
    /// A command that prints how much work the program has done so far; --guard takes throughput from it
    #[arg(long, value_name = "COMMAND", requires = "guard")]
    counter: Option<String>,
    /// The comparison's format
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "guard")]
    format: Format,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// Give locks another rule
///
/// TARGET is `all`, `default` (mutexes that no rule names), a lock as the list names it (`g_lock`, `pool+0x28`, `0x55d0c4a012a0`), a
/// function (the locks for which it has waited or made others wait, also by way of wrappers such as `my_mutex_lock`), a library, or all of a
/// kind (`kind:recursive`; `kind:rwlock`: readers-writer locks). RULE `default` removes TARGET's own rule.
#[derive(clap::Args)]
struct SwitchArgs {
    /// Which locks
    #[arg(value_name = "TARGET")]
    target: String,
    /// NAME[:key=value,...], see `lockwright list`; for readers-writer locks rwlock:prefer=WHO; or `default`
    #[arg(value_name = "RULE", value_parser = catalog::SPEC, hide_possible_values = true)]
    rule: String,
    #[command(flatten)]
    guard: GuardArgs,
}

/// Change options of TARGET's current lock: spin, budget, ...
///
/// `lockwright explain LOCK` lists a lock's options. TARGET is as in `switch`.
#[derive(clap::Args)]
struct SetArgs {
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
struct SloArgs {
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
struct DelegateArgs {
    /// As the list names it, its address, or `all`
    #[arg(value_name = "DATA")]
    data: String,
    /// Who
    #[arg(value_enum, value_name = "HOW")]
    how: How,
}

/// Choose what the process counts
#[derive(clap::Args)]
struct LevelArgs {
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
struct DumpArgs {
    /// The file [default: lockwright-PID.observe]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    crate::leftovers::remove_counts();
    let pid = args.pid;
    let default =
        ListArgs { time: Duration::from_secs(1), top: 20, format: Format::Text, quiet: false };
    match args.what.unwrap_or(CtlCommand::List(default)) {
        CtlCommand::List(args) => list(pid, &args),
        CtlCommand::Switch(args) => switch(pid, &args),
        CtlCommand::Set(args) => set(pid, &args),
        CtlCommand::Slo(args) => set_slo(pid, &args),
        CtlCommand::Delegate(args) => delegate(pid, &args),
        CtlCommand::Level(args) => level(pid, &args),
        CtlCommand::Dump(args) => dump(pid, args),
        CtlCommand::Reset => reset(pid),
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

fn switch(pid: libc::pid_t, args: &SwitchArgs) -> Result<ExitCode, Failure> {
    let lock = match args.rule.as_str() {
        "default" => None,
        lock => {
            catalog::check_rule(lock, &[])?;
            Some(machine::tuned(lock))
        }
    };
    let rule = match &lock {
        None => For::Both,
        Some(lock) if is_rwlocks(lock) => For::ReadersWriter,
        Some(_) => For::Mutexes,
    };
    change(pid, (&args.target, rule), &args.guard, |target, table| {
        if let Some(lock) = &lock {
            let all = [args.target.clone()]; // `all`, `default`
            let targets = if target.rules().is_empty() { &all } else { target.rules() };
            catalog::check_rule(lock, targets)?;
        }
        target.put(table, lock.as_deref());
        Ok(())
    })
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

/// Changes the table and reports the result. With --guard, reverts a change that is worse.
fn change(
    pid: libc::pid_t,
    (target, rule): (&str, For),
    args: &GuardArgs,
    change: impl FnOnce(&Target, &mut Table) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let guard = args.guard.map(guard_time).transpose()?;
    let process = Process::open(pid)?;
    let mailbox = Remote::find(&process)?;
    mailbox::refuse_detached(&process, &mailbox)?;
    let old = mailbox::base(&mailbox)?;
    let target = Target::find(&process, target, rule, || contended(&process))?;
    let mut new = old.clone();
    change(&target, &mut new)?;
    let instead = format!("lockwright ctl {pid} switch all auto");
    catalog::warn_of_textbook(new.locks(), &instead);
    if let Some(time) = guard.filter(|_| new.words() != old.words()) {
        let epochs = epochs::Remote::find(&process)?;
        process.unlock();
        let guard = Guard {
            pid: process.pid,
            mailbox: mailbox.place(),
            epochs,
            old: &old,
            new: &new,
            target: &target,
            time,
            counter: args.counter.as_deref(),
            terms: Terms::default(),
            called: None,
            quiet: args.quiet,
        };
        let guarded = guard.run()?;
        output::print(&match args.format {
            Format::Text => guarded.text(),
            Format::Json => output::json(&serde_json::to_value(&guarded).map_err(Failure::new)?),
        })?;
        return Ok(match guarded.end {
            End::Kept => ExitCode::SUCCESS,
            End::RolledBack | End::TakenOff => ExitCode::FAILURE,
            End::Interrupted => INTERRUPTED.into(),
        });
    }
    let is_in_force = mailbox::post(&process, &mailbox, &new)?;
    output::print(&match is_in_force {
        true => target::describe(&process, &new),
        false => super::switch::posted(&process, &new),
    })?;
    if guard.is_some() {
        output::say("note: --guard compared nothing: the locks have this rule already");
    }
    Ok(ExitCode::SUCCESS)
}

/// Twelve slices of at least 50 ms; no more than an hour.
pub(crate) fn guard_time(seconds: f64) -> Result<Duration, Failure> {
    match (0.6..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(Failure::new(format!("bad --guard '{seconds}s': not within 600ms to 3600s"))
            .hint("for example --guard 5s")),
    }
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
            .hint(format!("lockwright ctl {pid} level off")));
        }
        Some(seconds) if !(0.1..=86_400.0).contains(&seconds) => return Err(bad(seconds)),
        Some(seconds) => live.ask(&process, asked, Duration::from_secs_f64(seconds))?,
        None => live.begin(&process, asked)?,
    }
    let now = live.level(&process)?;
    let why = if now == asked { "" } else { ", because another command asks for it" };
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
