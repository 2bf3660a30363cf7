//! What runs instead of `dlsym` and `dlopen`.

use super::functions::{DLOPEN, DLSYM, OLD_PATHS, STAND_INS, find};
use super::look_again;
use super::objects::LinkMap;
use super::patch::stub;
use crate::{object, real};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

// `dlsym` and `dlopen` find their caller by their return address, so we jump to them with the caller's return address.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".macro lockwright_hook name, before, real, instead",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".cfi_startproc",
    "endbr64",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rdx, [rsp + 24]",
    "call \\before",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "jne 20f",
    "mov rax, [rip + \\real]",
    "jmp rax",
    "20:",
    "\\instead",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    ".pushsection .text.lockwright_hooks,\"ax\",@progbits",
    "lockwright_hook lockwright_dlsym, {before_dlsym}, {dlsym}, ret",
    "lockwright_hook lockwright_dlopen, {before_dlopen}, {dlopen}, \"jmp {open}\"",
    ".popsection",
    before_dlsym = sym before_dlsym,
    dlsym = sym DLSYM,
    before_dlopen = sym before_dlopen,
    dlopen = sym DLOPEN,
    open = sym open,
);

/// Called before a symbol is looked up: returns the result, if it is a function whose calls are epochs.
unsafe extern "C" fn before_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> usize {
    look_again();
    // A wrapper finds the function that it wraps by `RTLD_NEXT`: the wrapper's own call was the epoch.
    if name.is_null() || handle == libc::RTLD_NEXT {
        return 0;
    }
    // SAFETY: the caller's NUL-terminated name.
    let Some(at) = find(unsafe { CStr::from_ptr(name) }.to_bytes()) else { return 0 };
    // SAFETY: the caller's handle and name.
    let mut target = unsafe { libc::dlsym(handle, name) }.addr();
    if target == 0 && handle == libc::RTLD_DEFAULT {
        // The caller's own libraries come last.
        if let Some(map) = real::handle_at(caller) {
            // SAFETY: a handle is the object's map; the caller is in it.
            target = unsafe { libc::dlsym(map, name) }.addr();
        }
    }
    // Relaxed: written by the constructor, or when the program was looked at.
    if target == 0 || target == STAND_INS[at].load(Relaxed) {
        return 0;
    }
    stub(at, target).unwrap_or(0)
}

/// Called before a library is opened: returns 1 if it makes no difference that we are the caller.
unsafe extern "C" fn before_dlopen(path: *const c_char, _mode: c_int, caller: usize) -> usize {
    look_again();
    if path.is_null() {
        return 1;
    }
    // SAFETY: the caller's NUL-terminated path.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // `$ORIGIN` is the caller's folder; old paths apply to everything that the caller loads.
    if path.contains(&b'$') || OLD_PATHS.load(Relaxed) {
        return 0;
    }
    let is_path = path.contains(&b'/');
    // SAFETY: the head of the link map of the caller's object, as glibc says.
    let says = real::handle_at(caller)
        .map(|map| unsafe { object::says_paths((*map.cast::<LinkMap>()).dynamic, is_path) });
    usize::from(says == Some(false))
}

/// Opens a library, and patches it and its libraries before the program sees them.
unsafe extern "C-unwind" fn open(path: *const c_char, mode: c_int) -> *mut c_void {
    // SAFETY: the real function's address and type; the caller's arguments.
    let handle = unsafe {
        let real: unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void =
            core::mem::transmute(DLOPEN.load(Relaxed)); // written by the constructor
        real(path, mode)
    };
    if !handle.is_null() {
        look_again();
        // SAFETY: no preconditions. Our failed look-ups are not the program's errors.
        unsafe { libc::dlerror() };
    }
    handle
}
