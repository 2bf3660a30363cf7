//! What we may ask the kernel for: a process may confine itself, or be started confined.

use core::ffi::c_ulong;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use lockwright_contract::file;
use lockwright_native::{kernel, system_call};

/// The process has confined itself: we no longer ask for anything.
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The process was started with a filter of system calls.
#[unsafe(link_section = ".lockwright.start")]
static FENCED: AtomicBool = AtomicBool::new(false);

/// What we may ask the kernel for: a filter of system calls may kill the process for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anything: there is no filter.
    All,
    /// `open`, `read` and `close`: the filter is older than the program, and without these the dynamic linker could not
    /// have loaded us. Every process in a container runs under such a filter.
    Files,
    /// Nothing: the process has confined itself.
    None,
}

/// Looks for a filter that the process was started with, before the process can install its own. Called by the
/// constructor.
///
/// Only `prctl` tells, or a file that costs 50 us here. If a filter kills for `prctl`, the process does not survive this.
/// But setting a thread's name needs `prctl`, too, and all filters that we know allow it.
pub(crate) fn begin() {
    FENCED.store(is_filtered(), Relaxed); // before there are threads
}

/// Does the calling thread run under a filter?
fn is_filtered() -> bool {
    // SAFETY: the operation takes no arguments. (Not by libc's `prctl`: where we are preloaded, that name is ours.)
    let mode = unsafe { system_call!(libc::SYS_prctl, libc::PR_GET_SECCOMP) };
    // A kernel without filters says EINVAL. Any other error comes from a filter.
    mode != 0 && mode != -libc::c_long::from(libc::EINVAL)
}

/// What the calling thread may ask the kernel for now.
pub(crate) fn now() -> Access {
    if is_confined() {
        Access::None
    } else if FENCED.load(Relaxed) {
        Access::Files
    } else if is_filtered() {
        Access::None // it has installed a filter, but not through our `prctl`
    } else {
        Access::All
    }
}

/// Copies memory of our own process that may not exist, piece by piece, into `to`. The kernel does the reading: it stops short instead of faulting. Returns how many bytes it copied; none, if we
/// may not ask it.
///
/// # Safety
/// `to` has room for the sum of the pieces.
#[cold]
pub(crate) unsafe fn copy(to: *mut u8, from: &[libc::iovec]) -> usize {
    // Not just whether we know of a filter: one that was installed without our `prctl` may kill for this call.
    if now() != Access::All {
        return 0;
    }
    let to =
        libc::iovec { iov_base: to.cast(), iov_len: from.iter().map(|piece| piece.iov_len).sum() };
    // SAFETY: the kernel writes at most its length into the room that the caller promises, and checks what it reads.
    let got = unsafe {
        // Each as wide as a register, since the last one is passed on the stack.
        let (one, all, none) = (1 as c_ulong, from.len() as c_ulong, 0 as c_ulong);
        let (to, from) = (&raw const to, from.as_ptr());
        system_call!(libc::SYS_process_vm_readv, kernel::process_id(), to, one, from, all, none)
    };
    usize::try_from(got).unwrap_or(0)
}

/// Was the process started with a filter?
pub(crate) fn is_fenced() -> bool {
    FENCED.load(Relaxed) // written before there are threads
}

/// Is the process confined, as far as we know?
pub(crate) fn is_confined() -> bool {
    CONFINED.load(Relaxed) // guards no other data
}

/// The same, for a caller that has just announced that it is about to ask.
pub(crate) fn is_confined_now() -> bool {
    // ORDERING: SeqCst, pairs with `confine`: either the confining thread sees the announcement, or we see it confine.
    CONFINED.load(SeqCst)
}

/// From here on the process is confined.
pub(crate) fn confine() {
    // ORDERING: SeqCst, pairs with `is_confined_now`.
    CONFINED.store(true, SeqCst);
    file::ask_no_more();
}
