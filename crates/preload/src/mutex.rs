//! `pthread_mutex_*`, glibc's other names for them, and C11's `mtx_*`.
//!
//! Not here: `init` and the attributes, which stay glibc's: it leaves zeroes where we live.

use core::ffi::c_int;
use libc::{CLOCK_REALTIME, EBUSY, ETIMEDOUT, clockid_t, timespec};
use lockwright_runtime::layout::Mutex;
use lockwright_runtime::{mutex, real};

/// Locks, with the address of the call: rules may go by it.
unsafe extern "C" fn lock_from(lock: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { mutex::lock(lock, caller) }
}

/// Exports `$name`: `lock_from`, with the return address as its second argument.
macro_rules! export_lock {
    ($($name:ident),*) => { $(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(lock: *mut Mutex) -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym lock_from);
            #[cfg(target_arch = "aarch64")] // untested
            core::arch::naked_asm!("mov x1, x30", "b {}", sym lock_from);
        }
    )* };
}

export_lock!(pthread_mutex_lock, __pthread_mutex_lock);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(lock: *mut Mutex) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { mutex::unlock(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_unlock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::unlock(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::try_lock(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_trylock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::try_lock(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_timedlock(
    lock: *mut Mutex,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if mutex::is_foreign(lock) {
            return real::pthread_mutex_timedlock(lock.cast(), until);
        }
        mutex::lock_until(lock, CLOCK_REALTIME, until)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    lock: *mut Mutex,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if mutex::is_foreign(lock) {
            return real::pthread_mutex_clocklock(lock.cast(), clock, until);
        }
        mutex::lock_until(lock, clock, until)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_destroy(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::destroy(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_destroy(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    unsafe { mutex::destroy(lock) }
}

/// C11's answer to an error number: `thrd_success`, `thrd_busy`, `thrd_timedout`, `thrd_error`.
pub(crate) fn thrd(error: c_int) -> c_int {
    match error {
        0 => 0,
        EBUSY => 1,
        ETIMEDOUT => 4,
        _ => 2,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_lock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { pthread_mutex_lock(lock) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_trylock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { mutex::try_lock(lock) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_timedlock(lock: *mut Mutex, until: *const timespec) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { pthread_mutex_timedlock(lock, until) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_unlock(lock: *mut Mutex) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { mutex::unlock(lock) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_destroy(lock: *mut Mutex) {
    // SAFETY: as above. C11 has no answer to an error.
    unsafe { mutex::destroy(lock) };
}
