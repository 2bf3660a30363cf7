//! `pthread_spin_*`, with glibc's word and values, so that code that bypasses us may use the same lock.
//!
//! ```text
//! x86-64   1 free, 0 or less held (glibc counts down)
//! others   0 free, 1 held
//! ```
//!
//! A waiter spins for a bounded time. After that it yields its CPU between two looks: with more threads than
//! CPUs the holder may be waiting for that very CPU. glibc's waiters spin for as long as it takes.
//! `pthread_spin_init` and `_destroy` stay glibc's: the former writes a constant, the latter does nothing. Process-shared
//! locks need nothing special, because nobody sleeps on the word.

use core::ffi::c_int;
use core::mem::transmute;

use lockwright_native::{Atomic32, Native, relax};
use lockwright_platform::{
    Ordering::{Acquire, Relaxed, Release},
    Platform, Word,
};

use lockwright_contract::order;

use crate::caller::{Call, with_caller};
use crate::observe::{self, spins};
use crate::watch::{How, Taking};
use crate::{config, real, watch};

const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
const HELD: u32 = 1 - FREE;

/// `pthread_spinlock_t`.
#[repr(transparent)]
pub struct Spin(Atomic32);

/// A call of glibc's function `$name`.
macro_rules! glibc {
    ($name:literal, $lock:expr) => {
        move || {
            const AT: usize = real::late($name);
            // SAFETY: glibc declares the function so, and our caller promises what it requires.
            unsafe {
                let function: unsafe extern "C" fn(*mut Spin) -> c_int =
                    transmute(real::late_address(AT));
                function($lock)
            }
        }
    };
}

impl Spin {
    #[inline(always)]
    fn try_lock(&self) -> bool {
        // ORDERING: Acquire, pairs with [unlock].
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    // What follows a fast path comes by a tail call: so observers learn where the program called us.

    #[inline(always)]
    fn take(&self) -> c_int {
        if self.try_lock() {
            return 0;
        }
        // SAFETY: it exists.
        unsafe { wait(core::ptr::from_ref(self).cast_mut()) }
    }

    #[inline(always)]
    fn try_take(&self) -> c_int {
        if self.try_lock() {
            return 0;
        }
        if observe::is_on() {
            // SAFETY: it exists.
            return unsafe { tried_in_vain(core::ptr::from_ref(self).cast_mut()) };
        }
        libc::EBUSY
    }

    fn wait(&self) {
        let mut turns = 0;
        loop {
            // ORDERING: Relaxed: `try_lock` acquires.
            if Native::spin_for(&self.0, Relaxed, config::spin_ns(), |now| now == FREE) != FREE {
                relax::give_cpu(&mut turns);
            } else if self.try_lock() {
                return;
            }
        }
    }
}

/// `pthread_spin_lock`.
///
/// # Safety
/// `lock` is an initialised lock.
#[inline]
pub unsafe fn lock(lock: *mut Spin) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { lock_watched(lock) };
    }
    // SAFETY: our caller's promise; an atomic.
    unsafe { &*lock }.take()
}

with_caller! {
    /// Waits.
    wait(*mut Spin) = wait_from;
    /// The lock was busy: EBUSY.
    tried_in_vain(*mut Spin) = tried_from;
    /// Locks, while operations are watched.
    lock_watched(*mut Spin) = lock_watched_from;
    /// Tries to lock, while operations are watched.
    trylock_watched(*mut Spin) = trylock_watched_from;
}

fn taking(lock: *mut Spin, how: How, call: Call) -> Taking {
    Taking { lock: lock.addr(), how, is_new: false, call }
}

unsafe extern "C" fn wait_from(
    lock: *mut Spin,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    let call = Call { from, frame, stack };
    let is_observed = observe::is_on() && spins::waits(lock.addr(), call);
    // SAFETY: our caller's promise; an atomic.
    unsafe { (*lock).wait() };
    if is_observed {
        spins::has_waited(lock.addr());
    }
    0
}

unsafe extern "C" fn tried_from(
    lock: *mut Spin,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    observe::tries::spin(lock.addr(), Call { from, frame, stack });
    libc::EBUSY
}

unsafe extern "C" fn lock_watched_from(
    lock: *mut Spin,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: our caller's promise; an atomic.
    let this = unsafe { &*lock };
    watch::operation_or(glibc!(c"pthread_spin_lock", lock), move || {
        let call = Call { from, frame, stack };
        let taking = || taking(lock, How::of(order::SPIN), call);
        watch::in_order(taking, || observe::within(call, || this.take()))
    })
}

/// `pthread_spin_trylock`.
///
/// # Safety
/// As [`lock`].
#[inline]
pub unsafe fn trylock(lock: *mut Spin) -> c_int {
    if watch::is_on() {
        // SAFETY: our caller's promise.
        return unsafe { trylock_watched(lock) };
    }
    // SAFETY: our caller's promise; an atomic.
    unsafe { &*lock }.try_take()
}

unsafe extern "C" fn trylock_watched_from(
    lock: *mut Spin,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: our caller's promise; an atomic.
    let this = unsafe { &*lock };
    watch::operation_or(glibc!(c"pthread_spin_trylock", lock), move || {
        let how = How::of(order::SPIN).trying();
        let call = Call { from, frame, stack };
        watch::in_order(|| taking(lock, how, call), || observe::within(call, || this.try_take()))
    })
}

/// `pthread_spin_unlock`.
///
/// # Safety
/// As [`lock`], and the caller holds the lock.
#[inline]
pub unsafe fn unlock(lock: *mut Spin) -> c_int {
    // ORDERING: Release [unlock]: the next holder sees what we wrote.
    // SAFETY: our caller's promise; an atomic.
    let this = unsafe { &*lock };
    watch::operation_or(glibc!(c"pthread_spin_unlock", lock), move || {
        this.0.store(FREE, Release);
        if watch::is_on() { watch::out_of_order(lock.addr(), || 0) } else { 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_and_we_mean_the_same_word() {
        let mut word: libc::pthread_spinlock_t = 7;
        let ours = (&raw mut word).cast::<Spin>();
        // SAFETY: one thread, one initialised lock; both sides take and release it by turns.
        unsafe {
            libc::pthread_spin_init(&raw mut word, 0);
            assert_eq!(lock(ours), 0);
            assert_eq!(libc::pthread_spin_trylock(&raw mut word), libc::EBUSY);
            assert_eq!(unlock(ours), 0);
            assert_eq!(libc::pthread_spin_lock(&raw mut word), 0);
            assert_eq!(trylock(ours), libc::EBUSY);
            assert_eq!(libc::pthread_spin_unlock(&raw mut word), 0);
            assert_eq!(trylock(ours), 0);
        }
    }
}
