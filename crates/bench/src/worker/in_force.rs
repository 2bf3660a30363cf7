//! Which locks this process runs, by the word of the library that is preloaded: a misspelt name, an option that it doesn't
//! know, or a tool under which it stands aside would have us measure glibc's lock under another's name.

use crate::spec::InForce;
use lockwright_record::mailbox::{MAGIC, Mailbox, SYMBOL, TEXT};
use std::ffi::CString;
use std::sync::atomic::Ordering::Relaxed;

/// What the library says now.
pub(super) fn in_force() -> InForce {
    let name = CString::new(SYMBOL).expect("a symbol without a zero");
    // SAFETY: a terminated name, looked up among what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return InForce::NoLibrary;
    }
    let mailbox: *const Mailbox = found.cast();
    // SAFETY: whatever its version, a mailbox begins with these two, and nobody writes them.
    let (magic, size) = unsafe { ((*mailbox).magic, (*mailbox).size) };
    if magic != MAGIC || size as usize != size_of::<Mailbox>() {
        return InForce::OtherVersion;
    }
    // SAFETY: a mailbox of our version, in the library's own memory, which stays.
    let mailbox = unsafe { &*mailbox };
    // Written before `main`; nobody switches a worker's locks.
    let (now, len) = (mailbox.now.load(Relaxed), mailbox.now_len.load(Relaxed) as usize);
    if now.is_null() || len > TEXT {
        return InForce::Aside;
    }
    // SAFETY: the table in words, of this length, which is never given back.
    let words = unsafe { std::slice::from_raw_parts(now, len) };
    let words = String::from_utf8_lossy(words);
    let (default, rules) = words.split_once('\n').unwrap_or((&words, ""));
    InForce::Locks { default: default.into(), rules: rules.into() }
}
