//! `lockwright run`.

use super::topology;
use crate::elf::{self, Program};
use crate::hints::{Failure, cause, warn};
use crate::{catalog, find, library, rules, signals};
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Run a program with its pthread locks replaced
///
/// The program takes this command's place: its exit code, its signals and its process id are its own.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright run -- ./server --port 8080
  lockwright run --lock fifo:spin=5000 -- ./server
  lockwright run --topology big:0-3,little:4-7 -- ./server
  lockwright run --config locks.toml -- ./server

A configuration file chooses locks by library, mutex or calling function; the first match wins:
  default = \"auto\"
  [[lock]]
  library = \"libleveldb.so.1\"
  use = \"fifo\"
  [[lock]]
  mutex = \"g_lock\"              # with object = \"libfoo.so\" if it isn't the program's own
  use = \"fifo:bypass=100\"
  [[lock]]
  caller = \"leveldb_get\"
  use = \"barging\"")]
pub(crate) struct Args {
    /// Lock for the whole program, NAME[:key=value,...]; see `lockwright list`
    #[arg(long, value_name = "LOCK", value_parser = catalog::Spec, hide_possible_values = true)]
    lock: Option<String>,
    /// Choose locks by library, mutex or caller
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Classes of cores, fastest first, as in big:0-3,little:4-7
    #[arg(long, value_name = "CLASSES")]
    topology: Option<String>,
    /// The library to preload [default: beside this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The variable with the default lock.
const LOCK: &str = "LOCKWRIGHT_LOCK";

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let inherited = env::var_os(LOCK)
        .filter(|lock| !lock.is_empty())
        .map(|lock| lock.to_string_lossy().into_owned());
    if let Some(lock) = &args.lock {
        catalog::check(lock)?;
    } else if let Some(lock) = &inherited {
        catalog::check(lock).map_err(|failure| failure.within(&format!("{LOCK}: ")))?;
    }
    if let Some(spec) = &args.topology {
        topology::check(spec)?;
    }
    let (name, arguments) = args.command.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    let program = elf::inspect(&path)?;
    refuse(&program)?;
    let config = args.config.map(|file| rules::read(&file, &program)).transpose()?;
    let library = library::find(args.library.as_deref())?;
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments).env("LD_PRELOAD", preload(&library));
    let (default, rules) = config.map_or((None, None), |config| {
        command.env("LOCKWRIGHT_RULES", config.rules);
        (config.default, Some(config.locks))
    });
    let lock = args.lock.or(default).or(inherited);
    catalog::warn_of_textbook(lock.iter().chain(rules.iter().flatten()).map(String::as_str));
    if let Some(lock) = lock {
        command.env(LOCK, lock);
    }
    if let Some(spec) = args.topology {
        command.env(topology::VARIABLE, spec);
    }
    signals::pass_on(&mut command);
    let error = command.exec();
    Err(Failure::not_executable(format!("cannot run '{}': {}", path.display(), cause(&error))))
}

/// Ours first, then what was there.
pub(crate) fn preload(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

fn refuse(program: &Program) -> Result<(), Failure> {
    let shown = program.path.display();
    if let Some(obstacle) = program.obstacle() {
        return Err(Failure::refused(format!("cannot reach '{shown}': {}", obstacle.reason()))
            .hint(obstacle.hint(&program.path)));
    }
    if program.go {
        warn(
            format!(
                "'{shown}' is a Go program: its own locks don't use pthreads, only its C parts do"
            ),
            format!("lockwright doctor --run '{shown}'"),
        );
    }
    Ok(())
}
