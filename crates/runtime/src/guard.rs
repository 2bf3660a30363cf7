//! Processes in which we stand aside: each of our functions calls the one behind it, and the program runs as without us.
//!
//! - Tools that watch a program's locks: ThreadSanitizer, helgrind, drd. They know glibc's functions, and which accesses those
//!   order. They would think that ours order nothing. So under such a tool each of our functions calls glibc's, by the address
//!   at which the tool has put its own function, in front of glibc's or in its place. We do the same under memcheck: our unlock
//!   wakes by an address alone, which may be on a stack that is gone by then. The kernel doesn't mind, but memcheck calls that
//!   an error. AddressSanitizer doesn't check that, so under it the locks stay ours.
//! - A library that replaces such a function itself, and comes after us in search order, where the program's calls never reach it:
//!   libfaketime converts the times of timed waits. In front of us it would see each call first, and call ours, as it would glibc's.
//!   So `lockwright run` puts us last, and where we are not, we see to it that the programs that this one starts find us there.
//! - A program with another libc. musl's dynamic linker obeys LD_PRELOAD, too; and musl's objects have other layouts. That
//!   program has nothing to do with us, so we say nothing.
//!
//! Normally this costs the plain mutex nothing: it is one way of being watched, see `fast`.

use crate::env::{self, say, variable};
use crate::object::{self, Object};
use crate::real;
use crate::watch::{self, Who};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use lockwright_native::symbol;

/// Is this a process with glibc?
pub(crate) fn is_glibc() -> bool {
    !symbol::libc_version().is_null()
}

/// The tool that watches this process's locks. The answer never changes.
#[unsafe(link_section = ".lockwright.begin")]
fn tool() -> Option<&'static [u8]> {
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

/// A library behind us that has a function of ours, too.
struct Wrapper {
    library: &'static CStr,
    function: &'static CStr,
}

/// Its address is in our object.
static HERE: u8 = 0;

/// Finds the first one. The libraries in front of libc stay loaded.
#[unsafe(link_section = ".lockwright.begin")]
fn wrapper() -> Option<Wrapper> {
    // The semaphores' functions call those behind them in any case.
    let own = |(name, at): &(&CStr, usize)| *at != 0 && !name.to_bytes().starts_with(b"sem_");
    let functions = || real::resolve().chain(real::resolve_late()).filter(own);
    // AddressSanitizer has some, which check their arguments and call glibc's.
    let sanitizer = symbol::address_sanitizer().addr();
    let (mut libc, mut is_behind, mut others) = (None, false, false);
    let here = (&raw const HERE).addr();
    object::each(|info, _| {
        let Some(object) = Object::of(info) else { return true };
        libc = Some(object).filter(|object| object.soname() == Some(c"libc.so.6"));
        others |= is_behind && libc.is_none();
        is_behind |= object.holds(here);
        libc.is_none()
    });
    // Mostly there is no library in between: then we needn't look up anything.
    let libc = libc.filter(|_| others)?;
    let (function, at) = functions().find(|(_, at)| !libc.holds(*at))?;
    let mut found = None;
    object::each(|info, _| {
        if Object::of(info).is_some_and(|object| object.holds(at) && !object.holds(sanitizer)) {
            // SAFETY: the dynamic linker's own text, which stays as long as the library does.
            let library = unsafe { CStr::from_ptr(info.dlpi_name) };
            found = Some(Wrapper { library, function });
        }
        found.is_none()
    });
    found
}

/// Names our library last in LD_PRELOAD, for the programs that this one starts.
///
/// # Safety
/// Nobody else uses the environment.
unsafe fn come_last() {
    let list = env::place(c"LD_PRELOAD");
    if list.is_null() {
        return;
    }
    // SAFETY: the process's own copy of its environment, on its stack. We have the only reference, and leave the NUL alone.
    let list = unsafe { core::slice::from_raw_parts_mut(list.cast(), libc::strlen(list)) };
    put_last(list, b"liblockwright.so");
}

/// Moves the first path with this file name to the end of the list.
fn put_last(list: &mut [u8], file: &[u8]) {
    let is_ours = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(file);
    let mut start = 0;
    for path in list.split(|byte| b": ".contains(byte)) {
        let len = path.len();
        if !is_ours(path) {
            start += len + 1;
            continue;
        }
        let rest = &mut list[start..];
        if rest.len() > len {
            rest.rotate_left(len); // the separator, the others, ours
            let others = rest.len() - len;
            rest[..others].rotate_left(1);
        }
        return;
    }
}

/// 0: not asked yet; 1: we don't stand aside; 2: we do.
#[unsafe(link_section = ".lockwright.start")]
static ASIDE: AtomicU8 = AtomicU8::new(0);

/// Do we stand aside? The answer never changes.
pub(crate) fn stands_aside() -> bool {
    match ASIDE.load(Relaxed) {
        0 => !is_glibc() || tool().is_some() || wrapper().is_some(),
        answer => answer == 2,
    }
}

/// Makes our functions call those behind them if the process needs that, and says so; `false`: it doesn't.
///
/// # Safety
/// Called once, by the constructor.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) unsafe fn stand_aside() -> bool {
    // SAFETY: the caller's promise.
    let aside = unsafe { step_aside() };
    ASIDE.store(if aside { 2 } else { 1 }, Relaxed); // guards no other data
    aside
}

/// As [`stand_aside`], and no more.
///
/// # Safety
/// As there.
unsafe fn step_aside() -> bool {
    if !is_glibc() {
        watch::begin(Who::Tool, None);
    } else if let Some(tool) = tool() {
        watch::begin(Who::Tool, None);
        say(&[tool, b" knows glibc's locks alone: the program runs on those, not on ours\n"]);
    } else if let Some(Wrapper { library, function }) = wrapper() {
        watch::begin(Who::Tool, None);
        // SAFETY: the constructor runs before the program.
        unsafe { come_last() };
        let (library, function) = (library.to_bytes(), function.to_bytes());
        say(&[
            b"'",
            library,
            b"' has its own ",
            function,
            b", which ours would hide: the program runs on that and on glibc's locks, not on ours; \
              hint: name liblockwright.so behind it in LD_PRELOAD\n",
        ]);
    } else {
        return false;
    }
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
    fn our_library_is_put_last() {
        let put = |list: &str| {
            let mut bytes = std::vec::Vec::from(list);
            put_last(&mut bytes, b"us.so");
            std::string::String::from_utf8(bytes).unwrap()
        };
        assert_eq!(put("/a/us.so:b.so c.so"), "b.so c.so:/a/us.so");
        assert_eq!(put("b.so:us.so:/c/d.so"), "b.so:/c/d.so:us.so");
        assert_eq!(put("b.so:/x/us.so"), "b.so:/x/us.so");
        assert_eq!(put("b.so"), "b.so");
        assert_eq!(put("us.so:"), ":us.so");
        assert_eq!(put(""), "");
    }

    #[test]
    fn nobody_watches_the_tests() {
        assert!(!is_valgrind());
        assert_eq!(tool(), None);
    }
}
