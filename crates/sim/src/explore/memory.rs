//! The memory of explorations: words that know their past, lines that are never reused, and the process that they belong to.
//! What using them does is in machine.rs and process.rs.

use super::setting::THREADS;
use std::cell::{Cell, RefCell};

/// The machine on which schedules are explored.
#[derive(Debug)]
pub(crate) struct Explored;

/// Memory that stays readable until the machine ends.
#[repr(align(128))]
pub(crate) struct MemoryLine([u8; 2048]);

impl MemoryLine {
    pub(crate) fn zeroed() -> Box<Self> {
        Box::new(Self([0; 2048]))
    }

    pub(crate) fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

/// A value of the machine's memory.
pub(crate) struct ExploreCell<V: Value> {
    pub(super) value: Cell<V>,
    pub(super) alive: Cell<u32>,
    /// Thread and clock.
    pub(super) made: (u32, u32),
    /// Each thread's clock at its last use; 0: none.
    pub(super) used: Cell<[u32; THREADS]>,
    /// The newest store that each thread has seen.
    pub(super) seen: Cell<[u32; THREADS]>,
    /// The newest SeqCst store: a SeqCst load comes after it.
    pub(super) last_seq_cst: Cell<u32>,
    /// The number of the first of `stores`.
    pub(super) base: Cell<u32>,
    /// The last few stores, if there was any since the first value.
    pub(super) stores: RefCell<Vec<Stored<V>>>,
}

/// A value that was written.
#[derive(Clone, Copy)]
pub(super) struct Stored<V> {
    pub(super) value: V,
    pub(super) by: u32,
    pub(super) clock: u32,
    /// What an Acquire that reads it learns.
    pub(super) known: [u32; THREADS],
}

/// What a cell may hold.
pub(crate) trait Value: Copy + Eq {
    /// For reports.
    fn shown(self) -> u64;
}
impl Value for u32 {
    fn shown(self) -> u64 {
        self.into()
    }
}
impl<T> Value for *mut T {
    fn shown(self) -> u64 {
        self.addr() as u64
    }
}

// SAFETY: a machine and all of its threads live on one operating-system thread.
unsafe impl<V: Value> Sync for ExploreCell<V> {}
// SAFETY: as above.
unsafe impl<V: Value> Send for ExploreCell<V> {}

/// A process whose mutexes are explored.
#[derive(Debug)]
pub(crate) enum Process {}
