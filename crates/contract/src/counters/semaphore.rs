//! Semaphores that programs use as locks: which thread has one, and whether it is a lock at all.
//!
//! A semaphore knows neither. So we note which thread takes one, and compare that with the thread that releases it.

use crate::counters::Segment;
use crate::counters::layout::{
    GONE, HEAD, LOCKS, LockKind, Record, TAKER_WAYS, TAKERS, TAKERS_AT, TID_BITS, Taker, WHOLE,
    is_lock, record_at, taker_tag, taker_ways,
};
use core::sync::atomic::Ordering::Relaxed;

/// In [`Taker::who`]: the thread's id.
const TID: u64 = (1 << TID_BITS) - 1;

/// Which thread has a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The thread; 0: none.
    pub tid: u32,
    /// When it took the semaphore, ns of `CLOCK_MONOTONIC`; 0: not known.
    pub since_ns: u64,
}

/// A semaphore with a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitedSemaphore {
    /// Its address.
    pub semaphore: u64,
    /// Which of the locks that used that record it is: [`Record::tenants`].
    pub tenant: u64,
    /// The thread that has it; 0: not known.
    pub holder: u32,
    /// The thread that last began to wait. It may already have got the semaphore.
    pub waiter: u32,
    /// When a thread began to wait for this holder, ns of `CLOCK_MONOTONIC`.
    pub since_ns: u64,
}

impl Segment {
    // Relaxed, all of it: these are hints. Only a holder writes who holds it, so it reads back what it wrote.

    fn takers(&self) -> &[Taker; TAKERS] {
        // SAFETY: there are that many, and zeroes are free places.
        unsafe { self.at(TAKERS_AT) }
    }

    fn place_of_taker(&self, semaphore: u64) -> Option<&Taker> {
        let tag = taker_tag(semaphore);
        let ways = &self.takers()[taker_ways(semaphore)];
        ways.iter().find(|taker| taker.who.load(Relaxed) & !TID == tag)
    }

    /// A thread has taken a semaphore after a wait that ended at `since_ns`; 0: it was free.
    pub fn took(&self, semaphore: u64, tid: u32, since_ns: u64) {
        let tag = taker_tag(semaphore);
        let known = self.place_of_taker(semaphore).or_else(|| {
            let ways = &self.takers()[taker_ways(semaphore)];
            let free = |taker: &&Taker| {
                taker.who.load(Relaxed) == 0
                    && taker.who.compare_exchange(0, tag, Relaxed, Relaxed).is_ok()
            };
            // No place is free: use that of a semaphore that no thread has, or else any.
            let idle = |taker: &&Taker| taker.who.load(Relaxed) & TID == 0;
            let any = (tag >> TID_BITS) as usize / 2 % TAKER_WAYS;
            ways.iter().find(free).or_else(|| ways.iter().find(idle)).or(ways.get(any))
        });
        if let Some(taker) = known {
            if taker.since_ns.load(Relaxed) != since_ns {
                taker.since_ns.store(since_ns, Relaxed);
            }
            taker.who.store(tag | u64::from(tid), Relaxed);
        }
    }

    /// Which thread has it; `None`: not known.
    pub fn taker(&self, semaphore: u64) -> Option<Taken> {
        let taker = self.place_of_taker(semaphore)?;
        let tid = (taker.who.load(Relaxed) & TID) as u32;
        Some(Taken { tid, since_ns: taker.since_ns.load(Relaxed) })
    }

    /// From now on, no thread has it.
    pub fn gives(&self, semaphore: u64) {
        if let Some(taker) = self.place_of_taker(semaphore) {
            taker.who.store(taker_tag(semaphore), Relaxed);
        }
    }

    /// The semaphore was destroyed.
    pub fn retire_semaphore(&self, semaphore: u64) {
        if let Some(taker) = self.place_of_taker(semaphore) {
            taker.who.store(0, Relaxed);
        }
        self.retire(semaphore);
    }

    /// A thread has to wait for the semaphore.
    pub fn semaphore_waits(&self, semaphore: u64, now_ns: u64, tid: u32) {
        self.arrived_at(semaphore, LockKind::Semaphore, 0, now_ns, 1);
        if let Some(record) = self.known(semaphore) {
            record.waiter.store(tid, Relaxed);
        }
    }

    /// The semaphore was released by the thread that took it last.
    pub fn released_by_taker(&self, semaphore: u64) {
        if let Some(record) = self.known(semaphore) {
            record.releases.fetch_add(1, Relaxed);
        }
    }

    /// The semaphore was used in a way that a lock never is.
    pub fn signals(&self, semaphore: u64) {
        if let Some(record) = self.known(semaphore) {
            record.signals.fetch_add(1, Relaxed);
        }
    }

    /// The semaphore's record. A semaphore at the address of a destroyed lock has none until a thread waits for it.
    fn known(&self, semaphore: u64) -> Option<&Record> {
        let record = self.find(semaphore).and_then(|at| self.record(at))?;
        (record.destroyed.load(Relaxed) == 0).then_some(record)
    }

    /// Is it the record of a semaphore that isn't a lock?
    pub(crate) fn is_signal(record: &Record) -> bool {
        record.kind.load(Relaxed) == LockKind::Semaphore as u32
            && !is_lock(
                record.releases.load(Relaxed),
                record.signals.load(Relaxed),
                record.destroyed.load(Relaxed) != 0,
            )
    }

    /// The semaphores with waiters. Only reads.
    pub fn waited_for(&self) -> impl Iterator<Item = WaitedSemaphore> {
        (0..LOCKS).filter_map(|index| self.held_at(index))
    }

    /// Does the same thread still hold it while another one waits? Only reads.
    pub fn is_still(&self, held: &WaitedSemaphore) -> bool {
        let now = self.find(held.semaphore).and_then(|index| self.held_at(index));
        now.is_some_and(|now| (now.holder, now.since_ns) == (held.holder, held.since_ns))
    }

    fn held_at(&self, index: usize) -> Option<WaitedSemaphore> {
        let semaphore = self.keys()[index].load(Relaxed);
        // A record without memory must not be looked at.
        let is_there = [HEAD, WHOLE].contains(&self.memory(index).load(Relaxed));
        if semaphore == 0 || semaphore >= GONE || !is_there {
            return None;
        }
        // SAFETY: its head is populated.
        let record: &Record = unsafe { self.at(record_at(index)) };
        let since_ns = record.blocked_since_ns.load(Relaxed);
        (since_ns != 0 && record.kind.load(Relaxed) == LockKind::Semaphore as u32).then(|| {
            WaitedSemaphore {
                semaphore,
                tenant: record.tenants.load(Relaxed),
                holder: self.taker(semaphore).map_or(0, |taken| taken.tid),
                waiter: record.waiter.load(Relaxed),
                since_ns,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Blame;
    use crate::header::About;
    use std::os::unix::ffi::OsStrExt;
    use std::vec::Vec;

    fn segment(dir: &tempfile::TempDir) -> Segment {
        let about = About { now_ns: 1, lock: b"auto", ..About::default() };
        Segment::create(dir.path().as_os_str().as_bytes(), &about).unwrap()
    }

    #[test]
    fn who_took_it_is_known_until_it_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir);
        assert_eq!(segment.taker(64), None);
        segment.took(64, 7, 0);
        segment.took(96, 8, 5);
        assert_eq!(segment.taker(64), Some(Taken { tid: 7, since_ns: 0 }));
        assert_eq!(segment.taker(96), Some(Taken { tid: 8, since_ns: 5 }));
        segment.gives(64);
        assert_eq!(segment.taker(64), Some(Taken { tid: 0, since_ns: 0 }));
        segment.retire_semaphore(96);
        assert_eq!(segment.taker(96), None);
    }

    /// With more semaphores than places, the most recent ones are known, and none is confused with another.
    #[test]
    fn takers_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir);
        let all = 1..=10 * TAKERS as u64;
        all.clone().for_each(|at| segment.took(at * 32, at as u32, at));
        let known: Vec<_> =
            all.filter_map(|at| segment.taker(at * 32).map(|taken| (at as u32, taken))).collect();
        assert!((TAKERS / 2..=TAKERS).contains(&known.len()), "{}", known.len());
        assert!(known.iter().all(|&(at, taken)| taken.tid == at));
        assert_eq!(known.last().map(|(at, _)| *at), Some(10 * TAKERS as u32));
    }

    #[test]
    fn only_semaphores_that_somebody_waits_for_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir);
        segment.took(64, 7, 0);
        segment.arrived(128, 0, 1_000_000, 1); // a mutex
        segment.blocks(128, 1_000_000, 1, 0);
        segment.semaphore_waits(64, 2_000_000, 8);
        assert_eq!(segment.waited_for().count(), 0);
        segment.blocks(64, 2_000_000, 1, 0);
        let held =
            WaitedSemaphore { semaphore: 64, tenant: 0, holder: 7, waiter: 8, since_ns: 2_000_000 };
        assert_eq!(segment.waited_for().collect::<Vec<_>>(), [held]);
        assert!(
            segment.is_still(&held) && !segment.is_still(&WaitedSemaphore { holder: 9, ..held })
        );
        let since = segment.blocked_since(64);
        assert_eq!((since, segment.waited_for().count()), (2_000_000, 0));
        segment.blocked_from(
            64,
            since,
            5_000_000,
            0,
            Blame { site: 9, tid: 7, by_thread: false },
            || 0,
        );
        let record = segment.known(64).unwrap();
        assert_eq!(record.blocked_ns.load(Relaxed), 3_000_000);
        assert_eq!(record.holders[0].max_tid.load(Relaxed), 7);
        assert!(Segment::is_signal(record), "nobody has given it back yet");
        segment.released_by_taker(64);
        assert!(!Segment::is_signal(record));
        segment.retire_semaphore(64);
        (0..9).for_each(|_| segment.released_by_taker(64)); // of another semaphore, which nobody waits for
        assert!(Segment::is_signal(record), "it was released once");
        segment.semaphore_waits(64, 6_000_000, 8);
        (0..9).for_each(|_| segment.released_by_taker(64));
        assert!(!Segment::is_signal(record));
        segment.signals(64);
        assert!(Segment::is_signal(record));
    }

    #[test]
    fn what_was_hardly_released_and_is_gone_is_no_lock() {
        assert!(is_lock(1, 0, false) && is_lock(3, 0, true));
        assert!(!is_lock(0, 0, false) && !is_lock(2, 0, true) && !is_lock(9, 1, false));
    }
}
