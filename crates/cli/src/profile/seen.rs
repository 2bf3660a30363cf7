//! What was seen: counts of samples, by lock and by stack.

use super::wait::Mutex;
use std::collections::HashMap;

/// A stack's number; equal stacks have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StackId(usize);

/// Stacks, each once: addresses of code, the innermost first.
#[derive(Default)]
pub(crate) struct Stacks {
    ids: HashMap<Vec<u64>, StackId>,
    all: Vec<Vec<u64>>,
}

impl Stacks {
    pub(crate) fn id(&mut self, stack: Vec<u64>) -> StackId {
        let next = StackId(self.all.len());
        *self.ids.entry(stack).or_insert_with_key(|stack| {
            self.all.push(stack.clone());
            next
        })
    }

    pub(crate) fn get(&self, id: StackId) -> &[u64] {
        &self.all[id.0]
    }
}

/// What a holder did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// It slept.
    Sleeping(StackId),
    /// It ran, and was seen at about that time.
    Running(StackId),
    /// It ran, and nobody saw where.
    Unseen,
    /// Readers, whom a readers-writer lock only counts.
    Readers,
    /// The lock was just changing hands, or its holder has ended.
    Unknown,
}

/// What a lock is, as far as its words tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex(Mutex),
    ReadWrite,
    Word,
}

/// A lock that somebody waited for.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) kind: Kind,
    /// Threads that waited, summed over the samples.
    pub(crate) waits: u64,
    /// Samples in which a thread waited, by batch of samples.
    pub(crate) batches: [u64; BATCHES],
    pub(crate) waiters: HashMap<StackId, u64>,
    /// One for each sample in which a thread waited, if the lock records its holder.
    pub(crate) holders: HashMap<Holder, u64>,
}

impl Lock {
    /// Samples in which a thread waited.
    pub(crate) fn samples(&self) -> u64 {
        self.batches.iter().sum()
    }
}

/// The time is divided into that many parts of equal length. How much they differ tells the error of what is estimated,
/// even where one wait lasts for many samples.
pub(crate) const BATCHES: usize = 20;

/// All that was seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Samples by batch.
    pub(crate) batches: [u64; BATCHES],
    /// Of the lock, in the process.
    pub(crate) locks: HashMap<u64, Lock>,
    /// Futex waits for no lock.
    pub(crate) others: HashMap<StackId, u64>,
    pub(crate) stacks: Stacks,
    /// The most threads that it had.
    pub(crate) threads: usize,
}

impl Seen {
    /// Samples that were taken.
    pub(crate) fn samples(&self) -> u64 {
        self.batches.iter().sum()
    }

    /// Notes a waiter. A mutex between two holders is only a word.
    pub(crate) fn waiter(&mut self, lock: u64, kind: Kind, stack: StackId) {
        let seen = self.locks.entry(lock).or_insert_with(|| Lock {
            kind,
            waits: 0,
            batches: [0; BATCHES],
            waiters: HashMap::new(),
            holders: HashMap::new(),
        });
        if matches!(seen.kind, Kind::Word) {
            seen.kind = kind;
        }
        seen.waits += 1;
        *seen.waiters.entry(stack).or_default() += 1;
    }

    /// Notes a lock's holder, once in each sample in which somebody waits for it.
    pub(crate) fn holder(&mut self, lock: u64, holder: Holder, batch: usize) {
        if let Some(seen) = self.locks.get_mut(&lock) {
            seen.batches[batch] += 1;
            *seen.holders.entry(holder).or_default() += 1;
        }
    }
}
