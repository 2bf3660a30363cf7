//! The beginning: in a program, and in a forked child.

use crate::list::Hook;
use crate::{account, behind, choice, section, switch, thread, watch};
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

unsafe extern "C" {
    /// glibc's registration of fork handlers; `pthread_atfork` itself is in a static library.
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut core::ffi::c_void,
    ) -> c_int;
}

/// Our constructor.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn init(_: c_int, _: *const *const c_char, _: *const *const c_char) {
        behind::find_all();
        let on_its_stack = behind::symbol(c"lockwright_section_on_its_stack");
        let is_combining = behind::symbol(c"lockwright_section_is_combining");
        let (can_switch, has_keys) = switch::abilities();
        let has_library = !on_its_stack.is_null() && !is_combining.is_null();
        if !choice::read(on_its_stack.addr()) || !has_library || !can_switch || !watch::prepare() {
            return;
        }
        account::begin();
        thread::prepare(section::end);
        section::HAS_KEYS.store(has_keys.into(), Relaxed);
        // SAFETY: a handler that stays: this library is never unloaded.
        unsafe {
            __register_atfork(
                Some(before_fork),
                Some(in_parent),
                Some(in_child),
                core::ptr::null_mut(),
            )
        };
        section::IS_COMBINING.store(is_combining.addr(), Relaxed);
        section::ON_ITS_STACK.store(on_its_stack.addr(), Relaxed);
    }
    init
};

/// A handler that ran before this one may hold a mutex, by a section; one that runs after it must not send one: the child is this thread's
/// copy.
unsafe extern "C" fn before_fork() {
    let thread = thread::this();
    section::go_home(thread, Hook::fork as usize);
    thread.is_forking.set(true);
}

unsafe extern "C" fn in_parent() {
    thread::this().is_forking.set(false);
}

/// The child has one thread, at home: `fork` has seen to that.
unsafe extern "C" fn in_child() {
    account::begin();
    watch::forget();
    thread::this().forget();
}
