//! `lockwright sim`.

use crate::format::FormatFlags;
use crate::hints::{Failure, cause};
use crate::sim::plan::{Asked, Plan};
use crate::sim::words::{machine, workload_named};
use crate::sim::{SeedRuns, list, perfetto, replay, report, source};
use crate::{interrupt, launch, output, shards};
use indicatif::ProgressBar;
use lockwright_files::read_file;
use lockwright_numbers::format::{si, time};
use lockwright_shards::{Flags, Merge};
use lockwright_sim::batch::try_each;
use lockwright_sim::{Kept, Outcome};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

/// Maximum number of entries in a timeline: Perfetto opens this many in a few seconds.
const TIMELINE: usize = 300_000;

/// Simulate locks on another machine
///
/// The locks' own source runs on a model of a machine; the same seed gives the same run. Every combination of machines,
/// workloads, threads, sweeps, locks and seeds is a run. Runs use all CPUs in parallel.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright sim --machine m1 --lock mcs,tas,asl-mcs --threads 1..8
  lockwright sim --machine m1 --lock mcs,tas --sweep gap=0,100..100k:7:log
  lockwright sim --machine m1,xeon-2x10 --lock all --seeds 3 --output sim
  lockwright sim --machine m1 --lock tas --sweep memory.occupancy=0.3..1:8
  lockwright sim --machine m1 --lock asl --seed 1 --timeline asl.json
  lockwright sim --machine m1 --lock mcs,fifo --workload bench:gap=0 --transfers
  lockwright sim --machine m1 --lock asl,glibc --trace lockwright-trace.bin
  lockwright sim --machine m1 --lock all --shard 1/8 --output shards
  lockwright sim --list

Values: A,B,...; LOW..HIGH:N for N equal steps, LOW..HIGH:N:log for N equal
ratios; numbers may end in k, M or G. DIR gets report.html, throughput.svg,
latency.svg, energy.svg, results.json and results.csv.
Figures are simulated. Exit code 1: a check such as mutual exclusion failed; a
line on standard error says which one, and how to repeat it.")]
pub(crate) struct Args {
    /// Locks, NAME[:key=value,...], policy:NAME, or all
    #[arg(long = "lock", value_name = "LOCKS")]
    locks: Vec<String>,
    /// Machines: names (--list) or profiles in TOML
    #[arg(long = "machine", value_name = "MACHINES")]
    machines: Vec<String>,
    #[command(flatten)]
    study: Study,
    #[command(flatten)]
    shards: Flags,
    #[command(flatten)]
    format: FormatFlags,
    /// Write what each core did in the first seed's run there, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shard", "resume"])]
    timeline: Option<PathBuf>,
    /// Count the transfers of cache lines on the way from a holder's unlock to the next holder's section
    #[arg(long)]
    transfers: bool,
    /// List machines and workloads, or describe the named ones
    #[arg(long, conflicts_with_all = ["trace", "transfers"])]
    list: bool,
    /// Names without their flag: taken only to say which flag is missing
    #[arg(hide = true)]
    stray: Vec<String>,
    /// Print the simulator's speed to standard error
    #[arg(long, conflicts_with_all = ["shard", "resume"])]
    speed: bool,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

// No doc comment: clap would show it instead of the command's.
#[derive(clap::Args)]
pub(crate) struct Study {
    /// What the threads do, NAME[:key=value,...] [default: sections]
    #[arg(long = "workload", value_name = "WORKLOADS")]
    workloads: Vec<String>,
    /// Replay a trace of `lockwright profile --record` instead of a workload
    #[arg(long, value_name = "FILE", conflicts_with = "workloads")]
    trace: Option<PathBuf>,
    /// How many threads: 1,4,8 or 1..8 or max (one per CPU) [default: max, or as in the trace]
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// Where they run: pinned (fastest CPUs first), free (the scheduler moves them), or CPUs such as 0-3,6
    #[arg(long, value_name = "WHERE", default_value = "pinned")]
    placement: String,
    /// How many seeds to run: 1, 2, ...
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "seed",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Run these seeds
    #[arg(long, value_name = "SEED", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Simulated time to measure [default: 20ms; for a trace its length, at most 1s]
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Simulated time before the measurement; 0: none [default: 2ms; for a trace 0]
    #[arg(long, value_name = "TIME")]
    warmup: Option<String>,
    /// Vary the threads, an option of workload or lock, or a figure of the machine; repeat it to run every
    /// combination
    #[arg(long = "sweep", value_name = "KEY=VALUES")]
    sweeps: Vec<String>,
    /// Write report, plots and data there
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Runs a study without shards: of `policy run`.
pub(crate) fn run(
    locks: Vec<String>,
    machines: Vec<String>,
    study: Study,
    format: FormatFlags,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let args = Args {
        locks,
        machines,
        study,
        shards: Flags::default(),
        format,
        timeline: None,
        transfers: false,
        list: false,
        stray: Vec::new(),
        speed: false,
        quiet,
    };
    main(args, None)
}

pub(crate) fn main(mut args: Args, merged: Option<Merge>) -> Result<ExitCode, Failure> {
    if let Some(merged) = &merged {
        if args.list || args.timeline.is_some() {
            return Err(shards::refused("sim with --list or --timeline"));
        }
        args.study.output = merged.output().map(Path::to_owned);
    }
    if let Some(word) = args.stray.first() {
        let failure = Failure::new(format!("unexpected argument '{word}' found"));
        return Err(match (machine(word), workload_named(word)) {
            (Ok(_), _) => failure.hint(format!("lockwright sim --machine {word} --list")),
            (_, Ok(_)) => failure.hint(format!("lockwright sim --workload {word} --list")),
            _ => failure.hint("lockwright sim --help"),
        });
    }
    if args.list {
        list::print(&args.machines, &args.study.workloads, args.format.is_json())?;
        return Ok(ExitCode::SUCCESS);
    }
    list::required(&args.locks, &args.machines)?;
    let recorded = match &args.study.trace {
        Some(file) => Some((replay::read(file)?, file.display().to_string())),
        None => None,
    };
    let sections = ["sections".to_owned()];
    let mut plan = Plan::new(&Asked {
        locks: &args.locks,
        machines: &args.machines,
        workloads: if args.study.workloads.is_empty() { &sections } else { &args.study.workloads },
        trace: recorded.as_ref().map(|(recorded, file)| (recorded, file.clone())),
        threads: args.study.threads.as_deref(),
        placement: &args.study.placement,
        seeds: if args.study.seed.is_empty() {
            (1..=args.study.seeds).collect()
        } else {
            distinct(&args.study.seed)
        },
        warmup: args.study.warmup.as_deref(),
        duration: args.study.duration.as_deref(),
        sweeps: &args.study.sweeps,
        transfers: args.transfers,
    })?;
    if args.timeline.is_some() {
        if plan.rows.len() > 1 {
            return Err(Failure::new(format!(
                "--timeline shows one run, not {} points",
                plan.rows.len()
            ))
            .hint("give one lock, one machine, one number of threads, no --sweep"));
        }
        plan.runs[0].timeline = Some(TIMELINE);
    }
    // The files are written last. If that will fail, say so first.
    if let Some(dir) = &args.study.output {
        launch::can_fill(dir).map_err(|error| unmakable(dir, &error))?;
    }
    if let Some(file) = &args.timeline {
        launch::can_write(file).map_err(|error| unwritable(file, &error))?;
    }

    let trace = args
        .study
        .trace
        .as_ref()
        .map(|file| read_file(file, u64::MAX >> 1).map_err(|e| unreadable(file, &e)));
    let inputs = plan.inputs(trace.transpose()?);
    let session = shards::session(&args.shards, args.study.output.as_deref(), merged, inputs)?;
    let jobs = plan.jobs();
    let bar = lockwright_bench::progress(0, "runs", args.quiet);
    let done =
        |bar: &ProgressBar| format!("{} of {} runs", bar.position(), bar.length().unwrap_or(0));
    let interrupts = interrupt::Watch::new(&bar, done, session.resume());
    let began = lockwright_bench::cpu_time();
    let outcomes = session.results(&jobs, |left, keep| {
        bar.inc_length(left.len() as u64);
        try_each(&plan.runs, left, |place, outcome| {
            keep(place, Kept::from(outcome))?;
            bar.inc(1);
            Ok(())
        })
    });
    let took = lockwright_bench::cpu_time().saturating_sub(began);
    interrupts.over();
    bar.finish_and_clear();
    let Some(outcomes) = outcomes.map_err(shards::failure)? else {
        output::print(&session.summary())?;
        return Ok(ExitCode::SUCCESS);
    };
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Outcome::from).collect();
    if args.speed {
        output::say(&speed(&outcomes, took));
    }

    let rows = SeedRuns::all(&plan, &outcomes);
    let command = shards::command(&session);
    if args.format.is_json() {
        output::print_json(&report::json(&plan, &rows, &command)?)?;
    } else {
        output::print(&report::text(&plan, &rows))?;
    }
    let mut written = Vec::new();
    if let Some(dir) = &args.study.output {
        fs::create_dir_all(dir).map_err(|error| unmakable(dir, &error))?;
        written = report::write(&plan, &rows, &command, dir)?;
    }
    if let Some(file) = &args.timeline
        && let Some(timeline) = &outcomes[0].timeline
    {
        let trace = perfetto::trace(&plan.runs[0], &source(&plan), timeline);
        write(file, &trace.to_string())?;
        written.push(file.clone());
        if timeline.dropped > 0 {
            crate::hints::warn(
                format!(
                    "the timeline has its first {TIMELINE} entries; {} more were left out",
                    timeline.dropped
                ),
                "a shorter run fits: --duration 1ms",
            );
        }
    }
    if !written.is_empty() && !args.format.is_json() {
        let names: Vec<_> = written.iter().map(|file| file.display().to_string()).collect();
        output::print(&format!("\n{}", output::beside("written: ", &names.join(" "))))?;
    }
    let violations = report::violations(&plan, &rows);
    for line in &violations {
        output::say(&format!("violation: {line}\n"));
    }
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// How fast the simulator was, on one core of the real machine.
fn speed(outcomes: &[Outcome], took: Duration) -> String {
    let seconds = took.as_secs_f64().max(1e-6);
    let count = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    let (events, steps) = (count(|one| one.events), count(|one| one.steps));
    format!(
        "simulator (real): {} of CPU time; {} events/s per core, {} steps/s\n",
        time(seconds * 1e9),
        si(events / seconds),
        si(steps / seconds),
    )
}

fn distinct(seeds: &[u64]) -> Vec<u64> {
    let mut all = Vec::new();
    for seed in seeds {
        if !all.contains(seed) {
            all.push(*seed);
        }
    }
    all
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    lockwright_files::write(file, text).map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write '{}': {}", file.display(), cause(error)))
        .hint("--timeline FILE.json, in an existing folder")
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot read '{}': {}", file.display(), cause(error)))
        .hint(format!("ls -ld '{}'", file.display()))
}

fn unmakable(dir: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write to '{}': {}", dir.display(), cause(error)))
        .hint("--output sim-report, or any folder that exists or can be made")
}
