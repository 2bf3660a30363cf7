//! `lockwright profile`.

use crate::hints::Failure;
use crate::observed::{report, run};
use crate::{catalog, output};
use lockwright_bench::{progress, units};
use lockwright_observe::control::Level;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Show which locks a program waits for, where, and who makes it wait
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The process
    #[arg(long, short, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<libc::pid_t>,
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::seconds)]
    time: f64,
    #[arg(long, value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    #[arg(long)]
    json: bool,
    #[arg(long, default_value_t = 10)]
    top: usize,
    #[arg(long)]
    library: Option<PathBuf>,
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let (outcomes, code) = match args.pid {
        Some(pid) => {
            let bar = progress((args.time * 1e3) as u64, false);
            let seen = run::process(pid, Level::Full, Duration::from_secs_f64(args.time), &bar)?;
            bar.finish_and_clear();
            (vec![seen], ExitCode::SUCCESS)
        }
        None => run::program(&args.command, args.lock.as_deref(), Level::Full, args.library.as_deref())?,
    };
    for outcome in &outcomes {
        if args.json {
            output::print_json(&serde_json::to_value(outcome).map_err(Failure::new)?)?;
        } else {
            output::say(&report::text(outcome, args.top));
        }
    }
    Ok(code)
}
