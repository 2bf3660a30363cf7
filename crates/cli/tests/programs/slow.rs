//! Why a lock's holder was slow, and locks that aren't pthread's: programs whose threads have one cause each, under glibc's locks and ours.

use super::ctl::Program;
use super::{FOLDER, LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static SLOW: LazyLock<PathBuf> = LazyLock::new(|| compiled("slow", "slow.c", &[]));

/// The programs run until we end them. So do we, should a fact not show.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(path: &Path, cause: &str, is_ours: bool) -> Result<Program> {
    let mut command = Command::new(path);
    command.args(Some(cause).filter(|cause| !cause.is_empty()));
    command.env("MALLOC_ARENA_MAX", "1");
    if is_ours {
        command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto");
    }
    let program = Program::spawn(&mut command)?;
    ensure!(program.said == "ready", "{cause}: '{}'", program.said);
    Ok(program)
}

/// Watches the process, longer and longer, until that was seen of it: on a slow machine a look takes longer, so fewer fit into a time.
pub(super) fn until(
    program: &Program,
    options: &[&str],
    seen: impl Fn(&Value) -> Option<()>,
) -> Result<()> {
    let (pid, begun) = (program.pid.to_string(), Instant::now());
    let is_sampled = options.contains(&"--sample");
    let mut ms = 0;
    loop {
        ms = 6000.min(ms + 300);
        let time = format!("--time={ms}ms");
        let words = ["profile", "-q", "-p", &pid, &time, "--format=json"];
        let outcome = lockwright().args(words).args(options).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let mut report: Value = serde_json::from_str(&outcome.text())?;
        let report = if is_sampled { report } else { report["processes"][0].take() };
        if seen(&report).is_some() {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "never seen: {report:#}");
    }
}

fn named<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    report["locks"].as_array()?.iter().find(|lock| lock["name"] == name)
}

/// What the holders of a lock did most, if they did mostly that.
fn main(lock: &Value) -> Option<&Value> {
    let first = &lock["holding"]["causes"][0];
    (first[1].as_f64()? > 0.5).then_some(&first[0])
}

/// The lock's holders mostly did `what`, and that is what the advice is about.
fn check(cause: &str, what: &str, rule: &str, more: impl Fn(&Value) -> Option<()>) -> Result<()> {
    check_of("outer", cause, what, rule, more)
}

/// The same for the lock of that name.
fn check_of(
    name: &str,
    cause: &str,
    what: &str,
    rule: &str,
    more: impl Fn(&Value) -> Option<()>,
) -> Result<()> {
    for is_ours in [false, true] {
        let program = start(&SLOW, cause, is_ours)?;
        let options = if is_ours { &[][..] } else { &["--sample"] };
        until(&program, options, |report| {
            let lock = named(report, name)?;
            (main(lock)?["what"] == what).then_some(())?;
            // Samples alone give no advice.
            (!is_ours || lock["advice"]["rule"] == rule).then_some(())?;
            more(report)
        })
        .with_context(|| format!("{cause}, ours: {is_ours}"))?;
        program.end()?;
    }
    Ok(())
}

/// The function that sleeps is another one than that which has locked.
#[test]
fn a_holder_that_sleeps_is_told_with_the_call_and_its_place() -> Result<()> {
    check("asleep", "asleep", "holder-sleeps", |report| {
        let outer = named(report, "outer")?;
        (main(outer)?["call"] == "clock_nanosleep").then_some(())?;
        let place = outer["holding"]["asleep_in"].as_str()?;
        place.starts_with("syncs (slow.c:").then_some(())?;
        let Some(advice) = outer["advice"]["text"].as_str() else { return Some(()) };
        advice.starts_with("take clock_nanosleep out of syncs (slow.c:").then_some(())?;
        advice.contains(", which saves calls: ").then_some(())
    })
}

#[test]
fn a_writer_that_sleeps_with_a_readers_writer_lock_is_told() -> Result<()> {
    check_of("table", "written", "asleep", "holder-sleeps", |report| {
        let table = named(report, "table")?;
        table["holding"]["asleep_in"].as_str()?.starts_with("syncs (slow.c:").then_some(())?;
        let Some(advice) = table["advice"]["text"].as_str() else { return Some(()) };
        advice.starts_with("take clock_nanosleep out of syncs (slow.c:").then_some(())?;
        advice.contains(", which rewrites calls: ").then_some(())
    })
}

/// Its own holder is the one that sleeps.
#[test]
fn a_holder_that_waits_for_another_lock_is_told_from_one_that_sleeps() -> Result<()> {
    check("nested", "lock", "holder-waits", |report| {
        let inner = named(report, "inner")?;
        (main(inner)?["what"] == "asleep").then_some(())
    })
}

#[test]
fn a_holder_that_waits_for_another_threads_signal_is_told() -> Result<()> {
    check("asking", "signal", "holder-waits", |_| Some(()))?;
    check("requesting", "signal", "holder-waits", |_| Some(()))
}

/// Six other threads compute on its CPU.
#[test]
fn a_holder_without_a_cpu_is_told() -> Result<()> {
    check("preempted", "preempted", "holder-preempted", |report| {
        named(report, "outer")?["holding"]["inversion"].is_null().then_some(())
    })
}

/// Emulated: the second CPU is a slow core.
#[test]
fn a_holder_on_a_slow_core_is_told() -> Result<()> {
    let mut command = Command::new(&*SLOW);
    command.arg("little").env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto");
    let program = Program::spawn(command.env("LOCKWRIGHT_EMULATE", "big:0,little:1x3.75"))?;
    ensure!(program.said == "ready", "'{}'", program.said);
    until(&program, &[], |report| {
        let classes = named(report, "outer")?["holding"]["classes"].as_array()?;
        let [big, little] = &classes[..] else { return None };
        (big.as_f64()? < 0.05 && little.as_f64()? > 0.95).then_some(())
    })?;
    program.end().map(drop)
}

/// One that computes keeps the CPU from a nice one.
#[test]
fn a_holder_with_a_lower_priority_is_told() -> Result<()> {
    check("inverted", "preempted", "inverted", |report| {
        let inversion = &named(report, "outer")?["holding"]["inversion"];
        let [waiter, holder] = ["waiter", "holder"].map(|who| &inversion[who][1]);
        (waiter == "nice 0" && holder == "nice 10").then_some(())
    })
}

/// A lock that isn't pthread's: its origin, the function that waits, what the lock's name says, and how the advice begins.
type Own<'a> = (&'a str, &'a str, &'a str, &'a str);

fn check_own(path: &Path, cause: &str, expected: &[Own]) -> Result<()> {
    for is_ours in [false, true] {
        let program = start(path, cause, is_ours)?;
        let options = if is_ours { &[][..] } else { &["--sample"] };
        until(&program, options, |report| {
            let all = report["own_locks"].as_array()?;
            (all.len() == expected.len()).then_some(())?;
            for (origin, function, name, advice) in expected {
                let lock = all.iter().find(|lock| lock["origin"] == *origin)?;
                let text = |of: &str| lock[of].as_str().unwrap_or_default();
                let has_place = lock["waiters"][0]["function"].as_str()?.ends_with(function);
                let is_told = text("name").starts_with(name) && text("advice").starts_with(advice);
                (has_place && is_told).then_some(())?;
            }
            Some(())
        })
        .with_context(|| format!("{cause}, ours: {is_ours}"))?;
        program.end()?;
    }
    Ok(())
}

/// The first thread that writes sleeps with the lock, as nobody reads.
#[test]
fn the_lock_of_a_file_that_threads_write_to_is_told() -> Result<()> {
    let own = ("stdio", "logs", "stdio's lock of a FILE", "write with fewer, larger calls");
    check_own(&SLOW, "stdio", &[own])
}

#[test]
fn the_lock_of_mallocs_only_arena_is_told_with_what_limits_arenas() -> Result<()> {
    let advice = "let malloc have more arenas (MALLOC_ARENA_MAX=1 is set)";
    check_own(&SLOW, "arena", &[("arena", "allocates", "malloc's arena lock (", advice)])
}

#[test]
fn locks_of_rusts_std_are_told() -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/std_waits.rs");
    let program = FOLDER.path().join("std-waits");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let outcome = Child::new(rustc).args(["-O", "-o"]).args([&program, &source]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let advice = "shorten its sections, or put lockwright_sync's in its place";
    let own = [
        ("rust-mutex", "adds", "a Mutex of Rust's std", advice),
        ("rust-rw-lock", "looks", "a RwLock of Rust's std", advice),
    ];
    check_own(&program, "", &own)
}
