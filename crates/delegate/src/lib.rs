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

// Elsewhere it is empty.
#[cfg(target_arch = "x86_64")]
mod account;
#[cfg(target_arch = "x86_64")]
mod behind;
#[cfg(target_arch = "x86_64")]
mod choice;
#[cfg(target_arch = "x86_64")]
mod hooks;
#[cfg(target_arch = "x86_64")]
mod init;
#[cfg(target_arch = "x86_64")]
mod list;
#[cfg(target_arch = "x86_64")]
mod section;
#[cfg(target_arch = "x86_64")]
mod switch;
#[cfg(target_arch = "x86_64")]
mod thread;
#[cfg(target_arch = "x86_64")]
mod watch;

// Without this we would not be linked to libc, and our references to its symbols would have no version.
#[link(name = "c")]
unsafe extern "C" {}

/// The core library needs a panic handler, though our code never panics. If it does, it must not fail silently.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// The prebuilt core library refers to this symbol; nothing unwinds through our frames but foreign unwinders: 8 is `_URC_CONTINUE_UNWIND`.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> core::ffi::c_int {
    8
}
