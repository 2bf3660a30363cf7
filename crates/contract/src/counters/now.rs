//! What threads wait for at this moment, as an observer sees it.

use super::Segment;
use super::layout::{GONE, HEAD, LOCKS, Record, WHOLE, record_at};
use core::sync::atomic::Ordering::Relaxed;

/// A lock that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitedNow {
    /// Its address.
    pub lock: u64,
    /// A [`LockKind`](super::layout::LockKind)'s number.
    pub kind: u32,
    /// When a thread began to wait for its holder, ns of `CLOCK_MONOTONIC`.
    pub since_ns: u64,
}

impl Segment {
    /// The locks that threads wait for now, of all kinds. Only reads. (Relaxed: they are hints.)
    pub fn waited_now(&self) -> impl Iterator<Item = WaitedNow> {
        (0..LOCKS).filter_map(|index| {
            let lock = self.keys()[index].load(Relaxed);
            // A record without memory must not be looked at.
            let is_there = [HEAD, WHOLE].contains(&self.memory(index).load(Relaxed));
            if lock == 0 || lock >= GONE || !is_there {
                return None;
            }
            // SAFETY: its head is populated.
            let record: &Record = unsafe { self.at(record_at(index)) };
            let since_ns = record.blocked_since_ns.load(Relaxed);
            let kind = record.kind.load(Relaxed);
            (since_ns != 0).then_some(WaitedNow { lock, kind, since_ns })
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::Segment;
    use crate::header::About;
    use std::os::unix::ffi::OsStrExt;
    use std::vec::Vec;

    #[test]
    fn locks_of_all_kinds_are_shown_while_somebody_waits() {
        let dir = tempfile::tempdir().unwrap();
        let about = About { now_ns: 1, lock: b"auto", ..About::default() };
        let segment = Segment::create(dir.path().as_os_str().as_bytes(), &about).unwrap();
        segment.arrived(128, 0, 1_000_000, 1);
        segment.semaphore_waits(64, 2_000_000, 8);
        assert_eq!(segment.waited_now().count(), 0);
        segment.blocks(128, 1_000_000, 1, 0);
        segment.blocks(64, 2_000_000, 1, 0);
        let mut now: Vec<_> = segment.waited_now().map(|one| (one.lock, one.since_ns)).collect();
        now.sort_unstable();
        assert_eq!(now, [(64, 2_000_000), (128, 1_000_000)]);
        segment.blocked_since(128);
        assert_eq!(segment.waited_now().count(), 1);
    }
}
