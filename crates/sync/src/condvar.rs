//! [`Condvar`].

use crate::guard::Guard;
use crate::{CLOCK, after, at};
use lockwright_runtime::{layout, sync};
use std::cell::UnsafeCell;
use std::fmt;
use std::ptr;
use std::time::{Duration, Instant};

/// A condition variable for [`Mutex`](crate::Mutex) and [`Delegated`](crate::Delegated), 48 bytes; usable in a `static`.
///
/// From the moment that it is sent, a notification belongs to the thread that has waited longest. As with any condition
/// variable, wake-ups may be spurious: use [`wait_while`](Self::wait_while), or check your condition in a loop.
///
/// ```
/// use lockwright_sync::{Condvar, Mutex};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let shared = Arc::new((Mutex::new(false), Condvar::new()));
/// let starter = {
///     let shared = shared.clone();
///     std::thread::spawn(move || {
///         let (started, changed) = &*shared;
///         *started.lock() = true;
///         changed.notify_all();
///     })
/// };
/// let (started, changed) = &*shared;
/// let mut guard = started.lock();
/// let late = changed.wait_while_for(&mut guard, |started| !*started, Duration::from_secs(60));
/// assert!(*guard && !late.timed_out());
/// # drop(guard);
/// # starter.join().unwrap();
/// ```
pub struct Condvar(UnsafeCell<layout::Cond>);

// SAFETY: everything in it that changes is atomic; each waiter's node is its thread's own memory.
unsafe impl Sync for Condvar {}
// SAFETY: as above; nobody waits for a condvar while it is moved.
unsafe impl Send for Condvar {}

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Did the time end without a notification?
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condvar that nobody waits for.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(layout::Cond::new()))
    }

    /// Unlocks, waits for a notification, and locks again.
    ///
    /// # Panics
    /// If other threads wait for this condvar with another mutex.
    pub fn wait<G: Guard>(&self, guard: &mut G) {
        self.wait_by(guard, None);
    }

    /// Waits while `condition` holds.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_while<G: Guard>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Target) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As [`wait`](Self::wait), but for at most `timeout`.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_for<G: Guard>(&self, guard: &mut G, timeout: Duration) -> WaitTimeoutResult {
        self.wait_by(guard, after(timeout))
    }

    /// As [`wait`](Self::wait), but not beyond `instant`.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_until<G: Guard>(&self, guard: &mut G, instant: Instant) -> WaitTimeoutResult {
        self.wait_by(guard, at(instant))
    }

    /// Waits while `condition` holds, for at most `timeout`. It has timed out if the condition still held in the end.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_while_for<G: Guard>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Target) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let until = after(timeout);
        while condition(guard) {
            if self.wait_by(guard, until).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// Wakes the thread that has waited longest, if any.
    pub fn notify_one(&self) {
        // SAFETY: `self` is valid.
        unsafe { sync::cond_signal(self.0.get()) };
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        // SAFETY: `self` is valid.
        unsafe { sync::cond_broadcast(self.0.get()) };
    }

    fn wait_by<G: Guard>(&self, guard: &mut G, until: Option<libc::timespec>) -> WaitTimeoutResult {
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: both are valid while they are borrowed; the guard proves that this thread holds the mutex.
        let answer = unsafe { sync::cond_wait(self.0.get(), guard.mutex(), CLOCK, until) };
        assert!(answer != libc::EINVAL, "threads wait for this condvar with another mutex");
        WaitTimeoutResult(answer == libc::ETIMEDOUT)
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar { .. }")
    }
}
