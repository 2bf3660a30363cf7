//! The steps that passed, each with its commit: one line per step, written when the step ends.

use super::steps::SoakStep;
use crate::demo::report::date;
use anyhow::{Context, Result};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A step that passed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) commit: String,
    pub(super) step: String,
    pub(super) date: String,
    pub(super) seconds: u64,
    /// Number of models that completed, and of those that the time limit stopped.
    pub(super) complete: u64,
    pub(super) partial: u64,
    /// What it ran, and with which variables.
    pub(super) key: String,
}

impl Note {
    /// The note for a step that has just passed with the output `log`.
    pub(super) fn new(commit: &str, plan: &SoakStep, seconds: u64, log: &str) -> Result<Self> {
        let count =
            |what: &str| log.lines().filter(|line| line.trim().starts_with(what)).count() as u64;
        Ok(Self {
            commit: commit.to_owned(),
            step: plan.name.clone(),
            date: date()?,
            seconds,
            complete: count("complete"),
            partial: count("PARTIAL"),
            key: plan.key(),
        })
    }

    /// `passed at COMMIT`, and how many models the time limit stopped.
    pub(super) fn told(&self) -> String {
        let partial = match self.partial {
            0 => String::new(),
            some => format!(" ({some} of {} models partial)", some + self.complete),
        };
        format!("passed at {}{partial}", self.commit)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let mut next = || parts.next().map(str::to_owned);
        Some(Self {
            commit: next()?,
            step: next()?,
            date: next()?,
            seconds: next()?.parse().ok()?,
            complete: next()?.parse().ok()?,
            partial: next()?.parse().ok()?,
            key: next()?,
        })
    }

    fn line(&self) -> String {
        let Self { commit, step, date, seconds, complete, partial, key } = self;
        format!("{commit}\t{step}\t{date}\t{seconds}\t{complete}\t{partial}\t{key}\n")
    }
}

/// All notes, oldest first.
pub(super) struct Notes {
    file: PathBuf,
    notes: Vec<Note>,
}

impl Notes {
    /// Reads `file`, which may be missing. A line that a kill left incomplete is ignored.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = if file.exists() { fs::read_to_string(file)? } else { String::new() };
        Ok(Self { file: file.to_owned(), notes: text.lines().filter_map(Note::parse).collect() })
    }

    pub(super) fn add(&mut self, note: Note) -> Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.file);
        let mut file = file.with_context(|| format!("cannot write '{}'", self.file.display()))?;
        // An incomplete line stays on a line of its own.
        let is_torn = fs::read(&self.file)?.last().is_some_and(|last| *last != b'\n');
        let line = if is_torn { format!("\n{}", note.line()) } else { note.line() };
        file.write_all(line.as_bytes())?;
        self.notes.push(note);
        Ok(())
    }

    /// Drops what is noted of these steps.
    pub(super) fn forget(&mut self, plans: &[&SoakStep]) -> Result<()> {
        self.notes.retain(|note| plans.iter().all(|plan| plan.name != note.step));
        let text: String = self.notes.iter().map(Note::line).collect();
        fs::write(&self.file, text)
            .with_context(|| format!("cannot write '{}'", self.file.display()))
    }

    /// The note of the step at this commit, if it passed.
    pub(super) fn passed(&self, commit: &str, plan: &SoakStep) -> Option<&Note> {
        let key = plan.key();
        let is_it =
            |note: &&Note| note.commit == commit && note.step == plan.name && note.key == key;
        self.notes.iter().rev().find(is_it)
    }

    /// The step's most recent note, at any commit.
    pub(super) fn last(&self, plan: &SoakStep) -> Option<&Note> {
        self.notes.iter().rev().find(|note| note.step == plan.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::steps::{Sizes, all};

    #[test]
    fn what_has_passed_is_read_again_and_a_line_cut_short_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passed.tsv");
        let steps = all(&Sizes { explore_s: 1, model_hours: 1.0 });
        let log = "loom: a\n    complete to 2 preemptions\n    PARTIAL: complete to 1\n";
        let note = Note::new("abc", &steps[0], 7, log).unwrap();
        assert_eq!([note.complete, note.partial], [1, 1]);
        assert_eq!(note.told(), "passed at abc (1 of 2 models partial)");
        Notes::read(&file).unwrap().add(note.clone()).unwrap();
        fs::write(&file, note.line() + "abc\tapps\t2026").unwrap();
        let mut notes = Notes::read(&file).unwrap();
        let next = Note::new("abc", &steps[1], 7, log).unwrap();
        notes.add(next.clone()).unwrap();
        assert_eq!(Notes::read(&file).unwrap().passed("abc", &steps[1]), Some(&next));
        fs::write(&file, note.line() + "abc\tapps\t2026").unwrap();
        let notes = Notes::read(&file).unwrap();
        assert_eq!(notes.passed("abc", &steps[0]), Some(&note));
        assert_eq!(notes.passed("abd", &steps[0]), None);
        assert_eq!(notes.last(&steps[1]), None);
        let longer = all(&Sizes { explore_s: 2, model_hours: 2.0 });
        let model = longer.iter().find(|step| step.is("models")).unwrap();
        assert_eq!(notes.passed("abc", model), None);
        let mut notes = notes;
        notes.add(next).unwrap();
        notes.forget(&[&steps[0]]).unwrap();
        let is_left = |notes: Notes| [0, 1].map(|at| notes.last(&steps[at]).is_some());
        assert_eq!(is_left(notes), [false, true]);
        assert_eq!(is_left(Notes::read(&file).unwrap()), [false, true]);
    }
}
