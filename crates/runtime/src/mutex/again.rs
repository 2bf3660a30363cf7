//! A mutex after a wait for a condition variable, which has released it.

use super::{MUTEX, errno, lock_kind_here, taking};
use crate::caller::Call;
use crate::layout::Mutex;
use crate::probes::fire;
use crate::watch::{self, How, Taking};
use crate::{observe, real};
use core::ffi::c_int;
use lockwright_locks::posix;
use lockwright_record::trace::What;

/// Acquires again after a condvar wait; `moved` is what the wait said.
///
/// # Safety
/// As [`lock`]; `moved` only for a mutex that is not foreign.
pub(crate) unsafe fn lock_again(mutex: *mut Mutex, moved: bool, caller: usize) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_mutex_lock(mutex.cast()) };
    // SAFETY: as above.
    let ours = move || unsafe { lock_again_here(mutex, moved, caller) };
    // SAFETY: as above.
    let taking = || taking_again(unsafe { &*mutex });
    watch::acquisition(What::Woken, taking, mutex, glibc, ours)
}

/// For a condition variable's waiter that takes the mutex again: the place is known from its first acquisition.
pub(crate) fn taking_again(m: &Mutex) -> Taking {
    taking(m, How { again: true, ..MUTEX }, Call::UNKNOWN)
}

#[inline(always)]
unsafe fn lock_again_here(mutex: *mut Mutex, moved: bool, caller: usize) -> c_int {
    if !moved {
        // SAFETY: the caller's promise.
        return unsafe { lock_kind_here(mutex, caller) };
    }
    fire!(mutex_entry, mutex);
    if observe::is_on() {
        observe::called(Call { from: caller, ..Call::UNKNOWN });
    }
    // SAFETY: the caller's promise.
    let answer = posix::lock_again(unsafe { &*mutex }, moved, caller);
    if answer.is_ok() {
        fire!(mutex_acquired, mutex);
    }
    errno(answer)
}

/// Does the calling thread certainly hold it, as one of ours?
///
/// # Safety
/// As [`lock`].
pub(crate) unsafe fn is_held_by_me(mutex: *const Mutex) -> bool {
    // SAFETY: the caller's promise.
    posix::holds(unsafe { &*mutex }) == Some(true)
}
