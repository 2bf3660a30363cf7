//! `lockwright switch`.

use crate::ctl::target;
use crate::hints::Failure;
use crate::{catalog, machine, output, rules};
use lockwright_observer::elf;
use lockwright_observer::mailbox::{self, Remote};
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show which locks a running process uses, or switch it to others
///
/// The process runs under `lockwright run`, was attached to, or has our library linked in. It takes up the new locks the next
/// time one of its threads has to wait for a mutex; until then, locks make no difference. The command waits up to two
/// seconds for that. Threads that already wait keep their old lock. There is no choice for readers-writer locks and
/// condition variables.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright switch 4242                         which locks it uses
  lockwright switch 4242 fifo                    another default, the same rules
  lockwright switch 4242 --config locks.toml     other rules, as with `run`
  lockwright switch $(pidof server) auto:spin=5000")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID")]
    pid: libc::pid_t,
    /// Lock for mutexes that no rule names, NAME[:key=value,...]; see `lockwright list`
    #[arg(value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    /// Replace the current rules with this file's: locks by library, mutex, caller or kind. An empty file drops all rules. A
    /// file without `default` keeps the default lock
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
    mailbox::refuse_detached(&process, &mailbox)?;
    if args.lock.is_none() && args.config.is_none() {
        output::print(&target::describe(&process, &mailbox.table()?))?;
        if let Some(table) = mailbox.posted()? {
            output::print(&posted(&process, &table))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // If an earlier table is posted but not yet in force, change that one.
    let mut table = mailbox::base(&mailbox)?;
    let mut lock = args.lock;
    if let Some(file) = args.config {
        let config = rules::read(&file, &elf::inspect(&process.program())?)?;
        if !config.policies.is_empty() {
            return Err(Failure::new(format!("'{}' names policies", file.display()))
                .hint(format!("lockwright policy load NAME --pid {} --lock LOCK", process.pid)));
        }
        lock = lock.or(config.default.map(|lock| machine::tuned(&lock)));
        table.rules = Table::read(&format!("\n{}", config.rules)).rules;
    }
    if let Some(lock) = lock {
        table.default = lock;
    }
    let is_in_force = mailbox::post(&process, &mailbox, &table)?;
    catalog::warn_of_textbook(table.locks(), &format!("lockwright switch {} auto", args.pid));
    output::print(&match is_in_force {
        true => target::describe(&process, &table),
        false => posted(&process, &table),
    })?;
    Ok(ExitCode::SUCCESS)
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
