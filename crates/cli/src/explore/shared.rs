//! Explorations in shards: a fixed number of schedules, divided into blocks.

use lockwright_shards::{Error, Job, Session, Shard};
use lockwright_sim::explore::{Block, Exploration, Hit, Mutant, Search, Subject, Tally, Total};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Number of schedules in a block: at most a second of work.
const BLOCK: u64 = 1024;

/// What to explore, and the session that does it.
pub(crate) struct Shared<'a> {
    pub(crate) search: Search,
    pub(crate) session: &'a Session,
    /// The locks, explored in order, each with the same number of blocks.
    pub(crate) locks: &'a [Subject],
    pub(crate) mutant: Option<Mutant>,
}

impl Shared<'_> {
    fn blocks(&self) -> u64 {
        self.search.schedules.div_ceil(BLOCK)
    }

    /// The job of one block of a lock.
    fn job(&self, lock: usize, block: u64) -> Job {
        let number = (lock as u64).saturating_mul(self.blocks()).saturating_add(block);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        Job { number, key: format!("{}{block}", self.prefix(lock)) }
    }

    /// The beginning of the keys of a lock's blocks.
    fn prefix(&self, lock: usize) -> String {
        let name = self.locks[lock].name();
        let mutant = self.mutant.map_or(String::new(), |mutant| format!(" {mutant}"));
        format!("{lock}: {name}{mutant}, block ")
    }

    /// Checks that the merged shards have all the blocks that the report needs. For each lock, these are the blocks up to
    /// the first that breaks a rule. There may be too many blocks to enumerate, so we go through the known ones.
    pub(crate) fn complete(&self) -> Result<(), Error> {
        if !self.session.is_merged() {
            return Ok(());
        }
        let of = self.session.owner(0).of();
        let mut lacking: BTreeMap<Shard, u64> = BTreeMap::new();
        for lock in 0..self.locks.len() {
            let prefix = self.prefix(lock);
            let block = |key: &str| key.strip_prefix(&prefix)?.parse().ok();
            let mut known: Vec<u64> = self.session.keys().filter_map(block).collect();
            known.retain(|number| self.session.knows(&self.job(lock, *number).key)); // accept 7, but not 07
            known.sort_unstable();
            let mut end = self.blocks();
            for number in &known {
                let block: Option<Block> = self.session.known(&self.job(lock, *number).key)?;
                if block.is_some_and(|block| block.is_hit()) {
                    end = end.min(number + 1);
                    break;
                }
            }
            let first = lock as u64 * self.blocks();
            for shard in (1..=of).filter_map(|number| Shard::new(number, of)) {
                let owned = shard.owned_before(first + end) - shard.owned_before(first);
                *lacking.entry(shard).or_default() += owned;
            }
            for number in known.into_iter().take_while(|number| *number < end) {
                let owner = self.session.owner(self.job(lock, number).number);
                *lacking.entry(owner).or_default() -= 1;
            }
        }
        lacking.retain(|_, count| *count > 0);
        self.session.lacks(&lacking)
    }

    /// Explores this session's blocks of a lock. If the session has all blocks, returns what was explored, with the
    /// time of all blocks, and what was found.
    pub(crate) fn run(&self, lock: usize) -> Result<Option<(Tally, Option<Hit>)>, Error> {
        let mut made = self.explore(lock)?;
        if self.session.is_part() {
            return Ok(None);
        }
        let mut total = Total::default();
        for number in 0..self.blocks() {
            let known = || self.session.known(&self.job(lock, number).key);
            let Some(block) = made.remove(&number).map_or_else(known, |block| Ok(Some(block)))?
            else {
                return Ok(None); // Ctrl-C
            };
            let is_last = block.is_hit();
            total.add(&self.search, block);
            if is_last {
                break;
            }
        }
        Ok(Some(total.result()))
    }

    /// Explores on several threads, until a rule is broken. Later blocks then don't matter.
    fn explore(&self, lock: usize) -> Result<BTreeMap<u64, Block>, Error> {
        let exploration = Exploration::new(self.locks[lock].clone(), self.mutant);
        let (next, found_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let made = Mutex::new(Ok(BTreeMap::new()));
        let one = |number: u64| -> Result<(), Error> {
            let job = self.job(lock, number);
            if !self.session.does(&job) {
                return Ok(());
            }
            let known: Option<Block> = self.session.known(&job.key)?;
            let is_known = known.is_some();
            let begin = number * BLOCK;
            let end = self.search.schedules.min(begin + BLOCK);
            let block = known.unwrap_or_else(|| self.search.block(&exploration, begin..end));
            if block.is_hit() {
                found_at.fetch_min(number, Relaxed);
            }
            if !is_known {
                self.session.keep(&job.key, &block)?;
                if let Ok(made) = made.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
                    && !self.session.is_part()
                {
                    made.insert(number, block);
                }
            }
            Ok(())
        };
        let look = || loop {
            let number = next.fetch_add(1, Relaxed);
            let is_last = number >= self.blocks().min(found_at.load(Relaxed));
            if is_last || (self.search.stop)() {
                return;
            }
            if let Err(error) = one(number) {
                next.store(self.blocks(), Relaxed);
                *made.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.search.jobs {
                scope.spawn(look);
            }
            look();
        });
        self.session.sync()?;
        made.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
