//! `lockwright tune`.

use super::run;
use super::topology::{self, EMULATE};
use crate::epochs::ClassNames;
use crate::hints::{Failure, cause, warn};
use crate::interrupt::INTERRUPTED;
use crate::launch::Launched;
use crate::tune::measure::{TunePlan, measure};
use crate::tune::report::Report;
use crate::tune::{Setting, curves, steps};
use crate::{catalog, epoch, library, machine, output};
use lockwright_energy::Source;
use lockwright_numbers::units;
use lockwright_observer::{elf, find};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Run a program with a range of SLOs, plot throughput and latency, and recommend an SLO
///
/// A run's SLO applies to all epochs of the program, annotated ones and those of --epoch. DIR gets tune.html,
/// tune.svg, tune.json, tune.csv, and the program's output in tune.log.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright tune --slo-range 20us..2ms --steps 12 --time 5s -- ./server
  lockwright tune --slo-range 50us..5ms --epoch get=leveldb_get -- ./db_bench
  lockwright tune --slo-range 20us..2ms --emulate big:0,little:1x3.75 -- ./app

Ctrl-C ends the measurement and reports what was measured so far (exit code
130).")]
pub(crate) struct Args {
    /// Smallest and largest SLO, such as 20us..2ms
    #[arg(long, value_name = "FROM..TO")]
    slo_range: String,
    /// SLOs to try in that range, both ends included
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    steps: u32,
    /// Rounds; every round runs every setting once
    #[arg(long, alias = "runs", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// End each run after this time, such as 500ms; without a unit: seconds
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    time: Option<f64>,
    /// Make each call of an exported function an epoch, NAME=FUNCTION[@pPERCENTILE]
    #[arg(long = "epoch", value_name = "EPOCH")]
    epochs: Vec<String>,
    /// The lock to tune
    #[arg(long, value_name = "LOCK", default_value = "asl", value_parser = catalog::SPEC,
          hide_possible_values = true)]
    lock: String,
    /// Other locks to measure beside it, separated by commas; none: ''
    #[arg(long, value_name = "LOCKS", default_value = "fifo,barging")]
    compare: String,
    /// Emulate a machine with slower cores, such as big:0,little:1x3.75
    #[arg(long, value_name = "CLASSES", conflicts_with = "topology")]
    emulate: Option<String>,
    /// Classes of cores, fastest first, such as big:0-3,little:4-7
    #[arg(long, value_name = "CLASSES")]
    topology: Option<String>,
    /// Where the report goes
    #[arg(long = "output", alias = "out", value_name = "DIR", default_value = "tune")]
    out: PathBuf,
    /// Show throughput, latency and energy together, and mark the settings that no other setting beats;
    /// DIR gets tune-pareto.svg
    #[arg(long)]
    pareto: bool,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    program: Launched,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let (low, high) = slo_range(&args.slo_range)?;
    let limit = args.time.map(limit).transpose()?;
    catalog::check(&args.lock)?;
    let compared = catalog::split(&args.compare);
    for lock in &compared {
        catalog::check(lock).map_err(|failure| failure.within("--compare: "))?;
    }
    if let Some(spec) = &args.topology {
        topology::check(spec)?;
    }
    if let Some(spec) = &args.emulate {
        topology::check_emulation(spec, "--emulate")?;
    }
    let epochs: Vec<_> =
        args.epochs.iter().map(|flag| with_slo(flag, low)).collect::<Result<_, _>>()?;
    let epochs = epoch::read(&epochs, true)?;
    let (name, arguments) = args.program.command.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    let file = elf::inspect(&path)?;
    run::refuse(&file)?;
    let epochs = epoch::resolve(&epochs, &file)?;
    let under = run::under(&library::find(args.program.library.as_deref())?);
    fs::create_dir_all(&args.out).map_err(|error| {
        Failure::new(format!("cannot make '{}': {}", args.out.display(), cause(&error)))
            .hint("lockwright tune --output DIR ...")
    })?;

    // Other locks ignore the SLO, but the flag needs a value.
    let middle = ((low as f64) * (high as f64)).sqrt() as u64;
    let command = |setting: &Setting| {
        let (lock, slo) = match setting {
            Setting::Slo(ns) => (&args.lock, *ns),
            Setting::Lock(lock) => (lock, middle),
        };
        let mut command = Command::new(&path);
        command.arg0(name).args(arguments).envs(under.clone());
        command.env(run::LOCK, lock).env(run::SLO, slo.to_string());
        if !epochs.is_empty() {
            command.env(epoch::VARIABLE, &epochs);
        }
        if let Some(spec) = &args.emulate {
            command.env(EMULATE, spec);
        }
        if let Some(spec) = &args.topology {
            command.env(topology::VARIABLE, spec).env_remove(EMULATE);
        }
        command
    };
    let settings: Vec<_> = compared
        .into_iter()
        .map(Setting::Lock)
        .chain(steps(low, high, args.steps).into_iter().map(Setting::Slo))
        .collect();
    let program = name.to_string_lossy();
    let machine = lockwright_bench::Machine::here();
    if machine.load > 0.5 {
        warn(
            format!("other programs compete for the CPUs (load average {:.1})", machine.load),
            "stop other programs first",
        );
    }
    let energy = Source::here(machine::watts());
    let measured = measure(&TunePlan {
        settings: &settings,
        rounds: args.rounds,
        limit,
        command: &command,
        program: &program,
        energy: &energy,
        log: &args.out.join("tune.log"),
        quiet: args.quiet,
    })?;
    if measured.runs.is_empty() {
        return match measured.failure {
            Some(failure) => Err(failure),
            None => {
                output::say("interrupted before the first run was complete: nothing to report\n");
                if limit.is_none() {
                    output::say("hint: does the program run forever? --time 5 ends each run\n");
                }
                Ok(ExitCode::from(INTERRUPTED))
            }
        };
    }

    let emulated = measured.runs.iter().find_map(|run| run.record.emulated.clone());
    let spec = emulated.clone().or_else(|| args.topology.clone());
    let names = ClassNames::new(spec.or_else(topology::from_environment).as_deref());
    let curves = curves(&settings, &measured.runs, &names);
    let report = Report {
        lock: &args.lock,
        emulated,
        machine,
        command: lockwright_bench::command_line(),
        program: program.rsplit('/').next().unwrap_or(&program),
        settings: &settings,
        rounds: args.rounds,
        runs: &measured.runs,
        curves: &curves,
        names: &names,
        energy: &energy,
        pareto: args.pareto,
        incomplete: match (&measured.failure, measured.interrupted) {
            (Some(_), _) => Some("a run failed"),
            (None, true) => Some("interrupted"),
            (None, false) => None,
        },
    };
    let files = report.write(&args.out)?;
    output::print(&report.text())?;
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    output::print(&format!("\n{}", output::beside("written: ", &files.join(" "))))?;
    match measured.failure {
        Some(failure) => Err(failure),
        None if measured.interrupted => Ok(ExitCode::from(INTERRUPTED)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn slo_range(text: &str) -> Result<(u64, u64), Failure> {
    let bad = |why: String| {
        Failure::new(format!("bad --slo-range '{text}': {why}"))
            .hint("for example --slo-range 20us..2ms")
    };
    let (low, high) = text.split_once("..").ok_or_else(|| bad("no '..' in it".into()))?;
    let end = |word: &str| {
        units::nanoseconds(word.trim()).map_err(|why| bad(format!("'{}': {why}", word.trim())))
    };
    match (end(low)?, end(high)?) {
        (low, high) if low <= high => Ok((low, high)),
        _ => Err(bad("it goes backwards".into())),
    }
}

pub(super) fn limit(seconds: f64) -> Result<Duration, Failure> {
    if (0.01..=86_400.0).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Failure::new(format!("bad --time '{seconds}s': not within 10ms to 24 hours"))
        .hint("for example --time 5s"))
}

/// Converts `NAME=FUNCTION[@pPERCENTILE]` to `run --epoch`'s form, which includes an SLO. Each run overrides that SLO.
fn with_slo(text: &str, slo_ns: u64) -> Result<String, Failure> {
    let (function, percentile) = text.split_once('@').map_or((text, None), |(f, p)| (f, Some(p)));
    if function.replace("::", "").contains(':') {
        return Err(Failure::new(format!("epoch '{text}' has an SLO: --slo-range gives the SLOs"))
            .hint("for example --epoch get=leveldb_get, or --epoch get=leveldb_get@p99.9"));
    }
    let percentile = percentile.map_or(String::new(), |percentile| format!("@{percentile}"));
    Ok(format!("{function}:{slo_ns}ns{percentile}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_get_an_slo() {
        let at = |text| with_slo(text, 20_000).map_err(|failure| failure.to_string());
        assert_eq!(at("get=leveldb_get").unwrap(), "get=leveldb_get:20000ns");
        assert_eq!(at("get=db::get@p99.9").unwrap(), "get=db::get:20000ns@p99.9");
        assert!(at("get=f:20us").unwrap_err().contains("has an SLO"));
    }
}
