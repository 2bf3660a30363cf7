//! What `lockwright attach` and `lockwright attach --undo` keep in the process: memory of the library, which the command
//! writes while the process's threads are stopped.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;

/// The symbol of a process's [`Attached`].
pub const SYMBOL: &str = "lockwright_attached";

/// The library was loaded before the program began.
pub const PRELOADED: u32 = 0;
/// It was loaded later, and the program's calls lead to it, or are about to.
pub const ATTACHED: u32 = 1;
/// It was loaded later, and the program's calls lead to glibc again.
pub const DETACHED: u32 = 2;

/// Room for this many of libc's symbols.
pub const ORIGINALS: usize = 64;

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Attached {
    /// Its own size, in bytes.
    pub size: u32,
    /// One of [`PRELOADED`], [`ATTACHED`], [`DETACHED`].
    pub how: AtomicU32,
    /// How many originals there are.
    pub count: u64,
    /// Symbols of libc that lead to the library: their indices in libc's table, and their old values.
    pub originals: UnsafeCell<[[u64; 2]; ORIGINALS]>,
}

// SAFETY: the process uses only `how`; the rest is the command's.
unsafe impl Sync for Attached {}

impl Default for Attached {
    fn default() -> Self {
        Self::new()
    }
}

impl Attached {
    /// A library that was preloaded.
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            how: AtomicU32::new(PRELOADED),
            count: 0,
            originals: UnsafeCell::new([[0; 2]; ORIGINALS]),
        }
    }
}
