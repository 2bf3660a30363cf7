//! Memory as an interpreted program sees it. An address is a number, which leads to memory only after it has been checked; so a program
//! may do what it likes with it. Each kind of memory has its own range of addresses, and each value of a map a window of its own, in
//! whose middle it lies: a pointer that leaves its value by less than 8 MiB hits nothing else.

use super::escape::Deed;
use crate::maps::Maps;
use crate::op::STACK;
use lockwright_platform::hooks::Context;
use std::mem::offset_of;

/// Far from the next range, whichever way a pointer strays.
const MIDDLE: u64 = 1 << 32;
pub(super) const CONTEXT: u64 = 1 << 60 | MIDDLE;
pub(super) const FRAME: u64 = 2 << 60 | MIDDLE;
const VALUES: u64 = 3 << 60;
const HANDLES: u64 = 4 << 60 | MIDDLE;
/// A map has addresses of this many bits.
const MAP_BITS: u32 = 48;
/// The smallest window of a value.
const WINDOW_BITS: u32 = 24;
/// The bytes of the context that a policy may not read.
const RESERVED: u64 = offset_of!(Context, lock_id) as u64;

/// The stack. It is there for one question.
pub(super) struct Stack {
    pub(super) bytes: [u8; STACK],
    /// Which bytes have been written.
    written: Bits,
    /// Which of them are parts of pointers.
    pointers: Bits,
}

#[derive(Clone, Copy)]
struct Bits([u64; STACK / 64]);

impl Bits {
    fn get(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    fn set(&mut self, at: usize, on: bool) {
        let bit = 1 << (at % 64);
        if on {
            self.0[at / 64] |= bit;
        } else {
            self.0[at / 64] &= !bit;
        }
    }
}

impl Stack {
    pub(super) fn new() -> Self {
        let none = Bits([0; STACK / 64]);
        Self { bytes: [0; STACK], written: none, pointers: none }
    }

    /// May these bytes be read? Then: is one of them part of a pointer?
    pub(super) fn readable(&self, at: usize, size: usize) -> Result<bool, Deed> {
        if let Some(missing) = (at..at + size).find(|at| !self.written.get(*at)) {
            return Err(Deed::Uninitialised(missing as i64 - STACK as i64));
        }
        Ok((at..at + size).any(|at| self.pointers.get(at)))
    }

    pub(super) fn mark(&mut self, at: usize, size: usize, pointer: bool) {
        for at in at..at + size {
            self.written.set(at, true);
            self.pointers.set(at, pointer);
        }
    }
}

/// Where an address leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memory {
    /// This byte of the context.
    Context(usize),
    /// This byte of the stack.
    Stack(usize),
    /// A map's memory.
    Value(*mut u8),
}

/// The addresses of the maps' values.
#[derive(Debug)]
pub(super) struct Windows(Vec<Window>);

#[derive(Debug)]
struct Window {
    /// How many bits a value's window has.
    bits: u32,
    /// From the maps' memory to the first value.
    base: u64,
    /// From one value of a row to the next, and how many a row has.
    stride: u64,
    columns: u64,
    /// From one row to the next, if there are several.
    row: u64,
    value_size: u64,
    /// Values in all rows.
    entries: u64,
}

impl Windows {
    pub(super) fn new(maps: &Maps) -> Self {
        let window = |number: usize| {
            let map = maps.map(number);
            let value_size = u64::from(map.value_size);
            let needed = value_size.next_power_of_two().trailing_zeros() + 2;
            let bits = WINDOW_BITS.max(needed);
            // No address leads to what lies behind a ring's header: it has no places for values.
            let columns = u64::from(map.places());
            let row = if map.rows > 1 { map.row() as u64 } else { u64::MAX };
            let entries = columns * u64::from(map.rows);
            assert!(entries << bits <= 1 << MAP_BITS, "maps have 64 MiB at most");
            let base = maps.offset(number) as u64 + u64::from(map.first);
            Window { bits, base, stride: map.stride.into(), columns, row, value_size, entries }
        };
        Self((0..maps.len()).map(window).collect())
    }

    /// Where these bytes are, if they are all in one place that a program may read.
    pub(super) fn find(&self, maps: &Maps, address: u64, size: u32) -> Result<Memory, Deed> {
        let outside = Deed::Outside(address, size);
        let size = u64::from(size);
        let inside = |base: u64, len: u64| {
            let at = address.wrapping_sub(base);
            (at < len && size <= len - at).then_some(usize::try_from(at).unwrap_or(usize::MAX))
        };
        if let Some(at) = inside(CONTEXT + RESERVED, size_of::<Context>() as u64 - RESERVED) {
            return Ok(Memory::Context(at + RESERVED as usize));
        }
        if let Some(at) = inside(FRAME - STACK as u64, STACK as u64) {
            return Ok(Memory::Stack(at));
        }
        if address >> 60 != VALUES >> 60 {
            return Err(outside);
        }
        let number = (address >> MAP_BITS & 0xfff) as usize;
        let window = self.0.get(number).ok_or(outside.clone())?;
        let inner = address & ((1 << MAP_BITS) - 1);
        let entry = inner >> window.bits;
        let at = (inner & ((1 << window.bits) - 1)).wrapping_sub(1 << (window.bits - 1));
        if entry >= window.entries || at >= window.value_size || size > window.value_size - at {
            return Err(outside);
        }
        let (row, column) = (entry / window.columns, entry % window.columns);
        let offset = window.base + row * window.row + column * window.stride + at;
        Ok(Memory::Value(maps.data().wrapping_add(usize::try_from(offset).unwrap_or(usize::MAX))))
    }

    /// The address of this byte of a map's first value.
    pub(super) fn value(&self, number: u32, at: u32) -> Option<u64> {
        let window = self.0.get(number as usize)?;
        Some(self.entry(number as usize, window, 0).wrapping_add(u64::from(at)))
    }

    /// The address of the value that begins at this offset in the maps' memory.
    pub(super) fn value_at(&self, number: usize, offset: u64) -> u64 {
        let window = &self.0[number];
        let inner = offset - window.base;
        let (row, column) = (inner / window.row, inner % window.row / window.stride);
        self.entry(number, window, row * window.columns + column)
    }

    fn entry(&self, number: usize, window: &Window, entry: u64) -> u64 {
        VALUES + ((number as u64) << MAP_BITS) + (entry << window.bits) + (1 << (window.bits - 1))
    }

    /// What stands for a map in a register. No memory is there.
    pub(super) fn handle(&self, number: u32) -> Option<u64> {
        ((number as usize) < self.0.len()).then(|| HANDLES + u64::from(number))
    }

    /// The map for which this stands.
    pub(super) fn handled(&self, address: u64) -> Option<usize> {
        let number = usize::try_from(address.wrapping_sub(HANDLES)).ok()?;
        (number < self.0.len()).then_some(number)
    }
}
