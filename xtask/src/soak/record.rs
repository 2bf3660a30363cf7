//! What the soaks have searched, kept in the repository: for each step the commit where it last passed.

use super::notes::{Note, Notes};
use super::steps::SoakStep;
use crate::root::root;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use toml_edit::{DocumentMut, Item};

const FILE: &str = "bench/soak.toml";

const HEAD: &str = "\
# What `cargo xtask soak` has searched; written by `cargo xtask soak --record` (docs/soak.md).

# The last commit at which every step passed.
";

/// Where a step last passed, and what that took.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    commit: String,
    date: String,
    seconds: u64,
    /// Number of models that completed, and of those that the time limit stopped.
    complete: u64,
    partial: u64,
    /// The command's words and variables: how long it searched.
    search: String,
}

impl Entry {
    fn of(note: &Note) -> Self {
        Self {
            commit: note.commit.clone(),
            date: note.date.clone(),
            seconds: note.seconds,
            complete: note.complete,
            partial: note.partial,
            search: note.key.clone(),
        }
    }

    fn read(item: &Item) -> Option<Self> {
        let text = |key: &str| Some(item.get(key)?.as_str()?.to_owned());
        let number = |key: &str| u64::try_from(item.get(key)?.as_integer()?).ok();
        let entry = Self {
            commit: text("commit")?,
            date: text("date")?,
            seconds: number("seconds")?,
            complete: number("models_complete")?,
            partial: number("models_partial")?,
            search: text("search")?,
        };
        is_commit(&entry.commit).then_some(entry)
    }
}

/// The whole record.
#[derive(Debug, PartialEq)]
struct Record {
    /// The commit of the last whole run, or `never`.
    whole: String,
    steps: BTreeMap<String, Entry>,
}

impl Record {
    /// Reads the record; `None` if `--record` could not have written it.
    fn parse(text: &str) -> Option<Self> {
        let document = text.strip_prefix(HEAD)?.parse::<DocumentMut>().ok()?;
        let whole = document.get("commit")?.as_str()?.to_owned();
        let mut steps = BTreeMap::new();
        if let Some(table) = document.get("steps") {
            for (name, item) in table.as_table()? {
                steps.insert(name.to_owned(), Entry::read(item)?);
            }
        }
        (whole == "never" || is_commit(&whole)).then_some(Self { whole, steps })
    }

    /// Adds what has passed here since, and drops steps that no longer exist. If every step has passed at one commit,
    /// the run is whole.
    fn add(&mut self, plans: &[SoakStep], notes: &Notes) {
        self.steps.retain(|name, _| plans.iter().any(|plan| plan.name == *name));
        for plan in plans {
            let Some(note) = notes.last(plan) else { continue };
            let known = self.steps.get(&plan.name);
            if known.is_none_or(|known| known.date <= note.date) {
                self.steps.insert(plan.name.clone(), Entry::of(note));
            }
        }
        let mut commits = self.steps.values().map(|entry| &entry.commit);
        if let Some(first) = commits.next()
            && self.steps.len() == plans.len()
            && commits.all(|commit| commit == first)
        {
            self.whole.clone_from(first);
        }
    }

    fn text(&self) -> String {
        let mut out = format!("{HEAD}commit = \"{}\"\n", self.whole);
        for (name, entry) in &self.steps {
            let Entry { commit, date, seconds, complete, partial, search } = entry;
            let _ = write!(
                out,
                "\n[steps.{name}]\ncommit = \"{commit}\"\ndate = \"{date}\"\nseconds = {seconds}\n\
                 models_complete = {complete}\nmodels_partial = {partial}\nsearch = \"{search}\"\n"
            );
        }
        out
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 12 && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Adds to the record what has passed here.
///
/// # Errors
/// Nothing has passed here, or the record can't be read or written.
pub(super) fn write(plans: &[SoakStep], notes: &Notes) -> Result<()> {
    let here = plans.iter().filter(|plan| notes.last(plan).is_some()).count();
    ensure!(here > 0, "no step has passed here yet\nhint: cargo xtask soak");
    let path = root().join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read '{FILE}'"))?;
    let record = Record::parse(&text);
    let mut record =
        record.with_context(|| format!("{}\nhint: git checkout {FILE}", malformed()))?;
    record.add(plans, notes);
    fs::write(&path, record.text()).with_context(|| format!("cannot write '{FILE}'"))?;
    println!(
        "{FILE}: {} of {} steps; last whole run: {}",
        record.steps.len(),
        plans.len(),
        record.whole
    );
    Ok(())
}

/// Checks that `--record` could have written the record.
pub(crate) fn check(root: &Path, complaints: &mut Vec<String>) {
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    if Record::parse(&text).is_none() {
        complaints.push(malformed());
    }
}

fn malformed() -> String {
    format!("{FILE}: not as `cargo xtask soak --record` writes it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::steps::{Sizes, all};

    fn empty() -> Record {
        Record::parse(&format!("{HEAD}commit = \"never\"\n")).unwrap()
    }

    #[test]
    fn a_run_is_whole_once_every_step_has_passed_at_one_commit() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Notes::read(&folder.path().join("passed.tsv")).unwrap();
        let plans = all(&Sizes { explore_s: 1, model_hours: 1.0 });
        let (one, two) = ("0123456789ab", "ba9876543210");
        let mut record = empty();
        for plan in &plans[1..] {
            notes.add(Note::new(one, plan, 60, "complete\nPARTIAL\n").unwrap()).unwrap();
        }
        record.add(&plans, &notes);
        assert_eq!((record.steps.len(), record.whole.as_str()), (plans.len() - 1, "never"));
        notes.add(Note::new(two, &plans[0], 60, "").unwrap()).unwrap();
        record.add(&plans, &notes);
        assert_eq!((record.steps.len(), record.whole.as_str()), (plans.len(), "never"));
        notes.add(Note::new(one, &plans[0], 60, "").unwrap()).unwrap();
        record.add(&plans, &notes);
        assert_eq!(record.whole, one);
        assert_eq!(Record::parse(&record.text()).as_ref(), Some(&record));
        notes.add(Note::new(two, &plans[0], 60, "").unwrap()).unwrap();
        record.add(&plans, &notes);
        assert_eq!(record.whole, one, "the last whole run stays on record");
        assert_eq!(record.steps[&plans[0].name].commit, two);
    }

    #[test]
    fn what_others_recorded_stays_unless_it_is_older_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Notes::read(&folder.path().join("passed.tsv")).unwrap();
        let plans = all(&Sizes { explore_s: 1, model_hours: 1.0 });
        let note = Note::new("0123456789ab", &plans[0], 1, "").unwrap();
        let with = |date: &str| Entry { date: date.to_owned(), seconds: 9, ..Entry::of(&note) };
        let mut record = empty();
        record.steps.insert(plans[0].name.clone(), with("9999-01-01"));
        record.steps.insert(plans[1].name.clone(), with("2020-01-01"));
        record.steps.insert("a-lock-that-is-gone".to_owned(), with("2020-01-01"));
        for plan in &plans[..2] {
            notes.add(Note::new("0123456789ab", plan, 1, "").unwrap()).unwrap();
        }
        record.add(&plans, &notes);
        let took: Vec<u64> =
            plans[..2].iter().map(|plan| record.steps[&plan.name].seconds).collect();
        assert_eq!((took, record.steps.len()), (vec![9, 1], 2));
    }

    #[test]
    fn a_record_that_a_hand_has_spoilt_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bench")).unwrap();
        let whole = empty().text();
        let step = "\n[steps.apps]\ncommit = \"0123456789ab\"\n";
        for (text, complaints) in [
            (whole.clone(), 0),
            (whole.replace("never", "0123456789ab"), 0),
            (whole.replace("never", "yesterday"), 1),
            (whole + step, 1),
            (HEAD.to_owned(), 1),
            (String::new(), 1),
        ] {
            fs::write(folder.path().join(FILE), &text).unwrap();
            let mut found = Vec::new();
            check(folder.path(), &mut found);
            assert_eq!(found.len(), complaints, "{text}");
        }
    }
}
