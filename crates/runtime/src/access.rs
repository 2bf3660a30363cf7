//! What we may ask the kernel for, and what we ask about our own memory.

use core::ffi::c_ulong;
pub(crate) use lockwright_native::access::*;
use lockwright_native::{kernel, system_call};

/// Copies memory of our own process that may not exist, piece by piece, into `to`. The kernel does the reading: it stops short instead of faulting. Returns how many bytes it copied; none, if we
/// may not ask it.
///
/// # Safety
/// `to` has room for the sum of the pieces.
#[cold]
pub(crate) unsafe fn copy(to: *mut u8, from: &[libc::iovec]) -> usize {
    let to =
        libc::iovec { iov_base: to.cast(), iov_len: from.iter().map(|piece| piece.iov_len).sum() };
    // SAFETY: the kernel writes at most its length into the room that the caller promises, and checks what it reads.
    let copy = || unsafe {
        // Each as wide as a register, since the last one is passed on the stack.
        let (one, all, none) = (1 as c_ulong, from.len() as c_ulong, 0 as c_ulong);
        let (to, from) = (&raw const to, from.as_ptr());
        system_call!(libc::SYS_process_vm_readv, kernel::process_id(), to, one, from, all, none)
    };
    let got = asking(|access| if access == Access::All { copy() } else { 0 });
    usize::try_from(got).unwrap_or(0)
}
