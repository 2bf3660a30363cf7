//! `lockwright man`.

use crate::hints::{Failure, cause};
use crate::manual::{self, Page};
use crate::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the manual page, or write a page for each command
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright man | man -l -
  lockwright man --output ~/.local/share/man/man1      then: man lockwright-run")]
pub(crate) struct Args {
    /// Write lockwright.1, lockwright-run.1, ... to this folder; if it is called man1, lockwright-environment.7 goes to man7
    /// beside it
    #[arg(long = "output", alias = "dir", value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn main(args: Args, command: clap::Command) -> Result<ExitCode, Failure> {
    let pages = manual::pages(command)
        .map_err(|error| Failure::new(format!("cannot render the manual pages: {error}")))?;
    match args.dir {
        None => output::print_own(&String::from_utf8_lossy(&pages[0].text))?,
        Some(dir) => write(&dir, &pages).map_err(|error| {
            Failure::new(format!("cannot write to '{}': {}", dir.display(), cause(&error)))
                .hint("lockwright man --output ~/.local/share/man/man1")
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `man` looks for a page in its section's folder.
fn write(dir: &Path, pages: &[Page]) -> std::io::Result<()> {
    for page in pages {
        let folder = match dir.ends_with("man1") {
            true => dir.with_file_name(format!("man{}", page.section)),
            false => dir.to_owned(),
        };
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{}.{}", page.name, page.section)), &page.text)?;
    }
    Ok(())
}
