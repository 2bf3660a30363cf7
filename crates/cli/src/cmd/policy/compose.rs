//! `lockwright policy compose`.

use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::output;
use crate::policy::chosen::Chosen;
use crate::policy::conflicts::Conflicts;
use std::process::ExitCode;

/// See what several policies do as one, and where they disagree
///
/// A hook asks them in this order, and the first answer that isn't 0 counts. The whole is verified like any other policy, and all are
/// asked in the same 2000 situations a hook, drawn by chance. Other commands take it as A+B+C.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy compose numa big-first
  lockwright policy compose big-first numa --format json")]
pub(super) struct Args {
    /// The policies, the most important first
    #[arg(value_name = "POLICY", required = true, num_args = 2..)]
    policies: Vec<String>,
    #[command(flatten)]
    format: FormatFlags,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let chosen = Chosen::with(&args.policies, &[])?;
    chosen.verified()?;
    let conflicts = Conflicts::find(&chosen)?;
    match args.format.is_json() {
        true => output::print_json(&conflicts.json())?,
        false => output::print(&conflicts.text())?,
    }
    Ok(ExitCode::SUCCESS)
}
