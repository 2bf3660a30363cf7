//! Symbols of other objects in the process, by name.
//!
//! We refer to `dlsym` weakly. A static program has no dynamic linker, should not be made to carry one
//! (the link editor warns about that), and simply has none of these symbols.
//!
//! So we do to what only glibc has. musl's dynamic linker obeys LD_PRELOAD, too, and ends a program if a library asks for a symbol that it
//! can't find.

use core::ffi::{CStr, c_char, c_void};

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all objects of the process.
    Process,
    /// In the objects that come after ours in search order.
    BehindUs,
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Declares `$function`, which returns the address of `$symbol`. It is looked up when we are loaded; null: nothing defines it.
macro_rules! weak {
    ($(#[$doc:meta])* $visibility:vis fn $function:ident = $symbol:literal) => {
        $(#[$doc])*
        $visibility fn $function() -> *const c_void {
            let at: *const c_void;
            // SAFETY: reads our own entry in the global offset table, which is 0 if nothing defines the symbol.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                core::arch::asm!(
                    concat!(".weak ", $symbol),
                    concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                    at = out(reg) at, options(nostack, pure, readonly, preserves_flags),
                );
            }
            // SAFETY: as above. Untested on this architecture.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                core::arch::asm!(
                    concat!(".weak ", $symbol),
                    concat!("adrp {at}, :got:", $symbol),
                    concat!("ldr {at}, [{at}, :got_lo12:", $symbol, "]"),
                    at = out(reg) at, options(nostack, pure, readonly, preserves_flags),
                );
            }
            at
        }
    };
}

weak! {
    /// `dlsym`; null in a static program.
    fn dlsym = "dlsym"
}

weak! {
    /// glibc's `gnu_get_libc_version`; null in a program on another libc.
    pub fn libc_version = "gnu_get_libc_version"
}

weak! {
    /// glibc's `__libc_single_threaded`.
    pub fn single_threaded = "__libc_single_threaded"
}

weak! {
    /// glibc's `__register_atfork`.
    pub fn register_atfork = "__register_atfork"
}

weak! {
    /// glibc's `strerrordesc_np`.
    pub fn error_text = "strerrordesc_np"
}

weak! {
    /// glibc's `secure_getenv`, which musl has had since 2019.
    pub fn environment = "secure_getenv"
}

weak! {
    /// `dlvsym`; null in a static program.
    fn dlvsym = "dlvsym"
}

weak! {
    /// ThreadSanitizer's initialiser. We don't look it up by `dlsym`, which allocates a message when it finds nothing.
    pub fn thread_sanitizer = "__tsan_init"
}

weak! {
    /// AddressSanitizer's initialiser, likewise.
    pub fn address_sanitizer = "__asan_init"
}

impl Scope {
    fn handle(self) -> *mut c_void {
        match self {
            Self::Process => libc::RTLD_DEFAULT,
            Self::BehindUs => libc::RTLD_NEXT,
        }
    }
}

/// The address of the symbol called `name`; null if no such symbol exists.
pub fn find(scope: Scope, name: &CStr) -> *mut c_void {
    let dlsym = dlsym();
    if dlsym.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the function of that name has this type; the name ends in a NUL.
    unsafe {
        let dlsym: Dlsym = core::mem::transmute(dlsym);
        dlsym(scope.handle(), name.as_ptr())
    }
}

/// The address of the symbol called `name` in this version, as seen from `handle`; null if there is none.
///
/// # Safety
/// `handle` is the dynamic linker's, and both texts end in a NUL.
pub unsafe fn find_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let dlvsym = dlvsym();
    if dlvsym.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the function of that name has this type; the caller's promise.
    unsafe {
        let dlvsym: Dlvsym = core::mem::transmute(dlvsym);
        dlvsym(handle, name, version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_glibc_has_is_found_and_nothing_else() {
        assert!(!find(Scope::Process, c"getpid").is_null());
        assert!(find(Scope::Process, c"lockwright_no_such_symbol").is_null());
    }
}
