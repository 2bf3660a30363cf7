//! `pthread_spin_*`. Not here: `init` and `destroy`, which stay glibc's (see `lockwright_runtime::spin`).

use core::ffi::c_int;

use lockwright_runtime::spin::{self, Spin};

/// Acquires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: *mut Spin) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { spin::lock(lock) }
}

/// Acquires, or says EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_trylock(lock: *mut Spin) -> c_int {
    // SAFETY: as above.
    unsafe { spin::trylock(lock) }
}

/// Releases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *mut Spin) -> c_int {
    // SAFETY: as above.
    unsafe { spin::unlock(lock) }
}
