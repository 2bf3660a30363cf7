//! Searches that take too long for the gate. Every combination runs, without rotation; models run to completion; and
//! every lock and each of its faults is explored. Passed steps are recorded, so that an interrupted soak continues
//! where it stopped. docs/soak.md says how to run it every night.

mod notes;
mod record;
mod steps;

pub(crate) use record::check;

use crate::answer::No;
use crate::test::{PACKAGES, Step, install_packages, short};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{SOAK, scratch};
use lockwright_text::beside;
use notes::{Note, Notes};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use steps::{Sizes, SoakStep};

/// Which steps, and until when.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Print each step: what it took, and at which commit it has passed.
    #[arg(long, conflicts_with = "again")]
    list: bool,
    /// Run only the steps whose names start with one of these, separated by commas.
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    only: Vec<String>,
    /// Start no step after this time; the same command continues from there.
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    hours: Option<f64>,
    /// Forget which of these steps have passed, and start over.
    #[arg(long)]
    again: bool,
}

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Add to bench/soak.toml what has passed here.
    #[arg(long, conflicts_with_all = ["list", "again", "only"])]
    record: bool,
    /// Minutes to explore each lock.
    #[arg(long, value_name = "MINUTES", default_value_t = 5)]
    explore: u32,
    /// Hours after which an unfinished model is stopped and counts as partial.
    #[arg(long, value_name = "HOURS", default_value = "1", value_parser = hours)]
    model: f64,
}

fn hours(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(hours) if (0.001..=10_000.0).contains(&hours) => Ok(hours),
        _ => Err(format!("'{text}' is not a number of hours from 0.001 to 10000")),
    }
}

/// Time limit of a step, in seconds.
const LIMIT: u64 = 48 * 3600;

/// Where it is noted what has passed.
const PASSED: &str = "passed.tsv";

pub(crate) fn main(args: Args) -> Result<()> {
    let all = steps::all(&Sizes { explore_s: 60 * args.explore, model_hours: args.model });
    if args.record {
        return record::write(&all, &Notes::read(&scratch("soak")?.join(PASSED))?);
    }
    choose("soak", &all, &args.choice)
}

/// `cargo xtask fuzz`: the soak's steps that draw inputs and policies.
pub(crate) fn fuzz(choice: &Choice) -> Result<()> {
    choose("fuzz", &steps::fuzz(), choice)
}

/// Runs or lists those of a command's steps that are chosen.
fn choose(command: &str, all: &[SoakStep], choice: &Choice) -> Result<()> {
    if let Some(name) = choice.only.iter().find(|only| all.iter().all(|step| !step.is(only))) {
        anyhow::bail!("no step begins with '{name}'\nhint: cargo xtask {command} --list");
    }
    let is_meant =
        |step: &&SoakStep| choice.only.is_empty() || choice.only.iter().any(|only| step.is(only));
    let meant: Vec<&SoakStep> = all.iter().filter(is_meant).collect();
    let folder = scratch("soak")?;
    let mut notes = Notes::read(&folder.join(PASSED))?;
    if choice.list {
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        print!("{}", list(&meant, &notes, &commit));
        return Ok(());
    }
    let commit = commit()?;
    install_packages(&PACKAGES)?;
    if choice.again {
        notes.forget(&meant)?;
    }
    let until = choice.hours.map(|hours| Instant::now() + Duration::from_secs_f64(3600.0 * hours));
    run(&meant, notes, &commit, until, &folder)
}

/// Runs the steps that haven't passed at this commit.
fn run(
    steps: &[&SoakStep],
    mut notes: Notes,
    commit: &str,
    until: Option<Instant>,
    folder: &Path,
) -> Result<()> {
    let xtask = std::env::current_exe()?; // now, before a step builds a newer one; the path stays valid
    let (mut failed, mut left) = (0, 0);
    for (number, plan) in steps.iter().enumerate() {
        if notes.passed(commit, plan).is_some() {
            continue;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            left += 1;
            continue;
        }
        eprintln!("soak: {} of {}", number + 1, steps.len());
        let (name, words) = (&plan.name, &plan.words);
        let step = Step { name, shows: plan.shows, runner: plan.runner, args: words, limit: LIMIT };
        let mut variables = vec![(SOAK, "1")];
        variables.extend(plan.variables.iter().map(|(name, value)| (*name, value.as_str())));
        let log = folder.join(format!("{name}.log"));
        let start = Instant::now();
        if step.run(&xtask, &variables, &log)?.failed > 0 {
            failed += 1;
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        notes.add(Note::new(commit, plan, start.elapsed().as_secs(), &text)?)?;
    }
    let count = steps.len();
    if failed > 0 {
        return Err(No(format!(
            "{failed} of {count} steps failed; passed steps need not run again"
        ))
        .into());
    }
    if left > 0 {
        return Err(No(format!(
            "time is up, and {left} of {count} steps are left: run the same command to continue"
        ))
        .into());
    }
    println!("all {count} steps have passed at {commit}");
    Ok(())
}

/// The steps, with how long each took and where it passed.
fn list(steps: &[&SoakStep], notes: &Notes, commit: &str) -> String {
    let mut out = String::new();
    let (mut here, mut seconds) = (0, 0);
    for plan in steps {
        let (took, passed) = match notes.last(plan) {
            Some(note) => {
                here += usize::from(note.commit == commit);
                seconds += note.seconds;
                (short(note.seconds), note.told())
            }
            None => ("-".to_owned(), "not yet run here".to_owned()),
        };
        let first = format!("{:<30} {took:>7}  ", plan.name);
        out += &beside(&first, &format!("{passed}: {}", plan.shows));
    }
    let first = format!("{:<30} {:>7}  ", "total", short(seconds));
    let total = format!("{here} of {} steps have passed at {commit}", steps.len());
    out + &beside(&first, &total)
}

/// The commit for which steps pass. Uncommitted source has no name.
fn commit() -> Result<String> {
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    ensure!(
        changes.is_empty(),
        "the source has changes that are not committed, so passed steps could not be recorded\nhint: git commit"
    );
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).output().context("cannot run git")?;
    ensure!(output.status.success(), "git {}: {}", args.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_and_says_where_each_step_has_passed() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Notes::read(&folder.path().join("passed.tsv")).unwrap();
        let all = steps::all(&Sizes { explore_s: 1, model_hours: 1.0 });
        let steps: Vec<&SoakStep> = all.iter().collect();
        let text = list(&steps, &notes, "abc");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("not yet run").count(), steps.len());
        notes.add(Note::new("abc", steps[0], 90, "").unwrap()).unwrap();
        notes.add(Note::new("old", steps[1], 30, "").unwrap()).unwrap();
        let text = list(&steps, &notes, "abc");
        assert!(
            text.contains("90 s  passed at abc") && text.contains("30 s  passed at old"),
            "{text}"
        );
        let total = text.lines().rev().take(2).collect::<Vec<_>>();
        assert!(total.concat().contains(&format!("1 of {} steps", steps.len())), "{text}");
    }
}
