//! Asks the preloaded library which locks this process runs. A misspelt name, an unknown option, or a tool under which
//! the library stands aside would otherwise make us report glibc's figures under another lock's name.

use crate::spec::InForce;
use lockwright_contract::mailbox::{MAGIC, Mailbox, SYMBOL, TEXT};
use std::ffi::CString;
use std::sync::atomic::Ordering::Relaxed;

/// The library's current answer.
pub(super) fn in_force() -> InForce {
    let name = CString::new(SYMBOL).expect("a symbol without a zero");
    // SAFETY: a terminated name, looked up among what the process has loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return InForce::NoLibrary;
    }
    let mailbox: *const Mailbox = found.cast();
    // SAFETY: a mailbox of any version begins with these two fields, which never change.
    let (magic, size) = unsafe { ((*mailbox).magic, (*mailbox).size) };
    if magic != MAGIC || size as usize != size_of::<Mailbox>() {
        return InForce::OtherVersion;
    }
    // SAFETY: a mailbox of our version, in the library's own memory, which stays.
    let mailbox = unsafe { &*mailbox };
    // Written before `main`. Nothing switches a worker's locks later.
    let (now, len) = (mailbox.now.load(Relaxed), mailbox.now_len.load(Relaxed) as usize);
    if now.is_null() || len > TEXT {
        return InForce::Aside;
    }
    // SAFETY: the table's text has this length, and is never freed.
    let words = unsafe { std::slice::from_raw_parts(now, len) };
    let words = String::from_utf8_lossy(words);
    let (default, rules) = words.split_once('\n').unwrap_or((&words, ""));
    InForce::Locks { default: default.into(), rules: rules.into() }
}
