//! `lockwright policy check`.

use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::output;
use crate::policy::chosen::Chosen;
use crate::policy::settings::Setting;
use crate::policy::verdict::PolicyVerdict;
use std::process::ExitCode;

/// Verify a policy, and measure what its hooks cost on this machine
///
/// What is accepted can't crash a program, run for more than 4096 instructions, or see more than it is told. What is rejected: exit
/// code 1, and a line for each hook that says where, why, and what would mend it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy check big-first              one that is shipped
  lockwright policy check numa+big-first         two as one
  lockwright policy check big-first --format json | jq '.hooks[0].cost_ns'")]
pub(super) struct Args {
    /// An object file, a file in C (clang compiles it), or a policy's name; A+B: both as one
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Another value for a constant of the policy, a number or a time; may be repeated. POLICY.NAME=VALUE: of one of several
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::parse)]
    settings: Vec<Setting>,
    /// Ask the kernel's own verifier, too; that needs root, or CAP_BPF with CAP_PERFMON
    #[arg(long)]
    kernel: bool,
    #[command(flatten)]
    format: FormatFlags,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let chosen = Chosen::with(&[&args.policy], &args.settings)?;
    let verdict = PolicyVerdict::of(&chosen, args.kernel)?;
    match args.format.is_json() {
        true => output::print_json(&verdict.json())?,
        false => output::print(&verdict.text())?,
    }
    Ok(if verdict.is_accepted() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
