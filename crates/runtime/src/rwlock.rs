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

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of, transmute};

use libc::{clockid_t, timespec};
use lockwright_locks::rw::Prefer;
use lockwright_locks::rw::biased::Biased;
use lockwright_locks::rw::rwlock::{Counted, Outcome, Parts, Waiter};
use lockwright_native::{Atomic32, Clock, Deadline, Native};
use lockwright_platform::{Ordering::Relaxed, Word};

use crate::leave::{self, Wait};
use lockwright_record::order;

use crate::caller::{Call, with_caller};
use crate::probes::fire;
use crate::watch::{How, Taking};
use crate::{config, environment, preference, programs, real, thread, watch};

/// `pthread_rwlock_t`, as glibc lays it out on 64-bit machines since 2.30.
#[repr(C)]
pub struct RwLock {
    /// glibc's `__readers`, with its meaning of the low bits.
    state: Atomic32,
    writers: Atomic32,
    /// Who may use the table. glibc's `__wrphase_futex`, which `pthread_rwlock_init` makes 0.
    bias: Atomic32,
    _futex: u32,
    _pad: [u32; 2],
    /// glibc's `__cur_writer`, which debuggers read.
    owner: Atomic32,
    shared: c_int,
    _elision: u64,
    /// 1: the watcher of lock orders knows this lock. `pthread_rwlock_init` makes it 0.
    is_known: Atomic32,
    /// What the program asked for, and which rule applies instead (`preference`). `pthread_rwlock_init` makes it 0.
    rule: Atomic32,
    prefer: Atomic32,
    _end: u32,
}

/// `PTHREAD_RWLOCK_PREFER_WRITER_NP`.
const PREFER_WRITERS: u32 = 1;

const _: () = assert!(size_of::<RwLock>() == 56);
const _: () = assert!(offset_of!(RwLock, owner) == 24);
const _: () = assert!(offset_of!(RwLock, shared) == 28);
const _: () = assert!(offset_of!(RwLock, prefer) == 48);

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

impl Default for RwLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RwLock {
    /// An unlocked lock that prefers writers: a writer that leaves lets another writer in first, but readers join readers.
    pub const fn new() -> Self {
        Self {
            state: Atomic32::of(0),
            writers: Atomic32::of(0),
            bias: Atomic32::of(0),
            _futex: 0,
            _pad: [0; 2],
            owner: Atomic32::of(0),
            shared: 0,
            _elision: 0,
            is_known: Atomic32::of(0),
            rule: Atomic32::of(0),
            prefer: Atomic32::of(PREFER_WRITERS),
            _end: 0,
        }
    }

    /// Does glibc serve this lock?
    #[inline(always)]
    fn is_glibcs(&self) -> bool {
        self.shared != 0 || config::is_glibc_only()
    }

    /// Acquires for reading.
    #[inline(always)]
    pub(crate) fn read(&self, deadline: Option<Deadline>) -> c_int {
        let waiting = Waiting::new(self);
        leave::guarded_late(&waiting, |guard| {
            errno(self.biased().read(|counted| {
                waiting.counted.set(counted);
                guard();
                waiting.waiter(deadline)
            }))
        })
    }

    /// Acquires for writing.
    #[inline(always)]
    pub(crate) fn write(&self, deadline: Option<Deadline>) -> c_int {
        let answer = self.try_to_write(deadline);
        if answer == libc::ETIMEDOUT && deadline.is_none() { self.write_later() } else { answer }
    }

    /// As [`write`](Self::write), but a writer without a deadline may time out, too: see [`look_again`](Self::look_again).
    #[inline(always)]
    fn try_to_write(&self, deadline: Option<Deadline>) -> c_int {
        let waiting = Waiting::new(self);
        leave::guarded_late(&waiting, |guard| {
            errno(self.biased().write(thread::id(), |counted| {
                waiting.counted.set(counted);
                guard();
                let waiter = waiting.waiter(deadline);
                Waiter { deadline: deadline.or_else(|| self.look_again()), ..waiter }
            }))
        })
    }

    /// When a writer without a deadline looks again whether a command says who goes first: readers that overlap may keep it asleep for
    /// ever, and never wait themselves. With other preferences new readers wait for it, so it stays.
    #[cold]
    fn look_again(&self) -> Option<Deadline> {
        let overlaps = matches!(Prefer::of(self.parts().prefer), Prefer::Readers | Prefer::Writers);
        overlaps.then(|| Deadline::after(1_000_000_000))
    }

    #[cold]
    fn write_later(&self) -> c_int {
        loop {
            match self.try_to_write(None) {
                libc::ETIMEDOUT => {}
                answer => return answer,
            }
        }
    }

    #[inline(always)]
    pub(crate) fn biased(&self) -> Biased<'_, Native> {
        let (policy, row) = (programs::for_readers(), thread::row());
        Biased { parts: self.parts(), bias: &self.bias, policy, row }
    }

    #[inline(always)]
    fn parts(&self) -> Parts<'_, Native> {
        let prefer = self.prefer.load(Relaxed); // threads may differ
        Parts { state: &self.state, writers: &self.writers, owner: &self.owner, prefer }
    }

    /// Is the calling thread's row of the table in use for this lock?
    #[cfg(test)]
    pub(crate) fn is_read_by_table(&self) -> bool {
        self.biased().has_shown()
    }

    #[inline(always)]
    pub(crate) fn release(&self) {
        self.biased().unlock(thread::id());
    }
}

/// One wait, as its thread sees it.
struct Waiting<'a> {
    lock: &'a RwLock,
    counted: Cell<Counted>,
}

impl Wait for Waiting<'_> {
    fn leave(&self) {
        self.lock.parts().leave(self.counted.get());
    }
}

impl<'a> Waiting<'a> {
    fn new(lock: &'a RwLock) -> Self {
        Self { lock, counted: Cell::new(Counted::Nowhere) }
    }

    fn waiter(&self, deadline: Option<Deadline>) -> Waiter<'_, Native> {
        environment::take_up_posts();
        let lock = self.lock;
        preference::adopt(core::ptr::from_ref(lock).addr(), &lock.prefer, &lock.rule);
        let (me, spin_ns) = (thread::id(), config::spin_ns());
        Waiter { me, spin_ns, deadline, counted: Some(&self.counted) }
    }
}

pub(crate) fn errno(outcome: Outcome) -> c_int {
    match outcome {
        Outcome::Acquired => 0,
        Outcome::Busy => libc::EBUSY,
        Outcome::TimedOut => libc::ETIMEDOUT,
        Outcome::Deadlock => libc::EDEADLK,
        Outcome::TooMany => libc::EAGAIN,
    }
}

/// # Safety
/// `at` is readable.
pub(crate) unsafe fn deadline(clock: clockid_t, at: *const timespec) -> Option<Deadline> {
    // SAFETY: our caller's promise.
    let at = unsafe { *at };
    let clock = Clock::from_id(clock)?;
    (0..1_000_000_000).contains(&at.tv_nsec).then_some(Deadline { clock, at })
}

const RWLOCK: How = How::of(order::RWLOCK);
/// Locking for reading.
pub(crate) const READS: How = RWLOCK.reading();
/// Locking for writing.
pub(crate) const WRITES: How = RWLOCK;

/// Runs an operation while operations are watched; if it returns 0, it has locked the lock.
#[cold]
pub(crate) fn watched(lock: &RwLock, how: How, call: Call, run: impl Fn() -> c_int) -> c_int {
    let taking = || {
        // Relaxed: set once in a lock's life.
        let is_new = lock.shared == 0
            && lock.is_known.load(Relaxed) == 0
            && lock.is_known.swap(1, Relaxed) == 0;
        Taking { lock: core::ptr::from_ref(lock).addr(), how, is_new, call }
    };
    watch::operation(|| watch::in_order(taking, &run))
}

/// Runs an operation while operations are watched; if it returns 0, it has unlocked the lock.
#[cold]
pub(crate) fn unlock_watched(lock: *const RwLock, run: impl Fn() -> c_int) -> c_int {
    watch::operation(|| watch::out_of_order(lock.addr(), &run))
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
            // SAFETY: as above.
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
    // SAFETY: as above.
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
    let answer = this.read(None);
    if answer == 0 {
        fire!(rdlock_acquire_read, lock);
    }
    answer
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
    // SAFETY: as above.
    unsafe { tryrdlock_here(lock) }
}

#[inline]
unsafe fn tryrdlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_tryrdlock", lock);
    }
    errno(this.biased().try_read())
}

/// `pthread_rwlock_timedrdlock`.
///
/// # Safety
/// As [`rdlock`], and `at` is readable.
pub unsafe fn timedrdlock(lock: *mut RwLock, at: *const timespec) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { clockrdlock(lock, libc::CLOCK_REALTIME, at) }
}

/// `pthread_rwlock_clockrdlock`.
///
/// # Safety
/// As [`rdlock`], and `at` is readable.
pub unsafe fn clockrdlock(lock: *mut RwLock, clock: clockid_t, at: *const timespec) -> c_int {
    // SAFETY: our caller's promise.
    let run = move || unsafe { clockrdlock_here(lock, clock, at) };
    if watch::is_on() {
        // SAFETY: as above.
        return watched(unsafe { &*lock }, READS.trying(), Call::UNKNOWN, run);
    }
    run()
}

#[inline]
unsafe fn clockrdlock_here(lock: *mut RwLock, clock: clockid_t, at: *const timespec) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
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
    let Some(deadline) = (unsafe { deadline(clock, at) }) else { return libc::EINVAL };
    this.read(Some(deadline))
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
    // SAFETY: as above.
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
    let answer = this.write(None);
    if answer == 0 {
        fire!(wrlock_acquire_write, lock);
    }
    answer
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
    // SAFETY: as above.
    unsafe { trywrlock_here(lock) }
}

#[inline]
unsafe fn trywrlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_trywrlock", lock);
    }
    errno(this.biased().try_write(thread::id()))
}

/// `pthread_rwlock_timedwrlock`.
///
/// # Safety
/// As [`rdlock`], and `at` is readable.
pub unsafe fn timedwrlock(lock: *mut RwLock, at: *const timespec) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { clockwrlock(lock, libc::CLOCK_REALTIME, at) }
}

/// `pthread_rwlock_clockwrlock`.
///
/// # Safety
/// As [`rdlock`], and `at` is readable.
pub unsafe fn clockwrlock(lock: *mut RwLock, clock: clockid_t, at: *const timespec) -> c_int {
    // SAFETY: our caller's promise.
    let run = move || unsafe { clockwrlock_here(lock, clock, at) };
    if watch::is_on() {
        // SAFETY: as above.
        return watched(unsafe { &*lock }, WRITES.trying(), Call::UNKNOWN, run);
    }
    run()
}

#[inline]
unsafe fn clockwrlock_here(lock: *mut RwLock, clock: clockid_t, at: *const timespec) -> c_int {
    // SAFETY: as in `rdlock`.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
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
    let Some(deadline) = (unsafe { deadline(clock, at) }) else { return libc::EINVAL };
    this.write(Some(deadline))
}

/// `pthread_rwlock_unlock`.
///
/// # Safety
/// As [`rdlock`], and the caller holds the lock.
#[inline]
pub unsafe fn unlock(lock: *mut RwLock) -> c_int {
    // SAFETY: our caller's promise.
    let run = move || unsafe { unlock_here(lock) };
    if watch::is_on() { unlock_watched(lock, run) } else { run() }
}

#[inline]
unsafe fn unlock_here(lock: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`. Others may free the lock once it is released. After that `Biased::unlock` no longer
    // looks at it, and a reference to atomics need not outlive its last use.
    let this = unsafe { &*lock };
    if this.is_glibcs() {
        return glibc!(c"pthread_rwlock_unlock", lock);
    }
    fire!(rwlock_unlock, lock);
    this.release();
    0
}

#[cfg(test)]
mod tests;
