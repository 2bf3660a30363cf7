//! What the bits of a readers-writer lock's two words mean.

/// A write phase. Two bits: glibc's debugger scripts read them as "phase" and "acquired".
pub(super) const WRITE: u32 = 0b11;
/// Readers may sleep on `state`.
pub(super) const ASLEEP: u32 = 1 << 2;
/// One reader.
pub(super) const READER: u32 = 1 << 3;
/// Writers wait, or waited when somebody last looked: `writers` knows.
pub(super) const WRITERS: u32 = 1 << 31;
/// As many readers as we let in. Far below the field's end, because arrivals count themselves first.
pub(super) const READERS_MAX: u32 = 1 << 27;

/// A write phase without an owner, for the first writer to claim it.
pub(super) const OPEN: u32 = 1;
/// A waiting writer has been woken and has not looked yet.
pub(super) const WOKEN: u32 = 1 << 1;
/// One waiting writer.
pub(super) const WAITING: u32 = 1 << 2;

pub(super) fn readers(state: u32) -> u32 {
    (state & !WRITERS) / READER
}

pub(super) fn is_writing(state: u32) -> bool {
    state & WRITE != 0
}

pub(super) fn has_writers(state: u32) -> bool {
    state & WRITERS != 0
}

pub(super) fn is_open(writers: u32) -> bool {
    writers & OPEN != 0
}

pub(super) fn waiting(writers: u32) -> u32 {
    writers / WAITING
}
