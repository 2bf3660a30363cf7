//! `lockwright man`.

use crate::hints::{Failure, cause};
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the manual page, or write a page for each command
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright man | man -l -
  lockwright man --dir ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// Write lockwright.1, lockwright-run.1, ... into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn main(args: Args, command: clap::Command) -> Result<ExitCode, Failure> {
    let command = command.disable_help_subcommand(true);
    match args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut page)
                .map_err(|error| Failure::new(format!("cannot render the manual page: {error}")))?;
            output::print_own(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => std::fs::create_dir_all(&dir)
            .and_then(|()| clap_mangen::generate_to(command, &dir))
            .map_err(|error| {
                Failure::new(format!("cannot write to '{}': {}", dir.display(), cause(&error)))
                    .hint("lockwright man --dir ~/.local/share/man/man1")
            })?,
    }
    Ok(ExitCode::SUCCESS)
}
