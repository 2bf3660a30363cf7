//! `lockwright profile -- PROGRAM`, where threads wait until the program ends, or for locks that aren't counted.

use super::{FOLDER, LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::End;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

static UNENDED: LazyLock<PathBuf> = LazyLock::new(|| compiled("unended", "unended.c", &["-O1"]));

/// The lock for which two threads wait from the start to the end comes first, and nobody is told to leave it alone.
#[test]
fn waits_that_are_open_at_the_end_count() -> Result<()> {
    let file = FOLDER.path().join("unended.json");
    let options = ["profile", "-q", "--format=json", "--output"];
    let outcome =
        lockwright().args(options).args([&file]).args(["--"]).args([&*UNENDED]).args(["held"]);
    let outcome = outcome.run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let report: Value = serde_json::from_slice(&fs::read(file)?)?;
    let lock = report.pointer("/processes/0/locks/0").context("a lock")?;
    ensure!(lock["name"] == "db", "{report:#}");
    // The program sleeps for 3 s in the end.
    let unended = lock["unended_ns"].as_u64().unwrap_or_default();
    ensure!(unended > 1_500_000_000 && lock["wait_ns"].as_u64() >= Some(unended), "{lock:#}");
    ensure!(lock["advice"]["rule"] != "little", "{lock:#}");
    let waits = report["waiting_now"]["waits"].as_array().context("who waits")?;
    ensure!(waits.iter().all(|wait| wait["lock"] == "db") && !waits.is_empty(), "{report:#}");
    Ok(())
}

/// It is said while the program hangs, and again in the report.
#[test]
fn a_deadlock_is_told_at_once_and_at_the_end() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
    command.args(["profile", "-q", "--"]).arg(&*UNENDED).arg("dead");
    command.env("LOCKWRIGHT_LIBRARY", &*LIBRARY).env("XDG_CONFIG_HOME", FOLDER.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut pid = String::new();
    BufReader::new(child.stdout.take().context("its output")?).read_line(&mut pid)?;
    let pid: i32 = pid.trim().parse()?;
    let mut lines = BufReader::new(child.stderr.take().context("its errors")?).lines();
    const HEAD: &str = "deadlock: 2 threads wait for each other";
    let is_head =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.starts_with(HEAD));
    let is_told = lines.any(|line| is_head(&line));
    // SAFETY: our own child's child, which still hangs.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let rest = lines.collect::<std::io::Result<Vec<_>>>()?.join("\n");
    child.wait()?;
    ensure!(is_told, "nothing is said at once; then: {rest}");
    ensure!(rest.contains("at the last look before the end:") && rest.contains(HEAD), "{rest}");
    ensure!(!rest.contains("no thread had to wait") && !rest.contains("leave it"), "{rest}");
    Ok(())
}

/// They stay glibc's, so nothing counts them.
#[test]
fn nobody_denies_waits_for_locks_that_processes_share() -> Result<()> {
    // Mutexes are counted; rwlocks are sampled.
    for (way, name) in [("mutex", "1. both held by"), ("rwlock", "process-shared readers-")] {
        let options = ["profile", "-q", "--"];
        let outcome = lockwright().args(options).args([&*UNENDED]).args([way]).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let said = outcome.errors().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(said.contains(name) && !said.contains("no thread had to wait"), "{way}: {said}");
    }
    Ok(())
}
