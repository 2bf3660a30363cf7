//! The functions that stand in front of libc's: those that lock, and those that a section must not call on another kernel thread. Each looks
//! at one byte, and jumps to the function behind it, with its arguments in place, so cancellation and unwinding find nothing of ours.
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
    (pthread_create) => { hook!(@ pthread_create, "jmp 2f"); };
    (thrd_create) => { hook!(@ thrd_create, "jmp 2f"); };
    (pthread_setcanceltype) => { hook!(@ pthread_setcanceltype, "jmp 2f"); };
    ($name:ident) => { hook!(@ $name, ""); };
    (@ $name:ident, $first:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
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
        unsafe extern "C" fn $name() {
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

/// A hook was called by a thread that isn't PLAIN, or for the first time. Returns the function behind it.
extern "C" fn arrive(number: usize, argument: usize) -> *mut c_void {
    let function = real(number);
    let thread = this();
    if thread.state() == RUNNING {
        section::go_home(thread, number);
    }
    let hook = ALL[number];
    thread.learn(hook, argument);
    if hook == Hook::pthread_create || hook == Hook::thrd_create {
        watch::begin();
    }
    function
}
