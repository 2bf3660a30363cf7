//! `lw_section`, which a program that `lockwright rewrite` has changed looks for.

use core::ffi::c_void;
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
