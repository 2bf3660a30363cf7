//! Mutex, condition variable and readers-writer lock on lockwright's locks, for Rust programs.
//!
//! The locks of Rust's std and of parking_lot call the kernel's futexes directly, so the preloaded library can't reach
//! them. A program that uses these types instead gets lockwright's locks, chosen by the same variables
//! (`LOCKWRIGHT_LOCK=fifo ./program`), with or without the preloaded library.
//!
//! ```
//! use lockwright_sync::{Condvar, Mutex};
//! use std::collections::VecDeque;
//!
//! static QUEUE: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());
//! static FILLED: Condvar = Condvar::new();
//!
//! let consumer = std::thread::spawn(|| {
//!     let mut queue = QUEUE.lock();
//!     FILLED.wait_while(&mut queue, |queue| queue.is_empty());
//!     queue.pop_front()
//! });
//! QUEUE.lock().push_back(7);
//! FILLED.notify_one();
//! assert_eq!(consumer.join().unwrap(), Some(7));
//! ```
//!
//! [`Delegated`] data gets its critical sections sent: under contention one thread runs those of all.
//!
//! An [`Epoch`] tells the lock `asl` how long a piece of work may take.
//!
//! * No poisoning: a panic in a critical section unlocks, as in parking_lot.
//! * Guards are not `Send`: the lock remembers the thread that holds it.
//! * The types are those of [`lock_api`], so everything that it offers works (`MutexGuard::map`, `Arc` guards, ...).
//! * They need Linux on x86-64 or aarch64, with glibc 2.34 or later. `docs/sync.md` says which settings are read when the
//!   program starts.

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!("lockwright-sync needs Linux and glibc");

mod condvar;
mod delegated;
mod epoch;
mod guard;
mod mutex;
mod rwlock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use delegated::{Delegate, Delegated, DelegatedGuard, Server};
pub use epoch::Epoch;
pub use guard::Guard;
pub use lock_api;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};

use std::time::{Duration, Instant};

/// The program's constructor: reads LOCKWRIGHT_*, or complains about them, before `main`, and prepares for forks.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        lockwright_runtime::sync::start();
    }
    start
};

lockwright_runtime::call_at_exit!();
lockwright_runtime::keep_glibcs_functions!();

/// The clock of all our times, which is that of [`Instant`].
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// The time `timeout` from now; `None` if that is forever (more than 100 years).
fn after(timeout: Duration) -> Option<libc::timespec> {
    const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    if timeout > FOR_EVER {
        return None;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(CLOCK, &mut now) };
    let ns = now.tv_nsec + libc::c_long::from(timeout.subsec_nanos());
    Some(libc::timespec {
        tv_sec: now.tv_sec + timeout.as_secs() as libc::time_t + ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    })
}

/// `instant` on our clock, or now if it has passed.
fn at(instant: Instant) -> Option<libc::timespec> {
    after(instant.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_carry_and_for_ever_is_not_a_time() {
        let before = after(Duration::ZERO).unwrap();
        let until = after(Duration::new(3, 999_999_999)).unwrap();
        assert!((0..1_000_000_000).contains(&until.tv_nsec));
        let now = after(Duration::ZERO).unwrap();
        assert!(until.tv_sec >= before.tv_sec + 3 && until.tv_sec <= now.tv_sec + 4);
        assert!(after(Duration::MAX).is_none());
        assert!(at(Instant::now() - Duration::from_millis(1)).is_some());
    }
}
