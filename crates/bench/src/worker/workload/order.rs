//! The order in which a lock serves its threads.

use crate::compute::{LengthPlan, compute};
use crate::spec::{Answer, Spec};
use crate::stats;
use crate::worker::mutex::Mutex;
use crate::worker::pass::{Line, Pass, answer_of};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Number of acquisitions whose order of arrival is recorded.
const ORDER_LOG: usize = 1 << 19;

/// Which threads overtake which: each acquisition draws a ticket just before its request.
pub(in crate::worker) fn order<M: Mutex>(spec: &Spec, grace_ns: u64) -> Answer {
    pub(super) struct Log(UnsafeCell<Vec<(u64, u64)>>);
    // SAFETY: written only under the lock; if that fails, the tickets don't add up.
    unsafe impl Sync for Log {}

    let point = &spec.point;
    let lock = Line(M::new());
    let tickets = Line(AtomicU64::new(0));
    // Written once in advance, so that no page is mapped during the measurement.
    let mut entries = vec![(u64::MAX, u64::MAX); ORDER_LOG];
    entries.clear();
    let log = Line(Log(UnsafeCell::new(entries)));
    let room = ORDER_LOG - point.threads as usize;
    let epoch = Instant::now();
    let pass = Pass::new(spec);
    let passed = pass.run(
        point.threads,
        Duration::from_secs_f64(spec.time_s),
        |i| LengthPlan::of(spec, i),
        |_, mut plan| {
            let log = &log.0;
            let mut node = M::Node::default();
            let node = &raw mut node;
            let mut ops = 0u64;
            let mut full = false;
            while !full && !pass.stopped() {
                let step = plan.next();
                let arrived = epoch.elapsed().as_nanos() as u64;
                let ticket = tickets.0.fetch_add(1, Relaxed);
                let section = || {
                    // SAFETY: the log is accessed only under the lock, and has space.
                    let log = unsafe { &mut *log.0.get() };
                    log.push((ticket, arrived));
                    compute(step.cs);
                    log.len() >= room
                };
                // SAFETY: lock and node stay in place.
                full = unsafe { lock.0.with(node, section) };
                ops += 1;
                compute(step.gap);
            }
            ops
        },
        || (),
    );
    // SAFETY: the threads have ended.
    let log = unsafe { &*log.0.0.get() };
    let ops: u64 = passed.threads.iter().sum();
    let mut answer = answer_of(&passed, ops);
    answer.expected = ops;
    answer.counted = log.len() as u64;
    let mut seen = vec![false; log.len()];
    for &(ticket, _) in log {
        match seen.get_mut(ticket as usize) {
            Some(seen) if !*seen => *seen = true,
            // A ticket is missing, torn or duplicated: the lock let two threads in.
            _ => {
                answer.counted = !answer.expected;
                return answer;
            }
        }
    }
    let order = stats::order(log, grace_ns);
    let share = |n: u64| Some(n as f64 / order.served.max(1) as f64);
    answer.per_thread = passed.threads;
    answer.overtaken = share(order.overtaken);
    answer.overtaken_late = share(order.overtaken_late);
    answer.longest_bypass = Some(order.longest_bypass);
    answer.bypass_p999 = Some(order.bypass_p999);
    answer
}
