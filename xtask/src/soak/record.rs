//! The record of the last complete soak, kept in the repository.

use super::notes::{Note, Notes};
use super::steps::Plan;
use crate::No;
use crate::tidy::root;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const FILE: &str = "bench/soak.toml";

const HEAD: &str = "\
# The last run of `cargo xtask soak` in which every step passed at one commit;
# written by `cargo xtask soak --record` (docs/soak.md).
";

/// Writes the record of the soak at this commit.
///
/// # Errors
/// [`No`]: some step hasn't passed there.
pub(super) fn write(steps: &[Plan], notes: &Notes, commit: &str) -> Result<()> {
    let text = text(steps, notes, commit)?;
    let path = root().join(FILE);
    fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    println!("{FILE} says that all {} steps have passed at {commit}", steps.len());
    Ok(())
}

fn text(steps: &[Plan], notes: &Notes, commit: &str) -> Result<String> {
    let passed: Vec<&Note> = steps.iter().filter_map(|step| notes.passed(commit, step)).collect();
    if passed.len() < steps.len() {
        return Err(No(format!(
            "{} of {} steps have not passed at {commit} yet, so there is no whole run to record\nhint: cargo xtask soak",
            steps.len() - passed.len(),
            steps.len()
        ))
        .into());
    }
    let sum = |of: fn(&Note) -> u64| passed.iter().map(|note| of(note)).sum::<u64>();
    let ended = passed.iter().map(|note| note.date.as_str()).max().unwrap_or("");
    Ok(format!(
        "{HEAD}\n\
         commit = \"{commit}\"\n\
         ended = \"{ended}\"\n\
         steps = {}\n\
         seconds = {}\n\
         # Models that completed, and those that --model stopped before.\n\
         models_complete = {}\n\
         models_partial = {}\n",
        steps.len(),
        sum(|note| note.seconds),
        sum(|note| note.complete),
        sum(|note| note.partial),
    ))
}

/// Checks that the record could have been written by `--record`, or is the initial one, which says "never".
pub(crate) fn check(root: &Path, complaints: &mut Vec<String>) {
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let record = text.parse::<toml_edit::DocumentMut>().unwrap_or_default();
    let commit = record.get("commit").and_then(|commit| commit.as_str()).unwrap_or("");
    let is_commit = commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit());
    let says = |key: &str| record.get(key).is_some_and(|value| value.is_integer());
    let is_whole = is_commit
        && ["steps", "seconds", "models_complete", "models_partial"].iter().all(|key| says(key));
    if !text.starts_with(HEAD) || !(commit == "never" || is_whole) {
        complaints.push(format!("{FILE}: not as `cargo xtask soak --record` writes it"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::steps::{Sizes, all};

    #[test]
    fn only_a_whole_run_is_recorded_and_the_record_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Notes::read(&folder.path().join("passed.tsv")).unwrap();
        let steps = all(&Sizes { explore_s: 1, model_hours: 1.0 });
        let commit = "0123456789ab";
        for step in &steps[1..] {
            notes.add(Note::new(commit, step, 60, "complete\nPARTIAL\n").unwrap()).unwrap();
        }
        let why = text(&steps, &notes, commit).unwrap_err();
        assert!(why.is::<No>() && why.to_string().starts_with("1 of "), "{why}");
        notes.add(Note::new("another_one_", &steps[0], 1, "").unwrap()).unwrap();
        assert!(text(&steps, &notes, commit).is_err());
        notes.add(Note::new(commit, &steps[0], 60, "").unwrap()).unwrap();
        let text = text(&steps, &notes, commit).unwrap();
        assert!(text.contains(&format!("seconds = {}\n", 60 * steps.len())), "{text}");
        fs::create_dir(folder.path().join("bench")).unwrap();
        for (text, complaints) in
            [(text.as_str(), 0), (&format!("{HEAD}\ncommit = \"never\"\n"), 0), (HEAD, 1), ("", 1)]
        {
            fs::write(folder.path().join(FILE), text).unwrap();
            let mut found = Vec::new();
            check(folder.path(), &mut found);
            assert_eq!(found.len(), complaints, "{text}");
        }
    }
}
