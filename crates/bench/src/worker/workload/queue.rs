//! Producers and consumers on a bounded queue.

use crate::compute::{LengthPlan, compute};
use crate::spec::{Answer, Spec};
use crate::worker::monitor::Monitor;
use crate::worker::pass::{Line, Pass, answer_of};
use std::cell::UnsafeCell;
use std::time::Duration;

/// Capacity of the queue.
const QUEUE: usize = 64;

/// A textbook bounded queue: one mutex with two condition variables.
pub(in crate::worker) fn queue<C: Monitor>(spec: &Spec, producers: u32, consumers: u32) -> Answer {
    struct Ring {
        slots: [u64; QUEUE],
        put: u64,
        taken: u64,
        sum: u64,
    }
    struct RingCell(UnsafeCell<Ring>);
    // SAFETY: accessed only under the monitor; if that fails, the sums show it.
    unsafe impl Sync for RingCell {}
    const NOT_FULL: usize = 0;
    const NOT_EMPTY: usize = 1;

    let monitor = Line(C::new());
    let shared =
        Line(RingCell(UnsafeCell::new(Ring { slots: [0; QUEUE], put: 0, taken: 0, sum: 0 })));
    let ring = || {
        let shared = &shared.0;
        shared.0.get()
    };
    let pass = Pass::new(spec);
    let passed = pass.run(
        producers + consumers,
        Duration::from_secs_f64(spec.time_s),
        |i| LengthPlan::of(spec, i),
        |i, mut plan| {
            let (mut ops, mut sum) = (0u64, 0u64);
            loop {
                let step = plan.next();
                if i < producers {
                    compute(step.gap);
                    let value = u64::from(i) << 40 | ops;
                    let mut held = monitor.0.lock();
                    // SAFETY: the monitor is held whenever the ring is touched.
                    unsafe {
                        while !pass.stopped() && (*ring()).put - (*ring()).taken == QUEUE as u64 {
                            held = monitor.0.wait(held, NOT_FULL);
                        }
                        if pass.stopped() {
                            break;
                        }
                        let ring = &mut *ring();
                        ring.slots[ring.put as usize % QUEUE] = value;
                        ring.put += 1;
                    }
                    monitor.0.notify_one(NOT_EMPTY);
                    drop(held);
                    sum = sum.wrapping_add(value);
                } else {
                    let mut held = monitor.0.lock();
                    // SAFETY: the monitor is held whenever the ring is touched.
                    unsafe {
                        while !pass.stopped() && (*ring()).put == (*ring()).taken {
                            held = monitor.0.wait(held, NOT_EMPTY);
                        }
                        if pass.stopped() {
                            break;
                        }
                        let ring = &mut *ring();
                        ring.sum = ring.sum.wrapping_add(ring.slots[ring.taken as usize % QUEUE]);
                        ring.taken += 1;
                    }
                    monitor.0.notify_one(NOT_FULL);
                    drop(held);
                    compute(step.gap);
                }
                ops += 1;
            }
            (ops, sum)
        },
        || {
            // Under the lock, so that no thread checks `stop` before this and falls asleep after it.
            drop(monitor.0.lock());
            monitor.0.notify_all(NOT_FULL);
            monitor.0.notify_all(NOT_EMPTY);
        },
    );
    // SAFETY: the threads have ended.
    let ring = unsafe { &*ring() };
    let left = (ring.taken..ring.put)
        .fold(0u64, |sum, at| sum.wrapping_add(ring.slots[at as usize % QUEUE]));
    let taken: u64 = passed.threads[producers as usize..].iter().map(|t| t.0).sum();
    let mut answer = answer_of(&passed, taken);
    answer.per_thread = passed.threads.iter().map(|t| t.0).collect();
    answer.counted = ring.sum.wrapping_add(left);
    answer.expected = passed.threads.iter().fold(0u64, |sum, t| sum.wrapping_add(t.1));
    if ring.taken != taken {
        answer.counted = !answer.expected;
    }
    answer
}
