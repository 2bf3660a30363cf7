//! Schedule after schedule, on all cores, until one breaks a rule or the budget is used up.

use super::{Exploration, Finding, Strategy};
use rustc_hash::FxHashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Seeds that a worker takes at once.
const BLOCK: u64 = 64;

/// Among this many schedules, different ones are counted.
const COUNTED: usize = 1_000_000;

/// What to look at, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// `None`: one strategy after the other, seed by seed.
    pub strategy: Option<Strategy>,
    /// The first seed.
    pub first: u64,
    /// Schedules, at most.
    pub schedules: u64,
    /// Time, at most.
    pub time: Duration,
    /// Operating-system threads that search.
    pub jobs: usize,
    /// Asked now and then whether to stop.
    pub stop: fn() -> bool,
}

/// What was looked at.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Schedules.
    pub schedules: u64,
    /// Operations in them.
    pub steps: u64,
    /// Operations after which another thread went on.
    pub switches: u64,
    /// Different ones among the first million schedules.
    pub different: u64,
    /// How many schedules that count covers.
    pub counted: u64,
    /// How long it took, s.
    pub seconds: f64,
}

/// A schedule that breaks a rule, and how to get it again.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Its strategy.
    pub strategy: Strategy,
    /// Its seed.
    pub seed: u64,
    /// The broken rule, and how it came about.
    pub finding: Finding,
}

struct Shared {
    tally: Tally,
    paths: FxHashSet<u64>,
    hit: Option<Hit>,
}

impl Search {
    /// Searches; the finding is that of the lowest seed, however many threads search.
    pub fn run(&self, exploration: &Exploration) -> (Tally, Option<Hit>) {
        let start = Instant::now();
        let next = AtomicU64::new(0);
        let found_at = AtomicU64::new(u64::MAX);
        let (tally, paths, hit) = Default::default();
        let shared = Mutex::new(Shared { tally, paths, hit });
        let look = || loop {
            let begin = next.fetch_add(BLOCK, Relaxed);
            let is_over = begin >= self.schedules.min(found_at.load(Relaxed));
            if is_over || (begin > 0 && (start.elapsed() >= self.time || (self.stop)())) {
                return;
            }
            self.block(exploration, begin, &found_at, &shared);
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.jobs.max(1)).map(|_| scope.spawn(look)).collect();
            look();
            drop(others); // the scope joins them
        });
        let mut shared = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.tally.seconds = start.elapsed().as_secs_f64();
        shared.tally.different = shared.paths.len() as u64;
        (shared.tally, shared.hit)
    }

    fn block(
        &self,
        exploration: &Exploration,
        begin: u64,
        found_at: &AtomicU64,
        shared: &Mutex<Shared>,
    ) {
        let (mut tally, mut paths, mut hit) = (Tally::default(), Vec::new(), None);
        for number in begin..self.schedules.min(begin + BLOCK) {
            let seed = self.first.wrapping_add(number);
            let strategy = self.strategy.unwrap_or_else(|| Strategy::for_seed(seed));
            let schedule = exploration.schedule(strategy, seed);
            tally.schedules += 1;
            tally.steps += u64::from(schedule.steps);
            tally.switches += u64::from(schedule.switches);
            paths.push(schedule.path);
            if let Some(finding) = schedule.finding {
                found_at.fetch_min(number, Relaxed);
                hit = Some(Hit { strategy, seed, finding });
                break;
            }
        }
        let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.tally.schedules += tally.schedules;
        shared.tally.steps += tally.steps;
        shared.tally.switches += tally.switches;
        if (shared.tally.counted as usize) < COUNTED {
            shared.tally.counted += paths.len() as u64;
            shared.paths.extend(paths);
        }
        let offset = |hit: &Hit| hit.seed.wrapping_sub(self.first);
        if let Some(hit) = hit
            && shared.hit.as_ref().is_none_or(|other| offset(&hit) < offset(other))
        {
            shared.hit = Some(hit);
        }
    }
}
