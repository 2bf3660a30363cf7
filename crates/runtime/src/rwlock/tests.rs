//! A readers-writer lock under a policy.

#![cfg(target_arch = "x86_64")]

use super::RwLock;
use crate::programs::tests::{alone, load_it, says, unload_it};
use lockwright_platform::hooks::Hook;
use std::time::Duration;

/// Runs `run` in another thread, to its end.
fn elsewhere<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// A lock that a test's threads share.
struct Shared(core::cell::UnsafeCell<RwLock>);
// SAFETY: what changes in it is atomic.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Self {
        Self(core::cell::UnsafeCell::new(RwLock::new()))
    }
    fn is_read_by_table(&self) -> bool {
        // SAFETY: it lives.
        unsafe { (*self.0.get()).is_read_by_table() }
    }
    /// Applies one of the `pthread_rwlock_` functions.
    fn does(&self, function: unsafe fn(*mut RwLock) -> i32) -> i32 {
        // SAFETY: an initialised lock, which lives on; the tests unlock only what their threads hold.
        unsafe { function(self.0.get()) }
    }
}

#[test]
fn readers_of_an_rwlock_use_the_table_while_a_policy_says_so() {
    let _alone = alone();
    let lock = Shared::new();
    let does = |function: unsafe fn(*mut RwLock) -> i32| assert_eq!(lock.does(function), 0);
    let uses_table = || lock.is_read_by_table();
    load_it(5, &[(Hook::RwBias, says(1))]).unwrap();
    // The first reader asks, the second one uses the table. Both read, and one of them again.
    does(super::rdlock);
    assert!(!uses_table());
    elsewhere(|| {
        does(super::rdlock);
        assert!(uses_table());
        assert_eq!(lock.does(super::trywrlock), libc::EBUSY);
        does(super::rdlock);
        does(super::unlock);
        does(super::unlock);
    });
    does(super::unlock);
    assert!(!uses_table());
    // A writer waits for a reader in the table, sleeping; meanwhile the reader may read again.
    does(super::rdlock);
    assert!(uses_table());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            does(super::wrlock);
            does(super::unlock);
        });
        std::thread::sleep(Duration::from_millis(20)); // the writer is likely to sleep by now; either way it must come in
        does(super::rdlock);
        does(super::unlock);
        does(super::unlock);
        writer.join().unwrap();
    });
    // Who reads when the policy goes may still unlock, in whatever way it came in.
    does(super::rdlock);
    unload_it(5);
    does(super::rdlock);
    assert_eq!(elsewhere(|| lock.does(super::trywrlock)), libc::EBUSY);
    does(super::unlock);
    does(super::unlock);
    assert!(!uses_table());
    does(super::trywrlock);
    assert_eq!(elsewhere(|| lock.does(super::tryrdlock)), libc::EBUSY);
    does(super::unlock);
}
