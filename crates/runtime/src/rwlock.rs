//! `pthread_rwlock_*` on [`lockwright_locks::rw::biased`]: an rwlock, and a table for readers whenever a policy says so.
//!
//! Private locks are ours, in glibc's own 56 bytes. Process-shared ones stay glibc's, because the other
//! process may run without us. `pthread_rwlock_init`, `_destroy` and the attributes stay glibc's, too: its
//! `init` zeroes the words, and leaves preference and sharing where we read them.
//!
//! A rule may say who goes first, whatever the program asked for (`preference`).
//!
//! Invariant: a lock is always served by the same side, because the two protocols differ. Which side
//! depends on the lock's sharing and on a setting that is read once.

mod lock;

pub use lock::RwLock;
pub(crate) use lock::deadline;

use crate::caller::{Call, with_caller, with_frame};
use crate::probes::fire;
use crate::watch::{How, Taking};
use crate::{observe, real, watch};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use libc::{clockid_t, timespec};
use lockwright_contract::order;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::Word;

/// Calls glibc's function `$name`.
macro_rules! glibc {
    ($name:literal, $lock:expr $(, $argument:expr => $kind:ty)*) => {{
        const AT: usize = real::late($name);
        // SAFETY: glibc declares the function so.
        let function = unsafe {
            transmute::<*mut c_void, unsafe extern "C" fn(*mut RwLock $(, $kind)*) -> c_int>(real::late_address(AT))
        };
        // SAFETY: our caller promises what glibc requires.
        unsafe { function($lock $(, $argument)*) }
    }};
}

const RWLOCK: How = How::of(order::RWLOCK);
/// Locking for reading.
pub(crate) const READS: How = RWLOCK.reading();
/// Locking for writing.
pub(crate) const WRITES: How = RWLOCK;

/// Runs an operation while operations are watched; if it returns 0, it has locked the lock.
#[cold]
pub(crate) fn watched(lock: &RwLock, how: How, call: Call, run: impl Fn() -> c_int) -> c_int {
    let run = || observe::within(call, &run);
    let taking = || {
        // Relaxed: set once in a lock's life.
        let is_new = lock.shared == 0
            && lock.is_known.load(Relaxed) == 0
            && lock.is_known.swap(1, Relaxed) == 0;
        Taking { lock: core::ptr::from_ref(lock).addr(), how, is_new, call }
    };
    watch::operation(|| watch::in_order(taking, run))
}

/// Runs an operation while operations are watched; if it returns 0, it has unlocked the lock.
#[cold]
pub(crate) fn unlocked(lock: *const RwLock, call: Call, run: impl Fn() -> c_int) -> c_int {
    let run = || observe::within(call, &run);
    watch::operation(|| watch::out_of_order(lock.addr(), run))
}

with_caller! {
    /// While operations are watched.
    unlock_watched(*mut RwLock) = unlock_from;
}

unsafe extern "C" fn unlock_from(
    lock: *mut RwLock,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: our caller's promise.
    unlocked(lock, Call { from, frame, stack }, move || unsafe { unlock_here(lock) })
}

/// Defines `$name`, which locks by `$run` while operations are watched.
macro_rules! watched {
    ($($name:ident: $how:expr, $from:ident = $run:ident;)*) => { $(
        with_caller! {
            /// While operations are watched.
            $name(*mut RwLock) = $from;
        }
        unsafe extern "C" fn $from(
            lock: *mut RwLock,
            _: usize,
            from: usize,
            frame: usize,
            stack: usize,
        ) -> c_int {
            // SAFETY: our caller's promise.
            let this = unsafe { &*lock };
            // SAFETY: our caller promises that, too.
            watched(this, $how, Call { from, frame, stack }, move || unsafe { $run(lock) })
        }
    )* };
}

watched! {
    rdlock_watched: READS, rdlock_from = rdlock_here;
    tryrdlock_watched: READS.trying(), tryrdlock_from = tryrdlock_here;
    wrlock_watched: WRITES, wrlock_from = wrlock_here;
    trywrlock_watched: WRITES.trying(), trywrlock_from = trywrlock_here;
}

/// `pthread_rwlock_rdlock`.
///
/// # Safety
/// `lock` is an initialised lock.
#[inline]
pub unsafe fn rdlock(lock: *mut RwLock) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { rdlock_watched(lock) };
    }
    // SAFETY: our caller promises that, too.
    unsafe { rdlock_here(lock) }
}

#[inline]
unsafe fn rdlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: our caller's promise; everything in it that changes is atomic.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_rdlock", lock);
    }
    fire!(rdlock_entry, lock);
    this.read_probed()
}

/// `pthread_rwlock_tryrdlock`.
///
/// # Safety
/// As [`rdlock`].
#[inline]
pub unsafe fn tryrdlock(lock: *mut RwLock) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { tryrdlock_watched(lock) };
    }
    // SAFETY: our caller promises that, too.
    unsafe { tryrdlock_here(lock) }
}

#[inline]
unsafe fn tryrdlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_tryrdlock", lock);
    }
    this.try_read()
}

with_frame! {
    /// `pthread_rwlock_timedrdlock`.
    ///
    /// # Safety
    /// As [`rdlock`], and `at` is readable.
    "C" pub timedrdlock(lock: *mut RwLock, at: *const timespec) = timedrdlock_from;
    /// `pthread_rwlock_clockrdlock`.
    ///
    /// # Safety
    /// As [`rdlock`], and `at` is readable.
    "C" pub clockrdlock(lock: *mut RwLock, clock: clockid_t, at: *const timespec) = clockrdlock_from;
}

unsafe extern "C" fn timedrdlock_from(
    lock: *mut RwLock,
    at: *const timespec,
    _: usize,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: our caller's promise; and the naked function's.
    unsafe { clockrdlock_from(lock, libc::CLOCK_REALTIME, at, 0, frame, stack) }
}

unsafe extern "C" fn clockrdlock_from(
    lock: *mut RwLock,
    clock: clockid_t,
    at: *const timespec,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as in `rdlock`; and the naked function's promise.
    let (this, call) = unsafe { (&*lock, Call::of_naked(frame, stack)) };
    // SAFETY: our caller's promise.
    let run = move || unsafe { clockrdlock_here(this, clock, at, call) };
    if watch::is_on() { watched(this, READS.trying(), call, run) } else { run() }
}

#[inline(always)]
unsafe fn clockrdlock_here(
    this: &RwLock,
    clock: clockid_t,
    at: *const timespec,
    call: Call,
) -> c_int {
    if this.is_glibcs() {
        let lock = core::ptr::from_ref(this).cast_mut();
        // glibc before 2.30 has no `clock` functions.
        return match clock {
            libc::CLOCK_REALTIME => {
                glibc!(c"pthread_rwlock_timedrdlock", lock, at => *const timespec)
            }
            _ => {
                glibc!(c"pthread_rwlock_clockrdlock", lock, clock => clockid_t, at => *const timespec)
            }
        };
    }
    // SAFETY: our caller's promise.
    match unsafe { deadline(clock, at) } {
        None => libc::EINVAL,
        deadline => this.read_until(deadline, call),
    }
}

/// `pthread_rwlock_wrlock`.
///
/// # Safety
/// As [`rdlock`].
#[inline]
pub unsafe fn wrlock(lock: *mut RwLock) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { wrlock_watched(lock) };
    }
    // SAFETY: our caller promises that, too.
    unsafe { wrlock_here(lock) }
}

#[inline]
unsafe fn wrlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_wrlock", lock);
    }
    fire!(wrlock_entry, lock);
    this.write_probed()
}

/// `pthread_rwlock_trywrlock`.
///
/// # Safety
/// As [`rdlock`].
#[inline]
pub unsafe fn trywrlock(lock: *mut RwLock) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { trywrlock_watched(lock) };
    }
    // SAFETY: our caller promises that, too.
    unsafe { trywrlock_here(lock) }
}

#[inline]
unsafe fn trywrlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_trywrlock", lock);
    }
    this.try_write()
}

with_frame! {
    /// `pthread_rwlock_timedwrlock`.
    ///
    /// # Safety
    /// As [`wrlock`], and `at` is readable.
    "C" pub timedwrlock(lock: *mut RwLock, at: *const timespec) = timedwrlock_from;
    /// `pthread_rwlock_clockwrlock`.
    ///
    /// # Safety
    /// As [`wrlock`], and `at` is readable.
    "C" pub clockwrlock(lock: *mut RwLock, clock: clockid_t, at: *const timespec) = clockwrlock_from;
}

unsafe extern "C" fn timedwrlock_from(
    lock: *mut RwLock,
    at: *const timespec,
    _: usize,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: our caller's promise; and the naked function's.
    unsafe { clockwrlock_from(lock, libc::CLOCK_REALTIME, at, 0, frame, stack) }
}

unsafe extern "C" fn clockwrlock_from(
    lock: *mut RwLock,
    clock: clockid_t,
    at: *const timespec,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as in `wrlock`; and the naked function's promise.
    let (this, call) = unsafe { (&*lock, Call::of_naked(frame, stack)) };
    // SAFETY: our caller's promise.
    let run = move || unsafe { clockwrlock_here(this, clock, at, call) };
    if watch::is_on() { watched(this, WRITES.trying(), call, run) } else { run() }
}

#[inline(always)]
unsafe fn clockwrlock_here(
    this: &RwLock,
    clock: clockid_t,
    at: *const timespec,
    call: Call,
) -> c_int {
    if this.is_glibcs() {
        let lock = core::ptr::from_ref(this).cast_mut();
        // glibc before 2.30 has no `clock` functions.
        return match clock {
            libc::CLOCK_REALTIME => {
                glibc!(c"pthread_rwlock_timedwrlock", lock, at => *const timespec)
            }
            _ => {
                glibc!(c"pthread_rwlock_clockwrlock", lock, clock => clockid_t, at => *const timespec)
            }
        };
    }
    // SAFETY: our caller's promise.
    match unsafe { deadline(clock, at) } {
        None => libc::EINVAL,
        deadline => this.write_until(deadline, call),
    }
}

/// `pthread_rwlock_unlock`.
///
/// # Safety
/// As [`rdlock`], and the caller holds the lock.
#[inline]
pub unsafe fn unlock(lock: *mut RwLock) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { unlock_watched(lock) };
    }
    // SAFETY: our caller promises that, too.
    unsafe { unlock_here(lock) }
}

#[inline]
unsafe fn unlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_unlock", lock);
    }
    fire!(rwlock_unlock, lock);
    this.release()
}

#[cfg(test)]
mod tests;
