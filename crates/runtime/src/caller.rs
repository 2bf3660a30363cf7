//! Where the program called us from: for reports on who locks, and who holds.

use crate::{access, thread};
use core::ptr::without_provenance_mut;
use lockwright_contract::pieces::PIECE;

/// One of the program's calls to us; zeroes: not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// Its return address.
    pub(crate) from: usize,
    /// The frame pointer. In a program without frame pointers this register may hold anything.
    pub(crate) frame: usize,
    /// The stack pointer after the call.
    pub(crate) stack: usize,
}

impl Call {
    /// Not known.
    pub(crate) const UNKNOWN: Self = Self { from: 0, frame: 0, stack: 0 };

    /// From what a naked function passed on: the frame pointer, and the stack pointer after the call. The return address lies
    /// right below, until the function returns.
    ///
    /// # Safety
    /// `stack` is that stack pointer, of a call that has not returned.
    #[cfg(target_arch = "x86_64")]
    pub(crate) unsafe fn of_naked(frame: usize, stack: usize) -> Self {
        // SAFETY: the caller's promise.
        let from = unsafe { *core::ptr::with_exposed_provenance::<usize>(stack - 8) };
        Self { from, frame, stack }
    }

    /// On this architecture the naked function passes on the link register instead of the frame pointer.
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

    /// A number for all calls from the same place.
    pub(crate) fn site_key(self) -> u64 {
        (self.from as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// A number for all calls from the same place at the same depth of the stack. The depth is measured from the thread's block, at the
    /// end of its stack: so threads that take the same path get the same number.
    pub(crate) fn key(self) -> u64 {
        let depth = thread::pointer().wrapping_sub(self.stack) as u64;
        (self.site_key() ^ depth).wrapping_mul(0xff51_afd7_ed55_8ccd)
    }

    /// Copies a piece of the stack, [`PIECE`] bytes at most; returns its length. The kernel does the reading: at the stack's end it
    /// stops short instead of faulting. A process that may not ask the kernel gets no stacks.
    pub(crate) fn copy_stack(self, to: *mut u8) -> usize {
        const PAGE: usize = 4096;
        // Page by page, so that the pages that exist are copied.
        let (mut at, end) = (self.stack, self.stack.saturating_add(PIECE));
        let from: [libc::iovec; 3] = core::array::from_fn(|_| {
            let len = (PAGE - at % PAGE).min(end - at);
            let piece = libc::iovec { iov_base: without_provenance_mut(at), iov_len: len };
            at += len;
            piece
        });
        // SAFETY: the pieces are at most PIECE bytes together, for which we were given room.
        unsafe { access::copy(to, &from) }
    }
}

/// Defines `$name`, which calls `$to` with three more arguments, from the third on: the caller's return address, frame pointer and
/// stack pointer. (Where we come here by a tail call, the caller is the program's own function. Otherwise it is one of ours, which
/// readers recognise by the address.)
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

/// Defines `$name`, which calls `$to` with its own arguments, four at most, and with two more as the fifth and the sixth: what
/// [`Call::of_naked`] asks for. (In a naked function the program's registers are unchanged.)
#[macro_export]
macro_rules! with_frame {
    ($(
        $(#[$doc:meta])*
        $abi:literal $seen:vis $name:ident($($argument:ident: $kind:ty),*) = $to:path;
    )*) => { $(
        $(#[$doc])*
        #[unsafe(naked)]
        $seen unsafe extern $abi fn $name($($argument: $kind),*) -> core::ffi::c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov r8, rbp", "lea r9, [rsp + 8]", "jmp {}", sym $to);
            #[cfg(target_arch = "aarch64")] // untested
            core::arch::naked_asm!("mov x4, x30", "mov x5, sp", "b {}", sym $to);
        }
    )* };
}
pub(crate) use with_frame;
