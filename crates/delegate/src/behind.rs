//! The functions behind ours, in the next object that has them: libc, or `liblockwright.so`.

use crate::list::{HOOKS, NAMES};
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};
use libc::pthread_mutex_t;

/// The functions behind ours; null: not looked up yet.
pub(crate) static REAL: [AtomicPtr<c_void>; HOOKS] = [const { AtomicPtr::new(null_mut()) }; HOOKS];
pub(crate) static UNLOCK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static TRY_LOCK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn find(place: &AtomicPtr<c_void>, name: &[u8]) -> *mut c_void {
    // ORDERING: Acquire, pairs with the Release below; a symbol's code is there before anyway.
    let known = place.load(Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: each name ends with 0.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    let found = if found.is_null() { nothing as *mut c_void } else { found };
    // ORDERING: Release. Threads find the same.
    place.store(found, Release);
    found
}

/// Stands for a function that this libc doesn't have: nobody that is linked to it calls that.
extern "C" fn nothing() -> c_int {
    -1
}

/// The function behind this hook.
pub(crate) extern "C" fn real(number: usize) -> *mut c_void {
    find(&REAL[number], NAMES[number])
}

pub(crate) extern "C" fn real_unlock() -> *mut c_void {
    find(&UNLOCK, b"pthread_mutex_unlock\0")
}

/// Tries to lock, by the function behind ours.
///
/// # Safety
/// As that function.
pub(crate) unsafe fn try_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let function = find(&TRY_LOCK, b"pthread_mutex_trylock\0");
    // SAFETY: the function of that name has this type.
    unsafe {
        let function: unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int = transmute(function);
        function(mutex)
    }
}

/// Looks all functions up.
pub(crate) fn find_all() {
    rseq_offset();
    rseq_size();
    for (place, name) in REAL.iter().zip(NAMES) {
        find(place, name);
    }
    real_unlock();
    find(&TRY_LOCK, b"pthread_mutex_trylock\0");
}

/// The address of a symbol of any object; null: none.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with 0.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// glibc's `__rseq_offset`.
pub(crate) fn rseq_offset() -> *const isize {
    symbol_once(0, c"__rseq_offset").cast()
}

/// glibc's `__rseq_size`.
pub(crate) fn rseq_size() -> *const u32 {
    symbol_once(1, c"__rseq_size").cast()
}

fn symbol_once(which: usize, name: &CStr) -> *const c_void {
    static KNOWN: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
    // ORDERING: as in `find`.
    let known = KNOWN[which].load(Acquire);
    if !known.is_null() {
        return known;
    }
    let found = symbol(name);
    KNOWN[which].store(found, Release);
    found
}
