//! `lw_section`, which a program that `lockwright rewrite` has changed looks for.

use core::ffi::{c_int, c_void};
use libc::pthread_mutex_t;
use lockwright_runtime::sections;

/// Runs `section` with `context` while `mutex` is locked, on this thread or on another one.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn lw_section(
    mutex: *mut pthread_mutex_t,
    section: unsafe extern "C-unwind" fn(*mut c_void),
    context: *mut c_void,
) {
    // SAFETY: the program says that any thread may run it.
    let section = unsafe { sections::Called::new(section, context) };
    // SAFETY: the program's own mutex.
    unsafe { sections::run(mutex, move || section.run()) }
}

/// For `liblockwright_delegate.so`: see [`sections::run_on_its_stack`]. 0: nothing has run.
#[unsafe(no_mangle)]
unsafe extern "C" fn lockwright_section_on_its_stack(
    mutex: *mut pthread_mutex_t,
    run: unsafe extern "C" fn(*mut c_void) -> c_int,
    context: *mut c_void,
    nap: sections::Nap,
) -> c_int {
    // SAFETY: that library's promise.
    c_int::from(unsafe { sections::run_on_its_stack(mutex, run, context, nap) })
}

/// For `liblockwright_delegate.so`: see [`sections::is_combining`]; -1: its kind lets no other thread run them.
#[unsafe(no_mangle)]
unsafe extern "C" fn lockwright_section_is_combining(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: that library's promise.
    unsafe { sections::is_combining(mutex) }.map_or(-1, c_int::from)
}
