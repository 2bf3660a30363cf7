//! `pthread_rwlock_*`, and glibc's other names for them.
//!
//! Not here: `init`, `destroy` and the attributes, which stay glibc's (see `lockwright_runtime::rwlock`).

use core::ffi::c_int;

use libc::{clockid_t, timespec};
use lockwright_runtime::rwlock::{self, RwLock};

/// The runtime's functions, with POSIX's signatures.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => { $(
        unsafe extern "C" fn $name(lock: *mut RwLock $(, $argument: $kind)*) -> c_int {
            // SAFETY: the program promises what POSIX asks of it.
            unsafe { rwlock::$name(lock $(, $argument)*) }
        }
    )* };
}

functions! {
    rdlock();
    tryrdlock();
    timedrdlock(at: *const timespec);
    clockrdlock(clock: clockid_t, at: *const timespec);
    wrlock();
    trywrlock();
    timedwrlock(at: *const timespec);
    clockwrlock(clock: clockid_t, at: *const timespec);
    unlock();
}

export! {
    rdlock as pthread_rwlock_rdlock: v2_34, base;
    tryrdlock as pthread_rwlock_tryrdlock: v2_34, base;
    timedrdlock as pthread_rwlock_timedrdlock: v2_34, base;
    clockrdlock as pthread_rwlock_clockrdlock: v2_34, v2_30;
    wrlock as pthread_rwlock_wrlock: v2_34, base;
    trywrlock as pthread_rwlock_trywrlock: v2_34, base;
    timedwrlock as pthread_rwlock_timedwrlock: v2_34, base;
    clockwrlock as pthread_rwlock_clockwrlock: v2_34, v2_30;
    unlock as pthread_rwlock_unlock: v2_34, base;
    // glibc's own names.
    rdlock as __pthread_rwlock_rdlock: base;
    tryrdlock as __pthread_rwlock_tryrdlock: base;
    wrlock as __pthread_rwlock_wrlock: base;
    trywrlock as __pthread_rwlock_trywrlock: base;
    unlock as __pthread_rwlock_unlock: base;
}
