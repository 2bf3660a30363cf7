//! The locks for programs that name them: `lockwright-sync` (Rust), `liblockwright_static.a` (C, C++).
//!
//! Such a program has a runtime of its own, linked in. If the preloaded library is in the process, too, the
//! program's runtime does nothing itself: every call goes to the library's runtime, through its [`Table`]. So a process
//! has one set of policies, epochs, statistics and emulated clocks, whichever copy made the lock.
//!
//! ```text
//!   Rust, C, C++ ──► lock, wait, ... ──► SERVER? ─┬─ none: this runtime ──► mutex, cond, rwlock
//!                                                 └─ preload's Table ──► the same, in the library
//! ```
//!
//! Nothing here needs glibc's own lock functions, so static programs can use it.

use crate::caller::Call;
use crate::layout::{Cond, Mutex};
use crate::rwlock::{self, RwLock};
use crate::{cond, env, epoch, init, listed, mutex, observe, thread, watch};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use libc::{clockid_t, timespec};
use lockwright_locks::posix;
use lockwright_native::symbol::{self, Scope};
use lockwright_native::{Atomic32, Deadline, Native};
use lockwright_platform::{Platform, Word};

/// Changes whenever the layout of [`Table`] or of the locks changes, or the meaning of a function.
const VERSION: u32 = 2;

/// Declares the functions once, and generates the public functions, this runtime's own functions, and the table.
macro_rules! table {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $ty:ty),*) -> c_int $body:block
    )*) => {
        /// A runtime's functions, as the preloaded library exports them to the program's own runtime.
        #[repr(C)]
        #[derive(Debug)]
        pub struct Table {
            version: u32,
            size: u32,
            $($name: unsafe extern "C" fn($($ty),*) -> c_int,)*
        }

        /// This runtime's own functions.
        pub static TABLE: Table =
            Table { version: VERSION, size: size_of::<Table>() as u32, $($name: own::$name,)* };

        mod own {
            use super::*;
            $(
                #[inline(always)]
                pub(super) unsafe extern "C" fn $name($($arg: $ty),*) -> c_int $body
            )*
        }

        $(
            $(#[$doc])*
            #[inline]
            pub unsafe fn $name($($arg: $ty),*) -> c_int {
                match other() {
                    // SAFETY: the caller's promise.
                    None => unsafe { own::$name($($arg),*) },
                    // SAFETY: the caller's promise, kept by the same code in the library.
                    Some(table) => unsafe { (table.$name)($($arg),*) },
                }
            }
        )*
    };
}

table! {
    /// Locks. Always 0.
    ///
    /// # Safety
    /// `lock` exists, and is not destroyed, until this returns.
    fn mutex_lock(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { mutex::lock(lock, 0) }
    }

    /// Locks if that needs no waiting: 0, or EBUSY.
    ///
    /// # Safety
    /// As [`mutex_lock`].
    fn mutex_try_lock(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { mutex::try_lock(lock) }
    }

    /// Locks, or gives up when `clock` (CLOCK_MONOTONIC or CLOCK_REALTIME) reads `until`: 0, ETIMEDOUT, EINVAL.
    ///
    /// # Safety
    /// As [`mutex_lock`]; `until` is readable.
    fn mutex_lock_until(lock: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { mutex::lock_until(lock, clock, until) }
    }

    /// Unlocks. Always 0.
    ///
    /// # Safety
    /// As [`mutex_lock`], and the calling thread holds it.
    fn mutex_unlock(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { mutex::unlock(lock) }
    }

    /// 1: the calling thread certainly holds it. 0: it doesn't, or that is not certain.
    ///
    /// # Safety
    /// As [`mutex_lock`].
    fn mutex_is_mine(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        c_int::from(posix::holds(unsafe { &*lock }) == Some(true))
    }

    /// Destroys: 0, or EBUSY while it is held, or while a condvar's waiter will come back for it.
    ///
    /// # Safety
    /// As [`mutex_lock`].
    fn mutex_destroy(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { mutex::destroy(lock) }
    }

    /// Waits for a signal: without a bound if `until` is null, otherwise until `clock` reads it. 0 (wake-ups may be
    /// spurious), ETIMEDOUT; EINVAL if others wait for it with another mutex, or for a bad clock or time.
    /// Not a cancellation point.
    ///
    /// # Safety
    /// Both exist until this returns; the calling thread holds `lock`; `until` is null or readable.
    fn cond_wait(cond: *mut Cond, lock: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { cond::wait_linked(cond, lock, clock, until) }
    }

    /// Wakes the waiter that came first. Always 0.
    ///
    /// # Safety
    /// `cond` exists until this returns.
    fn cond_signal(cond: *mut Cond) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { cond::signal(cond) }
    }

    /// Wakes all waiters. Always 0.
    ///
    /// # Safety
    /// As [`cond_signal`].
    fn cond_broadcast(cond: *mut Cond) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { cond::broadcast(cond) }
    }

    /// Destroys, once timed-out waiters have left. Always 0.
    ///
    /// # Safety
    /// As [`cond_signal`], and all waiters have been woken.
    fn cond_destroy(cond: *mut Cond) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { cond::destroy(cond) }
    }

    /// Locks for reading, until `clock` reads `until` if that is not null: 0, ETIMEDOUT, EINVAL, EAGAIN (2^27
    /// readers), EDEADLK (the calling thread holds it for writing).
    ///
    /// # Safety
    /// `lock` exists until this returns; `until` is null or readable.
    fn rwlock_read(lock: *mut RwLock, clock: clockid_t, until: *const timespec) -> c_int {
        // SAFETY: the caller's promise.
        let Ok(_) = (unsafe { deadline(clock, until) }) else { return libc::EINVAL };
        // SAFETY: the caller's promise.
        let lock = unsafe { &*lock };
        // SAFETY: the caller's promise.
        let run = move || unsafe { lock.read(clock, until) };
        // With a deadline nobody can get stuck.
        let how = if until.is_null() { rwlock::READS } else { rwlock::READS.trying() };
        if watch::is_on() { rwlock::watched(lock, how, Call::UNKNOWN, run) } else { run() }
    }

    /// Locks for reading if that needs no waiting: 0, EBUSY, EAGAIN.
    ///
    /// # Safety
    /// As [`rwlock_read`].
    fn rwlock_try_read(lock: *mut RwLock) -> c_int {
        // SAFETY: the caller's promise.
        let lock = unsafe { &*lock };
        let run = move || lock.try_read();
        let how = rwlock::READS.trying();
        if watch::is_on() { rwlock::watched(lock, how, Call::UNKNOWN, run) } else { run() }
    }

    /// Locks for writing, until `clock` reads `until` if that is not null: 0, ETIMEDOUT, EINVAL, EDEADLK.
    ///
    /// # Safety
    /// As [`rwlock_read`].
    fn rwlock_write(lock: *mut RwLock, clock: clockid_t, until: *const timespec) -> c_int {
        // SAFETY: the caller's promise.
        let Ok(_) = (unsafe { deadline(clock, until) }) else { return libc::EINVAL };
        // SAFETY: the caller's promise.
        let lock = unsafe { &*lock };
        // SAFETY: the caller's promise.
        let run = move || unsafe { lock.write(clock, until) };
        // As above.
        let how = if until.is_null() { rwlock::WRITES } else { rwlock::WRITES.trying() };
        if watch::is_on() { rwlock::watched(lock, how, Call::UNKNOWN, run) } else { run() }
    }

    /// Locks for writing if that needs no waiting: 0, EBUSY.
    ///
    /// # Safety
    /// As [`rwlock_read`].
    fn rwlock_try_write(lock: *mut RwLock) -> c_int {
        // SAFETY: the caller's promise.
        let lock = unsafe { &*lock };
        let run = move || lock.try_write();
        let how = rwlock::WRITES.trying();
        if watch::is_on() { rwlock::watched(lock, how, Call::UNKNOWN, run) } else { run() }
    }

    /// Unlocks, whether held for reading or for writing. Always 0.
    ///
    /// # Safety
    /// As [`rwlock_read`], and the calling thread holds it.
    fn rwlock_unlock(lock: *mut RwLock) -> c_int {
        // SAFETY: the caller's promise.
        let lock = unsafe { &*lock };
        let run = move || lock.release();
        if watch::is_on() { rwlock::unlocked(lock, Call::UNKNOWN, run) } else { run() }
    }

    /// See [`epoch::start`]. Always 0, like the three below.
    ///
    /// # Safety
    /// None: any id is legal.
    fn epoch_start(id: c_int) -> c_int {
        epoch::start(id);
        0
    }

    /// See [`epoch::end`].
    ///
    /// # Safety
    /// None: any id is legal.
    fn epoch_end(id: c_int, slo_ns: u64) -> c_int {
        epoch::end(id, slo_ns);
        0
    }

    /// See [`epoch::set_percentile`].
    ///
    /// # Safety
    /// None: any values are legal.
    fn epoch_percentile(id: c_int, percent: f64) -> c_int {
        epoch::set_percentile(id, percent);
        0
    }

    /// See [`epoch::set_name_of`].
    ///
    /// # Safety
    /// `name` is null or a C string.
    fn epoch_name(id: c_int, name: *const c_char) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { epoch::set_name_of(id, name) };
        0
    }

    /// The reorder window of the calling thread's innermost epoch, ns.
    ///
    /// # Safety
    /// None.
    fn epoch_window() -> c_int {
        // SAFETY: the calling thread's own memory.
        unsafe { (*thread::this()).window_ns() as c_int }
    }

    /// From now on commands know the delegated data that begins with this mutex. Always 0.
    ///
    /// # Safety
    /// It exists until [`delegated_ends`].
    fn delegated_begins(lock: *mut Mutex) -> c_int {
        listed::begins(lock);
        0
    }

    /// It ends. Always 0.
    ///
    /// # Safety
    /// None.
    fn delegated_ends(lock: *mut Mutex) -> c_int {
        listed::ends(lock);
        0
    }

    /// The calling thread waits for a section that runs under this mutex, maybe on another thread. 1: the wait is observed, and
    /// [`delegated_answered`] follows.
    ///
    /// # Safety
    /// As [`mutex_lock`].
    fn delegated_asks(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        c_int::from(observe::is_on() && observe::waits(unsafe { &*lock }, 0))
    }

    /// The section has run. Always 0.
    ///
    /// # Safety
    /// As [`mutex_lock`].
    fn delegated_answered(lock: *mut Mutex) -> c_int {
        // SAFETY: the caller's promise.
        observe::was_served(unsafe { &*lock });
        0
    }
}

/// The deadline: none for null; an error for an invalid one.
///
/// # Safety
/// `until` is null or readable.
unsafe fn deadline(clock: clockid_t, until: *const timespec) -> Result<Option<Deadline>, ()> {
    if until.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { rwlock::deadline(clock, until) }.map(Some).ok_or(())
}

/// Null: not known yet. Our own table: this runtime serves the calls. Otherwise the preloaded library's table.
static SERVER: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn own_table() -> *mut Table {
    (&raw const TABLE).cast_mut()
}

/// The preloaded library's functions, if it is in the process. Never changes after the first call.
#[inline(always)]
fn other() -> Option<&'static Table> {
    // ORDERING: Acquire, pairs with [server].
    let server = SERVER.load(Acquire);
    if ptr::eq(server, own_table()) {
        return None;
    }
    let server = if server.is_null() { begin() } else { server };
    // SAFETY: not null; a table is a static, and the library stays loaded (-z nodelete).
    if ptr::eq(server, own_table()) { None } else { Some(unsafe { &*server }) }
}

/// Finds out which runtime serves the calls, and readies this one if need be. For a program's constructor; functions that
/// are called earlier call this themselves.
pub fn start() {
    other();
}

/// 0: nobody has begun; 1: some thread is finding out; 2: done.
static PROGRESS: Atomic32 = Atomic32::of(0);
/// The thread that is finding out.
static BEGINNER: AtomicU32 = AtomicU32::new(0);

#[cold]
#[inline(never)]
fn begin() -> *mut Table {
    // ORDERING: Acquire, pairs with [server].
    if PROGRESS.compare_exchange(0, 1, Acquire, Acquire).is_ok() {
        BEGINNER.store(thread::id(), Relaxed); // for ourselves
        let server = library().unwrap_or_else(|| {
            // SAFETY: PROGRESS lets only one thread in here, once. The preloaded library has a runtime of its own, which
            // never gets here.
            unsafe { init::begin() };
            own_table()
        });
        // [server] ORDERING: Release, pairs with the Acquires here and in `other`: the runtime is ready.
        SERVER.store(server, Release);
        PROGRESS.store(2, Release); // pairs with the Acquires here
        Native::unpark(&PROGRESS, u32::MAX);
        return server;
    }
    if BEGINNER.load(Relaxed) == thread::id() {
        // The dynamic linker's look-up has called an allocator that uses our locks. Either runtime will do: word 0 decides.
        return own_table();
    }
    // ORDERING: Acquire, pairs with [server].
    while PROGRESS.load(Acquire) != 2 {
        Native::park(&PROGRESS, 1, None);
    }
    SERVER.load(Relaxed) // read after PROGRESS
}

/// The preloaded library's table.
fn library() -> Option<*mut Table> {
    let found: *mut c_void = symbol::find(Scope::Process, c"lockwright_preloaded");
    if found.is_null() {
        return None;
    }
    // SAFETY: that symbol points to a `Table`, whose first two fields never change their place.
    let (table, version, size) = unsafe {
        let table = *found.cast::<*mut Table>();
        (table, (*table).version, (*table).size as usize)
    };
    if version == VERSION && size >= size_of::<Table>() {
        return Some(table);
    }
    env::say(&[
        b"the preloaded library is of another version than the program's own: ",
        b"it serves pthread locks, the program's own copy serves the others\n",
    ]);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    fn soon(ms: i64) -> timespec {
        let ns = lockwright_native::futex::now(lockwright_native::Clock::Monotonic) as i64;
        let at = ns + ms * 1_000_000;
        timespec { tv_sec: at / 1_000_000_000, tv_nsec: at % 1_000_000_000 }
    }

    fn at<T>(object: &T) -> *mut T {
        ptr::from_ref(object).cast_mut()
    }

    #[test]
    fn a_condvar_refuses_a_second_mutex_while_somebody_waits() {
        let _alone = crate::programs::tests::alone();
        struct Both(Mutex, Mutex, Cond);
        let all = Arc::new(Both(Mutex::new(), Mutex::new(), Cond::new()));
        let waiter = thread::spawn({
            let all = all.clone();
            // SAFETY: all of it exists until this thread is joined.
            move || unsafe {
                mutex_lock(at(&all.0));
                let answer = cond_wait(at(&all.2), at(&all.0), 0, ptr::null());
                mutex_unlock(at(&all.0));
                answer
            }
        });
        while all.2.is_idle() {
            thread::yield_now();
        }
        // SAFETY: as above.
        unsafe {
            mutex_lock(at(&all.1));
            let until = soon(10_000);
            let answer = cond_wait(at(&all.2), at(&all.1), libc::CLOCK_MONOTONIC, &until);
            assert_eq!(answer, libc::EINVAL);
            assert!(all.1.is_locked(), "refused, so still held");
            cond_signal(at(&all.2));
            assert_eq!(waiter.join().unwrap(), 0);
            // Nobody waits any more: now the second mutex is accepted.
            let until = soon(1);
            let answer = cond_wait(at(&all.2), at(&all.1), libc::CLOCK_MONOTONIC, &until);
            assert_eq!(answer, libc::ETIMEDOUT);
            mutex_unlock(at(&all.1));
        }
    }

    #[test]
    fn times_by_unknown_clocks_are_refused() {
        let _alone = crate::programs::tests::alone();
        let (mutex, cond, lock) = (Mutex::new(), Cond::new(), RwLock::new());
        let until = soon(1);
        // SAFETY: all of it exists.
        unsafe {
            mutex_lock(at(&mutex));
            let clock = libc::CLOCK_PROCESS_CPUTIME_ID;
            assert_eq!(cond_wait(at(&cond), at(&mutex), clock, &until), libc::EINVAL);
            assert_eq!(rwlock_read(at(&lock), clock, &until), libc::EINVAL);
            assert_eq!(rwlock_write(at(&lock), clock, &until), libc::EINVAL);
            mutex_unlock(at(&mutex));
        }
    }
}
