//! Counts of samples, by lock and by stack.

use super::wait::Mutex;
use std::collections::HashMap;

/// The number of a stack. Equal stacks have equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StackId(usize);

/// Distinct stacks: code addresses, the innermost first.
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

/// What a holder was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// It slept.
    Sleeping(StackId),
    /// It ran, and was sampled at about that time.
    Running(StackId),
    /// It ran, but we don't know where.
    Unseen,
    /// Readers: a readers-writer lock counts them, but doesn't record who they are.
    Readers,
    /// The lock was just changing hands, or its holder has ended.
    Unknown,
}

/// The kind of a lock, judged by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Mutex(Mutex),
    ReadWrite,
    /// One that processes share.
    SharedReadWrite,
    Word,
}

/// A lock that threads waited for.
#[derive(Debug)]
pub(crate) struct WaitedLock {
    pub kind: LockKind,
    /// Threads that waited, summed over the samples.
    pub waits: u64,
    /// Samples in which a thread waited, by batch of samples.
    pub batches: [u64; BATCHES],
    pub waiters: HashMap<StackId, u64>,
    /// One count for each sample in which a thread waited, if the lock records its holder.
    pub holders: HashMap<Holder, u64>,
}

impl WaitedLock {
    /// Samples in which a thread waited.
    pub(crate) fn samples(&self) -> u64 {
        self.batches.iter().sum()
    }
}

/// The time is divided into this number of equal batches. The variance between batches gives the error of the
/// estimates, even if one wait spans many samples.
pub const BATCHES: usize = 20;

/// Everything that was seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Samples by batch.
    pub batches: [u64; BATCHES],
    /// By the lock's address in the process.
    pub locks: HashMap<u64, WaitedLock>,
    /// Futex waits that are not for a lock.
    pub others: HashMap<StackId, u64>,
    pub stacks: Stacks,
    /// Maximum number of threads at one time.
    pub threads: usize,
}

impl Seen {
    /// Number of samples.
    pub(crate) fn samples(&self) -> u64 {
        self.batches.iter().sum()
    }

    /// Counts a waiter. A mutex that is changing hands looks like a plain word.
    pub(crate) fn waiter(&mut self, lock: u64, kind: LockKind, stack: StackId) {
        let seen = self.locks.entry(lock).or_insert_with(|| WaitedLock {
            kind,
            waits: 0,
            batches: [0; BATCHES],
            waiters: HashMap::new(),
            holders: HashMap::new(),
        });
        if matches!(seen.kind, LockKind::Word) {
            seen.kind = kind;
        }
        seen.waits += 1;
        *seen.waiters.entry(stack).or_default() += 1;
    }

    /// Counts a lock's holder, once for each sample in which a thread waits for the lock.
    pub(crate) fn holder(&mut self, lock: u64, holder: Holder, batch: usize) {
        if let Some(seen) = self.locks.get_mut(&lock) {
            seen.batches[batch] += 1;
            *seen.holders.entry(holder).or_default() += 1;
        }
    }
}
