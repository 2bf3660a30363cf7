//! Reader-writer locks, as the worker sees them.

use std::cell::UnsafeCell;

/// A reader-writer lock.
pub(super) trait Rw: Send + Sync + 'static {
    /// An unlocked one.
    fn new() -> Self;
    /// Runs `body` as a reader.
    fn read(&self, body: impl FnOnce());
    /// Runs `body` as the only writer.
    fn write(&self, body: impl FnOnce());
}

/// `pthread_rwlock_t`.
pub(super) struct PthreadRw(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: made to be shared.
unsafe impl Send for PthreadRw {}
// SAFETY: made to be shared.
unsafe impl Sync for PthreadRw {}

impl Rw for PthreadRw {
    fn new() -> Self {
        PthreadRw(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        // SAFETY: initialised, and in place as long as borrowed.
        unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        body();
        // SAFETY: held for reading.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        // SAFETY: initialised, and in place as long as borrowed.
        unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        body();
        // SAFETY: held for writing.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}

impl Rw for std::sync::RwLock<()> {
    fn new() -> Self {
        std::sync::RwLock::new(())
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        let _held = self.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        body();
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        let _held = self.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        body();
    }
}

impl Rw for parking_lot::RwLock<()> {
    fn new() -> Self {
        parking_lot::RwLock::new(())
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        let _held = self.read();
        body();
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        let _held = self.write();
        body();
    }
}
