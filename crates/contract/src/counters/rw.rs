//! Readers-writer locks: whose waits they are, and for whom.

use crate::counters::count::{add, raise};
use crate::counters::layout::LockKind;
use crate::counters::{Segment, Wait};
use core::sync::atomic::Ordering::Relaxed;

/// Who held a readers-writer lock when a thread had to wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// Readers.
    #[default]
    Readers,
    /// A writer.
    Writer,
}

/// What a wait for a readers-writer lock has beyond any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RwWait {
    /// Did the thread want to write?
    pub writes: bool,
    /// Who held the lock when the wait began.
    pub behind: Behind,
    /// Who goes first, as in [`Record::prefer`](crate::counters::layout::Record).
    pub prefer: u32,
}

impl Segment {
    /// A wait for a readers-writer lock has ended.
    pub fn rw_waited(&self, wait: &Wait, rw: RwWait) {
        let index = self.record_of(wait.lock, wait.ended_ns / 1_000_000);
        let Some(record) = self.record(index) else { return };
        self.waited_in(index, record, wait);
        let weight = u64::from(wait.weight);
        let side = if rw.writes { &record.writers } else { &record.readers };
        add(&side.waits, weight);
        add(&side.wait_ns, wait.ns * weight);
        raise(&side.max_ns, wait.ns);
        let behind = match rw.behind {
            Behind::Readers => &side.behind_readers,
            Behind::Writer => &side.behind_writer,
        };
        add(behind, weight);
        let is_own = record.kind.load(Relaxed) == LockKind::ReadWrite as u32;
        if is_own && record.prefer.load(Relaxed) != rw.prefer {
            record.prefer.store(rw.prefer, Relaxed); // a rule may change it
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::layout::{GONE, Record};
    use crate::header::About;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn waits_of_readers_and_of_writers_are_told_apart_and_go_with_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let about = About { now_ns: 1, lock: b"auto", ..About::default() };
        let segment = Segment::create(dir.path().as_os_str().as_bytes(), &about).unwrap();
        let waits = |ns: u64, weight: u32, writes: bool, behind: Behind| {
            segment.arrived_at(64, LockKind::ReadWrite, 0, 10, weight.into());
            let wait = Wait { lock: 64, site: 5, ns, weight, acquired: true, ..Wait::default() };
            segment.rw_waited(&wait, RwWait { writes, behind, prefer: 2 });
        };
        waits(100, 4, false, Behind::Writer);
        waits(3000, 1, true, Behind::Readers);
        waits(50, 1, true, Behind::Writer);
        let seen = |record: &Record| {
            [&record.readers, &record.writers].map(|side| {
                let all = [
                    &side.waits,
                    &side.wait_ns,
                    &side.max_ns,
                    &side.behind_readers,
                    &side.behind_writer,
                ];
                all.map(|count| count.load(Relaxed))
            })
        };
        let record = |key| segment.find(key).and_then(|at| segment.record(at)).unwrap();
        let all = [[4, 400, 100, 0, 4], [2, 3050, 3000, 1, 1]];
        assert_eq!(seen(record(64)), all);
        assert_eq!((record(64).arrived.load(Relaxed), record(64).prefer.load(Relaxed)), (6, 2));
        // A mutex at its address: the lock's memory was freed.
        segment.arrived(64, 0, 20, 1);
        assert_eq!(seen(record(64)), [[0; 5]; 2]);
        let gone = record(5 | GONE);
        assert_eq!((seen(gone), gone.prefer.load(Relaxed)), (all, 2));
        assert_eq!(gone.kind.load(Relaxed), LockKind::ReadWrite as u32);
        assert_eq!(segment.reset(30), 2);
        assert_eq!(
            (seen(gone), gone.prefer.load(Relaxed)),
            ([[0; 5]; 2], 2),
            "the preference stays"
        );
    }
}
