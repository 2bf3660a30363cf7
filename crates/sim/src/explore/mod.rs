//! Explorations: a lock under schedules that are drawn, not timed.
//!
//! ```text
//!   seed ─► setting (threads, cores, options) ─► threads ─► lock (its own file) ─► Platform ─► a point: who goes next?
//!                                                                                              strategy, by the seed
//! ```
//!
//! The same coroutines, checks and vector clocks as in the timed machine; the difference is that any thread may be
//! preempted anywhere, for any length of time. A seed and a strategy determine a schedule: the same ones repeat it.

mod adversary;
mod explorer;
mod lock;
mod machine;
mod memory;
mod mutant;
#[cfg(test)]
mod planted;
mod process;
mod protected;
mod pthread;
mod readers;
mod scenario;
mod search;
mod setting;
mod subject;
mod survivors;

use crate::check::Violation;
use crate::engine::{Engine, with_engine};
use crate::lock::LockSpec;
use crate::profile::{self, Profile};
pub(crate) use explorer::Explorer;
use explorer::explorer;
pub use mutant::{Mutant, MutantError, Mutation, Op, Site, SourcePlace};
use process::{ProcessLocks, Unlock};
pub use search::{Block, Hit, Search, Tally, Total};
use serde::{Deserialize, Serialize};
use setting::{Cast, USUAL};
pub use setting::{MOST_USUAL, Strategy, THREADS};
use subject::{Make, What};
pub use subject::{RUNTIME, Subject};
pub use survivors::why_it_survives;

/// An exploration.
#[derive(Debug)]
pub struct Exploration {
    subject: Subject,
    mutant: Option<Mutant>,
    profile: Profile,
}

/// What is explored in one schedule.
enum Drawn {
    Lock(LockSpec, Make),
    ReadWrite(LockSpec),
    Runtime(ProcessLocks, Unlock),
}

impl Drawn {
    fn describe(&self) -> String {
        match self {
            Self::Lock(spec, _) | Self::ReadWrite(spec) => spec.name().to_owned(),
            Self::Runtime(plan, _) => plan.describe(),
        }
    }
}

/// The result of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Operations.
    pub steps: u32,
    /// How often a thread other than the running one went on.
    pub switches: u32,
    /// A hash of which threads went on when: equal for equal schedules.
    pub path: u64,
    /// The violation, if any.
    pub finding: Option<Finding>,
}

/// A schedule that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule.
    pub violation: Violation,
    /// Threads, classes, CPUs and options of this schedule.
    pub setting: String,
    /// What happened until then, one line for each step.
    pub story: Vec<String>,
}

impl Exploration {
    /// An exploration of a lock or of the runtime, or of a mutant of it.
    ///
    /// # Panics
    /// If a built-in profile is broken.
    pub fn new(subject: impl Into<Subject>, mutant: Option<Mutant>) -> Self {
        // Explorations don't use lines, energy or the scheduler, so the smallest machine is best.
        let mut profile = profile::builtin("m1").expect("a profile of ours");
        profile.provenance.clear();
        profile.class.truncate(1);
        profile.cluster.truncate(1);
        profile.cluster[0].cores = 1;
        profile.kernel.buckets = 1;
        Self { subject: subject.into(), mutant, profile }
    }

    /// What is explored.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Runs the schedule of a seed.
    pub fn schedule(&self, strategy: Strategy, seed: u64) -> Schedule {
        let mut schedule = self.run(strategy, seed, |_| (), |_| ());
        if schedule.finding.is_some() {
            // Again, now with the names of words and the story, which cost time.
            let mut story = Vec::new();
            let told = |x: &mut Explorer| story = x.story();
            schedule = self.run(strategy, seed, Explorer::trace, told);
            if let Some(finding) = &mut schedule.finding {
                finding.story = story;
            }
        }
        schedule
    }

    /// The places in the lock's source that this many schedules reach.
    pub fn sites(&self, schedules: u64) -> Vec<Site> {
        let mut sites = mutant::Sites::default();
        for seed in 0..schedules {
            let found = std::cell::RefCell::new(sites);
            self.run(
                Strategy::for_seed(seed),
                seed,
                |x| x.sites = Some(found.take()),
                |x| *found.borrow_mut() = x.sites.take().unwrap_or_default(),
            );
            sites = found.into_inner();
        }
        sites.sorted()
    }

    fn run(
        &self,
        strategy: Strategy,
        seed: u64,
        before: impl FnOnce(&mut Explorer),
        after: impl FnOnce(&mut Explorer),
    ) -> Schedule {
        let mut rng = fastrand::Rng::with_seed(seed);
        let threads = match &self.subject.0 {
            What::Lock { crowd: true, .. } => rng.u32(2..=THREADS as u32),
            What::Lock { spec, .. } => USUAL[rng.usize(0..USUAL.len())] + lock::servers(spec),
            _ => USUAL[rng.usize(0..USUAL.len())],
        };
        let cpus = [1, 2, 4, 8][rng.usize(0..4)];
        let classes = (0..threads).map(|_| [0, 0, 1, 1, 2][rng.usize(0..5)]).collect();
        let setting = Cast { threads, cpus, classes };
        let drawn = match &self.subject.0 {
            What::Lock { spec, make, .. } => Drawn::Lock(spec.varied(&mut rng), *make),
            What::ReadWrite { spec } => Drawn::ReadWrite(spec.varied(&mut rng)),
            What::Runtime { unlock } => Drawn::Runtime(ProcessLocks::draw(&mut rng), *unlock),
        };
        let mut e = Engine::new(&self.profile, seed);
        let mut x = Explorer::new(strategy, &setting, rng.fork(), self.mutant);
        before(&mut x);
        e.explore = Some(Box::new(x));
        with_engine(&mut e, |e| {
            // SAFETY: this is the only reference, and it ends before the run begins; by then the machine is the current
            // one.
            unsafe {
                let rng = rng.fork();
                match &drawn {
                    Drawn::Lock(spec, make) => {
                        let shared = scenario::set_up(&mut *e, spec, *make, &setting, rng);
                        explorer::run(e);
                        drop(shared);
                    }
                    Drawn::ReadWrite(spec) => {
                        let shared = readers::set_up(&mut *e, spec, &setting, rng);
                        explorer::run(e);
                        drop(shared);
                    }
                    Drawn::Runtime(plan, unlock) => {
                        let shared = pthread::set_up(&mut *e, plan, *unlock, threads, rng);
                        explorer::run(e);
                        drop(shared);
                    }
                }
            }
        });
        let violation = e.violation.take();
        let x = explorer(&mut e);
        after(x);
        let describe = |violation| {
            let Cast { threads, cpus, classes } = &setting;
            let lock = drawn.describe();
            let name = |class: &u8| ["big", "little", "smallest"][usize::from(*class)];
            let cores = classes.iter().map(name).collect::<Vec<_>>().join(", ");
            let cpus = if *cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
            let setting = format!("{lock}, {threads} threads on cores {cores}; {cpus}");
            Finding { violation, setting, story: Vec::new() }
        };
        let (steps, switches, path) = (x.steps, x.switches, x.path);
        Schedule { steps, switches, path, finding: violation.map(describe) }
    }
}
