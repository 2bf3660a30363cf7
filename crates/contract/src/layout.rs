//! The layout of the file in which a process records its epochs, version 2.
//!
//! ```text
//!   byte 0           one EpochsHeader: who wrote it
//!   HEADS_AT         EPOCHS x EpochHead: id, name, SLO, percentile
//!   BLOCKS_AT        EPOCHS x CLASSES x ClassBlock: counters and a histogram; holes until used
//! ```

use crate::epochs::NAME;
use crate::header::{CLASSES, Header, Layout, PAGE};
use crate::histogram::BUCKETS;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Epochs that one process can record.
pub const EPOCHS: usize = 128;

/// How the file begins. An epoch's end moves `last_ns`.
#[repr(C)]
#[derive(Debug)]
pub struct EpochsHeader {
    /// Who writes it.
    pub common: Header,
}

// SAFETY: `repr(C)`, a header first, integers all, and the assertion below.
unsafe impl Layout for EpochsHeader {
    const MAGIC: u64 = u64::from_le_bytes(*b"lwstats\0");
    const VERSION: u32 = 2;
    const ENDING: &'static str = ".stats";
    const LENGTH: Option<usize> = Some(LENGTH);
}

/// One epoch.
#[repr(C)]
#[derive(Debug)]
pub struct EpochHead {
    /// The epoch's id + 1; 0: this entry and all later ones are free.
    pub id: AtomicU32,
    /// Bit `c`: class `c` has a block. Bit `16 + c`: it can't have one, because the disk is full.
    pub classes: AtomicU32,
    /// The SLO of the last execution, ns.
    pub slo_ns: AtomicU64,
    /// The percentile for which the SLO holds, millionths (990000: P99).
    pub percentile: AtomicU32,
    /// Nothing yet.
    pub reserved: [u32; 11],
    /// Its name; UTF-8, padded with zeroes; empty: it only has a number.
    pub name: [AtomicU8; NAME],
}

/// The totals of an epoch's executions that ended on cores of one class.
#[repr(C)]
#[derive(Debug)]
pub struct ClassBlock {
    /// Executions slower than the SLO.
    pub violations: AtomicU64,
    /// Executions that began with a window negligible against the SLO.
    pub at_fifo: AtomicU64,
    /// How many of these were slower than the SLO.
    pub at_fifo_violations: AtomicU64,
    /// The window after the last execution, ns.
    pub window_ns: AtomicU64,
    /// The shortest execution, ns, with all bits inverted, so that zero means none yet.
    pub min_inverted: AtomicU64,
    /// The longest execution, ns.
    pub max_ns: AtomicU64,
    /// Nothing yet.
    pub reserved: [u64; 10],
    /// Executions by latency; their sum is the number of executions.
    pub buckets: [AtomicU64; BUCKETS],
}

/// Where the heads begin.
pub const HEADS_AT: usize = PAGE;
/// Where the blocks begin.
pub const BLOCKS_AT: usize = HEADS_AT + (EPOCHS * size_of::<EpochHead>()).next_multiple_of(PAGE);
/// The distance from one block to the next: whole pages.
pub const BLOCK: usize = size_of::<ClassBlock>().next_multiple_of(PAGE);
/// The file's length; most of it is holes.
pub const LENGTH: usize = BLOCKS_AT + EPOCHS * CLASSES * BLOCK;

/// Where the block of an epoch's class is.
pub const fn block_at(slot: usize, class: usize) -> usize {
    BLOCKS_AT + (slot * CLASSES + class) * BLOCK
}

const _: () = {
    assert!(size_of::<EpochsHeader>() <= PAGE && size_of::<EpochHead>() == 128);
};
