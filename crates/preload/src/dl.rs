//! `dlopen`: a library that would pass us by. See `runtime::deepbind`.

use core::ffi::{c_char, c_int, c_void};

export! { dlopen as dlopen: v2_34, base; }

unsafe extern "C" fn before_dlopen(path: *const c_char, mode: c_int) -> usize {
    // SAFETY: the program promises what `dlopen` asks of it.
    unsafe { lockwright_runtime::deepbind::before_dlopen(path, mode) }
}

/// Jumps to the real one, which looks at its caller.
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        before = sym before_dlopen,
    );
}
