//! One run of the program, under one lock.

use super::stats::{Latency, threads};
use crate::No;
use anyhow::{Context, Result, bail};
use lockwright_tests::{Child, End, Outcome};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;
use std::{env, fs, thread};

/// What is run: which database, by how many threads.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) database: &'static str,
    pub(super) threads: u32,
}

impl Setting {
    /// The database's name as its authors write it.
    pub(super) fn name(&self) -> &'static str {
        if self.database == "sqlite" { "SQLite" } else { "LMDB" }
    }
}

/// What one run said.
pub(crate) struct Run {
    pub(crate) rate: f64,
    /// CPU time per operation.
    pub(crate) cpu_ns: f64,
    pub(crate) latency: Latency,
    pub(super) engine: String,
    pub(super) libc: String,
    cpu_seconds: f64,
}

pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) library: PathBuf,
    /// Seconds.
    pub(super) length: f64,
}

impl Program {
    /// The dynamic linker only warns when it cannot preload a library, and goes on without: the runs
    /// would compare glibc with glibc. So ask it first what it would load.
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

    /// Runs it, under `lock` or, with `None`, as it is.
    pub(super) fn run(&self, setting: Setting, lock: Option<&str>, seed: u64) -> Result<Run> {
        let mut child = Child::new(&self.path)
            .args(["--database", setting.database])
            .args(["--threads", &setting.threads.to_string()])
            .args(["--seconds", &self.length.to_string(), "--seed", &seed.to_string()])
            .limit(20 + 3 * self.length.ceil() as u64)
            .lock(lock, self.library.as_os_str());
        if let (Some(_), Ok(topology)) = (lock, env::var("LOCKWRIGHT_TOPOLOGY")) {
            child = child.env("LOCKWRIGHT_TOPOLOGY", topology);
        }
        let outcome = child.run()?;
        self.loaded(&outcome)?;
        let context = format!(
            "{} with {} under {}",
            setting.name(),
            threads(setting.threads),
            lock.unwrap_or("glibc")
        );
        let errors = outcome.errors();
        let said = errors.trim();
        match outcome.end {
            // A wrong answer, a crash and a hang are a no; the rest is ours.
            // The library says on standard error when it doesn't do what it was asked to.
            End::Code(0) if said.is_empty() => {}
            End::Code(0) => bail!("{context}: {said}"),
            End::Code(2) => bail!("{context}: {}", said.strip_prefix("error: ").unwrap_or(said)),
            End::Code(1) => {
                let said = said.strip_prefix("error: ").unwrap_or(said);
                return Err(No(format!("{context}: {said}")).into());
            }
            end => return Err(No(format!("{context}: {end}\n{said}").trim().into()).into()),
        }
        parse(&outcome.text()).with_context(|| format!("{context}: unexpected report"))
    }
}

/// Reads what the program prints, and `eval/`'s drivers.
pub(crate) fn parse(text: &str) -> Result<Run> {
    let report: Value = serde_json::from_str(text)?;
    let number = |name: &str| {
        report[name].as_f64().with_context(|| format!("'{name}' is missing or not a number"))
    };
    let word = |name: &str| {
        let word = report[name].as_str();
        word.map(str::to_owned).with_context(|| format!("'{name}' is missing or not a string"))
    };
    let mut latency = Latency::default();
    for bucket in report["latency_counts"].as_array().context("'latency_counts' is missing")? {
        match (bucket[0].as_u64(), bucket[1].as_u64()) {
            (Some(upto), Some(count)) => latency.add(upto, count),
            _ => bail!("'latency_counts' holds {bucket}, not a time and a count"),
        }
    }
    let operations = number("operations")?;
    if operations < 1.0 {
        bail!("no operation was done");
    }
    let cpu_seconds = number("cpu_seconds")?;
    Ok(Run {
        rate: number("operations_per_second")?,
        cpu_ns: cpu_seconds * 1e9 / operations,
        latency,
        engine: word("engine")?,
        libc: word("libc")?,
        cpu_seconds,
    })
}

/// How much of the machine other programs took while ours ran.
#[derive(Default)]
pub(super) struct Disturbance {
    others: f64,
    machine: f64,
}

impl Disturbance {
    pub(super) fn watch(&mut self, run: impl FnOnce() -> Result<Run>) -> Result<Run> {
        let (busy, start) = (busy_seconds(), Instant::now());
        let run = run()?;
        if let (Some(before), Some(after)) = (busy, busy_seconds()) {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            self.others += after - before - run.cpu_seconds;
            self.machine += start.elapsed().as_secs_f64() * cpus as f64;
        }
        Ok(run)
    }

    /// 0 to 1.
    pub(super) fn share(&self) -> f64 {
        if self.machine > 0.0 { (self.others / self.machine).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Seconds that all CPUs were not idle, since boot.
pub(crate) fn busy_seconds() -> Option<f64> {
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
    fn a_report_without_operations_is_refused() {
        let report = |operations: u32| {
            format!(
                r#"{{"operations": {operations}, "operations_per_second": 10.0, "cpu_seconds": 0.5,
                    "engine": "E 1", "libc": "glibc", "latency_counts": [[100, 4], [200, 1]]}}"#
            )
        };
        let run = parse(&report(5)).unwrap();
        assert_eq!((run.cpu_ns, run.latency.quantile(0.5), run.latency.max()), (1e8, 100, 200));
        assert!(parse(&report(0)).is_err());
        assert!(parse("{}").is_err());
    }
}
