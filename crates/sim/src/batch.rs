//! Many runs at once: a machine on each core of the real one.

use crate::load::Workload;
use crate::lock::LockSpec;
use crate::outcome::Outcome;
use crate::profile::Profile;
use crate::run::{Placement, Run};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A [`Run`] that owns what it is about.
#[derive(Clone, Debug)]
pub struct Point {
    /// The machine.
    pub profile: Arc<Profile>,
    /// The lock.
    pub lock: LockSpec,
    /// What its threads do.
    pub workload: &'static Workload,
    /// The workload's options, where they differ from their defaults.
    pub params: BTreeMap<String, f64>,
    /// How many.
    pub threads: u32,
    /// Where.
    pub placement: Placement,
    /// The same seed, the same run.
    pub seed: u64,
    /// Simulated time before anything counts, ns.
    pub warmup_ns: u64,
    /// Simulated time that counts, ns.
    pub duration_ns: u64,
    /// Keep each operation?
    pub samples: bool,
    /// Keep what each core did, at most so many entries.
    pub timeline: Option<usize>,
}

impl Point {
    /// Runs it, on this thread.
    pub fn outcome(&self) -> Outcome {
        let run = Run {
            profile: &self.profile,
            lock: &self.lock,
            workload: self.workload,
            params: &self.params,
            threads: self.threads,
            placement: self.placement.clone(),
            seed: self.seed,
            warmup_ns: self.warmup_ns,
            duration_ns: self.duration_ns,
            samples: self.samples,
            timeline: self.timeline,
        };
        run.outcome()
    }
}

/// Runs all of them, on all usable cores; the results are in the order of `points`, and are those of single runs. `done`
/// hears the number of each point that is over, in no order.
pub fn run_all(points: &[Point], done: impl Fn(usize) + Sync) -> Vec<Outcome> {
    let one = |(number, point): (usize, &Point)| {
        let outcome = point.outcome();
        done(number);
        outcome
    };
    // Points differ in length by orders of magnitude: none waits behind another.
    points.par_iter().enumerate().with_max_len(1).map(one).collect()
}
