//! A ring of records for the command. It holds the newest ones: the command reads when it likes, and writes nothing.
//!
//! A record takes consecutive cells of [`CELL`] bytes. A cell's first word is
//!
//! ```text
//!   its number since the ring began (52 bits) │ 1: written │ 1: being written │ bytes of the record that begins here (10 bits)
//! ```
//!
//! A cell belongs to one writer at a time, which has set "being written" by compare-and-swap. So the writer of an old record that was
//! interrupted for a whole turn of the ring can't write into a newer one: the newer record is not taken, and counts as lost. A reader
//! takes a record only if its cells' first words are the same before and after the copy.

use super::map::{EBUSY, EINVAL, Map, store, word};
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

/// Bytes of a cell.
pub const CELL: usize = 64;
/// The largest record, bytes.
pub const LARGEST_RECORD: u64 = 512;
/// Bytes of a record in a cell.
const ROOM: usize = CELL - 8;
const NUMBER: u32 = 12;
const WRITTEN: u64 = 1 << 11;
const BUSY: u64 = 1 << 10;
const BYTES: u64 = BUSY - 1;

pub(super) unsafe fn write(this: *mut Map, data: *const u8, size: u64) -> i64 {
    if size == 0 || size > LARGEST_RECORD {
        return EINVAL;
    }
    let size = size as usize;
    let cells = size.div_ceil(ROOM) as u64;
    // SAFETY: our caller's promise: a ring.
    let map = unsafe { &*this };
    let all = u64::from(map.max_entries) / CELL as u64;
    let first = map.head.fetch_add(cells, Relaxed); // numbers only; the cells' own words order the rest
    let cell = |number: u64| {
        // SAFETY: our caller's promise; the cell is within the ring.
        unsafe { this.cast::<u8>().add(map.first as usize + (number % all) as usize * CELL) }
    };
    // SAFETY: as above; cells are aligned to 64, in memory of zeroes at first.
    let word_of = |number: u64| unsafe { &*cell(number).cast::<AtomicU64>() };
    for number in first..first + cells {
        let word = word_of(number);
        let old = word.load(Relaxed); // compared again
        let own = number << NUMBER | BUSY;
        let is_older = old >> NUMBER <= number; // else we were interrupted for a turn of the ring
        // ORDERING: AcqRel: what the last writer wrote is behind us, and what we write comes after.
        if old & BUSY != 0 || !is_older || word.compare_exchange(old, own, AcqRel, Relaxed).is_err()
        {
            for number in first..number {
                word_of(number).store(number << NUMBER, Release); // not written; nobody else writes it
            }
            map.lost.fetch_add(1, Relaxed); // a counter
            return EBUSY;
        }
    }
    // ORDERING: Release, pairs with the reader's copies: who sees a byte of this record sees that its cells were taken.
    fence(Release);
    for (number, at) in (first..).zip((0..size).step_by(ROOM)) {
        let len = ROOM.min(size - at);
        for piece in (0..len).step_by(8) {
            // SAFETY: as many readable bytes, by our caller's promise; within the cell.
            unsafe { store(cell(number), 8 + piece, word(data.add(at + piece), len - piece)) }
        }
    }
    for number in first..first + cells {
        let bytes = if number == first { size as u64 } else { 0 };
        // ORDERING: Release, pairs with the reader's copies: the record was written before.
        word_of(number).store(number << NUMBER | WRITTEN | bytes, Release);
    }
    0
}

pub(super) unsafe fn forget_writers(this: *mut Map) {
    // SAFETY: our caller's promise: a ring, whose cells follow its header.
    unsafe {
        let cells = this.cast::<u8>().add((*this).first as usize);
        for at in (0..(*this).max_entries as usize).step_by(CELL) {
            let word = &*cells.add(at).cast::<AtomicU64>();
            let is_busy = word.load(Relaxed) & BUSY != 0; // one thread, here and below
            if is_busy {
                word.fetch_and(!(BUSY | BYTES), Relaxed);
            }
        }
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The number of its first cell since the ring began: later records have larger ones.
    pub number: u64,
    /// Its length, bytes.
    pub size: usize,
    bytes: [u8; LARGEST_RECORD as usize],
}

impl Reported {
    /// What the policy reported.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// The record that begins at this cell, from three copies of the ring's cells, made one after the other: of the words, of all, of the
/// words.
pub(super) fn read(copies: [&[u8]; 3], number: u64) -> Option<Reported> {
    let [before, during, after] = copies;
    let all = during.len() / CELL;
    let cell = |of: &[u8], number: u64| -> Option<u64> {
        let at = (number % all as u64) as usize * CELL;
        Some(u64::from_ne_bytes(of.get(at..at + 8)?.try_into().ok()?))
    };
    let is_same =
        |number, word| [before, during, after].iter().all(|of| cell(of, number) == Some(word));
    let word = (all > 0).then(|| cell(before, number))??;
    let size = (word & BYTES) as usize;
    let is_record = word & !BYTES == number << NUMBER | WRITTEN
        && (1..=LARGEST_RECORD as usize).contains(&size);
    if !is_record || !is_same(number, word) {
        return None;
    }
    let mut record = Reported { number, size, bytes: [0; _] };
    for (piece, number) in record.bytes[..size].chunks_mut(ROOM).zip(number..) {
        if number != record.number && !is_same(number, number << NUMBER | WRITTEN) {
            return None;
        }
        let at = (number % all as u64) as usize * CELL + 8;
        piece.copy_from_slice(during.get(at..at + piece.len())?);
    }
    Some(record)
}
