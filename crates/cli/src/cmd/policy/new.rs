//! `lockwright policy new`.

use crate::hints::Failure;
use crate::output;
use crate::policy::clang::FLAGS;
use crate::policy::skeleton;
use std::process::ExitCode;

/// Write a policy to begin with: NAME.bpf.c, and the header that it includes
///
/// Nothing is overwritten.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy new mine                     all hooks, explained
  lockwright policy new numa-2 --from numa       from one that is shipped")]
pub(super) struct Args {
    /// The policy's name: letters, digits, _ and -
    #[arg(value_name = "NAME")]
    name: String,
    /// Copy the source of this policy, shipped or stored
    #[arg(long, value_name = "POLICY")]
    from: Option<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let written = skeleton::write(&args.name, args.from.as_deref())?;
    let (name, source) = (&args.name, written.source.display());
    let header = written.header.map_or_else(String::new, |header| format!(" {}", header.display()));
    output::print(&format!(
        "written: {source}{header}\n\n\
         clang {FLAGS} -c {source} -o {name}.bpf.o\n\
         lockwright policy check {name}.bpf.o\n\n\
         `lockwright policy check {source}` does both.\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}
