//! Pairs of lock and unlock whose cost is measured: what watching them takes is left out of what is recorded.

use super::{wait, wake};
use crate::fast::{SEVERAL, fast_give, fast_take, threads};
use crate::layout::Mutex;
use crate::thread;
use crate::watch::Rehearsal;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_locks::posix;
use lockwright_platform::Word;

/// Locks and unlocks a mutex of its own, `pairs` times.
#[inline(never)]
pub(crate) fn rehearse(pairs: u32, how: Rehearsal) {
    let mutex = MaybeUninit::<Mutex>::zeroed();
    // SAFETY: zeroed memory is an unlocked mutex.
    let mutex = core::hint::black_box(unsafe { mutex.assume_init_ref() });
    for _ in 0..pairs {
        if let Rehearsal::Stamped(hooks) = how {
            let stop = || (hooks.before)(None);
            let start = |note| (hooks.after)(note, None);
            let note = stop();
            let _ = posix::lock(mutex, 0); // the plain kind
            start(note);
            let note = stop();
            let _ = posix::unlock(mutex);
            start(note);
            continue;
        }
        let mode = if let Rehearsal::Several = how { SEVERAL } else { threads() };
        fast_take(mutex, || mode);
        mutex.owner.store(thread::id(), Relaxed); // as above
        mutex.owner.store(0, Relaxed);
        fast_give(mutex, mode);
    }
}

/// Locks and unlocks a mutex of its own, `pairs` times, by operations that the trace records.
#[inline(never)]
pub(crate) fn rehearse_recorded(pairs: usize) {
    let mut mutex = Mutex::new();
    let mutex = core::hint::black_box(&raw mut mutex);
    for _ in 0..pairs {
        // SAFETY: what they expect.
        unsafe {
            wait(mutex, 0);
            wake(mutex, 0);
        }
    }
}
