//! Locks that are taken too often without waiting: what `profile` says of them, and of programs that only look like it.

use super::ctl::Program;
use super::{FOLDER, LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, Outcome};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The programs run until we end them. So do we, should a fact not show.
const PATIENCE: Duration = Duration::from_secs(120);

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

static FETCHES: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = compiled("libregistry.so", "registry.c", &["-shared", "-fPIC"]);
    // Without a name of its own, a library is found where the linker found it.
    compiled("fetches", "fetches.c", &[library.to_str().expect("a path in UTF-8")])
});

static POLL: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = FOLDER.path().join("poll");
    let outcome = Child::new("g++")
        .args(["-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source("poll.cpp")])
        .limit(120)
        .run()
        .expect("a compiler");
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    program
});

/// A launcher under which nothing may be sampled.
static NOPERF: LazyLock<PathBuf> = LazyLock::new(|| compiled("noperf", "noperf.c", &[]));

/// `file.c:12`, the line that contains these words.
fn place(file: &str, words: &str) -> Result<String> {
    let text = fs::read_to_string(source(file))?;
    let line = text.lines().position(|line| line.contains(words)).context("no such line")?;
    Ok(format!("{file}:{}", line + 1))
}

fn start(path: &Path, words: &[&str], is_ours: bool) -> Result<Program> {
    let mut command = Command::new(path);
    command.args(words);
    if is_ours {
        command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "auto");
    }
    let program = Program::spawn(&mut command)?;
    ensure!(program.said == "ready", "'{}'", program.said);
    Ok(program)
}

/// Looks at the process for a while.
fn report(program: &Program, is_ours: bool, time: &str) -> Result<Value> {
    let pid = program.pid.to_string();
    let words = ["profile", "-q", "-p", &pid, "--time", time, "--format=json"];
    let sample = (!is_ours).then_some("--sample");
    let outcome = lockwright().args(words).args(sample).run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let mut report: Value = serde_json::from_str(&outcome.text())?;
    Ok(if is_ours { report["processes"][0].take() } else { report })
}

/// Looks again and again, until that was seen.
fn until(program: &Program, is_ours: bool, seen: impl Fn(&Value) -> Option<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        let report = report(program, is_ours, "2s")?;
        if !report["running_unseen"].is_null() || seen(&report).is_some() {
            return Ok(()); // where the kernel refuses, another test has what is said
        }
        ensure!(begun.elapsed() < PATIENCE, "never seen: {report:#}");
    }
}

/// What is told in this report.
fn sites(report: &Value) -> &[Value] {
    report["taken_often"]["sites"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_librarys_function_that_takes_locks_at_each_call_is_told_with_who_calls_it() -> Result<()> {
    let line = place("fetches.c", "/* here */")?;
    for is_ours in [false, true] {
        let program = start(&FETCHES, &[], is_ours)?;
        until(&program, is_ours, |report| {
            let [site] = sites(report) else { return None };
            let is_it = site["function"] == "registry_find"
                && site["caller"] == "work"
                && site["place"] == line.as_str();
            // Most of what these threads do.
            let share = site["share"].as_f64()?;
            let all = report["taken_often"]["share"].as_f64()?;
            (is_it && share > 0.2 && share <= all && all <= 1.0).then_some(())?;
            let samples = (site["samples"].as_u64()?, report["taken_often"]["of"].as_u64()?);
            assert!((samples.0 as f64 / samples.1 as f64 - share).abs() < 1e-9, "{report:#}");
            assert!(samples.0 >= 20, "{report:#}");
            // Calls are only counted where the machine has breakpoints.
            let uncounted = !report["taken_often"]["uncounted"].is_null();
            let is_counted = site["at_least"].as_f64().is_some_and(|rate| rate > 1000.0);
            (uncounted || is_counted || site["is_too_often"] == true).then_some(())?;
            (uncounted || site["locks"].as_u64()? == 2).then_some(())
        })
        .with_context(|| format!("ours: {is_ours}"))?;
        program.end()?;
    }
    Ok(())
}

#[test]
fn polls_of_an_empty_queue_are_told_past_the_guard() -> Result<()> {
    for is_ours in [false, true] {
        let program = start(&POLL, &["polls"], is_ours)?;
        until(&program, is_ours, |report| {
            let [site] = sites(report) else { return None };
            // Lines of the guard's beginning and end.
            let is_here = site["place"].as_str()?.starts_with("poll.cpp:");
            let function = site["function"].as_str()?;
            (function.ends_with("poll") && is_here && site["caller"].is_null()).then_some(())?;
            (site["waiting"] == 0 && site["waits"] == 0).then_some(())
        })
        .with_context(|| format!("ours: {is_ours}"))?;
        program.end()?;
    }
    Ok(())
}

/// A thread that spins takes CPU time in a lock's code, too. And who seldom takes a lock is nobody to tell of. (Threads that contend for a mutex
/// may find it free most of the time, where they take turns on one CPU.)
#[test]
fn threads_that_wait_and_threads_that_seldom_lock_are_not_told() -> Result<()> {
    for what in ["spins", "computes"] {
        for is_ours in [false, true] {
            let program = start(&POLL, &[what], is_ours)?;
            let begun = Instant::now();
            loop {
                let report = report(&program, is_ours, "2s")?;
                ensure!(sites(&report).is_empty(), "{what}, ours: {is_ours}: {report:#}");
                let of = report["taken_often"]["of"].as_u64().unwrap_or_default();
                let share = report["taken_often"]["share"].as_f64().unwrap_or_default();
                ensure!(what != "computes" || share < 0.05, "{report:#}");
                // Enough was seen to tell, if it is sampled at all. (A process in which nothing is told and nothing waits isn't in the report.)
                let is_seen = of >= 100 || (is_ours && report["samples"].is_null());
                if is_seen || !report["running_unseen"].is_null() {
                    break;
                }
                ensure!(begun.elapsed() < PATIENCE, "never seen: {report:#}");
            }
            program.end()?;
        }
    }
    Ok(())
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn told(outcome: &Outcome) -> String {
    words(&format!("{} {}", outcome.text(), outcome.errors()))
}

#[test]
fn the_reports_say_it_beside_that_nobody_waited() -> Result<()> {
    let program = FETCHES.to_str().context("a path in UTF-8")?;
    let page = FOLDER.path().join("often.html");
    let begun = Instant::now();
    loop {
        let outcome = lockwright()
            .args(["profile", "--html"])
            .args([&page])
            .args(["--", program, "2000"])
            .limit(300)
            .run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let text = told(&outcome);
        let page = words(&fs::read_to_string(&page)?);
        if text.contains("since the kernel samples no running threads") {
            return Ok(());
        }
        let line = format!("registry_find, called by work ({})", place("fetches.c", "/* here */")?);
        let is_told = text.contains("taken often: ")
            && text.contains(&line)
            && text.contains("What to do: call registry_find less often in work (");
        // A thread that loses its CPU with a lock may make another one wait.
        let nobody = text.contains("no thread had to wait for a lock that is watched");
        let both = text.contains("CPU time goes into locks that nobody waits for");
        if is_told && nobody && both {
            ensure!(text.contains("since it is never waited for"), "{text}");
            ensure!(page.contains("Taken often") && page.contains(&line), "{page}");
            ensure!(outcome.errors().lines().all(|line| line.chars().count() <= 80), "{text}");
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "never told: {text}");
    }
    // Also by those who only look.
    let program = start(&FETCHES, &[], false)?;
    let begun = Instant::now();
    loop {
        let outcome = lockwright().args(["doctor", &program.pid.to_string()]).run()?;
        let text = told(&outcome);
        if text.contains("taken often: ") && text.contains("registry_find, called by work (") {
            break;
        }
        if text.contains("since the kernel samples no running threads") {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "never told: {text}");
    }
    program.end().map(drop)
}

#[test]
fn where_nothing_may_be_sampled_the_report_says_so() -> Result<()> {
    let unwatched = "locks that are taken too often without waiting, since the kernel samples no running threads for us \
                     (permission denied)";
    let under = |words: &[&str]| {
        Child::new(&*NOPERF)
            .env("LOCKWRIGHT_LIBRARY", &*LIBRARY)
            .env("XDG_CONFIG_HOME", FOLDER.path())
            .args([env!("CARGO_BIN_EXE_lockwright"), "profile"])
            .args(words)
            .run()
    };
    let program = FETCHES.to_str().context("a path in UTF-8")?;
    let outcome = under(&["--", program, "500"])?;
    let text = told(&outcome);
    ensure!(outcome.end == End::Code(0) && text.contains(unwatched), "{text}");
    ensure!(!text.contains("taken often: "), "{text}");
    for is_ours in [false, true] {
        let program = start(&FETCHES, &[], is_ours)?;
        let pid = program.pid.to_string();
        let sample = (!is_ours).then_some("--sample");
        let words: Vec<&str> =
            ["-q", "-p", &pid, "--time=300ms"].into_iter().chain(sample).collect();
        let text = told(&under(&words)?);
        ensure!(text.contains("not watched: ") && text.contains(unwatched), "{is_ours}: {text}");
        program.end()?;
    }
    Ok(())
}
