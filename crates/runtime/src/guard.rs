//! Tools that watch a program's locks: ThreadSanitizer, helgrind, drd. They know glibc's functions, and which accesses those
//! order. They would think that ours order nothing. So under such a tool each of our functions calls glibc's, by the address
//! at which the tool has put its own function, in front of glibc's or in its place.
//!
//! We do the same under memcheck: our unlock wakes by an address alone, which may be on a stack that is gone by then. The
//! kernel doesn't mind, but memcheck calls that an error. AddressSanitizer doesn't check that, so under it the locks stay
//! ours.
//!
//! Normally this costs the plain mutex nothing: it is one way of being watched, see `fast`.

use crate::env::{say, variable};
use crate::watch::{self, Who};
use lockwright_native::symbol;

/// The tool that watches this process's locks. The answer never changes.
pub(crate) fn tool() -> Option<&'static [u8]> {
    if !symbol::thread_sanitizer().is_null() {
        return Some(b"ThreadSanitizer");
    }
    // Valgrind's tools preload a library of their own. For a child that it doesn't follow, valgrind removes that library from
    // the variable.
    let preloaded = variable(c"LD_PRELOAD")?;
    let has = |name: &[u8]| preloaded.windows(name.len()).any(|piece| piece == name);
    let tool: &[u8] = if has(b"vgpreload_helgrind") {
        b"helgrind"
    } else if has(b"vgpreload_drd") {
        b"drd"
    } else if has(b"vgpreload_memcheck") {
        b"memcheck"
    } else {
        return None;
    };
    is_valgrind().then_some(tool)
}

/// Makes our functions call glibc's, if a tool needs that, and says so; `false`: no tool does.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn stand_aside() -> bool {
    let Some(tool) = tool() else { return false };
    watch::begin(Who::Tool, None);
    say(&[tool, b" knows glibc's locks alone: the program runs on those, not on ours\n"]);
    true
}

/// Does valgrind run us? It recognises these instructions, which do nothing on a processor. (Untested on AArch64.)
fn is_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: rotates a register by 128 bits in all, and exchanges another with itself. Valgrind reads `request`, and writes
    // `rdx`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(), inout("rdx") 0_u64 => answer, out("rdi") _,
            options(nostack),
        );
    }
    // SAFETY: as on x86-64: valgrind reads through `x4`, and writes `x3`.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") request.as_ptr(), inout("x3") 0_u64 => answer, out("x12") _,
            options(nostack),
        );
    }
    answer != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_watches_the_tests() {
        assert!(!is_valgrind());
        assert_eq!(tool(), None);
    }
}
