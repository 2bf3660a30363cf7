//! `lockwright policy unload`.

use crate::hints::Failure;
use crate::output;
use crate::policy::loading;
use lockwright_observer::process::Process;
use std::process::ExitCode;

/// Take a policy out of a running program: its locks are those again that they were before
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy unload --pid 4242            all its policies
  lockwright policy unload --pid 4242 big-first  this one")]
pub(super) struct Args {
    /// The process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: libc::pid_t,
    /// The policy's name, or its slot [default: all]
    #[arg(value_name = "POLICY")]
    policy: Option<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let process = Process::open(args.pid)?;
    let (gone, is_in_force) = loading::unload(&process, args.policy.as_deref())?;
    let later = match is_in_force {
        true => "",
        false => "; that takes effect when a thread next waits for a mutex",
    };
    output::print(&format!(
        "{} ({}): unloaded: {}{later}\n",
        process.pid,
        process.name(),
        gone.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}
