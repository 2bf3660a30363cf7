//! What is found besides waits for mutexes is told by each command, in its own way.

use super::ctl::Program;
use super::{LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::End;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static TURNS: LazyLock<PathBuf> = LazyLock::new(|| compiled("turns", "turns.c", &[]));
static SLOW: LazyLock<PathBuf> = LazyLock::new(|| compiled("slow-paths", "slow.c", &[]));

/// Each fact shows some time: nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(path: &PathBuf, way: &str) -> Result<Program> {
    let mut command = Command::new(path);
    command.arg(way).env("MALLOC_ARENA_MAX", "1");
    Program::spawn(command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto"))
}

/// Looks again and again, until that was seen.
fn until<T: std::fmt::Debug>(
    look: impl Fn() -> Result<T>,
    is_so: impl Fn(&T) -> bool,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        let seen = look()?;
        if is_so(&seen) {
            return Ok(seen);
        }
        ensure!(begun.elapsed() < PATIENCE, "never seen: {seen:#?}");
    }
}

fn output(words: &[&str]) -> Result<String> {
    let outcome = lockwright().args(words).run()?;
    ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
    Ok(outcome.text())
}

/// The last of two lines of `top --batch`: what was in the first interval is in there, too, but for samples.
fn top(program: &Program) -> Result<Value> {
    let pid = program.pid.to_string();
    let text = output(&["top", &pid, "--batch", "--count=3", "--interval=400ms"])?;
    Ok(serde_json::from_str(text.lines().last().context("a line")?)?)
}

fn finds(look: &Value, parts: &[&str]) -> bool {
    let all = look["findings"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).any(|line| parts.iter().all(|part| line.contains(part)))
}

#[test]
fn top_finds_more_than_waits_for_mutexes() -> Result<()> {
    for (way, parts) in [
        ("turns", &["condition turn acts as a lock: "][..]),
        ("items", &["condition filled woke ", " % of them in vain"]),
        ("tries", &["guard: in tries, ", " tries failed while hoarder held it"]),
        ("writers", &["table: writes waited ", " to write, because "]),
    ] {
        let program = start(&TURNS, way)?;
        until(|| top(&program), |look| finds(look, parts)).context(way)?;
        program.end()?;
    }
    Ok(())
}

#[test]
fn top_finds_locks_that_are_not_pthreads() -> Result<()> {
    let program = start(&SLOW, "arena")?;
    let parts = ["malloc's arena lock: ", " threads waited on average"];
    let look = until(|| top(&program), |look| finds(look, &parts))?;
    ensure!(look["own_locks"][0]["origin"] == "arena", "{look:#}");
    program.end().map(drop)
}

/// Those who wait in a deadlock have begun to wait, but no wait has ended.
#[test]
fn who_waits_is_not_denied() -> Result<()> {
    let program = start(&TURNS, "circle")?;
    let pid = program.pid.to_string();
    let circles = |look: &Value| look["waiting_now"]["deadlocks"].as_array().map_or(0, Vec::len);
    until(|| top(&program), |look| circles(look) == 1)?;
    let sampled = output(&["profile", "-q", "-p", &pid, "--sample", "--time=300ms"])?;
    ensure!(sampled.starts_with("deadlock: 2 threads wait for each other"), "{sampled}");
    ensure!(!sampled.contains("No thread waited"), "{sampled}");
    program.end().map(drop)
}

/// Samples of a process under our library don't take condition variables for locks; and counts, not samples, tell which is one.
#[test]
fn samples_do_not_say_what_they_can_not_know() -> Result<()> {
    let sample = |program: &Program| {
        let pid = program.pid.to_string();
        output(&["profile", "-q", "-p", &pid, "--sample", "--time=300ms"])
    };
    let ours = start(&TURNS, "turns")?;
    let seen = "threads waited on average";
    let text = until(|| sample(&ours), |text| text.contains(seen))?;
    ensure!(!text.contains("a lock that records no owner"), "{text}");
    ensure!(!text.contains("No thread waited"), "{text}");
    ours.end()?;
    let glibcs = Program::spawn(Command::new(&*TURNS).arg("turns"))?;
    let text = until(|| sample(&glibcs), |text| text.contains(seen))?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(
        text.contains("whether a condition variable acts as a lock, only counts tell"),
        "{text}"
    );
    glibcs.end().map(drop)
}
