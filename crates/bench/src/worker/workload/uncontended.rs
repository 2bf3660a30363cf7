//! The cost of a lock without competition.

use crate::spec::{Answer, Spec};
use crate::system;
use crate::worker::mutex::Mutex;
use crate::worker::pass::{Guarded, Line};
use lockwright_energy::Source;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Number of pairs between two timestamps.
const BATCH: u64 = 2_000;

/// Only one thread locks. The rate is that of the median batch, so a stall of the machine spoils only one batch.
pub(in crate::worker) fn uncontended<M: Mutex>(spec: &Spec, second_thread: bool) -> Answer {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sleeper = second_thread.then(|| {
            scope.spawn(|| {
                while !over.load(Acquire) {
                    std::thread::park();
                }
            })
        });
        if spec.point.pin {
            system::pin_to(system::cpus()[0]);
        }
        let lock = Line(M::new());
        let guarded = Guarded::new(0);
        let mut node = M::Node::default();
        let node = &raw mut node;
        let time = Duration::from_secs_f64(spec.time_s);
        let mut batches: Vec<u64> = Vec::with_capacity(1 << 16);
        let source = Source::here(spec.watts.clone());
        let energy = source.start();
        let cpu = system::cpu_time();
        let start = Instant::now();
        let mut last = start;
        while last - start < time && batches.len() < batches.capacity() {
            for _ in 1..BATCH {
                // SAFETY: lock and node stay in place.
                unsafe { lock.0.with(node, || ()) };
            }
            // SAFETY: as above.
            unsafe { lock.0.with(node, || guarded.touch()) };
            let now = Instant::now();
            batches.push((now - last).as_nanos() as u64);
            last = now;
        }
        let cpu = system::cpu_time().saturating_sub(cpu);
        let joules = energy.stop(cpu);
        over.store(true, Release);
        if let Some(sleeper) = sleeper {
            sleeper.thread().unpark();
        }
        let count = batches.len() as u64;
        batches.sort_unstable();
        Answer {
            ops: count * BATCH,
            elapsed_ns: batches[batches.len() / 2] * count,
            cpu_ns: cpu.as_nanos() as u64,
            joules,
            joules_source: source.kind().word().into(),
            counted: guarded.counted(),
            expected: count,
            ..Answer::default()
        }
    })
}
