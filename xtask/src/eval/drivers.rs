//! The databases' drivers: builds them, runs them, and parses their output.

use super::build;
use super::machine::Cores;
use super::scratch::Scratch;
use crate::demo::measure::{DemoReport, OnCpu, verdict};
use anyhow::{Context, Result, bail, ensure};
use lockwright_numbers::Times;
use lockwright_tests::{Child, scratch, target_dir};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A database of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) id: &'static str,
    /// The name as its authors spell it.
    pub(super) name: &'static str,
    /// The driver in `eval/` and the library that it needs; `None`: the demo's program, which includes its own.
    source: Option<(&'static str, &'static str)>,
    /// Additional flags: for full length, and for `--quick`.
    flags: [&'static [&'static str]; 2],
    /// What the threads do, in HTML.
    pub(super) workload: &'static str,
}

/// Every database of the paper that Debian 12 offers.
pub(super) const DATABASES: [Database; 4] = [
    Database {
        id: "sqlite",
        name: "SQLite",
        source: None,
        flags: [
            &["--database", "sqlite", "--scan-every", "1000"],
            &["--database", "sqlite", "--scan-every", "1000", "--size", "20000"],
        ],
        workload: "Threads share one in-memory connection in serialized mode; the contended lock is the connection’s \
             own recursive mutex. Each epoch is a DEFERRED transaction: ⅓ insert, ⅓ point query on an indexed \
             column, ⅓ range query with a filter on a column without index; every 1000th is a scan of a table of \
             100,000 rows.",
    },
    Database {
        id: "lmdb",
        name: "LMDB",
        source: None,
        flags: [&["--database", "lmdb"], &["--database", "lmdb"]],
        workload: "50 % put (an update), 50 % get, 10,000 keys, each a transaction and an epoch. LMDB’s own mutexes are \
             shared between processes and stay glibc’s, so the program opens it with <code>MDB_NOLOCK</code> \
             and has two mutexes itself: one around write transactions, one over the reader slots.",
    },
    Database {
        id: "kyoto",
        name: "Kyoto Cabinet",
        source: Some(("kyoto.cc", "-lkyotocabinet")),
        flags: [&[], &["--size", "20000"]],
        workload: "CacheDB, in memory: 50 % put (an update), 50 % get, 100,000 keys, each an epoch. The contended lock is \
             that of a slot. Two threads seldom meet in its 16 slots, so all keys are of one slot.",
    },
    Database {
        id: "leveldb",
        name: "LevelDB",
        source: Some(("leveldb.cc", "-lleveldb")),
        flags: [&[], &["--size", "20000"]],
        workload: "<code>readrandom</code>: gets of 100,000 keys, each an epoch, which takes the database’s mutex twice. \
             All of it fits the cache.",
    },
];

impl Database {
    pub(super) fn find(id: &str) -> Result<Database> {
        let found = DATABASES.iter().find(|database| database.id == id).copied();
        let known = DATABASES.map(|database| database.id).join(", ");
        ensure!(
            id != "upscaledb",
            "database 'upscaledb': not available, Debian 12 has no package of it\nhint: one of {known}"
        );
        found.with_context(|| format!("unknown database '{id}'\nhint: one of {known}"))
    }

    /// Its additional flags, where it should be ready soon.
    pub(super) fn quick_flags(&self) -> &'static [&'static str] {
        self.flags[1]
    }

    /// Builds the driver, and returns its path.
    pub(super) fn program(&self) -> Result<PathBuf> {
        match self.source {
            None => Ok(target_dir()?.join("release/lockwright-demo")),
            Some((source, library)) => build::driver(self.id, self.name, source, library),
        }
    }
}

/// One lock, with the latency objective of its epochs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subject {
    /// In the form of LOCKWRIGHT_LOCK.
    pub(super) lock: String,
    /// Nanoseconds; `None`: the lock doesn't use SLOs.
    pub(super) slo_ns: Option<u64>,
}

/// So large that it has no effect: the window is capped far below.
pub(super) const NO_LIMIT_NS: u64 = 10_000_000_000;

impl Subject {
    pub(super) fn name(&self) -> String {
        match self.slo_ns {
            None => self.lock.clone(),
            Some(NO_LIMIT_NS) => format!("{} max", self.lock),
            Some(ns) => format!("{} {}", self.lock, super::figures::slo(ns)),
        }
    }
}

/// Operations of one class of cores in one run.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct ClassRun {
    pub(super) operations: u64,
    /// How many were above the run's SLO.
    pub(super) over_slo: u64,
    pub(super) latency: Times,
}

/// The result of one run.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Run {
    /// Operations per second, all cores.
    pub(super) rate: f64,
    /// The measured time in seconds.
    pub(super) seconds: f64,
    /// CPU time of its whole process.
    pub(super) cpu_seconds: f64,
    /// One entry per class of the machine.
    pub(super) classes: Vec<ClassRun>,
    pub(super) engine: String,
    pub(super) libc: String,
    /// Did the program find the epoch functions?
    pub(super) epochs: bool,
}

impl Run {
    /// The first class of cores that did nothing.
    fn idle<'a>(&self, machine: &'a Cores) -> Option<&'a str> {
        let mut classes = machine.classes.iter().zip(&self.classes);
        classes.find(|(_, run)| run.operations == 0).map(|(class, _)| &*class.name)
    }
}

/// Runs a database under a lock.
pub(super) trait Runs {
    /// Runs it once. Every lock runs under the library, glibc's own algorithm too, because the library emulates the
    /// little cores; every operation is an epoch under each of them.
    fn run(&self, subject: &Subject, seed: u64) -> Result<Run>;

    /// Runs it once, as [`run`](Self::run), and asks the library's own record whether it did what it was to do: a
    /// library that knows nothing of emulation or of epochs would go unnoticed.
    fn first_look(&self, subject: &Subject) -> Result<Run>;
}

/// How all runs are done.
pub(super) struct Driver {
    database: Database,
    program: PathBuf,
    library: PathBuf,
    /// For the databases, and for what the library records.
    scratch: Scratch,
    machine: Cores,
    seconds: f64,
    warmup: f64,
    threads: usize,
    quick: bool,
}

impl Runs for Driver {
    fn run(&self, subject: &Subject, seed: u64) -> Result<Run> {
        self.run_with(subject, seed, None)
    }

    fn first_look(&self, subject: &Subject) -> Result<Run> {
        let folder = self.empty("stats")?;
        let run = self.run_with(subject, 0, Some(&folder))?;
        let context = format!("'{}' was asked to record what it does", self.library.display());
        let processes = lockwright_stats::read_dir(&folder).context(context.clone())?;
        let process = processes.first().context(context)?;
        ensure!(
            run.epochs && process.epochs.iter().any(|epoch| !epoch.classes.is_empty()),
            "'{}' has no epochs\nhint: cargo build --release -p lockwright-preload",
            self.library.display()
        );
        ensure!(
            process.emulated.is_some() == self.machine.emulated(),
            "'{}' emulates no cores\nhint: cargo build --release -p lockwright-preload",
            self.library.display()
        );
        Ok(run)
    }
}

impl Driver {
    pub(super) fn new(
        database: Database,
        options: &super::Databases,
        machine: &Cores,
    ) -> Result<Driver> {
        Ok(Driver {
            database,
            program: database.program()?,
            library: lockwright_tests::library()?,
            scratch: Scratch::new(&scratch("eval")?)?,
            machine: machine.clone(),
            seconds: options.time,
            warmup: options.warmup,
            threads: options.threads(machine),
            quick: options.quick,
        })
    }

    /// An empty folder of this name.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.path().join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?; // the run before has left it
        }
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// A run in which a class did nothing proves nothing. If the machine stood still for that long, or the lock kept
    /// out all threads on little cores, the run is repeated with more time.
    fn run_with(&self, subject: &Subject, seed: u64, stats: Option<&Path>) -> Result<Run> {
        let mut idle = "";
        for longer in [1.0, 2.0, 4.0, 8.0] {
            let run = self.run_for(longer * self.seconds, subject, seed, stats)?;
            match run.idle(&self.machine) {
                None => return Ok(run),
                Some(class) => idle = class,
            }
        }
        bail!(
            "{} under {}: no operation was done on {idle} cores",
            self.database.name,
            subject.name()
        )
    }

    fn run_for(
        &self,
        seconds: f64,
        subject: &Subject,
        seed: u64,
        stats: Option<&Path>,
    ) -> Result<Run> {
        let data = self.empty("data")?;
        let (variable, spec) = self.machine.variable();
        let mut child = Child::new(&self.program);
        if let Some(folder) = stats {
            child = child.env("LOCKWRIGHT_STATS", folder);
        }
        let outcome = child
            .args(self.database.flags[usize::from(self.quick)])
            .args(["--seconds", &seconds.to_string(), "--warmup", &self.warmup.to_string()])
            .args(["--threads", &self.threads.to_string(), "--seed", &seed.to_string(), "--pin"])
            .args(["--slo", &subject.slo_ns.unwrap_or(NO_LIMIT_NS).to_string()])
            .env("TMPDIR", &data)
            .env(variable, spec)
            .lock(Some(&subject.lock), self.library.as_os_str())
            .limit(60 + 3 * (seconds + self.warmup).ceil() as u64)
            .run()?;
        let context = format!("{} under {}", self.database.name, subject.name());
        verdict(&outcome, &context)?;
        parse(&outcome.text(), &self.machine)
            .with_context(|| format!("{context}: unexpected report"))
    }
}

fn parse(text: &str, machine: &Cores) -> Result<Run> {
    let report: DemoReport = serde_json::from_str(text)?;
    let mut classes = vec![ClassRun::default(); machine.classes.len()];
    let mut total = 0;
    for OnCpu { cpu, operations, over_slo, latency_counts, latency_ns } in report.cpus {
        let class = machine
            .class_of(cpu)
            .with_context(|| format!("a thread ran on CPU {cpu}, which is in no class"))?;
        let class = &mut classes[class];
        class.operations += operations;
        class.over_slo += over_slo;
        latency_counts.iter().for_each(|&(upto, count)| class.latency.add(upto, count));
        let counted: u64 = latency_counts.iter().map(|(_, count)| count).sum();
        ensure!(counted == operations, "CPU {cpu}: {counted} latencies, not as many as operations");
        // The bound of the last bucket, which is at most 4 % wide.
        let longest = latency_ns.max;
        let bound = latency_counts.last().map_or(0, |&(upto, _)| upto);
        ensure!(
            (longest..=longest + longest / 25).contains(&bound),
            "CPU {cpu}: the longest operation took {longest} ns, the last bucket ends at {bound}"
        );
        total += counted;
    }
    ensure!(total == report.operations, "the CPUs' operations don't add up");
    Ok(Run {
        rate: report.operations_per_second,
        seconds: report.seconds.context("'seconds' is missing")?,
        cpu_seconds: report.process_cpu_seconds,
        classes,
        engine: report.engine,
        libc: report.libc,
        epochs: report.epochs.context("'epochs' is missing")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_classes_and_add_up() {
        let machine = Cores::parse("big:0,little:1x2").unwrap();
        let report_of = |total: u32, cpu: u32, max: u32| {
            format!(
                r#"{{"operations": {total}, "operations_per_second": 10.0, "seconds": 0.7, "process_cpu_seconds": 0.5,
                    "engine": "E 1", "libc": "glibc", "epochs": true, "latency_counts": [], "cpus": [
                    {{"cpu": 0, "operations": 3, "over_slo": 0, "latency_ns": {{"max": 99}}, "latency_counts": [[100, 3]]}},
                    {{"cpu": {cpu}, "operations": 2, "over_slo": 1, "latency_ns": {{"max": {max}}}, "latency_counts": [[100, 1], [900, 1]]}}]}}"#
            )
        };
        let report = |total, cpu| report_of(total, cpu, 890);
        let run = parse(&report(5, 1), &machine).unwrap();
        assert!(parse(&report_of(5, 1, 901), &machine).is_err(), "beyond the last bucket");
        assert!(parse(&report_of(5, 1, 800), &machine).is_err(), "far below it");
        assert_eq!(run.classes.iter().map(|c| c.over_slo).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(run.classes[1].latency.max(), 900);
        assert!(parse(&report(6, 1), &machine).is_err(), "a sum that is wrong");
        assert!(parse(&report(5, 7), &machine).is_err(), "a CPU of no class");
        assert_eq!(run.idle(&machine), None);
        let idle = parse(&report(5, 0), &machine).unwrap();
        assert_eq!(idle.idle(&machine), Some("little"), "a class without operations");
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        assert!(format!("{:#}", Database::find("upscaledb").unwrap_err()).contains("Debian"));
        assert!(Database::find("oracle").is_err());
    }
}
