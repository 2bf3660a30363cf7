//! Our commands that can be divided into shards (`lockwright_shards`), and the merge of their shards.

use anyhow::{Result, anyhow};
use lockwright_bench::Machine;
use lockwright_shards::{Flags, Merge, Merger, Plan, Session};
use std::path::{Path, PathBuf};

/// The program's name, as users call it.
const PROGRAM: &str = "cargo xtask";

/// What we merge.
pub(crate) const MERGER: Merger =
    Merger { program: PROGRAM, commands: &["eval", "fit"], times: &[] };

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

/// All the shards, with the command that made them.
pub(crate) fn read(args: &Args) -> Result<Merge> {
    Ok(Merge::read(&args.folders, args.output.as_deref(), MERGER)?)
}

/// The shards' words ask for what is no experiment.
pub(crate) fn refused(what: &str) -> anyhow::Error {
    anyhow!(
        "the shards are from a command that makes none: {what}\nhint: the commands that make shards: {PROGRAM} {}",
        MERGER.commands.join(", ")
    )
}

/// The session that the flags request, or the merged shards. `inputs` is everything that determines the results.
pub(crate) fn session(
    flags: &Flags,
    output: Option<&Path>,
    merged: Option<Merge>,
    inputs: Vec<String>,
) -> Result<Session> {
    let words = match &merged {
        Some(merged) => merged.words(),
        None if flags.are_unused() => return Ok(Session::transient()),
        None => lockwright_shards::words()?,
    };
    let plan = Plan::new(PROGRAM, words, inputs);
    Ok(match merged {
        Some(merged) => merged.session(&plan)?,
        None => flags.open(&plan, output, || Machine::here().host())?,
    })
}
