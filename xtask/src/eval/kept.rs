//! What an evaluation keeps of each part that it measures, so that it can be shared out and gone on with (`crate::shards`).
//!
//! What is compared is of one round, and rounds stand beside what was measured first; so all rounds of a database, or of a
//! program, are of one machine, and have one number. Each is kept when it is whole.

use crate::answer::{Interrupted, shown_words};
use crate::demo::measure::Disturbance;
use crate::demo::report::{date, machine};
use crate::shards;
use anyhow::Result;
use lockwright_bench::Machine;
use lockwright_shards::{Flags, Job, Merge, Session};
use lockwright_tests::Child;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A result, and how it came about: what a report says of the machine must not depend on who writes it.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept<R> {
    pub(super) result: R,
    circumstances: Circumstances,
}

/// When and where something was measured, and what else ran there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Circumstances {
    /// Of the first part, UTC.
    pub(super) date: String,
    /// In words.
    pub(super) machine: String,
    pub(super) disturbance: Disturbance,
}

impl Circumstances {
    /// Adds those of another part.
    fn add(&mut self, other: &Self) {
        if self.machine.is_empty() {
            self.machine.clone_from(&other.machine);
        }
        if self.date.is_empty() || other.date < self.date {
            self.date.clone_from(&other.date);
        }
        self.disturbance.add(other.disturbance);
    }
}

/// The results of an evaluation: those that are known, and those that are made here.
pub(super) struct Parts<'a> {
    pub(super) session: &'a Session,
    /// Of all parts until now.
    pub(super) circumstances: Circumstances,
}

impl<'a> Parts<'a> {
    pub(super) fn new(session: &'a Session) -> Self {
        Self { session, circumstances: Circumstances::default() }
    }

    /// The result of a part. It is known, or `make` makes it, and says how many CPU seconds its programs took; then it is
    /// kept. `None`: there is none, since `make` was interrupted, or all of it is another shard's.
    pub(super) fn get<R: Serialize + DeserializeOwned>(
        &mut self,
        job: &Job,
        make: impl FnOnce() -> Result<Option<(R, f64)>>,
    ) -> Result<Option<R>> {
        if let Some(kept) = self.session.known::<Kept<R>>(&job.key)? {
            self.circumstances.add(&kept.circumstances);
            return Ok(Some(kept.result));
        }
        if !self.session.does(job) {
            return Ok(None);
        }
        let (date, machine) = (date()?, machine(&libc_version()?));
        let mut disturbance = Disturbance::default();
        let made = disturbance.watch(|| {
            let made = make()?;
            Ok(made.map_or((None, 0.0), |(result, seconds)| (Some(result), seconds)))
        })?;
        let Some(result) = made else { return Ok(None) };
        let kept = Kept { result, circumstances: Circumstances { date, machine, disturbance } };
        self.session.keep(&job.key, &kept)?;
        self.circumstances.add(&kept.circumstances);
        Ok(Some(kept.result))
    }
}

/// Where results are kept, and the report goes.
pub(super) struct ResultsPlace {
    pub(super) session: Session,
    /// `None`: a merge was told no folder, and writes to none.
    pub(super) report: Option<PathBuf>,
}

impl ResultsPlace {
    /// Of the flags, or of the shards that are being merged. `inputs`: what decides the results. `whole`: what must be
    /// measured on one machine. `usual`: where a report goes if no folder is given.
    pub(super) fn open(
        flags: &Flags,
        output: Option<&Path>,
        merged: Option<Merge>,
        inputs: Vec<String>,
        whole: &str,
        usual: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<Self> {
        let report = match &merged {
            Some(merged) => merged.output().map(Path::to_owned),
            None => Some(output.map_or_else(usual, |path| Ok(path.to_owned()))?),
        };
        let session = shards::session(flags, output, merged, inputs)?;
        session.stays_on(&Machine::here().host(), whole)?;
        Ok(Self { session, report })
    }

    /// How we were called, or would have been, had one process done all.
    pub(super) fn command(&self) -> String {
        let words = self.session.words().unwrap_or_else(shown_words);
        format!("cargo xtask {}", words.join(" "))
    }

    /// Ctrl-C has ended it: this is left, and what goes on with it.
    pub(super) fn interrupted(&self, left: &str) -> Interrupted {
        let hint =
            self.session.resume().map_or(String::new(), |command| format!("\nhint: {command}"));
        Interrupted(format!("{left}{hint}"))
    }
}

/// Under which conditions an evaluation was made, as its report says.
pub(super) struct Conditions {
    pub(super) rounds: u32,
    pub(super) quick: bool,
    /// The machine that measured, in words.
    pub(super) host: String,
    pub(super) command: String,
    pub(super) date: String,
    /// Was it interrupted by Ctrl-C? Then some rounds, databases or programs are missing.
    pub(super) interrupted: bool,
    /// The share of the machine that other programs used, 0 to 1.
    pub(super) disturbance: f64,
    /// Which machine measured what, if more than one did.
    pub(super) notes: Vec<String>,
}

impl Conditions {
    /// Of an evaluation that has all its parts; `names` are those of what it measured.
    pub(super) fn of(
        (rounds, quick): (u32, bool),
        (circumstances, interrupted): (Circumstances, bool),
        place: &ResultsPlace,
        names: &[String],
    ) -> Self {
        Self {
            rounds,
            quick,
            host: circumstances.machine,
            command: place.command(),
            date: circumstances.date,
            interrupted,
            disturbance: circumstances.disturbance.share(),
            notes: place.session.shared_out(names),
        }
    }
}

/// A job for each of its keys: parts of the thing at this place, which belong together.
pub(super) fn jobs(
    number: usize,
    id: &str,
    parts: impl IntoIterator<Item = String>,
) -> impl Iterator<Item = Job> {
    parts.into_iter().map(move |part| Job { number, key: format!("{id}: {part}") })
}

/// `glibc 2.36`.
fn libc_version() -> Result<String> {
    let outcome = Child::new("getconf").args(["GNU_LIBC_VERSION"]).run()?;
    Ok(outcome.text().trim().to_owned())
}
