//! Lock, critical section, unlock, gap: threads that compete for one lock.

use crate::compute::{LengthPlan, compute};
use crate::point::Work;
use crate::spec::{Answer, ClassResult, Spec};
use crate::worker::mutex::Mutex;
use crate::worker::pass::{Guarded, Line, Pass, Passed, answer_of, count, time};
use crate::worker::times::{Times, percentiles};
use crate::worker::turn::{Ask, Tally, turn};
use lockwright_native::Native;
use lockwright_platform::Platform;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long each thread is timed alone.
const ALONE: Duration = Duration::from_micros(600);

/// The results of one competing thread.
struct Ran {
    tally: Tally,
    class: u8,
    alone_ns: f64,
}

/// Time per operation of `plan` without any lock: the best of several stretches.
fn alone(plan: &mut LengthPlan) -> f64 {
    const STRETCHES: u32 = 3;
    (0..STRETCHES)
        .map(|_| {
            let start = Instant::now();
            let mut ops = 0;
            loop {
                for _ in 0..16 {
                    let step = plan.next();
                    compute(step.cs);
                    compute(step.gap);
                }
                ops += 16;
                let elapsed = start.elapsed();
                if elapsed >= ALONE / STRETCHES {
                    break elapsed.as_nanos() as f64 / f64::from(ops);
                }
            }
        })
        .fold(f64::INFINITY, f64::min)
}

/// One thread's loop. `STAMP`: this is the latency pass, which takes three timestamps per operation.
#[inline(always)]
fn compete<M: Mutex, const STAMP: bool>(
    ask: impl Fn() -> Ask,
    pass: &Pass<'_>,
    lock: &M,
    guarded: &Guarded,
    mut plan: LengthPlan,
    alone_ns: f64,
) -> Ran {
    let mut node = M::Node::default();
    let node = &raw mut node;
    let mut tally = Tally::new();
    loop {
        let step = plan.next();
        // SAFETY: lock and node outlive the loop and don't move.
        let goes_on = unsafe {
            turn::<M, STAMP>(&mut tally, pass, step, ask(), lock, node, || guarded.touch())
        };
        if !goes_on {
            break;
        }
    }
    Ran { tally, class: Native::place().class.0, alone_ns }
}

/// Lock, critical section, unlock, gap; also with trylock and with deadlines.
pub(in crate::worker) fn competition<M: Mutex>(spec: &Spec) -> Answer {
    match spec.point.work {
        Work::Trylock => between::<M>(|| Ask::Try, spec),
        Work::Timedlock { timeout_us } if M::TIMED => {
            let time = Duration::from_micros(u64::from(timeout_us));
            between::<M>(move || Ask::For(time, libc::CLOCK_REALTIME), spec)
        }
        _ => between::<M>(|| Ask::Wait, spec),
    }
}

/// Runs all threads with one way to request the lock. `ask` has a type of its own, so that each loop is specialised and the
/// section is inlined.
fn between<M: Mutex>(ask: impl Fn() -> Ask + Copy + Sync, spec: &Spec) -> Answer {
    let point = &spec.point;
    let lock = Line(M::new());
    let guarded = Guarded::new(point.lines);
    let plan = |i| LengthPlan::of(spec, i);
    let prepare = |i| {
        let mut plan = plan(i);
        let alone_ns = if spec.alone { alone(&mut plan) } else { f64::NAN };
        (plan, alone_ns)
    };
    let counted = count(spec, prepare, |pass, (plan, alone_ns)| {
        compete::<M, false>(ask, pass, &lock.0, &guarded, plan, alone_ns)
    });
    let timed =
        time(spec, plan, |pass, plan| compete::<M, true>(ask, pass, &lock.0, &guarded, plan, 0.0));
    let sum = |passed: &Passed<Ran>| passed.threads.iter().map(|t| t.tally.ops).sum::<u64>();
    let mut answer = answer_of(&counted, sum(&counted));
    answer.failures = counted.threads.iter().map(|t| t.tally.failures).sum();
    answer.per_thread = counted.threads.iter().map(|t| t.tally.ops).collect();
    if spec.alone {
        answer.alone_ns = counted.threads.iter().map(|t| t.alone_ns).collect();
    }
    answer.counted = guarded.counted();
    answer.expected = sum(&counted) + timed.as_ref().map_or(0, sum);

    let mut classes = BTreeMap::new();
    for ran in &counted.threads {
        let class = classes.entry(ran.class).or_insert_with(|| (0, 0, Times::new()));
        class.0 += 1;
        class.1 += ran.tally.ops;
    }
    for ran in timed.iter().flat_map(|t| &t.threads) {
        let class = classes.entry(ran.class).or_insert_with(|| (0, 0, Times::new()));
        let _ = class.2.wait.add(&ran.tally.times.wait); // the bounds are equal, so adding can't fail
    }
    let all = Times::sum(timed.iter().flat_map(|t| &t.threads).map(|ran| &ran.tally.times));
    answer.wait = percentiles(&all.wait);
    answer.hold = percentiles(&all.hold);
    answer.in_sections = timed.as_ref().map(|timed| {
        let whole_ns = timed.elapsed.as_nanos() as f64 * timed.threads.len() as f64;
        (all.total_ns() / whole_ns).min(1.0)
    });
    answer.classes = classes
        .into_iter()
        .map(|(class, (threads, ops, times))| ClassResult {
            class,
            threads,
            ops,
            wait: percentiles(&times.wait),
            latency: None,
            violations: 0,
        })
        .collect();
    answer
}
