//! `pthread_mutex_*`, glibc's other names for them, and C11's `mtx_*`.
//!
//! Not here: `init` and the attributes, which stay glibc's. It leaves zeroes in the bytes that we use.

use core::ffi::c_int;
use libc::{CLOCK_REALTIME, EBUSY, ETIMEDOUT, clockid_t, timespec};
use lockwright_runtime::layout::Mutex;
use lockwright_runtime::{mutex, with_frame};

export! {
    lock as pthread_mutex_lock: base;
    unlock as pthread_mutex_unlock: base;
    trylock as pthread_mutex_trylock: v2_34, base;
    timedlock as pthread_mutex_timedlock: v2_34, base;
    clocklock as pthread_mutex_clocklock: v2_34, v2_30;
    destroy as pthread_mutex_destroy: base;
    // glibc's own names.
    lock as __pthread_mutex_lock: base;
    unlock as __pthread_mutex_unlock: base;
    trylock as __pthread_mutex_trylock: base;
    destroy as __pthread_mutex_destroy: base;
    mtx_lock as mtx_lock: v2_34, v2_28;
    mtx_unlock as mtx_unlock: v2_34, v2_28;
    mtx_trylock as mtx_trylock: v2_34, v2_28;
    mtx_timedlock as mtx_timedlock: v2_34, v2_28;
    mtx_destroy as mtx_destroy: v2_34, v2_28;
}

/// Locks, with the address of the call, which rules may use.
unsafe extern "C" fn lock_from(lock: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { mutex::lock(lock, caller) }
}

unsafe extern "C" fn mtx_lock_from(lock: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { mutex::lock(lock, caller) })
}

/// Defines `$name`, which calls `$from` with the return address as its second argument.
macro_rules! with_caller {
    ($($name:ident = $from:ident;)*) => { $(
        #[unsafe(naked)]
        unsafe extern "C" fn $name(lock: *mut Mutex) -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym $from);
            #[cfg(target_arch = "aarch64")] // untested
            core::arch::naked_asm!("mov x1, x30", "b {}", sym $from);
        }
    )* };
}

with_caller! {
    lock = lock_from;
    mtx_lock = mtx_lock_from;
}

unsafe extern "C" fn unlock(lock: *mut Mutex) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { mutex::unlock(lock) }
}

unsafe extern "C" fn trylock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::try_lock(lock) }
}

with_frame! {
    "C" timedlock(lock: *mut Mutex, until: *const timespec) = timedlock_from;
    "C" clocklock(lock: *mut Mutex, clock: clockid_t, until: *const timespec) = clocklock_from;
    "C" mtx_timedlock(lock: *mut Mutex, until: *const timespec) = mtx_timedlock_from;
}

unsafe extern "C" fn timedlock_from(
    lock: *mut Mutex,
    until: *const timespec,
    _: usize,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::lock_until_from(lock, CLOCK_REALTIME, until, 0, frame, stack) }
}

unsafe extern "C" fn clocklock_from(
    lock: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::lock_until_from(lock, clock, until, 0, frame, stack) }
}

unsafe extern "C" fn destroy(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::destroy(lock) }
}

/// C11's answer to an error number: `thrd_success`, `thrd_busy`, `thrd_timedout`, `thrd_error`.
pub(crate) fn thrd(error: c_int) -> c_int {
    // First, and alone: a lock that nobody holds is taken and released without another comparison.
    if error == 0 { 0 } else { failed(error) }
}

#[cold]
#[inline(never)]
fn failed(error: c_int) -> c_int {
    match error {
        EBUSY => 1,
        ETIMEDOUT => 4,
        _ => 2,
    }
}

unsafe extern "C" fn mtx_trylock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { mutex::try_lock(lock) })
}

unsafe extern "C" fn mtx_timedlock_from(
    lock: *mut Mutex,
    until: *const timespec,
    _: usize,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { timedlock_from(lock, until, 0, 0, frame, stack) })
}

unsafe extern "C" fn mtx_unlock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { mutex::unlock(lock) })
}

unsafe extern "C" fn mtx_destroy(lock: *mut Mutex) {
    // SAFETY: as above. C11 has no answer to an error.
    unsafe { mutex::destroy(lock) };
}
