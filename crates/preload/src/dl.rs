//! `dlopen` and `dlmopen`: libraries that would bypass us. See `runtime::deepbind`.

use core::ffi::{c_char, c_int, c_long, c_void};

use lockwright_runtime::deepbind;

export! {
    dlopen as dlopen: v2_34, base;
    dlmopen as dlmopen: v2_34, dlmopen;
}

unsafe extern "C" fn before_dlopen(path: *const c_char, mode: c_int) -> usize {
    // SAFETY: the program promises what `dlopen` asks of it.
    unsafe { deepbind::before_dlopen(path, mode) }
}

unsafe extern "C" fn before_dlmopen(space: c_long, path: *const c_char, mode: c_int) -> usize {
    // SAFETY: the program promises what `dlmopen` asks of it.
    unsafe { deepbind::before_dlmopen(space, path, mode) }
}

/// Jumps to the address that `before` returns, with the caller's own arguments and return address, because the real
/// function looks at its caller.
macro_rules! jump {
    ($before:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "call {before}",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            before = sym $before,
        )
    };
}

#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    jump!(before_dlopen)
}

#[unsafe(naked)]
unsafe extern "C" fn dlmopen(space: c_long, path: *const c_char, mode: c_int) -> *mut c_void {
    jump!(before_dlmopen)
}
