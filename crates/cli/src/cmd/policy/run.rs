//! `lockwright policy run`.

use crate::cmd::sim::{self, Study};
use crate::format::FormatFlags;
use crate::hints::Failure;
use std::process::ExitCode;

/// Try a policy on a simulated machine, beside other locks, before anybody loads it
///
/// The figures are simulated. This is `lockwright sim` with the policy as its first lock; its help says more.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy run big-first --machine m1
  lockwright policy run big-first --machine m1 --lock asl,cal --threads 1..8
  lockwright policy run numa+big-first --machine xeon-2x10 --output report")]
pub(super) struct Args {
    /// An object file, a file in C, or a policy's name; A+B: both as one
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Machines: names (lockwright sim --list) or profiles in TOML
    #[arg(long = "machine", value_name = "MACHINES", required = true)]
    machines: Vec<String>,
    /// Locks to compare it with, NAME[:key=value,...], policy:NAME, or all
    #[arg(long = "lock", value_name = "LOCKS", default_value = "fifo,glibc")]
    locks: Vec<String>,
    /// Options of the lock besides the policy, such as bypass=8: lockwright explain programmed
    #[arg(long = "option", value_name = "KEY=VALUE,...")]
    options: Option<String>,
    #[command(flatten)]
    study: Study,
    #[command(flatten)]
    format: FormatFlags,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let options = args.options.map_or_else(String::new, |options| format!(",{options}"));
    let first = format!("policy:{}{options}", args.policy);
    let locks = std::iter::once(first).chain(args.locks).collect();
    sim::run(locks, args.machines, args.study, args.format, args.quiet)
}
