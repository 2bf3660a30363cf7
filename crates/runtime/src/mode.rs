//! What the plain mutex's fast paths depend on: does the process have one thread, and is it watched?

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU8};

unsafe extern "C" {
    /// Set while the process has one thread (glibc 2.32 and later).
    #[link_name = "__libc_single_threaded"]
    static SINGLE_THREADED: core::sync::atomic::AtomicU8;
}

/// Does the process have one thread, this one?
#[inline(always)]
pub(crate) fn is_single_threaded() -> bool {
    // SAFETY: glibc's variable, a `char` that is written before a second thread starts.
    unsafe { SINGLE_THREADED.load(Relaxed) != 0 }
}

/// [`mode`]: the process has several threads.
pub(crate) const SEVERAL: u32 = 0;
/// [`mode`]: it has one.
pub(crate) const SINGLE: u32 = 1;
/// [`mode`]: it has several, and threads hold mutexes by nodes: unlock looks at those first.
pub(crate) const GRANTING: u32 = 8;
/// [`mode`]: operations are watched, however many threads there are.
const WATCHED: u32 = 4;

// The address of the byte that `mode` reads: glibc's byte, or one of ours that says WATCHED or GRANTING. The byte is read
// anyway, so emulation and traces cost nothing in a process that doesn't use them. In assembly, because reaching a Rust
// static would take one more load.
core::arch::global_asm!(
    ".pushsection .data.lockwright_mode,\"aw\",@progbits",
    ".balign 8",
    ".hidden lockwright_mode",
    ".globl lockwright_mode",
    ".type lockwright_mode, @object",
    ".size lockwright_mode, 8",
    "lockwright_mode:",
    ".quad __libc_single_threaded",
    ".popsection",
);
static ALWAYS_WATCHED: AtomicU8 = AtomicU8::new(WATCHED as u8);
static ALWAYS_GRANTING: AtomicU8 = AtomicU8::new(GRANTING as u8);

unsafe extern "C" {
    #[link_name = "lockwright_mode"]
    static MODE: AtomicPtr<AtomicU8>;
}

/// What the plain kinds' fast paths depend on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn mode() -> u32 {
    let mode: u32;
    // SAFETY: reads our variable, and the byte that it points to, which lives forever.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + lockwright_mode]",
            "movzx {mode:e}, byte ptr [{at}]",
            at = out(reg) _, mode = out(reg) mode, options(nostack, readonly, preserves_flags),
        );
    }
    mode
}

/// What the plain kinds' fast paths depend on. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn mode() -> u32 {
    // SAFETY: our variable, and the byte that it points to, which lives forever.
    unsafe { u32::from((*MODE.load(Relaxed)).load(Relaxed)) }
}

/// Runs `several`, `single`, or `other` where [`mode`] is neither. (With one comparison; a compiler would make two.)
#[inline(always)]
pub(crate) fn by_mode<R>(
    several: impl FnOnce() -> R,
    single: impl FnOnce() -> R,
    other: impl FnOnce() -> R,
) -> R {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `mode`.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + lockwright_mode]",
            "cmp byte ptr [{at}], {SINGLE}",
            "ja {other}",
            "je {single}",
            at = out(reg) _,
            SINGLE = const SINGLE,
            other = label { return other() },
            single = label { return single() },
            options(nostack, readonly),
        );
        several()
    }
    #[cfg(not(target_arch = "x86_64"))]
    match mode() {
        SEVERAL => several(),
        SINGLE => single(),
        _ => other(),
    }
}

/// From now on [`mode`] says GRANTING, if operations are not watched. A thread that doesn't see that yet finds out from
/// the mutex.
#[inline]
pub(crate) fn grants() {
    let (glibcs, ours) = (&raw const SINGLE_THREADED, &raw const ALWAYS_GRANTING);
    // SAFETY: our variable. Relaxed: whichever of the two bytes a thread reads, it acts correctly.
    unsafe {
        if core::ptr::eq(MODE.load(Relaxed), glibcs) {
            let _ = MODE.compare_exchange(glibcs.cast_mut(), ours.cast_mut(), Relaxed, Relaxed);
        }
    }
}

/// From now on [`mode`] says WATCHED, or not any more.
pub(crate) fn watch(is_watched: bool) {
    let byte = if is_watched { &raw const ALWAYS_WATCHED } else { &raw const SINGLE_THREADED };
    // SAFETY: our variable. Relaxed: it changes only before the program's main, and in a process with one thread.
    unsafe { MODE.store(byte.cast_mut(), Relaxed) };
}
