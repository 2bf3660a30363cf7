//! Where the runs of figures come from: this process, another shard, or a merge.

use lockwright_figures::{Error, Progress, Runs};
use lockwright_shards::{self as shards, Job, Session};
use lockwright_sim::batch::try_each;
use lockwright_sim::{Kept, Outcome, Run};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The runs of a session, each once, numbered in the order in which figures request them.
pub(crate) struct SessionRuns<'a> {
    session: &'a Session,
    /// Only list the runs, without doing them.
    only_plan: bool,
    numbers: Mutex<BTreeMap<String, usize>>,
}

impl<'a> SessionRuns<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, only_plan: false, numbers: Mutex::default() }
    }

    /// Does only those runs on which the figures' plans depend.
    pub(crate) fn planning(session: &'a Session) -> Self {
        Self { only_plan: true, ..Self::new(session) }
    }

    fn job(&self, run: &Run) -> Job {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, next) = (run.identity(), numbers.len());
        let number = *numbers.entry(key.clone()).or_insert(next);
        Job { number, key }
    }

    /// All runs that were requested so far.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.iter().map(|(key, number)| Job { number: *number, key: key.clone() }).collect()
    }

    /// The rest of the plan depends on these runs. So every shard does those that it doesn't know, and keeps its own.
    fn look(&self, jobs: &[Job], runs: &[Run]) -> Result<Vec<Outcome>, shards::Error> {
        let known = jobs.iter().map(|job| self.session.known::<Kept>(&job.key));
        let known = known.collect::<Result<Vec<_>, _>>()?;
        let left: Vec<usize> = (0..jobs.len()).filter(|place| known[*place].is_none()).collect();
        let made = Mutex::new(BTreeMap::new());
        try_each(runs, &left, |place, outcome| {
            let kept = Kept::from(outcome);
            if self.session.does(&jobs[place]) {
                self.session.keep(&jobs[place].key, &kept)?;
            }
            made.lock().unwrap_or_else(PoisonError::into_inner).insert(place, kept);
            Ok::<_, shards::Error>(())
        })?;
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let either = |(place, known): (usize, Option<Kept>)| {
            known.or_else(|| made.remove(&place)).expect("it was known, or it was made")
        };
        Ok(known.into_iter().enumerate().map(either).map(Outcome::from).collect())
    }

    fn all(
        &self,
        jobs: &[Job],
        runs: &[Run],
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Option<Vec<Outcome>>, shards::Error> {
        let outcomes = self.session.results(jobs, |left, keep| {
            progress(Progress::Planned(left.len()));
            try_each(runs, left, |place, outcome| {
                keep(place, Kept::from(outcome))?;
                progress(Progress::Done);
                Ok(())
            })
        })?;
        Ok(outcomes.map(|outcomes| outcomes.into_iter().map(Outcome::from).collect()))
    }
}

impl Runs for SessionRuns<'_> {
    fn outcomes(
        &self,
        runs: &[Run],
        is_look: bool,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Outcome>, Error> {
        let jobs: Vec<Job> = runs.iter().map(|run| self.job(run)).collect();
        let not_made = |error| Error::NotMade(Box::new(error));
        if is_look && (self.only_plan || self.session.is_part()) {
            return self.look(&jobs, runs).map_err(not_made);
        }
        if self.only_plan {
            return Err(Error::Elsewhere);
        }
        self.all(&jobs, runs, progress).map_err(not_made)?.ok_or(Error::Elsewhere)
    }
}
