//! Runs what one thread at a time does now and then on a stack of our own: reading the kernel's files, taking up what commands post, making
//! the table of counts. That takes several kilobytes, and the thread that has to do it waits for a lock, perhaps on a small stack: an alternate
//! signal stack, a coroutine's, or one of PTHREAD_STACK_MIN bytes.
//!
//! Meanwhile the thread takes no signals: a handler would run on our stack, and might not return. It is a matter of microseconds. Signals that the
//! thread's own instructions cause can't wait: the kernel would kill the program, even one that handles them.

use crate::access::{self, Access};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use lockwright_native::{signals, system_call};

/// Bytes of such a stack. Pages that are never touched take no memory.
const SIZE: usize = 64 * 1024;

/// A stack.
#[repr(C, align(4096))]
pub(crate) struct SpareStack(UnsafeCell<MaybeUninit<[u8; SIZE]>>);

// SAFETY: by the promise of `run`'s callers, one thread at a time uses it.
unsafe impl Sync for SpareStack {}

impl SpareStack {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    /// Runs `run` there. (In a process that has confined itself, on the thread's own stack: a filter may kill for the question.)
    ///
    /// # Safety
    /// No other thread uses this stack. `run` returns: it neither ends the thread, nor jumps away.
    #[inline(never)] // what it needs must not lie in the frame of a thread that only waits
    pub(crate) unsafe fn run<F: FnOnce()>(&self, run: F) {
        unsafe extern "C" fn body<F: FnOnce()>(run: *mut c_void) {
            // SAFETY: passed below, once.
            unsafe { run.cast::<F>().read()() };
        }
        access::asking(|access| {
            if cfg!(test) || access == Access::None {
                return run(); // tests end their threads there
            }
            const SET: usize = size_of::<signals::Set>();
            let (all, mut before): (signals::Set, signals::Set) = (!signals::AT_ONCE, 0);
            let mut run = MaybeUninit::new(run);
            let top = self.0.get().cast::<u8>();
            // SAFETY: the thread's own mask, and sets of that size. The stack is ours by the caller's promise, and `body` gets what it
            // expects.
            unsafe {
                let mask = libc::SYS_rt_sigprocmask;
                system_call!(mask, libc::SIG_SETMASK, &raw const all, &raw mut before, SET);
                call(run.as_mut_ptr().cast(), body::<F>, top.add(SIZE));
                system_call!(mask, libc::SIG_SETMASK, &raw const before, 0_usize, SET);
            }
        });
    }
}

/// Calls `function` with `data`, on the stack that ends at `top`.
///
/// # Safety
/// Nobody else uses that stack.
#[unsafe(naked)]
unsafe extern "C" fn call(
    data: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    top: *mut u8,
) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
    #[cfg(target_arch = "aarch64")] // untested
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, -16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], 16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    );
}
