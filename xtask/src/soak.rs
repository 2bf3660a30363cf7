//! Searches that are longer than the gate has time for. Nothing is taken by turns, models get ten times as long, and every lock and
//! each of its faults is explored. What has passed is written down, so that a soak that was interrupted goes on where it was.

use crate::No;
use crate::test::{PACKAGES, Runner, Step, install_packages};
use anyhow::{Context, Result, ensure};
use lockwright_locks::catalog::{CATALOG, READ_WRITE};
use lockwright_tests::{SOAK, scratch};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds to explore each lock for.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    explore: u32,
    /// Forget what has passed, and begin again.
    #[arg(long)]
    again: bool,
}

/// Seconds that a step may take.
const LIMIT: u64 = 6 * 3600;

pub(crate) fn main(args: Args) -> Result<()> {
    install_packages(&PACKAGES)?;
    let commit = commit()?;
    let xtask = std::env::current_exe()?; // before a step builds a newer one: its path stays good
    let folder = scratch("soak")?;
    let notes = folder.join("passed.txt");
    if args.again && notes.exists() {
        fs::remove_file(&notes)?;
    }
    let passed: BTreeSet<String> = match fs::read_to_string(&notes) {
        Ok(text) => text.lines().map(str::to_string).collect(),
        Err(_) => BTreeSet::new(),
    };
    let steps = steps(args.explore);
    let mut failed = 0;
    for (number, (name, runner, words)) in steps.iter().enumerate() {
        let note = format!("{commit} {name} {words}");
        if passed.contains(&note) {
            continue;
        }
        eprintln!("soak: {} of {}", number + 1, steps.len());
        let step = Step { name, shows: words, runner: *runner, args: words, limit: LIMIT };
        let count = step.run(&xtask, &[(SOAK, "1")], &folder.join(format!("{name}.log")))?;
        if count.failed > 0 {
            failed += 1;
            continue;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&notes)?;
        writeln!(file, "{note}")?;
    }
    if failed > 0 {
        return Err(No(format!(
            "{failed} of {} steps failed; the others need not run again",
            steps.len()
        ))
        .into());
    }
    println!("all {} steps have passed at {commit}", steps.len());
    Ok(())
}

/// What has passed has passed for this source. One that is not committed has no name.
fn commit() -> Result<String> {
    let git = |args: &[&str]| -> Result<String> {
        let output = Command::new("git").args(args).output().context("cannot run git")?;
        ensure!(output.status.success(), "git {}: {}", args.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    ensure!(
        changes.is_empty(),
        "the source has changes that are not committed, so what passes could not be written down\nhint: git commit"
    );
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Each step's name, who runs it, and its words.
fn steps(explore: u32) -> Vec<(String, Runner, String)> {
    let test = |name: &str, words: &str| {
        (name.to_string(), Runner::Cargo, format!("test --no-fail-fast {words}"))
    };
    let mut steps = vec![
        test("posix", "-p lockwright-tests --test posix -- --test-threads 4"),
        test("apps", "-p lockwright-tests --test apps"),
        ("conformance".into(), Runner::Xtask, "conformance".into()),
        test("models", "-p lockwright-model -- --show-output"),
        ("weaken".into(), Runner::Xtask, "weaken".into()),
    ];
    for id in CATALOG.iter().chain(READ_WRITE).map(|entry| entry.id).chain(["runtime"]) {
        let run = format!("run --release -p lockwright-cli -- explore {id}");
        steps.push((format!("explore-{id}"), Runner::Cargo, format!("{run} --time {explore}")));
        steps.push((
            format!("mutants-{id}"),
            Runner::Cargo,
            format!("{run} --mutants --schedules 100000"),
        ));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_is_explored_and_no_step_has_anothers_name() {
        let steps = steps(1);
        let names: BTreeSet<_> = steps.iter().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), steps.len());
        assert!(
            CATALOG
                .iter()
                .chain(READ_WRITE)
                .all(|entry| names.contains(&format!("explore-{}", entry.id)))
        );
    }
}
