//! Resets the counts while the process keeps counting.
//!
//! A command maps the segment and takes the counts out word by word, as the process itself does when a record goes to
//! another lock. Each word is atomic, so a concurrent count falls either before or after the reset. A thread that waits
//! at that moment will still add what it hasn't counted yet.

use crate::counters::Segment;
use crate::counters::layout::{
    CountersHeader, HEAD, HEAD_LENGTH, LockKind, RECORDS, Record, WHOLE, record_at,
};
use crate::file::Mapped;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

impl Segment {
    /// Another process's segment; `None`: there is none, or it has another version.
    ///
    /// # Safety
    /// [`LENGTH`](crate::counters::layout::LENGTH) bytes are mapped at `base`, shared, for as long as this is used, and the file behind them isn't
    /// shorter. They are writable, unless only [`waited_for`](Self::waited_for) and [`is_still`](Self::is_still) are
    /// used.
    pub unsafe fn of_other(base: *mut u8) -> Option<Self> {
        // SAFETY: our caller's promise.
        let segment = Self { file: unsafe { Mapped::at(base) } };
        segment.header().common.check::<CountersHeader>().is_ok().then_some(segment)
    }

    /// Sets all counts to 0; the locks stay. Returns how many locks had counts.
    pub fn reset(&self, now_ns: u64) -> usize {
        // Relaxed, all of it: these are independent counters.
        let header = self.header();
        let mut locks = 0;
        for index in 0..RECORDS {
            let memory = self.memory(index).load(Relaxed);
            if ![HEAD, WHOLE].contains(&memory) {
                continue;
            }
            // SAFETY: its head is populated; what is behind it is looked at only if it is WHOLE.
            let record: &Record = unsafe { self.at(record_at(index)) };
            let counts = [&record.arrived, &record.failed_tries];
            let is_lock = record.kind.load(Relaxed) != LockKind::Cond as u32;
            if is_lock && counts.iter().any(|count| count.load(Relaxed) > 0) {
                locks += 1;
            }
            // SAFETY: zeroes are a valid record.
            let taken: Record = unsafe { MaybeUninit::zeroed().assume_init() };
            let (place, count) = (record.place.load(Relaxed), record.locks.load(Relaxed));
            let (prefer, mutex) = (record.prefer.load(Relaxed), record.wakes.mutex.load(Relaxed));
            Self::drain(record, &taken, memory == WHOLE);
            record.place.store(place, Relaxed);
            record.locks.store(count, Relaxed);
            record.prefer.store(prefer, Relaxed);
            record.wakes.mutex.store(mutex, Relaxed);
            // This tells a reader that compares with earlier counts that counting began anew.
            record.tenants.fetch_add(1, Relaxed);
        }
        for counter in [&header.unplaced, &header.evicted, &header.retired] {
            counter.store(0, Relaxed);
        }
        header.stacks_lost.store(0, Relaxed);
        header.lost.store(0, Relaxed);
        header.common.last_ns.store(now_ns, Relaxed);
        header.common.start_ns.store(now_ns, Relaxed);
        locks
    }
}

const _: () = assert!(HEAD_LENGTH < size_of::<Record>(), "`slower` lies behind the head");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Wait;
    use crate::counters::layout::LOCKS;
    use crate::header::About;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn nothing_is_left_and_counting_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let about = About { now_ns: 1, lock: b"auto", ..About::default() };
        let segment = Segment::create(dir.path().as_os_str().as_bytes(), &about).unwrap();
        let wait =
            Wait { lock: 64, ns: 1000, weight: 1, asleep: true, acquired: true, ..Wait::default() };
        let count = || {
            segment.arrived(64, 5, 2_000_000, 1);
            segment.waited(&wait);
        };
        let seen = || {
            let mut all = (0..LOCKS).filter(|&at| segment.keys()[at].load(Relaxed) == 64);
            // SAFETY: it has a lock, and so it is populated.
            let record: &Record = unsafe { segment.at(record_at(all.next_back().unwrap())) };
            let waits: u64 = record.wait.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum();
            let asleep = record.classes[0].asleep.load(Relaxed);
            (record.arrived.load(Relaxed), asleep, waits, record.place.load(Relaxed))
        };
        count();
        count();
        assert_eq!(seen(), (2, 2, 2, 5));
        // SAFETY: the same mapping.
        let other = unsafe { Segment::of_other(segment.file.base) }.unwrap();
        assert_eq!((other.reset(7), seen()), (1, (0, 0, 0, 5)));
        assert_eq!(segment.header().common.start_ns.load(Relaxed), 7);
        count();
        assert_eq!(seen(), (1, 1, 1, 5));
    }
}
