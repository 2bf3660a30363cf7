//! [`Guard`].

use crate::mutex::MutexGuard;
use lockwright_runtime::layout;
use std::ops::DerefMut;

/// What a thread holds while it waits for a [`Condvar`](crate::Condvar): a [`MutexGuard`], or a
/// [`DelegatedGuard`](crate::DelegatedGuard).
pub trait Guard: DerefMut + sealed::OverMutex {}

pub(crate) mod sealed {
    use lockwright_runtime::layout;

    /// Holds a mutex.
    pub trait OverMutex {
        /// Which.
        fn mutex(&self) -> *mut layout::Mutex;
    }
}

impl<T: ?Sized> Guard for MutexGuard<'_, T> {}

impl<T: ?Sized> sealed::OverMutex for MutexGuard<'_, T> {
    fn mutex(&self) -> *mut layout::Mutex {
        // SAFETY: only to wait with it, after which the guard's holder holds it again.
        unsafe { MutexGuard::mutex(self).raw() }.get()
    }
}
