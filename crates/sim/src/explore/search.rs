//! Schedule after schedule, on all cores, until one breaks a rule or the budget is used up.

use super::{Exploration, Finding, Strategy};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hit {
    /// Its strategy.
    pub strategy: Strategy,
    /// Its seed.
    pub seed: u64,
    /// The broken rule, and how it came about.
    pub finding: Finding,
}

/// What some schedules have shown, from one seed on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    tally: Tally,
    /// Which ways they went.
    paths: Vec<u64>,
    hit: Option<Hit>,
}

impl Block {
    /// Has a schedule broken a rule? It was the last one.
    pub fn is_hit(&self) -> bool {
        self.hit.is_some()
    }
}

/// The sum of blocks.
#[derive(Debug, Default)]
pub struct Total {
    tally: Tally,
    paths: FxHashSet<u64>,
    hit: Option<Hit>,
}

impl Total {
    /// A block more.
    pub fn add(&mut self, search: &Search, block: Block) {
        let Block { tally, paths, hit } = block;
        self.tally.schedules += tally.schedules;
        self.tally.steps += tally.steps;
        self.tally.switches += tally.switches;
        self.tally.seconds += tally.seconds;
        if (self.tally.counted as usize) < COUNTED {
            self.tally.counted += paths.len() as u64;
            self.paths.extend(paths);
        }
        let offset = |hit: &Hit| hit.seed.wrapping_sub(search.first);
        if let Some(hit) = hit
            && self.hit.as_ref().is_none_or(|other| offset(&hit) < offset(other))
        {
            self.hit = Some(hit);
        }
    }

    /// What was looked at, and the finding of the lowest seed. The time is that of all blocks.
    pub fn result(mut self) -> (Tally, Option<Hit>) {
        self.tally.different = self.paths.len() as u64;
        (self.tally, self.hit)
    }
}

impl Search {
    /// Searches; the finding is that of the lowest seed, however many threads search.
    pub fn run(&self, exploration: &Exploration) -> (Tally, Option<Hit>) {
        let start = Instant::now();
        let next = AtomicU64::new(0);
        let found_at = AtomicU64::new(u64::MAX);
        let total = Mutex::new(Total::default());
        let look = || loop {
            let begin = next.fetch_add(BLOCK, Relaxed);
            let is_over = begin >= self.schedules.min(found_at.load(Relaxed));
            if is_over || (begin > 0 && (start.elapsed() >= self.time || (self.stop)())) {
                return;
            }
            let block = self.block(exploration, begin..self.schedules.min(begin + BLOCK));
            if let Some(hit) = &block.hit {
                found_at.fetch_min(hit.seed.wrapping_sub(self.first), Relaxed);
            }
            total.lock().unwrap_or_else(PoisonError::into_inner).add(self, block);
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.jobs.max(1)).map(|_| scope.spawn(look)).collect();
            look();
            drop(others); // the scope joins them
        });
        let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (mut tally, hit) = total.result();
        tally.seconds = start.elapsed().as_secs_f64();
        (tally, hit)
    }

    /// The schedules of these numbers, on this thread, until one breaks a rule.
    pub fn block(&self, exploration: &Exploration, numbers: Range<u64>) -> Block {
        let start = Instant::now();
        let (mut tally, mut paths, mut hit) = (Tally::default(), Vec::new(), None);
        for number in numbers {
            let seed = self.first.wrapping_add(number);
            let strategy = self.strategy.unwrap_or_else(|| Strategy::for_seed(seed));
            let schedule = exploration.schedule(strategy, seed);
            tally.schedules += 1;
            tally.steps += u64::from(schedule.steps);
            tally.switches += u64::from(schedule.switches);
            paths.push(schedule.path);
            if let Some(finding) = schedule.finding {
                hit = Some(Hit { strategy, seed, finding });
                break;
            }
        }
        tally.seconds = start.elapsed().as_secs_f64();
        Block { tally, paths, hit }
    }
}
