//! What we may ask the kernel for: a process may confine itself, or be started confined, and then a filter of system calls (seccomp) may
//! kill it for what we ask.
//!
//! ```text
//!   a thread that asks                       a thread that confines the process by our `prctl`
//!     1. counts itself in ASKING               1. CONFINED = true
//!     2. reads CONFINED: asks for nothing?     2. waits until ASKING is 0
//!     3. asks, and counts itself out           3. installs the filter
//! ```

use crate::futex::{self, Deadline, Sleeper};
use crate::kernel::system_call;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};

/// The process has confined itself: we no longer ask for anything.
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The process was started with a filter of system calls.
#[unsafe(link_section = ".lockwright.start")]
static FENCED: AtomicBool = AtomicBool::new(false);
/// Threads that may be asking just now.
static ASKING: AtomicU32 = AtomicU32::new(0);

/// What we may ask the kernel for: a filter of system calls may kill the process for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anything: there is no filter.
    All,
    /// `open`, `read` and `close`: the filter is older than the program, and without these the dynamic linker could not
    /// have loaded us. Every process in a container runs under such a filter.
    Files,
    /// Nothing: the process has confined itself.
    None,
}

/// Looks for a filter that the process was started with, before the process can install its own. Called by a constructor.
///
/// Only `prctl` tells, or a file that costs 50 us here. If a filter kills for `prctl`, the process does not survive this.
/// But setting a thread's name needs `prctl`, too, and all filters that we know allow it.
pub fn begin() {
    FENCED.store(is_filtered(), Relaxed); // before there are threads
}

/// Does the calling thread run under a filter?
fn is_filtered() -> bool {
    // SAFETY: the operation takes no arguments. (Not by libc's `prctl`: where we are preloaded, that name is ours.)
    let mode = unsafe { system_call!(libc::SYS_prctl, libc::PR_GET_SECCOMP) };
    // A kernel without filters says EINVAL. Any other error comes from a filter.
    mode != 0 && mode != -libc::c_long::from(libc::EINVAL)
}

/// Runs `ask` with what the calling thread may ask the kernel for. The process isn't confined by our `prctl` before it has returned. (It
/// may be by the system call itself.)
#[inline(always)] // no frame more on the stack of a thread that waits
pub fn asking<R>(ask: impl FnOnce(Access) -> R) -> R {
    // ORDERING: SeqCst, pairs with `confine`: the confining thread sees us asking, or we see that it confines.
    ASKING.fetch_add(1, SeqCst);
    // ORDERING: SeqCst, as above.
    let access = match CONFINED.load(SeqCst) {
        true => Access::None,
        false => unconfined(),
    };
    let answer = ask(access);
    // A signal handler may have forked meanwhile, and the child has begun anew: it doesn't count below 0.
    // ORDERING: Release, pairs with the load in `confine`: what was asked is over.
    let _ = ASKING.fetch_update(Release, Relaxed, |threads| threads.checked_sub(1));
    answer
}

#[cold]
fn unconfined() -> Access {
    if is_fenced() {
        Access::Files
    } else if is_filtered() {
        Access::None // it has installed a filter, but not through our `prctl`
    } else {
        Access::All
    }
}

/// Was the process started with a filter?
pub fn is_fenced() -> bool {
    FENCED.load(Relaxed) // written before there are threads
}

/// Is the process confined, as far as we know? A hint, for callers that ask for nothing, or look again before they do.
pub fn is_confined() -> bool {
    CONFINED.load(Relaxed) // guards no other data
}

/// From here on the process is confined: nobody asks any more once this has returned. (It gives up after a second. It may be in a signal
/// handler that interrupted a thread that asks, and handlers that don't return leave such a thread counted.)
#[cold]
pub fn confine() {
    // ORDERING: SeqCst, pairs with `asking`.
    CONFINED.store(true, SeqCst);
    for _ in 0..1000 {
        // ORDERING: SeqCst, pairs with both in `asking`.
        let threads = ASKING.load(SeqCst);
        if threads == 0 {
            return;
        }
        // Nobody wakes us. A filter that is there already allows this call.
        let _ =
            futex::wait(ASKING.as_ptr(), threads, Some(Deadline::after(1_000_000)), Sleeper::Own);
    }
}

/// This process is a child, and has one thread, which asks for nothing.
pub fn forked() {
    ASKING.store(0, Relaxed); // one thread
}
