//! `pthread_spin_*`. Not here: `init` and `destroy`, which stay glibc's (see `lockwright_runtime::spin`).

use core::ffi::c_int;

use lockwright_runtime::spin::{self, Spin};

export! {
    lock as pthread_spin_lock: v2_34, base;
    trylock as pthread_spin_trylock: v2_34, base;
    unlock as pthread_spin_unlock: v2_34, base;
}

/// Acquires.
unsafe extern "C" fn lock(lock: *mut Spin) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { spin::lock(lock) }
}

/// Acquires, or returns EBUSY.
unsafe extern "C" fn trylock(lock: *mut Spin) -> c_int {
    // SAFETY: as above.
    unsafe { spin::trylock(lock) }
}

/// Releases.
unsafe extern "C" fn unlock(lock: *mut Spin) -> c_int {
    // SAFETY: as above.
    unsafe { spin::unlock(lock) }
}
