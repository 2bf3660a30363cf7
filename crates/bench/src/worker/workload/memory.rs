//! The memory that locks take.

use crate::spec::Answer;
use crate::system;
use crate::worker::mutex::Mutex;
use crate::worker::pass::Guarded;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// How much memory `locks` locks take in addition to themselves.
pub(in crate::worker) fn memory<M: Mutex>(locks: u32, contended: bool) -> Answer {
    /// The first locks only warm up: stacks, tables and thread data don't belong to a lock.
    pub(super) const WARM_UP: usize = 256;
    let count = locks as usize + WARM_UP;
    let mut array: Vec<M> = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: within the capacity. Volatile: plain zero writes may become a zeroed allocation,
        // whose pages are mapped only at the first access, and would count as the locks'.
        unsafe { array.as_mut_ptr().add(i).write_volatile(M::new()) };
    }
    // SAFETY: the loop wrote them all.
    unsafe { array.set_len(count) };
    let (offered, asking, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let guarded = Guarded::new(0);
    let mut before = 0;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut node = M::Node::default();
            for (i, lock) in (1u64..).zip(&array) {
                while offered.load(Acquire) < i {
                    std::thread::yield_now();
                }
                asking.store(i, Release);
                if contended {
                    // SAFETY: lock and node stay in place.
                    unsafe { lock.with(&mut node, || guarded.touch()) };
                }
                done.store(i, Release);
            }
        });
        let mut node = M::Node::default();
        let node = &raw mut node;
        for (i, lock) in (1u64..).zip(&array) {
            if i as usize == WARM_UP {
                before = system::resident_bytes();
            }
            let section = || {
                guarded.touch();
                offered.store(i, Release);
                while asking.load(Acquire) < i {
                    std::thread::yield_now();
                }
                if contended {
                    // Long enough for the other thread to reach the lock.
                    let asked = Instant::now();
                    while asked.elapsed() < Duration::from_micros(5) {
                        std::hint::spin_loop();
                    }
                }
            };
            // SAFETY: lock and node stay in place.
            unsafe { lock.with(node, section) };
            while done.load(Acquire) < i {
                std::thread::yield_now();
            }
        }
        let _ = other.join();
    });
    let grown = system::resident_bytes().saturating_sub(before);
    Answer {
        ops: count as u64,
        elapsed_ns: start.elapsed().as_nanos() as u64,
        counted: guarded.counted(),
        expected: count as u64 * (1 + u64::from(contended)),
        bytes_per_lock: Some(grown as f64 / f64::from(locks)),
        ..Answer::default()
    }
}
