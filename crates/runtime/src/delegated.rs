//! Sections that a program hands over: the lock of `Delegated` (Rust), `lw_execute` (C) and `lockwright::delegated` (C++).

use core::ptr::null_mut;
use lockwright_locks::delegation::combiner;
use lockwright_native::Native;
use lockwright_platform::Sections;

/// The lock, a cache line apart from what lies beside it: threads that ask write to it.
#[repr(C)]
pub struct Delegated {
    before: [u64; 7],
    lock: combiner::Lock<Native>,
    after: [u64; 7],
}

const _: () = assert!(size_of::<Delegated>() == 128, "lw_delegated_t in lockwright_sync.h");

impl Delegated {
    /// A lock that nobody has asked. All zeroes is the same.
    pub fn new() -> Self {
        Self { before: [0; 7], lock: Sections::new(), after: [0; 7] }
    }

    /// Runs `section` while no other section under this lock runs, on this thread or on another one that asks, too.
    ///
    /// `section` must not unwind, end its thread, or ask for the same lock.
    #[inline]
    pub fn run<R: Send>(&self, section: impl FnOnce() -> R + Send) -> R {
        // SAFETY: this lock has no nodes.
        unsafe { self.lock.with(null_mut(), section) }
    }
}

impl Default for Delegated {
    fn default() -> Self {
        Self::new()
    }
}
