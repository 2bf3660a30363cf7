//! When may a policy's memory go? When no thread is in one of its hooks, nor will be.
//!
//! ```text
//!   a thread                                        who takes a policy away
//!     marks its cell: it is about to ask slot N       1. CURRENT[N] = null
//!     barrier A ([enter])                             2. barrier B ([barrier])
//!     reads CURRENT[N]                                3. looks at all cells
//!     marks its cell: it is in this policy
//!     runs the hook
//!     clears the mark (Release)
//! ```
//!
//! Of the two barriers one comes first. If A does, step 3 sees the mark, or what the thread wrote later: that it is in this policy,
//! in another one, or out again, and then all that the hook did comes before. If B does, the thread reads null. Either way a policy whose
//! mark no cell has is in no thread's hands. A signal handler that interrupts this finds the mark and doesn't ask.
//!
//! Where the kernel has `membarrier`, B makes it a barrier in all running threads, and A costs nothing. Elsewhere A is a fence. The
//! process never asks for `membarrier` if it runs under a filter of system calls; if it confines itself later, nothing is unmapped.

use crate::access::{self, Access};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{compiler_fence, fence};
use lockwright_native::system_call;

/// Barrier B is the kernel's. It never changes back.
static IS_KERNELS: AtomicBool = AtomicBool::new(false);

const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// Asks whether it may before each call, not once for several: where there are threads, the kernel takes tens of milliseconds to
/// register a process, and the process may confine itself meanwhile.
fn membarrier(command: i32) -> bool {
    access::asking(|access| {
        // SAFETY: it changes no memory.
        access == Access::All && unsafe { system_call!(libc::SYS_membarrier, command, 0, 0) == 0 }
    })
}

/// Before the first policy is loaded.
pub(super) fn prepare() {
    // Relaxed: only the thread whose turn BUSY is writes it, here and in `barrier`.
    if !IS_KERNELS.load(Relaxed)
        && membarrier(REGISTER_PRIVATE_EXPEDITED)
        && membarrier(PRIVATE_EXPEDITED)
    {
        // ORDERING: Release, pairs with the Acquire in `enter`: a thread that relies on the kernel's barrier also sees what those did
        // who relied on fences.
        IS_KERNELS.store(true, Release);
    }
}

/// Barrier A.
#[inline(always)]
pub(super) fn enter() {
    // ORDERING: Acquire, pairs with the Release in `prepare`.
    if IS_KERNELS.load(Acquire) {
        // ORDERING: SeqCst, for the compiler alone: the kernel's barrier falls before the mark, or after the load.
        compiler_fence(SeqCst);
    } else {
        // ORDERING: SeqCst, forbids the cycle with the fence in `barrier`: no mark seen there, and the old pointer here.
        fence(SeqCst);
    }
}

/// Barrier B. `false`: there was none.
pub(super) fn barrier() -> bool {
    if !IS_KERNELS.load(Relaxed) {
        // ORDERING: SeqCst, pairs with the fence in `enter`.
        fence(SeqCst);
        return true;
    }
    // A child may have to register anew.
    let again = || membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
    membarrier(PRIVATE_EXPEDITED) || again()
}
