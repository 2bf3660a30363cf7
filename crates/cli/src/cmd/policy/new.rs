//! `lockwright policy new`.

use crate::hints::Failure;
use crate::output;
use crate::policy::clang;
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
    let source = written.source.display();
    let header = written.header.map_or_else(String::new, |header| format!(" {}", header.display()));
    output::print(&format!(
        "written: {source}{header}\n\nnext:\n  \
         lockwright policy check {source}\n  \
         lockwright policy load {source} --pid PID --lock LOCK --guard 5s\n\n{}\n",
        output::wrapped(&needs(clang::command().is_some()))
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What the next commands need. Who compiles elsewhere needs clang's flags.
fn needs(has_clang: bool) -> String {
    let how = format!("clang {} -c FILE.bpf.c -o FILE.bpf.o", clang::FLAGS);
    match has_clang {
        true => {
            format!("both compile it by clang; without that: {how}, elsewhere, and its FILE.bpf.o")
        }
        false => format!(
            "both compile it by clang, which is not installed here: sudo apt-get install clang; or elsewhere: {how}, \
             and its FILE.bpf.o instead"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_clang_is_said() {
        assert!(needs(false).contains("not installed here"));
        assert!(!needs(true).contains("not installed"));
        assert!([true, false].iter().all(|has| needs(*has).contains(clang::FLAGS)));
    }
}
