//! `lockwright policy run`.

use crate::cmd::sim::{self, Study};
use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::policy::settings::Setting;
use crate::policy::slots;
use std::process::ExitCode;

/// Try a policy on a simulated machine, beside other locks, before anybody loads it
///
/// The figures are simulated. This is `lockwright sim` with the policy as its last lock; its help says more.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy run big-first --machine m1
  lockwright policy run big-first --machine m1 --lock asl,cal --threads 1..8
  lockwright policy run numa+big-first --machine xeon-2x10 --output report")]
pub(super) struct Args {
    /// An object file, a file in C, or a policy's name; A+B: both as one
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Another value for a constant of the policy, a number or a time; may be repeated. POLICY.NAME=VALUE: of one of several
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::parse)]
    settings: Vec<Setting>,
    /// Machines: names (lockwright sim --list) or profiles in TOML
    #[arg(long = "machine", value_name = "MACHINES", required = true)]
    machines: Vec<String>,
    /// Locks to compare it with, NAME[:key=value,...], policy:NAME, or all. Throughput is that of the first
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
    // Last, so that its figures are multiples of a known lock's.
    let mut locks = args.locks;
    locks.push(slots::joined(&args.policy, &args.settings, args.options.as_deref()));
    sim::run(locks, args.machines, args.study, args.format, args.quiet)
}
