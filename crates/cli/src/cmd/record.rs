//! `lockwright profile --record`.

use super::run::{self, LOCK};
use crate::format::FormatFlags;
use crate::hints::{Failure, cause};
use crate::output::{print, print_json, say};
use crate::{catalog, launch, leftovers, library, lock_trace, preference, signals};
use lockwright_observer::traced;
use lockwright_observer::{elf, find};
use lockwright_stats::trace::Trace;

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Record which locks a program takes, when, and for how long
///
/// The program runs under our library, as a child of this command, which passes signals on to it and ends with its
/// exit code. The trace goes to FILE, a summary to standard error. docs/record.md says what is recorded and what it
/// costs.
#[derive(clap::Args)]
#[command(mut_arg("format", |format| format.requires("show")))]
#[command(mut_arg("json", |json| json.requires("show")))]
#[command(after_help = "Examples:
  lockwright profile --record -- ./server --port 8080
  lockwright profile --record --lock fifo --output server.bin -- ./server
  lockwright profile --record --force -- ./server     replaces an existing trace
  lockwright profile --record --show lockwright-trace.bin
  lockwright profile --record --show server.bin --format json \\
    | jq '.locks[0].hold.p99_ns'")]
pub(crate) struct Args {
    /// Where the trace goes
    #[arg(long, value_name = "FILE", default_value = "lockwright-trace.bin")]
    output: PathBuf,
    /// Lock for the whole program, NAME[:key=value,...]; see `lockwright list`
    #[arg(long, value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    /// Who goes first at readers-writer locks: own (as the program asks), readers, writers, strict (a thread that reads again
    /// may deadlock) or patient (by turns: no writer starves)
    #[arg(long, value_name = "WHO")]
    rwlock: Option<String>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Record this many acquisitions per process, at 48 bytes each, but at least 5440; later ones are only counted
    #[arg(long, value_name = "N", default_value_t = 2_000_000,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    limit: u64,
    /// The library to preload [default: the one beside this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Run nothing: print the summary of an existing trace
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["output", "force", "lock", "rwlock", "limit", "library", "command"])]
    show: Option<PathBuf>,
    #[command(flatten)]
    format: FormatFlags,
    /// The program and its arguments
    #[arg(required_unless_present = "show", trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The variable that names the folder.
const VARIABLE: &str = "LOCKWRIGHT_TRACE";
/// The variable with the number of acquisitions.
const LIMIT: &str = "LOCKWRIGHT_TRACE_LIMIT";

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    match &args.show {
        Some(file) => show(file, args.format.is_json()),
        None => record(args),
    }
}

/// Reads a trace.
pub(crate) fn read(file: &Path) -> Result<Trace, Failure> {
    Trace::read(file).map_err(|error| {
        let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        let failure = match system {
            Some(system) => format!("cannot read '{}': {}", file.display(), cause(system)),
            None => error.to_string(),
        };
        Failure::new(failure)
            .hint("lockwright profile --record --output FILE -- PROGRAM writes a trace")
    })
}

fn show(file: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let trace = read(file)?;
    if as_json {
        print_json(&lock_trace::json(&trace))?;
    } else {
        print(&lock_trace::report(&trace))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn record(args: Args) -> Result<ExitCode, Failure> {
    let inherited = run::inherited_lock(args.lock.as_deref())?;
    preference::check(args.rwlock.as_deref(), args.lock.as_deref())?;
    let (name, arguments) = args.command.split_first().expect("clap asks for a program");
    let again = format!("lockwright profile --record --force -- {}", name.display());
    launch::keep(&args.output, args.force, "a trace", &again)?;
    let path = find::program(name)?;
    run::refuse(&elf::inspect(&path)?)?;
    let library = library::find(args.library.as_deref())?;
    // The file is written last. If that will fail, say so first.
    launch::can_write(&args.output).map_err(|error| launch::unwritable(&args.output, &error))?;
    let folder = launch::folder("trace", "record")?;
    let mut command = Command::new(&path);
    command
        .arg0(name)
        .args(arguments)
        .envs(run::under(&library))
        .env(VARIABLE, folder.path())
        .env(LIMIT, args.limit.to_string());
    let lock = args.lock.or(inherited);
    catalog::warn_of_textbook(
        lock.as_deref(),
        "lockwright profile --record --lock auto -- PROGRAM",
    );
    if let Some(lock) = lock {
        command.env(LOCK, lock);
    }
    if let Some(who) = args.rwlock {
        command.env(preference::VARIABLE, who);
    }
    let status = launch::to_end(&mut command, &path)?;
    let mut trace = Trace::collect(folder.path())
        .map_err(|error| Failure::new(format!("cannot read what the program recorded: {error}")))?;
    traced::name(&mut trace);
    let file = launch::create(&args.output)?;
    trace.write(file, &args.output).map_err(Failure::new)?;
    say(&format!("trace: {}\n{}", args.output.display(), lock_trace::report(&trace)));
    let running = leftovers::running(folder.path());
    if running > 0 {
        let are = if running == 1 { "process still runs" } else { "processes still run" };
        say(&format!("{running} {are}: what it did so far is in the trace\n"));
        // Running processes may still create files there.
        let _ = folder.keep();
    } else {
        drop(folder); // now, because a signal may end this command below
    }
    Ok(signals::end_as(status))
}
