//! `lockwright profile` of programs whose locks are semaphores, Python's among them.

use super::{FOLDER, compiled, lockwright};
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// How often a run may show too little: who is seen in a sample is up to the machine.
const RUNS: u32 = 20;

/// The report on a program, as JSON; all it printed was `output`.
fn profile(name: &str, options: &[&str], program: &[&str], output: &str) -> Result<Value> {
    let file = FOLDER.path().join(format!("{name}.json"));
    let outcome = lockwright()
        .args(["profile", "--format", "json", "--output"])
        .args([&file])
        .args(options)
        .args(["--"])
        .args(program)
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(outcome.text() == output, "{}", outcome.describe());
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

fn names(report: &Value) -> Vec<&str> {
    let locks = report.pointer("/processes/0/locks").and_then(Value::as_array);
    locks.into_iter().flatten().map(|lock| text(lock, "/name")).collect()
}

/// A Python whose threads' stacks we can read, and whose locks are semaphores; `None`, with the reason printed: there is none.
fn python() -> Result<Option<String>> {
    let ask = "import sys; print(sys.executable, *sys.version_info[:2], sys.implementation.name)";
    let Ok(outcome) = Child::new("python3").args(["-c", ask]).run() else {
        eprintln!("there is no python3: nothing is profiled");
        return Ok(None);
    };
    let answer = outcome.text();
    let words: Vec<&str> = answer.split_whitespace().collect();
    match words[..] {
        [path, "3", "11" | "12" | "13", "cpython"] => Ok(Some(path.to_owned())),
        _ => {
            eprintln!("python3 is '{}': nothing is profiled", answer.trim());
            Ok(None)
        }
    }
}

fn script(name: &str) -> Result<(PathBuf, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let source = fs::read_to_string(&path)?;
    Ok((path, source))
}

/// The lines of a function, by the text that its first and its last line have.
fn lines(source: &str, first: &str, last: &str) -> Result<std::ops::RangeInclusive<usize>> {
    let start = source.lines().position(|line| line.starts_with(first)).context("its start")?;
    let length = source.lines().skip(start).position(|line| line.contains(last));
    Ok(start + 1..=start + 1 + length.context("its end")?)
}

#[test]
fn a_slow_holder_in_python_is_named_first() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let (path, source) = script("hoard.py")?;
    let section = lines(&source, "def hoard", "time.sleep")?;
    let path = path.to_str().context("a path in UTF-8")?;
    // In the last one the section does nothing itself: it calls a function.
    for kind in [&["Lock"][..], &["RLock"], &["Condition"], &["Lock", "helped"]] {
        let is_named = || -> Result<Result<(), String>> {
            let program = [&[python.as_str(), path, "300"], kind].concat();
            let report = profile("hoard-py", &[], &program, "done\n")?;
            let first = report.pointer("/processes/0/locks/0").context("a lock")?;
            let of = |site: &str| {
                (text(first, &format!("{site}/function")), text(first, &format!("{site}/place")))
            };
            let ((holder, held_at), (waiter, _)) = (of("/holders/0"), of("/waiters/0"));
            let line = held_at.strip_prefix("hoard.py:").and_then(|line| line.parse().ok());
            let is = text(first, "/kind") == "semaphore"
                && holder == "hoard"
                && line.is_some_and(|line: usize| section.contains(&line))
                && waiter == "quick"
                && number(first, "/holders/0/samples") > 0
                && number(first, "/holders/0/ns") >= 1_000_000;
            Ok(if is { Ok(()) } else { Err(format!("{kind:?}: {first:#}")) })
        };
        until(is_named)?;
    }
    Ok(())
}

/// Runs it until it is as it should be.
fn until(mut run: impl FnMut() -> Result<Result<(), String>>) -> Result<()> {
    let mut last = String::new();
    for _ in 0..RUNS {
        match run()? {
            Ok(()) => return Ok(()),
            Err(seen) => last = seen,
        }
    }
    bail!("in {RUNS} runs: {last}")
}

/// A flame graph and a watched process have the same names.
#[test]
fn python_is_named_in_a_process_that_runs_and_in_a_flame_graph() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let (path, _) = script("hoard.py")?;
    let path = path.to_str().context("a path in UTF-8")?;
    let running = lockwright().args(["run", "--", &python, path, "1000000"]).start()?;
    let pid = running.pid().to_string();
    let flame = FOLDER.path().join("hoard-py.svg");
    let flame = flame.to_str().context("a path in UTF-8")?;
    let mut last = String::new();
    for _ in 0..60 {
        let outcome = lockwright()
            .args(["profile", "--quiet", "--time", "500ms", "--flame", flame, "-p", &pid])
            .run()?;
        last = outcome.describe();
        let is_named = outcome.text().contains("% hoard (hoard.py:")
            && fs::read_to_string(flame).is_ok_and(|flame| flame.contains("slowly (hoard.py:"));
        if is_named {
            return running.stop().map(drop);
        }
    }
    running.stop()?;
    bail!("not named: {last}")
}

/// What one thread takes and another releases is no lock, and neither is what says that a thread has ended.
#[test]
fn pythons_signals_are_no_locks() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let (path, _) = script("signals.py")?;
    let path = path.to_str().context("a path in UTF-8")?;
    let total: u32 = (0..300).sum();
    let output = format!("True False {total} {total}\n");
    for level in ["counters", "full"] {
        let report = profile("signals-py", &["--level", level], &[&python, path], &output)?;
        assert!(number(&report, "/processes/0/signals/waits") > 0, "{report:#}");
        // The main thread waits for the ends of the others alone, and for an event.
        let locks = report.pointer("/processes/0/locks").and_then(Value::as_array);
        let waits = |lock: &&Value| text(lock, "/waiters/0/function") == "<module>";
        assert_eq!(locks.into_iter().flatten().find(waits), None, "{report:#}");
    }
    let outcome = lockwright().args(["run", "--", &python, path]).run()?;
    assert_eq!((outcome.end, outcome.text()), (End::Code(0), output), "not counted");
    Ok(())
}

#[test]
fn a_semaphore_that_is_a_lock_is_blamed_and_a_signal_is_not() -> Result<()> {
    let program = compiled("semaphores", "semaphores.c", &[]);
    let path = program.to_str().context("a path in UTF-8")?;
    for level in ["counters", "full"] {
        let is_named = || -> Result<Result<(), String>> {
            let report = profile("semaphores", &["--level", level], &[path], "done\n")?;
            let all = names(&report);
            for signal in ["ready", "asked", "two"] {
                ensure!(!all.contains(&signal), "{signal} is no lock: {report:#}");
            }
            ensure!(number(&report, "/processes/0/signals/semaphores") >= 1, "{report:#}");
            let Some(first) = report.pointer("/processes/0/locks/0") else {
                return Ok(Err(format!("{report:#}")));
            };
            let is = text(first, "/name") == "locks+0x1a0"
                && text(first, "/kind") == "semaphore"
                && text(first, "/holders/0/function") == "hoard"
                && text(first, "/holders/0/place").starts_with("semaphores.c:")
                && text(first, "/waiters/0/function") == "quick"
                && number(first, "/holders/0/ns") >= 1_000_000
                && number(first, "/hold/count") > 0;
            Ok(if is { Ok(()) } else { Err(format!("{first:#}")) })
        };
        until(is_named)?;
    }
    Ok(())
}
