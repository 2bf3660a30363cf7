//! One run of the program under one lock.

use super::cores::Cores;
use super::stats::threads;
use crate::answer::No;
use anyhow::{Context, Result, bail, ensure};
use lockwright_bench::{Hogs, Used, hogs};
use lockwright_numbers::Times;
use lockwright_numbers::format::given;
use lockwright_tests::{Child, End, Outcome};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;
use std::{env, fs, thread};

/// A setting: the database, the number of threads, and that of other processes that compute all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) database: &'static str,
    pub(super) threads: u32,
    pub(super) hogs: u32,
}

impl Setting {
    /// The database's name as its authors spell it.
    pub(super) fn name(&self) -> &'static str {
        if self.database == "sqlite" { "SQLite" } else { "LMDB" }
    }

    /// `8 threads`, or `8 threads, 1 hog`.
    pub(super) fn load(&self) -> String {
        match self.hogs {
            0 => threads(self.threads),
            more => format!("{}, {}", threads(self.threads), hogs(more)),
        }
    }
}

/// A lock, with the latency objective of its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// In the form of LOCKWRIGHT_LOCK.
    pub(super) lock: String,
    /// Nanoseconds; `None`: there is no objective.
    pub(super) slo_ns: Option<u64>,
}

impl Subject {
    /// `asl`, or `asl, SLO 60 µs`.
    pub(super) fn name(&self) -> String {
        match self.slo_ns {
            None => self.lock.clone(),
            Some(ns) => format!("{}, SLO {}", self.lock, given(ns)),
        }
    }
}

/// An objective so large that it has no effect: windows are capped far below. Every operation is an epoch under every
/// lock, so that all have the same overhead.
const NO_LIMIT_NS: u64 = 10_000_000_000;

/// The share of a run on big and little cores that doesn't count: windows take some hundred operations to settle.
const SETTLING: f64 = 0.3;

/// The result of one run.
pub(crate) struct Run {
    pub(crate) rate: f64,
    /// CPU time per operation.
    pub(crate) cpu_ns: f64,
    /// Latencies of all operations; on big and little cores, of those on the little core.
    pub(crate) latency: Times,
    pub(super) engine: String,
    pub(super) libc: String,
    /// CPU time of the whole process since its start.
    pub(super) cpu_seconds: f64,
    /// What the hogs used meanwhile.
    pub(super) hogs: Used,
}

#[derive(Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) library: PathBuf,
    /// Seconds.
    pub(super) length: f64,
}

impl Program {
    /// The dynamic linker only warns if it can't preload a library, and continues without it. We would then compare
    /// glibc with glibc. So we first check what it would load.
    pub(super) fn check_library(&self) -> Result<()> {
        let outcome = Child::new(&self.path)
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .env("LD_PRELOAD", &self.library)
            .limit(10)
            .run()?;
        self.loaded(&outcome)?;
        if !outcome.text().contains(&*self.library.to_string_lossy()) {
            bail!(
                "'{}' does not load '{}'\nhint: it must be linked dynamically, to glibc; see 'ldd {}'",
                self.path.display(),
                self.library.display(),
                self.path.display()
            );
        }
        Ok(())
    }

    fn loaded(&self, outcome: &Outcome) -> Result<()> {
        let errors = outcome.errors();
        if let Some(line) = errors.lines().find(|line| line.contains("cannot be preloaded")) {
            bail!(
                "cannot preload '{}': {line}\nhint: cargo build --release -p lockwright-preload",
                self.library.display()
            );
        }
        Ok(())
    }

    /// Does a run. On this machine's own cores, glibc's lock is the C library's, without a preload. On emulated cores
    /// it is glibc's algorithm in our library, which does the emulation.
    pub(super) fn run(
        &self,
        setting: Setting,
        subject: &Subject,
        cores: Option<&Cores>,
        seed: u64,
    ) -> Result<Run> {
        let (mut length, mut warmup) = (self.length, 0.0);
        if cores.is_some() {
            (length, warmup) = (self.length * (1.0 - SETTLING), self.length * SETTLING);
        }
        let context =
            format!("{} with {} under {}", setting.name(), setting.load(), subject.name());
        // The little core may have done nothing, because the machine stood still for so long, or because the lock kept
        // it out. Then we give it more time.
        for longer in [1.0, 2.0, 4.0] {
            let alone = || format!("{context}: not measured beside its hogs");
            let hogs = Hogs::start(setting.hogs, &["hog"]).with_context(alone)?;
            let text =
                self.text(setting, subject, cores, seed, (length * longer, warmup), &context)?;
            let used = hogs.end().with_context(alone)?;
            let run =
                parse(&text, cores).with_context(|| format!("{context}: unexpected report"))?;
            if let Some(run) = run {
                return Ok(Run { hogs: used, ..run });
            }
        }
        bail!(
            "{context}: no operation was done{}",
            if cores.is_some() { " on the little core" } else { "" }
        )
    }

    /// Runs the program, and returns its output.
    fn text(
        &self,
        setting: Setting,
        subject: &Subject,
        cores: Option<&Cores>,
        seed: u64,
        (length, warmup): (f64, f64),
        context: &str,
    ) -> Result<String> {
        let mut child = Child::new(&self.path)
            .args(["--database", setting.database])
            .args(["--threads", &setting.threads.to_string()])
            .args(["--seconds", &length.to_string(), "--seed", &seed.to_string()])
            .limit(20 + 3 * (length + warmup).ceil() as u64);
        if let Some(cores) = cores {
            let slo_ns = subject.slo_ns.unwrap_or(NO_LIMIT_NS).to_string();
            child = child
                .args(["--pin", "--warmup", &warmup.to_string(), "--slo", &slo_ns])
                .env("LOCKWRIGHT_EMULATE", &cores.spec);
        } else if let Ok(topology) = env::var("LOCKWRIGHT_TOPOLOGY") {
            child = child.env("LOCKWRIGHT_TOPOLOGY", topology);
        }
        // Remove the tests' topology, which makes one core of this machine big and all others little.
        if cores.is_some() || subject.lock != super::GLIBC {
            child = child.env("LOCKWRIGHT_LOCK", &subject.lock).env("LD_PRELOAD", &self.library);
        }
        let outcome = child.run()?;
        self.loaded(&outcome)?;
        verdict(&outcome, context)?;
        Ok(outcome.text())
    }
}

/// Judges how the program, or one of `eval/`'s drivers, ended. A wrong answer, a crash or a hang is a failure of the lock;
/// everything else is our error.
pub(crate) fn verdict(outcome: &Outcome, context: &str) -> Result<()> {
    let errors = outcome.errors();
    let said = errors.trim().strip_prefix("error: ").unwrap_or(errors.trim());
    match outcome.end {
        // The library prints a message if it can't do what it was asked. The dynamic linker prints one if it can't
        // load the library.
        End::Code(0) if said.is_empty() => Ok(()),
        End::Code(0 | 2) => bail!("{context}: {said}"),
        End::Code(1) => Err(No(format!("{context}: {said}")).into()),
        _ => Err(No(format!("{context}: {}\n{said}", outcome.ended()).trim().into()).into()),
    }
}

/// The output of the program, and of `eval/`'s drivers.
#[derive(Deserialize)]
pub(crate) struct DemoReport {
    pub(crate) operations: u64,
    pub(crate) operations_per_second: f64,
    pub(crate) seconds: Option<f64>,
    cpu_seconds: Option<f64>,
    pub(crate) process_cpu_seconds: f64,
    pub(crate) engine: String,
    pub(crate) libc: String,
    /// Were the operations epochs?
    pub(crate) epochs: Option<bool>,
    latency_counts: Counts,
    #[serde(default)]
    pub(crate) cpus: Vec<OnCpu>,
}

/// Upper bound of each bucket, ns, and its count.
pub(crate) type Counts = Vec<(u64, u64)>;

/// What the threads on one CPU did.
#[derive(Deserialize)]
pub(crate) struct OnCpu {
    pub(crate) cpu: usize,
    pub(crate) operations: u64,
    pub(crate) over_slo: u64,
    pub(crate) latency_counts: Counts,
    pub(crate) latency_ns: Latency,
}

/// The longest operation, ns. The other quantiles are computed here.
#[derive(Deserialize)]
pub(crate) struct Latency {
    pub(crate) max: u64,
}

/// Parses a report. `None`: no operation ended on the core whose latency is measured.
pub(crate) fn parse(text: &str, cores: Option<&Cores>) -> Result<Option<Run>> {
    let report: DemoReport = serde_json::from_str(text)?;
    let timed = match cores {
        None => Some((report.operations, &report.latency_counts)),
        Some(cores) => {
            ensure!(report.epochs == Some(true), "its operations are not epochs");
            let own = report.cpus.iter().find(|own| own.cpu == cores.little);
            own.map(|own| (own.operations, &own.latency_counts))
        }
    };
    let Some((_, counts)) = timed.filter(|&(operations, _)| operations > 0) else {
        return Ok(None);
    };
    let mut latency = Times::default();
    counts.iter().for_each(|&(upto, count)| latency.add(upto, count));
    let cpu_seconds = report.cpu_seconds.context("'cpu_seconds' is missing")?;
    Ok(Some(Run {
        rate: report.operations_per_second,
        cpu_ns: cpu_seconds * 1e9 / report.operations as f64,
        latency,
        engine: report.engine,
        libc: report.libc,
        cpu_seconds: report.process_cpu_seconds,
        hogs: Used::default(),
    }))
}

/// How much of the machine other programs took while ours ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Disturbance {
    /// CPU seconds of others.
    others: f64,
    /// CPU seconds that the machine had.
    machine: f64,
}

impl Disturbance {
    /// Looks on while `run` runs programs of ours; its answer says how many CPU seconds they took.
    pub(crate) fn watch<R>(&mut self, run: impl FnOnce() -> Result<(R, f64)>) -> Result<R> {
        let (busy, start) = (busy_seconds(), Instant::now());
        let (answer, ours) = run()?;
        if let (Some(before), Some(after)) = (busy, busy_seconds()) {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            self.others += after - before - ours;
            self.machine += start.elapsed().as_secs_f64() * cpus as f64;
        }
        Ok(answer)
    }

    /// Adds what was seen at another time.
    pub(crate) fn add(&mut self, other: Self) {
        self.others += other.others;
        self.machine += other.machine;
    }

    /// 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        if self.machine > 0.0 { (self.others / self.machine).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Seconds that all CPUs were not idle, since boot.
fn busy_seconds() -> Option<f64> {
    /// The kernel counts in hundredths of a second here, whatever its own tick is.
    const USER_HZ: f64 = 100.0;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    // user nice system idle iowait irq softirq steal; guests are counted in user already.
    let busy = fields.iter().take(8).sum::<f64>() - fields.get(3)? - fields.get(4)?;
    Some(busy / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_operations_is_no_run() {
        let report = |operations: u32| {
            format!(
                r#"{{"operations": {operations}, "operations_per_second": 10.0, "cpu_seconds": 0.5, "process_cpu_seconds": 0.6,
                    "engine": "E 1", "libc": "glibc", "latency_counts": [[100, 4], [200, 1]]}}"#
            )
        };
        let run = parse(&report(5), None).unwrap().unwrap();
        assert_eq!((run.cpu_ns, run.latency.quantile(0.5), run.latency.max()), (1e8, 100, 200));
        assert!(parse(&report(0), None).unwrap().is_none());
        assert!(parse("{}", None).is_err());
    }

    #[test]
    fn on_big_and_little_cores_the_latency_is_the_little_ones() {
        let cores = Cores { spec: "big:0,little:1x2".into(), little: 1 };
        let report = |little: u32, epochs: bool| {
            format!(
                r#"{{"operations": 9, "operations_per_second": 10.0, "cpu_seconds": 0.9, "process_cpu_seconds": 1.0, "epochs": {epochs},
                    "engine": "E 1", "libc": "glibc", "latency_counts": [[100, 8], [900, 1]], "cpus": [
                    {{"cpu": 0, "operations": 8, "over_slo": 0, "latency_ns": {{"max": 100}}, "latency_counts": [[100, 8]]}},
                    {{"cpu": 1, "operations": {little}, "over_slo": 0, "latency_ns": {{"max": 900}}, "latency_counts": [[900, {little}]]}}]}}"#
            )
        };
        let run = parse(&report(1, true), Some(&cores)).unwrap().unwrap();
        assert_eq!((run.latency.quantile(0.1), run.rate, run.cpu_ns), (900, 10.0, 1e8));
        assert!(parse(&report(0, true), Some(&cores)).unwrap().is_none(), "it did nothing");
        assert!(parse(&report(1, false), Some(&cores)).is_err(), "a library without epochs");
    }
}
