//! Functions whose calls are epochs, in a program that knows nothing of epochs.
//!
//! `LOCKWRIGHT_EPOCHS=NAME=FUNCTION:SLO_NS[@PERCENTILE];...`, written by `lockwright run --epoch`. The dynamic linker fills
//! certain words with such a function's address: slots of the procedure linkage and global offset tables, and words of data,
//! as in tables of functions and C++'s virtual tables. We make all of these words point to a trampoline instead. Our
//! constructor does that, and we repeat it for objects that are loaded later:
//!
//! * `dlsym` is intercepted. So nobody can look up a function in a library that we have not patched yet, and a
//!   look-up of the function itself gives its trampoline. We jump to the real `dlsym`, because it looks at its
//!   caller.
//! * `dlopen` is intercepted. It looks at its caller, too, for the folders that the caller's file names. If the file names
//!   none, we call `dlopen` from here, and patch what it loaded before the program sees it. Otherwise we jump to it,
//!   and the next `dlsym` or `dlopen` does the rest.
//!
//! Which function does a word mean? Once bound, the word itself says so. If a slot is not bound yet (lazy
//! binding), we look it up as the dynamic linker would: by name and version, in the program's own libraries
//! and then in those that came with the object.
//!
//! Not reached: calls inside one object that its linker bound (static, hidden or `-Bsymbolic` functions),
//! pointers that were taken earlier, other namespaces (`dlmopen`), and what a library's constructors call while the library
//! is being opened. If another thread binds a slot at the very moment when we write, we may miss that slot.
//!
//! Locks: we hold ours for a few instructions and `mprotect`, and take no other lock while we hold it. While another thread
//! loads an object we must not touch it (it isn't relocated yet): `dlopen(RTLD_NOLOAD)` waits until it is loaded, and keeps it
//! loaded while we look at it.

mod functions;
mod hooks;
mod objects;
mod patch;

use crate::env::{cut, say};
use crate::object::{self, Generation};
use crate::{epoch, trampoline};
use core::ffi::CStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use functions::{DLOPEN, DLSYM, FUNCTIONS, Function, ON, STORE, TEXT};
use lockwright_locks::amp::feedback::Percentile;
use objects::{DONE, PATH, Pin, key, next, remember};
use patch::{WriterLock, patch};

/// Functions that look at their caller's frame or return twice: they never get a trampoline. (`lockwright run` says why.)
const REFUSED: &[&CStr] = &[
    c"setjmp",
    c"_setjmp",
    c"__sigsetjmp",
    c"sigsetjmp",
    c"savectx",
    c"vfork",
    c"getcontext",
    c"setcontext",
    c"swapcontext",
    c"dlopen",
    c"dlmopen",
    c"dlsym",
    c"dlvsym",
    c"mcount",
    c"_mcount",
    c"__fentry__",
    c"__tls_get_addr",
];

/// The `Generation::number` as of which all objects have been looked at.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// How many objects had been unloaded when `DONE` was emptied.
static EMPTIED: AtomicU64 = AtomicU64::new(0);
/// Reads the variable and looks at everything that is loaded.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(text: &[u8]) {
    if text.len() >= TEXT {
        say(&[b"LOCKWRIGHT_EPOCHS is longer than 16383 bytes: no function is an epoch\n"]);
        return;
    }
    // SAFETY: nobody reads it before ON.
    let store = unsafe { &mut *STORE.0.get() };
    let mut count = 0;
    let mut free = 0; // bytes of `store.text` that hold names
    for piece in text.split(|&byte| byte == b';').filter(|piece| !piece.is_empty()) {
        let bad = |why: &[u8]| {
            say(&[b"bad epoch '", piece, b"': ", why, b"; that function's calls are no epochs\n"]);
        };
        let said = match parse(piece) {
            Ok(_) if count == FUNCTIONS => {
                bad(b"it is the 33rd");
                continue;
            }
            Ok(said) => said,
            Err(why) => {
                bad(why);
                continue;
            }
        };
        if REFUSED.iter().any(|name| name.to_bytes() == said.function) {
            bad(b"it looks at its caller's frame");
            continue;
        }
        let epoch = count as u32;
        match epoch::define(epoch, said.name, said.slo_ns, said.percentile) {
            true => {
                let start = free;
                free += said.function.len();
                store.text[start..free].copy_from_slice(said.function);
                store.functions[count] = Some(Function { start, end: free, epoch });
                count += 1;
            }
            false => bad(b"there are too many epochs"),
        }
    }
    if count == 0 {
        return;
    }
    // SAFETY: NUL-terminated names.
    unsafe {
        let find = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).addr();
        DLSYM.store(find(c"dlsym"), Relaxed); // published by ON and by the slots
        DLOPEN.store(find(c"dlopen"), Relaxed); // the same
    }
    // ORDERING: Release, pairs with the Acquire in `store`.
    ON.store(true, Release);
    look();
    // SAFETY: no preconditions. Our failed look-ups are not the program's errors.
    unsafe { libc::dlerror() };
}

/// A piece of the variable.
#[derive(Debug, PartialEq)]
struct Said<'a> {
    name: &'a [u8],
    function: &'a [u8],
    slo_ns: u64,
    percentile: Option<Percentile>,
}

/// Parses `NAME=FUNCTION:SLO_NS[@PERCENTILE]`; the error says what is wrong.
fn parse(piece: &[u8]) -> Result<Said<'_>, &'static [u8]> {
    let (name, rest) = cut(piece, b'=').ok_or(b"no '='".as_slice())?;
    let colon = rest.iter().rposition(|&byte| byte == b':').ok_or(b"no SLO".as_slice())?;
    let (function, slo) = (&rest[..colon], &rest[colon + 1..]);
    let (slo, percentile) = cut(slo, b'@').map_or((slo, None), |(slo, rest)| (slo, Some(rest)));
    let slo_ns = core::str::from_utf8(slo).ok().and_then(|text| text.parse().ok());
    let slo_ns = slo_ns.ok_or(b"its SLO isn't a number of ns".as_slice())?;
    let percentile = match percentile.map(Percentile::parse) {
        Some(None) => return Err(b"its percentile is not from 90 to 99.9"),
        percentile => percentile.flatten(),
    };
    if name.is_empty() || function.is_empty() {
        return Err(b"a name is missing");
    }
    Ok(Said { name, function, slo_ns, percentile })
}

/// Looks at the objects that were loaded since the last look.
fn look_again() {
    // Relaxed: the number only says whether to look; a thread that sees the new one sees the slots as written.
    if Generation::now().number() != LOOKED.load(Relaxed) {
        look();
    }
}

/// How often a look begins again, because another thread unloads objects meanwhile.
const PASSES: usize = 64;

#[cold]
fn look() {
    for _ in 0..PASSES {
        let now = Generation::now();
        pass(&now);
        // An unloaded object moves the others up the list, and we may have missed one.
        if Generation::now().unloaded == now.unloaded {
            LOOKED.store(now.number(), Relaxed); // see `look_again`
            return;
        }
    }
}

fn pass(now: &Generation) {
    if EMPTIED.swap(now.unloaded, Relaxed) != now.unloaded {
        // Those keys are no longer valid.
        for done in &DONE {
            done.store(0, Relaxed); // a hint: at worst an object is looked at twice
        }
        object::each(|_, _| {
            // In here nobody loads anything. (We never take the two locks in the other order.)
            let _lock = WriterLock::take();
            // SAFETY: one thread at a time, by the lock. Unloaded code runs no more, and nobody calls it.
            unsafe { trampoline::reclaim(|target| !object::is_code(target)) };
            false
        });
    }
    let mut path = [0; PATH];
    let mut at = 0;
    while let Some((object, place)) = next(at, now, &mut path) {
        at = place + 1;
        if let Some(handle) = Pin::take(&object, place, &path) {
            patch(&object, &handle, place == 0);
        }
        remember(key(&object, now));
    }
}

#[cfg(test)]
mod tests;
