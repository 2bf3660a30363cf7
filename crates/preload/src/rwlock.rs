//! `pthread_rwlock_*`, and glibc's other names for them.
//!
//! Not here: `init`, `destroy` and the attributes, which stay glibc's (see `lockwright_runtime::rwlock`).

use core::ffi::c_int;

use libc::{clockid_t, timespec};
use lockwright_runtime::rwlock::{self, RwLock};

/// Exports the runtime's `$function` as `$name`, with POSIX's signature.
macro_rules! export {
    ($($name:ident = $function:ident($($argument:ident: $kind:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: *mut RwLock $(, $argument: $kind)*) -> c_int {
            // SAFETY: the program promises what POSIX asks of it.
            unsafe { rwlock::$function(lock $(, $argument)*) }
        }
    )* };
}

export! {
    pthread_rwlock_rdlock = rdlock();
    pthread_rwlock_tryrdlock = tryrdlock();
    pthread_rwlock_timedrdlock = timedrdlock(at: *const timespec);
    pthread_rwlock_clockrdlock = clockrdlock(clock: clockid_t, at: *const timespec);
    pthread_rwlock_wrlock = wrlock();
    pthread_rwlock_trywrlock = trywrlock();
    pthread_rwlock_timedwrlock = timedwrlock(at: *const timespec);
    pthread_rwlock_clockwrlock = clockwrlock(clock: clockid_t, at: *const timespec);
    pthread_rwlock_unlock = unlock();
    // glibc's own names.
    __pthread_rwlock_rdlock = rdlock();
    __pthread_rwlock_tryrdlock = tryrdlock();
    __pthread_rwlock_wrlock = wrlock();
    __pthread_rwlock_trywrlock = trywrlock();
    __pthread_rwlock_unlock = unlock();
}
