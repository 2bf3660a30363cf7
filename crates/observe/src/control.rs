//! How a command tells a running process what to count: a word of the process's memory, which the command writes as a
//! debugger would. The process looks at it when a thread has to wait for a lock.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The symbol of a process's [`Control`].
pub const SYMBOL: &str = "lockwright_observe";
/// How a control begins. Changes with its layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockob.1");

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Nothing.
    Off = 0,
    /// Every contended acquisition. Waits with a sleep are timed; of those without, one in [`SAMPLE`], which counts as that many.
    Counters = 1,
    /// The same, and owners, cores, stacks.
    Full = 2,
}

/// Of waits without a sleep, one in this many is timed.
pub const SAMPLE: u32 = 8;

impl Level {
    /// The level with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Off),
            1 => Some(Self::Counters),
            2 => Some(Self::Full),
            _ => None,
        }
    }

    /// The level with this name: `off`, `counters`, `full`.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Off, Self::Counters, Self::Full].into_iter().find(|level| level.name().as_bytes() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Counters => "counters",
            Self::Full => "full",
        }
    }
}

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// A [`Level`]'s number. Written by commands, too.
    pub level: AtomicU32,
    /// One of [`NONE`], [`BUSY`], [`OPEN`], [`FAILED`]: is there a segment?
    pub state: AtomicU32,
    /// Why there is none, if it FAILED: the system's error number.
    pub error: AtomicU32,
    /// Where the segment is mapped.
    pub base: AtomicU64,
}

/// There is no segment yet: the first thread that has to wait makes it.
pub const NONE: u32 = 0;
/// A thread is making it.
pub const BUSY: u32 = 1;
/// It is there.
pub const OPEN: u32 = 2;
/// There can't be one.
pub const FAILED: u32 = 3;

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// Nothing is counted.
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            size: size_of::<Self>() as u32,
            level: AtomicU32::new(Level::Off as u32),
            state: AtomicU32::new(NONE),
            error: AtomicU32::new(0),
            base: AtomicU64::new(0),
        }
    }
}
