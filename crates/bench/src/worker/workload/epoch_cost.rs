//! The cost of an empty epoch.

use crate::spec::Answer;
use crate::system;
use crate::worker::epoch_api::EpochApi;
use crate::worker::pass::unsupported;
use std::time::{Duration, Instant};

/// Number of empty epochs between two timestamps.
const BATCH: u64 = 2_000;

/// The time that an empty epoch takes, and the memory that it takes per thread.
pub(in crate::worker) fn cost() -> Answer {
    let Some(api) = EpochApi::find() else { return unsupported() };
    const SLO_NS: u64 = 1_000_000;
    let pairs = |from: libc::c_int, to: libc::c_int| {
        for id in from..to {
            api.start(id);
            api.end(id, SLO_NS);
        }
    };
    // Wait until the library knows its clock's rate, which it learns from readings some 10 ms apart.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(60) {
        pairs(1, 2);
    }
    let measuring = Instant::now();
    let mut batches = Vec::new();
    while measuring.elapsed() < Duration::from_millis(100) {
        let from = system::ticks();
        for _ in 0..BATCH {
            pairs(1, 2);
        }
        batches.push(system::ticks().saturating_sub(from));
    }
    let elapsed = measuring.elapsed();
    batches.sort_unstable();
    // After this, the tables that all threads share, and this thread's own, exist.
    pairs(0, 1024);
    // 512 epochs of 24 bytes fill three pages, wherever the first one is.
    const HALF: libc::c_int = 512;
    const THREADS: u64 = 8;
    let mut grown = 0;
    std::thread::scope(|scope| {
        // All threads stay until the last one is done: the library may reuse an ended thread's memory.
        let mut staying = Vec::new();
        for _ in 0..THREADS {
            let (said, hear) = std::sync::mpsc::channel();
            let (stay, over) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                let one = |id| {
                    api.start(id);
                    api.end(id, SLO_NS);
                };
                (0..HALF).for_each(one);
                let before = system::resident_bytes();
                (HALF..2 * HALF).for_each(one);
                let _ = said.send(system::resident_bytes().saturating_sub(before));
                let _ = over.recv();
            });
            grown += hear.recv().unwrap_or(u64::MAX / THREADS);
            staying.push(stay);
        }
    });
    let ops = batches.len() as u64 * BATCH;
    Answer {
        ops,
        elapsed_ns: elapsed.as_nanos() as u64,
        counted: ops,
        expected: ops,
        epoch_ticks: Some(batches[batches.len() / 2] as f64 / BATCH as f64),
        bytes_per_epoch: Some(grown as f64 / (THREADS * HALF as u64) as f64),
        ..Answer::default()
    }
}
