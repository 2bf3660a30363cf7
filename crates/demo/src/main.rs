//! An ordinary multi-threaded database program: SQLite or LMDB, driven by several threads for a while.
//!
//! It knows nothing of lockwright. Its locks are the pthread mutexes that such programs have (see
//! `sqlite.rs` and `lmdb.rs`), called in the C library like any program calls them, so that whatever is
//! preloaded takes their place. It checks every answer of the database and the state in which it leaves
//! it, and prints one JSON object.
//!
//! Exit codes: 0 fine, 1 the database gave a wrong answer or failed at work, 2 it cannot be opened, or bad
//! flags.

mod lmdb;
mod random;
mod sqlite;

use hdrhistogram::Histogram;
use lexopt::{Arg, ValueExt};
use random::Random;
use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: lockwright-demo [--database sqlite|lmdb] [--threads N] [--seconds S] [--seed N]

Drives a database by several threads and prints throughput, latencies and the check of the result as JSON.";

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
    /// Once the database is open and filled, an error of its own is as wrong an answer as any other.
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
    /// What one thread keeps: its prepared statements, its transaction.
    type Session<'a>: Session
    where
        Self: 'a;

    /// The session of thread number `thread`.
    fn session(&self, thread: u64) -> Result<Self::Session<'_>, Failure>;

    /// The engine's name and version.
    fn engine(&self) -> String;

    /// Compares what the database holds with what its sessions did to it.
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
}

fn main() -> ExitCode {
    let outcome = parse().and_then(|args| match args {
        None => Ok(USAGE.to_owned()),
        Some(args) => match args.database.as_str() {
            "sqlite" => drive(&sqlite::Sqlite::open()?, &args),
            "lmdb" => drive(&lmdb::Lmdb::open()?, &args),
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
    let mut args =
        Args { database: "sqlite".into(), threads: 2, length: Duration::from_secs(1), seed: 1 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next().map_err(usage)? {
        match arg {
            Arg::Long("database") => {
                args.database = parser.value().and_then(|v| v.string()).map_err(usage)?;
            }
            Arg::Long("threads") => {
                args.threads = parser.value().and_then(|v| v.parse()).map_err(usage)?;
            }
            Arg::Long("seconds") => {
                let seconds: f64 = parser.value().and_then(|v| v.parse()).map_err(usage)?;
                args.length = Duration::try_from_secs_f64(seconds)
                    .map_err(|error| Failure::Usage(format!("--seconds '{seconds}': {error}")))?;
            }
            Arg::Long("seed") => {
                args.seed = parser.value().and_then(|v| v.parse()).map_err(usage)?;
            }
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            _ => return Err(usage(arg.unexpected())),
        }
    }
    if args.threads == 0 || args.threads > 1024 {
        let given = args.threads;
        return Err(Failure::Usage(format!("--threads '{given}': must be from 1 to 1024")));
    }
    Ok(Some(args))
}

/// Runs the workload on all threads, checks the outcome, and gives the report.
fn drive<D: Database>(database: &D, args: &Args) -> Result<String, Failure> {
    let sessions =
        (0..args.threads).map(|n| database.session(n)).collect::<Result<Vec<_>, Failure>>()?;
    let start = Barrier::new(sessions.len() + 1);
    let (results, elapsed, cpu) = thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .into_iter()
            .zip(0..)
            .map(|(session, n)| {
                let random = Random::new(args.seed, n);
                let (start, length) = (&start, args.length);
                scope.spawn(move || work(session, random, start, length))
            })
            .collect();
        start.wait();
        let (began, cpu) = (Instant::now(), cpu_time());
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a panic aborts the process"))
            .collect();
        (results, began.elapsed(), cpu_time().saturating_sub(cpu))
    });

    let mut latencies = histogram();
    let mut per_thread = Vec::new();
    let mut sessions = Vec::new();
    for result in results {
        let (session, own) = result?;
        latencies.add(&own).expect("all histograms have the same bounds");
        per_thread.push(own.len());
        sessions.push(session);
    }
    let verified = database.verify(&sessions).map_err(Failure::in_use)?;
    let quantile = |q| latencies.value_at_quantile(q);
    let report = json!({
        "database": args.database,
        "engine": database.engine(),
        "libc": libc_version(),
        "threads": args.threads,
        "seconds": elapsed.as_secs_f64(),
        "cpu_seconds": cpu.as_secs_f64(),
        "operations": latencies.len(),
        "operations_per_second": latencies.len() as f64 / elapsed.as_secs_f64(),
        "operations_per_thread": per_thread,
        "latency_ns": {
            "p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99),
            "p99.9": quantile(0.999), "max": latencies.max(),
        },
        // Upper bound of each non-empty bucket and its count: the whole distribution, for CDFs.
        "latency_counts": latencies
            .iter_recorded()
            .map(|bucket| json!([bucket.value_iterated_to(), bucket.count_at_value()]))
            .collect::<Vec<_>>(),
        "verified": verified,
    });
    Ok(report.to_string())
}

/// One thread: operations until the time is over, and the latency of each.
fn work<S: Session>(
    mut session: S,
    mut random: Random,
    start: &Barrier,
    length: Duration,
) -> Result<(S, Histogram<u64>), Failure> {
    let mut latencies = histogram();
    start.wait();
    let end = Instant::now() + length;
    let mut began = Instant::now();
    while began < end {
        session.operation(&mut random).map_err(Failure::in_use)?;
        let ended = Instant::now();
        latencies.saturating_record((ended - began).as_nanos() as u64);
        began = ended;
    }
    Ok((session, latencies))
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
