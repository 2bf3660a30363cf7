//! `lockwright policy stats`.

use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::output;
use crate::policy::stats::Stats;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

/// See what the policies of a running program do: questions, what they take, what their maps have
///
/// A sample of the questions is measured, so counts are about right.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy stats --pid 4242
  lockwright policy stats --pid 4242 --format json | jq '.policies[0].maps'")]
pub(super) struct Args {
    /// The process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: libc::pid_t,
    /// How many entries of each map to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Again and again, with this time in between, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s",
          value_parser = crate::cmd::top::interval)]
    watch: Option<Duration>,
    #[command(flatten)]
    format: FormatFlags,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    loop {
        let stats = Stats::look(args.pid, args.top)?;
        let Some(interval) = args.watch else {
            match args.format.is_json() {
                true => output::print_json(&stats.json())?,
                false => output::print(&stats.text())?,
            }
            return Ok(ExitCode::SUCCESS);
        };
        // A reader that has closed the pipe wants no more.
        match args.format.is_json() {
            true if !output::print_json_line(&stats.json())? => return Ok(ExitCode::SUCCESS),
            true => {}
            false => output::print(&format!("{}\n", stats.text()))?,
        }
        sleep(interval);
    }
}
