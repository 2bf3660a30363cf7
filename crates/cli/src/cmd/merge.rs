//! `lockwright sim --merge`.

use crate::hints::Failure;
use crate::shards;
use lockwright_shards::Merge;
use std::path::PathBuf;

/// Make one report of an experiment's shards
///
/// It is the report that the command would have made on one machine: byte for byte where results don't depend on the
/// machine (sim, reproduce).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright sim --machine m1 --lock all --shard 1/2 --output shards
  lockwright sim --machine m1 --lock all --shard 2/2 --output shards
  lockwright sim --merge shards
  lockwright sim --merge machine-a machine-b --output report

Exit code: the experiment's own; 2 if shards are missing, incomplete, or of
different plans. How to run shards on a cluster: docs/shards.md")]
pub(crate) struct Args {
    /// Folders of the shards
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Write the experiment's report, plots and data there
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// All the shards, with the command that made them.
pub(crate) fn read(args: &Args) -> Result<Merge, Failure> {
    Merge::read(&args.folders, args.output.as_deref(), shards::MERGER).map_err(shards::failure)
}
