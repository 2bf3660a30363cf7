//! An object's words, and what they are made to point to.

use super::functions::{DLOPEN, DLSYM, OLD_PATHS, STAND_INS, Wanted, find, store};
use super::objects::Pin;
use crate::env::say;
use crate::object::{self, Object, RelocationKind, Word};
use crate::{fork, trampoline};
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use lockwright_native::{kernel, symbol};

const PAGE: usize = 4096;
/// 0, or 1 plus the era of the process whose thread writes.
static WRITER: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// What runs instead of `dlsym`, see hooks.rs.
    #[link_name = "lockwright_dlsym"]
    fn dlsym_hook();
    /// What runs instead of `dlopen`.
    #[link_name = "lockwright_dlopen"]
    fn dlopen_hook();
}

fn wanted(name: &CStr) -> Option<Wanted> {
    match name.to_bytes() {
        b"dlsym" => Some(Wanted::Dlsym),
        b"dlopen" => Some(Wanted::Dlopen),
        name => find(name).map(Wanted::Function),
    }
}

/// Makes the object's words point to the trampolines.
pub(super) fn patch(object: &Object, pin: &Pin, is_program: bool) {
    if !is_program && object::says_paths(object.dynamic, true) {
        OLD_PATHS.store(true, Relaxed); // before the program can open a library by this object
    }
    object.words(wanted, |wanted, word| {
        let value = word.slot.load(Relaxed); // a hint: written only if it is still the same
        if value == 0 || trampoline::is_stub(value) {
            return;
        }
        if let (Wanted::Function(at), Some(own), false) = (wanted, word.own, word.defined) {
            STAND_INS[at].store(own, Relaxed); // before the library that defines it is patched
        }
        let stand_in = match wanted {
            Wanted::Function(at) => STAND_INS[at].load(Relaxed), // written above: the program comes first
            Wanted::Dlsym | Wanted::Dlopen => 0,
        };
        if word.kind != RelocationKind::Jump && value == stand_in {
            return;
        }
        // Not bound yet: it points to the object's own linkage table.
        let lazy = word.kind == RelocationKind::Jump
            && object.holds(value)
            && !(word.defined && word.own == Some(value));
        let target = match word.kind {
            RelocationKind::Jump if lazy => definition(object, pin, &word, stand_in),
            // The program may have changed it.
            RelocationKind::Data if definition(object, pin, &word, stand_in) != value => return,
            _ => value,
        };
        let new = match wanted {
            _ if target == 0 => None,
            Wanted::Function(at) => stub(at, target),
            Wanted::Dlsym if target == DLSYM.load(Relaxed) => {
                Some(dlsym_hook as *const () as usize)
            }
            Wanted::Dlopen if target == DLOPEN.load(Relaxed) => {
                Some(dlopen_hook as *const () as usize)
            }
            Wanted::Dlsym | Wanted::Dlopen => None,
        };
        if let Some(new) = new {
            write(object, &word, value, new);
        }
    });
}

/// The definition that the dynamic linker would bind the word to; 0: none.
fn definition(object: &Object, pin: &Pin, word: &Word<'_>, stand_in: usize) -> usize {
    let look = |handle: *mut c_void| {
        // SAFETY: a handle, and NUL-terminated names.
        unsafe {
            let by_version = word.version.map_or(null_mut(), |version| {
                symbol::find_version(handle, word.name.as_ptr(), version.as_ptr())
            });
            let found = if by_version.is_null() {
                libc::dlsym(handle, word.name.as_ptr())
            } else {
                by_version
            };
            Some(found.addr()).filter(|&found| found != 0 && found != stand_in)
        }
    };
    let own = || look(pin.0);
    let found = if object.is_symbolic() { own() } else { None };
    found
        .or_else(|| look(libc::RTLD_DEFAULT))
        .or_else(|| look(libc::RTLD_NEXT))
        .or_else(own)
        .unwrap_or(0)
}

/// The trampoline of a function's definition.
pub(super) fn stub(at: usize, target: usize) -> Option<usize> {
    let function = store()?.functions[at]?;
    if trampoline::is_stub(target) || !object::is_code(target) {
        return None;
    }
    let lock = WriterLock::take();
    // SAFETY: one thread at a time, by the lock; `target` is code.
    let stub = unsafe { trampoline::stub(target, function.epoch) };
    drop(lock);
    if stub.is_none() {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Relaxed: it is only said once.
        if !SAID.swap(true, Relaxed) {
            say(&[b"more than 256 definitions of functions: some calls are no epochs\n"]);
        }
    }
    stub
}

/// Writes a word, if it is still the same.
fn write(object: &Object, word: &Word<'_>, old: usize, new: usize) {
    let address = core::ptr::from_ref(word.slot).addr();
    let Some(sealed) = object.is_sealed(address) else { return };
    let page = (address & !(PAGE - 1)) as *mut u8;
    let _lock = WriterLock::take();
    let protect = |protection| {
        // SAFETY: a page of the object, which is loaded; it stays readable. Nobody else changes its protection, by the lock.
        sealed && unsafe { !kernel::protect(page, PAGE, protection) }
    };
    if protect(libc::PROT_READ | libc::PROT_WRITE) {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Relaxed: it is only said once.
        if !SAID.swap(true, Relaxed) {
            let name = word.name.to_bytes();
            say(&[b"cannot write where '", name, b"' is called: some calls are no epochs\n"]);
        }
        return;
    }
    // Relaxed: if another thread has bound it meanwhile, later calls are missed, as said above.
    // ORDERING: Release, pairs with the address dependency of a jump through it: the stub is filled.
    let _ = word.slot.compare_exchange(old, new, Release, Relaxed);
    protect(libc::PROT_READ);
}

/// Our lock. We hold it for a few instructions and system calls, and take no other lock meanwhile. A forked child doesn't wait
/// for its parent's threads.
pub(super) struct WriterLock;

impl WriterLock {
    pub(super) fn take() -> Self {
        let mine = fork::era() + 1;
        let (mut free, mut turns) = (0, 0);
        // ORDERING: Acquire, pairs with `drop`.
        while let Err(holder) = WRITER.compare_exchange(free, mine, Acquire, Relaxed) {
            if holder == mine || holder == 0 {
                free = 0;
                lockwright_native::relax::give_cpu(&mut turns);
            } else {
                free = holder; // the parent's
            }
        }
        Self
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // ORDERING: Release, pairs with `take`.
        WRITER.store(0, Release);
    }
}
