//! The machine's memory, as locks see it: words, pointers, lines, and the process that they belong to. What it costs to use
//! them is in platform.rs and product.rs.

use lockwright_platform::{Door, Ptr, ReaderTable, Word};
use std::alloc::Layout;
use std::cell::Cell;

/// What [`take_line`](lockwright_platform::Platform::take_line) hands out.
pub(crate) const LINE: Layout = match Layout::from_size_align(128, 128) {
    Ok(layout) => layout,
    Err(_) => panic!("128 bytes, aligned"),
};

/// A row of the table of [`ReaderTable::shown`]: one cache line.
#[repr(align(128))]
pub(crate) struct ShownLine(pub(crate) [SimCell<*mut u8>; Sim::ROW]);

impl ShownLine {
    /// The whole table.
    pub(crate) fn all() -> Box<[Self]> {
        (0..Sim::ROWS)
            .map(|_| Self([(); Sim::ROW].map(|()| Ptr::new(std::ptr::null_mut()))))
            .collect()
    }
}

/// The doors of each cluster.
pub(crate) const DOORS: usize = 16;

/// The doors of a machine whose last cluster is this; none if it has only one.
pub(crate) fn doors(last: Option<u16>) -> Box<[Door<Sim>]> {
    let clusters = last.filter(|&last| last > 0).map_or(0, |last| usize::from(last) + 1);
    (0..clusters * DOORS).map(|_| Door::closed()).collect()
}

/// The word of [`ReaderTable::departures`], alone in its line.
#[repr(align(128))]
pub(crate) struct DeparturesLine(pub(crate) SimWord);

impl DeparturesLine {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self(Word::new(0)))
    }
}

/// The virtual machine that runs on this operating-system thread.
#[derive(Debug)]
pub(crate) struct Sim;

/// A value of the virtual machine's memory.
#[repr(transparent)]
pub(crate) struct SimCell<V>(pub(crate) Cell<V>);

// SAFETY: a machine and all of its threads live on one operating-system thread, and the type is this crate's own.
unsafe impl<V> Sync for SimCell<V> {}
// SAFETY: as above.
unsafe impl<V> Send for SimCell<V> {}

/// A 32-bit word.
pub(crate) type SimWord = SimCell<u32>;

/// A pointer.
pub(crate) type SimPtr<T> = SimCell<*mut T>;

/// A process whose mutexes are simulated; a machine runs one.
#[derive(Debug)]
pub(crate) enum Product {}
