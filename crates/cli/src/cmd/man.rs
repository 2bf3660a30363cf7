//! `lockwright --man`.

use crate::hints::{Failure, cause, nearest};
use crate::manual::{self, Page};
use crate::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print a manual page, or write a page for each command
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright --man | man -l -
  lockwright --man run | man -l -
  lockwright --man --output ~/.local/share/man/man1    then: man lockwright-run")]
pub(crate) struct Args {
    /// Write lockwright.1, lockwright-run.1, ... to this folder; if it is called man1, lockwright-environment.7 goes to man7
    /// beside it
    #[arg(long = "output", alias = "dir", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The command whose page to print, such as `run`, `switch set` or `profile --record`; or `environment` [default: lockwright's own page]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
}

pub(crate) fn main(args: Args, command: clap::Command) -> Result<ExitCode, Failure> {
    let pages = manual::pages(command)
        .map_err(|error| Failure::new(format!("cannot render the manual pages: {error}")))?;
    match args.dir {
        None => output::print_own(&String::from_utf8_lossy(&named(&pages, &args.command)?.text))?,
        Some(dir) => write(&dir, &pages).map_err(|error| {
            Failure::new(format!("cannot write to '{}': {}", dir.display(), cause(&error)))
                .hint("lockwright --man --output ~/.local/share/man/man1")
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The page about a command, given its words or the page's name.
fn named<'a>(pages: &'a [Page], words: &[String]) -> Result<&'a Page, Failure> {
    let wanted = words.join("-");
    let short = |page: &'a Page| page.name.strip_prefix("lockwright-").unwrap_or_default();
    let found = pages.iter().find(|page| short(page) == wanted || page.name == wanted);
    found.ok_or_else(|| {
        let failure = Failure::new(format!("no manual page '{}'", words.join(" ")));
        match nearest(&wanted, pages.iter().skip(1).map(short)) {
            Some(close) => {
                failure.hint(format!("did you mean '{close}'? lockwright --man {close}"))
            }
            None => failure.hint("lockwright --help lists the commands"),
        }
    })
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
