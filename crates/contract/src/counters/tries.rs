//! Locks that threads tried to take, and didn't get. Such a thread doesn't wait, but may try again and again.

use crate::counters::count::add;
use crate::counters::layout::LockKind;
use crate::counters::{Blame, Segment};
use core::sync::atomic::Ordering::Relaxed;

impl Segment {
    /// Threads tried `count` times to take a lock, from this place, and didn't get it. `place` is as for
    /// [`arrived_at`](Self::arrived_at). `asks`: the holder will release the lock by the slow path, and is to blame.
    pub fn tried(
        &self,
        (lock, kind, place): (u64, LockKind, u32),
        now_ns: u64,
        count: u64,
        asks: bool,
        at: Blame,
        stack: impl FnOnce() -> u32,
    ) {
        let Some(record) = self.used(lock, kind, now_ns) else { return };
        if record.place.load(Relaxed) != place {
            record.place.store(place, Relaxed); // a hint, and mostly read
        }
        add(&record.failed_tries, count);
        add(&record.unblamed_tries, if asks { count } else { 0 });
        Self::count_at(&record.triers, at, count, 0, 0, stack);
    }

    /// As [`tried`](Self::tried), a while ago. If the lock has lost its record since, these tries are dropped.
    pub fn tried_before(&self, lock: u64, site: u64, tid: u32, count: u64) {
        if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
            add(&record.failed_tries, count);
            let at = Blame { site, tid, by_thread: false };
            Self::count_at(&record.triers, at, count, 0, 0, || 0);
        }
    }

    /// A lock was released by the slow path. If threads have tried in vain to take it, the thread that had it is to blame. (If one that
    /// waited got the lock before this was told, nobody is.)
    pub fn tries_end(&self, lock: u64, blame: Blame, stack: impl FnOnce() -> u32) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        if record.unblamed_tries.load(Relaxed) == 0 {
            return;
        }
        let count = record.unblamed_tries.swap(0, Relaxed); // a counter
        if count != 0 {
            Self::count_at(&record.tried_holders, blame, count, 0, 0, stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::layout::{GONE, Record, SITES, Site};
    use crate::header::About;
    use std::os::unix::ffi::OsStrExt;
    use std::vec::Vec;

    fn counts(sites: &[Site; SITES]) -> Vec<(u64, u64, u64, u32)> {
        let used = sites.iter().filter(|site| site.address.load(Relaxed) != 0);
        used.map(|site| {
            let (count, ns) = (site.count.load(Relaxed), site.ns.load(Relaxed));
            (site.address.load(Relaxed), count, ns, site.stack.load(Relaxed))
        })
        .collect()
    }

    #[test]
    fn a_lock_that_is_only_tried_has_a_record_and_its_holder_is_blamed_once() {
        let dir = tempfile::tempdir().unwrap();
        let about = About { now_ns: 1, lock: b"auto", ..About::default() };
        let segment = Segment::create(dir.path().as_os_str().as_bytes(), &about).unwrap();
        let at = |site| Blame { site, tid: 3, by_thread: false };
        let mutex = (64, LockKind::Mutex, 6);
        segment.tries_end(64, at(9), || 0);
        assert_eq!(segment.find(64), None, "nobody has tried");
        segment.tried(mutex, 10, 1, true, at(5), || 4);
        segment.tried(mutex, 10, 16, false, at(6), || 0);
        segment.tried_before(64, 5, 3, 2);
        segment.tries_end(64, at(9), || 8);
        segment.tries_end(64, at(9), || 8);
        let record = |key| segment.find(key).and_then(|at| segment.record(at)).unwrap();
        let failed = |record: &Record| record.failed_tries.load(Relaxed);
        let of = record(64);
        assert_eq!((failed(of), of.arrived.load(Relaxed), of.place.load(Relaxed)), (19, 0, 6));
        assert_eq!(counts(&of.triers), [(5, 3, 0, 4), (6, 16, 0, 0)]);
        assert_eq!(counts(&of.tried_holders), [(9, 1, 0, 8)]);
        segment.tried(mutex, 10, 1, true, at(5), || 0);
        segment.answers(64, 15, false);
        segment.tries_end(64, at(9), || 8);
        assert_eq!(counts(&of.tried_holders), [(9, 1, 0, 8)], "a waiter has got it");
        // A spin lock at its address.
        segment.tried((64, LockKind::Spin, 0), 20, 1, false, at(7), || 0);
        segment.tries_end(64, at(9), || 8);
        let of = record(64);
        assert_eq!((failed(of), of.kind.load(Relaxed)), (1, LockKind::Spin as u32));
        assert_eq!((counts(&of.triers).len(), counts(&of.tried_holders).len()), (1, 0));
        let gone = record(5 | GONE);
        assert_eq!((failed(gone), gone.kind.load(Relaxed)), (20, LockKind::Mutex as u32));
        assert_eq!(counts(&gone.triers), [(5, 4, 0, 4), (6, 16, 0, 0)]);
        assert_eq!(counts(&gone.tried_holders), [(9, 1, 0, 8)]);
        segment.tried((64, LockKind::Spin, 0), 30, 3, false, at(7), || 0);
        assert_eq!((segment.reset(40), failed(gone), counts(&gone.triers).len()), (2, 0, 0));
    }
}
