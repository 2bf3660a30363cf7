//! In a forked child only the forking thread exists, so the child must forget queues of the parent's threads.
//!
//! A fork handler does that. But handlers run in the order in which they were registered, and other
//! libraries' constructors run before ours. So we also have a page that the kernel wipes in the child:
//! the first of our code to run in the child finds it wiped, whether it is the handler or not. By then the child may have several
//! threads (a handler before ours started one, or no handler runs: `_Fork`, `clone`). The first to come settles what the child
//! forgets, and the others wait for that.
//!
//! ```text
//!   seen 0 ─► claim: settler 0 ─► thread ─► Unseen ─► era 0 ─► n ─► Seen ─► seen n       others: until seen, for some 10 s at most
//! ```
//!
//! Modules with something to forget register by [`tell_child`].

use crate::access::{self, Access};
use crate::thread;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use lockwright_native::futex::{self, Sleeper};
use lockwright_native::{Deadline, kernel, symbol, system_call};

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

/// What a child finds zeroed. Eras are stored plus 1.
struct Witness {
    /// This process's era; 0: it is a child that has not settled yet.
    seen: AtomicUsize,
    /// The thread that settles.
    settler: AtomicU32,
    /// The era that it has chosen.
    era: AtomicUsize,
}

impl Witness {
    const fn of(seen: usize) -> Self {
        let (settler, era) = (AtomicU32::new(0), AtomicUsize::new(0));
        Self { seen: AtomicUsize::new(seen), settler, era }
    }
}

/// The highest era yet, in this process and those that it descends from: the number of forks on the way from the program's start, or
/// more.
static ERA: AtomicUsize = AtomicUsize::new(0);
/// Null: nobody has asked for an era yet, so nothing carries one.
static WITNESS: AtomicPtr<Witness> = AtomicPtr::new(null_mut());
/// WITNESS points here if the kernel has no such pages: then the handler must suffice.
static NONE: Witness = Witness::of(1);

/// The era of this process; see `lockwright_locks::front::Tuning`.
#[inline]
pub(crate) fn era() -> usize {
    // ORDERING: Acquire, pairs with `find_witness`: the witness is initialized.
    let witness = WITNESS.load(Acquire);
    if witness.is_null() {
        return find_witness();
    }
    // SAFETY: mapped forever, once it is published.
    let witness = unsafe { &*witness };
    // ORDERING: Acquire, pairs with [seen]: what the child had to forget is forgotten.
    match witness.seen.load(Acquire) {
        0 => in_child(witness),
        seen => seen - 1,
    }
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
        register(Some(prepare), Some(parent), Some(handler), this)
    };
}

/// From now on a child notices the fork even if no handler runs. A program that never asks for an era needs none of
/// this. Returns the era.
#[cold]
fn find_witness() -> usize {
    let made = access::asking(|access| match access {
        Access::None => null_mut(),
        _ => make_witness(),
    });
    let witness = if made.is_null() { (&raw const NONE).cast_mut() } else { made };
    // ORDERING: Release, pairs with the Acquire in `era`. Of several threads the first one wins.
    if WITNESS.compare_exchange(null_mut(), witness, Release, Relaxed).is_err() && !made.is_null() {
        // SAFETY: our own page, which nobody has seen.
        unsafe { kernel::unmap(made.cast(), 4096) };
    }
    era()
}

/// Makes a witness that a child finds zeroed; null: the kernel can't do that.
fn make_witness() -> *mut Witness {
    let Some(page) = kernel::map(4096) else { return null_mut() };
    // SAFETY: a fresh mapping, ours alone until it is published.
    unsafe {
        if system_call!(libc::SYS_madvise, page, 4096, libc::MADV_WIPEONFORK) != 0 {
            kernel::unmap(page, 4096); // an old kernel
            return null_mut();
        }
        let witness = page.cast::<Witness>();
        witness.write(Witness::of(ERA.load(Relaxed) + 1)); // published by our caller
        witness
    }
}

/// Called before a fork, and after it in the parent; null: none.
static AROUND: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

/// From now on a thread that forks calls `before`, and `after` in the parent. (Where no fork handler runs, it calls neither.)
pub(crate) fn around(before: fn(), after: fn()) {
    AROUND[1].store(after as *mut (), Relaxed); // it points to code, which exists already
    AROUND[0].store(before as *mut (), Relaxed); // likewise
}

fn call(function: &AtomicPtr<()>) {
    let function = function.load(Relaxed); // as above
    if !function.is_null() {
        // SAFETY: `around` got it as a function of this type.
        unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
    }
}

unsafe extern "C" fn prepare() {
    thread::forks();
    call(&AROUND[0]);
}

unsafe extern "C" fn parent() {
    call(&AROUND[1]);
}

unsafe extern "C" fn handler() {
    // ORDERING: Acquire, pairs with `find_witness`: a handler before ours may have started a thread.
    let witness = WITNESS.load(Acquire);
    if witness.is_null() || core::ptr::eq(witness, &NONE) {
        // Nobody else tells this process that it is a child.
        NONE.settler.store(0, Relaxed);
        NONE.era.store(0, Relaxed);
        in_child(&NONE);
        return;
    }
    // SAFETY: as in `era`.
    let witness = unsafe { &*witness };
    if witness.seen.load(Acquire) == 0 {
        // ORDERING: as in `era`.
        in_child(witness);
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
#[unsafe(link_section = ".lockwright.start")]
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

/// Settles what this child forgets, or waits until another thread has. Returns the child's era.
#[cold]
fn in_child(witness: &Witness) -> usize {
    thread::forget_id();
    let me = thread::id();
    // Relaxed: `seen` publishes what the settler does.
    match witness.settler.compare_exchange(0, me, Relaxed, Relaxed) {
        Ok(_) => {}
        // A signal handler, in the middle of the below. What it needs is repeated.
        Err(settler) if settler == me => return choose_era(witness),
        Err(_) => return await_settler(witness),
    }
    settle(witness)
}

fn settle(witness: &Witness) -> usize {
    let era = choose_era(witness);
    tell(When::Seen);
    // [seen] ORDERING: Release, pairs with the Acquire in `era`.
    witness.seen.store(era + 1, Release);
    era
}

/// The settler, or a signal handler that interrupts it, calls the handlers that come first, and chooses the child's era.
fn choose_era(witness: &Witness) -> usize {
    // All Relaxed: one thread settles, and `seen` publishes what it did.
    if witness.era.load(Relaxed) == 0 {
        access::forked();
        tell(When::Unseen);
        lockwright_native::arena::forked(); // before anybody asks it about a line, by the new era
        // Before the era is known: a child of this child must find it taken. A signal handler here takes one more.
        let era = ERA.fetch_add(1, Relaxed) + 1;
        let _ = witness.era.compare_exchange(0, era + 1, Relaxed, Relaxed);
    }
    witness.era.load(Relaxed) - 1
}

/// Waits until another thread has settled, but not for ever: a signal handler may have torn that thread away. Then the caller settles.
/// Returns the era.
#[cold]
fn await_settler(witness: &Witness) -> usize {
    for nap in 0..10_000 {
        // ORDERING: Acquire, pairs with [seen].
        let seen = witness.seen.load(Acquire);
        if seen != 0 {
            return seen - 1;
        }
        let ns = if nap < 100 { 50_000 } else { 1_000_000 }; // it takes microseconds, unless that thread has no CPU
        futex::wait(&0, 0, Some(Deadline::after(ns)), Sleeper::Own);
    }
    settle(witness)
}
