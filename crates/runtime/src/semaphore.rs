//! `sem_*`: always glibc's. While counting is on, we report who waits for whom: some programs use semaphores as locks, Python among
//! them.
//!
//! While counting is off, each call is one look at the level, and glibc's function. glibc also handles cancellation, which may unwind
//! through us at any call of its functions.

use crate::caller::Call;
use crate::layout::Semaphore;
use crate::observe::{self, semaphores};
use crate::{real, thread};
use core::ffi::c_int;
use libc::{clockid_t, timespec};

/// Defines `$name`, which calls `$to` with three more arguments, from the fourth on: the caller's return address, frame pointer and
/// stack pointer. See `caller.rs`.
macro_rules! with_caller {
    ($($name:ident($($argument:ident: $kind:ty),*) = $to:ident;)*) => { $(
        #[cold]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name(s: *mut Semaphore $(, $argument: $kind)*) -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "mov rcx, [rsp]",
                "mov r8, rbp",
                "lea r9, [rsp + 8]",
                "jmp {}",
                sym $to,
            );
            #[cfg(target_arch = "aarch64")] // untested
            core::arch::naked_asm!("mov x3, x30", "mov x4, x29", "mov x5, sp", "b {}", sym $to);
        }
    )* };
}

with_caller! {
    wait_counted() = wait_from;
    timedwait_counted(until: *const timespec) = timedwait_from;
    clockwait_counted(clock: clockid_t, until: *const timespec) = clockwait_from;
    post_counted() = post_from;
}

/// Waits until it can be taken.
///
/// # Safety
/// `s` is an initialised semaphore.
#[inline(always)]
pub unsafe fn wait(s: *mut Semaphore) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match observe::is_on() {
            false => real::sem_wait(s.cast()),
            true => wait_counted(s),
        }
    }
}

/// The same, until CLOCK_REALTIME reads `until`.
///
/// # Safety
/// As [`wait`], and `until` points to a timespec.
#[inline(always)]
pub unsafe fn timedwait(s: *mut Semaphore, until: *const timespec) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match observe::is_on() {
            false => real::sem_timedwait(s.cast(), until),
            true => timedwait_counted(s, until),
        }
    }
}

/// The same, until `clock` reads `until`.
///
/// # Safety
/// As [`timedwait`].
#[inline(always)]
pub unsafe fn clockwait(s: *mut Semaphore, clock: clockid_t, until: *const timespec) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match observe::is_on() {
            false => real::sem_clockwait(s.cast(), clock, until),
            true => clockwait_counted(s, clock, until),
        }
    }
}

/// Takes it, if it can be taken now.
///
/// # Safety
/// As [`wait`].
#[inline(always)]
pub unsafe fn trywait(s: *mut Semaphore) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match observe::is_on() {
            false => real::sem_trywait(s.cast()),
            true => trywait_counted(s),
        }
    }
}

/// Releases it.
///
/// # Safety
/// As [`wait`].
#[inline(always)]
pub unsafe fn post(s: *mut Semaphore) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match observe::is_on() {
            false => real::sem_post(s.cast()),
            true => post_counted(s),
        }
    }
}

/// Destroys it.
///
/// # Safety
/// As [`wait`]; nobody uses it any more.
#[inline(always)]
pub unsafe fn destroy(s: *mut Semaphore) -> c_int {
    if observe::is_on() {
        semaphores::retire(s.addr());
    }
    // SAFETY: the caller's promise.
    unsafe { real::sem_destroy(s.cast()) }
}

unsafe extern "C-unwind" fn wait_from(
    s: *mut Semaphore,
    _: usize,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { counted(s, Call { from, frame, stack }, || real::sem_wait(s.cast())) }
}

unsafe extern "C-unwind" fn timedwait_from(
    s: *mut Semaphore,
    until: *const timespec,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { counted(s, Call { from, frame, stack }, || real::sem_timedwait(s.cast(), until)) }
}

unsafe extern "C-unwind" fn clockwait_from(
    s: *mut Semaphore,
    clock: clockid_t,
    until: *const timespec,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        counted(s, Call { from, frame, stack }, || real::sem_clockwait(s.cast(), clock, until))
    }
}

/// Waits by glibc's function, which may not return: a cancelled thread, or one that leaves by a signal handler, is unwound from
/// there. We hold nothing then, and the next release finds that nobody waits.
unsafe fn counted(s: *mut Semaphore, call: Call, wait: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise; we read only atomics.
    let semaphore = unsafe { &*s };
    let since = semaphores::waits(semaphore);
    let answer = wait();
    let acquired = answer == 0;
    thread::leaving_errno(|| semaphores::has_waited(semaphore, since, acquired, call));
    answer
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn trywait_counted(s: *mut Semaphore) -> c_int {
    semaphores::begins();
    // SAFETY: the caller's promise.
    let answer = unsafe { real::sem_trywait(s.cast()) };
    if answer == 0 {
        // SAFETY: as above.
        semaphores::took(unsafe { &*s });
    }
    answer
}

unsafe extern "C-unwind" fn post_from(
    s: *mut Semaphore,
    _: usize,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let post = semaphores::posts(unsafe { &*s });
    // SAFETY: as above.
    let answer = unsafe { real::sem_post(s.cast()) };
    // From here on it may be gone: somebody may have taken it and destroyed it.
    if let (Some(post), 0) = (post, answer) {
        semaphores::posted(s.addr(), post, Call { from, frame, stack });
    }
    answer
}
