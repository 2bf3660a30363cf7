//! Tests of the epochs' stack and of its windows. They run in threads of their own, each with ids of its own.

use super::*;
use crate::shared::{NAME, name};
use crate::thread::window_ns;
use std::sync::PoisonError;
use std::thread;

const MAX: u32 = WINDOW_MAX_NS;
/// Never violated in a test.
const LONG: u64 = 50_000_000_000;

fn in_thread(work: impl FnOnce() + Send + 'static) {
    let _clock = clock::TESTED.read().unwrap_or_else(PoisonError::into_inner);
    thread::spawn(work).join().unwrap();
}

/// The window of an epoch of this thread, ns.
fn own(id: u32) -> u32 {
    // SAFETY: the calling thread's own block.
    unsafe { (*block()).windows.own[id as usize].window_ns.load(Relaxed) }
}

fn depth() -> u32 {
    // SAFETY: the calling thread's own block.
    unsafe { (*block()).depth.load(Relaxed) }
}

#[test]
fn the_inner_epoch_wins_and_the_outer_comes_back() {
    in_thread(|| {
        assert_eq!(window_ns(), MAX);
        for (id, slo) in [(1, 70_000_000), (2, 40_000_000)] {
            start(id);
            end(id, slo);
            assert_eq!(own(id as u32), slo as u32);
        }
        start(1);
        assert_eq!(window_ns(), 70_000_000);
        start(2);
        assert_eq!(window_ns(), 40_000_000);
        end(2, 40_000_000);
        assert_eq!(window_ns(), own(1));
        end(1, 70_000_000);
        assert_eq!(window_ns(), MAX);
        assert!(own(1) > 70_000_000 && own(2) > 40_000_000);
    });
}

/// L15: the outer epoch's SLO is tighter than the inner one's. Inside the inner epoch, its own window counts. The outer
/// epoch's window shrinks, and acts outside the inner epoch.
#[test]
fn a_tighter_outer_slo_does_not_narrow_the_inner_epoch() {
    in_thread(|| {
        for _ in 0..20 {
            start(3);
            start(4);
            std::thread::sleep(std::time::Duration::from_micros(50));
            end(4, LONG);
            end(3, 1000);
        }
        start(3);
        assert!(window_ns() <= 1000);
        start(4);
        assert_eq!(window_ns(), MAX);
        end(4, LONG);
        end(3, 1000);
    });
}

#[test]
fn an_epoch_may_contain_itself() {
    in_thread(|| {
        start(5);
        std::thread::sleep(std::time::Duration::from_millis(3));
        start(5);
        end(5, 2_000_000);
        let after_inner = own(5);
        assert_eq!(after_inner, 2_000_000);
        // The outer one took 3 ms: a violation.
        end(5, 2_000_000);
        assert_eq!(own(5), 1_000_000);
        assert_eq!(depth(), 0);
    });
}

#[test]
fn ends_out_of_order_end_what_is_inside_and_strange_ones_nothing() {
    in_thread(|| {
        start(6);
        start(7);
        start(8);
        end(9, 1);
        assert_eq!(depth(), 3);
        end(6, LONG);
        assert_eq!((depth(), window_ns()), (0, MAX));
        // 7 and 8 were dropped: they have learnt nothing.
        assert_eq!((own(7), own(8)), (0, 0));
        end(7, 1);
        for id in [-1, 1024, i32::MAX, i32::MIN] {
            start(id);
            end(id, 1);
        }
        assert_eq!(depth(), 0);
    });
}

#[test]
fn more_epochs_than_the_stack_holds_are_counted() {
    in_thread(|| {
        let many = DEPTH as i32 + 10;
        for id in 100..100 + many {
            start(id);
        }
        assert_eq!(depth() as usize, DEPTH);
        for id in (100..100 + many).rev() {
            end(id, LONG);
        }
        assert_eq!((depth(), window_ns()), (0, MAX));
        let last = 100 + DEPTH as u32 - 1;
        assert_eq!(own(last), MAX);
        start(100);
        end(100, LONG);
        assert_eq!(depth(), 0);
    });
}

#[test]
fn calls_share_the_stack_and_longjmp_is_cleaned_up() {
    assert!(define(1, b"get", LONG, None) && define(2, b"put", 30_000_000, None));
    assert!(!define(FUNCTIONS as u32, b"no", 1, None));
    in_thread(|| {
        enter(1, 0x7000);
        enter(2, 0x6000);
        assert_eq!(window_ns(), 30_000_000);
        leave(2, 0x6000);
        leave(1, 0x7000);
        assert_eq!(depth(), 0);
        // `longjmp` leaves both. The next call from further up, or the same call again, notices that.
        for _ in 0..3 {
            enter(1, 0x7000);
            enter(2, 0x6000);
        }
        assert_eq!(depth(), 2);
        enter(1, 0x7800);
        assert_eq!(depth(), 1);
        // A return from a frame further up than the ones on the stack.
        enter(2, 0x6800);
        leave(1, 0x7800);
        assert_eq!(depth(), 0);
        // The program's own epochs are never dropped by that.
        start(10);
        enter(1, 0x7000);
        assert_eq!(depth(), 2);
        start(11);
        enter(2, 0x7800);
        assert_eq!(depth(), 4);
        leave(2, 0x7800);
        abort();
        assert_eq!(depth(), 1);
        abort();
        assert_eq!(depth(), 1);
        leave(2, 0x7800);
        end(10, LONG);
        assert_eq!(depth(), 0);
        enter(9999, 1);
        leave(9999, 1);
    });
}

#[test]
fn calls_beyond_the_stack_leave_it_as_it_was() {
    define(3, b"deep", LONG, None);
    in_thread(|| {
        let frame = |level: usize| 0x10_0000 - level * 64;
        for level in 0..DEPTH + 5 {
            enter(3, frame(level));
        }
        for level in (0..DEPTH + 5).rev() {
            leave(3, frame(level));
        }
        assert_eq!((depth(), window_ns()), (0, MAX));
    });
}

#[test]
fn threads_that_come_and_go_use_the_same_memory_and_hand_on_their_windows() {
    let mapped = || {
        let (mut count, mut at) = (0, lockwright_epochs.newest.load(Relaxed));
        // SAFETY: blocks are never unmapped.
        while let Some(block) = unsafe { at.as_ref() } {
            count += 1;
            at = block.older.load(Relaxed);
        }
        count
    };
    // Other tests' threads come and go, too, but never more than a few at a time.
    for _ in 0..1000 {
        in_thread(|| {
            start(12);
            end(12, 1_000);
            for _ in 0..3 {
                start(12);
                std::thread::sleep(std::time::Duration::from_micros(1));
                end(12, 1_000);
            }
        });
    }
    assert!(mapped() < 100, "{}", mapped());
    in_thread(|| {
        // At most the rest of 1000 ns after three violations, or the SLO if the clock is very coarse.
        start(12);
        assert!(window_ns() < 1_000, "{}", window_ns());
        end(12, 1_000);
    });
}

#[test]
fn percentiles_and_names_are_kept() {
    assert_eq!(percentile(20), Percentile::P99);
    set_percentile(20, 99.9);
    assert_eq!(percentile(20).millionths(), 999_000);
    for bad in [0.0, 100.0, -1.0, f64::NAN, f64::INFINITY] {
        set_percentile(20, bad);
    }
    set_percentile(5000, 95.0);
    assert_eq!(percentile(20).millionths(), 999_000);
    let mut buffer = [0; NAME];
    assert_eq!(name(20, &mut buffer), b"");
    // SAFETY: a C string, and null.
    unsafe {
        set_name_of(20, c"request".as_ptr());
        set_name_of(20, core::ptr::null());
    }
    assert_eq!(name(20, &mut buffer), b"request");
    set_name(20, &[b'x'; 200]);
    assert_eq!(name(20, &mut buffer).len(), NAME - 1);
}
