//! Whether lock operations are watched: by emulation (`emulate`), which slows what lies between them, by the
//! trace (`trace`), which records them, or by both; or by somebody else's tool (`guard`), for which they become glibc's.
//!
//! Normally they are not, and then it costs the plain mutex nothing: see `mutex::mode`.

use crate::layout::Mutex;
use crate::{emulate, mutex, trace};
use core::ffi::c_int;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_record::trace::What;

// Who watches. In assembly, because Rust's own static would be reached by one load more.
core::arch::global_asm!(
    ".pushsection .bss.lockwright_watched,\"aw\",@nobits",
    ".hidden lockwright_watched",
    ".globl lockwright_watched",
    ".type lockwright_watched, @object",
    ".size lockwright_watched, 1",
    "lockwright_watched:",
    ".zero 1",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "lockwright_watched"]
    static WATCHED: AtomicU8;
}

/// Who watches.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Who {
    /// `emulate`.
    Emulation = 1,
    /// `trace`.
    Trace = 2,
    /// A tool that knows glibc's functions: `guard`.
    Tool = 4,
}

/// Does anybody watch?
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // SAFETY: compares our variable, which is set before the program's main.
    unsafe {
        core::arch::asm!(
            "cmp byte ptr [rip + lockwright_watched], 0",
            "jne {on}",
            on = label { return true },
            options(nostack, readonly),
        );
    }
    false
}

/// Does anybody watch? Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // SAFETY: our variable.
    unsafe { WATCHED.load(Relaxed) != 0 } // set before the program's main
}

/// Does this one?
#[inline(always)]
pub(crate) fn is_by(who: Who) -> bool {
    // ORDERING: Acquire, pairs with the Release in `begin`: what it set up is there.
    // SAFETY: our variable.
    unsafe { WATCHED.load(Acquire) & who as u8 != 0 }
}

/// From now on this one watches. Called before the program's main.
pub(crate) fn begin(who: Who) {
    // ORDERING: Release, pairs with the Acquire in `is_by`; threads that start later see all of it.
    // SAFETY: our variable.
    unsafe { WATCHED.fetch_or(who as u8, Release) };
    mutex::watch(true);
}

/// This one watches no more. Called in the child of a fork, by its only thread.
pub(crate) fn end(who: Who) {
    // SAFETY: our variable; one thread.
    let before = unsafe { WATCHED.fetch_and(!(who as u8), Relaxed) };
    mutex::watch(before & !(who as u8) != 0);
}

/// A point at which something is measured: what was computed until here is slowed before it.
#[inline(always)]
pub(crate) fn boundary() {
    if is_on() {
        watched(|| ());
    }
}

/// Runs a lock operation that the trace does not record.
#[inline(always)]
pub(crate) fn operation<R>(run: impl Fn() -> R) -> R {
    if is_on() {
        return watched(run);
    }
    run()
}

#[cold]
#[inline(never)]
fn watched<R>(run: impl Fn() -> R) -> R {
    if !is_by(Who::Emulation) {
        return run();
    }
    emulate::stop();
    let result = run();
    emulate::start();
    result
}

/// The same, with `glibc`'s function for it, which runs instead under a tool that knows that one.
#[inline(always)]
pub(crate) fn operation_or(glibc: impl Fn() -> c_int, run: impl Fn() -> c_int) -> c_int {
    if is_on() {
        return watched_or(glibc, run);
    }
    run()
}

#[cold]
#[inline(never)]
fn watched_or(glibc: impl Fn() -> c_int, run: impl Fn() -> c_int) -> c_int {
    if is_by(Who::Tool) { glibc() } else { watched(run) }
}

/// Runs an operation that acquires `lock` if it answers 0 (or that its last owner died); `glibc` as in [`operation_or`].
#[inline(always)]
pub(crate) fn acquisition(
    what: What,
    lock: *const Mutex,
    glibc: impl Fn() -> c_int,
    run: impl Fn() -> c_int,
) -> c_int {
    if is_on() {
        return recorded(what, lock, glibc, run);
    }
    run()
}

/// Runs an operation that releases `lock` if it answers 0; `glibc` as in [`operation_or`].
#[inline(always)]
pub(crate) fn release(
    lock: *const Mutex,
    glibc: impl Fn() -> c_int,
    run: impl Fn() -> c_int,
) -> c_int {
    if is_on() {
        return recorded(What::Released, lock, glibc, run);
    }
    run()
}

#[cold]
#[inline(never)]
fn recorded(
    what: What,
    lock: *const Mutex,
    glibc: impl Fn() -> c_int,
    run: impl Fn() -> c_int,
) -> c_int {
    if is_by(Who::Tool) {
        return glibc();
    }
    watched(|| {
        let request = trace::request(what);
        let answer = run();
        if let Some(request) = request {
            match answer {
                0 | libc::EOWNERDEAD => request.done(what, lock.addr()),
                libc::ETIMEDOUT => request.done(What::GaveUp, lock.addr()),
                _ => {}
            }
        }
        answer
    })
}
