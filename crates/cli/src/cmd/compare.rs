//! `lockwright compare`.

use super::run;
use super::topology::EMULATE;
use crate::compare::Setting;
use crate::compare::figure::Pattern;
use crate::compare::futexes::Futexes;
use crate::compare::measure::{Extent, measure};
use crate::compare::outcome::Comparison;
use crate::compare::report::Report;
use crate::compare::run::Trial;
use crate::compare::server::{Ready, Server};
use crate::hints::{Failure, warn};
use crate::interrupt::INTERRUPTED;
use crate::launch::Launched;
use crate::{catalog, epoch, epochs, launch, library, machine, output, preference};
use lockwright_locks::spec::GLIBC;
use lockwright_numbers::units;
use lockwright_observer::targets::is_rwlocks;
use lockwright_observer::{elf, find};
use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Run your own program under several locks, round by round, until one is clearly better
///
/// Each round runs the program once under each lock. The measurement ends when every comparison with the first lock is
/// clear, or after --rounds; the report then says which differences noise hides. 'glibc' is the program as it is, without
/// our library.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright compare -- ./program --threads 8
  lockwright compare --lock glibc,auto,fifo:spin=5000 -- ./program
  lockwright compare --more 'rate: (?<rate>[0-9.]+)' -- ./benchmark
  lockwright compare --port 8080 --load 'wrk -d5 http://localhost:8080/' \\
    --more 'Requests/sec: +(?<rps>[0-9.]+)' -- ./server

The running time decides or, with --more or --less, the figure that the first of
them finds in the output (its last match counts). With --load the program is a
server: each run starts it, runs the load, and stops it. Then the load's time
and output count.

Ctrl-C ends the measurement and reports what was measured so far (exit code
130).")]
pub(crate) struct Args {
    /// Locks to compare, separated by commas; the first one is the baseline. rwlock:prefer=patient: auto, with another order at
    /// readers-writer locks
    #[arg(long, alias = "locks", value_name = "LOCKS", default_value = "glibc,auto")]
    lock: String,
    /// Rounds, at most [default: 60, or as many as fit into a minute if that is more]
    #[arg(long, alias = "runs", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=2000))]
    rounds: Option<u32>,
    /// Warm-up runs of each lock before the rounds; they don't count
    #[arg(long, alias = "warmup", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    warm_up: u32,
    /// Ignore differences below this many per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    margin: f64,
    /// A figure where more is better: a regular expression whose group matches the number and names the figure
    #[arg(long, value_name = "REGEX")]
    more: Vec<String>,
    /// A figure where less is better, likewise
    #[arg(long, value_name = "REGEX")]
    less: Vec<String>,
    /// The program is a server; this command puts load on it
    #[arg(long, value_name = "COMMAND")]
    load: Option<String>,
    /// The server is ready when it accepts connections on this port
    #[arg(long, value_name = "PORT", requires = "load", conflicts_with = "ready")]
    port: Option<u16>,
    /// The server is ready when this command succeeds
    #[arg(long, value_name = "COMMAND", requires = "load")]
    ready: Option<String>,
    /// End each run (with --load: each load) after this time, such as 500ms; without a unit: seconds
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    time: Option<f64>,
    /// Make each call of a function an epoch, such as get=leveldb_get:50us@p99
    #[arg(long, value_name = "NAME=FUNCTION:SLO[@pP]")]
    epoch: Vec<String>,
    /// Load the library under 'glibc', too: it leaves the locks alone, but measures the epochs
    #[arg(long)]
    epochs: bool,
    /// Emulate a machine with slower cores, such as big:0,little:1x3.75
    #[arg(long, value_name = "CLASSES")]
    emulate: Option<String>,
    /// Write all figures of all runs there, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report there as a page with a picture
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    program: Launched,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    if !(0.1..=100.0).contains(&args.margin) {
        return Err(Failure::new(format!("bad --margin '{}': not within 0.1 to 100", args.margin))
            .hint("for example --margin 5, in per cent"));
    }
    let limit = args.time.map(super::tune::limit).transpose()?;
    let emulate = run::emulated(args.emulate.as_deref(), true)?.map(|(spec, _)| spec);
    let settings = settings(&args, emulate.as_deref())?;
    let patterns = patterns(&args)?;
    let server = server(&args)?;
    if limit.is_some() && patterns.is_empty() && !args.with_epochs() {
        return Err(Failure::new(
            "with --time, all runs take the same time: nothing is left to compare",
        )
        .hint("compare a figure of the program's output: --more 'rate: (?<rate>[0-9.]+)'"));
    }
    let (name, arguments) = args.program.command.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    let file = elf::inspect(&path)?;
    run::refuse(&file)?;
    let functions = epoch::resolve(&epoch::read(&args.epoch, true)?, &file)?;
    let library = library::find(args.program.library.as_deref())?;
    // The files are written last. If that will fail, say so first.
    for file in [&args.json, &args.html].into_iter().flatten() {
        launch::can_write(file).map_err(|error| launch::unwritable(file, &error))?;
    }

    let command = |setting: &Setting| {
        let mut command = Command::new(&path);
        command.arg0(name).args(arguments).env_remove(run::LOCK).env_remove("LOCKWRIGHT_RULES");
        command.env_remove(epochs::VARIABLE).env_remove(EMULATE).env_remove(preference::VARIABLE);
        match &setting.lock {
            Some(lock) => {
                command.envs(run::under(&library)).env(run::LOCK, lock);
                if let Some(who) = setting.prefers {
                    command.env(preference::VARIABLE, who);
                }
            }
            None => without(&mut command),
        }
        if !functions.is_empty() {
            command.env(epoch::VARIABLE, &functions);
        }
        if let Some(spec) = &emulate {
            command.env(EMULATE, spec);
        }
        command
    };
    let specs = settings.iter().filter_map(|setting| setting.lock.as_deref());
    catalog::warn_of_textbook(specs, "lockwright compare --lock glibc,auto -- PROGRAM");
    let machine = lockwright_bench::Machine::here();
    if machine.load > 0.5 {
        warn(
            format!("other programs compete for the CPUs (load average {:.1})", machine.load),
            "stop other programs: the answer then comes sooner",
        );
    }
    let futexes = Futexes::here();
    let program = name.to_string_lossy();
    let extent = Extent {
        rounds: args.rounds.map(|rounds| rounds as usize),
        warm_up: args.warm_up as usize,
        margin: args.margin / 100.0,
        quiet: args.quiet,
    };
    let what = Trial {
        command: &command,
        program: &program,
        server: server.as_ref(),
        patterns: &patterns,
        limit,
        futexes: &futexes,
        with_epochs: args.with_epochs(),
        watches: extent.warm_up > 0,
    };
    let mut measured = measure(&what, &settings, &extent);
    let failure = measured.failure.take();
    if measured.rounds == 0 {
        return match failure {
            Some(failure) => Err(failure),
            None => {
                output::say(
                    "interrupted before the first round was complete: nothing to report\n\
                     hint: a program that doesn't end by itself needs --load\n",
                );
                Ok(ExitCode::from(INTERRUPTED))
            }
        };
    }
    let outcome = Comparison::of(&settings, &measured.runs, extent.margin);
    let words: Vec<_> = args.program.command.iter().map(|word| word.to_string_lossy()).collect();
    let words =
        shlex::try_join(words.iter().map(AsRef::as_ref)).unwrap_or_else(|_| words.join(" "));
    let report = Report {
        machine,
        emulated: emulate.as_deref(),
        command: lockwright_bench::command_line(),
        with_epochs: args.with_epochs(),
        asked: asked(&args),
        program: program.rsplit('/').next().unwrap_or(&program),
        words: &words,
        settings: &settings,
        measured: &measured,
        outcome: &outcome,
        warm_up: extent.warm_up,
        failed: failure.is_some(),
        uncounted: match &futexes {
            Futexes::Not(why, mend) => Some((why, mend)),
            Futexes::Counted(_) => None,
        },
    };
    output::print(&report.text())?;
    let write = |file: &Path, text: String| {
        lockwright_files::write(file, text).map_err(|error| launch::unwritable(file, &error))
    };
    if let Some(file) = &args.json {
        write(file, format!("{:#}\n", report.json()))?;
    }
    if let Some(file) = &args.html {
        write(file, report.page())?;
    }
    match failure {
        Some(failure) => Err(failure),
        None if measured.interrupted => Ok(ExitCode::from(INTERRUPTED)),
        None => Ok(ExitCode::SUCCESS),
    }
}

impl Args {
    /// Are epochs compared?
    fn with_epochs(&self) -> bool {
        self.epochs || !self.epoch.is_empty()
    }
}

/// The options, for readers of the results.
fn asked(args: &Args) -> serde_json::Value {
    serde_json::json!({
        "more": args.more, "less": args.less, "load": args.load, "port": args.port,
        "ready": args.ready, "time_s": args.time, "epoch": args.epoch, "epochs": args.epochs,
    })
}

/// The locks, each once.
fn settings(args: &Args, emulate: Option<&str>) -> Result<Vec<Setting>, Failure> {
    let mut settings: Vec<Setting> = Vec::new();
    for name in catalog::split(&args.lock) {
        catalog::check_rule(&name, &[])?;
        if settings.iter().any(|known| known.name == name) {
            return Err(Failure::new(format!("'{name}' appears twice in --lock"))
                .hint("for example --lock glibc,auto,fifo"));
        }
        // Only the library measures epochs and slows cores down.
        let is_bare = !args.with_epochs() && emulate.is_none();
        let as_it_is = name == GLIBC && is_bare;
        let is_rwlocks = is_rwlocks(&name);
        let prefers = is_rwlocks.then(|| catalog::preference(&name)).transpose()?;
        let lock = if is_rwlocks { "auto" } else { &name };
        let lock = (!as_it_is).then(|| machine::tuned(lock));
        settings.push(Setting { name, lock, prefers });
    }
    if settings.len() < 2 {
        return Err(Failure::new(format!("nothing to compare with in --lock '{}'", args.lock))
            .hint("for example --lock glibc,auto"));
    }
    Ok(settings)
}

/// The figures to find in the output: those of `--more` first, each group in the order given.
fn patterns(args: &Args) -> Result<Vec<Pattern>, Failure> {
    let asked = args.more.iter().map(|text| (text, true));
    let asked = asked.chain(args.less.iter().map(|text| (text, false)));
    let mut patterns: Vec<Pattern> = Vec::new();
    for (number, (text, more)) in asked.enumerate() {
        let pattern = Pattern::read(text, more, number)?;
        if patterns.iter().any(|known| known.figure.name == pattern.figure.name) {
            return Err(Failure::new(format!("two figures called '{}'", pattern.figure.name))
                .hint("name the groups differently: (?<rate>[0-9.]+)"));
        }
        patterns.push(pattern);
    }
    Ok(patterns)
}

fn server(args: &Args) -> Result<Option<Server>, Failure> {
    let Some(load) = args.load.clone() else { return Ok(None) };
    let ready = match (args.port, &args.ready) {
        (Some(port), _) => Ready::Port(port),
        (None, Some(command)) => Ready::Command(command.clone()),
        (None, None) => {
            return Err(Failure::new("--load: nothing says when the server is ready")
                .hint("--port 8080, or --ready COMMAND that succeeds once it is"));
        }
    };
    Ok(Some(Server { load, ready }))
}

/// Runs the program without the library, even if this command itself runs under it.
fn without(command: &mut Command) {
    let Some(list) = env::var_os("LD_PRELOAD") else { return };
    let list = list.to_string_lossy();
    let is_ours =
        |path: &&str| Path::new(path).file_name().and_then(OsStr::to_str) == Some(library::FILE);
    let others: Vec<_> = list.split([':', ' ']).filter(|path| !is_ours(path)).collect();
    command.env("LD_PRELOAD", others.join(":"));
}
