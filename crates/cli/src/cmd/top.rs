//! `lockwright top`.

use crate::hints::Failure;
use crate::{output, standing, top};
use lockwright_numbers::units;
use lockwright_observer::standing::Standing;
use std::process::ExitCode;
use std::time::Duration;

/// Show what the locks of running programs do, live
///
/// The programs run under `lockwright run`, were attached to, or have our library linked in. While `top` watches a process, the process counts what its
/// contended locks do. It stops a few seconds after `top` ends, even if `top` is killed. Without PID: lists the processes
/// that use our locks. With PID, it begins with who waits now, and for whom, if a thread has waited for half a second or longer. Press ?
/// for the keys.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright top                                 which processes use our locks
  lockwright top $(pidof server)                 the locks of one of them
  lockwright top 4242 --batch --count 10 > locks.json")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<libc::pid_t>,
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one line of JSON per sample instead of the screen
    #[arg(long)]
    batch: bool,
    /// End after this many samples
    #[arg(long, value_name = "N", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Locks in each line of JSON, those with the most waiting time
    #[arg(long, value_name = "N", default_value_t = 50, requires = "batch")]
    top: usize,
}

/// Long enough that sampling doesn't take all the time, short enough to renew the lease.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text)?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not within 100ms to 3600s".to_owned()),
    }
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    crate::leftovers::remove_counts();
    let ended = match args.batch {
        true => top::batch::run(args.pid, args.interval, args.count, args.top),
        false => top::run(args.pid, args.interval),
    };
    // A process that can't be watched may hang all the same.
    if let (Err(_), Some(pid)) = (&ended, args.pid) {
        let standing = Standing::of(pid).unwrap_or_default();
        if !standing.is_empty() {
            output::say(&standing::text(&standing));
        }
    }
    ended
}
