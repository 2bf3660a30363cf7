//! `sem_*`, which stay glibc's; see `lockwright_runtime::semaphore`.
//!
//! Not here: `init`, `open`, `close`, `unlink` and `getvalue`.

use core::ffi::c_int;
use libc::{clockid_t, timespec};
use lockwright_runtime::layout::Semaphore;
use lockwright_runtime::semaphore;

/// The runtime's functions, with POSIX's signatures.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => { $(
        unsafe extern "C-unwind" fn $name(s: *mut Semaphore $(, $argument: $kind)*) -> c_int {
            // SAFETY: the program promises what POSIX asks of it.
            unsafe { semaphore::$name(s $(, $argument)*) }
        }
    )* };
}

functions! {
    wait();
    trywait();
    timedwait(until: *const timespec);
    clockwait(clock: clockid_t, until: *const timespec);
    post();
    destroy();
}

export! {
    wait as sem_wait: v2_34, base;
    trywait as sem_trywait: v2_34, base;
    timedwait as sem_timedwait: v2_34, base;
    clockwait as sem_clockwait: v2_34, v2_30;
    post as sem_post: v2_34, base;
    destroy as sem_destroy: v2_34, base;
}
