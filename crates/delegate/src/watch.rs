//! The watcher: a section that was asked for, and runs for too long, goes home.
//!
//! A section may wait for its carrier's own context in ways that no hook sees: it spins on a flag, or waits for a lock inside of libc. That
//! context can't go on before the section ends. Or the section waits for a signal, which is blocked. So a thread of ours looks at all
//! threads that run sections now and then, and sends a signal to one that has been in the same section for two looks. The handler
//! interrupts the section, and suspends it right there. The section goes on at home, in the handler's end.

use crate::account::{ROWS, account};
use crate::list::HOOKS;
use crate::section::is_sent_home;
use crate::switch::system_call;
use crate::thread::{IS_WATCHED, RUNNING, SIGNAL, this};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

/// How long a look is, ns.
const LOOK_NS: i64 = 5_000_000;

/// Takes a signal that the program doesn't use. `false`: none is left.
pub(crate) fn prepare() -> bool {
    for signal in (libc::SIGRTMIN() + 8..=libc::SIGRTMAX() - 2).rev() {
        // SAFETY: all zeroes is an action, which is then filled in.
        unsafe {
            let mut old: libc::sigaction = zeroed();
            if libc::sigaction(signal, null_mut(), &mut old) != 0
                || old.sa_sigaction != libc::SIG_DFL
            {
                continue;
            }
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = rescue as *const () as usize;
            // The signal mask stays as it is: the carrier leaves the handler without its end.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
            if libc::sigaction(signal, &action, null_mut()) == 0 {
                SIGNAL.store(signal, Relaxed);
                return true;
            }
        }
    }
    false
}

/// On the kernel thread that runs the section, in the section.
unsafe extern "C" fn rescue(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let thread = this();
    if thread.state() != RUNNING || !is_sent_home(thread) {
        return;
    }
    account().home[HOOKS].fetch_add(1, Relaxed);
    // At home, whose mask and alternate stack the handler's end must set.
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's, on our stack; its mask has 64 bits.
    unsafe {
        (&raw mut (*context).uc_sigmask).cast::<u64>().write(thread.mask.get());
        let stack = &raw mut (*context).uc_stack;
        system_call(libc::SYS_sigaltstack, [0, stack.addr(), 0, 0]);
    }
}

/// Starts the watcher, if this process has none: before its first thread. glibc doesn't know of it: the process ends with its last
/// own thread.
pub(crate) fn begin() {
    if SIGNAL.load(Relaxed) == 0 || IS_WATCHED.swap(true, Relaxed) {
        return;
    }
    const STACK: usize = 64 << 10;
    let protect = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh memory; it stays for as long as the process.
    let stack = unsafe { libc::mmap(null_mut(), STACK, protect, flags, -1, 0) };
    if stack == libc::MAP_FAILED {
        return IS_WATCHED.store(false, Relaxed);
    }
    let (all, mut before) = (u64::MAX, 0_u64);
    let mask = |set: *const u64, old: *mut u64| {
        let set_mask = libc::SIG_SETMASK as usize;
        // SAFETY: ours, or null.
        unsafe { system_call(libc::SYS_rt_sigprocmask, [set_mask, set.addr(), old.addr(), 8]) };
    };
    mask(&all, &mut before);
    // SAFETY: `watch` uses its stack, memory that stays, and system calls: no thread-local variable, and nothing of libc.
    let thread = unsafe { clone(stack.cast::<u8>().wrapping_add(STACK), watch) };
    mask(&before, null_mut());
    if thread < 0 {
        // SAFETY: nobody has used it.
        unsafe { libc::munmap(stack, STACK) };
        IS_WATCHED.store(false, Relaxed);
    }
}

/// Starts a thread that calls `run` on the stack that ends at `top`; negative: why not.
#[unsafe(naked)]
unsafe extern "C" fn clone(top: *mut u8, run: extern "C" fn() -> !) -> isize {
    const SHARED: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    naked_asm!(
        "mov r8, rsi",
        "mov rsi, rdi",
        "mov edi, {flags}",
        "xor edx, edx",
        "xor r10d, r10d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jne 2f",
        "xor ebp, ebp",
        "call r8",
        "ud2",
        "2: ret",
        flags = const SHARED,
        clone = const libc::SYS_clone,
    )
}

/// Is the signal still ours? If the program has taken it, a thread may not be ready for it.
fn is_ours(signal: usize) -> bool {
    let mut action = [0_usize; 4]; // the kernel's: handler, flags, restorer, mask
    // SAFETY: as large as the kernel's action.
    unsafe { system_call(libc::SYS_rt_sigaction, [signal, 0, action.as_mut_ptr().addr(), 8]) };
    action[0] == rescue as *const () as usize
}

/// A forked child has no watcher yet.
pub(crate) fn forget() {
    IS_WATCHED.store(false, Relaxed);
}

extern "C" fn watch() -> ! {
    let mut seen = [0_u32; ROWS];
    // SAFETY: no preconditions.
    let process = unsafe { system_call(libc::SYS_getpid, [0; 4]) } as usize;
    let signal = SIGNAL.load(Relaxed) as usize;
    loop {
        let time = [0_i64, LOOK_NS];
        // SAFETY: a time.
        unsafe { system_call(libc::SYS_nanosleep, [time.as_ptr().addr(), 0, 0, 0]) };
        for (row, seen) in account().rows.iter().zip(&mut seen) {
            let (tid, serial) = (row.tid.load(Relaxed), row.serial.load(Relaxed));
            if tid != 0 && serial % 2 == 1 && serial == *seen && is_ours(signal) {
                // SAFETY: at worst that thread isn't in a section any more, and ignores it; or has ended, and its id is another thread's of
                // this process, which ignores it, too.
                unsafe { system_call(libc::SYS_tgkill, [process, tid as usize, signal, 0]) };
            }
            *seen = serial;
        }
    }
}
