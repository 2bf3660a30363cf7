//! `liblockwright_delegate.so`, an experiment: transparent delegation. An unmodified program's threads run the sections of those that wait.
//!
//! The idea of RCL (J.-P. Lozi et al., *Remote Core Locking*, USENIX ATC 2012) without the rewriting, after TCLocks (V. Gupta et al., *Ship
//! your Critical Section, Not Your Data*, OSDI 2023), which does so in the kernel. The code is our own.
//!
//! ```text
//!   thread W                                   thread C, the combiner of W's mutex, which it has locked
//!   its stack          its parking stack       its parking stack         W's stack
//!   lock() ──suspend──► asks ─ waits ········► takes W's request ──────► lock() returns; W's section, with W's thread pointer
//!                               ▲                                         unlock() suspends W
//!   unlock() returns ◄──resume── answered ◄─── answers, goes on ◄────────┘
//! ```
//!
//! The queue, and who combines, is `combiner`'s (`locks/delegation`), by the slots of rewritten sections (`runtime/sections.rs`): whoever
//! runs a section has locked the program's own mutex. So all other uses of the mutex exclude sections as ever.
//!
//! What a section can't do elsewhere, it does at home, with its mutex locked (`hooks.rs`). What hooks don't see ends by the clock
//! (`watch.rs`). What neither sees is in docs/delegate.md: this is why it is an experiment.
#![no_std]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("only for x86-64");

mod account;
mod choice;
mod hooks;
mod section;
mod switch;
mod thread;
mod watch;

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

// Without this we would not be linked to libc, and our references to its symbols would have no version.
#[link(name = "c")]
unsafe extern "C" {}

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
        hooks::find_all();
        let on_its_stack = hooks::symbol(c"lockwright_section_on_its_stack");
        let is_combining = hooks::symbol(c"lockwright_section_is_combining");
        let (can_switch, has_keys) = switch::abilities();
        let has_library = !on_its_stack.is_null() && !is_combining.is_null();
        if !choice::read() || !has_library || !can_switch || !watch::prepare() {
            return;
        }
        account::begin();
        thread::prepare();
        section::HAS_KEYS.store(has_keys.into(), Relaxed);
        // SAFETY: a handler that stays: this library is never unloaded.
        unsafe { __register_atfork(None, None, Some(in_child), core::ptr::null_mut()) };
        section::IS_COMBINING.store(is_combining.addr(), Relaxed);
        section::ON_ITS_STACK.store(on_its_stack.addr(), Relaxed);
    }
    init
};

/// The child has one thread, at home: `fork` has seen to that.
unsafe extern "C" fn in_child() {
    account::begin();
    watch::forget();
    thread::this().forget();
}

/// The core library needs a panic handler, though our code never panics. If it does, it must not fail silently.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// The prebuilt core library refers to this symbol; nothing unwinds through our frames but foreign unwinders: 8 is `_URC_CONTINUE_UNWIND`.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> c_int {
    8
}
