//! Creates the segment, and assigns its records to locks.

use crate::counters::layout::{
    CONDITIONS, CountersHeader, GONE, HEAD, HEAD_LENGTH, Histogram, KEYS_AT, LENGTH, LOCKS,
    LockKind, MAPS, MAPS_AT, MEMORY_AT, NOTHING, OTHER_CONDITIONS, OTHER_LOCKS, OWNERS, OWNERS_AT,
    RECORD, RECORDS, Record, SIGNALS, STACKS, STACKS_AT, Stack, UNKNOWN, UNUSED, WAYS, WHOLE,
    record_at,
};
use crate::file::{self, Mapped, Name, Refused};
use crate::hash::{MOVING, spread};
use crate::header::{About, Layout};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The shared memory. Mapped forever; as cheap to copy as a pointer.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub(crate) file: Mapped<CountersHeader>,
}

impl Segment {
    /// Creates `DIR/PID-N.observe`, with the first free N.
    ///
    /// # Errors
    /// The system's error from creating, growing or mapping the file; or the folder is a link, or belongs to another
    /// user.
    pub fn create(dir: &[u8], about: &About<'_>) -> Result<Self, Refused> {
        Mapped::make(dir, about, LENGTH, MAPS_AT, |_| {}).map(|file| Self { file })
    }

    /// Its file's name in its folder, if the process `pid` made it.
    pub fn name(&self, pid: u32) -> Option<Name> {
        let header = &self.header().common;
        (header.pid == pid).then(|| file::name(pid, header.number as u32, CountersHeader::ENDING))
    }

    /// Where it is mapped.
    pub fn base(&self) -> *const u8 {
        self.file.base
    }

    /// What is at this offset.
    ///
    /// # Safety
    /// It is a `T`, within the populated bytes.
    pub(crate) unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: mapped for as long as there is a segment, and our caller's promise.
        unsafe { self.file.place(offset) }
    }

    pub(crate) fn header(&self) -> &CountersHeader {
        self.file.header()
    }

    pub(crate) fn keys(&self) -> &[AtomicU64; LOCKS] {
        // SAFETY: that many words; zeroes are free keys.
        unsafe { self.at(KEYS_AT) }
    }

    pub(crate) fn stacks(&self) -> &[Stack; STACKS] {
        // SAFETY: that many; zeroes are free places.
        unsafe { self.at(STACKS_AT) }
    }

    #[inline]
    pub(crate) fn owners(&self) -> &[AtomicU64; OWNERS] {
        // SAFETY: that many words; zeroes are no owners.
        unsafe { self.at(OWNERS_AT) }
    }

    pub(crate) fn memory(&self, index: usize) -> &AtomicU32 {
        // SAFETY: RECORDS words.
        unsafe { self.at(MEMORY_AT + index.min(RECORDS - 1) * 4) }
    }

    /// Writes the map of the process's memory: `fill` passes on pieces of text. Called by one thread at a time.
    pub fn map(&self, fill: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        // SAFETY: whole pages of the mapping, for nothing else.
        unsafe {
            file::write_text(&self.header().maps_length, self.file.base.add(MAPS_AT), MAPS, fill)
        };
    }

    /// The places that a key may occupy.
    fn ways(key: u64) -> core::ops::Range<usize> {
        let first = (spread(key) >> 32) as usize % (LOCKS / WAYS) * WAYS;
        first..first + WAYS
    }

    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        Self::ways(key).find(|&at| self.keys()[at].load(Relaxed) == key) // keys are independent
    }

    /// The record with this index, and its memory; `None`: there is no memory.
    pub(crate) fn record(&self, index: usize) -> Option<&Record> {
        // Relaxed: whether the pages exist is the same for all threads.
        let is_there = match self.memory(index).load(Relaxed) {
            UNUSED => self.give(index, HEAD, 0, HEAD_LENGTH),
            NOTHING => false,
            _ => true,
        };
        if !is_there {
            self.header().lost.fetch_add(1, Relaxed); // a counter
            return None;
        }
        // SAFETY: its head is populated, and zeroes are a valid record. What is behind the head is looked at only
        // through `slower`, which makes sure that it exists.
        Some(unsafe { self.at(record_at(index)) })
    }

    /// Makes the kernel allocate the memory now.
    #[cold]
    fn give(&self, index: usize, state: u32, from: usize, to: usize) -> bool {
        // SAFETY: within the mapping, and whole pages.
        let at = unsafe { self.file.base.add(record_at(index) + from) };
        // SAFETY: as above.
        let is_there = unsafe { file::populate(at, to - from) }.is_ok();
        if is_there {
            self.memory(index).fetch_max(state, Relaxed); // as in `record`
        } else if from == 0 {
            self.memory(index).store(NOTHING, Relaxed);
        }
        is_there
    }

    /// The histogram of waits of this class; `None`: there is no memory.
    pub(crate) fn waits<'a>(
        &self,
        index: usize,
        record: &'a Record,
        class: usize,
    ) -> Option<&'a Histogram> {
        if class == 0 {
            return Some(&record.wait);
        }
        let is_there = self.memory(index).load(Relaxed) == WHOLE // as in `record`
            || self.give(index, WHOLE, HEAD_LENGTH, RECORD);
        is_there.then(|| &record.slower[class - 1])
    }

    /// The index of a key's record; assigns one if necessary. [`OTHER_LOCKS`]: there is no room.
    pub(crate) fn record_of(&self, key: u64, now_ms: u64) -> usize {
        self.find(key).unwrap_or_else(|| self.place(key, now_ms))
    }

    #[cold]
    fn place(&self, key: u64, now_ms: u64) -> usize {
        for at in Self::ways(key) {
            // Relaxed: the record needs nothing but zeroes.
            match self.keys()[at].compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => return at,
                Err(seen) if seen == key => return at,
                Err(_) => {}
            }
        }
        // A place can be reused if its lock was destroyed, or hasn't been used for a second: its memory may have been
        // freed without `destroy`.
        let makes_room = |&at: &usize| {
            self.record(at).is_some_and(|record| {
                let last = record.last_ms.load(Relaxed);
                record.destroyed.load(Relaxed) != 0 || last.saturating_add(1000) < now_ms
            })
        };
        let Some(at) = Self::ways(key).find(makes_room) else {
            self.header().unplaced.fetch_add(1, Relaxed); // a counter
            return OTHER_LOCKS;
        };
        if self.empty(at, now_ms, key) { at } else { OTHER_LOCKS }
    }

    /// A lock was destroyed. Its counts stay until another lock needs the record.
    pub fn retire(&self, lock: u64) {
        if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
            record.destroyed.store(1, Relaxed); // by the thread that destroys the lock
            self.header().retired.fetch_add(1, Relaxed); // a counter
        }
    }

    /// Empties a record and gives its place in the table to another key; `false`: another thread is doing so.
    #[cold]
    pub(crate) fn empty(&self, at: usize, now_ms: u64, next: u64) -> bool {
        let key = self.keys()[at].load(Relaxed); // checked below
        let Some(record) = self.record(at) else { return false };
        // Relaxed, here and below: keys are independent, and counters are drained one by one.
        if matches!(key, 0 | MOVING)
            || self.keys()[at].compare_exchange(key, MOVING, Relaxed, Relaxed).is_err()
        {
            return false;
        }
        // (A lock that threads only tried to take has no waiters.)
        let firsts = [&record.waiters[0], &record.triers[0]];
        let sites = firsts.map(|site| site.address.load(Relaxed));
        let site = sites.into_iter().find(|&site| site != 0).unwrap_or(UNKNOWN);
        let is_signal = Self::is_signal(record);
        let is_condition = record.kind.load(Relaxed) == LockKind::Cond as u32;
        let (gone, others) = match (is_signal, is_condition) {
            (true, _) => (site | GONE | SIGNALS, OTHER_LOCKS),
            (_, true) => (site | GONE | CONDITIONS, OTHER_CONDITIONS),
            _ => (site | GONE, OTHER_LOCKS),
        };
        // The counts of a place go to the last record if the place is needed for a lock. So do those of a lock that has
        // no place to go to.
        let to = match key {
            key if key & GONE != 0 => others,
            _ => self.find(gone).unwrap_or_else(|| {
                let free = |&way: &usize| {
                    self.keys()[way].compare_exchange(0, gone, Relaxed, Relaxed).is_ok()
                };
                Self::ways(gone).find(free).unwrap_or(others)
            }),
        };
        match self.record(to) {
            Some(target) if to != at => {
                let is_whole = self.memory(at).load(Relaxed) == WHOLE; // as in `record`
                Self::drain(record, target, is_whole && self.waits(to, target, 1).is_some());
                target.last_ms.store(now_ms, Relaxed);
                if key & GONE == 0 {
                    target.locks.fetch_add(1, Relaxed);
                }
                if to != OTHER_LOCKS {
                    target.kind.store(record.kind.load(Relaxed), Relaxed);
                }
            }
            _ => {}
        }
        self.header().evicted.fetch_add(u64::from(!is_signal && !is_condition), Relaxed);
        record.destroyed.store(0, Relaxed);
        record.kind.store(LockKind::Mutex as u32, Relaxed);
        record.tenants.fetch_add(1, Relaxed);
        self.keys()[at].store(next, Relaxed);
        true
    }
}
