//! Another table of locks, by turns with the old one if the user wants to know which is better.

use crate::ctl::epochs;
use crate::ctl::guard::{End, Guard};
use crate::ctl::judge::Terms;
use crate::ctl::target::{self, For, Target, contended};
use crate::format::Format;
use crate::hints::Failure;
use crate::interrupt::ended_by;
use crate::{catalog, output};
use lockwright_bench::catch_ends;
use lockwright_numbers::units;
use lockwright_observer::lease::Lease;
use lockwright_observer::mailbox::{self, Remote};
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use std::process::ExitCode;
use std::time::Duration;

// No doc comment: clap would show it instead of the command's.
#[derive(clap::Args)]
pub(super) struct GuardArgs {
    /// Measure old and new lock alternately, for this time each (twice as long if noise may hide a loss); go back if the new one
    /// is worse (exit code 1)
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(super) guard: Option<f64>,
    /// A command that prints how much work the program has done so far; --guard takes throughput from it
    #[arg(long, value_name = "COMMAND", requires = "guard")]
    counter: Option<String>,
    /// The comparison's format, or the list's [default: text]
    #[arg(long, value_enum, hide_default_value = true)]
    pub(super) format: Option<Format>,
    /// No progress bar
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// Changes the table and reports the result. With --guard, reverts a change that is worse.
pub(super) fn change(
    pid: libc::pid_t,
    (target, rule): (&str, For),
    args: &GuardArgs,
    change: impl FnOnce(&Target, &mut Table) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let guard = args.guard.map(guard_time).transpose()?;
    if args.format.is_some() && guard.is_none() {
        return Err(Failure::new(
            "--format is for a comparison or the list, not for a plain change",
        )
        .hint(format!("lockwright switch {pid} {target} auto --guard 5s --format json")));
    }
    let process = Process::open(pid)?;
    let mailbox = Remote::find(&process)?;
    mailbox::refuse_detached(&process, &mailbox)?;
    let old = mailbox::base(&mailbox)?;
    let target = Target::find(&process, target, rule, || contended(&process))?;
    let mut new = old.clone();
    change(&target, &mut new)?;
    let instead = format!("lockwright switch {pid} all auto");
    catalog::warn_of_textbook(new.locks(), &instead);
    if let Some(time) = guard.filter(|_| new.words() != old.words()) {
        let epochs = epochs::Remote::find(&process)?;
        catch_ends();
        let lease = Lease::begin(&process, mailbox.place())?;
        process.unlock();
        let guard = Guard {
            pid: process.pid,
            mailbox: mailbox.place(),
            epochs,
            lease,
            old: &old,
            new: &new,
            target: &target,
            time,
            counter: args.counter.as_deref(),
            terms: Terms::default(),
            called: None,
            quiet: args.quiet,
            may_stay: &|_| Ok(true),
            drops: 0,
        };
        let guarded = guard.run()?;
        output::print(&match args.format.unwrap_or(Format::Text) {
            Format::Text => guarded.text(),
            Format::Json => output::json(&serde_json::to_value(&guarded).map_err(Failure::new)?),
        })?;
        return Ok(match guarded.end {
            End::Kept => ExitCode::SUCCESS,
            End::RolledBack | End::TakenOff => ExitCode::FAILURE,
            End::Interrupted => ended_by(),
        });
    }
    let is_in_force = mailbox::post(&process, &mailbox, &new)?;
    output::print(&match is_in_force {
        true => target::describe(&process, &new),
        false => posted(&process, &new),
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

/// The message for a table that isn't in force yet.
pub(super) fn posted(process: &Process, table: &Table) -> String {
    format!(
        "{} ({}): {} is posted; it takes effect when a thread next waits for a mutex\n",
        process.pid,
        process.name(),
        table.default
    )
}
