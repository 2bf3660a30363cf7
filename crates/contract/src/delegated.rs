//! Where a process says which delegated data it has: for commands, which read it, and set modes by hand (`lockwright switch`).

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The symbol of a process's [`List`].
pub const SYMBOL: &str = "lockwright_delegated";
/// The first bytes of a list. They change with its layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockdg.1");
/// Data beyond this many are not listed.
pub const PLACES: usize = 64;

/// A process's delegated data for which a thread had to wait.
#[derive(Debug)]
#[repr(C)]
pub struct List {
    magic: u64,
    /// How many found no place.
    pub missed: AtomicU32,
    /// Their addresses; 0: none.
    pub places: [AtomicU64; PLACES],
}

impl List {
    /// Nothing.
    pub const fn new() -> Self {
        let places = [const { AtomicU64::new(0) }; PLACES];
        Self { magic: MAGIC, missed: AtomicU32::new(0), places }
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

/// What delegated data says about itself: the lock `dynamic`, as it lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DelegatedState {
    /// HOME, COMBINE or SERVE, maybe with `BY_HAND`. A command may write it at any time.
    pub mode: u32,
    /// Sections a second, as usual in this mode.
    pub usual: u32,
    /// Sections a second in the last trial, at home and sent; 0: none yet.
    pub rates: [u32; 2],
    /// Periods of 5 ms until the next trial, and between two.
    pub pauses: [u16; 2],
    /// The turn of the trial that runs; 0: none.
    pub turn: u8,
    /// Periods in which the rate was another one.
    pub odd: u8,
    /// How many times the mode has changed, trials apart.
    pub changes: u16,
}

impl DelegatedState {
    /// Where delegated data has it: its first bytes are its mutex, bytes.
    pub const AT: usize = 64;
    /// Bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// From memory.
    pub fn of(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| u32::from_ne_bytes(core::array::from_fn(|n| bytes[at + n]));
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            mode: word(0),
            usual: word(4),
            rates: [word(8), word(12)],
            pauses: [half(16), half(18)],
            turn: bytes[20],
            odd: bytes[21],
            changes: half(22),
        }
    }
}

const _: () = assert!(DelegatedState::SIZE == 24);
