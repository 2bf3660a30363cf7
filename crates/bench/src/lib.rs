//! `lockwright bench`: locks measured side by side in one run.
//!
//! ```text
//!  args ─► plan (subjects x rows) ─► run ─► child ═══ process ═══ worker ─► subject (any lock)
//!                                     │                              compute (work that takes time)
//!                                     └─► stats ─► report, plot, suite (bars)
//! ```
//!
//! Each measurement is a process of its own, and the same program for every lock: glibc's, ours and a
//! peer's by LD_PRELOAD, `parking_lot`, `std` and the catalogue compiled in. docs/bench.md has the
//! definitions and the reasons.

mod child;
mod compute;
mod names;
mod plot;
mod progress;
mod report;
mod run;
mod spec;
mod stats;
mod subject;
mod subject_list;
mod suite;
mod system;
mod worker;

pub use compute::calibrate as turns_per_ns;
pub use names::Names;
pub use progress::progress;
pub use report::{si, time};
pub use stats::Spread;
pub use system::{Machine, catch_interrupts, cpus, interrupted, line_transfer_between, pin_to};

use anyhow::{Context, Error, Result, bail};
use run::{Plan, Row};
use spec::{Length, Point, Work};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use subject_list::{Subject, plain};

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Lock, critical section, unlock, gap.
    Mutex,
    /// Nobody competes: in a process with two threads, and with one.
    Uncontended,
    /// A bounded queue: a mutex and two condition variables.
    Queue,
    /// A barrier made of a mutex and a broadcast.
    Barrier,
    /// As mutex, with trylock.
    Trylock,
    /// As mutex, with a deadline.
    Timedlock,
    /// Readers and writers.
    Rwlock,
    /// Bytes per lock.
    Memory,
    /// Who overtakes whom.
    Order,
    /// Epochs of four critical sections under two locks, with a latency SLO.
    Epoch,
}

/// A named set of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SuiteName {
    /// What the project promises, each with its bar; exit code 1 if one is missed.
    Bars,
    /// What it promises of asl, on emulated little cores where the machine has none.
    Asl,
}

/// Whether threads are bound to CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pin {
    /// Not.
    No,
    /// Thread i to CPU i, modulo CPUs.
    Yes,
    /// Both, one point each.
    Both,
}

/// The SLO of epochs that are given none.
const DEFAULT_SLO_NS: u64 = 100_000;

/// Measure locks side by side in one run
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Locks: NAME[:key=value,...] through the preload, in:NAME in process, glibc, \
parking_lot, std, all.\nThe reference, glibc, always runs. Figures are real, of this machine, or say that they are emulated."
)]
pub struct Args {
    /// Locks, separated by spaces or by one --lock each
    #[arg(long = "lock", value_name = "LOCK", num_args = 1.., value_parser = names::LOCKS,
          hide_possible_values = true)]
    locks: Vec<String>,

    /// Another library that replaces pthread locks, measured by LD_PRELOAD
    #[arg(long = "peer", value_name = "NAME=LIBRARY")]
    peers: Vec<String>,

    /// A named set of points instead of a grid
    #[arg(long, value_name = "NAME", conflicts_with_all = ["workloads", "threads", "cs", "gap", "lines", "length", "pin"])]
    suite: Option<SuiteName>,

    /// What the threads do
    #[arg(long = "workload", value_name = "NAME", value_delimiter = ',', default_value = "mutex")]
    workloads: Vec<Workload>,

    /// Threads that compete
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,8",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,

    /// Mean length of the critical section in nanoseconds
    #[arg(long, value_name = "NS", value_delimiter = ',', default_value = "100",
          value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    cs: Vec<u32>,

    /// Mean length of the gap between critical sections in nanoseconds
    #[arg(long, value_name = "NS", value_delimiter = ',', default_value = "400",
          value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    gap: Vec<u32>,

    /// How lengths vary around their mean
    #[arg(long, value_name = "HOW", default_value = "exponential")]
    length: Length,

    /// Cache lines that the critical section writes besides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    lines: u32,

    /// Bind threads to CPUs
    #[arg(long, value_name = "WHETHER", default_value = "no", num_args = 0..=1, default_missing_value = "yes")]
    pin: Pin,

    /// Per cent of reads (workload rwlock)
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: u32,

    /// Time until the deadline in microseconds (workload timedlock)
    #[arg(long, value_name = "US", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    timeout: u32,

    /// Latency SLOs of the epochs, as 20us or 1ms (workload epoch) [default: 100us]
    #[arg(long, value_name = "TIME", value_delimiter = ',', conflicts_with = "suite", value_parser = names::duration)]
    slo: Vec<u64>,

    /// Locks that an epoch's critical sections take in turns, 1 or 2 (workload epoch) [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "suite", value_parser = clap::value_parser!(u32).range(1..=2))]
    locks_per_epoch: Option<u32>,

    /// Emulate slower cores: classes with factors, as in big:0,little:1x3.75 (docs/emulation.md)
    #[arg(long, value_name = "CLASSES", conflicts_with = "suite")]
    emulate: Option<String>,

    /// Producers and consumers (workload queue)
    #[arg(long, value_name = "P:C", value_delimiter = ',', default_value = "1:1,4:4")]
    pairs: Vec<String>,

    /// Locks in memory (workload memory)
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// Length of one measurement in seconds
    #[arg(long, value_name = "S", default_value_t = 0.4)]
    time: f64,

    /// Repetitions
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,

    /// Seed of the lengths
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Leave out the pass that takes the time of each wait
    #[arg(long)]
    no_latency: bool,

    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write every measurement as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write throughput.svg and latency.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Write all of that and a README that names machine, date and command
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print all columns (the CSV and JSON files have them always)
    #[arg(long)]
    wide: bool,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,

    /// (internal) Be the worker for one measurement
    #[arg(long, hide = true, value_name = "JSON")]
    worker: Option<String>,
}

/// Runs the command; `library` is the liblockwright.so to preload, or why there is none.
///
/// The worker processes are the program itself, called as `PROGRAM bench --worker JSON`: the program's
/// `bench` subcommand must come here.
pub fn main(args: Args, library: Result<PathBuf, String>) -> Result<ExitCode> {
    if let Some(spec) = &args.worker {
        worker::main(spec)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !(0.001..=600.0).contains(&args.time) {
        bail!(
            "'{}' is no length of a measurement\nhint: --time 0.4, from 0.001 to 600 seconds",
            args.time
        );
    }
    // Writing comes last; that it will fail should be said first.
    for dir in [&args.svg, &args.out].into_iter().flatten() {
        std::fs::create_dir_all(dir).map_err(|cause| unwritable(dir, &cause))?;
    }
    let json = args.json.as_deref().map(create).transpose()?;
    let csv = args.csv.as_deref().map(create).transpose()?;

    let (plan, suite) = plan(&args, library.as_deref().map_err(String::as_str))?;
    let machine = Machine { origin: report::origin(&plan.rows), ..Machine::here() };
    let measured = run::run(&plan, args.quiet)?;
    let summaries = run::summarise(&plan, &measured);
    let verdicts = suite.as_ref().map(|s| suite::judge(s, &plan, &measured)).unwrap_or_default();

    let text = |wide| {
        if measured.samples.is_empty() {
            let nothing = "interrupted before the first group was complete: nothing to show";
            return format!("{}\n\n{nothing}\n", machine.line());
        }
        let mut text = format!("{}\n\n{}", machine.line(), report::tables(&plan, &summaries, wide));
        if !verdicts.is_empty() {
            text += &format!("\n{}\n", report::bars(&verdicts));
        }
        text + &format!("\n{}\n", report::notes(&plan, &measured, &machine).join("\n"))
    };
    print!("{}", text(args.wide));

    let whole = report::Report {
        origin: machine.origin,
        machine: &machine,
        command: command_line(),
        subjects: &plan.subjects,
        rows: &plan.rows,
        reps: plan.reps,
        time_s: plan.time_s,
        seed: plan.seed,
        measured: &measured,
        summaries: &summaries,
        verdicts: &verdicts,
    };
    if let Some(file) = json {
        serde_json::to_writer_pretty(file, &whole).context("cannot write the JSON file")?;
    }
    if let Some(file) = csv {
        report::raw_csv(&plan, &measured, file)?;
    }
    let draw = |dir: &Path| -> Result<Vec<String>> {
        let mut drawn = Vec::new();
        if plot::throughput(&plan, &summaries, &machine, &dir.join("throughput.svg"))? {
            drawn.push("throughput.svg".into());
        }
        if plot::latency(&plan, &summaries, &machine, &dir.join("latency.svg"))? {
            drawn.push("latency.svg".into());
        }
        Ok(drawn)
    };
    if let Some(dir) = &args.svg {
        draw(dir)?;
    }
    if let Some(dir) = &args.out {
        let plots = draw(dir)?;
        report::raw_csv(&plan, &measured, create(&dir.join("raw.csv"))?)?;
        report::summary_csv(&plan, &summaries, create(&dir.join("summary.csv"))?)?;
        serde_json::to_writer_pretty(create(&dir.join("results.json"))?, &whole)?;
        let page = dir.join("README.md");
        std::fs::write(&page, report::readme(&whole, &text(true), &plots))
            .map_err(|cause| unwritable(&page, &cause))?;
    }
    Ok(if run::ours_failed(&plan, &measured) {
        ExitCode::from(2)
    } else if measured.interrupted {
        ExitCode::from(130)
    } else if verdicts.iter().any(|v| v.met == Some(false)) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).map_err(|cause| unwritable(path, &cause))?))
}

fn unwritable(path: &Path, cause: &std::io::Error) -> anyhow::Error {
    let path = path.display();
    anyhow::anyhow!("cannot write '{path}': {}\nhint: ls -ld \"$(dirname '{path}')\"", plain(cause))
}

/// The command as typed, the program by its name only: folders are nobody's business.
pub fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or("lockwright").to_owned();
    let shown = |word: String| match word.rsplit_once('/') {
        Some((_, last)) => last.to_owned(),
        None => word,
    };
    std::iter::once(name).chain(words.map(shown)).collect::<Vec<_>>().join(" ")
}

fn plan(args: &Args, library: Result<&Path, &str>) -> Result<(Plan, Option<suite::Suite>)> {
    if let Some(spec) = &args.emulate {
        system::check_emulation(spec)?;
    }
    let points = points(args)?;
    let mut chosen = Vec::new();
    for name in args.locks.iter().flat_map(|l| l.split_whitespace()) {
        match name {
            "all" => chosen.extend(Subject::all(library)?),
            _ => chosen.push(Subject::parse(name, library)?),
        }
    }
    for peer in &args.peers {
        chosen.push(Subject::parse_peer(peer)?);
    }
    let finish = |subjects, rows| Plan {
        subjects,
        rows,
        reps: args.reps,
        time_s: args.time,
        seed: args.seed,
    };
    if args.suite.is_some() {
        let library = library.map_err(|why| Error::msg(why.to_owned()))?;
        let mut suite = match args.suite {
            Some(SuiteName::Asl) => suite::asl(library)?,
            _ => suite::bars(library, &chosen)?,
        };
        if args.no_latency {
            bail!("the bars need the latency pass\nhint: leave out --no-latency");
        }
        let plan = finish(std::mem::take(&mut suite.subjects), std::mem::take(&mut suite.rows));
        return Ok((plan, Some(suite)));
    }
    if args.locks.is_empty() {
        let defaults = Subject::defaults(library)?.into_iter();
        chosen.splice(0..0, defaults.filter(|s| args.emulate.is_none() || s.preload.is_some()));
    }
    let mut subjects = vec![Subject::glibc()];
    if args.emulate.is_some() {
        if let Some(free) = chosen.iter().find(|s| s.preload.is_none()) {
            bail!(
                "'{}' can't be emulated: only what the preload sees is slowed\nhint: --lock fifo asl",
                free.name
            );
        }
        let library = library.map_err(|why| Error::msg(why.to_owned()))?;
        subjects = vec![Subject::glibc_emulated(library)];
    }
    for subject in chosen {
        if subjects.iter().all(|s| s.name != subject.name) {
            subjects.push(subject);
        }
    }
    let everybody: Vec<usize> = (0..subjects.len()).collect();
    let rows = points.into_iter().map(|point| Row { point, subjects: everybody.clone() }).collect();
    Ok((finish(subjects, rows), None))
}

/// The grid: workloads x threads x critical sections x gaps x pinned or not.
fn points(args: &Args) -> Result<Vec<Point>> {
    let pins: &[bool] = match args.pin {
        Pin::No => &[false],
        Pin::Yes => &[true],
        Pin::Both => &[false, true],
    };
    let mut pairs = Vec::new();
    for text in &args.pairs {
        let pair = text.split_once(':').and_then(|(p, c)| Some((p.parse().ok()?, c.parse().ok()?)));
        match pair {
            Some((p, c)) if (1..=512).contains(&p) && (1..=512).contains(&c) => pairs.push((p, c)),
            _ => bail!("'{text}' is not producers:consumers\nhint: --pairs 1:1,4:4"),
        }
    }
    let epochs = args.workloads.contains(&Workload::Epoch);
    for (given, flag, what) in [
        (!args.slo.is_empty(), "--slo", "an SLO"),
        (args.locks_per_epoch.is_some(), "--locks-per-epoch", "epochs"),
    ] {
        if given && !epochs {
            bail!("{flag}: none of these workloads has {what}\nhint: --workload epoch");
        }
    }
    let slos = if args.slo.is_empty() { &[DEFAULT_SLO_NS] } else { &args.slo[..] };
    let mut points = Vec::new();
    for workload in &args.workloads {
        for &pin in pins {
            let point = |work, threads, cs_ns, gap_ns| Point {
                work,
                threads,
                cs_ns,
                gap_ns,
                length: args.length,
                lines: args.lines,
                pin,
                latency: false,
                emulate: args.emulate.clone(),
            };
            let mut grid = |work: Work, latency: bool| {
                for &threads in &args.threads {
                    for &cs in &args.cs {
                        for &gap in &args.gap {
                            let latency = latency && !args.no_latency;
                            points.push(Point { latency, ..point(work.clone(), threads, cs, gap) });
                        }
                    }
                }
            };
            match workload {
                Workload::Mutex => grid(Work::Mutex, true),
                Workload::Trylock => grid(Work::Trylock, false),
                Workload::Timedlock => grid(Work::Timedlock { timeout_us: args.timeout }, true),
                Workload::Rwlock => grid(Work::Rwlock { reads: args.reads }, false),
                Workload::Order => grid(Work::Order { grace_ns: 1000 }, false),
                Workload::Epoch => {
                    let locks = args.locks_per_epoch.unwrap_or(2);
                    for &slo_ns in slos {
                        grid(Work::Epoch { slo_ns, locks }, false);
                    }
                }
                Workload::Uncontended => points.extend(
                    [true, false]
                        .map(|second_thread| point(Work::Uncontended { second_thread }, 1, 0, 0)),
                ),
                Workload::Queue => {
                    points.extend(pairs.iter().flat_map(|&(producers, consumers)| {
                        let work = Work::Queue { producers, consumers };
                        args.gap
                            .iter()
                            .map(move |&gap| point(work.clone(), producers + consumers, 0, gap))
                    }))
                }
                Workload::Barrier => points.extend(args.threads.iter().flat_map(|&threads| {
                    args.gap.iter().map(move |&gap| point(Work::Barrier, threads, 0, gap))
                })),
                Workload::Memory => points.extend([false, true].map(|contended| {
                    point(Work::Memory { locks: args.count, contended }, 2, 0, 0)
                })),
            }
        }
    }
    Ok(points)
}
