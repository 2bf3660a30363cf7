//! Readers-writer locks: whose waits they are, and for whom.

use crate::count::{add, raise};
use crate::layout::LockKind;
use crate::{Segment, Wait};
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
    /// Who goes first, as in [`Record::prefer`](crate::layout::Record).
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
            record.prefer.store(rw.prefer, Relaxed); // it never changes in a lock's life
        }
    }
}
