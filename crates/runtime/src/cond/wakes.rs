//! Signals and broadcasts. One that finds a waiter comes by a tail call, so that observers learn where the program called us.

use super::list::{SHARED, held, list};
use crate::caller::{Call, with_caller};
use crate::layout::Cond;
use crate::observe::{self, conditions};
use crate::probes::fire;
use crate::{real, watch};
use core::ffi::c_int;

/// Wakes one waiter.
///
/// # Safety
/// A valid, initialised condvar.
#[inline]
pub unsafe fn signal(cond: *mut Cond) -> c_int {
    if watch::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { signal_watched(cond) };
    }
    // SAFETY: the caller's promise.
    unsafe { signal_here(cond) }
}

/// Wakes all waiters.
///
/// # Safety
/// A valid, initialised condvar.
#[inline]
pub unsafe fn broadcast(cond: *mut Cond) -> c_int {
    if watch::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { broadcast_watched(cond) };
    }
    // SAFETY: the caller's promise.
    unsafe { broadcast_here(cond) }
}

with_caller! {
    /// Wakes one waiter, while operations are watched.
    signal_watched(*mut Cond) = signal_watched_from;
    /// Wakes all waiters, while operations are watched.
    broadcast_watched(*mut Cond) = broadcast_watched_from;
    /// Wakes one waiter, if there is any, for observers.
    signal_observed(*mut Cond) = signal_observed_from;
    /// Wakes all waiters, for observers.
    broadcast_observed(*mut Cond) = broadcast_observed_from;
}

/// Defines `$here`, which wakes waiters by the list's `$wake`, and what `with_caller!` asks for.
macro_rules! wakes {
    ($here:ident, $watched:ident, $observed:ident = $observed_from:ident: $probe:ident, $wake:ident, $glibc:ident, $all:expr) => {
        #[inline(always)]
        unsafe fn $here(cond: *mut Cond) -> c_int {
            // SAFETY: the caller's promise.
            let c = unsafe { &*cond };
            if c.flags() & SHARED != 0 {
                // SAFETY: not ours.
                return unsafe { real::$glibc(cond.cast()) };
            }
            fire!($probe, cond);
            if c.is_idle() {
                return 0;
            }
            if observe::is_on() {
                // SAFETY: the caller's promise.
                return unsafe { $observed(cond) };
            }
            list(c).$wake(|| held(c));
            0
        }

        unsafe extern "C" fn $watched(
            cond: *mut Cond,
            _: usize,
            from: usize,
            frame: usize,
            stack: usize,
        ) -> c_int {
            // SAFETY: the caller's promise.
            let glibc = move || unsafe { real::$glibc(cond.cast()) };
            // SAFETY: the caller's promise.
            let ours = move || unsafe { $here(cond) };
            let call = Call { from, frame, stack };
            watch::operation_or(glibc, move || observe::within(call, ours))
        }

        unsafe extern "C" fn $observed_from(
            cond: *mut Cond,
            _: usize,
            from: usize,
            frame: usize,
            stack: usize,
        ) -> c_int {
            // SAFETY: the caller's promise.
            let c = unsafe { &*cond };
            let given = list(c).$wake(|| held(c));
            conditions::wakes(cond.addr(), $all, given, Call { from, frame, stack });
            0
        }
    };
}

wakes!(signal_here, signal_watched_from, signal_observed = signal_observed_from: cond_signal, signal, pthread_cond_signal, false);
wakes!(broadcast_here, broadcast_watched_from, broadcast_observed = broadcast_observed_from: cond_broadcast, broadcast, pthread_cond_broadcast, true);
