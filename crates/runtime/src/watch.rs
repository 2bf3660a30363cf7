//! Who watches lock operations: emulation, which slows the code between them; the trace, which records them; the watcher of
//! lock orders; or another tool, under which they become glibc's. And who watches epochs.
//!
//! A watcher registers its functions here, before the program's main. Only `init` knows it, because it starts it. Lock
//! operations tell us, and we tell the watcher. Normally nobody watches, and then this costs the plain mutex nothing:
//! see `fast`.

use crate::caller::Call;
use crate::fast;
use crate::layout::Mutex;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8};
use lockwright_contract::Execution;
use lockwright_contract::trace::What;

// Who watches. In assembly, because reaching a Rust static would take one more load.
core::arch::global_asm!(
    ".pushsection .lockwright.start,\"aw\",@progbits",
    ".hidden lockwright_watched",
    ".globl lockwright_watched",
    ".type lockwright_watched, @object",
    ".size lockwright_watched, 1",
    "lockwright_watched:",
    ".byte 0",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "lockwright_watched"]
    static WATCHED: AtomicU8;
}

/// Who watches.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Who {
    /// Emulated little cores.
    Emulation = 1,
    /// The trace of operations.
    Trace = 2,
    /// A tool that knows glibc's functions. It has no [`Hooks`].
    Tool = 4,
    /// The order in which threads take locks. It has [`Order`] instead.
    Order = 8,
}

/// What a watcher does at an operation.
pub(crate) struct Hooks {
    /// The operation begins; `None`: by itself it acquires or releases no mutex. The note is passed to `after`.
    pub(crate) before: fn(Option<What>) -> Note,
    /// The operation has ended. It says what it did, and to which mutex, if it did anything. The watcher must not read the
    /// mutex's memory.
    pub(crate) after: fn(Note, Option<(What, usize)>),
}

/// What a watcher notes when an operation begins.
pub(crate) type Note = Option<(*const c_void, u64)>;

/// The hooks of emulation and of the trace. In this order, emulation's delays lie outside what the trace records.
static HOOKS: [AtomicPtr<Hooks>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
const HOOKED: [Who; 2] = [Who::Emulation, Who::Trace];

/// The hooks in this place, if their owner watches.
#[inline(always)]
fn hooks(place: usize) -> Option<&'static Hooks> {
    if !is_by(HOOKED[place]) {
        return None;
    }
    // SAFETY: null, or what `begin` was given, forever. Relaxed: `is_by` has acquired it.
    unsafe { HOOKS[place].load(Relaxed).as_ref() }
}

/// Does anybody watch?
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // SAFETY: compares our variable, which is set before the program's main.
    unsafe {
        core::arch::asm!(
            "cmp byte ptr [rip + lockwright_watched], 0",
            "jne {on}",
            on = label { return true },
            options(nostack, readonly),
        );
    }
    false
}

/// Does anybody watch? Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // SAFETY: our variable.
    unsafe { WATCHED.load(Relaxed) != 0 } // set before the program's main
}

/// Does this watcher watch?
#[inline(always)]
pub(crate) fn is_by(who: Who) -> bool {
    // ORDERING: Acquire, pairs with the Release in `begin`: what the watcher set up is visible.
    // SAFETY: our variable.
    unsafe { WATCHED.load(Acquire) & who as u8 != 0 }
}

/// A thread takes a lock, as the watcher of lock orders sees it.
#[derive(Clone, Copy)]
pub(crate) struct Taking {
    pub(crate) lock: usize,
    pub(crate) how: How,
    /// Nobody has taken it before, although there may have been another lock at its address.
    pub(crate) is_new: bool,
    pub(crate) call: Call,
}

/// What kind of lock it is, and how a thread takes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct How {
    /// One of `lockwright_contract::order`.
    pub(crate) kind: u32,
    /// For reading.
    pub(crate) reads: bool,
    /// The thread doesn't wait for it, or not forever: so nobody can get stuck there.
    pub(crate) tries: bool,
    /// A condition variable's waiter takes it again.
    pub(crate) again: bool,
}

impl How {
    /// A lock of this kind, for writing.
    pub(crate) const fn of(kind: u32) -> Self {
        Self { kind, reads: false, tries: false, again: false }
    }

    pub(crate) const fn reading(self) -> Self {
        Self { reads: true, ..self }
    }

    pub(crate) const fn trying(self) -> Self {
        Self { tries: true, ..self }
    }
}

/// What the watcher of lock orders does.
pub(crate) struct Order {
    /// A thread asks for a lock, and may have to wait.
    pub(crate) asks: fn(&Taking),
    /// The thread has got it, or (`false`) has not.
    pub(crate) answered: fn(&Taking, bool),
    /// The lock at this address was released. Its memory is not read.
    pub(crate) released: fn(usize),
    /// The lock at this address was destroyed.
    pub(crate) destroyed: fn(usize),
}

/// The watcher of lock orders; null: none.
static ORDER: AtomicPtr<Order> = AtomicPtr::new(null_mut());

/// The same; `None`: none.
#[inline(always)]
fn order() -> Option<&'static Order> {
    if !is_by(Who::Order) {
        return None;
    }
    // SAFETY: null, or what `begin_order` was given, forever. Relaxed: `is_by` has acquired it.
    unsafe { ORDER.load(Relaxed).as_ref() }
}

/// From now on this watcher watches lock orders. Called before the program's main.
pub(crate) fn begin_order(order: &'static Order) {
    ORDER.store(core::ptr::from_ref(order).cast_mut(), Relaxed); // published by `begin`
    begin(Who::Order, None);
}

/// Runs an operation for the watcher of lock orders. If it returns 0 (or that the last owner died), it has taken the lock.
pub(crate) fn in_order(taking: impl Fn() -> Taking, run: impl Fn() -> c_int) -> c_int {
    let Some(order) = order() else { return run() };
    let taking = taking();
    (order.asks)(&taking);
    let answer = run();
    (order.answered)(&taking, matches!(answer, 0 | libc::EOWNERDEAD));
    answer
}

/// Runs an operation for the watcher of lock orders. If it returns 0, it has released the lock.
pub(crate) fn out_of_order(lock: usize, run: impl Fn() -> c_int) -> c_int {
    let answer = run();
    if let Some(order) = order().filter(|_| answer == 0) {
        (order.released)(lock);
    }
    answer
}

/// The lock at this address was destroyed.
#[inline]
pub(crate) fn destroyed(lock: usize) {
    if let Some(order) = order() {
        (order.destroyed)(lock);
    }
}

/// From now on this watcher watches. Called before the program's main.
pub(crate) fn begin(who: Who, hooks: Option<&'static Hooks>) {
    let place = HOOKED.iter().position(|owner| *owner == who);
    if let (Some(place), Some(hooks)) = (place, hooks) {
        HOOKS[place].store(core::ptr::from_ref(hooks).cast_mut(), Relaxed); // published below
    }
    // ORDERING: Release, pairs with the Acquire in `is_by`. Threads that start later see all of it.
    // SAFETY: our variable.
    unsafe { WATCHED.fetch_or(who as u8, Release) };
    fast::watch(true);
}

/// This watcher no longer watches. Called in the child of a fork, by its only thread.
pub(crate) fn end(who: Who) {
    // SAFETY: our variable; one thread.
    let before = unsafe { WATCHED.fetch_and(!(who as u8), Relaxed) };
    fast::watch(before & !(who as u8) != 0);
}

/// A point at which something is measured: emulation first adds the delay for what was computed until here.
#[inline(always)]
pub(crate) fn boundary() {
    if is_on() {
        watched(|| ());
    }
}

/// Runs a lock operation that the trace does not record.
#[inline(always)]
pub(crate) fn operation<R>(run: impl Fn() -> R) -> R {
    if is_on() {
        return watched(run);
    }
    run()
}

#[cold]
#[inline(never)]
fn watched<R>(run: impl Fn() -> R) -> R {
    let notes = before(None);
    let result = run();
    after(notes, None);
    result
}

#[inline(always)]
fn before(what: Option<What>) -> [Note; 2] {
    let first = hooks(0).and_then(|hooks| (hooks.before)(what));
    [first, hooks(1).and_then(|hooks| (hooks.before)(what))]
}

#[inline(always)]
fn after([first, second]: [Note; 2], done: Option<(What, usize)>) {
    if let Some(hooks) = hooks(1) {
        (hooks.after)(second, done);
    }
    if let Some(hooks) = hooks(0) {
        (hooks.after)(first, done);
    }
}

/// The same; under a tool that knows glibc's functions, `glibc` runs instead.
#[inline(always)]
pub(crate) fn operation_or(glibc: impl Fn() -> c_int, run: impl Fn() -> c_int) -> c_int {
    if is_on() {
        return watched_or(glibc, run);
    }
    run()
}

#[cold]
#[inline(never)]
fn watched_or(glibc: impl Fn() -> c_int, run: impl Fn() -> c_int) -> c_int {
    if is_by(Who::Tool) { glibc() } else { watched(run) }
}

/// Runs an operation on a mutex while somebody watches. If it returns 0 (or that the last owner died), it has done this to `lock`. `glibc` is
/// as in [`operation_or`].
pub(crate) fn recorded(
    what: What,
    lock: *const Mutex,
    glibc: impl Fn() -> c_int,
    run: impl Fn() -> c_int,
) -> c_int {
    if is_by(Who::Tool) {
        return glibc();
    }
    let notes = before(Some(what));
    let answer = run();
    let done = match answer {
        0 | libc::EOWNERDEAD => Some(what),
        libc::ETIMEDOUT => Some(What::GaveUp),
        _ => None,
    };
    after(notes, done.map(|what| (what, lock.addr())));
    answer
}

/// Runs glibc's own wait for a condition variable, which releases `lock` and acquires it again.
#[inline(always)]
pub(crate) fn elsewhere<R>(lock: *const Mutex, taking: Taking, wait: impl FnOnce() -> R) -> R {
    let tell = |what| {
        if is_on() {
            after(before(Some(what)), Some((what, lock.addr())));
        }
    };
    out_of_order(lock.addr(), || 0);
    tell(What::Released);
    let result = wait();
    tell(What::Woken);
    in_order(|| taking, || 0);
    result
}

/// How lock operations are rehearsed, for a watcher that has to know the cost of its own code.
#[derive(Clone, Copy)]
pub(crate) enum Rehearsal {
    /// As in a process with several threads.
    Several,
    /// As the process's current number of threads requires.
    Plain,
    /// The same, with a watcher's hooks around each operation.
    Stamped(&'static Hooks),
}

/// What a watcher of epochs does.
pub(crate) struct Epochs {
    /// One execution of the epoch with this number has ended.
    pub(crate) ended: fn(u32, &Execution),
    /// The name or the percentile of the epoch with this number has changed.
    pub(crate) changed: fn(u32),
}

/// The watcher of epochs; null: none.
static EPOCHS: AtomicPtr<Epochs> = AtomicPtr::new(null_mut());

/// From now on this watcher watches epochs; `None`: nobody does.
pub(crate) fn watch_epochs(watcher: Option<&'static Epochs>) {
    let watcher = watcher.map_or(null_mut(), |watcher| core::ptr::from_ref(watcher).cast_mut());
    // ORDERING: Release, pairs with the Acquire in `epochs`: what the watcher has set up is visible.
    EPOCHS.store(watcher, Release);
}

/// The watcher of epochs.
#[inline(always)]
pub(crate) fn epochs() -> Option<&'static Epochs> {
    // ORDERING: Acquire, pairs with the Release in `watch_epochs`.
    // SAFETY: null, or what `watch_epochs` was given, forever.
    unsafe { EPOCHS.load(Acquire).as_ref() }
}
