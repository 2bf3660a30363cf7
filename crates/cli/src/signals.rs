//! The program's signals are what our own parent meant them to be, as if we had not been there.
//!
//! Rust ignores SIGPIPE before `main`, and its `Command` resets SIGPIPE and the mask of blocked signals
//! when it starts a program. Here is what was there before.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Did our parent ignore SIGPIPE?
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's own start-up, which changes what it records.
#[used]
// SAFETY: the section takes pointers to functions of this type, which need nothing of Rust's start-up.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = {
    extern "C" fn record() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `action` is writable; all-zero bytes are a value of it if the call fails.
        let action = unsafe {
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        PIPE_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Relaxed); // one thread as yet
    }
    record
};

/// Lets the program of `command` inherit what we inherited.
pub(crate) fn pass_on(command: &mut Command) {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `mask` is writable; all-zero bytes are the empty set.
    let mask = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
        mask.assume_init()
    };
    let restore = move || {
        let pipe = if PIPE_IGNORED.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: legal between fork and exec; the mask is one that we had.
        let done = unsafe {
            libc::signal(libc::SIGPIPE, pipe) != libc::SIG_ERR
                && libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes two system calls, nothing else.
    unsafe { command.pre_exec(restore) };
}
