//! Locks that threads tried to take, and didn't get. Such a thread doesn't wait, but may try again and again.

use crate::count::add;
use crate::layout::LockKind;
use crate::{Blame, Segment};
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

    /// A lock was released by the slow path. If threads have tried in vain to take it, the thread that had it is to blame.
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
