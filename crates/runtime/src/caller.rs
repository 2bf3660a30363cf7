//! Where the program called us: for those who say who locks, and who holds.

use crate::{access, thread};
use core::ffi::c_ulong;
use core::ptr::without_provenance_mut;
use lockwright_record::pieces::PIECE;

/// A call of the program's; zeroes: not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Its return address.
    pub(crate) from: usize,
    /// The frame pointer, which a program without frame pointers uses for anything.
    pub(crate) frame: usize,
    /// The stack pointer after it.
    pub(crate) stack: usize,
}

impl Call {
    /// Not known.
    pub(crate) const UNKNOWN: Self = Self { from: 0, frame: 0, stack: 0 };

    /// What a naked function has passed on: the frame pointer, and the stack pointer after the call. Below that lies the return
    /// address, until the function has returned.
    ///
    /// # Safety
    /// `stack` is that, of a call that has not returned.
    #[cfg(target_arch = "x86_64")]
    pub(crate) unsafe fn of_naked(frame: usize, stack: usize) -> Self {
        // SAFETY: the caller's promise.
        let from = unsafe { *core::ptr::with_exposed_provenance::<usize>(stack - 8) };
        Self { from, frame, stack }
    }

    /// There it is the link register that is passed on instead of the frame pointer.
    ///
    /// # Safety
    /// None.
    #[cfg(target_arch = "aarch64")] // untested
    pub(crate) unsafe fn of_naked(link: usize, stack: usize) -> Self {
        Self { from: link, frame: 0, stack }
    }

    /// What a reader needs to unwind the stack.
    pub(crate) fn registers(self) -> [u64; 3] {
        [self.from as u64, self.stack as u64, self.frame as u64]
    }

    /// A number for all calls from there.
    pub(crate) fn site_key(self) -> u64 {
        (self.from as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// A number for all calls from there at this depth of the stack. A thread's block lies at the end of its stack: so threads that
    /// come the same way are as deep.
    pub(crate) fn key(self) -> u64 {
        let depth = thread::pointer().wrapping_sub(self.stack) as u64;
        (self.site_key() ^ depth).wrapping_mul(0xff51_afd7_ed55_8ccd)
    }

    /// Copies a piece of the stack, [`PIECE`] bytes at most; returns its length. The kernel reads it, which answers instead of
    /// faulting at the stack's end; a process that may not ask it has no stacks.
    pub(crate) fn copy_stack(self, to: *mut u8) -> usize {
        const PAGE: usize = 4096;
        if access::is_fenced() || access::is_confined() {
            return 0;
        }
        // One page after another: what is there of them is copied.
        let (mut at, end) = (self.stack, self.stack.saturating_add(PIECE));
        let from: [libc::iovec; 3] = core::array::from_fn(|_| {
            let len = (PAGE - at % PAGE).min(end - at);
            let piece = libc::iovec { iov_base: without_provenance_mut(at), iov_len: len };
            at += len;
            piece
        });
        let to = libc::iovec { iov_base: to.cast(), iov_len: PIECE };
        // SAFETY: the kernel writes to the room that we were given, no more than its length, and checks what it reads.
        let got = unsafe {
            // All of a register's width: the last one comes by the stack.
            let (one, all, none) = (1 as c_ulong, from.len() as c_ulong, 0 as c_ulong);
            let (to, from) = (&raw const to, from.as_ptr());
            libc::syscall(libc::SYS_process_vm_readv, libc::getpid(), to, one, from, all, none)
        };
        usize::try_from(got).unwrap_or(0)
    }
}

/// `$name`: `$to`, with the caller's return address, its frame pointer and its stack pointer as further arguments, from the third
/// on. (After a tail call, as here, the caller is the program's own function. Else it is one of ours, which readers see by the
/// address.)
macro_rules! with_caller {
    ($($(#[$doc:meta])* $name:ident($lock:ty $(, $argument:ident)?) = $to:ident;)*) => { $(
        $(#[$doc])*
        #[cold]
        #[unsafe(naked)]
        unsafe extern "C" fn $name(m: $lock $(, $argument: usize)?) -> core::ffi::c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "mov rdx, [rsp]",
                "mov rcx, rbp",
                "lea r8, [rsp + 8]",
                "jmp {}",
                sym $to,
            );
            #[cfg(target_arch = "aarch64")] // untested
            core::arch::naked_asm!("mov x2, x30", "mov x3, x29", "mov x4, sp", "b {}", sym $to);
        }
    )* };
}
pub(crate) use with_caller;
