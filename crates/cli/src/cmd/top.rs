//! `lockwright top`.

use crate::hints::Failure;
use crate::top;
use lockwright_numbers::units;
use std::process::ExitCode;
use std::time::Duration;

/// Show what the locks of running programs do, live
///
/// The programs run under `lockwright run`, or have our library linked in. While it looks at a process, that process counts what its
/// contended locks do; a few seconds after `top` has ended, however it ended, it counts no more. Without PID: a list of the
/// processes that have our locks. Press ? for the keys.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright top                                 which processes have our locks
  lockwright top $(pidof server)                 the locks of one
  lockwright top 4242 --batch --count 10 > locks.json")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<libc::pid_t>,
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one line of JSON for each look, instead of the screen
    #[arg(long)]
    batch: bool,
    /// Looks until it ends
    #[arg(long, value_name = "N", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Locks in each line of JSON, by the time that threads waited for them
    #[arg(long, value_name = "N", default_value_t = 50, requires = "batch")]
    top: usize,
}

/// Not so often that looking takes all the time, and often enough for a lease.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text)?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not within 100ms to 3600s".to_owned()),
    }
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    crate::leftovers::remove_counts();
    match args.batch {
        true => top::batch::run(args.pid, args.interval, args.count, args.top),
        false => top::run(args.pid, args.interval),
    }
}
