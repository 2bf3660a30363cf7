//! The paper's Bench-1: each operation is an epoch.

use crate::compute::{LengthPlan, compute};
use crate::spec::{Answer, ClassResult, Spec};
use crate::worker::epoch_api::EpochApi;
use crate::worker::mutex::Mutex;
use crate::worker::pass::{Guarded, Line, Pass, answer_of};
use crate::worker::times::percentiles;
use hdrhistogram::Histogram;
use lockwright_native::Native;
use lockwright_numbers::recorder;
use lockwright_platform::Platform;
use std::time::{Duration, Instant};

/// Number of classes of cores, as in the topology.
const CLASSES: usize = lockwright_native::topology::CLASSES;

/// One class's epochs.
struct EpochTimes {
    latency: Histogram<u64>,
    violations: u64,
}

impl EpochTimes {
    fn new() -> Self {
        EpochTimes { latency: recorder(), violations: 0 }
    }
}

/// The paper's Bench-1: epochs with four critical sections of different lengths under two locks.
pub(in crate::worker) fn bench_1<M: Mutex>(spec: &Spec, slo_ns: u64, count: u32) -> Answer {
    /// The lock, and the length in fifths of the mean.
    const SECTIONS: [(usize, u32); 4] = [(0, 2), (1, 4), (0, 6), (1, 8)];
    let point = &spec.point;
    let locks = [Line(M::new()), Line(M::new())];
    let guarded = [(); 2].map(|()| Guarded::new(point.lines));
    let api = EpochApi::find();
    let measured = Duration::from_secs_f64(spec.time_s);
    let settling = measured / 2;
    let pass = Pass::new(spec);
    let passed = pass.run(
        point.threads,
        settling + measured,
        |i| LengthPlan::of(spec, i),
        |_, mut plan| {
            let from = Instant::now() + settling;
            let mut node = M::Node::default();
            let node = &raw mut node;
            let mut times: [Option<Box<EpochTimes>>; CLASSES] = Default::default();
            let mut all = 0u64;
            while !pass.stopped() {
                if let Some(api) = api {
                    api.start(1);
                }
                let begun = Instant::now();
                let mut gap = 0;
                for (which, fifths) in SECTIONS {
                    let which = if count == 1 { 0 } else { which };
                    let step = plan.next();
                    gap = step.gap;
                    let section = || {
                        guarded[which].touch();
                        compute((u64::from(step.cs) * u64::from(fifths) / 5) as u32);
                    };
                    // SAFETY: locks and node outlive the loop and don't move.
                    unsafe { locks[which].0.with(node, section) };
                }
                if let Some(api) = api {
                    api.end(1, slo_ns);
                }
                let took = begun.elapsed().as_nanos() as u64;
                all += 1;
                if begun >= from {
                    let class = usize::from(Native::place().class.0).min(CLASSES - 1);
                    let times = times[class].get_or_insert_with(|| Box::new(EpochTimes::new()));
                    times.latency.saturating_record(took);
                    times.violations += u64::from(took > slo_ns);
                }
                compute(gap);
            }
            (all, times)
        },
        || (),
    );
    let mut overall = EpochTimes::new();
    let mut classes = Vec::new();
    for class in 0..CLASSES {
        let mut sum = EpochTimes::new();
        for times in passed.threads.iter().filter_map(|(_, times)| times[class].as_ref()) {
            // The bounds are equal, so adding can't fail.
            let _ = sum.latency.add(&times.latency);
            let _ = overall.latency.add(&times.latency);
            sum.violations += times.violations;
        }
        if !sum.latency.is_empty() {
            classes.push(ClassResult {
                class: class as u8,
                threads: 0,
                ops: sum.latency.len(),
                wait: None,
                latency: percentiles(&sum.latency),
                violations: sum.violations,
            });
        }
    }
    let ops = |thread: &(u64, [Option<Box<EpochTimes>>; CLASSES])| {
        thread.1.iter().flatten().map(|times| times.latency.len()).sum::<u64>()
    };
    let mut answer = answer_of(&passed, overall.latency.len());
    answer.elapsed_ns = passed.elapsed.saturating_sub(settling).as_nanos() as u64;
    // CPU time and energy cover the whole run. Take the measured share.
    let share = measured.as_secs_f64() / passed.elapsed.as_secs_f64().max(measured.as_secs_f64());
    answer.cpu_ns = (answer.cpu_ns as f64 * share) as u64;
    answer.joules = answer.joules.map(|joules| joules * share);
    answer.per_thread = passed.threads.iter().map(ops).collect();
    answer.counted = guarded.iter().map(Guarded::counted).sum();
    answer.expected = passed.threads.iter().map(|(all, _)| all * SECTIONS.len() as u64).sum();
    answer.latency = percentiles(&overall.latency);
    answer.classes = classes;
    answer
}
