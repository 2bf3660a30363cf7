//! Makes the file and writes to it.

use crate::epochs::NAME;
use crate::file::{self, Mapped, Refused};
use crate::header::{About, CLASSES};
use crate::histogram::bucket;
use crate::layout::{
    BLOCK, BLOCKS_AT, ClassBlock, EPOCHS, EpochHead, EpochsHeader, HEADS_AT, LENGTH, block_at,
};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

/// A recording. Mapped forever; as cheap to copy as a pointer.
pub type Writer = Mapped<EpochsHeader>;

/// The place of an epoch in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u8);

/// One execution of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    /// How long it took, ns.
    pub latency_ns: u64,
    /// What it was allowed to take, ns.
    pub slo_ns: u64,
    /// The window with which it ran, ns.
    pub window_ns: u32,
    /// The window of the next one, ns.
    pub next_window_ns: u32,
    /// The class of the core on which it ended.
    pub class: u8,
}

impl Execution {
    /// Was it slower than its SLO?
    pub fn is_violation(&self) -> bool {
        self.latency_ns > self.slo_ns
    }

    /// Did it run with a window negligible against the SLO, as under a FIFO lock?
    pub fn is_at_fifo(&self) -> bool {
        u64::from(self.window_ns) * 64 <= self.slo_ns
    }
}

impl Mapped<EpochsHeader> {
    /// Makes `DIR/PID-N.stats`, with the first free N.
    ///
    /// # Errors
    /// The system's error from creating, growing or mapping the file; ENAMETOOLONG for a folder whose path has 4000
    /// bytes; or the folder is a link, or belongs to another user.
    pub fn create(dir: &[u8], about: &About<'_>) -> Result<Self, Refused> {
        Self::make(dir, about, LENGTH, BLOCKS_AT, |_| {})
    }

    fn head(&self, slot: Slot) -> &EpochHead {
        let at = HEADS_AT + usize::from(slot.0) % EPOCHS * size_of::<EpochHead>();
        // SAFETY: within the mapping, aligned, populated from the start; zeroes are a head.
        unsafe { self.place(at) }
    }

    /// The place of the epoch `id`; `None`: all are taken.
    pub fn slot(&self, id: u32) -> Option<Slot> {
        (0..EPOCHS as u8).map(Slot).find(|&slot| {
            // Relaxed: the only information is which epoch owns the place.
            match self.head(slot).id.compare_exchange(0, id + 1, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(seen) => seen == id + 1,
            }
        })
    }

    /// Sets an epoch's name, cut to 63 bytes.
    pub fn name(&self, slot: Slot, name: &[u8]) {
        for (at, byte) in self.head(slot).name[..NAME - 1].iter().enumerate() {
            byte.store(name.get(at).copied().unwrap_or(0), Relaxed); // for the reader's eyes
        }
    }

    /// Sets an epoch's percentile, in millionths.
    pub fn percentile(&self, slot: Slot, millionths: u32) {
        self.head(slot).percentile.store(millionths, Relaxed); // a number by itself
    }

    /// Records one execution, which ended at `now_ns` of `CLOCK_MONOTONIC`; `false` if there is no room on the disk.
    pub fn record(&self, slot: Slot, sample: &Execution, now_ns: u64) -> bool {
        let class = usize::from(sample.class).min(CLASSES - 1);
        let head = self.head(slot);
        let Some(block) = self.block(head, slot, class) else { return false };
        // Relaxed, all of them: these are counters, and their order doesn't matter to a reader.
        block.buckets[bucket(sample.latency_ns)].fetch_add(1, Relaxed);
        if block.max_ns.load(Relaxed) < sample.latency_ns {
            block.max_ns.fetch_max(sample.latency_ns, Relaxed);
        }
        if block.min_inverted.load(Relaxed) < !sample.latency_ns {
            block.min_inverted.fetch_max(!sample.latency_ns, Relaxed);
        }
        if sample.is_violation() {
            block.violations.fetch_add(1, Relaxed);
        }
        if sample.is_at_fifo() {
            block.at_fifo.fetch_add(1, Relaxed);
            if sample.is_violation() {
                block.at_fifo_violations.fetch_add(1, Relaxed);
            }
        }
        block.window_ns.store(sample.next_window_ns.into(), Relaxed);
        if head.slo_ns.load(Relaxed) != sample.slo_ns {
            head.slo_ns.store(sample.slo_ns, Relaxed);
        }
        // All threads share this word, so it is written only once a millisecond.
        let last = &self.header().common.last_ns;
        if last.load(Relaxed) + 1_000_000 <= now_ns {
            last.store(now_ns, Relaxed);
        }
        true
    }

    fn block(&self, head: &EpochHead, slot: Slot, class: usize) -> Option<&ClassBlock> {
        let at = block_at(usize::from(slot.0) % EPOCHS, class);
        let classes = head.classes.load(Relaxed); // whether the pages exist is the same for all threads
        if classes & 1 << class == 0 && !self.open_block(&head.classes, at, class) {
            return None;
        }
        // SAFETY: within the mapping, aligned to a page, populated; zeroes are an empty block.
        Some(unsafe { self.place(at) })
    }

    #[cold]
    fn open_block(&self, classes: &AtomicU32, at: usize, class: usize) -> bool {
        if classes.load(Relaxed) & 1 << (16 + class) != 0 {
            return false;
        }
        // SAFETY: within the mapping.
        let is_there = unsafe { file::populate(self.base.add(at), BLOCK) }.is_ok();
        let bit = if is_there { 1 << class } else { 1 << (16 + class) };
        classes.fetch_or(bit, Relaxed); // as in `block`
        is_there
    }
}

const _: () = assert!(size_of::<AtomicU8>() == 1);
