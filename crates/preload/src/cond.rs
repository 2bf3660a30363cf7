//! `pthread_cond_*`, C11's `cnd_*`, and `pthread_cancel`, which must reach our waiters.
//!
//! Not here: `init` and the attributes, which stay glibc's: it leaves zeroes where we live.

use crate::mutex::thrd;
use core::ffi::c_int;
use libc::{CLOCK_REALTIME, clockid_t, pthread_t, timespec};
use lockwright_runtime::cond::{self, By};
use lockwright_runtime::layout::{Cond, Mutex};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(cond: *mut Cond, lock: *mut Mutex) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { cond::wait(cond, lock, None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut Cond,
    lock: *mut Mutex,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    unsafe { cond::wait(cond, lock, Some((By::Own, until))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut Cond,
    lock: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    unsafe { cond::wait(cond, lock, Some((By::Clock(clock), until))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::signal(cond) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::broadcast(cond) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_destroy(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::destroy(cond) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cnd_wait(cond: *mut Cond, lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { cond::wait(cond, lock, None) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cnd_timedwait(
    cond: *mut Cond,
    lock: *mut Mutex,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above. C11's times are by the realtime clock.
    thrd(unsafe { cond::wait(cond, lock, Some((By::Clock(CLOCK_REALTIME), until))) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_signal(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { cond::signal(cond) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_broadcast(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { cond::broadcast(cond) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_destroy(cond: *mut Cond) {
    // SAFETY: as above. C11 has no answer to an error.
    unsafe { cond::destroy(cond) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: as above.
    unsafe { cond::cancel(thread) }
}
