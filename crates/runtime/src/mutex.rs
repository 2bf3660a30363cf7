//! `pthread_mutex_*` and `mtx_*`: the plain kind's fast paths, and which mutexes are glibc's. What a kind means, and which
//! lock a mutex runs on, is decided by the locks' `posix` module.
//!
//! The fast path of the plain kinds is one compare-and-swap on word 0, and none at all while the process
//! has one thread (glibc's `__libc_single_threaded`).

mod again;
mod fast;
mod rehearse;

pub(crate) use again::{is_held_by_me, lock_again, taking_again};
pub(crate) use rehearse::{rehearse, rehearse_recorded};

use crate::caller::{Call, with_caller, with_frame};
use crate::environment::{fast_give, fast_take, take_word, threads};
use crate::layout::{Here, Mutex};
use crate::mode::{GRANTING, SEVERAL, by_mode, mode};
use crate::probes::fire;
use crate::watch::{self, How, Taking, Who};
use crate::{attached, observe, real, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use fast::{is_plain, nobody_queues_and_say, own_and_say, released};
use lockwright_locks::front::HELD;
use lockwright_locks::posix::{self, Environment as _, Held, MARKED, Refused, USERS, give_slow};
use lockwright_native::{Clock, Deadline};
use lockwright_platform::Word;
use lockwright_record::order;
use lockwright_record::trace::What;

/// Takes a mutex of the plain kind, waiting for it if need be.
#[inline(always)]
fn take(mutex: &Mutex, caller: usize) {
    if fast_take(mutex, threads) || posix::acquire(mutex, 0, caller) {
        mutex.owner.store(thread::id(), Relaxed); // for gdb, and for `destroy`
    }
}

/// Releases word 0.
#[inline(always)]
fn give(mutex: &Mutex) {
    if !fast_give(mutex, threads()) {
        give_slow(mutex, 0);
    }
}

#[inline(never)]
fn give_watched(m: &Mutex) -> c_int {
    // SAFETY: our caller's promise; the mutex is of the plain kind.
    let glibc = || unsafe { real::pthread_mutex_unlock(as_glibcs(m)) };
    watch::release(m, glibc, || {
        if !posix::hand_on(m) {
            m.owner.store(0, Relaxed); // as in `unlock`
            give(m);
        }
        fire!(mutex_release, m);
        0
    })
}

/// The same object, as glibc's functions take it.
fn as_glibcs(mutex: *const Mutex) -> *mut libc::pthread_mutex_t {
    mutex.cast_mut().cast()
}

/// The error number for an answer.
#[inline(always)]
fn errno(answer: Result<(), Refused>) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(Refused::Busy) => libc::EBUSY,
        Err(Refused::Deadlock) => libc::EDEADLK,
        Err(Refused::TooOften) => libc::EAGAIN,
        Err(Refused::NotHolder) => libc::EPERM,
        Err(Refused::Invalid) => libc::EINVAL,
        Err(Refused::TimedOut) => libc::ETIMEDOUT,
    }
}

/// Locks; `caller` is the address of the call.
///
/// # Safety
/// `mutex` is a `pthread_mutex_t` that is initialised, or was destroyed.
#[inline(always)]
pub unsafe fn lock(mutex: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the caller's promise; all fields are atomics, so it may be shared.
    let m = unsafe { &*mutex };
    if !is_plain(m) {
        // SAFETY: the caller's promise.
        return unsafe { lock_kind(mutex, caller) };
    }
    // As `fast_take`, with the probe `mutex_entry`.
    if !(nobody_queues_and_say(m) && take_word(m, mode())) {
        // SAFETY: what it expects.
        return unsafe { lock_contended(m, caller) };
    }
    // No call in the middle, which would save registers: see `is_plain`.
    let Some(id) = thread::known_id() else { return own(m) };
    own_and_say(m, id); // for gdb, and for `destroy`
    0
}

#[cold]
#[inline(never)]
fn own(m: &Mutex) -> c_int {
    m.owner.store(thread::id(), Relaxed); // as above
    fire!(mutex_acquired, m);
    0
}

with_caller! {
    /// Waits; `caller` is the address of the call, or 0.
    lock_contended(&Mutex, caller) = lock_contended_from;
    /// Every kind but the plain one.
    lock_kind(*mut Mutex, caller) = lock_kind_from;
    /// Releases the plain kind by the slow path.
    unlock_contended(&Mutex) = unlock_contended_from;
    /// Unlocks, while threads hold mutexes by nodes, or operations are watched.
    unlock_otherwise(*mut Mutex) = unlock_otherwise_from;
    /// Every kind but the plain one.
    unlock_kind(*mut Mutex) = unlock_kind_from;
    /// Tries to lock, while operations are watched.
    try_lock_watched(*mut Mutex) = try_lock_watched_from;
}

/// What we tell a watcher of lock orders. A mutex that nobody has taken yet gets a mark, which it loses when a new one is initialised at
/// the same place: C++'s `std::mutex` is never destroyed explicitly, it just ends with its memory.
fn taking(m: &Mutex, how: How, call: Call) -> Taking {
    let is_new = posix::is_ours(m)
        && m.kind.load(Relaxed) & MARKED == 0 // while somebody watches, nobody takes it away
        && m.kind.fetch_or(MARKED, Relaxed) & MARKED == 0;
    Taking { lock: core::ptr::from_ref(m).addr(), how, is_new, call }
}

const MUTEX: How = How::of(order::MUTEX);

#[cold]
#[inline(never)]
extern "C" fn lock_contended_from(
    m: &Mutex,
    caller: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    let from = if caller == 0 { from } else { caller };
    if observe::is_on() {
        observe::called(Call { from, frame, stack });
    }
    if watch::is_on() {
        return lock_watched(m, caller, Call { from, frame, stack });
    }
    if posix::acquire(m, 0, caller) {
        m.owner.store(thread::id(), Relaxed); // for gdb, and for `destroy`
    }
    fire!(mutex_acquired, m);
    0
}

#[inline(never)]
fn lock_watched(m: &Mutex, caller: usize, call: Call) -> c_int {
    // SAFETY: our caller's promise; the mutex is of the plain kind.
    let glibc = || unsafe { real::pthread_mutex_lock(as_glibcs(m)) };
    watch::acquisition(
        What::Acquired,
        || taking(m, MUTEX, call),
        m,
        glibc,
        || {
            take(m, caller);
            fire!(mutex_acquired, m);
            0
        },
    )
}

#[inline(never)]
unsafe extern "C" fn lock_kind_from(
    mutex: *mut Mutex,
    caller: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    let from = if caller == 0 { from } else { caller };
    if observe::is_on() {
        observe::called(Call { from, frame, stack });
    }
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_lock(mutex.cast()) };
    // SAFETY: as above.
    let ours = move || unsafe { lock_kind_here(mutex, caller) };
    // SAFETY: as above.
    let taking = || taking(unsafe { &*mutex }, MUTEX, Call { from, frame, stack });
    watch::acquisition(What::Acquired, taking, mutex, glibc, ours)
}

#[inline(always)]
unsafe fn lock_kind_here(mutex: *mut Mutex, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    if !posix::is_ours(m) {
        // SAFETY: not ours; glibc's function keeps glibc's contract.
        return unsafe { real::pthread_mutex_lock(mutex.cast()) };
    }
    fire!(mutex_entry, mutex);
    let answer = posix::lock(m, caller);
    if answer.is_ok() {
        fire!(mutex_acquired, mutex);
    }
    errno(answer)
}

/// Tries to lock.
///
/// # Safety
/// As [`lock`].
pub unsafe fn try_lock(mutex: *mut Mutex) -> c_int {
    if watch::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { try_lock_watched(mutex) };
    }
    // SAFETY: as above.
    unsafe { try_lock_here(mutex) }
}

#[inline(never)]
unsafe extern "C" fn try_lock_watched_from(
    mutex: *mut Mutex,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_trylock(mutex.cast()) };
    // SAFETY: as above.
    let ours = move || unsafe { try_lock_here(mutex) };
    // SAFETY: as above.
    let taking = || taking(unsafe { &*mutex }, MUTEX.trying(), Call { from, frame, stack });
    watch::acquisition(What::Acquired, taking, mutex, glibc, ours)
}

#[inline(always)]
unsafe fn try_lock_here(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    if !posix::is_ours(m) {
        // SAFETY: not ours.
        return unsafe { real::pthread_mutex_trylock(mutex.cast()) };
    }
    errno(posix::try_lock(m))
}

with_frame! {
    /// Locks, or gives up when `clock` reads `until`.
    ///
    /// # Safety
    /// As [`lock`], and `until` points to a timespec.
    "C" pub lock_until(mutex: *mut Mutex, clock: libc::clockid_t, until: *const libc::timespec)
        = lock_until_from;
}

/// As [`lock_until`], behind a naked function of the caller's: see [`Call::of_naked`].
///
/// # Safety
/// As [`lock_until`], and as that says.
pub unsafe extern "C" fn lock_until_from(
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the naked function's promise.
    let call = unsafe { Call::of_naked(frame, stack) };
    // SAFETY: the caller's promise.
    let glibc = move || unsafe {
        match clock {
            libc::CLOCK_REALTIME => real::pthread_mutex_timedlock(mutex.cast(), until),
            _ => real::pthread_mutex_clocklock(mutex.cast(), clock, until),
        }
    };
    // SAFETY: as above.
    let ours = move || unsafe { lock_until_here(mutex, clock, until, call) };
    // SAFETY: as above.
    let taking = || taking(unsafe { &*mutex }, MUTEX.trying(), call);
    watch::acquisition(What::Acquired, taking, mutex, glibc, ours)
}

#[inline(never)]
unsafe fn lock_until_here(
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
    call: Call,
) -> c_int {
    // SAFETY: the caller's promise.
    let (m, at) = unsafe { (&*mutex, *until) };
    let Some(clock) = Clock::from_id(clock) else { return libc::EINVAL };
    fire!(mutex_timedlock_entry, mutex, until);
    if observe::is_on() {
        observe::called(call);
    }
    // As in glibc: a time before the epoch has passed, whatever its nanoseconds.
    let is_time = at.tv_sec < 0 || (0..1_000_000_000).contains(&at.tv_nsec);
    let answer = posix::lock_until(m, is_time.then_some(Deadline { clock, at }));
    if answer.is_ok() {
        fire!(mutex_timedlock_acquired, mutex);
    }
    errno(answer)
}

/// Does glibc handle it (robust, PI, PP, process-shared, destroyed)?
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub unsafe fn is_foreign(mutex: *const Mutex) -> bool {
    // SAFETY: the caller's promise.
    unsafe { !posix::is_ours(&*mutex) }
}

/// Unlocks.
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub unsafe fn unlock(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    // Look at the mode first: a thread that holds the mutex by a node doesn't look at the mutex.
    by_mode(
        || {
            if !is_plain(m) {
                // SAFETY: the caller's promise.
                return unsafe { unlock_kind(mutex) };
            }
            m.owner.store(0, Relaxed); // glibc's condvar code asserts it
            if !fast_give(m, SEVERAL) {
                // SAFETY: what it expects.
                return unsafe { unlock_contended(m) };
            }
            released(mutex)
        },
        || {
            if !is_plain(m) {
                // SAFETY: the caller's promise.
                return unsafe { unlock_kind(mutex) };
            }
            if m.word.now() != HELD {
                // SAFETY: what it expects.
                return unsafe { unlock_contended(m) };
            }
            m.owner.store(0, Relaxed); // as above
            m.word.give_alone();
            released(mutex)
        },
        || {
            // As with several threads, for a thread that holds nothing by a node. No call, as in `lock`.
            if mode() == GRANTING && !Here::with_held(Held::is_any) && is_plain(m) {
                m.owner.store(0, Relaxed); // as above
                if fast_give(m, SEVERAL) {
                    return released(mutex);
                }
            }
            // SAFETY: the caller's promise.
            unsafe { unlock_otherwise(mutex) }
        },
    )
}

/// Unlocks, while threads hold mutexes by nodes, or operations are watched. While they are watched it doesn't touch the mutex, which may
/// be glibc's.
#[inline(never)]
unsafe extern "C" fn unlock_otherwise_from(
    mutex: *mut Mutex,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: our caller's promise.
    let m = unsafe { &*mutex };
    let grants = mode() == GRANTING;
    if grants {
        if observe::is_on() {
            observe::called(Call { from, frame, stack });
        }
        if posix::hand_on(m) {
            fire!(mutex_release, mutex);
            return 0;
        }
    }
    if !is_plain(m) {
        // SAFETY: as above.
        return unsafe { unlock_kind_from(mutex, 0, from, frame, stack) };
    }
    if !grants {
        return unlock_contended_from(m, 0, from, frame, stack);
    }
    m.owner.store(0, Relaxed); // as in `unlock`
    if !fast_give(m, SEVERAL) {
        return unlock_contended_from(m, 0, from, frame, stack);
    }
    fire!(mutex_release, mutex);
    0
}

#[cold]
#[inline(never)]
extern "C" fn unlock_contended_from(
    m: &Mutex,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    if observe::is_on() {
        observe::called(Call { from, frame, stack });
    }
    if watch::is_on() {
        return give_watched(m);
    }
    m.owner.store(0, Relaxed); // as in `unlock`
    give_slow(m, 0);
    fire!(mutex_release, m);
    0
}

#[inline(never)]
unsafe extern "C" fn unlock_kind_from(
    mutex: *mut Mutex,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    if observe::is_on() {
        observe::called(Call { from, frame, stack });
    }
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_unlock(mutex.cast()) };
    // SAFETY: as above.
    watch::release(mutex, glibc, move || unsafe { unlock_kind_here(mutex) })
}

#[inline(always)]
unsafe fn unlock_kind_here(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    if !posix::is_ours(m) {
        // SAFETY: not ours.
        return unsafe { real::pthread_mutex_unlock(mutex.cast()) };
    }
    let answer = posix::unlock(m);
    if answer.is_ok() {
        fire!(mutex_release, mutex);
    }
    errno(answer)
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
        let answer = unsafe { real::pthread_mutex_destroy(mutex.cast()) };
        if answer == 0 {
            watch::destroyed(mutex.addr());
        }
        return answer;
    }
    fire!(mutex_destroy, mutex);
    if attached::is_late() {
        // Clears glibc's count of holders: a thread that locked by glibc's function, and unlocked by ours, is still in it.
        m.users.fetch_and(!USERS, Relaxed); // nobody else uses it any more
    }
    let answer = posix::destroy(m);
    if answer.is_ok() {
        observe::retire(m);
        watch::destroyed(mutex.addr());
    }
    errno(answer)
}
