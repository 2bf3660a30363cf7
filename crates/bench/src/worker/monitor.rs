//! Mutexes with condition variables, for the worker.

use std::cell::UnsafeCell;

/// A mutex with two condition variables.
pub(super) trait Monitor: Send + Sync + 'static {
    /// Proof of holding the mutex; dropping it unlocks.
    type Held<'a>;

    /// A new, unlocked monitor.
    fn new() -> Self;
    /// Acquires the mutex.
    fn lock(&self) -> Self::Held<'_>;
    /// Waits on condition `which`; may return spuriously.
    fn wait<'a>(&'a self, held: Self::Held<'a>, which: usize) -> Self::Held<'a>;
    /// Wakes one waiter of condition `which`.
    fn notify_one(&self, which: usize);
    /// Wakes all waiters of condition `which`.
    fn notify_all(&self, which: usize);
}

/// The pthread monitor.
pub(super) struct PthreadMonitor {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    conditions: [UnsafeCell<libc::pthread_cond_t>; 2],
}

// SAFETY: made to be shared.
unsafe impl Send for PthreadMonitor {}
// SAFETY: made to be shared.
unsafe impl Sync for PthreadMonitor {}

/// Holds a [`PthreadMonitor`].
pub(super) struct PthreadHeld<'a>(&'a PthreadMonitor);

impl Drop for PthreadHeld<'_> {
    fn drop(&mut self) {
        // SAFETY: held, and in place as long as borrowed.
        unsafe { libc::pthread_mutex_unlock(self.0.mutex.get()) };
    }
}

impl Monitor for PthreadMonitor {
    type Held<'a> = PthreadHeld<'a>;

    fn new() -> Self {
        let condition = || UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER);
        let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        PthreadMonitor { mutex, conditions: [condition(), condition()] }
    }

    fn lock(&self) -> PthreadHeld<'_> {
        // SAFETY: the borrow keeps it in place.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        PthreadHeld(self)
    }

    fn wait<'a>(&'a self, held: PthreadHeld<'a>, which: usize) -> PthreadHeld<'a> {
        // SAFETY: `held` says that we hold the mutex; both objects are initialised.
        unsafe { libc::pthread_cond_wait(self.conditions[which].get(), self.mutex.get()) };
        held
    }

    fn notify_one(&self, which: usize) {
        // SAFETY: an initialised condition variable.
        unsafe { libc::pthread_cond_signal(self.conditions[which].get()) };
    }

    fn notify_all(&self, which: usize) {
        // SAFETY: an initialised condition variable.
        unsafe { libc::pthread_cond_broadcast(self.conditions[which].get()) };
    }
}

/// std's monitor.
pub(super) struct StdMonitor(std::sync::Mutex<()>, [std::sync::Condvar; 2]);

impl Monitor for StdMonitor {
    type Held<'a> = std::sync::MutexGuard<'a, ()>;

    fn new() -> Self {
        StdMonitor(std::sync::Mutex::new(()), Default::default())
    }

    fn lock(&self) -> Self::Held<'_> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait<'a>(&'a self, held: Self::Held<'a>, which: usize) -> Self::Held<'a> {
        self.1[which].wait(held).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn notify_one(&self, which: usize) {
        self.1[which].notify_one();
    }

    fn notify_all(&self, which: usize) {
        self.1[which].notify_all();
    }
}

/// parking_lot's monitor.
pub(super) struct ParkingLotMonitor(parking_lot::Mutex<()>, [parking_lot::Condvar; 2]);

impl Monitor for ParkingLotMonitor {
    type Held<'a> = parking_lot::MutexGuard<'a, ()>;

    fn new() -> Self {
        ParkingLotMonitor(parking_lot::Mutex::new(()), Default::default())
    }

    fn lock(&self) -> Self::Held<'_> {
        self.0.lock()
    }

    fn wait<'a>(&'a self, mut held: Self::Held<'a>, which: usize) -> Self::Held<'a> {
        self.1[which].wait(&mut held);
        held
    }

    fn notify_one(&self, which: usize) {
        self.1[which].notify_one();
    }

    fn notify_all(&self, which: usize) {
        self.1[which].notify_all();
    }
}
