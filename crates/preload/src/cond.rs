//! `pthread_cond_*`, and C11's `cnd_*`.
//!
//! Not here: `init` and the attributes, which stay glibc's. It leaves zeroes in the bytes that we use.

use crate::mutex::thrd;
use core::ffi::c_int;
use libc::{CLOCK_REALTIME, clockid_t, timespec};
use lockwright_runtime::cond;
use lockwright_runtime::layout::{Cond, Mutex};
use lockwright_runtime::with_frame;

export! {
    wait as pthread_cond_wait: cond;
    timedwait as pthread_cond_timedwait: cond;
    clockwait as pthread_cond_clockwait: v2_34, v2_30;
    signal as pthread_cond_signal: cond;
    broadcast as pthread_cond_broadcast: cond;
    destroy as pthread_cond_destroy: cond;
    cnd_wait as cnd_wait: v2_34, v2_28;
    cnd_timedwait as cnd_timedwait: v2_34, v2_28;
    cnd_signal as cnd_signal: v2_34, v2_28;
    cnd_broadcast as cnd_broadcast: v2_34, v2_28;
    cnd_destroy as cnd_destroy: v2_34, v2_28;
}

/// Condition variables from before glibc 2.3.2: 8 bytes, with a pointer to memory that glibc allocates. They stay glibc's. We
/// export them because a reference without a version (drd has some) gets the oldest version in the first library that has the
/// name at all. Without these, `init` would be glibc's oldest, and `wait` ours.
#[cfg(all(versions, target_arch = "x86_64"))]
mod before_2_3_2 {
    use super::{Cond, Mutex, c_int, timespec};
    use lockwright_runtime::real::Oldest;

    /// `function(arguments) is glibc's oldest function of this name;`
    macro_rules! forward {
        ($($function:ident($($arg:ident: $ty:ty),*) is $name:literal;)*) => { $(
            unsafe extern "C-unwind" fn $function($($arg: $ty),*) -> c_int {
                let today: unsafe extern "C-unwind" fn($($ty),*) -> c_int = super::$function;
                let oldest = oldest::$function.get(today as *mut _);
                if oldest.is_null() {
                    return libc::ENOSYS;
                }
                // SAFETY: the function of that name has this type; the caller keeps its contract.
                unsafe {
                    let oldest: unsafe extern "C-unwind" fn($($ty),*) -> c_int =
                        core::mem::transmute(oldest);
                    oldest($($arg),*)
                }
            }
        )*
            #[expect(non_upper_case_globals, reason = "named as the functions that they stand for")]
            mod oldest {
                use super::Oldest;
                $(#[unsafe(link_section = ".lockwright.start")]
                pub(super) static $function: Oldest = Oldest::new($name);)*
            }

            /// Looks up all of them.
            pub(crate) fn resolve() {
                $({
                    let today: unsafe extern "C-unwind" fn($($ty),*) -> c_int = super::$function;
                    oldest::$function.get(today as *mut _);
                })*
            }
        };
    }
    forward! {
        wait(cond: *mut Cond, lock: *mut Mutex) is c"pthread_cond_wait";
        timedwait(cond: *mut Cond, lock: *mut Mutex, until: *const timespec)
            is c"pthread_cond_timedwait";
        signal(cond: *mut Cond) is c"pthread_cond_signal";
        broadcast(cond: *mut Cond) is c"pthread_cond_broadcast";
        destroy(cond: *mut Cond) is c"pthread_cond_destroy";
    }
    export! {
        old wait as pthread_cond_wait: base;
        old timedwait as pthread_cond_timedwait: base;
        old signal as pthread_cond_signal: base;
        old broadcast as pthread_cond_broadcast: base;
        old destroy as pthread_cond_destroy: base;
    }
}

#[cfg(all(versions, target_arch = "x86_64"))]
pub(crate) use before_2_3_2::resolve as resolve_oldest;

with_frame! {
    "C-unwind" wait(cond: *mut Cond, lock: *mut Mutex) = cond::wait_from;
    "C-unwind" timedwait(cond: *mut Cond, lock: *mut Mutex, until: *const timespec)
        = cond::timedwait_from;
    "C-unwind" clockwait(cond: *mut Cond, lock: *mut Mutex, clock: clockid_t, until: *const timespec)
        = cond::clockwait_from;
    "C-unwind" cnd_wait(cond: *mut Cond, lock: *mut Mutex) = cnd_wait_from;
    "C-unwind" cnd_timedwait(cond: *mut Cond, lock: *mut Mutex, until: *const timespec)
        = cnd_timedwait_from;
}

unsafe extern "C-unwind" fn signal(cond: *mut Cond) -> c_int {
    // SAFETY: the program promises what POSIX asks of it.
    unsafe { cond::signal(cond) }
}

unsafe extern "C-unwind" fn broadcast(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::broadcast(cond) }
}

unsafe extern "C-unwind" fn destroy(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::destroy(cond) }
}

unsafe extern "C-unwind" fn cnd_wait_from(
    cond: *mut Cond,
    lock: *mut Mutex,
    _: usize,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as above.
    thrd(unsafe { cond::wait_from(cond, lock, 0, 0, frame, stack) })
}

unsafe extern "C-unwind" fn cnd_timedwait_from(
    cond: *mut Cond,
    lock: *mut Mutex,
    until: *const timespec,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as above. C11's times are by the realtime clock.
    thrd(unsafe { cond::clockwait_from(cond, lock, CLOCK_REALTIME, until, frame, stack) })
}

// The answer is always 0, which is `thrd_success`.

unsafe extern "C" fn cnd_signal(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::signal(cond) }
}

unsafe extern "C" fn cnd_broadcast(cond: *mut Cond) -> c_int {
    // SAFETY: as above.
    unsafe { cond::broadcast(cond) }
}

unsafe extern "C" fn cnd_destroy(cond: *mut Cond) {
    // SAFETY: as above. C11 has no answer to an error.
    unsafe { cond::destroy(cond) };
}
