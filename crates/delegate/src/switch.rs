//! Switches between contexts: a stack, the registers that a call keeps, and the thread pointer.
//!
//! ```text
//!   a suspended context, from its stack pointer up:  mxcsr, x87 control │ r15 r14 r13 r12 rbx rbp │ return address
//! ```
//!
//! The thread pointer changes after the stack pointer. A signal between the two sees the new stack with the old thread, which is not in a
//! section: the handler of `watch.rs` lets it alone.

use core::arch::{asm, naked_asm};

/// A suspended context: its stack pointer.
pub(crate) type Context = *mut u8;

/// Suspends the caller into rdi, and goes to the stack in rsi.
macro_rules! suspend {
    () => {
        "push rbp
        push rbx
        push r12
        push r13
        push r14
        push r15
        sub rsp, 8
        stmxcsr [rsp]
        fnstcw [rsp + 4]
        mov [rdi], rsp
        mov rsp, rsi"
    };
}

/// Suspends the caller into `from`, and goes on with `to` under thread pointer `thread`.
///
/// # Safety
/// `to` was suspended by this, or by [`leave_stack`], and goes on once. The kernel lets programs set the thread pointer.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *mut Context, to: Context, thread: usize) {
    naked_asm!(
        suspend!(),
        "wrfsbase rdx",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Suspends the caller into `from`, and calls `run(argument)`, which doesn't return, on the stack that ends at `top`.
///
/// # Safety
/// `top` is aligned to 16, and the stack below it is unused.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave_stack(
    from: *mut Context,
    top: *mut u8,
    run: unsafe extern "C" fn(*mut u8) -> !,
    argument: *mut u8,
) {
    naked_asm!(suspend!(), "mov rdi, rcx", "xor ebp, ebp", "call rdx", "ud2",)
}

/// The caller's thread pointer.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let at: usize;
    // SAFETY: x86-64's thread pointer points to itself.
    unsafe { asm!("mov {}, fs:[0]", out(reg) at, options(nostack, readonly, preserves_flags)) };
    at
}

/// What a thread has beside its context, and no switch changes: GS's base, memory protection keys, and its shadow stack. A section runs
/// on another thread only if these are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extras {
    gs: usize,
    keys: u32,
    shadow_stack: usize,
}

impl Extras {
    /// The caller's. `has_keys`: the kernel has switched protection keys on.
    #[inline(always)]
    pub(crate) fn now(has_keys: bool) -> Self {
        let (gs, shadow_stack, mut keys): (usize, usize, u32);
        // SAFETY: reads registers. Without shadow stacks, `rdsspq` is a hint that does nothing.
        unsafe {
            asm!("rdgsbase {}", out(reg) gs, options(nostack, nomem, preserves_flags));
            asm!("rdsspq {}", inout(reg) 0_usize => shadow_stack, options(nostack, nomem));
        }
        keys = 0;
        if has_keys {
            // SAFETY: the kernel has switched them on.
            unsafe {
                asm!("rdpkru", in("ecx") 0, out("eax") keys, out("edx") _, options(nostack, nomem));
            }
        }
        Self { gs, keys, shadow_stack }
    }

    /// May another thread run the caller's sections at all? Not if returns are checked against a stack that doesn't change with ours.
    pub(crate) fn may_move(&self) -> bool {
        self.shadow_stack == 0
    }
}

/// Can programs set the thread pointer (AT_HWCAP2, `HWCAP2_FSGSBASE`), and are protection keys on?
pub(crate) fn abilities() -> (bool, bool) {
    const FSGSBASE: u64 = 2;
    /// CPUID leaf 7, ecx: OSPKE.
    const OSPKE: u32 = 1 << 4;
    // SAFETY: no preconditions.
    let can_switch = unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE != 0;
    let has_leaf = core::arch::x86_64::__cpuid(0).eax >= 7;
    let has_keys = has_leaf && core::arch::x86_64::__cpuid_count(7, 0).ecx & OSPKE != 0;
    (can_switch, has_keys)
}

/// The system call `number`.
///
/// # Safety
/// As that call says.
#[inline(always)]
pub(crate) unsafe fn system_call(number: i64, arguments: [usize; 4]) -> isize {
    let result: isize;
    let [a, b, c, d] = arguments;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}
