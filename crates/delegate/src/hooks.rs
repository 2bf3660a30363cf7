//! The functions in front of libc's: those that lock, and those that a section must not call on another kernel thread. Most look at one byte,
//! and jump to the function behind, with their arguments in place, so cancellation and unwinding find nothing of ours.
//!
//! A section that waits, forks, ends its thread, or asks which kernel thread it is goes home first, with its mutex locked.

use crate::behind::{REAL, UNLOCK, real, real_unlock};
use crate::list::{ALL, Hook, with_hooks};
use crate::section;
use crate::thread::{RUNNING, this};
use crate::watch;
use core::arch::naked_asm;
use core::ffi::c_void;

macro_rules! hooks {
    ($($name:ident)*) => {
        mod exported {
            use super::*;
            $(hook!($name);)*
        }
    };
}

/// Most look at one byte, and jump. Those that tell something about their thread always arrive.
macro_rules! hook {
    (pthread_mutex_lock) => { before!(pthread_mutex_lock, section::lock); };
    (pthread_mutex_trylock) => { before!(pthread_mutex_trylock, section::before_try_lock); };
    (pthread_create) => { hook!(@ pthread_create, "jmp 2f"); };
    (thrd_create) => { hook!(@ thrd_create, "jmp 2f"); };
    (pthread_setcanceltype) => { hook!(@ pthread_setcanceltype, "jmp 2f"); };
    (setfsuid) => { hook!(@ setfsuid, "jmp 2f"); };
    (setfsgid) => { hook!(@ setfsgid, "jmp 2f"); };
    (unshare) => { hook!(@ unshare, "jmp 2f"); };
    (setns) => { hook!(@ setns, "jmp 2f"); };
    (capset) => { hook!(@ capset, "jmp 2f"); };
    (personality) => { hook!(@ personality, "jmp 2f"); };
    (prctl) => { hook!(@ prctl, "jmp 2f"); };
    (syscall) => { hook!(@ syscall, "jmp 2f"); };
    (sigaction) => { hook!(@ sigaction, "jmp 2f"); };
    (__sigaction) => { hook!(@ __sigaction, "jmp 2f"); };
    (signal) => { hook!(@ signal, "jmp 2f"); };
    (bsd_signal) => { hook!(@ bsd_signal, "jmp 2f"); };
    (sysv_signal) => { hook!(@ sysv_signal, "jmp 2f"); };
    (__sysv_signal) => { hook!(@ __sysv_signal, "jmp 2f"); };
    (ssignal) => { hook!(@ ssignal, "jmp 2f"); };
    (sigset) => { hook!(@ sigset, "jmp 2f"); };
    ($name:ident) => { hook!(@ $name, ""); };
    (@ $name:ident, $first:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            naked_asm!(
                $first,
                "mov r11, qword ptr [rip + lockwright_delegate_thread@GOTTPOFF]",
                "cmp byte ptr fs:[r11], 0",
                "jne 2f",
                "mov r11, qword ptr [rip + {real} + {at}]",
                "test r11, r11",
                "je 2f",
                "jmp r11",
                "2:",
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "mov rdx, rsi",
                "mov rsi, rdi",
                "mov edi, {number}",
                "call {arrive}",
                "mov r11, rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rax",
                "jmp r11",
                real = sym REAL,
                at = const Hook::$name as usize * 8,
                number = const Hook::$name as usize,
                arrive = sym arrive,
            )
        }
    };
}

/// `$name` first asks `$decides(its argument, where it returns to)`, which is not 0 if the function behind is called.
macro_rules! before {
    ($name:ident, $decides:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi",
                "mov rsi, [rsp + 8]",
                "call {decides}",
                "mov rdi, [rsp]",
                "test eax, eax",
                "jne 2f",
                "add rsp, 8",
                "ret",
                "2:",
                "mov edi, {number}",
                "call {real}",
                "pop rdi",
                "jmp rax",
                decides = sym $decides,
                number = const Hook::$name as usize,
                real = sym real,
            )
        }
    };
}

with_hooks!(hooks);

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn pthread_mutex_unlock() {
    naked_asm!(
        "mov r11, qword ptr [rip + lockwright_delegate_thread@GOTTPOFF]",
        "cmp byte ptr fs:[r11], 0",
        "jne 2f",
        "mov r11, qword ptr [rip + {unlock}]",
        "test r11, r11",
        "je 2f",
        "jmp r11",
        "2:",
        "push rdi",
        "call {decides}",
        "mov rdi, [rsp]",
        "test eax, eax",
        "jne 3f",
        "add rsp, 8",
        "ret",
        "3:",
        "call {real}",
        "pop rdi",
        "jmp rax",
        unlock = sym UNLOCK,
        decides = sym section::unlock,
        real = sym real_unlock,
    )
}

/// glibc's other names, of locks made by its own headers or by old programs.
macro_rules! aliases {
    ($($alias:ident is $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $alias() {
            naked_asm!("jmp {name}", name = sym exported::$name)
        }
    )* };
}

aliases! {
    __pthread_mutex_lock is pthread_mutex_lock;
    __pthread_mutex_trylock is pthread_mutex_trylock;
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn __pthread_mutex_unlock() {
    naked_asm!("jmp {name}", name = sym pthread_mutex_unlock)
}

/// A hook was called by a thread that isn't PLAIN, or for the first time, or it is one that says something of its thread. Returns the
/// function behind it.
extern "C" fn arrive(number: usize, first: usize, second: usize) -> *mut c_void {
    let function = real(number);
    let (hook, thread) = (ALL[number], this());
    // Of these calls only some ask the kernel for the thread's own.
    let is_harmless = match hook {
        Hook::clock_gettime => first as i32 != libc::CLOCK_THREAD_CPUTIME_ID,
        Hook::getrusage => first as i32 != libc::RUSAGE_THREAD,
        Hook::__sigsetjmp => second == 0,
        _ => false,
    };
    if thread.state() == RUNNING && !is_harmless {
        section::go_home(thread, number);
    }
    thread.learn(hook, first, second);
    if hook == Hook::pthread_create || hook == Hook::thrd_create {
        watch::begin();
    }
    function
}
