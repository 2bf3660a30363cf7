//! A policy's maps: their layout in memory, and what hooks do with them, from many threads at once. Nobody waits for anybody, and each
//! operation takes a bounded number of steps.
//!
//! ```text
//!   data:  Map 0 │ entries ... │ Map 1 │ entries ... │ ...       each begins at a multiple of 64
//!
//!   array          row 0: value │ value │ ...  row 1: ...        a per-CPU array has several rows
//!   hash           a word for each bucket │ for each of WAYS slots of each bucket: header, key, value         hash.rs
//!   ring           cells of 64 bytes                                                                          ring.rs
//! ```
//!
//! Values lie at multiples of 8, and are written in words of 64 bits: a reader may see an update half done, but no word of it.
//! Each value stays where it is, and readable, for as long as the maps are mapped.

mod hash;
mod map;
mod ring;
mod view;

pub use map::{E2BIG, EBUSY, EEXIST, EINVAL, ENOENT, EXIST, LARGEST_KEY, MAP_NAME, Map, NO_EXIST};
pub use ring::{CELL, LARGEST_RECORD, Reported};
pub use view::View;

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64};
use map::copy;

/// The kinds, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// A fixed number of entries. A deleted entry's place is used again: first by the same key, else by the bucket's other keys in
    /// turn. As with the kernel's hashes that don't allocate, a hook that looked the entry up before it was deleted may then see, or
    /// change, another key's value. It never sees memory outside the map's values.
    Hash = 1,
    /// Values by number.
    Array = 2,
    /// As [`Array`](Self::Array), for each CPU. CPUs whose numbers are equal modulo the rows share a row.
    PerCpuArray = 6,
    /// Records for the command. The oldest ones are overwritten.
    Ring = 27,
}

impl MapKind {
    /// The kind with this number.
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Hash,
            2 => Self::Array,
            6 => Self::PerCpuArray,
            27 => Self::Ring,
            _ => return None,
        })
    }
}

/// The largest value, bytes.
pub const LARGEST_VALUE: u32 = 64 << 10;
/// The smallest ring, bytes.
pub const SMALLEST_RING: u32 = 4096;

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

/// Why there is no such map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMap {
    /// An array's key must have 4 bytes, a hash's 1 to [`LARGEST_KEY`], a ring's none.
    Key(u32),
    /// A value must have 1 to [`LARGEST_VALUE`] bytes, a ring's none.
    Value(u32),
    /// A map needs an entry.
    Empty,
    /// A ring's bytes must be a power of two, at least [`SMALLEST_RING`].
    Ring(u32),
    /// The maps need more than [`LARGEST_DATA`](crate::programs::image::LARGEST_DATA) bytes.
    TooLarge(u64),
}

impl fmt::Display for BadMap {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let largest = crate::programs::image::LARGEST_DATA;
        match self {
            Self::Key(bytes) => {
                write!(
                    to,
                    "a key of {bytes} bytes: an array's has 4, a hash's 1 to {LARGEST_KEY}, a ring's none"
                )
            }
            Self::Value(bytes) => {
                write!(to, "a value of {bytes} bytes: it has 1 to {LARGEST_VALUE}, a ring's none")
            }
            Self::Empty => write!(to, "max_entries is 0"),
            Self::Ring(bytes) => {
                write!(to, "a ring of {bytes} bytes: a power of two, at least {SMALLEST_RING}")
            }
            Self::TooLarge(bytes) => {
                write!(to, "the maps need {bytes} bytes; a policy may have {largest}")
            }
        }
    }
}

impl MapSpec {
    /// Is there such a map?
    pub fn check(&self) -> Result<(), BadMap> {
        let (key, value) = (self.key_size, self.value_size);
        let is_key = match self.kind {
            MapKind::Hash => (1..=LARGEST_KEY).contains(&key),
            MapKind::Array | MapKind::PerCpuArray => key == 4,
            MapKind::Ring => key == 0,
        };
        let is_ring = self.kind == MapKind::Ring;
        if !is_key {
            return Err(BadMap::Key(key));
        }
        if !(if is_ring { value == 0 } else { (1..=LARGEST_VALUE).contains(&value) }) {
            return Err(BadMap::Value(value));
        }
        match self.max_entries {
            0 => Err(BadMap::Empty),
            bytes if is_ring && !(bytes.is_power_of_two() && bytes >= SMALLEST_RING) => {
                Err(BadMap::Ring(bytes))
            }
            _ => Ok(()),
        }
    }

    /// How this map's memory begins, as the policy's map with this number. `rows` matters to per-CPU arrays.
    pub fn header(&self, number: u32, rows: u32) -> Map {
        let header = size_of::<Map>() as u64;
        let max = u64::from(self.max_entries);
        let rows = if self.kind == MapKind::PerCpuArray { rows.max(1) } else { 1 };
        let (mut buckets, mut stride, mut first) = (0, padded(self.value_size, 8), header);
        let entries = match self.kind {
            MapKind::Array | MapKind::PerCpuArray => {
                (max * stride).next_multiple_of(64).saturating_mul(rows.into())
            }
            MapKind::Ring => {
                stride = CELL as u64;
                max
            }
            MapKind::Hash => {
                buckets = self.max_entries.div_ceil(hash::WAYS / 2);
                let words = padded(buckets, 16) * 4;
                let key = 8 + padded(self.key_size, 8);
                first += words + key;
                stride += key;
                words + u64::from(buckets) * u64::from(hash::WAYS) * stride
            }
        };
        Map {
            kind: self.kind as u32,
            key_size: self.key_size,
            value_size: self.value_size,
            max_entries: self.max_entries,
            stride: stride as u32,
            first: first as u32,
            rows,
            number,
            len: header.saturating_add(entries).checked_next_multiple_of(64).unwrap_or(u64::MAX),
            buckets,
            reserved: [0; 5],
            live: AtomicU32::new(0),
            unused: 0,
            head: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            name: [0; MAP_NAME],
        }
    }
}

fn padded(bytes: u32, to: u64) -> u64 {
    u64::from(bytes).next_multiple_of(to)
}

/// Where a policy's maps lie.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    specs: &'a [MapSpec],
    rows: u32,
}

impl<'a> Layout<'a> {
    /// The layout of these maps, with as many rows for per-CPU arrays.
    ///
    /// # Errors
    /// The number of the first map that can't be, and why. If all together are too large, it is the last one.
    pub fn new(specs: &'a [MapSpec], rows: u32) -> Result<Self, (usize, BadMap)> {
        for (number, spec) in specs.iter().enumerate() {
            spec.check().map_err(|bad| (number, bad))?;
        }
        let layout = Self { specs, rows };
        let len: u128 = layout.maps().map(|(_, map)| u128::from(map.len)).sum();
        if len > crate::programs::image::LARGEST_DATA as u128 {
            return Err((
                specs.len() - 1,
                BadMap::TooLarge(u64::try_from(len).unwrap_or(u64::MAX)),
            ));
        }
        Ok(layout)
    }

    /// Each map's offset, and how its memory begins.
    pub fn maps(self) -> impl Iterator<Item = (u64, Map)> + 'a {
        let rows = self.rows;
        let mut offset = 0_u64;
        self.specs.iter().zip(0..).map(move |(spec, number)| {
            let map = spec.header(number, rows);
            let at = offset;
            offset = offset.saturating_add(map.len);
            (at, map)
        })
    }

    /// Bytes of all maps.
    pub fn size(self) -> usize {
        self.maps().map(|(_, map)| map.len as usize).sum()
    }

    /// Makes the maps in `data`, all empty, and all values zero.
    ///
    /// # Panics
    /// If `data` isn't as long as [`size`](Self::size) says.
    pub fn write(self, data: &mut [u8]) {
        assert_eq!(data.len(), self.size());
        data.fill(0);
        for (at, map) in self.maps() {
            // SAFETY: bytes of a value without padding.
            let bytes = unsafe {
                core::slice::from_raw_parts((&raw const map).cast::<u8>(), size_of::<Map>())
            };
            data[at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

// Each function takes `this` as a pointer, because the entries behind the header belong to it.
#[allow(clippy::missing_safety_doc, reason = "one promise for all; it stands at the block")]
/// # Safety
/// For all: `this` begins a map that [`Layout::write`] made, in memory that is mapped for writing, aligned to 64, and that only these
/// functions and hooks write. `key` and `value` point to as many readable bytes as the map's keys and values have. Other threads may
/// call any of these, and may write what `key` and `value` point to: then either value counts.
impl Map {
    /// The value of this key; null: there is none, or another thread is just changing it. `cpu` matters to per-CPU arrays.
    pub unsafe fn lookup(this: *mut Self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: our caller's promise.
        unsafe {
            match MapKind::of((*this).kind) {
                Some(MapKind::Array | MapKind::PerCpuArray) => Self::at(this, number(key), cpu),
                Some(MapKind::Hash) => hash::lookup(this, key),
                Some(MapKind::Ring) | None => core::ptr::null_mut(),
            }
        }
    }

    /// Sets the value of this key. `flags`: 0, [`NO_EXIST`] or [`EXIST`]. 0, or an error below 0.
    pub unsafe fn update(
        this: *mut Self,
        key: *const u8,
        value: *const u8,
        flags: u64,
        cpu: u32,
    ) -> i64 {
        // SAFETY: our caller's promise.
        unsafe {
            match MapKind::of((*this).kind) {
                Some(MapKind::Array | MapKind::PerCpuArray) => {
                    if flags > EXIST {
                        return EINVAL;
                    }
                    let to = Self::at(this, number(key), cpu);
                    if to.is_null() {
                        return E2BIG;
                    }
                    if flags == NO_EXIST {
                        return EEXIST;
                    }
                    copy(to, value, (*this).value_size);
                    0
                }
                Some(MapKind::Hash) => hash::update(this, key, value, flags),
                Some(MapKind::Ring) | None => EINVAL,
            }
        }
    }

    /// Deletes this key's entry. 0, or an error below 0. Arrays keep theirs.
    pub unsafe fn delete(this: *mut Self, key: *const u8) -> i64 {
        // SAFETY: our caller's promise.
        unsafe {
            if (*this).kind == MapKind::Hash as u32 { hash::delete(this, key) } else { EINVAL }
        }
    }

    /// The value of this key of a hash; a new one is all zeroes. Null: the map is full, or busy here.
    pub unsafe fn storage(this: *mut Self, key: *const u8) -> *mut u8 {
        // SAFETY: our caller's promise.
        unsafe {
            if (*this).kind == MapKind::Hash as u32 {
                hash::storage(this, key)
            } else {
                core::ptr::null_mut()
            }
        }
    }

    /// Adds a record of `size` bytes to a ring. 0, or an error below 0: another thread is still writing there.
    ///
    /// `data` points to as many readable bytes.
    pub unsafe fn report(this: *mut Self, data: *const u8, size: u64, flags: u64) -> i64 {
        // SAFETY: our caller's promise.
        unsafe {
            if (*this).kind == MapKind::Ring as u32 && flags == 0 {
                ring::write(this, data, size)
            } else {
                EINVAL
            }
        }
    }

    /// Ends what other threads were doing here, in a process that doesn't have them: the child of a fork.
    pub unsafe fn forget_writers(this: *mut Self) {
        // SAFETY: our caller's promise.
        unsafe {
            match MapKind::of((*this).kind) {
                Some(MapKind::Hash) => hash::forget_writers(this),
                Some(MapKind::Ring) => ring::forget_writers(this),
                _ => {}
            }
        }
    }

    /// An array's value; null: the number is too large.
    #[inline]
    unsafe fn at(this: *mut Self, number: u32, cpu: u32) -> *mut u8 {
        // SAFETY: our caller's promise; the number is checked.
        unsafe {
            let map = &*this;
            if number >= map.max_entries {
                return core::ptr::null_mut();
            }
            let row = if map.rows > 1 { (cpu % map.rows) as usize * map.row() } else { 0 };
            let at = map.first as usize + row + number as usize * map.stride as usize;
            this.cast::<u8>().add(at)
        }
    }

    /// How many values a row has room for. A hash's is more than `max_entries`.
    pub fn places(&self) -> u32 {
        match MapKind::of(self.kind) {
            Some(MapKind::Hash) => self.buckets * hash::WAYS,
            Some(MapKind::Array | MapKind::PerCpuArray) => self.max_entries,
            Some(MapKind::Ring) | None => 0,
        }
    }

    /// Bytes from one row of a per-CPU array to the next.
    #[inline]
    pub fn row(&self) -> usize {
        (self.max_entries as usize * self.stride as usize).next_multiple_of(64)
    }
}

/// An array's key.
#[inline]
unsafe fn number(key: *const u8) -> u32 {
    // SAFETY: our caller's promise: 4 bytes.
    unsafe { key.cast::<u32>().read_unaligned() }
}

#[cfg(test)]
mod tests;
