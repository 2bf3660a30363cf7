//! Where the entry of a key may lie in a hash table of a file: in a few places only, so that a search is short, however full it is.

/// This key means that the entry is being written, or given to another.
pub const MOVING: u64 = u64::MAX;

/// Places in which an entry may be, in tables that don't say otherwise.
const WAYS: usize = 32;

/// A key's bits, spread; the upper ones are the best.
pub(crate) const fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The places in which the entry of a key may be, of `all`.
pub(crate) fn ways(key: u64, all: usize) -> impl Iterator<Item = usize> + Clone {
    let hash = (spread(key) >> 32) as usize;
    (0..WAYS).map(move |way| (hash + way) % all)
}
