//! [`RwLock`].

use crate::{CLOCK, after, at};
use lock_api::GuardNoSend;
use lockwright_runtime::{rwlock, sync};
use std::cell::UnsafeCell;
use std::fmt;
use std::ptr;
use std::time::{Duration, Instant};

/// A readers-writer lock of 56 bytes plus the data that it protects. It can be a `static`, and panics don't poison it.
///
/// A writer that leaves lets another writer in first. Readers join readers, so a thread may lock for reading again.
/// `LOCKWRIGHT_LOCK` chooses the lock behind mutexes; a readers-writer lock is always this one.
///
/// ```
/// use lockwright_sync::RwLock;
///
/// static ROUTES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
///
/// ROUTES.write().push("/health");
/// let (one, two) = (ROUTES.read(), ROUTES.read());
/// assert_eq!(one.len() + two.len(), 2);
/// assert!(ROUTES.try_write().is_none());
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Holds a [`RwLock`] for reading; unlocks it when dropped.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Holds a [`RwLock`] for writing; unlocks it when dropped.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// As [`RwLockReadGuard`], for a part of the data that the lock protects.
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// As [`RwLockWriteGuard`], for a part of the data that the lock protects.
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// The lock of a [`RwLock`], without data.
pub struct RawRwLock(UnsafeCell<rwlock::RwLock>);

// SAFETY: everything in it that changes is atomic.
unsafe impl Sync for RawRwLock {}
// SAFETY: nobody holds a lock, or waits for it, while it is moved; so it names no thread then.
unsafe impl Send for RawRwLock {}

impl RawRwLock {
    fn get(&self) -> *mut rwlock::RwLock {
        self.0.get()
    }

    fn read(&self, until: Option<libc::timespec>) -> bool {
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: `self` is valid; the time is null or readable.
        is_held(unsafe { sync::rwlock_read(self.get(), CLOCK, until) })
    }

    fn write(&self, until: Option<libc::timespec>) -> bool {
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: as in `read`.
        is_held(unsafe { sync::rwlock_write(self.get(), CLOCK, until) })
    }
}

/// Does the runtime's answer mean that the lock is held? Panics at errors that are the program's fault.
fn is_held(answer: libc::c_int) -> bool {
    match answer {
        0 => true,
        libc::EDEADLK => panic!("this thread holds the RwLock for writing already"),
        libc::EAGAIN => panic!("too many readers of one RwLock"),
        _ => false,
    }
}

impl fmt::Debug for RawRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawRwLock { .. }")
    }
}

// SAFETY: when a `lock_*` function returns, or a `try_` function returns `true`, the lock is held: by one writer alone, or
// by readers only.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self(UnsafeCell::new(rwlock::RwLock::new()));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.read(None);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        // SAFETY: `self` is valid.
        is_held(unsafe { sync::rwlock_try_read(self.get()) })
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: as above; the caller promises that this thread holds it.
        unsafe { sync::rwlock_unlock(self.get()) };
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.write(None);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: `self` is valid.
        is_held(unsafe { sync::rwlock_try_write(self.get()) })
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: as above; the caller promises that this thread holds it.
        unsafe { sync::rwlock_unlock(self.get()) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.read(after(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.read(at(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.write(after(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.write(at(timeout))
    }
}

// SAFETY: readers join readers, even if writers wait.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    fn lock_shared_recursive(&self) {
        lock_api::RawRwLock::lock_shared(self);
    }

    fn try_lock_shared_recursive(&self) -> bool {
        lock_api::RawRwLock::try_lock_shared(self)
    }
}
