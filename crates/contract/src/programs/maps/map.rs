//! How a map's memory begins, and what all kinds do with it: words of entries, flags, errors.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The longest key of a hash, bytes.
pub const LARGEST_KEY: u32 = 64;
/// Bytes of a map's name.
pub const MAP_NAME: usize = 40;

/// How a map's memory begins.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Map {
    /// [`MapKind`](super::MapKind).
    pub kind: u32,
    /// As in [`MapSpec`](super::MapSpec).
    pub key_size: u32,
    /// As in [`MapSpec`](super::MapSpec).
    pub value_size: u32,
    /// As in [`MapSpec`](super::MapSpec).
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
    /// The buckets of a hash.
    pub buckets: u32,
    pub(super) reserved: [u32; 5],
    // Another cache line: these change.
    /// The entries that a hash has now.
    pub live: AtomicU32,
    pub(super) unused: u32,
    /// The cells of a ring that have been handed out so far.
    pub head: AtomicU64,
    /// Records that a ring didn't take: their cells were being written.
    pub lost: AtomicU64,
    /// Its name, in UTF-8, cut off where it is longer, padded with zeroes. Only for people.
    pub name: [u8; MAP_NAME],
}

const _: () = assert!(size_of::<Map>() == 128);

/// In `flags` of [`Map::update`]: only if there is no such entry.
pub const NO_EXIST: u64 = 1;
/// In `flags` of [`Map::update`]: only if there is one.
pub const EXIST: u64 = 2;

/// There is no such entry.
pub const ENOENT: i64 = -2;
/// The map is full, or the number too large.
pub const E2BIG: i64 = -7;
/// Another thread is changing the map here. Nothing has happened.
pub const EBUSY: i64 = -16;
/// There is such an entry.
pub const EEXIST: i64 = -17;
/// The map can't do that.
pub const EINVAL: i64 = -22;

/// The first `size` bytes at `from`, 8 at most, as a word.
#[inline]
pub(super) unsafe fn word(from: *const u8, size: usize) -> u64 {
    // SAFETY: our caller's promise: as many readable bytes. Volatile: others may write them.
    unsafe {
        if size >= 8 {
            return u64::from_ne_bytes(from.cast::<[u8; 8]>().read_volatile());
        }
        let mut bytes = [0; 8];
        for (at, byte) in bytes.iter_mut().enumerate().take(size) {
            *byte = from.add(at).read_volatile();
        }
        u64::from_ne_bytes(bytes)
    }
}

/// Copies `size` bytes to whole words.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, size: u32) {
    let size = size as usize;
    for at in (0..size).step_by(8) {
        // SAFETY: our caller's promise: as many readable bytes, and as many words.
        unsafe { store(to, at, word(from.add(at), size - at)) }
    }
}

/// Writes a word of an entry.
#[inline]
pub(super) unsafe fn store(to: *mut u8, at: usize, word: u64) {
    // SAFETY: our caller's promise: inside an entry, at a multiple of 8. Relaxed: what orders it stands with the entry's header.
    unsafe { (*to.add(at).cast::<AtomicU64>()).store(word, Relaxed) }
}
