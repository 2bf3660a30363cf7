//! What the kernel's half and ours share: structs and numbers of `bpf/contention.bpf.c`.

use aya::Pod;

/// The compiled program.
pub(crate) static PROGRAM: &[u8] = aya::include_bytes_aligned!("../bpf/contention.bpf.o");

/// Key of `waits`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) lock: u64,
    pub(crate) stack: i32,
    pub(crate) process: u32,
    pub(crate) bucket: u16,
    pub(crate) kind: u8,
    pub(crate) role: u8,
    pub(crate) zero: u32,
}

/// Value of `waits`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
}

/// Value of `names`: ends at the first zero.
pub(crate) type Name = [u8; 16];

/// Value of `sleeping` and of `in_futex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) lock: u64,
    pub(crate) since_ns: u64,
    pub(crate) stack: i32,
    pub(crate) kind: u16,
    pub(crate) role: u16,
}

// SAFETY: these types consist of numbers, laid out by C's rules without padding, so all bit
// patterns are valid.
unsafe impl Pod for Key {}
// SAFETY: as above.
unsafe impl Pod for Sum {}
// SAFETY: as above.
unsafe impl Pod for Pending {}

/// Indices into `tallies`.
pub(crate) mod tally {
    pub(crate) const LOST_WAITS: u32 = 0;
    pub(crate) const LOST_NS: u32 = 1;
    pub(crate) const NO_STACK: u32 = 2;
    pub(crate) const UNSEEN: u32 = 3;
}
