//! Epochs: the paper's Bench-1, and what an empty epoch costs.

use super::mutex::Mutex;
use super::pass::{Guarded, Line, Pass, answer_of, unsupported};
use super::times::percentiles;
use crate::compute::{Plan, compute};
use crate::spec::{Answer, ClassResult, Spec};
use crate::system;
use hdrhistogram::Histogram;
use lockwright_native::Native;
use lockwright_numbers::recorder;
use lockwright_platform::Platform;
use std::time::{Duration, Instant};

/// Empty epochs between two readings of the clock.
const BATCH: u64 = 2_000;

/// The program's side of epochs: what an annotated program finds if our library is there.
#[derive(Clone, Copy)]
struct EpochApi {
    start: unsafe extern "C" fn(libc::c_int),
    end: unsafe extern "C" fn(libc::c_int, u64),
}

impl EpochApi {
    fn find() -> Option<EpochApi> {
        // SAFETY: NUL-terminated names; the functions have these types in lockwright.h (a result, if there is
        // one, may be left alone in the C ABI).
        unsafe {
            let start = libc::dlsym(libc::RTLD_DEFAULT, c"lw_epoch_start".as_ptr());
            let end = libc::dlsym(libc::RTLD_DEFAULT, c"lw_epoch_end".as_ptr());
            (!start.is_null() && !end.is_null()).then(|| EpochApi {
                start: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(libc::c_int)>(
                    start,
                ),
                end: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(libc::c_int, u64)>(
                    end,
                ),
            })
        }
    }

    #[inline(always)]
    fn start(self, id: libc::c_int) {
        // SAFETY: no preconditions.
        unsafe { (self.start)(id) }
    }

    #[inline(always)]
    fn end(self, id: libc::c_int, slo_ns: u64) {
        // SAFETY: no preconditions.
        unsafe { (self.end)(id, slo_ns) }
    }
}

/// How many classes of cores are distinguished: as many as the topology has.
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
pub(super) fn bench_1<M: Mutex>(spec: &Spec, slo_ns: u64, count: u32) -> Answer {
    /// Which lock, and the length in fifths of the mean.
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
        |i| Plan::new(point, spec.turns_per_ns, spec.seed, i),
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
            // Equal bounds: adding cannot fail.
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
    // CPU time and energy are those of the whole run: their share.
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

/// What an empty epoch costs in time, and each thread's part of one in memory.
pub(super) fn cost() -> Answer {
    let Some(api) = EpochApi::find() else { return unsupported() };
    const SLO_NS: u64 = 1_000_000;
    let pairs = |from: libc::c_int, to: libc::c_int| {
        for id in from..to {
            api.start(id);
            api.end(id, SLO_NS);
        }
    };
    // Until the library knows its clock's rate, which it learns from readings some 10 ms apart.
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
    // Tables that all threads share, and this thread's own, are there after this.
    pairs(0, 1024);
    // 512 epochs of 24 bytes are three pages, wherever the first one lies.
    const HALF: libc::c_int = 512;
    const THREADS: u64 = 8;
    let mut grown = 0;
    std::thread::scope(|scope| {
        // All stay until the last one is done: the library may give an ended thread's memory to a new one.
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
