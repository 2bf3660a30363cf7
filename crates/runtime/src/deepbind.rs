//! Libraries whose references bypass us: opened with `RTLD_DEEPBIND`, or by `dlmopen`.
//!
//! The former look in their own libraries first, and libc is one of them. They would get glibc's functions, and
//! their condvar waits would not meet our signals, even if they don't share a condvar on purpose.
//! (`std::condition_variable`'s timed waits are inline, and call pthread from the library. Its `notify_one` lies
//! in a libstdc++ that calls our functions.)
//!
//! So we write our addresses into libc's own symbol table when the first such library is about to be opened. Then
//! each look-up that ends there finds us: immediate or lazy, by `dlsym`, and from the library's constructors, too.
//! For all other names the library keeps the isolation that it asked for.
//!
//! We considered other ways. Dropping the flag breaks a library that brings other versions of the program's
//! libraries. Changing its references after `dlopen` is too late: constructors have run, and threads that they
//! started (as OpenBLAS does) may sleep in glibc's wait, on a condvar that would be ours from then on.
//!
//! A library in a namespace of its own has its own libc, with its own count of the process's threads. That libc's table
//! doesn't exist before the library does. (If we opened that libc first, everything in the namespace would look
//! in it first.) Both copies may serve a shared mutex, but not a shared condvar, and one line on stderr says so.
//!
//! We jump to `dlopen`, because it looks at its caller. If another library stands behind us and wraps glibc's
//! functions, the table stays as it is: the wrapper's own look-ups would end at us, and ours at the wrapper. One line on
//! stderr says so, and also if the table can't be written.

use crate::env::say;
use crate::object::{self, Object};
use crate::real::{self, Symbol};
use crate::watch::{self, Who};
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
use lockwright_native::kernel;

/// Room for our names, each in all its versions: about 100 in all.
const NAMES: usize = 160;

static DLOPEN: Symbol = Symbol::new(c"dlopen");
static DLMOPEN: Symbol = Symbol::new(c"dlmopen");

/// What became of libc's table.
static TABLE: AtomicU8 = AtomicU8::new(UNTOUCHED);
const UNTOUCHED: u8 = 0;
const LEADS_HERE: u8 = 1;
const WRAPPED: u8 = 2;
const SEALED: u8 = 3;

/// Called before a library is opened; returns the address of the function that opens it.
///
/// # Safety
/// As `dlopen`.
pub unsafe fn before_dlopen(path: *const c_char, mode: c_int) -> usize {
    let real = DLOPEN.get();
    if mode & libc::RTLD_DEEPBIND != 0 && !watch::is_by(Who::Tool) {
        let (how, hint): (&[u8], _) = match lead_here() {
            WRAPPED => (b"another library wraps glibc's locks", LAST),
            SEALED => (b"libc's symbols can't be written", WITHOUT_US),
            _ => (b"", LAST),
        };
        if !how.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { tell(path, &[b"with RTLD_DEEPBIND, and ", how], hint) };
        }
    }
    or_nothing(real)
}

/// The same for a library in a namespace.
///
/// # Safety
/// As `dlmopen`.
pub unsafe fn before_dlmopen(space: c_long, path: *const c_char, mode: c_int) -> usize {
    let real = DLMOPEN.get();
    // SAFETY: the caller's promise.
    unsafe {
        if space == libc::LM_ID_BASE {
            before_dlopen(path, mode);
        } else if !watch::is_by(Who::Tool) {
            tell(path, &[b"in a namespace of its own (dlmopen)", b""], WITHOUT_US);
        }
    }
    or_nothing(real)
}

fn or_nothing(real: *mut c_void) -> usize {
    unsafe extern "C" fn nothing() -> *mut c_void {
        null_mut()
    }
    if real.is_null() { nothing as *const () as usize } else { real.addr() }
}

const LAST: &[u8] = b"name liblockwright.so last in LD_PRELOAD";
const WITHOUT_US: &[u8] = b"run this program without liblockwright.so";

/// Warns, once, about how a library is opened.
///
/// # Safety
/// `path` is NUL-terminated, or null.
unsafe fn tell(path: *const c_char, how: &[&[u8]; 2], hint: &[u8]) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: it is only said once.
    if path.is_null() || SAID.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    say(&[
        b"'",
        path,
        b"' is opened ",
        how[0],
        how[1],
        b": condvars that it shares with the program may hang; hint: ",
        hint,
        b"\n",
    ]);
}

/// Makes glibc's symbols with our names lead to our functions.
fn lead_here() -> u8 {
    // ORDERING: Acquire, pairs with the Release below. (A look-up reads one word, old or new.)
    let known = TABLE.load(Acquire);
    if known != UNTOUCHED {
        return known;
    }
    // Look up glibc's own functions first: afterwards a look-up finds ours.
    let mut answer =
        if real::resolve().all(|(_, at)| is_glibcs(at)) { LEADS_HERE } else { WRAPPED };
    if answer == LEADS_HERE {
        let own = Own::collect();
        // Only one thread at a time is in here, so nobody write-protects the pages while we write.
        object::each(|info, _| {
            if let Some(libc) = Object::of(info).filter(is_glibc)
                && !own.replace(&libc)
            {
                answer = SEALED;
            }
            true
        });
    }
    // ORDERING: Release, pairs with the Acquire above: the table is written.
    TABLE.store(answer, Release);
    answer
}

/// Is it an object that contains glibc's locks?
fn is_glibc(object: &Object) -> bool {
    let name = object.soname().map(CStr::to_bytes);
    matches!(name, Some(b"libc.so.6" | b"libpthread.so.0")) // the second until 2.34
}

/// Is this the address of one of glibc's own functions, or null?
fn is_glibcs(address: usize) -> bool {
    let mut is = address == 0;
    object::each(|info, _| {
        is =
            is || Object::of(info).is_some_and(|object| object.holds(address) && is_glibc(&object));
        !is
    });
    is
}

/// One name of ours in one version. The texts lie in our object, which is never unloaded.
#[derive(Clone, Copy)]
struct Name {
    name: *const c_char,
    version: *const c_char,
    address: usize,
}

/// All names of ours.
struct Own {
    names: [Option<Name>; NAMES],
}

impl Own {
    fn collect() -> Self {
        let mut names = [None; NAMES];
        let mut free = names.iter_mut();
        let here = (&raw const TABLE).addr();
        object::each(|info, _| {
            let Some(object) = Object::of(info).filter(|object| object.holds(here)) else {
                return true;
            };
            object.definitions(|name, version, value| {
                if let Some(free) = free.next() {
                    *free = Some(Name {
                        name: name.as_ptr(),
                        version: version.as_ptr(),
                        address: object.base.wrapping_add(value.load(Relaxed)), // ours is constant
                    });
                }
            });
            false
        });
        Self { names }
    }

    /// Our address of the name in that version.
    fn find(&self, name: &CStr, version: &CStr) -> Option<usize> {
        let mut names = self.names.iter().map_while(|own| *own);
        // SAFETY: texts of our own object.
        let is = |own: &Name| unsafe {
            CStr::from_ptr(own.name) == name && CStr::from_ptr(own.version) == version
        };
        names.find(is).map(|own| own.address)
    }

    /// Makes the object's symbols with our names lead to our functions. `false`: they can't be written.
    fn replace(&self, object: &Object) -> bool {
        let Some((pages, protection)) = object.symbol_pages() else { return false };
        let protect = |protection| {
            let start = pages.start as *mut u8;
            // SAFETY: pages of the object, which is loaded; readable throughout.
            unsafe { kernel::protect(start, pages.len(), protection) }
        };
        if !protect(protection | libc::PROT_WRITE) {
            return false;
        }
        object.definitions(|name, version, value: &AtomicUsize| {
            if let Some(address) = self.find(name, version) {
                // Relaxed: the code exists already, and the dynamic linker reads the word whole.
                value.store(address.wrapping_sub(object.base), Relaxed);
            }
        });
        protect(protection);
        true
    }
}
