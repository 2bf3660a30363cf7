//! Readers and writers.

use crate::compute::{LengthPlan, compute};
use crate::spec::{Answer, Spec};
use crate::worker::pass::{Guarded, Line, Pass, Passed, answer_of, count, time};
use crate::worker::rw::Rw;
use crate::worker::times::percentiles;
use hdrhistogram::Histogram;
use lockwright_numbers::recorder;
use std::time::{Duration, Instant};

/// The results of one thread.
struct Ran {
    ops: u64,
    writes: u64,
    /// Reads that saw half of a write.
    torn: u64,
    /// How long its writes waited for the lock.
    waits: Histogram<u64>,
}

/// One thread's loop. `STAMP`: this is the latency pass, which takes two timestamps per write.
#[inline(always)]
fn read_and_write<L: Rw, const STAMP: bool>(
    pass: &Pass<'_>,
    lock: &L,
    guarded: &Guarded,
    reads: f64,
    mut plan: LengthPlan,
) -> Ran {
    let mut ran = Ran { ops: 0, writes: 0, torn: 0, waits: recorder() };
    while !pass.stopped() {
        let step = plan.next();
        if f64::from(step.permille) < reads * 10.0 {
            lock.read(|| {
                // SAFETY: held for reading: writers stay out, or the twins differ.
                unsafe {
                    let first = guarded.counter.0.get().read_volatile();
                    compute(step.cs);
                    ran.torn += u64::from(first != guarded.twin.0.get().read_volatile());
                }
            });
        } else {
            let asked = STAMP.then(Instant::now);
            let mut waited = Duration::ZERO;
            lock.write(|| {
                if let Some(asked) = asked {
                    waited = asked.elapsed();
                }
                guarded.touch();
                compute(step.cs);
                // SAFETY: held for writing.
                unsafe {
                    let twin = guarded.twin.0.get();
                    twin.write_volatile(twin.read_volatile() + 1);
                }
            });
            if STAMP {
                ran.waits.saturating_record(waited.as_nanos() as u64);
            }
            ran.writes += 1;
        }
        ran.ops += 1;
        compute(step.gap);
    }
    ran
}

/// As competing threads do, except that `reads` per cent of the operations only read. Waits are those of the writes.
pub(in crate::worker) fn readers_and_writers<L: Rw>(spec: &Spec, reads: f64) -> Answer {
    let point = &spec.point;
    let lock = Line(L::new());
    let guarded = Guarded::new(point.lines);
    let plan = |i| LengthPlan::of(spec, i);
    let counted = count(spec, plan, |pass, plan| {
        read_and_write::<L, false>(pass, &lock.0, &guarded, reads, plan)
    });
    let timed = time(spec, plan, |pass, plan| {
        read_and_write::<L, true>(pass, &lock.0, &guarded, reads, plan)
    });
    let sum =
        |passed: &Passed<Ran>, of: fn(&Ran) -> u64| passed.threads.iter().map(of).sum::<u64>();
    let mut answer = answer_of(&counted, sum(&counted, |ran| ran.ops));
    answer.per_thread = counted.threads.iter().map(|ran| ran.ops).collect();
    answer.counted = guarded.counted();
    answer.expected = [Some(&counted), timed.as_ref()]
        .into_iter()
        .flatten()
        .map(|p| sum(p, |ran| ran.writes + ran.torn))
        .sum();
    let mut waits = recorder();
    for ran in timed.iter().flat_map(|timed| &timed.threads) {
        let _ = waits.add(&ran.waits); // the bounds are equal, so adding can't fail
    }
    answer.wait = percentiles(&waits);
    answer
}
