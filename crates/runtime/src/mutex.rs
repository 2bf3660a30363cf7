//! `pthread_mutex_*` and `mtx_*`: six operations. What a kind means, and which lock a mutex runs on, is decided by the locks' `posix`
//! module.
//!
//! ```text
//!   lock  unlock     try_lock                           fast paths: the plain kind, while nobody waits; try_lock, unless watched
//!     │     │           │      lock_until  lock_again        (destroy goes by no slow path)
//!     └─────┴───────────┴───────────┴───────────┘
//!                    ▼
//!                  slow       observers learn where the program called us; watched? ─► watched ─► watchers' hooks around ─┐
//!                    ▼                                                                                                   │
//!                  ours       glibc's probes around `posix`'s operation      ◄───────────────────────────────────────────┘
//!                    ▼
//!                  glibc      its own function, for a mutex that is not ours (robust, PI, PP, process-shared), or under a tool
//! ```
//!
//! The fast path of the plain kind is one compare-and-swap on word 0, and none at all while the process has one thread (glibc's
//! `__libc_single_threaded`).

mod rehearse;

pub(crate) use rehearse::{rehearse, rehearse_recorded};

use crate::caller::{Call, with_caller, with_frame};
use crate::fast::{GRANTING, SEVERAL, by_mode, fast_give, mode, take_word};
use crate::fast::{is_plain, nobody_queues_and_say, own_and_say, released};
use crate::layout::{Here, Mutex};
use crate::probes::fire;
use crate::watch::{self, How, Taking, Who};
use crate::{attached, observe, real, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::order;
use lockwright_contract::trace::What;
use lockwright_locks::front::HELD;
use lockwright_locks::posix::{self, Environment as _, Held, MARKED, Refused, USERS};
use lockwright_native::{Clock, Deadline};
use lockwright_platform::{Ptr, Word};

/// An operation, for the slow path.
#[derive(Clone, Copy)]
enum Operation {
    Lock,
    /// Lock, of the plain kind. The fast path has tried, if operations aren't watched.
    Wait,
    TryLock,
    /// Lock, or give up when this clock reads this time.
    LockUntil(libc::clockid_t, *const libc::timespec),
    /// Lock again after a condvar wait, which moved the thread to this mutex, or didn't.
    LockAgain(bool),
    Unlock,
    /// Unlock, likewise.
    Wake,
}
use Operation::{Lock, LockAgain, LockUntil, TryLock, Unlock, Wait, Wake};

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
        // SAFETY: the caller's promise.
        return unsafe { wait(mutex, caller) };
    }
    // No call in the middle, which would save registers: see `is_plain`.
    let Some(id) = thread::known_id() else { return own(m) };
    own_and_say(m, id); // for gdb, and for `destroy`
    0
}

#[inline(never)]
fn own(m: &Mutex) -> c_int {
    m.owner.store(thread::id(), Relaxed); // as above
    fire!(mutex_acquired, m);
    0
}

/// Tries to lock.
///
/// # Safety
/// As [`lock`].
#[inline]
pub unsafe fn try_lock(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    // As in `lock`, but a holder keeps its cache line: no `prefetchw`, and no exchange unless the word is free.
    let is_plain = m.kind.load(Relaxed) == 0 && m.tail.load(Relaxed).is_null();
    if is_plain && m.word.is_free() && take_word(m, mode()) {
        return own(m);
    }
    // SAFETY: the caller's promise.
    unsafe { try_lock_of_kind(mutex) }
}

#[inline(never)]
unsafe fn try_lock_of_kind(mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's promise.
    let m = unsafe { &*mutex };
    if watch::is_on() || !posix::is_ours(m) {
        // SAFETY: the caller's promise.
        return unsafe { try_lock_slow(mutex, 0) };
    }
    match posix::try_lock(m) {
        // SAFETY: the caller's promise.
        Err(Refused::Busy) if observe::is_on() => unsafe { tried_in_vain(mutex, 0) },
        answer => errno(answer),
    }
}

/// The mutex was busy: EBUSY.
unsafe extern "C" fn tried_from(
    mutex: *mut Mutex,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    observe::tries::mutex(unsafe { &*mutex }, Call { from, frame, stack });
    libc::EBUSY
}

with_caller! {
    tried_in_vain(*mut Mutex, caller) = tried_from;
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
    // SAFETY: the caller's promise, and the naked function's.
    unsafe { slow(&*mutex, 0, LockUntil(clock, until), Call::of_naked(frame, stack)) }
}

/// Acquires again after a condvar wait; `moved` is what the wait said.
///
/// # Safety
/// As [`lock`]; `moved` only for a mutex that is not foreign.
pub(crate) unsafe fn lock_again(mutex: *mut Mutex, moved: bool) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { slow(&*mutex, 0, LockAgain(moved), Call::UNKNOWN) }
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
                return unsafe { unlock_kind(mutex, 0) };
            }
            m.owner.store(0, Relaxed); // glibc's condvar code asserts it
            if !fast_give(m, SEVERAL) {
                // SAFETY: the caller's promise.
                return unsafe { wake(mutex, 0) };
            }
            released(mutex)
        },
        || {
            if !is_plain(m) {
                // SAFETY: the caller's promise.
                return unsafe { unlock_kind(mutex, 0) };
            }
            if m.word.now() != HELD {
                // SAFETY: the caller's promise.
                return unsafe { wake(mutex, 0) };
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
            unsafe { unlock_kind(mutex, 0) }
        },
    )
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

/// Defines `$name`, the slow path of an operation that the program called, which learns where. `caller` is the address of the call, or 0:
/// not known, or not needed. Each operation has a copy of its own, without the others' code.
macro_rules! slow {
    ($($name:ident = $from:ident: $operation:expr;)*) => { $(
        with_caller! {
            $name(*mut Mutex, caller) = $from;
        }

        #[inline(never)]
        unsafe extern "C" fn $from(
            mutex: *mut Mutex,
            caller: usize,
            from: usize,
            frame: usize,
            stack: usize,
        ) -> c_int {
            let from = if caller == 0 { from } else { caller };
            // SAFETY: the caller's promise.
            unsafe { slow(&*mutex, caller, $operation, Call { from, frame, stack }) }
        }
    )* };
}

slow! {
    lock_kind = lock_kind_from: Lock;
    wait = wait_from: Wait;
    try_lock_slow = try_lock_from: TryLock;
    unlock_kind = unlock_kind_from: Unlock;
    wake = wake_from: Wake;
}

/// The slow path: here operations are observed and watched. ([`destroy`] tells observers and watchers by itself.)
#[inline(always)]
unsafe fn slow(m: &Mutex, caller: usize, operation: Operation, call: Call) -> c_int {
    let is_watched = watch::is_on();
    // Rules ask where wrappers were called, also while nothing is counted.
    if observe::is_on() || observe::wrappers::are_known() {
        observe::called(call);
    }
    // SAFETY: the caller's promise, for both.
    unsafe {
        if is_watched { watched(m, caller, operation, call) } else { ours(m, caller, operation) }
    }
}

#[cold]
#[inline(never)]
unsafe fn watched(m: &Mutex, caller: usize, operation: Operation, call: Call) -> c_int {
    let run = || match operation {
        // The fast path hasn't tried.
        Wait => took(m, posix::lock(m, caller)),
        Wake => gave(m, posix::unlock(m)),
        // SAFETY: the caller's promise.
        _ => unsafe { ours(m, caller, operation) },
    };
    // SAFETY: the caller's promise.
    let glibc = || unsafe { glibc(m, operation) };
    let (what, how) = match operation {
        Lock | Wait => (What::Acquired, MUTEX),
        TryLock | LockUntil(..) => (What::Acquired, MUTEX.trying()),
        LockAgain(_) => (What::Woken, AGAIN),
        Unlock | Wake => {
            let address = core::ptr::from_ref(m).addr();
            let run = || watch::out_of_order(address, run);
            return watch::recorded(What::Released, m, glibc, run);
        }
    };
    watch::recorded(what, m, glibc, || watch::in_order(|| taking(m, how, call), run))
}

const MUTEX: How = How::of(order::MUTEX);
const AGAIN: How = How { again: true, ..MUTEX };

/// What we tell a watcher of lock orders. A mutex that nobody has taken yet gets a mark, which it loses when a new one is initialised at
/// the same place: C++'s `std::mutex` is never destroyed explicitly, it just ends with its memory.
fn taking(m: &Mutex, how: How, call: Call) -> Taking {
    let is_new = posix::is_ours(m)
        && m.kind.load(Relaxed) & MARKED == 0 // while somebody watches, nobody takes it away
        && m.kind.fetch_or(MARKED, Relaxed) & MARKED == 0;
    Taking { lock: core::ptr::from_ref(m).addr(), how, is_new, call }
}

/// For a condition variable's waiter that takes the mutex again: the place is known from its first acquisition.
pub(crate) fn taking_again(m: &Mutex) -> Taking {
    taking(m, AGAIN, Call::UNKNOWN)
}

/// Runs the operation on a mutex of ours.
#[inline(always)]
unsafe fn ours(m: &Mutex, caller: usize, operation: Operation) -> c_int {
    // A thread that holds the mutex by a node doesn't look at the mutex.
    if let Unlock = operation
        && mode() == GRANTING
        && posix::hand_on(m)
    {
        return gave(m, Ok(()));
    }
    // (The plain kind is ours.)
    if !matches!(operation, Wait | Wake) && !posix::is_ours(m) {
        // SAFETY: the caller's promise.
        return unsafe { glibc(m, operation) };
    }
    match operation {
        Lock => {
            fire!(mutex_entry, m);
            took(m, posix::lock(m, caller))
        }
        Wait => {
            posix::acquire(m, 0, caller);
            took(m, Ok(()))
        }
        TryLock => {
            let answer = posix::try_lock(m);
            if answer == Err(Refused::Busy) && observe::is_on() {
                observe::tries::mutex(m, observe::last_call());
            }
            errno(answer)
        }
        LockUntil(clock, until) => {
            // SAFETY: the caller's promise.
            let at = unsafe { *until };
            let Some(clock) = Clock::from_id(clock) else { return libc::EINVAL };
            fire!(mutex_timedlock_entry, m, until);
            // As in glibc: a time before the epoch has passed, whatever its nanoseconds.
            let is_time = at.tv_sec < 0 || (0..1_000_000_000).contains(&at.tv_nsec);
            let answer = posix::lock_until(m, is_time.then_some(Deadline { clock, at }));
            if answer.is_ok() {
                fire!(mutex_timedlock_acquired, m);
            }
            errno(answer)
        }
        LockAgain(moved) => {
            fire!(mutex_entry, m);
            took(m, posix::lock_again(m, moved, caller))
        }
        Unlock => gave(m, posix::unlock(m)),
        Wake => {
            m.owner.store(0, Relaxed); // as in `unlock`
            posix::release(m, 0);
            gave(m, Ok(()))
        }
    }
}

#[inline(always)]
fn took(m: &Mutex, answer: Result<(), Refused>) -> c_int {
    if answer.is_ok() {
        fire!(mutex_acquired, m);
    }
    errno(answer)
}

#[inline(always)]
fn gave(m: &Mutex, answer: Result<(), Refused>) -> c_int {
    if answer.is_ok() {
        fire!(mutex_release, m);
    }
    errno(answer)
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

/// Runs glibc's own function, and counts it.
unsafe fn glibc(m: &Mutex, operation: Operation) -> c_int {
    // SAFETY: the caller's promise.
    let run = |operation| unsafe { glibcs(m, operation) };
    if !observe::is_on() {
        return run(operation);
    }
    let (address, call) = (core::ptr::from_ref(m).addr(), observe::last_call());
    match operation {
        Lock | Wait | LockAgain(_) | LockUntil(..) => {
            observe::foreign::lock(address, call, is_others(m), || run(operation))
        }
        Unlock | Wake => observe::foreign::unlock(address, call, || run(operation)),
        TryLock => run(operation),
    }
}

/// Does another thread seem to hold this mutex, which glibc serves? A hint.
fn is_others(m: &Mutex) -> bool {
    /// What the kernel leaves of the word of a robust or inheriting mutex to the holder's id.
    const HOLDER: u32 = 0x3fff_ffff;
    let (word, me) = (m.word.now(), thread::id());
    word != 0 && word & HOLDER != me && m.owner.load(Relaxed) != me
}

/// Runs glibc's own function.
unsafe fn glibcs(m: &Mutex, operation: Operation) -> c_int {
    let m = core::ptr::from_ref(m).cast_mut().cast();
    // SAFETY: the caller's promise is glibc's contract.
    unsafe {
        match operation {
            Lock | Wait | LockAgain(_) => real::pthread_mutex_lock(m),
            TryLock => real::pthread_mutex_trylock(m),
            LockUntil(libc::CLOCK_REALTIME, until) => real::pthread_mutex_timedlock(m, until),
            LockUntil(clock, until) => real::pthread_mutex_clocklock(m, clock, until),
            Unlock | Wake => real::pthread_mutex_unlock(m),
        }
    }
}

/// Does glibc handle it (robust, PI, PP, process-shared, destroyed)?
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub(crate) unsafe fn is_foreign(mutex: *const Mutex) -> bool {
    // SAFETY: the caller's promise.
    unsafe { !posix::is_ours(&*mutex) }
}

/// Does the calling thread certainly hold it, as one of ours?
///
/// # Safety
/// As [`lock`].
pub(crate) unsafe fn is_held_by_me(mutex: *const Mutex) -> bool {
    // SAFETY: the caller's promise.
    posix::holds(unsafe { &*mutex }) == Some(true)
}
