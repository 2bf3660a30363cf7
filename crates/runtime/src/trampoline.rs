//! The code between a caller and a function whose calls are epochs (x86-64).
//!
//! ```text
//!   caller's GOT slot ──► stub N ──► common: enter(epoch of N) ─ call target of N ─ leave ──► caller
//! ```
//!
//! The stubs are 256 copies of the same instructions; the address of the stub that runs identifies its target and
//! epoch. `common` preserves every argument register, copies 256 bytes of stack arguments, and returns what the
//! target returned (rax, rdx, xmm0, xmm1; nothing touches the x87 registers). Its frame is an ordinary one with
//! unwind tables: exceptions, cancellation and backtraces go through it.
//!
//! It supports targets that read up to 256 bytes of arguments from the stack, that throw, are cancelled, or are left by
//! `longjmp`. It doesn't support targets that look at their caller's frame or return twice (`setjmp`, `vfork`, `dlsym`);
//! `got.rs` refuses the known ones.
//!
//! The upper halves of ymm and zmm registers (a `__m256` passed by value) are not saved. They survive as long as this
//! crate is compiled without AVX, as it is by default, and `enter` and `leave` call none of libc's string functions. In a
//! thread's steady state they call none, but a thread's first call of an epoch may lose the upper halves.

use crate::epoch;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicUsize};
use lockwright_native::system_call;

/// The number of stubs, one for each target. A name has several targets if libraries bring their own definitions.
pub(crate) const STUBS: usize = 256;
/// Bytes from one stub to the next.
const STRIDE: usize = 16;
/// How many bytes of stack arguments are passed on.
const ARGUMENTS: usize = 256;

/// Where each stub leads. Written before anybody gets the stub's address.
static TARGETS: [AtomicUsize; STUBS] = [const { AtomicUsize::new(0) }; STUBS];
/// The epoch of each stub.
static EPOCHS: [AtomicU32; STUBS] = [const { AtomicU32::new(0) }; STUBS];

unsafe extern "C" {
    #[link_name = "lockwright_stubs"]
    static CODE: [u8; STUBS * STRIDE];
}

// The frame of `common`, from rbp down: rax rdi rsi rdx rcx r8 r9 r10, the stub, the target, xmm0 to xmm7,
// 32 bytes unused, and at rsp the copy of the stack arguments. 496 is 512 minus the 16 bytes between rbp and the
// caller's arguments, so the copy has the same alignment to 64 bytes as the original.
core::arch::global_asm!(
    ".pushsection .text.lockwright_trampoline,\"ax\",@progbits",
    ".balign 64",
    ".hidden lockwright_stubs",
    ".globl lockwright_stubs",
    ".type lockwright_stubs, @function",
    "lockwright_stubs:",
    ".cfi_startproc",
    ".rept {stubs}",
    ".balign {stride}",
    "endbr64",
    "lea r11, [rip]",
    "jmp 30f",
    ".endr",
    ".balign {stride}",
    ".cfi_endproc",
    ".size lockwright_stubs, . - lockwright_stubs",
    "30:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {personality}",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 496",
    "mov [rbp - 8], rax",
    "mov [rbp - 16], rdi",
    "mov [rbp - 24], rsi",
    "mov [rbp - 32], rdx",
    "mov [rbp - 40], rcx",
    "mov [rbp - 48], r8",
    "mov [rbp - 56], r9",
    "mov [rbp - 64], r10",
    "lea rdi, [rip + lockwright_stubs]",
    "sub r11, rdi",
    "shr r11, 4",
    "mov [rbp - 72], r11",
    "movups [rbp - 96], xmm0",
    "movups [rbp - 112], xmm1",
    "movups [rbp - 128], xmm2",
    "movups [rbp - 144], xmm3",
    "movups [rbp - 160], xmm4",
    "movups [rbp - 176], xmm5",
    "movups [rbp - 192], xmm6",
    "movups [rbp - 208], xmm7",
    "mov rdi, r11",
    "mov rsi, rbp",
    "call {enter}",
    "mov [rbp - 80], rax",
    "cmp rdx, {arguments}",
    "jne 32f",
    ".irp at, 0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240",
    "movups xmm0, [rbp + 16 + \\at]",
    "movups [rsp + \\at], xmm0",
    ".endr",
    "31:",
    "movups xmm0, [rbp - 96]",
    "movups xmm1, [rbp - 112]",
    "movups xmm2, [rbp - 128]",
    "movups xmm3, [rbp - 144]",
    "movups xmm4, [rbp - 160]",
    "movups xmm5, [rbp - 176]",
    "movups xmm6, [rbp - 192]",
    "movups xmm7, [rbp - 208]",
    "mov rax, [rbp - 8]",
    "mov rdi, [rbp - 16]",
    "mov rsi, [rbp - 24]",
    "mov rdx, [rbp - 32]",
    "mov rcx, [rbp - 40]",
    "mov r8, [rbp - 48]",
    "mov r9, [rbp - 56]",
    "mov r10, [rbp - 64]",
    "call [rbp - 80]",
    "mov [rbp - 8], rax",
    "mov [rbp - 32], rdx",
    "movups [rbp - 96], xmm0",
    "movups [rbp - 112], xmm1",
    "mov rdi, [rbp - 72]",
    "mov rsi, rbp",
    "call {leave}",
    "mov rax, [rbp - 8]",
    "mov rdx, [rbp - 32]",
    "movups xmm0, [rbp - 96]",
    "movups xmm1, [rbp - 112]",
    ".cfi_remember_state",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    // Fewer than 256 bytes lie above the caller's frame.
    ".cfi_restore_state",
    "32:",
    "mov rcx, rdx",
    "lea rsi, [rbp + 16]",
    "mov rdi, rsp",
    "rep movsb",
    "jmp 31b",
    ".cfi_endproc",
    ".popsection",
    stubs = const STUBS,
    stride = const STRIDE,
    arguments = const ARGUMENTS,
    personality = sym personality,
    enter = sym enter,
    leave = sym leave,
);

// The page that this thread's `readable` last asked about; 0: none yet.
core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".hidden lockwright_readable",
    ".globl lockwright_readable",
    ".type lockwright_readable, @object",
    ".size lockwright_readable, 8",
    "lockwright_readable:",
    ".zero 8",
    ".popsection",
);

/// What `common` needs to go on.
#[repr(C)]
struct Entered {
    target: usize,
    /// Bytes of stack arguments to copy.
    arguments: usize,
}

/// `frame` is the trampoline's frame pointer: the caller's stack arguments begin 16 bytes above.
extern "C" fn enter(stub: usize, frame: usize) -> Entered {
    // This stub's values, written before anybody could get here.
    let (target, index) = (TARGETS[stub].load(Relaxed), EPOCHS[stub].load(Relaxed));
    with_errno_kept(|| {
        let arguments = readable(frame + 16);
        epoch::enter(index, frame);
        Entered { target, arguments }
    })
}

extern "C" fn leave(stub: usize, frame: usize) {
    with_errno_kept(|| epoch::leave(EPOCHS[stub].load(Relaxed), frame)); // as in `enter`
}

/// Runs `body`, and restores `errno`: it is part of what a function gets and returns.
#[inline(always)]
fn with_errno_kept<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: no preconditions; the calling thread's own word.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = body();
        *errno = before;
        result
    }
}

/// How many of the 256 bytes from `start` on are readable: a coroutine's stack may end where the frame of its first
/// function's caller would be.
#[inline(always)]
fn readable(start: usize) -> usize {
    const PAGE: usize = 4096;
    let room = PAGE - start % PAGE;
    if room >= ARGUMENTS || is_readable(start + room) { ARGUMENTS } else { room }
}

/// Is this page readable? Remembers one page for each thread. That is safe, although stacks come and go: a program that put
/// unreadable memory where this thread just had a stack would have to run on the stack right below it.
fn is_readable(page: usize) -> bool {
    let known: *mut usize;
    // SAFETY: computes an address: the thread pointer plus this module's static TLS offset.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + lockwright_readable@GOTTPOFF]",
            at = out(reg) known, options(nostack, pure, readonly),
        );
    }
    // SAFETY: the calling thread's own memory.
    if unsafe { *known } == page {
        return true;
    }
    // SAFETY: the kernel reads the new mask at `page` before it sees that operation -1 doesn't exist; if it can't read it, it
    // says EFAULT. Neither has an effect.
    let readable = unsafe {
        let none = core::ptr::null_mut::<c_void>();
        system_call!(libc::SYS_rt_sigprocmask, -1_i64, page, none, 8_usize)
            != -libc::c_long::from(libc::EFAULT)
    };
    if readable {
        // SAFETY: the calling thread's own memory.
        unsafe { *known = page };
    }
    readable
}

/// The unwinder calls this for our frame. In its second phase it takes the frame down, so the epoch ends here,
/// without a sample. It visits innermost frames first, so the innermost epoch is this frame's. (The unwinder's
/// functions could tell the frame's address, but a program may have them anywhere, or not at all.)
extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;
    if actions & CLEANUP_PHASE != 0 {
        epoch::abort();
    }
    CONTINUE_UNWIND
}

/// Is this the address of a stub?
pub(crate) fn is_stub(address: usize) -> bool {
    let start = (&raw const CODE).addr();
    (start..start + STUBS * STRIDE).contains(&address)
}

/// The stub that makes calls of `target` epochs with this index; `None`: all stubs are taken.
///
/// # Safety
/// One thread at a time. `target` is a function's address.
pub(crate) unsafe fn stub(target: usize, index: u32) -> Option<usize> {
    // One writer at a time, which is us.
    let is = |at: &usize, wanted: usize| TARGETS[*at].load(Relaxed) == wanted;
    let known = (0..STUBS).find(|at| is(at, target) && EPOCHS[*at].load(Relaxed) == index);
    let at = known.or_else(|| {
        let free = (0..STUBS).find(|at| is(at, 0))?;
        EPOCHS[free].store(index, Relaxed); // nobody has this stub's address yet
        TARGETS[free].store(target, Relaxed); // the same
        Some(free)
    })?;
    Some((&raw const CODE).addr() + at * STRIDE)
}

/// Takes back every stub whose target is gone, as `gone` says.
///
/// # Safety
/// One thread at a time. Nobody can be in, or reach, the stubs of targets that are gone.
pub(crate) unsafe fn reclaim(gone: impl Fn(usize) -> bool) {
    for target in &TARGETS {
        let known = target.load(Relaxed); // one writer at a time, which is us
        if known != 0 && gone(known) {
            target.store(0, Relaxed); // nobody can read it
        }
    }
}
