//! `lockwright policy list`.

use crate::format::FormatFlags;
use crate::hints::{Failure, warn};
use crate::output;
use crate::policy::stats::Stats;
use crate::policy::store;
use lockwright_policy::shipped::shipped;
use serde_json::json;
use std::process::ExitCode;

/// List the policies that are shipped, those that you have stored, or those of a process
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy list
  lockwright policy list --pid 4242              those of a process
  lockwright policy list --format json | jq -r '.shipped[].name'")]
pub(super) struct Args {
    /// Those of this process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<libc::pid_t>,
    #[command(flatten)]
    format: FormatFlags,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(pid) = args.pid {
        let stats = Stats::look(pid, 0)?;
        match args.format.is_json() {
            true => output::print_json(&stats.json())?,
            false => output::print(&stats.lines())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Who may not read the store sees those that are shipped.
    let stored = store::all().unwrap_or_else(|failure| {
        warn(failure.message(), failure.hint_or("lockwright policy list --help"));
        Vec::new()
    });
    if args.format.is_json() {
        let ours = shipped().iter().map(|one| json!({ "name": one.name, "idea": one.idea }));
        let stored = stored.iter().map(|one| json!({ "name": one.name, "versions": one.versions }));
        let (ours, stored): (Vec<_>, Vec<_>) = (ours.collect(), stored.collect());
        output::print_json(&json!({ "shipped": ours, "stored": stored }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["shipped", "idea"]).all_by("--format json");
    for one in shipped() {
        table.add_row([one.name, one.idea]);
    }
    output::print_table(&table)?;
    if stored.is_empty() {
        output::print("\nnone of your own is stored: lockwright policy store FILE\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    output::print("\n")?;
    let mut table = output::table(&["stored", "versions"]).all_by("--format json");
    for one in &stored {
        table.add_row([&one.name, &store::listed(&one.versions)]);
    }
    output::print_table(&table)?;
    Ok(ExitCode::SUCCESS)
}
