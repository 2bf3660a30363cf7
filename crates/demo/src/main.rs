//! An ordinary multi-threaded database program: SQLite or LMDB, driven by several threads for a while.
//!
//! It doesn't know about lockwright. Its locks are the pthread mutexes that such programs have (see
//! `sqlite.rs` and `lmdb.rs`). It calls them in the C library as any program does, so whatever is
//! preloaded takes their place. It checks every answer of the database and its final state, and prints one
//! JSON object.
//!
//! With `--slo` it is an *annotated* program: each operation is an epoch with that latency objective
//! (`epoch.rs`). Where nobody offers epochs, it runs as without.
//!
//! Exit codes: 0 fine; 1 the database gave a wrong answer or failed during the run; 2 it can't be opened,
//! or the flags are wrong.

mod epoch;
mod lmdb;
mod place;
mod random;
mod sqlite;

use epoch::Epochs;
use hdrhistogram::Histogram;
use lexopt::{Arg, ValueExt};
use random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: lockwright-demo [--database sqlite|lmdb] [--threads N] [--seconds S] [--seed N]
                       [--size N] [--scan-every N] [--warmup S] [--pin] [--marks]
                       [--slo NS]

Drives a database by several threads and prints throughput, latencies and the check of the result as JSON.

  --size N        lmdb: keys (10000); sqlite: rows of the table that is scanned (100000)
  --scan-every N  sqlite: each thread's N-th operation scans that table (0: there is no such table)
  --warmup S      seconds before those that count (0)
  --marks         a mutex is taken before each operation, so that traces show where they begin
  --pin           thread i stays on the i-th usable CPU, round and round; figures a CPU
  --slo NS        each operation is an epoch with this latency objective in ns, if the process has epochs";

/// Why there is no result.
#[derive(Debug)]
enum Failure {
    /// The database answered wrongly: mutual exclusion, or the database, is broken.
    Wrong(String),
    /// The database could not be used.
    Database(String),
    /// The command line is wrong.
    Usage(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Wrong(message) => write!(f, "wrong answer: {message}"),
            Failure::Database(message) | Failure::Usage(message) => f.write_str(message),
        }
    }
}

impl Failure {
    /// Once the database is open and filled, its errors count as wrong answers.
    fn in_use(self) -> Failure {
        match self {
            Failure::Database(message) => {
                Failure::Wrong(format!("{message}, in the midst of the work"))
            }
            other => other,
        }
    }
}

/// A database that several threads share.
trait Database: Sync {
    /// What one thread keeps, such as its prepared statements or its transaction.
    type Session<'a>: Session
    where
        Self: 'a;

    /// The session of thread number `thread`.
    fn session(&self, thread: u64) -> Result<Self::Session<'_>, Failure>;

    /// The engine's name and version.
    fn engine(&self) -> String;

    /// Compares the database's content with what its sessions did to it.
    fn verify(&self, sessions: &[Self::Session<'_>]) -> Result<Value, Failure>;
}

/// One thread's use of a database.
trait Session: Send {
    /// One operation of the workload, with its answer checked.
    fn operation(&mut self, random: &mut Random) -> Result<(), Failure>;
}

struct Args {
    database: String,
    threads: u64,
    length: Duration,
    seed: u64,
    /// Keys or rows; `None`: what suits the database.
    size: Option<u64>,
    /// 0: never.
    scan_every: u64,
    warmup: Duration,
    pin: bool,
    marks: bool,
    /// Nanoseconds; `None`: not annotated.
    slo_ns: Option<u64>,
}

fn main() -> ExitCode {
    let outcome = parse().and_then(|args| match args {
        None => Ok(USAGE.to_owned()),
        Some(args) => match args.database.as_str() {
            "sqlite" => {
                let rows = args.size.unwrap_or(sqlite::SCANNED);
                drive(&sqlite::Sqlite::open(rows, args.scan_every)?, &args)
            }
            "lmdb" if args.scan_every > 0 => {
                Err(Failure::Usage("--scan-every: lmdb's workload has no scan".into()))
            }
            "lmdb" => drive(&lmdb::Lmdb::open(args.size.unwrap_or(lmdb::KEYS))?, &args),
            other => Err(Failure::Usage(format!("unknown database '{other}'"))),
        },
    });
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            match failure {
                Failure::Wrong(_) => ExitCode::from(1),
                Failure::Database(_) => ExitCode::from(2),
                Failure::Usage(_) => {
                    eprintln!("hint: lockwright-demo --help");
                    ExitCode::from(2)
                }
            }
        }
    }
}

fn parse() -> Result<Option<Args>, Failure> {
    let usage = |error: lexopt::Error| Failure::Usage(error.to_string());
    let mut args = Args {
        database: "sqlite".into(),
        threads: 2,
        length: Duration::from_secs(1),
        seed: 1,
        size: None,
        scan_every: 0,
        warmup: Duration::ZERO,
        pin: false,
        marks: false,
        slo_ns: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next().map_err(usage)? {
        match arg {
            Arg::Long("database") => {
                args.database = parser.value().and_then(|v| v.string()).map_err(usage)?;
            }
            Arg::Long("threads") => {
                args.threads = parser.value().and_then(|v| v.parse()).map_err(usage)?;
            }
            Arg::Long(flag @ ("seconds" | "warmup")) => {
                let flag = flag.to_owned();
                let seconds: f64 = parser.value().and_then(|v| v.parse()).map_err(usage)?;
                let length = Duration::try_from_secs_f64(seconds)
                    .map_err(|error| Failure::Usage(format!("--{flag} '{seconds}': {error}")))?;
                *(if flag == "seconds" { &mut args.length } else { &mut args.warmup }) = length;
            }
            Arg::Long("seed") => {
                args.seed = parser.value().and_then(|v| v.parse()).map_err(usage)?;
            }
            Arg::Long("size") => {
                args.size = Some(parser.value().and_then(|v| v.parse()).map_err(usage)?);
            }
            Arg::Long("scan-every") => {
                args.scan_every = parser.value().and_then(|v| v.parse()).map_err(usage)?;
            }
            Arg::Long("slo") => {
                args.slo_ns = Some(parser.value().and_then(|v| v.parse()).map_err(usage)?);
            }
            Arg::Long("marks") => args.marks = true,
            Arg::Long("pin") => args.pin = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            _ => return Err(usage(arg.unexpected())),
        }
    }
    if args.threads == 0 || args.threads > 1024 {
        let given = args.threads;
        return Err(Failure::Usage(format!("--threads '{given}': must be from 1 to 1024")));
    }
    if let Some(size) = args.size.filter(|size| !(1..=1_000_000).contains(size)) {
        return Err(Failure::Usage(format!("--size '{size}': must be from 1 to 1000000")));
    }
    Ok(Some(args))
}

/// Runs the workload on all threads, checks the outcome, and gives the report.
fn drive<D: Database>(database: &D, args: &Args) -> Result<String, Failure> {
    let sessions =
        (0..args.threads).map(|n| database.session(n)).collect::<Result<Vec<_>, Failure>>()?;
    let epochs = args.slo_ns.and_then(Epochs::find);
    let cpus = if args.pin { place::usable()? } else { Vec::new() };
    let start = Barrier::new(sessions.len() + 1);
    let (results, elapsed, cpu) = thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .into_iter()
            .zip(0..)
            .map(|(session, n)| {
                let worker = Worker {
                    random: Random::new(args.seed, n),
                    cpu: cpus.get(n as usize % cpus.len().max(1)).copied(),
                    warmup: args.warmup,
                    length: args.length,
                    slo_ns: args.slo_ns,
                    marks: args.marks,
                    epochs,
                };
                let start = &start;
                scope.spawn(move || worker.work(session, start))
            })
            .collect();
        start.wait();
        let began = Instant::now() + args.warmup;
        thread::sleep(args.warmup);
        let cpu = cpu_time();
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a panic aborts the process"))
            .collect();
        (results, began.elapsed(), cpu_time().saturating_sub(cpu))
    });

    let mut all = Tally::default();
    let mut of_cpu = BTreeMap::<usize, Tally>::new();
    let mut per_thread = Vec::new();
    let mut sessions = Vec::new();
    for result in results {
        let (session, cpu, own) = result?;
        all.add(&own);
        per_thread.push(own.latencies.len());
        if let Some(cpu) = cpu {
            of_cpu.entry(cpu).or_default().add(&own);
        }
        sessions.push(session);
    }
    let verified = database.verify(&sessions).map_err(Failure::in_use)?;
    let mut report = json!({
        "database": args.database,
        "engine": database.engine(),
        "libc": libc_version(),
        "threads": args.threads,
        "seconds": elapsed.as_secs_f64(),
        "cpu_seconds": cpu.as_secs_f64(),
        // From the start of the process.
        "process_cpu_seconds": cpu_time().as_secs_f64(),
        "operations": all.latencies.len(),
        "operations_per_second": all.latencies.len() as f64 / elapsed.as_secs_f64(),
        "operations_per_thread": per_thread,
        "slo_ns": args.slo_ns,
        "epochs": epochs.is_some(),
        "cpus": of_cpu
            .iter()
            .map(|(cpu, tally)| {
                let mut figures = tally.report();
                figures["cpu"] = json!(cpu);
                figures
            })
            .collect::<Vec<_>>(),
        "verified": verified,
    });
    if let (Some(report), Value::Object(figures)) = (report.as_object_mut(), all.report()) {
        report.extend(figures);
    }
    Ok(report.to_string())
}

/// Latencies, and how many were above the objective.
struct Tally {
    latencies: Histogram<u64>,
    over_slo: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { latencies: histogram(), over_slo: 0 }
    }
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies).expect("all histograms have the same bounds");
        self.over_slo += other.over_slo;
    }

    fn report(&self) -> Value {
        let quantile = |q| self.latencies.value_at_quantile(q);
        json!({
            "operations": self.latencies.len(),
            "over_slo": self.over_slo,
            "latency_ns": {
                "p50": quantile(0.5), "p90": quantile(0.9), "p95": quantile(0.95),
                "p99": quantile(0.99), "p99.9": quantile(0.999), "max": self.latencies.max(),
            },
            // Upper bound of each non-empty bucket and its count: the whole distribution, for CDFs.
            "latency_counts": self.latencies
                .iter_recorded()
                .map(|bucket| json!([bucket.value_iterated_to(), bucket.count_at_value()]))
                .collect::<Vec<_>>(),
        })
    }
}

/// What one thread needs besides its session.
struct Worker {
    random: Random,
    /// Where it is pinned.
    cpu: Option<usize>,
    warmup: Duration,
    length: Duration,
    slo_ns: Option<u64>,
    epochs: Option<Epochs>,
    marks: bool,
}

impl Worker {
    /// Runs operations until the time is over, and takes the latency of each after the warm-up.
    fn work<S: Session>(
        mut self,
        mut session: S,
        start: &Barrier,
    ) -> Result<(S, Option<usize>, Tally), Failure> {
        let pinned = self.cpu.map_or(Ok(()), place::pin);
        let mut tally = Tally::default();
        let slo_ns = self.slo_ns.unwrap_or(u64::MAX);
        start.wait();
        pinned?;
        let from = Instant::now() + self.warmup;
        let end = from + self.length;
        let mut began = Instant::now();
        while began < end {
            if self.marks {
                mark();
            }
            if let Some(epochs) = &self.epochs {
                epochs.start();
            }
            session.operation(&mut self.random).map_err(Failure::in_use)?;
            if let Some(epochs) = &self.epochs {
                epochs.end();
            }
            let ended = Instant::now();
            if began >= from {
                let ns = (ended - began).as_nanos() as u64;
                tally.latencies.saturating_record(ns);
                tally.over_slo += u64::from(ns > slo_ns);
            }
            began = ended;
        }
        Ok((session, self.cpu, tally))
    }
}

/// Takes a mutex before an operation, so that a trace of locks shows where operations begin.
fn mark() {
    static mut BEGINS: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
    // SAFETY: the mutex is initialised, never moves, and only these calls use it.
    unsafe {
        libc::pthread_mutex_lock(&raw mut BEGINS);
        libc::pthread_mutex_unlock(&raw mut BEGINS);
    }
}

/// 1 ns to 100 s at two significant digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 2).expect("the bounds are legal")
}

/// CPU time of this process, user and system.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    assert_eq!(rc, 0, "every Linux has the process CPU clock");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn libc_version() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a pointer to a static, terminated string.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    {
        "unknown libc".to_owned()
    }
}
