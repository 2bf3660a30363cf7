//! Condition variables: who waits, who wakes whom, and whether that was of use.

use crate::counters::count::add;
use crate::counters::layout::{LockKind, OTHER_CONDITIONS, Record, UNUSED};
use crate::counters::{Blame, Segment, Wait};
use core::sync::atomic::Ordering::Relaxed;

/// A call that woke waiters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waking {
    /// Did it wake all?
    pub all: bool,
    /// How many.
    pub threads: u32,
    /// How long they had waited, ns, as far as that is known.
    pub waited_ns: u64,
    /// The longest of these, ns.
    pub longest_ns: u64,
    /// Was the last wait of the calling thread for the same condition variable?
    pub by_waiter: bool,
}

impl Segment {
    /// A thread begins to wait for a condition variable, with this mutex.
    pub fn condition_waits(&self, cond: u64, mutex: u64, now_ns: u64) {
        let Some(record) = self.used(cond, LockKind::Cond, now_ns) else { return };
        add(&record.arrived, 1);
        if record.wakes.mutex.load(Relaxed) != mutex {
            record.wakes.mutex.store(mutex, Relaxed); // only shown to users
        }
    }

    /// The wait has ended. (Its lock is the condition variable. It isn't acquired if the deadline passed.)
    pub fn condition_waited(&self, wait: &Wait) {
        if let Some((index, record)) = self.condition(wait.lock) {
            self.waited_in(index, record, wait);
        }
    }

    /// A thread has woken waiters.
    pub fn condition_wakes(
        &self,
        cond: u64,
        waking: Waking,
        by: Blame,
        stack: impl FnOnce() -> u32,
    ) {
        let Some((_, record)) = self.condition(cond) else { return };
        let wakes = &record.wakes;
        add(if waking.all { &wakes.broadcasts } else { &wakes.signals }, 1);
        add(&wakes.woken, waking.threads.into());
        add(&wakes.by_waiters, waking.by_waiter.into());
        Self::count_at(&record.holders, by, 1, waking.waited_ns, waking.longest_ns, stack);
    }

    /// A thread that was woken has released the mutex.
    pub fn condition_got_on(&self, cond: u64) {
        if let Some((_, record)) = self.condition(cond) {
            add(&record.wakes.got_on, 1);
        }
    }

    /// A thread that was woken waits again, and has not released the mutex before.
    pub fn condition_wasted(&self, cond: u64) {
        if let Some((_, record)) = self.condition(cond) {
            add(&record.wakes.wasted, 1);
        }
    }

    /// The condition variable was destroyed. Its counts stay until another one needs the record.
    pub fn retire_condition(&self, cond: u64) {
        if let Some((index, record)) = self.condition(cond)
            && index != OTHER_CONDITIONS
        {
            record.destroyed.store(1, Relaxed); // by the thread that destroys it
        }
    }

    /// The condition variable's record.
    fn condition(&self, cond: u64) -> Option<(usize, &Record)> {
        let of = |index: usize| Some((index, self.record(index)?));
        let known = self.find(cond).and_then(of);
        known.filter(|(_, record)| record.kind.load(Relaxed) == LockKind::Cond as u32).or_else(
            || {
                // One without a record of its own; or, as a rule, one that nobody has waited for since counting began.
                let is_used = self.memory(OTHER_CONDITIONS).load(Relaxed) != UNUSED;
                is_used.then(|| of(OTHER_CONDITIONS))?
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::layout::{CONDITIONS, GONE, LOCKS};
    use crate::header::About;
    use std::os::unix::ffi::OsStrExt;

    const SECOND: u64 = 1_000_000_000;

    fn segment(dir: &tempfile::TempDir) -> Segment {
        let about = About { now_ns: 1, lock: b"auto", ..About::default() };
        Segment::create(dir.path().as_os_str().as_bytes(), &about).unwrap()
    }

    fn by(site: u64) -> Blame {
        Blame { site, tid: 9, by_thread: false }
    }

    /// One thread waits at `site`, for 1000 ns.
    fn waits(segment: &Segment, cond: u64, site: u64, now_ns: u64, acquired: bool) {
        segment.condition_waits(cond, 32, now_ns);
        let (ended_ns, ns, weight) = (now_ns + 1000, 1000, 1);
        let wait = Wait { lock: cond, site, ended_ns, ns, weight, acquired, ..Wait::default() };
        segment.condition_waited(&wait);
    }

    #[test]
    fn waits_and_wakes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir);
        segment.condition_wakes(64, Waking { threads: 1, ..Waking::default() }, by(7), || 0);
        assert!(segment.condition(64).is_none(), "nobody has waited");
        waits(&segment, 64, 5, 10, true);
        waits(&segment, 64, 5, 20, false);
        let signal = Waking { threads: 1, waited_ns: 900, longest_ns: 900, ..Waking::default() };
        segment.condition_wakes(64, signal, by(7), || 0);
        let all = Waking { all: true, threads: 3, by_waiter: true, ..signal };
        segment.condition_wakes(64, all, by(7), || 0);
        segment.condition_got_on(64);
        segment.condition_wasted(64);
        let (_, record) = segment.condition(64).unwrap();
        let of = |count: &core::sync::atomic::AtomicU64| count.load(Relaxed);
        assert_eq!((of(&record.arrived), of(&record.gave_up)), (2, 1));
        assert_eq!((of(&record.waiters[0].count), of(&record.wait_max_ns)), (2, 1000));
        let wakes = &record.wakes;
        assert_eq!((of(&wakes.mutex), of(&wakes.signals), of(&wakes.broadcasts)), (32, 1, 1));
        assert_eq!((of(&wakes.woken), of(&wakes.got_on), of(&wakes.wasted)), (4, 1, 1));
        assert_eq!(of(&wakes.by_waiters), 1);
        let holder = &record.holders[0];
        assert_eq!((of(&holder.address), of(&holder.count), of(&holder.ns)), (7, 2, 1800));
        assert_eq!((of(&holder.max_ns), holder.max_tid.load(Relaxed)), (900, 9));
        assert_eq!(segment.reset(30), 0, "it is no lock");
        assert_eq!((of(&record.arrived), of(&wakes.woken), of(&wakes.mutex)), (0, 0, 32));
    }

    #[test]
    fn one_that_is_gone_is_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir);
        waits(&segment, 64, 5, 10, true);
        segment.retire_condition(64);
        assert_eq!(segment.header().retired.load(Relaxed), 0);
        segment.arrived(64, 0, 20, 1); // a mutex at its address
        let kind = |key| {
            let record = segment.find(key).and_then(|at| segment.record(at)).unwrap();
            (record.kind.load(Relaxed), record.arrived.load(Relaxed))
        };
        assert_eq!(kind(64), (LockKind::Mutex as u32, 1));
        assert_eq!(kind(5 | GONE | CONDITIONS), (LockKind::Cond as u32, 1));
        // Not destroyed: its memory was freed.
        segment.condition_waits(64, 32, 30);
        assert_eq!(kind(64), (LockKind::Cond as u32, 1));
        segment.condition_wasted(128);
        assert!(segment.condition(128).is_none());
    }

    #[test]
    fn those_without_room_count_together_and_apart_from_locks() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(&dir);
        let most = 3 * LOCKS as u64;
        (1..=most).for_each(|at| waits(&segment, at * 64, 5, SECOND + at, true));
        let arrived = |index: usize| segment.record(index).unwrap().arrived.load(Relaxed);
        let own = (0..LOCKS).filter(|&at| segment.keys()[at].load(Relaxed) != 0).map(arrived);
        assert_eq!(own.sum::<u64>() + arrived(OTHER_CONDITIONS), most);
        assert_ne!(arrived(OTHER_CONDITIONS), 0);
        assert_eq!(arrived(LOCKS), 0);
        let others = segment.record(OTHER_CONDITIONS).unwrap();
        assert_eq!(others.kind.load(Relaxed), LockKind::Cond as u32);
        let waited: u64 = others.wait.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum();
        assert_eq!(waited, arrived(OTHER_CONDITIONS));
    }
}
