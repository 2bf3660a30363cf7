//! Merges the files of all shards.

use crate::file::{Contents, Known, ShardHeader, add, read, unreadable};
use crate::session::Merged;
use crate::words::with_output;
use crate::{Error, Plan, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// All shards of one plan.
#[derive(Debug)]
pub struct Merge {
    headers: BTreeMap<u32, ShardHeader>,
    folders: BTreeMap<u32, PathBuf>,
    known: Known,
    output: Option<PathBuf>,
}

/// The program that merges.
#[derive(Clone, Copy, Debug)]
pub struct Merger {
    /// The program's name, as users call it.
    pub program: &'static str,
    /// Its subcommands that make shards. Headers with other subcommands are refused.
    pub commands: &'static [&'static str],
    /// For each command, the key under which its results store running times. These differ from run to run.
    pub times: &'static [(&'static str, &'static str)],
}

impl Merge {
    /// Reads the shards' files in `folders`. `output` is where the report goes.
    ///
    /// # Errors
    /// A folder has no shard; a shard is from another program or build, or from a command that makes none; shards are
    /// from different plans, builds, or numbers of shards; a shard is missing; two results of one job differ; a file
    /// can't be read.
    pub fn read(folders: &[PathBuf], output: Option<&Path>, by: Merger) -> Result<Self, Error> {
        let mut all = Self {
            headers: BTreeMap::new(),
            folders: BTreeMap::new(),
            known: Known::new(),
            output: output.map(Path::to_owned),
        };
        let mut seen = BTreeSet::new();
        for folder in folders {
            let files = shards(folder)?;
            if files.is_empty() {
                return Err(Error::new(
                    format!("no shard in '{}'", folder.display()),
                    format!(
                        "{} {} ... --shard 1/8 --output '{}'",
                        by.program,
                        by.commands[0],
                        folder.display()
                    ),
                ));
            }
            for file in files {
                // The same folder may be named twice.
                if !seen.insert(fs::canonicalize(&file).unwrap_or_else(|_| file.clone())) {
                    continue;
                }
                // The shard was killed before its first line. It counts as missing.
                if let Some(contents) = read(&file)? {
                    by.check(&file, &contents.header)?;
                    all.add(&file, folder, contents, by)?;
                }
            }
        }
        all.check(folders)?;
        Ok(all)
    }

    fn add(
        &mut self,
        file: &Path,
        folder: &Path,
        contents: Contents,
        by: Merger,
    ) -> Result<(), Error> {
        let header = contents.header;
        if let Some(first) = self.headers.values().next()
            && let Some(why) = first.differs(&header)
        {
            let (its, theirs) = (header.whole(), first.whole());
            let hint = match its == theirs {
                true => format!(
                    "merge them apart: mv '{}'/shard-*-of-{}.jsonl ANOTHER_DIR",
                    folder.display(),
                    header.of
                ),
                false => format!("its own: {its}; theirs: {theirs}"),
            };
            let why = format!("'{}' {why} than the shards before it", file.display());
            return Err(Error::new(why, hint));
        }
        let is_its = |(command, _): &&(&str, &str)| {
            header.command.first().is_some_and(|first| first == command)
        };
        let time = by.times.iter().find(is_its).map(|(_, time)| *time);
        for (job, result) in contents.known {
            add(&mut self.known, job, &result, file, time)?;
        }
        self.folders.entry(header.shard).or_insert(folder.to_owned());
        self.headers.entry(header.shard).or_insert(header);
        Ok(())
    }

    fn check(&self, folders: &[PathBuf]) -> Result<(), Error> {
        let Some(first) = self.headers.values().next() else {
            return Err(Error::new(
                "no shard has begun: no header is complete",
                "run the shards again, with --resume",
            ));
        };
        let missing: Vec<u32> =
            (1..=first.of).filter(|number| !self.headers.contains_key(number)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let is_one = missing.len() == 1;
        let numbers: Vec<String> = missing.iter().map(u32::to_string).collect();
        let left: Vec<_> = missing.iter().map(|&number| (number, folders[0].as_path())).collect();
        Err(Error::new(
            format!(
                "shard{} {} of {} {} missing",
                if is_one { "" } else { "s" },
                numbers.join(", "),
                first.of,
                if is_one { "is" } else { "are" },
            ),
            first.resume_all(&left),
        ))
    }

    /// The command's words, as they would be for one machine. Parse them as that command's own.
    ///
    /// # Panics
    /// Never: there is at least one shard.
    pub fn words(&self) -> Vec<String> {
        with_output(&self.first().command, self.output.as_deref())
    }

    /// Where the report goes. Nothing else may be written, whatever the command's words say.
    pub fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    fn first(&self) -> &ShardHeader {
        self.headers.values().next().expect("a shard was found")
    }

    /// The session that knows all results, if the shards were made by `plan`.
    ///
    /// # Errors
    /// They were made by another plan: a file that the command names has changed.
    pub fn session(self, plan: &Plan) -> Result<Session, Error> {
        if plan.hash() != self.first().plan {
            return Err(Error::new(
                "this command depends on files or settings that differ from when the shards were made",
                "merge where its files (machines, traces, libraries), LOCKWRIGHT_TOPOLOGY and \
                 LOCKWRIGHT_PAUSE are as they were there",
            ));
        }
        let words = self.words();
        let merged = Merged { words, folders: self.folders };
        Ok(Session::merged(self.headers.into_values().collect(), self.known, merged))
    }
}

impl Merger {
    /// May the header's words be used? Anyone could have written it.
    fn check(self, file: &Path, header: &ShardHeader) -> Result<(), Error> {
        let shown = file.display();
        if header.program != self.program {
            return Err(Error::new(
                format!("'{shown}' is not a shard of {}", self.program),
                "merge with the program that made it: lockwright sim --merge, cargo xtask merge",
            ));
        }
        if !header.is_ours() {
            return Err(Error::new(
                format!("'{shown}' was made by another build of lockwright"),
                "merge with the program that made it",
            ));
        }
        let is_known = |word: &String| self.commands.contains(&word.as_str());
        if !header.command.first().is_some_and(is_known) {
            return Err(Error::new(
                format!("'{shown}' is from a command that makes no shards"),
                format!(
                    "the commands that make shards: {} {}",
                    self.program,
                    self.commands.join(", ")
                ),
            ));
        }
        Ok(())
    }
}

/// The shards' files in a folder, in the order of their names.
fn shards(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let is_shard = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("shard-") && name.ends_with(".jsonl")
    };
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_shard).collect();
    files.sort();
    Ok(files)
}
