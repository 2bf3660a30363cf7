//! `lockwright attach`.

use crate::attach::{self, From};
use crate::hints::Failure;
use crate::{catalog, library, machine};
use lockwright_observer::process::Process;
use std::path::PathBuf;
use std::process::ExitCode;

/// Give a running process our locks
///
/// One of its threads loads our library. Then all threads stop for a moment while we redirect the program's lock calls to
/// it. Mutexes keep their state: a holder stays the holder, and sleepers are woken. Condition variables and
/// readers-writer locks stay glibc's. You need the rights to debug the process.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright attach 4242                      on the default lock, auto
  lockwright attach $(pidof server) --lock fifo
  lockwright switch 4242 barging              later: another lock
  lockwright attach --undo 4242               back to glibc's functions

Needs x86-64 and glibc 2.34. docs/attach.md says what is refused, and why.")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID")]
    pid: libc::pid_t,
    /// The lock it gets, NAME[:key=value,...]; see `lockwright list`
    #[arg(long, value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    /// The library to load [default: the one beside this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The library's path as the process sees it, in a container
    #[arg(long, value_name = "FILE", conflicts_with = "library")]
    inside: Option<PathBuf>,
}

pub(crate) fn main(mut args: Args) -> Result<ExitCode, Failure> {
    if let Some(lock) = &mut args.lock {
        catalog::check(lock)?;
        *lock = machine::tuned(lock);
    }
    let process = Process::open(args.pid)?;
    let from = match args.inside {
        Some(path) => From::Inside(path),
        None => From::Here(library::find(args.library.as_deref())?),
    };
    let attached = attach::attach(&process, &from, args.lock.as_deref());
    let (done, lock) = attached.map_err(|failure| process.unless_ended(failure))?;
    if let Some(lock) = &args.lock {
        let instead = format!("lockwright switch {} auto", args.pid);
        catalog::warn_of_textbook([lock.as_str()], &instead);
    }
    done.print(&process, &format!("attached, {lock}"), "our locks")?;
    Ok(ExitCode::SUCCESS)
}
