//! `lockwright bench`: the command line of `lockwright_bench`, with our way to find the library.

use crate::hints::Failure;
use crate::{library, machine};
use lockwright_shards::Merge;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure locks side by side in one run
#[derive(clap::Args)]
#[group(skip)]
#[command(after_help = "Examples:
  lockwright bench --lock auto fifo --threads 2,8
  lockwright bench --lock in:mcs parking_lot --cs 500 --gap 500 --pin
  lockwright bench --lock auto --hogs 0,1,2
  lockwright bench --suite bars --output bench/runs/today
  lockwright bench --workload calls --calls try,timed --threads 64 --lock auto
  lockwright bench --suite bars --shard 1/2 --output shards
  lockwright bench --workload epoch --lock asl --emulate big:0,little:1x3.75

Locks: NAME[:key=value,...] through the preload, in:NAME in process, glibc,
parking_lot, std, all. The reference, glibc, always runs. Figures are real, from
this machine, unless marked emulated.")]
pub(crate) struct Args {
    #[command(flatten)]
    bench: lockwright_bench::Args,
    /// The library to preload [default: the one beside this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

pub(crate) fn main(args: Args, merged: Option<Merge>) -> Result<ExitCode, Failure> {
    // In-process locks don't need the library. Without it, the bench fails only where it needs it.
    let library = match args.library {
        Some(path) => Ok(library::find(Some(&path))?),
        None => library::find(None).map_err(|failure| failure.to_string()),
    };
    lockwright_bench::main(args.bench, library, machine::watts, merged).map_err(|error| {
        let text = format!("{error:#}");
        match text.split_once("\nhint: ") {
            Some((message, hint)) => Failure::new(message).hint(hint),
            None => Failure::new(text),
        }
    })
}
