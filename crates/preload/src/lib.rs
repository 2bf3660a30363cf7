//! `liblockwright.so`: the pthread and C11 symbols (and `sem_*`, `prctl`, `dlopen`, `dlmopen`). Each just calls the runtime, in a
//! line or two.
//!
//! Boundary: this crate has no logic, no standard library, no allocation, and no dependency but libc. It exports symbols
//! under glibc's versions (`export.rs`).
#![no_std]

#[macro_use]
mod export;

mod cond;
#[cfg(target_arch = "x86_64")]
mod dl;
mod epoch;
mod mutex;
mod prctl;
mod rwlock;
mod sections;
mod sem;
mod spin;

use core::ffi::{c_char, c_int};
use lockwright_runtime::sync::{TABLE, Table};

// Without this we would not be linked to libc, and our references to its symbols would have no version.
#[link(name = "c")]
unsafe extern "C" {}

// What the compiler's start files define, without which we are linked (build.rs): it stands for our object.
core::arch::global_asm!(
    ".pushsection .data.rel.ro.__dso_handle,\"aw\",@progbits",
    ".balign 8",
    ".hidden __dso_handle",
    ".globl __dso_handle",
    ".type __dso_handle, @object",
    ".size __dso_handle, 8",
    "__dso_handle:",
    ".quad __dso_handle",
    ".popsection",
);

/// Our constructor.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    #[unsafe(link_section = ".lockwright.begin")]
    unsafe extern "C" fn init(
        _: c_int,
        _: *const *const c_char,
        environment: *const *const c_char,
    ) {
        // SAFETY: the dynamic linker calls it once, and glibc's passes the environment.
        let is_watched = unsafe { lockwright_runtime::init::init(environment) };
        #[cfg(all(versions, target_arch = "x86_64"))]
        if is_watched {
            cond::resolve_oldest();
        }
        #[cfg(not(all(versions, target_arch = "x86_64")))]
        let _ = is_watched;
    }
    init
};

lockwright_runtime::call_at_exit!();

/// For programs with a runtime of their own: their runtime calls ours instead. See `runtime::sync`.
#[unsafe(no_mangle)]
pub static lockwright_preloaded: &Table = &TABLE;

/// The core library needs a panic handler, though our code never panics. If it does, it must not fail silently.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// The prebuilt core library refers to this symbol. glibc's cancellation unwinds through our frames, which have
/// nothing to clean up: 8 is `_URC_CONTINUE_UNWIND`.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> c_int {
    8
}
