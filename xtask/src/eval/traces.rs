//! Records the databases' operations, which the simulator replays (`crates/sim/traces`).
//!
//! ```text
//!   driver --threads 1 --marks ─ lockwright profile --record ─► steps ─ cut at the marks ─► 600 operations ─► NAME.txt
//! ```
//!
//! One thread, so that nobody waits: what it computes is what a simulated thread computes, too. The driver takes a mutex before each
//! operation, by which the operations are told apart. The file's first lines stay: they say which cache lines sections modify.

use anyhow::{Context, Result, ensure};
use lockwright_stats::trace::{Step, Trace};
use lockwright_tests::{Child, End, scratch, target_dir};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Flags of `traces`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Databases.
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
        default_values = ["sqlite", "lmdb", "kyoto", "leveldb"])]
    pub(super) db: Vec<String>,
}

/// A database's driver.
pub(super) struct Source {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) flags: &'static [&'static str],
}

/// The driver's mutex, by the names that its sources give it.
const MARKS: [&str; 2] = ["BEGINS", "operation_begins"];
/// Operations that are left out, while caches and the allocator are new; and those that are kept.
const WARMUP: usize = 1000;
const KEPT: usize = 600;
/// Steps to record, and how long the driver runs: enough for those operations of any database.
const LIMIT: &str = "4000000";
const SECONDS: &str = "0.3";
/// Times are kept in these units, ns: the clock's own error is larger.
const UNIT_NS: u64 = 10;

/// Records each database, and writes its file. The command and the drivers are built.
pub(super) fn main(sources: &[Source]) -> Result<()> {
    for source in sources {
        let trace = record(source)?;
        let operations = operations(&trace)
            .with_context(|| format!("the trace of {} has no operations", source.name))?;
        let file = file_of(source.id);
        let known = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let head = known.lines().take_while(|line| line.starts_with('#'));
        let text: Vec<&str> = head.chain(operations.iter().map(String::as_str)).collect();
        fs::write(&file, text.join("\n") + "\n")?;
        println!("{}: {} operations, {}", source.name, operations.len(), file.display());
    }
    Ok(())
}

fn file_of(id: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    root.join("crates/sim/traces").join(format!("{id}.txt"))
}

/// Runs the driver with one thread, and records it.
fn record(source: &Source) -> Result<Trace> {
    let folder = scratch("eval/traces")?;
    let file = folder.join(source.id);
    eprintln!("recording {}", source.name);
    let flags = ["--threads", "1", "--seconds", SECONDS, "--pin", "--marks"];
    let command = target_dir()?.join("release/lockwright");
    let outcome = Child::new(command)
        .args(["profile", "--record", "--force", "--limit", LIMIT, "--output"])
        .args([file.as_os_str(), OsStr::new("--"), source.program.as_os_str()])
        .args(flags.iter().chain(source.flags))
        .dir(&folder)
        .limit(120)
        .run()?;
    ensure!(outcome.end == End::Code(0), "cannot record: {}", outcome.describe());
    Ok(Trace::read(&file)?)
}

/// Operations, each in the words of the file; `None`: too few, or the driver's mutex isn't among the locks.
fn operations(trace: &Trace) -> Option<Vec<String>> {
    let is_mark = |name: &String| MARKS.iter().any(|mark| name.contains(mark));
    let symbols = trace.locks.iter().map(|lock| lock.place.as_ref()?.symbol.as_ref());
    let mark =
        u32::try_from(symbols.into_iter().position(|name| name.is_some_and(is_mark))?).ok()?;
    let begins = |step: &Step| matches!(step, Step::Acquire { lock, .. } if *lock == mark);
    let marks = |steps: &[Step]| steps.iter().filter(|step| begins(step)).count();
    let thread = trace.threads.iter().max_by_key(|thread| marks(&thread.steps))?;
    let mut numbers = BTreeMap::new();
    let all = thread.steps.split(begins).skip(1 + WARMUP);
    let operations = all.map(|steps| words(steps, mark, &mut numbers)).take(KEPT + 1);
    let mut operations: Vec<String> = operations.collect();
    // The last one may be cut off.
    operations.truncate(operations.len().saturating_sub(1));
    (operations.len() == KEPT).then_some(operations)
}

/// An operation's steps, its locks numbered by their first use.
fn words(steps: &[Step], mark: u32, numbers: &mut BTreeMap<u32, usize>) -> String {
    let mut number = |lock: u32| {
        let next = numbers.len();
        *numbers.entry(lock).or_insert(next)
    };
    let mut computed = 0;
    let mut text = String::new();
    let mut add = |computed: &mut u64, word: String| {
        let ns = (*computed + UNIT_NS / 2) / UNIT_NS * UNIT_NS;
        if ns > 0 {
            let _ = write!(text, "{ns} ");
        }
        *computed = 0;
        text += &word;
    };
    for step in steps {
        match *step {
            Step::Compute(ns) | Step::Idle(ns) => computed += ns,
            Step::Release(lock) if lock == mark => {}
            Step::Acquire { lock, .. } => add(&mut computed, format!("+{} ", number(lock))),
            Step::Release(lock) => add(&mut computed, format!("-{} ", number(lock))),
        }
    }
    add(&mut computed, String::new());
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_lies_between_marks_and_its_locks_are_numbered_by_first_use() {
        let acquire = |lock| Step::Acquire { lock, wait_ns: 9 };
        let steps = [
            Step::Release(7),
            Step::Compute(12),
            acquire(4),
            Step::Compute(300),
            acquire(2),
            Step::Release(2),
            Step::Compute(4),
            Step::Release(4),
            Step::Compute(20),
        ];
        let mut numbers = BTreeMap::new();
        assert_eq!(words(&steps, 7, &mut numbers), "10 +0 300 +1 -1 -0 20");
        assert_eq!(words(&[acquire(2), Step::Release(2)], 7, &mut numbers), "+1 -1");
    }
}
