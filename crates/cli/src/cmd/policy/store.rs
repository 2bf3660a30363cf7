//! `lockwright policy store` and `lockwright policy remove`.

use crate::hints::Failure;
use crate::output;
use crate::policy::chosen::Chosen;
use crate::policy::named::unknown;
use crate::policy::store;
use std::process::ExitCode;

/// Keep a policy under a name; one of that name that is there already stays as an older version
///
/// It is verified first. Other commands take the name, or NAME@VERSION, instead of a file. The store is
/// ~/.config/lockwright/policies.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy store mine.bpf.o
  lockwright policy store mine.bpf.o --name big-first-2ms")]
pub(super) struct StoreArgs {
    /// An object file, or C
    #[arg(value_name = "FILE")]
    file: String,
    /// The name [default: the file's, without its end]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn main(args: &StoreArgs) -> Result<ExitCode, Failure> {
    let chosen = Chosen::find(&args.file)?;
    let [(policy, _)] = &chosen.parts[..] else {
        return Err(Failure::new(format!("'{}' is several policies", args.file))
            .hint("store each of them: commands take NAME+NAME"));
    };
    chosen.verified()?;
    let name = args.name.as_deref().unwrap_or(&policy.name);
    let version = store::add(name, policy)?;
    output::print(&format!("stored: {name}, version {version}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Remove a policy from the store, with all its versions
///
/// Processes that have loaded it keep it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy remove mine")]
pub(super) struct RemoveArgs {
    /// The policy's name
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn remove(args: &RemoveArgs) -> Result<ExitCode, Failure> {
    let gone = store::remove(&args.name)?.ok_or_else(|| unknown(&args.name))?;
    output::print(&format!("removed: {}, versions {}\n", args.name, store::listed(&gone)))?;
    Ok(ExitCode::SUCCESS)
}
