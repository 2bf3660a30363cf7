//! Commands of ours whose work can be shared out (`lockwright_shards`), and the merge of their shards.

use anyhow::Result;
use lockwright_bench::Machine;
use lockwright_shards::{Flags, Merge, Merger, Plan, Session};
use std::path::{Path, PathBuf};

/// As people call us.
const PROGRAM: &str = "cargo xtask";

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folders of the shards.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Where the experiment writes its report, if it writes one.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// All shards, and the command that they are of.
pub(crate) fn read(args: &Args) -> Result<Merge> {
    let by = Merger { program: PROGRAM, commands: &["fit"], times: &[] };
    Ok(Merge::read(&args.folders, args.output.as_deref(), by)?)
}

/// The session that the flags ask for, or the shards that are being merged. `inputs`: what decides the results.
pub(crate) fn session(
    flags: &Flags,
    output: Option<&Path>,
    merged: Option<Merge>,
    inputs: Vec<String>,
) -> Result<Session> {
    let words = match &merged {
        Some(merged) => merged.words(),
        None => std::env::args().skip(1).collect(),
    };
    let plan = Plan::new(PROGRAM, words, inputs);
    Ok(match merged {
        Some(merged) => merged.session(&plan)?,
        None => flags.open(&plan, output, || Machine::here().host())?,
    })
}
