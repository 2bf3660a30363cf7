//! One pass: threads start together, work, and stop together.

use crate::spec::{Answer, Spec};
use crate::system;
use lockwright_energy::Source;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// Puts its content on separate cache lines (pairs of them, because of adjacent-line prefetch).
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

/// What the lock protects.
pub(super) struct Guarded {
    pub(super) counter: Line<UnsafeCell<u64>>,
    pub(super) twin: Line<UnsafeCell<u64>>,
    lines: Vec<Line<UnsafeCell<u64>>>,
}

// SAFETY: accessed only under the lock; if the lock fails, the counter shows it.
unsafe impl Sync for Guarded {}

impl Guarded {
    pub(super) fn new(lines: u32) -> Self {
        let cell = || Line(UnsafeCell::new(0));
        Guarded { counter: cell(), twin: cell(), lines: (0..lines).map(|_| cell()).collect() }
    }

    /// Counts one operation and writes the lines. The caller holds the lock.
    #[inline(always)]
    pub(super) fn touch(&self) {
        for cell in std::iter::once(&self.counter).chain(&self.lines) {
            // SAFETY: the caller holds the lock. Volatile: a lock that fails must be seen to fail.
            unsafe { cell.0.get().write_volatile(cell.0.get().read_volatile() + 1) };
        }
    }

    pub(super) fn counted(&self) -> u64 {
        // SAFETY: called after the threads have ended.
        unsafe { self.counter.0.get().read() }
    }
}

/// What the threads of one pass share, apart from the lock.
pub(super) struct Pass<'a> {
    spec: &'a Spec,
    energy: Source,
    ready: Line<AtomicU32>,
    armed: Line<AtomicBool>,
    waiting: Line<AtomicU32>,
    go: Line<AtomicBool>,
    stop: Line<AtomicBool>,
    /// Are there more threads than CPUs? Then waiting for the start must let other threads run.
    crowded: bool,
}

/// The result of a pass.
pub(super) struct Passed<T> {
    pub(super) threads: Vec<T>,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) joules: Option<f64>,
    pub(super) joules_source: &'static str,
}

impl<'a> Pass<'a> {
    pub(super) fn new(spec: &'a Spec) -> Self {
        Pass {
            spec,
            energy: Source::here(spec.watts.clone()),
            ready: Line(AtomicU32::new(0)),
            armed: Line(AtomicBool::new(false)),
            waiting: Line(AtomicU32::new(0)),
            go: Line(AtomicBool::new(false)),
            stop: Line(AtomicBool::new(false)),
            crowded: spec.point.threads as usize > system::cpus().len(),
        }
    }

    #[inline(always)]
    pub(super) fn stopped(&self) -> bool {
        self.stop.0.load(Relaxed)
    }

    /// Runs `body` in `threads` threads that start together. After `time`, ends them by [`stopped`](Self::stopped) and
    /// `on_stop`. `prepare` runs in each thread while no other thread runs.
    pub(super) fn run<S, T: Send>(
        &self,
        threads: u32,
        time: Duration,
        prepare: impl Fn(u32) -> S + Sync,
        body: impl Fn(u32, S) -> T + Sync,
        on_stop: impl Fn(),
    ) -> Passed<T> {
        let cpus = match self.spec.fastest_first {
            true => system::fastest_first(self.spec.point.emulate.as_deref()),
            false => system::cpus(),
        };
        std::thread::scope(|scope| {
            let mut handles = Vec::new();
            for i in 0..threads {
                let (prepare, body, cpus) = (&prepare, &body, &cpus);
                handles.push(scope.spawn(move || {
                    if self.spec.point.pin {
                        system::pin_to(cpus[i as usize % cpus.len()]);
                    }
                    let state = prepare(i);
                    self.start_line();
                    body(i, state)
                }));
                while self.ready.0.load(Acquire) <= i {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            self.armed.0.store(true, Release);
            while self.waiting.0.load(Acquire) < threads {
                std::thread::sleep(Duration::from_micros(50));
            }
            let energy = self.energy.start();
            let cpu = system::cpu_time();
            let start = Instant::now();
            self.go.0.store(true, Release);
            std::thread::sleep(time);
            self.stop.0.store(true, Release);
            let elapsed = start.elapsed();
            let cpu = system::cpu_time().saturating_sub(cpu);
            let joules = energy.stop(cpu);
            on_stop();
            let threads = handles
                .into_iter()
                .map(|h| h.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
                .collect();
            let joules_source = self.energy.kind().word();
            Passed { threads, elapsed, cpu, joules, joules_source }
        })
    }

    /// Sleeps until all threads exist, then spins until the start.
    fn start_line(&self) {
        self.ready.0.fetch_add(1, Release);
        while !self.armed.0.load(Acquire) {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.waiting.0.fetch_add(1, Release);
        while !self.go.0.load(Acquire) {
            std::hint::spin_loop();
            if self.crowded {
                std::thread::yield_now();
            }
        }
    }
}

/// Runs the pass that counts operations.
pub(super) fn count<S, T: Send>(
    spec: &Spec,
    prepare: impl Fn(u32) -> S + Sync,
    body: impl Fn(&Pass<'_>, S) -> T + Sync,
) -> Passed<T> {
    alike(spec, spec.time_s, prepare, body)
}

/// Runs the latency pass, if the point has one. It takes half as long.
pub(super) fn time<S, T: Send>(
    spec: &Spec,
    prepare: impl Fn(u32) -> S + Sync,
    body: impl Fn(&Pass<'_>, S) -> T + Sync,
) -> Option<Passed<T>> {
    spec.point.latency.then(|| alike(spec, spec.time_s / 2.0, prepare, body))
}

/// Runs a pass whose threads all do the same and stop by themselves.
fn alike<S, T: Send>(
    spec: &Spec,
    seconds: f64,
    prepare: impl Fn(u32) -> S + Sync,
    body: impl Fn(&Pass<'_>, S) -> T + Sync,
) -> Passed<T> {
    let pass = Pass::new(spec);
    let time = Duration::from_secs_f64(seconds);
    pass.run(spec.point.threads, time, prepare, |_, state| body(&pass, state), || ())
}

/// The answer for a pass that counted `ops` operations.
pub(super) fn answer_of<T>(passed: &Passed<T>, ops: u64) -> Answer {
    Answer {
        ops,
        elapsed_ns: passed.elapsed.as_nanos() as u64,
        cpu_ns: passed.cpu.as_nanos() as u64,
        joules: passed.joules,
        joules_source: passed.joules_source.into(),
        ..Answer::default()
    }
}

/// The answer if the lock lacks this operation.
pub(super) fn unsupported() -> Answer {
    Answer { unsupported: true, ..Answer::default() }
}
