//! `lockwright policy tag`.

use crate::hints::Failure;
use crate::output;
use crate::policy::tags::{Tagging, tag};
use lockwright_observer::process::Process;
use std::process::ExitCode;

/// Tag threads with numbers that policies see: who is important, whose tenant it is
///
/// A policy reads them as `ctx->own.tag`, and by `lw_tag(tid)`. 0 means no tag. Threads that are started later have none; tag
/// them, too.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy tag 4242 7 --pid 4242        its main thread
  lockwright policy tag --name 'server*' 7 --pid 4242
  lockwright policy tag --cgroup --pid 4242      each its cgroup's number")]
pub(super) struct Args {
    /// [THREAD] VALUE: the thread's id, and its tag
    #[arg(value_name = "NUMBER", num_args = 0..=2)]
    numbers: Vec<u64>,
    /// All threads whose names match; * stands for anything
    #[arg(long, value_name = "PATTERN", conflicts_with = "cgroup")]
    name: Option<String>,
    /// All threads, each with the number of its cgroup
    #[arg(long)]
    cgroup: bool,
    /// The process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: libc::pid_t,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let what = match (&args.numbers[..], &args.name, args.cgroup) {
        ([tid, value], None, false) => Tagging::Thread(*tid, *value),
        ([value], Some(pattern), false) => Tagging::Named(pattern.clone(), *value),
        ([], None, true) => Tagging::Cgroups,
        _ => {
            return Err(Failure::new(
                "wrong arguments of tag: THREAD VALUE, --name PATTERN VALUE, or --cgroup",
            )
            .hint("lockwright policy tag --help"));
        }
    };
    let process = Process::open(args.pid)?;
    let tagged = tag(&process, &what)?;
    let mut text = format!("{} ({}):", process.pid, process.name());
    for (value, threads) in &tagged {
        let threads =
            if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        match value {
            0 => text += &format!(" {threads} without a tag;"),
            _ => text += &format!(" {threads} with tag {value};"),
        }
    }
    output::print(&format!("{}\n", text.trim_end_matches(';')))?;
    Ok(ExitCode::SUCCESS)
}
