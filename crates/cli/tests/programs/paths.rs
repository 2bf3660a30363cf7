//! What is found besides waits for mutexes is told by each command, in its own way.

use super::ctl::Program;
use super::{FOLDER, LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use lockwright_tests::End;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
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
        ("tries", &["guard: in tries, ", " tries failed while another thread held it in hoarder"]),
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
    let parts = ["malloc's arena lock (", " threads waited on average"];
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

/// The values of a metric, by the labels after `pid`.
fn exported(program: &Program, metric: &str) -> Result<Vec<(String, f64)>> {
    let pid = program.pid.to_string();
    let file = FOLDER.path().join(format!("{metric}.prom"));
    let path = file.to_str().context("a path")?;
    output(&["top", "--export", &pid, "--output", path, "--count=3", "--interval=300ms"])?;
    let page = fs::read_to_string(file)?;
    let lines = page.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let split = |line: &str| {
        let (labels, value) = line.split_once("} ").context(line.to_owned())?;
        let labels = labels.split_once("pid=").context(line.to_owned())?.1;
        let labels = labels.split_once(',').map_or("", |(_, labels)| labels);
        Ok((labels.to_owned(), value.parse()?))
    };
    lines.map(split).collect()
}

#[test]
fn export_has_more_than_waits_for_mutexes() -> Result<()> {
    for (way, metric, labels) in [
        ("turns", "lockwright_condition_waits_total", r#"condition="turn""#),
        ("turns", "lockwright_condition_wait_seconds_total", r#"condition="turn""#),
        ("items", "lockwright_condition_woken_total", r#"condition="filled""#),
        ("items", "lockwright_condition_woken_in_vain_total", r#"condition="filled""#),
        ("tries", "lockwright_lock_failed_tries_total", r#"lock="guard""#),
        ("writers", "lockwright_rwlock_waits_total", r#"lock="table",side="writer""#),
        ("writers", "lockwright_rwlock_wait_seconds_total", r#"lock="table",side="writer""#),
        ("circle", "lockwright_waiting_longest_seconds", ""),
    ] {
        let program = start(&TURNS, way)?;
        until(
            || exported(&program, metric),
            |all| all.iter().any(|(of, value)| of == labels && *value > 0.0),
        )
        .context(metric)?;
        program.end()?;
    }
    Ok(())
}

/// No thread of it has counted a wait that has ended.
#[test]
fn export_tells_of_a_deadlock() -> Result<()> {
    let program = start(&TURNS, "circle")?;
    for metric in ["lockwright_deadlocked_threads", "lockwright_waiting_threads"] {
        until(|| exported(&program, metric), |all| all[..] == [(String::new(), 2.0)])?;
    }
    program.end().map(drop)
}

/// Without a second thread that waits, a lock's name is in the profile for that reason alone.
#[test]
fn a_profile_for_pprof_has_conditions_that_act_as_locks_and_failed_tries() -> Result<()> {
    for (way, kind, lock) in
        [("turns", "condition_delay", "turn"), ("tries", "failed_tries", "guard")]
    {
        let file = FOLDER.path().join(format!("{way}.pb.gz"));
        let outcome = lockwright()
            .args(["profile", "-q", "--pprof"])
            .args([&file])
            .args(["--"])
            .args([&*TURNS])
            .args([way, "end"])
            .run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let mut profile = Vec::new();
        GzDecoder::new(File::open(file)?).read_to_end(&mut profile)?;
        for text in [kind, lock] {
            // An entry of the table of strings: field 6, its length, itself.
            let entry = [&[6 << 3 | 2, text.len() as u8], text.as_bytes()].concat();
            ensure!(profile.windows(entry.len()).any(|part| part == entry), "{way}: no {text}");
        }
    }
    Ok(())
}

#[test]
fn compare_tells_what_it_finds_in_a_settings_first_run() -> Result<()> {
    for (way, line) in [
        ("turns", "with auto, in its first run: condition turn acts as a lock: "),
        ("items", "with auto, in its first run: condition filled woke "),
        ("tries", "with auto, in its first run: guard: in tries, "),
    ] {
        let all = lockwright().args(["compare", "-q", "--rounds=1", "--"]).args([&*TURNS]);
        let outcome = all.args([way, "end"]).env("TMPDIR", FOLDER.path()).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let text = outcome.text();
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(said.matches(line).count() == 1, "{text}");
        ensure!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    Ok(())
}

/// Such a run never ends, so it can't wait for the report.
#[test]
fn compare_says_at_once_that_a_run_hangs() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
    command.args(["compare", "-q", "--"]).arg(&*TURNS).args(["circle", "end"]);
    command.env("LOCKWRIGHT_LIBRARY", &*LIBRARY).stdin(Stdio::null()).stdout(Stdio::null());
    let mut compare = command.stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(compare.stderr.take().context("its errors")?).lines();
    let head = "deadlock: 2 threads wait for each other, and none will ever go on";
    let is_said = lines.any(|line| line.is_ok_and(|line| line == head));
    // SAFETY: a process of ours, which nobody has waited for yet.
    unsafe { libc::kill(compare.id().cast_signed(), libc::SIGINT) };
    let status = compare.wait()?;
    ensure!(is_said && status.code() == Some(130), "{status}");
    Ok(())
}
