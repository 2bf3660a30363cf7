//! Where a command gets its results from.

use crate::file::{Appended, Known, ShardHeader};
use crate::words::{joined, with_output};
use crate::{Error, Shard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A unit of work with one result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The number that decides which shard owns the job. Jobs that belong together have the same number.
    pub number: usize,
    /// Identifies the job within its plan, and stays the same between runs.
    pub key: String,
}

impl Job {
    /// A job for each key, numbered in their order.
    pub fn all(keys: impl IntoIterator<Item = String>) -> Vec<Self> {
        keys.into_iter().enumerate().map(|(number, key)| Self { number, key }).collect()
    }
}

/// An experiment's results: those already known, and a place for new ones.
#[derive(Debug)]
pub struct Session {
    shard: Shard,
    /// This session makes only one shard's results, and no report.
    is_part: bool,
    known: Known,
    file: Option<Mutex<Appended>>,
    /// The headers of all merged shards, or of the one shard that is kept.
    headers: Vec<ShardHeader>,
    /// Set if all results come from merged shards.
    merged: Option<Merged>,
}

#[derive(Debug)]
pub(crate) struct Merged {
    /// The command, as it would be for one machine.
    pub(crate) words: Vec<String>,
    /// The folder of each shard's file.
    pub(crate) folders: BTreeMap<u32, PathBuf>,
}

impl Session {
    /// A session that does every job and keeps nothing.
    pub fn transient() -> Self {
        let (known, headers) = (Known::new(), Vec::new());
        Self { shard: Shard::WHOLE, is_part: false, known, file: None, headers, merged: None }
    }

    pub(crate) fn open(header: ShardHeader, folder: &Path, resume: bool) -> Result<Self, Error> {
        let (file, begun, known) = Appended::open(&header, folder, resume)?;
        let (shard, file) = (header.shard(), Some(Mutex::new(file)));
        let mut headers = vec![header];
        if let Some(begun) = begun {
            // The command may now be spelled differently, but the header keeps the machine on which the shard began.
            headers[0].machine = begun.machine;
        }
        Ok(Self { shard, is_part: false, known, file, headers, merged: None })
    }

    pub(crate) fn of_a_part(self) -> Self {
        Self { is_part: true, ..self }
    }

    pub(crate) fn merged(headers: Vec<ShardHeader>, known: Known, merged: Merged) -> Self {
        let shard = Shard::WHOLE;
        Self { shard, is_part: false, known, file: None, headers, merged: Some(merged) }
    }

    /// Does this session only make results, leaving the report to `merge`?
    pub fn is_part(&self) -> bool {
        self.is_part
    }

    /// Does it do every job here, and keep nothing?
    pub fn is_transient(&self) -> bool {
        !self.keeps() && !self.is_merged()
    }

    /// Do all results come from files?
    pub fn is_merged(&self) -> bool {
        self.merged.is_some()
    }

    /// Does it keep new results in a file?
    pub fn keeps(&self) -> bool {
        self.file.is_some()
    }

    /// The shard of this session.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// The shards and the machines that made them, in order; empty if nothing is kept.
    pub fn machines(&self) -> Vec<(Shard, &str)> {
        self.headers.iter().map(|header| (header.shard(), header.machine.as_str())).collect()
    }

    /// Was what is kept begun on this machine, `here` in words? `whole` is what must be measured on one machine.
    ///
    /// # Errors
    /// It wasn't.
    pub fn stays_on(&self, here: &str, whole: &str) -> Result<(), Error> {
        let machines = self.machines();
        match machines.first() {
            Some((shard, machine)) if !self.is_merged() && *machine != here => Err(Error::new(
                format!(
                    "shard {shard} was begun on another machine ({machine}); all rounds of {whole} need the same machine"
                ),
                "go on there, or begin it here in another folder",
            )),
            _ => Ok(()),
        }
    }

    /// Which machine measured which jobs, if more than one machine did: a line each. `labels` name the jobs, in the order of
    /// their numbers.
    pub fn shared_out(&self, labels: &[String]) -> Vec<String> {
        let mut of: Vec<(&str, Vec<&str>)> = Vec::new();
        for (shard, machine) in self.machines() {
            let owned = labels.iter().enumerate().filter(|(job, _)| self.owner(*job) == shard);
            let owned = owned.map(|(_, label)| label.as_str());
            match of.iter_mut().find(|(known, _)| *known == machine) {
                Some((_, all)) => all.extend(owned),
                None => of.push((machine, owned.collect())),
            }
        }
        of.retain(|(_, jobs)| !jobs.is_empty());
        if of.len() < 2 {
            return Vec::new();
        }
        let line = |(machine, jobs): (&str, Vec<&str>)| {
            format!("machine: {machine}: it measured {}", jobs.join("; "))
        };
        of.into_iter().map(line).collect()
    }

    /// The merged shard that owns the job.
    pub fn owner(&self, job: usize) -> Shard {
        Shard::owner(job, self.headers.first().map_or(1, |header| header.of))
    }

    /// The command's words for one machine, without the program's name; `None` if they are this process's own.
    pub fn words(&self) -> Option<Vec<String>> {
        match (&self.merged, self.headers.first()) {
            (Some(merged), _) => Some(merged.words.clone()),
            (None, header) => header.map(|header| header.command.clone()),
        }
    }

    /// Does this session do the job, unless its result is already known?
    pub fn does(&self, job: &Job) -> bool {
        !self.is_merged() && self.shard.owns(job.number)
    }

    /// The job's result, if it is known.
    ///
    /// # Errors
    /// The file has something else under this key.
    pub fn known<R: DeserializeOwned>(&self, key: &str) -> Result<Option<R>, Error> {
        let Some(text) = self.known.get(key) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|why| {
            Error::new(
                format!("the result of '{key}' is not what this command writes: {why}"),
                "remove that shard's file, and run it again",
            )
        })
    }

    /// The keys of all known results.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Is its result known?
    pub fn knows(&self, key: &str) -> bool {
        self.known.contains_key(key)
    }

    /// Keeps a result, if this session keeps any. Once this returns, the result survives the end of the process.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn keep<R: Serialize>(&self, key: &str, result: &R) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let raw = serde_json::value::to_raw_value(result).expect("a result is JSON");
        file.lock().unwrap_or_else(PoisonError::into_inner).append(key, &raw)
    }

    /// Writes all kept results to disk.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn sync(&self) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        file.lock().unwrap_or_else(PoisonError::into_inner).sync()
    }

    /// All results, in the order of the jobs; `None` if this session has only some of them.
    ///
    /// `run` gets the positions of the jobs to do, and a function to which it passes each result, from any thread.
    ///
    /// # Errors
    /// The file can't be read or written; a merged shard lacks results.
    pub fn results<R: Serialize + DeserializeOwned + Send>(
        &self,
        jobs: &[Job],
        run: impl FnOnce(&[usize], &Done<'_, R>) -> Result<(), Error>,
    ) -> Result<Option<Vec<R>>, Error> {
        if self.is_merged() {
            self.complete(jobs)?;
        }
        let left = |place: &usize| self.does(&jobs[*place]) && !self.knows(&jobs[*place].key);
        let left: Vec<usize> = (0..jobs.len()).filter(left).collect();
        let made = Mutex::new(BTreeMap::new());
        run(&left, &|place, result: R| {
            self.keep(&jobs[place].key, &result)?;
            if !self.is_part {
                made.lock().unwrap_or_else(PoisonError::into_inner).insert(place, result);
            }
            Ok(())
        })?;
        self.sync()?;
        if self.is_part {
            return Ok(None);
        }
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let one = |(place, job): (usize, &Job)| match made.remove(&place) {
            Some(result) => Ok(result),
            None => Ok(self.known(&job.key)?.expect("it was known, or it was made")),
        };
        jobs.iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
    }

    /// Checks that the results of all these jobs are known.
    ///
    /// # Errors
    /// The shards that lack results, and the commands that make them.
    pub fn complete(&self, jobs: &[Job]) -> Result<(), Error> {
        let mut lacking: BTreeMap<Shard, u64> = BTreeMap::new();
        for job in jobs.iter().filter(|job| !self.knows(&job.key)) {
            *lacking.entry(self.owner(job.number)).or_default() += 1;
        }
        self.lacks(&lacking)
    }

    /// As [`complete`](Self::complete), for too many jobs to list: `lacking` has the number of results that each shard
    /// lacks.
    ///
    /// # Errors
    /// The shards that lack results, and the commands that make them.
    pub fn lacks(&self, lacking: &BTreeMap<Shard, u64>) -> Result<(), Error> {
        let (Some(merged), Some(header)) = (&self.merged, self.headers.first()) else {
            return Ok(());
        };
        if lacking.is_empty() {
            return Ok(());
        }
        let what = |(shard, count): (&Shard, &u64)| {
            format!("shard {shard} lacks {count} result{}", if *count == 1 { "" } else { "s" })
        };
        let what: Vec<String> = lacking.iter().map(what).collect();
        let left = |shard: &Shard| (shard.number, merged.folders[&shard.number].as_path());
        let left: Vec<_> = lacking.keys().map(left).collect();
        Err(Error::new(what.join(", "), header.resume_all(&left)))
    }

    /// A message: what the shard has done, and what to do next.
    pub fn summary(&self) -> String {
        let (Some(header), Some(file)) = (self.headers.first(), &self.file) else {
            return String::new();
        };
        let file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let results = self.known.len() + file.appended();
        format!(
            "shard {} is done: {results} result{} in {}\nwhen all are: {} merge {}\n",
            self.shard,
            if results == 1 { "" } else { "s" },
            file.path().display(),
            header.program,
            joined(&[self.folder(&file).display().to_string()]),
        )
    }

    fn folder<'a>(&self, file: &'a Appended) -> &'a Path {
        file.path().parent().unwrap_or(Path::new("."))
    }

    /// The command that resumes from the kept results; `None` if nothing is kept.
    pub fn resume(&self) -> Option<String> {
        let header = self.headers.first().filter(|_| self.keeps())?;
        let file = self.file.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_part {
            return Some(header.resume(self.shard, self.folder(&file)));
        }
        let words = with_output(&header.command, Some(self.folder(&file)));
        Some(format!("{} {} --resume", header.program, joined(&words)))
    }
}

/// Receives the result of the job at this position.
pub type Done<'a, R> = dyn Fn(usize, R) -> Result<(), Error> + Sync + 'a;
