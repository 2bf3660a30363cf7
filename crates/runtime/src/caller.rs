//! Where the program called us: for those who say who locks, and who holds.

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
