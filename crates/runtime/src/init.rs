//! Our constructor's work, and what a fork needs.

use crate::{config, policy, real, thread};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use lockwright_native::place;

unsafe extern "C" {
    /// glibc's registration of fork handlers; `pthread_atfork` itself is in a static library.
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
}

/// Reads the environment and fills the policy table. Everything works before it, with early defaults:
/// other libraries' constructors run first.
///
/// # Safety
/// Called once, by the dynamic linker, before `main`.
pub unsafe fn init() {
    real::resolve();
    place::learn();
    // SAFETY: no preconditions for a handler without a library.
    unsafe { __register_atfork(None, None, Some(in_child), core::ptr::null_mut()) };
    // SAFETY: called once.
    unsafe { config::load() };
}

unsafe extern "C" fn in_child() {
    thread::forget_tid();
    // Relaxed: the child has one thread.
    policy::ERA.store((policy::ERA.load(Relaxed) + 1) % 64, Relaxed);
}
