//! `pthread_mutex_*` and `mtx_*`: kinds, owners, return codes.
//!
//! The fast path of the plain kinds is one compare-and-swap on word 0, and none at all while the process
//! has one thread (glibc's `__libc_single_threaded`).

use crate::layout::{ERRORCHECK, KINDS, MARKED, Mutex, RECURSIVE, TYPE, USERS};
use crate::mode::{SEVERAL, SINGLE, is_single_threaded, mode};
use crate::watch::{self, Rehearsal, Who};
use crate::{leave, policy, real, thread};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_locks::front::{self, FREE, HELD, try_take};
use lockwright_native::{Clock, Deadline, Native};
use lockwright_platform::{Ptr, Word};
use lockwright_record::trace::What;

/// Takes word 0 if it is free and nobody queues; while operations are watched never.
#[inline(always)]
fn fast_take(mutex: &Mutex, mode: impl Fn() -> u32) -> bool {
    if !mutex.tail.load(Relaxed).is_null() {
        return false; // an arrival must not overtake a line unseen
    }
    let mode = mode();
    if mode == SEVERAL {
        // ORDERING: Acquire, pairs with the releases of `give` and of the front locks.
        return mutex.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
    }
    let free = mutex.word.load(Relaxed) + mode == FREE + SINGLE;
    if free {
        mutex.word.store(HELD, Relaxed); // nobody else is there to see it
    }
    free
}

/// The mode, whoever watches.
#[inline(always)]
fn threads() -> u32 {
    u32::from(is_single_threaded())
}

/// Takes word 0, waiting for it if need be.
#[inline(always)]
fn take(mutex: &Mutex, caller: usize) {
    if !fast_take(mutex, threads) {
        policy::acquire(mutex, caller);
    }
}

/// Releases word 0 if nobody needs a wake; while operations are watched never. After the write that does, the mutex
/// may be gone.
#[inline(always)]
fn fast_give(mutex: &Mutex, mode: u32) -> bool {
    if mode == SEVERAL {
        // ORDERING: Release, pairs with every Acquire that takes word 0.
        return mutex.word.compare_exchange(HELD, FREE, Release, Relaxed).is_ok();
    }
    let held = mutex.word.load(Relaxed) + mode == HELD + SINGLE;
    if held {
        mutex.word.store(FREE, Relaxed); // nobody else is there to see it
    }
    held
}

/// Releases word 0.
#[inline(always)]
fn give(mutex: &Mutex) {
    if !fast_give(mutex, threads()) {
        give_slow(mutex);
    }
}

#[inline(never)]
fn give_watched(m: &Mutex) -> c_int {
    // SAFETY: our caller's promise, of a mutex of the plain kind.
    let glibc = || unsafe { real::pthread_mutex_unlock(as_glibcs(m)) };
    watch::release(m, glibc, || {
        m.owner.store(0, Relaxed); // as in `fast_unlock`
        give(m);
        0
    })
}

/// The same object, as glibc's functions take it.
fn as_glibcs(mutex: *const Mutex) -> *mut libc::pthread_mutex_t {
    mutex.cast_mut().cast()
}

#[cold]
#[inline(never)]
fn give_slow(mutex: &Mutex) {
    if mutex.word.load(Relaxed) == FREE {
        return; // unlocking a free mutex: undefined, and harmless as with glibc
    }
    policy::release(mutex);
}

/// Locks; `caller` is the address of the call.
///
/// # Safety
/// `mutex` is a `pthread_mutex_t` that is initialised, or was destroyed.
#[inline(always)]
pub unsafe fn lock(mutex: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the caller's promise; all fields are atomics, so it may be shared.
    let m = unsafe { &*mutex };
    if m.kind.load(Relaxed) != 0 {
        // SAFETY: the caller's promise.
        return unsafe { lock_kind(mutex, caller) };
    }
    if fast_take(m, mode) {
        m.owner.store(thread::id(), Relaxed); // for gdb, and for `destroy`
        return 0;
    }
    lock_contended(m, caller)
}

#[cold]
#[inline(never)]
fn lock_contended(m: &Mutex, caller: usize) -> c_int {
    if watch::is_on() {
        return lock_watched(m, caller);
    }
    policy::acquire(m, caller);
    m.owner.store(thread::id(), Relaxed); // for gdb, and for `destroy`
    0
}

#[inline(never)]
fn lock_watched(m: &Mutex, caller: usize) -> c_int {
    // SAFETY: our caller's promise, of a mutex of the plain kind.
    let glibc = || unsafe { real::pthread_mutex_lock(as_glibcs(m)) };
    watch::acquisition(What::Acquired, m, glibc, || {
        take(m, caller);
        m.owner.store(thread::id(), Relaxed); // for gdb, and for `destroy`
        0
    })
}

/// Every kind but the plain one.
#[inline(never)]
unsafe fn lock_kind(mutex: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_lock(mutex.cast()) };
    // SAFETY: as above.
    let ours = move || unsafe { lock_kind_here(mutex, caller) };
    watch::acquisition(What::Acquired, mutex, glibc, ours)
}

#[inline(always)]
unsafe fn lock_kind_here(mutex: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    let kind = m.kind.load(Relaxed);
    if kind & !KINDS != 0 {
        // SAFETY: not ours; glibc's function keeps glibc's contract.
        return unsafe { real::pthread_mutex_lock(mutex.cast()) };
    }
    match before_lock(m, kind, libc::EDEADLK) {
        Some(answer) => answer,
        None => {
            if kind & MARKED != 0 && policy::must_queue(m) {
                policy::acquire(m, caller);
            } else {
                take(m, caller);
            }
            own(m)
        }
    }
}

/// What the kind says before anybody waits: held by the caller already? `again`: then what, if that is
/// an error.
#[inline(always)]
fn before_lock(m: &Mutex, kind: u32, again: c_int) -> Option<c_int> {
    let kind = kind & TYPE;
    if kind != RECURSIVE && kind != ERRORCHECK || m.owner.load(Relaxed) != thread::id() {
        return None; // Relaxed: our own id is there if and only if we wrote it
    }
    if kind == ERRORCHECK {
        return Some(again);
    }
    let count = m.count.load(Relaxed); // the holder's
    if count == u32::MAX {
        return Some(libc::EAGAIN);
    }
    m.count.store(count + 1, Relaxed);
    Some(0)
}

/// Records the calling thread as holder.
#[inline(always)]
fn own(m: &Mutex) -> c_int {
    m.owner.store(thread::id(), Relaxed); // read by others for gdb only
    m.count.store(1, Relaxed); // the holder's
    0
}

/// Tries to lock.
///
/// # Safety
/// As [`lock`].
pub unsafe fn try_lock(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_trylock(mutex.cast()) };
    // SAFETY: as above.
    watch::acquisition(What::Acquired, mutex, glibc, move || unsafe { try_lock_here(mutex) })
}

#[inline(always)]
unsafe fn try_lock_here(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    let kind = m.kind.load(Relaxed);
    if kind & !KINDS != 0 {
        // SAFETY: not ours.
        return unsafe { real::pthread_mutex_trylock(mutex.cast()) };
    }
    if let Some(answer) = before_lock(m, kind, libc::EBUSY) {
        return answer;
    }
    let got =
        if is_single_threaded() { fast_take(m, threads) } else { try_take::<Native>(&m.word) };
    if got { own(m) } else { libc::EBUSY }
}

/// Locks, or gives up when `clock` reads `until`.
///
/// # Safety
/// As [`lock`], and `until` points to a timespec.
pub unsafe fn lock_until(
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe {
        match clock {
            libc::CLOCK_REALTIME => real::pthread_mutex_timedlock(mutex.cast(), until),
            _ => real::pthread_mutex_clocklock(mutex.cast(), clock, until),
        }
    };
    // SAFETY: as above.
    let ours = move || unsafe { lock_until_here(mutex, clock, until) };
    watch::acquisition(What::Acquired, mutex, glibc, ours)
}

#[inline(never)]
unsafe fn lock_until_here(
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    let (m, at) = unsafe { (&*mutex, *until) };
    let Some(clock) = Clock::from_id(clock) else { return libc::EINVAL };
    let kind = m.kind.load(Relaxed);
    if let Some(answer) = before_lock(m, kind, libc::EDEADLK) {
        return answer;
    }
    if fast_take(m, threads) || try_take::<Native>(&m.word) {
        return own(m);
    }
    if !(0..1_000_000_000).contains(&at.tv_nsec) {
        return libc::EINVAL;
    }
    let tuning = policy::of(m).tuning();
    let deadline = Deadline { clock, at };
    if leave::on_word(m, || front::lock_until::<Native>(m.parts(), &tuning, deadline)) {
        own(m)
    } else {
        libc::ETIMEDOUT
    }
}

/// Is it glibc's to handle (robust, PI, PP, process-shared, destroyed)?
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub unsafe fn is_foreign(mutex: *const Mutex) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*mutex).kind.load(Relaxed) & !KINDS != 0 }
}

/// Unlocks.
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub unsafe fn unlock(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    if m.kind.load(Relaxed) != 0 {
        // SAFETY: the caller's promise.
        return unsafe { unlock_kind(mutex) };
    }
    if fast_unlock(m) { 0 } else { unlock_contended(m) }
}

/// As [`fast_give`], without an owner. A mutex that is watched is not touched: it may be glibc's.
#[inline(always)]
fn fast_unlock(m: &Mutex) -> bool {
    let mode = mode();
    if mode == SEVERAL {
        m.owner.store(0, Relaxed); // glibc's condvar code asserts it
        return fast_give(m, SEVERAL);
    }
    let held = m.word.load(Relaxed) + mode == HELD + SINGLE;
    if held {
        m.owner.store(0, Relaxed); // as above
        m.word.store(FREE, Relaxed); // nobody else is there to see it
    }
    held
}

#[cold]
#[inline(never)]
fn unlock_contended(m: &Mutex) -> c_int {
    if watch::is_on() {
        return give_watched(m);
    }
    m.owner.store(0, Relaxed); // as in `fast_unlock`
    give_slow(m);
    0
}

#[inline(never)]
unsafe fn unlock_kind(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_unlock(mutex.cast()) };
    // SAFETY: as above.
    watch::release(mutex, glibc, move || unsafe { unlock_kind_here(mutex) })
}

#[inline(always)]
unsafe fn unlock_kind_here(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    let kind = m.kind.load(Relaxed);
    if kind & !KINDS != 0 {
        // SAFETY: not ours.
        return unsafe { real::pthread_mutex_unlock(mutex.cast()) };
    }
    let kind = kind & TYPE;
    if kind == RECURSIVE || kind == ERRORCHECK {
        // Relaxed: our own id is there if and only if we wrote it.
        if m.owner.load(Relaxed) != thread::id() || m.word.load(Relaxed) == FREE {
            return libc::EPERM;
        }
        if kind == RECURSIVE {
            let count = m.count.load(Relaxed) - 1; // the holder's, at least 1
            m.count.store(count, Relaxed);
            if count != 0 {
                return 0;
            }
        }
    }
    m.owner.store(0, Relaxed);
    give(m);
    0
}

/// Destroys: EBUSY while held, or while a condvar's waiter will come back for it.
///
/// # Safety
/// As [`lock`].
pub unsafe fn destroy(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    // SAFETY: the caller's promise.
    if unsafe { is_foreign(m) } || watch::is_by(Who::Tool) {
        // SAFETY: not ours.
        return unsafe { real::pthread_mutex_destroy(mutex.cast()) };
    }
    if m.word.load(Relaxed) != FREE || m.users.load(Relaxed) & USERS != 0 {
        return libc::EBUSY;
    }
    m.kind.store(u32::MAX, Relaxed); // as glibc does: later use is an error, not a lock
    0
}

/// Acquires again after a condvar wait; `moved` as the wait said.
///
/// # Safety
/// As [`lock`]; `moved` only for a mutex that is not foreign.
pub(crate) unsafe fn lock_again(mutex: *mut Mutex, moved: bool, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_lock(mutex.cast()) };
    // SAFETY: as above.
    let ours = move || unsafe { lock_again_here(mutex, moved, caller) };
    watch::acquisition(What::Woken, mutex, glibc, ours)
}

#[inline(always)]
unsafe fn lock_again_here(mutex: *mut Mutex, moved: bool, caller: usize) -> c_int {
    if !moved {
        // SAFETY: the caller's promise.
        return unsafe { lock_kind_here(mutex, caller) };
    }
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    let tuning = policy::of(m).tuning();
    leave::on_word(m, || front::lock_moved::<Native>(m.parts(), &tuning));
    own(m)
}

/// Does the calling thread hold it, as one of ours?
///
/// # Safety
/// As [`lock`].
pub(crate) unsafe fn is_held_by_me(mutex: *const Mutex) -> bool {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    // SAFETY: the caller's promise.
    !unsafe { is_foreign(m) }
        && m.word.load(Relaxed) != FREE
        && m.owner.load(Relaxed) == thread::id() // our own id is there if and only if we wrote it
}

/// Locks and unlocks a mutex of its own, `pairs` times.
#[inline(never)]
pub(crate) fn rehearse(pairs: u32, how: Rehearsal) {
    let mutex = MaybeUninit::<Mutex>::zeroed();
    // SAFETY: zeroed memory is an unlocked mutex.
    let mutex = core::hint::black_box(unsafe { mutex.assume_init_ref() });
    for _ in 0..pairs {
        if let Rehearsal::Stamped(hooks) = how {
            let stop = || (hooks.before)(None);
            let start = |note| (hooks.after)(note, None);
            let note = stop();
            take(mutex, 0);
            mutex.owner.store(thread::id(), Relaxed); // nobody else sees this mutex
            start(note);
            mutex.owner.store(0, Relaxed); // as above
            let note = stop();
            give(mutex);
            start(note);
            continue;
        }
        let mode = if let Rehearsal::Several = how { SEVERAL } else { threads() };
        fast_take(mutex, || mode);
        mutex.owner.store(thread::id(), Relaxed); // as above
        mutex.owner.store(0, Relaxed);
        fast_give(mutex, mode);
    }
}

/// Locks and unlocks a mutex of its own, `pairs` times, as operations that the trace records.
#[inline(never)]
pub(crate) fn rehearse_recorded(pairs: usize) {
    let mutex = Mutex::new();
    let mutex = core::hint::black_box(&mutex);
    for _ in 0..pairs {
        lock_contended(mutex, 0);
        unlock_contended(mutex);
    }
}
