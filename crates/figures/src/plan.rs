//! The runs that a figure needs: declared first, then all run together, each with every seed.

use crate::Wrong;
use lockwright_sim::batch::run_all;
use lockwright_sim::profile::{self, Profile};
use lockwright_sim::{ClassOutcome, LockSpec, Outcome, Placement, Run, Violation, workload};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// What an experiment is run with.
pub struct Context<'a> {
    /// Its machine; rows on another machine (`Row::machine`) name theirs.
    pub profile: Arc<Profile>,
    /// Each point is run with the seeds 1 to `seeds`.
    pub seeds: u32,
    /// The same for points on which the sign of an effect depends: at least [`lockwright_sim::targets::SIGN_SEEDS`] for a verdict.
    pub often: u32,
    /// A planted wrong model.
    pub wrong: Option<&'a Wrong>,
    /// Simulated time, as a share of what the figure needs for steady percentiles: 1, or less for quick runs.
    pub length: f64,
    /// Is told how many runs are planned, and when each is done.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Figures that use the same context share runs.
    pub memo: Memo,
    /// Who makes the runs.
    pub runs: &'a dyn Runs,
    /// Don't run anything: a plan that could run ends with [`Error::OnlyPlanned`].
    pub only_plan: bool,
}

impl Context<'_> {
    /// With the given number of seeds, in full length, without progress reports.
    pub fn new(profile: Arc<Profile>, seeds: u32) -> Self {
        let memo = Memo::default();
        let (progress, runs) = (&|_| (), &Here);
        let (often, wrong, length, only_plan) = (seeds, None, 1.0, false);
        Self { profile, seeds, often, wrong, length, progress, memo, runs, only_plan }
    }
}

/// Progress of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many more runs will be made.
    Planned(usize),
    /// One run is over.
    Done,
}

/// Why a figure could not be measured.
#[derive(Debug, Error)]
pub enum Error {
    /// A lock has broken a rule, so all figures are void.
    #[error("{run}: {violation}")]
    Violation {
        /// Lock, machine, workload, threads, seed.
        run: String,
        /// Which rule.
        violation: Box<Violation>,
    },
    /// A thread is placed on a CPU that the machine doesn't have.
    #[error("needs CPU {cpu}, '{machine}' has 0 to {last}")]
    NoCpu {
        /// Which.
        cpu: u32,
        /// The machine.
        machine: String,
        /// Its last CPU.
        last: u32,
    },
    /// Nothing was run, as [`Context::only_plan`] demands.
    #[error("it was only planned")]
    OnlyPlanned,
    /// Other processes make these runs.
    #[error("its runs are made elsewhere")]
    Elsewhere,
    /// Runs could not be kept, or those that were kept can't be had.
    #[error("{0}")]
    NotMade(Box<dyn std::error::Error + Send + Sync>),
    /// A number that a figure takes from its targets (`[chosen]`) is missing.
    #[error("figure {figure}: its targets choose no '{key}'")]
    NotChosen {
        /// The figure.
        figure: String,
        /// Which number.
        key: String,
    },
}

/// Simulated time before anything counts, and simulated time that counts, ms, by default.
const WARMUP_MS: f64 = 2.0;
const DURATION_MS: f64 = 50.0;

/// One point of a figure: a lock, a workload with its options, a number of threads.
#[derive(Clone, Debug)]
pub struct Load {
    lock: String,
    programmed: Option<LockSpec>,
    workload: &'static str,
    params: BTreeMap<String, f64>,
    threads: u32,
    placement: Placement,
    machine: Option<String>,
    warmup_ms: f64,
    duration_ms: f64,
    samples: bool,
    often: bool,
}

impl Load {
    /// `workload` with its defaults, under `lock`, on 8 threads, one per core.
    pub fn new(workload: &'static str, lock: &str) -> Self {
        Self {
            lock: lock.to_owned(),
            programmed: None,
            workload,
            params: BTreeMap::new(),
            threads: 8,
            placement: Placement::Pinned,
            machine: None,
            warmup_ms: WARMUP_MS,
            duration_ms: DURATION_MS,
            samples: false,
            often: false,
        }
    }

    /// The load of a run that another plan has made.
    pub(crate) fn again(run: &Run) -> Self {
        Self {
            lock: run.lock.name().to_owned(),
            programmed: None,
            workload: run.workload.id,
            params: run.params.clone(),
            threads: run.threads,
            placement: run.placement.clone(),
            machine: Some(run.profile.name.clone()),
            warmup_ms: run.warmup_ns as f64 / 1e6,
            duration_ms: run.duration_ns as f64 / 1e6,
            samples: false,
            often: false,
        }
    }

    /// The same with an option of the workload set.
    #[must_use]
    pub fn with(mut self, key: &str, value: f64) -> Self {
        self.params.insert(key.to_owned(), value);
        self
    }

    /// The same under another lock.
    #[must_use]
    pub fn lock(mut self, lock: &str) -> Self {
        lock.clone_into(&mut self.lock);
        self.programmed = None;
        self
    }

    /// The same under a lock that a policy programs.
    #[must_use]
    pub fn under(mut self, programmed: LockSpec) -> Self {
        self.programmed = Some(programmed);
        self
    }

    /// The same with this many threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// The same with another placement.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The same on another built-in machine.
    #[must_use]
    pub fn machine(mut self, name: &str) -> Self {
        self.machine = Some(name.to_owned());
        self
    }

    /// The same, counting for `duration_ms` after `warmup_ms` of simulated time.
    #[must_use]
    pub fn lasting(mut self, warmup_ms: f64, duration_ms: f64) -> Self {
        (self.warmup_ms, self.duration_ms) = (warmup_ms, duration_ms);
        self
    }

    /// The same, counting for `ms` of simulated time, if that is longer.
    #[must_use]
    pub(crate) fn lasting_at_least(mut self, ms: f64) -> Self {
        self.duration_ms = self.duration_ms.max(ms);
        self
    }

    /// The same, keeping each operation.
    #[must_use]
    pub fn samples(mut self) -> Self {
        self.samples = true;
        self
    }

    /// The same with as many seeds as a row that is judged by its sign needs.
    #[must_use]
    pub fn often(mut self) -> Self {
        self.often = true;
        self
    }

    /// A run for each seed; none if the lock doesn't exist.
    fn runs(&self, context: &Context<'_>) -> Vec<Run> {
        let plain = || LockSpec::parse(&self.lock).ok();
        let Some(lock) = self.programmed.clone().or_else(plain) else {
            return Vec::new();
        };
        let lock = context.wrong.map_or(lock.clone(), |wrong| wrong.lock(lock));
        let workload =
            workload::find(self.workload).expect("a figure names a workload that there is");
        let run = Run {
            profile: self.profile(context),
            lock,
            workload,
            params: context.wrong.map_or(self.params.clone(), |wrong| wrong.options(&self.params)),
            threads: self.threads,
            placement: self.placement.clone(),
            seed: 0,
            warmup_ns: ns(self.warmup_ms * context.length),
            duration_ns: ns(self.duration_ms * context.length),
            samples: self.samples,
            timeline: None,
            transfers: false,
        };
        let seeds = 1..=u64::from(if self.often { context.often } else { context.seeds });
        seeds.map(|seed| Run { seed, ..run.clone() }).collect()
    }

    /// Does the machine have the CPUs that the load names?
    fn check(&self, context: &Context<'_>) -> Result<(), Error> {
        let Placement::Cpus(list) = &self.placement else { return Ok(()) };
        let profile = self.profile(context);
        let last = profile.cpus() - 1;
        let beyond = list.iter().copied().filter(|&cpu| cpu > last).max();
        beyond.map_or(Ok(()), |cpu| Err(Error::NoCpu { cpu, machine: profile.name.clone(), last }))
    }

    fn profile(&self, context: &Context<'_>) -> Arc<Profile> {
        let other = |name: &String| {
            profile::builtin(name).map(Arc::new).expect("a figure names a profile that there is")
        };
        let profile = self.machine.as_ref().map_or_else(|| context.profile.clone(), other);
        context.wrong.map_or(profile.clone(), |wrong| wrong.machine(profile))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
fn ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// A point of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(usize);

/// Points to run.
#[derive(Default)]
pub struct Plan {
    loads: Vec<Load>,
}

impl Plan {
    /// An empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a point.
    pub fn add(&mut self, load: Load) -> Key {
        self.loads.push(load);
        Key(self.loads.len() - 1)
    }

    /// Runs the points, each with every seed. What another plan of this context has already run isn't run again.
    ///
    /// # Errors
    /// A load names a CPU that the machine doesn't have; the context says to run nothing; a lock has broken a rule in one
    /// of the runs; or other processes make them.
    pub fn run(self, context: &Context<'_>) -> Result<Results, Error> {
        self.make(context, false)
    }

    /// The same, of a few runs that a larger plan depends on: where figures' runs are shared out, everybody makes these.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn look(self, context: &Context<'_>) -> Result<Results, Error> {
        self.make(context, true)
    }

    fn make(self, context: &Context<'_>, is_look: bool) -> Result<Results, Error> {
        self.loads.iter().try_for_each(|load| load.check(context))?;
        if context.only_plan {
            return Err(Error::OnlyPlanned);
        }
        let runs: Vec<Vec<Run>> = self.loads.iter().map(|load| load.runs(context)).collect();
        let mut known = context.memo.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = BTreeMap::new();
        for run in runs.iter().flatten().filter(|run| !known.contains_key(&run.identity())) {
            new.insert(run.identity(), run.clone());
        }
        let (names, new): (Vec<String>, Vec<Run>) = new.into_iter().unzip();
        let outcomes = context.runs.outcomes(&new, is_look, context.progress)?;
        for (run, outcome) in new.iter().zip(&outcomes) {
            if let Some(violation) = outcome.violation.clone() {
                let (lock, machine) = (run.lock.name(), &run.profile.name);
                let (workload, threads, seed) = (run.workload.id, run.threads, run.seed);
                let run =
                    format!("{lock}, {workload} on {machine}, {threads} threads, seed {seed}");
                return Err(Error::Violation { run, violation: Box::new(violation) });
            }
        }
        known.extend(names.into_iter().zip(outcomes.into_iter().map(Arc::new)));
        let of = |run: &Run| known[&run.identity()].clone();
        let results = runs.iter().map(|seeds| seeds.iter().map(of).collect()).collect();
        // A run's single operations are too many to keep for other plans.
        known.retain(|_, outcome| outcome.samples.is_empty());
        Ok(Results(results))
    }
}

/// Who makes runs.
pub trait Runs: Sync {
    /// Their outcomes, in their order. `is_look`: what is planned next depends on them. `progress` hears of each.
    ///
    /// # Errors
    /// Others make them; those that were made before can't be read, or these can't be kept.
    fn outcomes(
        &self,
        runs: &[Run],
        is_look: bool,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Outcome>, Error>;
}

/// This process, on all cores of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Runs for Here {
    fn outcomes(
        &self,
        runs: &[Run],
        _: bool,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Outcome>, Error> {
        progress(Progress::Planned(runs.len()));
        Ok(run_all(runs, |_| progress(Progress::Done)))
    }
}

/// Runs that have already been made.
#[derive(Debug, Default)]
pub struct Memo(Mutex<BTreeMap<String, Arc<Outcome>>>);

/// What the runs of a plan have measured.
#[derive(Debug)]
pub struct Results(Vec<Vec<Arc<Outcome>>>);

impl Results {
    /// The outcomes of a point, one for each seed; none if its lock is missing.
    pub fn outcomes(&self, key: Key) -> &[Arc<Outcome>] {
        &self.0[key.0]
    }

    /// A measurement of a point, one value for each seed.
    pub fn of(&self, key: Key, what: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes(key).iter().map(|outcome| what(outcome)).collect()
    }

    /// Operations per second.
    pub fn throughput(&self, key: Key) -> Vec<f64> {
        self.of(key, |outcome| outcome.throughput)
    }

    /// P99 latency of all operations, us.
    pub fn p99(&self, key: Key) -> Vec<f64> {
        self.of(key, |outcome| us(outcome.latency.p99_ns))
    }

    /// P99 latency of the operations on one class of cores, us; the fastest class is 0. Not a number if none was done
    /// there, as on a machine without such a class.
    pub fn p99_of(&self, key: Key, class: usize) -> Vec<f64> {
        let any = |class: &&ClassOutcome| class.latency.count > 0;
        let tail = |outcome: &Outcome| {
            outcome.classes.get(class).filter(any).map_or(f64::NAN, |of| us(of.latency.p99_ns))
        };
        self.of(key, tail)
    }

    /// Share of the operations that one class of cores has done; not a number if the machine has no such
    /// class.
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub fn share_of(&self, key: Key, class: usize) -> Vec<f64> {
        let share = |outcome: &Outcome| {
            let done = outcome.classes.get(class).map_or(f64::NAN, |class| class.operations as f64);
            done / outcome.operations as f64
        };
        self.of(key, share)
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time far below 2^52 ns")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
