//! A policy's maps: their layout in memory.
//!
//! ```text
//!   data:  Map 0 │ entries ... │ Map 1 │ entries ... │ ...       each begins at a multiple of 64
//! ```

/// The kinds, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// A fixed number of entries, whose places stay; a deleted one may be used again by the same key only.
    Hash = 1,
    /// Values by number.
    Array = 2,
    /// As [`Array`](Self::Array), for each CPU.
    PerCpuArray = 6,
    /// Records for the command.
    Ring = 27,
}

/// What a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// The kind.
    pub kind: MapKind,
    /// Bytes of a key; an array's has 4.
    pub key_size: u32,
    /// Bytes of a value; a ring has none.
    pub value_size: u32,
    /// The number of entries; of a ring, its bytes.
    pub max_entries: u32,
}

/// How a map's memory begins.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Map {
    /// [`MapKind`].
    pub kind: u32,
    /// As in [`MapSpec`].
    pub key_size: u32,
    /// As in [`MapSpec`].
    pub value_size: u32,
    /// As in [`MapSpec`].
    pub max_entries: u32,
    /// Bytes from one entry to the next.
    pub stride: u32,
    /// Bytes from this header to the first value.
    pub first: u32,
    /// The number of rows of a per-CPU array; 1 for others.
    pub rows: u32,
    /// The number of the map in its policy.
    pub number: u32,
    /// Bytes of the map with its entries.
    pub len: u64,
}
