//! What a command can see and change of a running process's epochs: words of the process's memory, which the command reads and
//! writes as a debugger would. Each is a number by itself, which the process reads anyway.
//!
//! Windows and counts are a thread's own. They lie in blocks, which are never unmapped: the newest one, and from each the one that
//! was made before it. A block of an ended thread serves another one, and goes on counting.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// The symbol of a process's [`Epochs`].
pub const SYMBOL: &str = "lockwright_epochs";
/// How they begin. Changes with the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockep.1");

/// A program's numbers for its epochs are below this.
pub const NUMBERED: usize = 1024;
/// Epochs that are calls of functions; their ids follow.
pub const FUNCTIONS: usize = 64;
/// All ids.
pub const IDS: usize = NUMBERED + FUNCTIONS;
/// Bytes of an epoch's name.
pub const NAME: usize = 64;

/// What all threads share of an epoch.
#[repr(C)]
#[derive(Debug)]
pub struct Common {
    /// The SLO that it had last, ns, inverted: 0 means that none is known.
    pub slo_inverted: AtomicU64,
    /// The SLO that it has whatever the program says, ns, inverted; 0: the program's. Written by commands.
    pub forced_inverted: AtomicU64,
    /// Millionths; 0: the default.
    pub percentile: AtomicU32,
    /// The window with which the last thread ended, ns, + 1; 0: none did.
    pub seed: AtomicU32,
}

/// What a thread keeps for each epoch.
#[repr(C)]
#[derive(Debug)]
pub struct Own {
    /// The window, ns.
    pub window_ns: AtomicU32,
    /// Its unit of growth, ns; 0: the SLO is not known yet.
    pub unit_ns: AtomicU32,
    /// Executions that have ended, in all threads that had this block; it wraps.
    pub ended: AtomicU32,
    /// Those of them that missed the SLO.
    pub missed: AtomicU32,
}

/// How a thread's block begins.
#[repr(C)]
#[derive(Debug)]
pub struct Windows {
    /// The block that was made before this one.
    pub older: AtomicPtr<Windows>,
    /// By id.
    pub own: [Own; IDS],
}

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Epochs {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// The default percentile, millionths.
    pub percentile: AtomicU32,
    /// The block that was made last; null: none.
    pub newest: AtomicPtr<Windows>,
    /// By id.
    pub common: [Common; IDS],
    /// Names, filled with zeroes; null: none.
    pub names: [AtomicPtr<[AtomicU8; NAME]>; IDS],
}

impl Epochs {
    /// Those of a process that has had none.
    pub const fn new(percentile: u32) -> Self {
        Self {
            magic: MAGIC,
            size: size_of::<Self>() as u32,
            percentile: AtomicU32::new(percentile),
            newest: AtomicPtr::new(core::ptr::null_mut()),
            common: [const {
                Common {
                    slo_inverted: AtomicU64::new(0),
                    forced_inverted: AtomicU64::new(0),
                    percentile: AtomicU32::new(0),
                    seed: AtomicU32::new(0),
                }
            }; IDS],
            names: [const { AtomicPtr::new(core::ptr::null_mut()) }; IDS],
        }
    }
}
