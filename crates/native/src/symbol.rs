//! Symbols of other objects in the process, by name.
//!
//! `dlsym` is referred to weakly: a static program has no dynamic linker, should not be made to carry one
//! (the link editor warns of it), and simply has none of these symbols.

use core::ffi::{CStr, c_char, c_void};

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all objects of the process.
    Process,
    /// In the objects behind the one that we are part of, in the order of their search.
    BehindUs,
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Declares `$function`: the address of `$symbol`, which is looked up when we are loaded; null if nothing defines it.
macro_rules! weak {
    ($(#[$doc:meta])* $visibility:vis fn $function:ident = $symbol:literal) => {
        $(#[$doc])*
        $visibility fn $function() -> *const c_void {
            let at: *const c_void;
            // SAFETY: reads our own entry of the offset table, which is 0 if nothing defines the symbol.
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
    /// ThreadSanitizer's start. Not looked up by `dlsym`, which allocates a message when it finds nothing.
    pub fn thread_sanitizer = "__tsan_init"
}

impl Scope {
    fn handle(self) -> *mut c_void {
        match self {
            Self::Process => libc::RTLD_DEFAULT,
            Self::BehindUs => libc::RTLD_NEXT,
        }
    }
}

/// The address of the symbol called `name`; null if there is none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_glibc_has_is_found_and_nothing_else() {
        assert!(!find(Scope::Process, c"getpid").is_null());
        assert!(find(Scope::Process, c"lockwright_no_such_symbol").is_null());
    }
}
