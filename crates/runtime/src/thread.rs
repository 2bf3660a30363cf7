//! What each thread keeps: its kernel id, the gate at which it waits for a condvar, and its accounts where
//! little cores are emulated or operations recorded.
//!
//! In static TLS with the initial-exec model, reached by one load and the thread pointer. Rust's own
//! `thread_local!` would call `__tls_get_addr` here, which may allocate, in a library that must work
//! inside of `malloc`.

use crate::{emulate, trace};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32};
use lockwright_locks::condvar::Sleeper;
use lockwright_native::Native;

/// One thread's memory. Zeroed when the thread starts.
#[repr(C)]
pub(crate) struct Thread {
    /// Kernel thread id; 0: not asked for yet. Own thread only.
    tid: AtomicU32,
    /// Cancellations requested so far. Written by cancellers.
    pub(crate) cancels: AtomicU32,
    /// Where it waits for a condvar. Zeroed is what `Sleeper::default()` is.
    pub(crate) sleeper: Sleeper<Native>,
    /// Its epochs, an `epoch::Block`; null: it has had none. Own thread only.
    pub(crate) epochs: AtomicPtr<c_void>,
    /// By how much the reorder window of its current epoch is below 100 ms, ns. Own thread only.
    pub(crate) narrowed_ns: AtomicU32,
    /// What it computed and waited, where little cores are emulated. Own thread only.
    pub(crate) account: emulate::Account,
    /// Contended acquisitions so far, wrapping. Own thread only.
    pub(crate) waits: AtomicU32,
    /// Its trace, where operations are recorded. Own thread only.
    pub(crate) trace: trace::Account,
}

const _: () = assert!(size_of::<Thread>() <= 128);

core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 16",
    ".hidden lockwright_thread",
    ".globl lockwright_thread",
    ".type lockwright_thread, @object",
    ".size lockwright_thread, 128",
    "lockwright_thread:",
    ".zero 128",
    ".popsection",
);

/// The calling thread's memory.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn this() -> *const Thread {
    let at: *const Thread;
    // SAFETY: computes an address: the thread pointer plus this module's static TLS offset.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + lockwright_thread@GOTTPOFF]",
            at = out(reg) at, options(nostack, pure, readonly),
        );
    }
    at
}

/// The calling thread's memory. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn this() -> *const Thread {
    let at: *const Thread;
    // SAFETY: computes an address: the thread pointer plus this module's static TLS offset.
    unsafe {
        core::arch::asm!(
            "mrs {at}, tpidr_el0",
            "adrp {offset}, :gottprel:lockwright_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:lockwright_thread]",
            "add {at}, {at}, {offset}",
            at = out(reg) at, offset = out(reg) _, options(nostack, pure, readonly),
        );
    }
    at
}

/// The calling thread's kernel id.
#[inline(always)]
pub(crate) fn id() -> u32 {
    let tid = cached_tid();
    if tid != 0 { tid } else { ask_tid() }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn cached_tid() -> u32 {
    let tid: u32;
    // SAFETY: reads the calling thread's own `Thread::tid`, at the start of its memory.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + lockwright_thread@GOTTPOFF]",
            "mov {tid:e}, dword ptr fs:[{at}]",
            at = out(reg) _, tid = out(reg) tid, options(nostack, readonly, preserves_flags),
        );
    }
    tid
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn cached_tid() -> u32 {
    // SAFETY: the calling thread's own memory.
    unsafe { (*this()).tid.load(Relaxed) }
}

#[cold]
#[inline(never)]
fn ask_tid() -> u32 {
    // SAFETY: no preconditions; and the calling thread's own memory.
    unsafe {
        let tid = libc::syscall(libc::SYS_gettid) as u32;
        (*this()).tid.store(tid, Relaxed); // own thread only
        tid
    }
}

/// In the child of a fork: the thread has another kernel id.
pub(crate) fn forget_id() {
    // SAFETY: the calling thread's own memory.
    unsafe { (*this()).tid.store(0, Relaxed) } // own thread only
}

/// Another thread's memory.
///
/// # Safety
/// `thread` exists, or has ended and has not been joined yet.
pub(crate) unsafe fn of(thread: libc::pthread_t) -> *const Thread {
    // Static TLS lies at the same distance from every thread's `pthread_t` (its control block).
    // SAFETY: no preconditions.
    let distance = this() as isize - unsafe { libc::pthread_self() } as isize;
    (thread as isize + distance) as *const Thread
}
