//! What we may ask of the kernel: a process may confine itself, or be started confined.

use crate::thread;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use lockwright_record::file;

/// The process has confined itself: we ask nothing any more.
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The process was started with a filter of system calls.
static FENCED: AtomicBool = AtomicBool::new(false);

/// What we may ask of the kernel: a filter of system calls may kill the process for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anything: there is no filter.
    All,
    /// `open`, `read` and `close`: the filter is older than the program, and the dynamic linker could not have loaded
    /// us without these. Every process in a container lives behind such a filter.
    Files,
    /// Nothing: the process has confined itself.
    None,
}

/// Looks for a filter that the process was started with, before the process can install its own. Called by the
/// constructor.
///
/// Only `prctl` tells, and a file that costs 50 us here. The process does not survive a filter that kills for `prctl`.
/// But setting a thread's name needs it, too, and all filters that we know allow it.
pub(crate) fn begin() {
    FENCED.store(is_filtered(), Relaxed); // before there are threads
}

/// Is there a filter over the calling thread?
fn is_filtered() -> bool {
    thread::leaving_errno(|| {
        // SAFETY: the operation takes no arguments. Not by libc's name, which is ours where we are preloaded.
        let mode = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
        // A kernel without filters says EINVAL. Another error is a filter's.
        // SAFETY: the calling thread's own word.
        if mode < 0 { unsafe { *libc::__errno_location() != libc::EINVAL } } else { mode != 0 }
    })
}

/// What the calling thread may ask of the kernel now.
pub(crate) fn now() -> Access {
    if is_confined() {
        Access::None
    } else if FENCED.load(Relaxed) {
        Access::Files
    } else if is_filtered() {
        Access::None // without `prctl`: by a system call of its own
    } else {
        Access::All
    }
}

/// Was the process started with a filter?
pub(crate) fn is_fenced() -> bool {
    FENCED.load(Relaxed) // written before there are threads
}

/// Is the process confined, as far as we know?
pub(crate) fn is_confined() -> bool {
    CONFINED.load(Relaxed) // by itself
}

/// The same, for a caller that has just announced that it is about to ask.
pub(crate) fn is_confined_now() -> bool {
    // ORDERING: SeqCst, pairs with `confine`: the confining thread sees what was written before in that order, or we
    // see it confine.
    CONFINED.load(SeqCst)
}

/// The process confines itself from here on.
pub(crate) fn confine() {
    // ORDERING: SeqCst, pairs with `is_confined_now`.
    CONFINED.store(true, SeqCst);
    file::ask_no_more();
}
