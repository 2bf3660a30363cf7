//! Threads take one of several mutexes at random, and request it in one of several ways, like a program made of
//! independent parts.

use crate::compute::{LengthPlan, Random};
use crate::point::Call;
use crate::spec::{Answer, Spec};
use crate::worker::mutex::Mutex;
use crate::worker::pass::{Guarded, Line, Pass, answer_of, count, time};
use crate::worker::times::{Times, percentiles};
use crate::worker::turn::{Ask, Tally, turn};
use std::time::Duration;

/// Of a thread's acquisitions by `yield`, one in this many yields the CPU during its critical section.
const YIELD_EVERY: u64 = 64;

/// A mutex and what it protects.
struct GuardedMutex<M> {
    lock: Line<M>,
    guarded: Guarded,
}

/// What all threads do.
struct Draw<'a> {
    calls: &'a [Call],
    timeout_us: u32,
}

/// One thread's loop. `STAMP`: this is the latency pass, which takes three timestamps per operation.
#[inline(always)]
fn one<M: Mutex, const STAMP: bool>(
    draw: &Draw<'_>,
    pass: &Pass<'_>,
    places: &[GuardedMutex<M>],
    mut plan: LengthPlan,
    mut random: Random,
) -> Tally {
    let mut node = M::Node::default();
    let node = &raw mut node;
    let mut ran = Tally::new();
    let mut yields = 0;
    loop {
        let step = plan.next();
        let bits = random.next();
        let place = &places[bits as u32 as usize % places.len()];
        let call = draw.calls[(bits >> 32) as usize % draw.calls.len()];
        let yielding = call == Call::Yield && {
            yields += 1;
            yields % YIELD_EVERY == 0
        };
        // Only drawn if needed, so that the other loops are as short as those of `mutex`.
        let mut time =
            || Duration::from_nanos(random.next() % (u64::from(draw.timeout_us) * 1000 + 1));
        let ask = match call {
            Call::Lock | Call::Yield => Ask::Wait,
            Call::Try => Ask::Try,
            Call::Timed => Ask::For(time(), libc::CLOCK_REALTIME),
            Call::Clock => Ask::For(time(), libc::CLOCK_MONOTONIC),
        };
        let inside = || {
            place.guarded.touch();
            if yielding {
                std::thread::yield_now();
            }
        };
        let lock = &place.lock.0;
        // SAFETY: locks and node outlive the loop and don't move; one section at a time has the node.
        if !unsafe { turn::<M, STAMP>(&mut ran, pass, step, ask, lock, node, inside) } {
            break;
        }
    }
    ran
}

/// All threads, under `mutexes` mutexes.
pub(in crate::worker) fn calls<M: Mutex>(
    spec: &Spec,
    calls: &[Call],
    mutexes: u32,
    timeout_us: u32,
) -> Answer {
    let point = &spec.point;
    let place = |_| GuardedMutex { lock: Line(M::new()), guarded: Guarded::new(point.lines) };
    let places: Vec<GuardedMutex<M>> = (0..mutexes).map(place).collect();
    let draw = Draw { calls, timeout_us };
    let prepare = |i: u32| {
        let plan = LengthPlan::of(spec, i);
        (plan, Random(!spec.seed ^ (u64::from(i) << 32)))
    };
    let counted = count(spec, prepare, |pass, (plan, random)| {
        one::<M, false>(&draw, pass, &places, plan, random)
    });
    let timed = time(spec, prepare, |pass, (plan, random)| {
        one::<M, true>(&draw, pass, &places, plan, random)
    });
    let sum = |threads: &[Tally]| threads.iter().map(|ran| ran.ops).sum::<u64>();
    let ops = sum(&counted.threads);
    let mut answer = answer_of(&counted, ops);
    answer.failures = counted.threads.iter().map(|ran| ran.failures).sum();
    answer.per_thread = counted.threads.iter().map(|ran| ran.ops).collect();
    answer.counted = places.iter().map(|place| place.guarded.counted()).sum();
    answer.expected = ops + timed.as_ref().map_or(0, |timed| sum(&timed.threads));
    let all = Times::sum(timed.iter().flat_map(|timed| &timed.threads).map(|ran| &ran.times));
    answer.wait = percentiles(&all.wait);
    answer.hold = percentiles(&all.hold);
    answer
}
