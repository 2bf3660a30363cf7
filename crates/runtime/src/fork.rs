//! In a fork's child only the forking thread exists: queues of the parent's threads must be forgotten.
//!
//! A handler of `fork` does that; but handlers run in the order in which they were registered, and other
//! libraries' constructors come before ours. So there is also a page that the kernel wipes in the child:
//! whoever finds it wiped is the first one here, handler or not.

use crate::{emulate, epoch, machine, recording, thread, trace};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

unsafe extern "C" {
    /// glibc's registration of fork handlers; `pthread_atfork` itself is in a static library.
    fn __register_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
    /// Stands for the object that we are part of; the compiler's start files define it.
    static __dso_handle: c_void;
}

/// Forks between the program's start and this process, modulo 64.
static ERA: AtomicUsize = AtomicUsize::new(0);
/// A word that is 1, and 0 in a child that has not been here yet; null: there is none.
static WITNESS: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// The era of this process; see `lockwright_locks::front::Tuning`.
#[inline]
pub(crate) fn era() -> usize {
    // ORDERING: Acquire, pairs with `watch`: the word is there.
    let witness = WITNESS.load(Acquire);
    // SAFETY: mapped for ever, once it is published.
    if !witness.is_null() && unsafe { (*witness).load(Relaxed) } == 0 {
        in_child();
    }
    ERA.load(Relaxed) // the child has one thread when it changes
}

/// Starts watching; called by our constructor.
pub(crate) fn watch() {
    // SAFETY: a handler that goes with the object that we are part of: a program, the preloaded library, or
    // something that is unloaded some day.
    unsafe { __register_atfork(None, None, Some(handler), (&raw const __dso_handle).cast_mut()) };
    // SAFETY: a fresh anonymous mapping overlaps nothing, and is ours alone until it is published.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(null_mut(), 4096, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return;
        }
        if libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, 4096); // an old kernel: the handler has to do
            return;
        }
        let witness = page.cast::<AtomicU32>();
        (*witness).store(1, Relaxed); // published below
        // ORDERING: Release, pairs with the Acquire in `era`.
        WITNESS.store(witness, Release);
    }
}

unsafe extern "C" fn handler() {
    let witness = WITNESS.load(Relaxed); // one thread
    // SAFETY: as in `era`.
    if witness.is_null() || unsafe { (*witness).load(Relaxed) } == 0 {
        in_child();
    }
}

#[cold]
fn in_child() {
    // First what a signal handler that comes now must find: then it does not do all this once more.
    thread::forget_id();
    recording::in_child();
    trace::in_child();
    ERA.store((ERA.load(Relaxed) + 1) % 64, Relaxed); // one thread
    let witness = WITNESS.load(Relaxed);
    if !witness.is_null() {
        // SAFETY: as in `era`.
        unsafe { (*witness).store(1, Relaxed) };
    }
    epoch::in_child();
    emulate::forget_clock();
    machine::in_child();
}
