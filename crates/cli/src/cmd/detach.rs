//! `lockwright attach --undo`.

use crate::attach;
use crate::hints::Failure;
use lockwright_observer::process::Process;
use std::process::ExitCode;

/// Give an attached process glibc's locks back
///
/// All its threads stop for a moment while we redirect the program's lock calls back to glibc. Threads that wait in our
/// library stay there until they get their mutex. The library stays loaded but does nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright attach --undo 4242
  lockwright attach 4242                      and attach it again")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID")]
    pid: libc::pid_t,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let process = Process::open(args.pid)?;
    let done = attach::detach(&process).map_err(|failure| process.unless_ended(failure))?;
    done.print(&process, "detached", "glibc's locks again")?;
    Ok(ExitCode::SUCCESS)
}
