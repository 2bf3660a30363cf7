//! What the types promise, in one process.

use lockwright_sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

#[test]
fn eight_threads_exclude_each_other() {
    static PAIR: Mutex<(u64, u64)> = Mutex::new((0, 0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let mut pair = PAIR.lock();
                    assert_eq!(pair.0, pair.1);
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(*PAIR.lock(), (160_000, 160_000));
}

#[test]
fn a_mutex_that_is_held_is_given_up_in_time() {
    let mutex = Mutex::new(0);
    let held = mutex.lock();
    assert!(mutex.is_locked());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(mutex.try_lock().is_none());
            let start = Instant::now();
            assert!(mutex.try_lock_for(SOON).is_none());
            assert!(mutex.try_lock_until(Instant::now() + SOON).is_none());
            assert!(start.elapsed() >= 2 * SOON);
        });
    });
    thread::scope(|scope| {
        let patient = scope.spawn(|| mutex.try_lock_for(Duration::MAX).is_some());
        thread::sleep(SOON);
        drop(held);
        assert!(patient.join().unwrap());
    });
    assert!(!mutex.is_locked());
}

#[test]
fn a_panic_unlocks_and_poisons_nothing() {
    let mutex = Mutex::new(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _held = mutex.lock();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn a_part_of_the_data_can_be_held() {
    let mutex = Mutex::new((1, 2));
    let mut second = MutexGuard::map(mutex.lock(), |pair| &mut pair.1);
    *second += 1;
    drop(second);
    assert_eq!(mutex.into_inner(), (1, 3));
}

#[test]
fn a_notification_wakes_one_waiter_and_all_wake_all() {
    let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (permits, changed) = &*shared;
                let mut permits = permits.lock();
                changed.wait_while(&mut permits, |permits| *permits == 0);
                *permits -= 1;
            })
        })
        .collect();
    let (permits, changed) = &*shared;
    *permits.lock() += 1;
    changed.notify_one();
    let start = Instant::now();
    while *permits.lock() > 0 {
        assert!(start.elapsed() < LONG, "nobody was woken");
        thread::yield_now();
    }
    *permits.lock() += 3;
    changed.notify_all();
    for waiter in waiters {
        waiter.join().unwrap();
    }
    assert_eq!(*permits.lock(), 0);
}

#[test]
fn waits_end_in_time_with_the_mutex_held() {
    let (mutex, changed) = (Mutex::new(false), Condvar::new());
    let mut guard = mutex.lock();
    let start = Instant::now();
    while !changed.wait_for(&mut guard, SOON).timed_out() {}
    let until = Instant::now() + SOON;
    while !changed.wait_until(&mut guard, until).timed_out() {}
    assert!(changed.wait_while_for(&mut guard, |done| !*done, SOON).timed_out());
    assert!(start.elapsed() >= 3 * SOON);
    assert!(!changed.wait_while_for(&mut guard, |done| *done, SOON).timed_out());
    assert!(mutex.is_locked());
}

/// With two mutexes for one condvar at the same time, a notifier might look at a mutex that is gone.
#[test]
fn a_second_mutex_while_somebody_waits_is_refused() {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let (ready, changed) = &*shared;
    let waits = Arc::new(AtomicBool::new(false));
    let waiter = thread::spawn({
        let (shared, waits) = (shared.clone(), waits.clone());
        move || {
            let mut ready = shared.0.lock();
            waits.store(true, Ordering::Relaxed);
            shared.1.wait_while(&mut ready, |ready| !*ready);
        }
    });
    while !waits.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    *ready.lock() = true; // locked, so it waits by now
    let other = Mutex::new(());
    let mut held = other.lock();
    let refused = catch_unwind(AssertUnwindSafe(|| changed.wait_for(&mut held, LONG)));
    assert!(refused.is_err());
    assert!(other.is_locked());
    changed.notify_all();
    waiter.join().unwrap();
    assert!(changed.wait_for(&mut held, SOON).timed_out(), "nobody waits: any mutex will do");
}

#[test]
fn readers_share_and_writers_exclude() {
    let lock = RwLock::new([0_u64; 2]);
    thread::scope(|scope| {
        for me in 0..6 {
            let lock = &lock;
            scope.spawn(move || {
                for _ in 0..10_000 {
                    if me < 2 {
                        let mut both = lock.write();
                        both[0] += 1;
                        both[1] += 1;
                    } else {
                        let both = lock.read();
                        assert_eq!(both[0], both[1]);
                    }
                }
            });
        }
    });
    assert_eq!(*lock.read(), [20_000; 2]);
    let (one, two) = (lock.read(), lock.read_recursive());
    assert!(lock.try_write().is_none());
    assert!(lock.try_write_for(SOON).is_none());
    drop((one, two));
    let held = lock.write();
    assert!(lock.try_read().is_none());
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_read_for(SOON).is_none()));
        scope.spawn(|| assert!(lock.try_write_until(Instant::now() + SOON).is_none()));
    });
    drop(held);
    assert_eq!(*RwLockReadGuard::map(lock.read(), |both| &both[1]), 20_000);
}

#[test]
fn locking_ones_own_write_lock_again_is_a_panic_not_a_hang() {
    let lock = RwLock::new(());
    let _held = lock.write();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.read()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.write()))).is_err());
}

#[test]
fn sizes_are_as_said() {
    assert_eq!(size_of::<Mutex<()>>(), 40);
    assert_eq!(size_of::<Condvar>(), 48);
    assert_eq!(size_of::<RwLock<()>>(), 56);
}
