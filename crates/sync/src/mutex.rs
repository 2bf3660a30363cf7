//! [`Mutex`].

use crate::{CLOCK, after, at};
use lock_api::GuardNoSend;
use lockwright_runtime::{layout, sync};
use std::cell::UnsafeCell;
use std::fmt;
use std::time::{Duration, Instant};

/// A mutex of 40 bytes plus the data that it protects. It can be a `static`, and panics don't poison it.
///
/// ```
/// use lockwright_sync::Mutex;
/// use std::time::Duration;
///
/// static TOTAL: Mutex<u64> = Mutex::new(0);
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *TOTAL.lock() += 1);
///     }
/// });
/// let held = TOTAL.lock();
/// assert_eq!(*held, 4);
/// assert!(TOTAL.try_lock_for(Duration::from_millis(1)).is_none());
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Holds a [`Mutex`]; unlocks it when dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Holds a [`Mutex`], and gives access to a part of the data that it protects.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// The lock of a [`Mutex`], without data: for `lock_api`'s other types.
pub struct RawMutex(UnsafeCell<layout::Mutex>);

// SAFETY: everything in it that changes is atomic.
unsafe impl Sync for RawMutex {}

impl RawMutex {
    pub(crate) fn get(&self) -> *mut layout::Mutex {
        self.0.get()
    }

    fn lock_until(&self, until: Option<libc::timespec>) -> bool {
        let Some(until) = until else {
            lock_api::RawMutex::lock(self);
            return true;
        };
        // SAFETY: `self` and the time are valid, and the clock exists.
        unsafe { sync::mutex_lock_until(self.get(), CLOCK, &until) == 0 }
    }
}

impl fmt::Debug for RawMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = lock_api::RawMutex::is_locked(self);
        f.debug_struct("RawMutex").field("locked", &locked).finish()
    }
}

// SAFETY: when `lock` returns, or a `try_` function returns `true`, the calling thread alone holds the lock.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self(UnsafeCell::new(layout::Mutex::new()));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        // SAFETY: `self` is valid, and never destroyed.
        unsafe { sync::mutex_lock(self.get()) };
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // SAFETY: as in `lock`.
        unsafe { sync::mutex_try_lock(self.get()) == 0 }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: as in `lock`; the caller promises that this thread holds it.
        unsafe { sync::mutex_unlock(self.get()) };
    }

    fn is_locked(&self) -> bool {
        // SAFETY: all its fields are atomic, so it may be shared.
        unsafe { (*self.get()).is_locked() }
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.lock_until(after(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.lock_until(at(timeout))
    }
}

const _: () = assert!(size_of::<RawMutex>() == 40);
