//! In a forked child only the forking thread exists, so the child must forget queues of the parent's threads.
//!
//! A fork handler does that. But handlers run in the order in which they were registered, and other
//! libraries' constructors run before ours. So we also have a page that the kernel wipes in the child:
//! the first of our code to run in the child finds it wiped, whether it is the handler or not.
//!
//! Modules with something to forget register by [`tell_child`].

use crate::{access, thread};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use lockwright_native::symbol;

unsafe extern "C" {
    /// Stands for the object that we are part of; the compiler's start files define it.
    static __dso_handle: c_void;
}

/// glibc's `__register_atfork`, which registers fork handlers; `pthread_atfork` itself is in a static library.
type Register = unsafe extern "C" fn(
    prepare: Option<unsafe extern "C" fn()>,
    parent: Option<unsafe extern "C" fn()>,
    child: Option<unsafe extern "C" fn()>,
    library: *mut c_void,
) -> c_int;

/// Forks between the program's start and this process.
static ERA: AtomicUsize = AtomicUsize::new(0);
/// Points to a word that is 1, and 0 in a child that has not noticed the fork yet. Null: nobody has asked for an era yet, so
/// nothing carries one.
static WITNESS: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// WITNESS points here if the kernel has no such pages: then the handler must suffice.
static NONE: AtomicU32 = AtomicU32::new(1);

/// The era of this process; see `lockwright_locks::front::Tuning`.
#[inline]
pub(crate) fn era() -> usize {
    // ORDERING: Acquire, pairs with `find_witness`: the word is initialized.
    let witness = WITNESS.load(Acquire);
    if witness.is_null() {
        find_witness();
    // SAFETY: mapped forever, once it is published.
    } else if unsafe { (*witness).load(Relaxed) } == 0 {
        in_child();
    }
    ERA.load(Relaxed) // when it changes, the child has one thread
}

/// Starts watching; called by our constructor.
pub(crate) fn watch() {
    let register = symbol::register_atfork();
    if register.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type. The handler is removed with the object that we are part of: a program, the
    // preloaded library, or a library that may be unloaded some day.
    unsafe {
        let register: Register = core::mem::transmute(register);
        let this = (&raw const __dso_handle).cast_mut();
        register(Some(prepare), None, Some(handler), this)
    };
}

/// From now on a child notices the fork even if no handler runs. A program that never asks for an era needs none of
/// this.
#[cold]
fn find_witness() {
    // SAFETY: the calling thread's own `errno`, which a lock operation leaves alone.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let confined = access::now() == access::Access::None;
    let made = if confined { null_mut() } else { make_witness() };
    let witness = if made.is_null() { (&raw const NONE).cast_mut() } else { made };
    // ORDERING: Release, pairs with the Acquire in `era`. Of several threads the first one wins.
    if WITNESS.compare_exchange(null_mut(), witness, Release, Relaxed).is_err() && !made.is_null() {
        // SAFETY: our own page, which nobody has seen.
        unsafe { libc::munmap(made.cast(), 4096) };
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

/// Makes a word that is 1, and 0 in a child; null: the kernel can't do that.
fn make_witness() -> *mut AtomicU32 {
    // SAFETY: a fresh anonymous mapping overlaps nothing, and is ours alone until it is published.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(null_mut(), 4096, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return null_mut();
        }
        if libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, 4096); // an old kernel
            return null_mut();
        }
        let witness = page.cast::<AtomicU32>();
        (*witness).store(1, Relaxed); // published by our caller
        witness
    }
}

unsafe extern "C" fn prepare() {
    thread::forks();
}

unsafe extern "C" fn handler() {
    let witness = WITNESS.load(Relaxed); // one thread
    let is_told = !witness.is_null() && !core::ptr::eq(witness, &NONE);
    // SAFETY: as in `era`.
    if !is_told || unsafe { (*witness).load(Relaxed) } == 0 {
        in_child();
    }
}

/// When a handler is called in a child.
#[derive(Clone, Copy)]
pub(crate) enum When {
    /// Before [`era`] says that this is a child: for state that must be right even if a signal handler runs now.
    Unseen,
    /// After that, so that a signal handler does not repeat it.
    Seen,
}

/// Handlers by their [`When`], in the order in which they registered.
static HANDLERS: [[AtomicPtr<()>; 8]; 2] = [const { [const { AtomicPtr::new(null_mut()) }; 8] }; 2];

/// From now on a child also calls this handler, in its only thread.
pub(crate) fn tell_child(when: When, handler: fn()) {
    let handler = handler as *mut ();
    for slot in &HANDLERS[when as usize] {
        // Relaxed: it points to code, which exists already.
        match slot.compare_exchange(null_mut(), handler, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(known) if known == handler => return,
            Err(_) => {}
        }
    }
    debug_assert!(false, "more handlers than places");
}

fn tell(when: When) {
    for slot in &HANDLERS[when as usize] {
        let handler = slot.load(Relaxed); // as above
        if !handler.is_null() {
            // SAFETY: `tell_child` got it as a function of this type.
            unsafe { core::mem::transmute::<*mut (), fn()>(handler)() };
        }
    }
}

#[cold]
fn in_child() {
    thread::forget_id();
    tell(When::Unseen);
    lockwright_native::arena::forked(); // before anybody asks it about a line, by the new era
    ERA.store(ERA.load(Relaxed) + 1, Relaxed); // one thread
    let witness = WITNESS.load(Relaxed);
    if !witness.is_null() {
        // SAFETY: as in `era`.
        unsafe { (*witness).store(1, Relaxed) };
    }
    tell(When::Seen);
}
