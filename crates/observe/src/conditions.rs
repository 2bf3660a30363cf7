//! Condition variables: who waits, who wakes whom, and whether that was of use.

use crate::count::add;
use crate::layout::{LockKind, OTHER_CONDITIONS, Record, UNUSED};
use crate::{Blame, Segment, Wait};
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
