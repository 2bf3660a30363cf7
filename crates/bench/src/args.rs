//! The command line.

use crate::names;
use crate::point::{Call, Length};
use lockwright_numbers::units;
use std::path::PathBuf;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Lock, critical section, unlock, gap.
    Mutex,
    /// No contention, in a process with two threads and with one.
    Uncontended,
    /// A bounded queue: a mutex and two condition variables.
    Queue,
    /// A barrier: a mutex and a broadcast.
    Barrier,
    /// Like mutex, with trylock.
    Trylock,
    /// Like mutex, with a deadline.
    Timedlock,
    /// Several mutexes, and several ways to lock one, drawn at random.
    Calls,
    /// Readers and writers.
    Rwlock,
    /// Bytes per lock.
    Memory,
    /// The order of service: which threads overtake which.
    Order,
    /// Epochs of four critical sections under two locks, with a latency SLO.
    Epoch,
}

/// A named set of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SuiteName {
    /// The project's promises for its default lock, with a bar for each. Exit code 1 if a bar is missed.
    Bars,
    /// The promises for asl, with emulated little cores if the machine has none.
    Asl,
}

/// A number from 0 to 100, in steps of 0.1.
fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let tenths = (value * 10.0).round() / 10.0;
    match (0.0..=100.0).contains(&value) && (tenths - value).abs() < 1e-9 {
        true => Ok(tenths),
        false => Err("not 0 to 100 in steps of 0.1".to_owned()),
    }
}

/// Are threads bound to CPUs?
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pin {
    /// No.
    No,
    /// Thread i to CPU i, modulo CPUs.
    Yes,
    /// Both, one point each.
    Both,
}

/// Nanoseconds, at most 100 ms; a number without a unit is of those.
fn length(text: &str) -> Result<u32, String> {
    let ns = match text.parse() {
        Ok(ns) => ns,
        Err(_) => units::nanoseconds(text)?,
    };
    match u32::try_from(ns) {
        Ok(ns @ 0..=100_000_000) => Ok(ns),
        _ => Err("not within 0 to 100ms".into()),
    }
}

/// Microseconds, at most a second; a number without a unit is of those.
fn timeout_us(text: &str) -> Result<u32, String> {
    let us = match text.parse() {
        Ok(us) => us,
        Err(_) => units::nanoseconds(text)?.div_ceil(1000),
    };
    match u32::try_from(us) {
        Ok(us @ 1..=1_000_000) => Ok(us),
        _ => Err("not within 1us to 1s".into()),
    }
}

/// Measure locks side by side in one run
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Locks: NAME[:key=value,...] through the preload, in:NAME in process, glibc, \
parking_lot, std, all.\nThe reference, glibc, always runs. Figures are real, from this machine, unless marked emulated."
)]
pub struct Args {
    /// Locks, separated by spaces or commas
    #[arg(long = "lock", value_name = "LOCK", num_args = 1.., value_parser = names::LOCKS,
          hide_possible_values = true)]
    pub(crate) locks: Vec<String>,

    /// Another library that replaces pthread locks, measured by LD_PRELOAD
    #[arg(long = "peer", value_name = "NAME=LIBRARY")]
    pub(crate) peers: Vec<String>,

    /// A named set of points instead of a grid
    #[arg(long, value_name = "NAME", conflicts_with_all = ["workloads", "threads", "cs", "gap", "lines", "length", "pin", "hogs"])]
    pub(crate) suite: Option<SuiteName>,

    /// What the threads do
    #[arg(long = "workload", value_name = "NAME", value_delimiter = ',', default_value = "mutex")]
    pub(crate) workloads: Vec<Workload>,

    /// Threads that compete
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,8",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Vec<u32>,

    /// Mean length of the critical section, such as 2us; without a unit: ns
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "100ns", value_parser = length)]
    pub(crate) cs: Vec<u32>,

    /// Mean length of the gap between critical sections, such as 2us; without a unit: ns
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "400ns", value_parser = length)]
    pub(crate) gap: Vec<u32>,

    /// How lengths vary around their mean
    #[arg(long, value_name = "HOW", default_value = "exponential")]
    pub(crate) length: Length,

    /// Cache lines that the critical section writes
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(crate) lines: u32,

    /// Bind threads to CPUs
    #[arg(long, value_name = "WHETHER", default_value = "no", num_args = 0..=1, default_missing_value = "yes")]
    pub(crate) pin: Pin,

    /// Measure beside N hogs: other processes that compute all the time
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(crate) hogs: Vec<u32>,

    /// Share of reads in per cent, separated by commas (workload rwlock)
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "90", value_parser = percent)]
    pub(crate) reads: Vec<f64>,

    /// Ways to lock a mutex, one drawn per operation (workload calls) [default: all]
    #[arg(long, value_name = "WAY", value_delimiter = ',', conflicts_with = "suite")]
    pub(crate) calls: Vec<Call>,

    /// Mutexes, one drawn per operation (workload calls) [default: 6]
    #[arg(long, value_name = "N", conflicts_with = "suite", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) mutexes: Option<u32>,

    /// Time until the deadline, such as 60us (workload timedlock); at most that (workload calls)
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = timeout_us)]
    pub(crate) timeout: u32,

    /// Latency SLOs of the epochs, such as 20us or 1ms (workload epoch) [default: 100us]
    #[arg(long, value_name = "TIME", value_delimiter = ',', conflicts_with = "suite", value_parser = units::nanoseconds_or_zero)]
    pub(crate) slo: Vec<u64>,

    /// Locks that an epoch's critical sections alternate between, 1 or 2 (workload epoch) [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "suite", value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(crate) locks_per_epoch: Option<u32>,

    /// Emulate slower cores: classes with factors, such as big:0,little:1x3.75 (docs/emulation.md)
    #[arg(long, value_name = "CLASSES", conflicts_with = "suite")]
    pub(crate) emulate: Option<String>,

    /// Producers and consumers (workload queue)
    #[arg(long, value_name = "P:C", value_delimiter = ',', default_value = "1:1,4:4")]
    pub(crate) pairs: Vec<String>,

    /// Locks in memory (workload memory)
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,

    /// Length of one measurement, such as 400ms; without a unit: seconds [default: 0.4; with --suite bars 0.2]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) time: Option<f64>,

    /// Kill a measurement that takes longer, and report it as hung; time for which it waits for a CPU doesn't count [default: 20s or more,
    /// by length and threads]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) limit: Option<f64>,

    /// Rounds; every round measures every lock once
    #[arg(long = "rounds", alias = "reps", value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,

    /// Seed for the random lengths
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Skip the pass that measures each wait
    #[arg(long)]
    pub(crate) no_latency: bool,

    /// Skip the runs that show the upper bound of each point
    #[arg(long)]
    pub(crate) no_ceiling: bool,

    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write every measurement as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write throughput.svg and latency.svg
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,

    /// Write all of these, and a README with machine, date and command
    #[arg(long = "output", alias = "out", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) shards: lockwright_shards::Flags,

    /// Print all columns, and a suite's tables (the CSV and JSON files always have them)
    #[arg(long)]
    pub(crate) wide: bool,

    /// No progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// (internal) Be the worker for one measurement
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) worker: Option<String>,

    /// (internal) Be a hog, until the process with this number ends
    #[arg(long, hide = true, value_name = "PID", conflicts_with = "worker")]
    pub(crate) hog: Option<u32>,
}

impl Args {
    /// The length of one measurement. The bars need many measurements, and their ratios are medians over the rounds
    /// anyway.
    pub(crate) fn time_s(&self) -> f64 {
        self.time.unwrap_or(if self.suite == Some(SuiteName::Bars) { 0.2 } else { 0.4 })
    }
}
