//! What a command can see and change in a running process's epochs: words of the process's memory, which the command
//! reads and writes as a debugger would. Each is an independent number, which the process reads anyway.
//!
//! Windows and counts are a thread's own. They are in blocks, which are never unmapped and form a list, the newest
//! first. The block of an ended thread serves another thread, and keeps counting.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// The symbol of a process's [`Epochs`].
pub const SYMBOL: &str = "lockwright_epochs";
/// How they begin. Changes with the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockep.1");

/// The numbers that a program gives its epochs are below this.
pub const NUMBERED: usize = 1024;
/// Epochs that are calls of functions; their ids follow.
pub const FUNCTIONS: usize = 64;
/// All ids.
pub const IDS: usize = NUMBERED + FUNCTIONS;
/// Bytes of an epoch's name.
pub const NAME: usize = 64;

/// What all threads share about an epoch.
#[repr(C)]
#[derive(Debug)]
pub struct Common {
    /// Its last SLO, ns, inverted: 0 means that none is known.
    pub slo_inverted: AtomicU64,
    /// An SLO that overrides the program's, ns, inverted; 0: the program's. Written by commands.
    pub forced_inverted: AtomicU64,
    /// The percentile, millionths; 0: the default.
    pub percentile: AtomicU32,
    /// The window of the last thread that ended, ns, + 1; 0: none has.
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
    /// Executions that have ended, over all threads that had this block; it wraps.
    pub ended: AtomicU32,
    /// How many of these missed the SLO.
    pub missed: AtomicU32,
}

/// The beginning of a thread's block.
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
    /// The newest block; null: none.
    pub newest: AtomicPtr<Windows>,
    /// By id.
    pub common: [Common; IDS],
    /// Names, filled with zeroes; null: none.
    pub names: [AtomicPtr<[AtomicU8; NAME]>; IDS],
}

impl Epochs {
    /// The epochs of a process that has had none.
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

const _: () =
    assert!(core::mem::offset_of!(Epochs, magic) == 0 && core::mem::offset_of!(Epochs, size) == 8);
