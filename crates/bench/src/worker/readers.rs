//! Readers and writers.

use super::pass::{Guarded, Line, Pass, answer_of};
use super::rw::Rw;
use crate::compute::{Plan, compute};
use crate::spec::{Answer, Spec};
use std::time::Duration;

/// As threads that compete do, but `reads` per cent of the operations only read.
pub(super) fn readers_and_writers<L: Rw>(spec: &Spec, reads: u32) -> Answer {
    let point = &spec.point;
    let lock = Line(L::new());
    let guarded = Guarded::new(point.lines);
    let pass = Pass::new(spec);
    let passed = pass.run(
        point.threads,
        Duration::from_secs_f64(spec.time_s),
        |i| Plan::new(point, spec.turns_per_ns, spec.seed, i),
        |_, mut plan| {
            let (mut ops, mut writes, mut torn) = (0u64, 0u64, 0u64);
            while !pass.stopped() {
                let step = plan.next();
                if u32::from(step.percent) < reads {
                    lock.0.read(|| {
                        // SAFETY: held for reading: writers stay out, or the twins differ.
                        unsafe {
                            let first = guarded.counter.0.get().read_volatile();
                            compute(step.cs);
                            torn += u64::from(first != guarded.twin.0.get().read_volatile());
                        }
                    });
                } else {
                    lock.0.write(|| {
                        guarded.touch();
                        compute(step.cs);
                        // SAFETY: held for writing.
                        unsafe {
                            let twin = guarded.twin.0.get();
                            twin.write_volatile(twin.read_volatile() + 1);
                        }
                    });
                    writes += 1;
                }
                ops += 1;
                compute(step.gap);
            }
            (ops, writes, torn)
        },
        || (),
    );
    let mut answer = answer_of(&passed, passed.threads.iter().map(|t| t.0).sum());
    answer.per_thread = passed.threads.iter().map(|t| t.0).collect();
    answer.counted = guarded.counted();
    answer.expected = passed.threads.iter().map(|t| t.1 + t.2).sum();
    answer
}
