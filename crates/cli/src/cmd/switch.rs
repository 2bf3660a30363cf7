//! `lockwright switch`.

use crate::hints::Failure;
use crate::mailbox::{Remote, Said};
use crate::process::Process;
use crate::{catalog, elf, machine, output, rules};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show which locks a running process has, or give it others
///
/// The process runs under `lockwright run`, was attached to, or has our library linked in. It takes the new locks when one of its
/// threads next has to wait for a mutex; until then, locks make no difference. We watch for two seconds whether it
/// does. Threads that already wait go on as before. Readers-writer locks and condition variables have no lock to
/// choose.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright switch 4242                         which locks it has
  lockwright switch 4242 fifo                    another default, the same rules
  lockwright switch 4242 --config locks.toml     other rules, as with `run`
  lockwright switch $(pidof server) auto:spin=5000")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID")]
    pid: libc::pid_t,
    /// Lock of the mutexes that no rule names, NAME[:key=value,...]; see `lockwright list`
    #[arg(value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    /// Choose locks by library, mutex or caller, instead of the present rules; an empty file drops them all. A file
    /// without `default` keeps the default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn main(mut args: Args) -> Result<ExitCode, Failure> {
    if let Some(lock) = &mut args.lock {
        catalog::check(lock)?;
        *lock = machine::tuned(lock);
    }
    let process = Process::open(args.pid)?;
    let mailbox = Remote::find(&process)?;
    if mailbox.is_detached()? {
        let message = format!("process {} ({}) has been detached", args.pid, process.name());
        return Err(Failure::new(message).hint(format!("lockwright attach {}", args.pid)));
    }
    let now = mailbox.table()?;
    let waiting = mailbox.posted()?;
    if args.lock.is_none() && args.config.is_none() {
        output::print(&describe(&process, &now))?;
        if let Some(table) = waiting {
            output::print(&posted(&process, &table))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // If something is posted, and not taken yet, this changes that.
    let base = waiting.unwrap_or(now);
    let (default, rules) = base.split_once('\n').unwrap_or((&base, ""));
    let table = match args.config {
        None => format!("{}\n{rules}", args.lock.as_deref().unwrap_or(default)),
        Some(file) => {
            let config = rules::read(&file, &elf::inspect(&process.program())?)?;
            let lock = args.lock.or(config.default.map(|lock| machine::tuned(&lock)));
            format!("{}\n{}", lock.as_deref().unwrap_or(default), config.rules)
        }
    };
    let warn = || {
        let instead = format!("lockwright switch {} auto", args.pid);
        catalog::warn_of_textbook(specs(&table), &instead);
    };
    match mailbox.post(&table)? {
        Said::Done => {
            warn();
            output::print(&describe(&process, &table))?;
        }
        Said::Refused(why) => {
            return Err(Failure::new(format!("process {} keeps its locks: {why}", args.pid))
                .hint(format!("which it has: lockwright switch {}", args.pid)));
        }
        Said::Nothing => {
            warn();
            output::print(&posted(&process, &table))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The specifications in a table.
fn specs(table: &str) -> impl Iterator<Item = &str> {
    let (default, rules) = table.split_once('\n').unwrap_or((table, ""));
    let of_rules = rules.split(';').filter_map(|rule| Some(rule.split_once('=')?.1));
    [default].into_iter().chain(of_rules)
}

fn describe(process: &Process, table: &str) -> String {
    let (default, rules) = table.split_once('\n').unwrap_or((table, ""));
    let mut text = format!("{} ({}): {default}\n", process.pid, process.name());
    for rule in rules.split(';').filter(|rule| !rule.is_empty()) {
        let (target, lock) = rule.split_once('=').unwrap_or((rule, ""));
        let (what, target) = target.split_once(':').unwrap_or(("", target));
        let what = match what {
            "lib" => "library",
            "call" => "caller",
            what => what,
        };
        text.push_str(&format!("  {what} {target}: {lock}\n"));
    }
    text
}

/// What is not in force yet.
fn posted(process: &Process, table: &str) -> String {
    let (default, _) = table.split_once('\n').unwrap_or((table, ""));
    format!(
        "{} ({}): {default} is posted; in force as soon as a thread has to wait for a mutex\n",
        process.pid,
        process.name()
    )
}
