//! The worker: a process of its own for each measurement, the same program for every lock.

mod epochs;

use crate::compute::{Plan, compute};
use crate::spec::{Answer, ClassResult, Lock, Percentiles, Point, Spec, Work};
use crate::stats;
use crate::subject::{
    Monitor, Mutex, ParkingLot, ParkingLotMonitor, Pthread, PthreadMonitor, PthreadRw, Rw, Std,
    StdMonitor, WithMutex, with_catalogue_lock,
};
use crate::system;
use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use lockwright_native::Native;
use lockwright_platform::Platform;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Pairs between two readings of the clock when nobody competes.
const BATCH: u64 = 2_000;
/// Places in the queue.
const QUEUE: usize = 64;
/// Acquisitions that the order of arrival is recorded for.
const ORDER_LOG: usize = 1 << 19;
/// How long each thread is timed alone.
const ALONE: Duration = Duration::from_micros(600);

/// Measures one point, as `spec` (JSON) says; prints the answer.
pub(crate) fn main(spec: &str) -> Result<()> {
    system::die_with_parent();
    let spec: Spec = serde_json::from_str(spec).context("cannot read the worker's orders")?;
    if let Some(emulate) = &spec.point.emulate {
        system::publish_classes(emulate);
    }
    let mut answer = measure(&spec)?;
    answer.provider = system::provider_of_pthread_mutex_lock();
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

fn measure(spec: &Spec) -> Result<Answer> {
    Ok(match &spec.point.work {
        Work::Queue { producers, consumers } => match spec.lock {
            Lock::Pthread => queue::<PthreadMonitor>(spec, *producers, *consumers),
            Lock::Std => queue::<StdMonitor>(spec, *producers, *consumers),
            Lock::ParkingLot => queue::<ParkingLotMonitor>(spec, *producers, *consumers),
            Lock::Catalogue(_) => unsupported(),
        },
        Work::Barrier => match spec.lock {
            Lock::Pthread => barrier::<PthreadMonitor>(spec),
            Lock::Std => barrier::<StdMonitor>(spec),
            Lock::ParkingLot => barrier::<ParkingLotMonitor>(spec),
            Lock::Catalogue(_) => unsupported(),
        },
        Work::Rwlock { reads } => match spec.lock {
            Lock::Pthread => readers_and_writers::<PthreadRw>(spec, *reads),
            Lock::Std => readers_and_writers::<std::sync::RwLock<()>>(spec, *reads),
            Lock::ParkingLot => readers_and_writers::<parking_lot::RwLock<()>>(spec, *reads),
            Lock::Catalogue(_) => unsupported(),
        },
        _ => match &spec.lock {
            Lock::Pthread => spec.run::<Pthread>(),
            Lock::Std => spec.run::<Std>(),
            Lock::ParkingLot => spec.run::<ParkingLot>(),
            Lock::Catalogue(id) => with_catalogue_lock(id, spec)
                .ok_or_else(|| anyhow!("no lock '{id}' in the catalogue"))?,
        },
    })
}

fn unsupported() -> Answer {
    Answer { unsupported: true, ..Answer::default() }
}

impl WithMutex for Spec {
    type Output = Answer;

    fn run<M: Mutex>(&self) -> Answer {
        let mut answer = match self.point.work {
            Work::Uncontended { second_thread } => uncontended::<M>(self, second_thread),
            Work::Memory { locks, contended } => memory::<M>(locks, contended),
            Work::Order { grace_ns } => order::<M>(self, grace_ns),
            Work::Epoch { slo_ns, locks } => epochs::bench_1::<M>(self, slo_ns, locks),
            Work::EpochCost => epochs::cost(),
            Work::Timedlock { .. } if !M::TIMED => unsupported(),
            _ => competition::<M>(self),
        };
        answer.size_of = size_of::<M>() as u64;
        answer
    }
}

/// Keeps its content on cache lines (pairs of them: adjacent-line prefetch) of its own.
#[repr(align(128))]
struct Line<T>(T);

/// What the lock protects.
struct Guarded {
    counter: Line<UnsafeCell<u64>>,
    twin: Line<UnsafeCell<u64>>,
    lines: Vec<Line<UnsafeCell<u64>>>,
}

// SAFETY: touched under the lock only; if the lock fails, the counter tells.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new(lines: u32) -> Self {
        let cell = || Line(UnsafeCell::new(0));
        Guarded { counter: cell(), twin: cell(), lines: (0..lines).map(|_| cell()).collect() }
    }

    /// Counts one operation and writes the lines, the caller holding the lock.
    #[inline(always)]
    fn touch(&self) {
        for cell in std::iter::once(&self.counter).chain(&self.lines) {
            // SAFETY: the caller holds the lock. Volatile: a lock that fails must be seen to fail.
            unsafe { cell.0.get().write_volatile(cell.0.get().read_volatile() + 1) };
        }
    }

    fn counted(&self) -> u64 {
        // SAFETY: called after the threads have ended.
        unsafe { self.counter.0.get().read() }
    }
}

/// What the threads of one pass share, besides the lock.
struct Pass<'a> {
    spec: &'a Spec,
    ready: Line<AtomicU32>,
    armed: Line<AtomicBool>,
    waiting: Line<AtomicU32>,
    go: Line<AtomicBool>,
    stop: Line<AtomicBool>,
    /// More threads than CPUs: waiting for the start must let others run.
    crowded: bool,
}

/// What came of a pass.
struct Passed<T> {
    threads: Vec<T>,
    elapsed: Duration,
    cpu: Duration,
}

impl<'a> Pass<'a> {
    fn new(spec: &'a Spec) -> Self {
        Pass {
            spec,
            ready: Line(AtomicU32::new(0)),
            armed: Line(AtomicBool::new(false)),
            waiting: Line(AtomicU32::new(0)),
            go: Line(AtomicBool::new(false)),
            stop: Line(AtomicBool::new(false)),
            crowded: spec.point.threads as usize > system::cpus().len(),
        }
    }

    #[inline(always)]
    fn stopped(&self) -> bool {
        self.stop.0.load(Relaxed)
    }

    /// Runs `body` in `threads` threads that start together; ends them after `time` by [`stopped`]
    /// (Self::stopped) and `on_stop`. `prepare` runs in each thread, while no other one runs.
    fn run<S, T: Send>(
        &self,
        threads: u32,
        time: Duration,
        prepare: impl Fn(u32) -> S + Sync,
        body: impl Fn(u32, S) -> T + Sync,
        on_stop: impl Fn(),
    ) -> Passed<T> {
        let cpus = system::cpus();
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
            let cpu = system::cpu_time();
            let start = Instant::now();
            self.go.0.store(true, Release);
            std::thread::sleep(time);
            self.stop.0.store(true, Release);
            let elapsed = start.elapsed();
            let cpu = system::cpu_time().saturating_sub(cpu);
            on_stop();
            let threads = handles
                .into_iter()
                .map(|h| h.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
                .collect();
            Passed { threads, elapsed, cpu }
        })
    }

    /// Sleeps until all threads exist, then waits awake for the start.
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

/// Times of a latency pass.
struct Times {
    wait: Histogram<u64>,
    hold: Histogram<u64>,
}

impl Times {
    fn new() -> Self {
        // 1 ns to 100 s, three digits.
        let histogram = || Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("legal bounds");
        Times { wait: histogram(), hold: histogram() }
    }

    fn add(&mut self, wait: Duration, hold: Duration) {
        self.wait.saturating_record(wait.as_nanos() as u64);
        self.hold.saturating_record(hold.as_nanos() as u64);
    }
}

fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    let at = |q| histogram.value_at_quantile(q) as f64;
    (!histogram.is_empty()).then(|| Percentiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64,
    })
}

/// What one competing thread did.
struct Ran {
    ops: u64,
    failures: u64,
    times: Times,
    class: u8,
    alone_ns: f64,
}

/// Time per operation of `plan` without any lock: the best of a few stretches.
fn alone(plan: &mut Plan) -> f64 {
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

/// One thread's loop. `STAMP`: the latency pass, which takes three times an operation.
#[inline(always)]
fn compete<M: Mutex, const STAMP: bool>(
    pass: &Pass<'_>,
    lock: &M,
    guarded: &Guarded,
    mut plan: Plan,
    alone_ns: f64,
) -> Ran {
    let mut node = M::Node::default();
    let node = &raw mut node;
    let mut ran = Ran { ops: 0, failures: 0, times: Times::new(), class: 0, alone_ns };
    let work = &pass.spec.point.work;
    loop {
        let step = plan.next();
        let asked = if STAMP { Some(Instant::now()) } else { None };
        // SAFETY: lock and node outlive the loop and don't move; each acquisition is released below.
        let held = unsafe {
            match work {
                Work::Trylock => lock.try_lock(node),
                Work::Timedlock { timeout_us } => {
                    lock.lock_for(node, Duration::from_micros(u64::from(*timeout_us)))
                }
                _ => {
                    lock.lock(node);
                    true
                }
            }
        };
        if !held {
            ran.failures += 1;
            if pass.stopped() {
                break;
            }
            compute(step.gap);
            continue;
        }
        let had = if STAMP { Some(Instant::now()) } else { None };
        let stopped = pass.stopped();
        if !stopped {
            guarded.touch();
            compute(step.cs);
        }
        // SAFETY: held, with this node.
        unsafe { lock.unlock(node) };
        if let (Some(asked), Some(had)) = (asked, had) {
            ran.times.add(had - asked, had.elapsed());
        }
        if stopped {
            break;
        }
        ran.ops += 1;
        compute(step.gap);
    }
    ran.class = Native::place().class.0;
    ran
}

/// Lock, critical section, unlock, gap; also with trylock and deadlines.
fn competition<M: Mutex>(spec: &Spec) -> Answer {
    let point = &spec.point;
    let lock = Line(M::new());
    let guarded = Guarded::new(point.lines);
    let plan = |i| Plan::new(point, spec.turns_per_ns, spec.seed, i);
    let prepare = |i| {
        let mut plan = plan(i);
        let alone_ns = alone(&mut plan);
        (plan, alone_ns)
    };
    let pass = Pass::new(spec);
    let counted = pass.run(
        point.threads,
        Duration::from_secs_f64(spec.time_s),
        prepare,
        |_, (plan, alone_ns)| compete::<M, false>(&pass, &lock.0, &guarded, plan, alone_ns),
        || (),
    );
    let timed = point.latency.then(|| {
        let pass = Pass::new(spec);
        pass.run(
            point.threads,
            Duration::from_secs_f64(spec.time_s / 2.0),
            plan,
            |_, plan| compete::<M, true>(&pass, &lock.0, &guarded, plan, 0.0),
            || (),
        )
    });
    let sum = |passed: &Passed<Ran>| passed.threads.iter().map(|t| t.ops).sum::<u64>();
    let mut answer = answer_of(&counted, sum(&counted));
    answer.failures = counted.threads.iter().map(|t| t.failures).sum();
    answer.per_thread = counted.threads.iter().map(|t| t.ops).collect();
    answer.alone_ns = counted.threads.iter().map(|t| t.alone_ns).collect();
    answer.counted = guarded.counted();
    answer.expected = sum(&counted) + timed.as_ref().map_or(0, sum);

    let mut classes = BTreeMap::new();
    for ran in &counted.threads {
        let class = classes.entry(ran.class).or_insert_with(|| (0, 0, Times::new()));
        class.0 += 1;
        class.1 += ran.ops;
    }
    let mut all = Times::new();
    for ran in timed.iter().flat_map(|t| &t.threads) {
        // The histograms have equal bounds, so that adding cannot fail.
        let _ = all.wait.add(&ran.times.wait);
        let _ = all.hold.add(&ran.times.hold);
        let class = classes.entry(ran.class).or_insert_with(|| (0, 0, Times::new()));
        let _ = class.2.wait.add(&ran.times.wait);
    }
    answer.wait = percentiles(&all.wait);
    answer.hold = percentiles(&all.hold);
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

fn answer_of<T>(passed: &Passed<T>, ops: u64) -> Answer {
    Answer {
        ops,
        elapsed_ns: passed.elapsed.as_nanos() as u64,
        cpu_ns: passed.cpu.as_nanos() as u64,
        ..Answer::default()
    }
}

/// Nobody competes. The rate is that of the median batch: a stall of the machine spoils one batch only.
fn uncontended<M: Mutex>(spec: &Spec, second_thread: bool) -> Answer {
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
        let cpu = system::cpu_time();
        let start = Instant::now();
        let mut last = start;
        while last - start < time && batches.len() < batches.capacity() {
            for _ in 1..BATCH {
                // SAFETY: lock and node stay in place; released at once.
                unsafe {
                    lock.0.lock(node);
                    lock.0.unlock(node);
                }
            }
            // SAFETY: as above.
            unsafe {
                lock.0.lock(node);
                guarded.touch();
                lock.0.unlock(node);
            }
            let now = Instant::now();
            batches.push((now - last).as_nanos() as u64);
            last = now;
        }
        let cpu = system::cpu_time().saturating_sub(cpu);
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
            counted: guarded.counted(),
            expected: count,
            ..Answer::default()
        }
    })
}

/// A bounded queue under one mutex with two condition variables, as in every textbook.
fn queue<C: Monitor>(spec: &Spec, producers: u32, consumers: u32) -> Answer {
    struct Ring {
        slots: [u64; QUEUE],
        put: u64,
        taken: u64,
        sum: u64,
    }
    struct Shared(UnsafeCell<Ring>);
    // SAFETY: touched under the monitor only; if that fails, the sums tell.
    unsafe impl Sync for Shared {}
    const NOT_FULL: usize = 0;
    const NOT_EMPTY: usize = 1;

    let monitor = Line(C::new());
    let shared =
        Line(Shared(UnsafeCell::new(Ring { slots: [0; QUEUE], put: 0, taken: 0, sum: 0 })));
    let ring = || {
        let shared = &shared.0;
        shared.0.get()
    };
    let pass = Pass::new(spec);
    let passed = pass.run(
        producers + consumers,
        Duration::from_secs_f64(spec.time_s),
        |i| Plan::new(&spec.point, spec.turns_per_ns, spec.seed, i),
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
            // Under the lock, so that nobody looks at `stop` before and falls asleep after.
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

/// All threads meet, again and again: the last one wakes the others.
fn barrier<C: Monitor>(spec: &Spec) -> Answer {
    #[derive(Default)]
    struct State {
        arrived: u32,
        round: u64,
        over: bool,
    }
    struct Shared(UnsafeCell<State>);
    // SAFETY: touched under the monitor only; if that fails, the rounds don't add up.
    unsafe impl Sync for Shared {}

    let threads = spec.point.threads;
    let monitor = Line(C::new());
    let shared = Line(Shared(UnsafeCell::new(State::default())));
    let state = || {
        let shared = &shared.0;
        shared.0.get()
    };
    let pass = Pass::new(spec);
    let passed = pass.run(
        threads,
        Duration::from_secs_f64(spec.time_s),
        |i| Plan::new(&spec.point, spec.turns_per_ns, spec.seed, i),
        |_, mut plan| {
            let mut rounds = 0u64;
            loop {
                compute(plan.next().gap);
                let mut held = monitor.0.lock();
                // SAFETY: the monitor is held whenever the state is touched.
                let over = unsafe {
                    let round = (*state()).round;
                    (*state()).arrived += 1;
                    if (*state()).arrived == threads {
                        (*state()).arrived = 0;
                        (*state()).round += 1;
                        // The last one decides for all: otherwise some would wait for those who left.
                        (*state()).over = pass.stopped();
                        monitor.0.notify_all(0);
                    } else {
                        while (*state()).round == round {
                            held = monitor.0.wait(held, 0);
                        }
                    }
                    (*state()).over
                };
                drop(held);
                rounds += 1;
                if over {
                    break rounds;
                }
            }
        },
        || (),
    );
    // SAFETY: the threads have ended.
    let rounds = unsafe { (*state()).round };
    let mut answer = answer_of(&passed, rounds);
    answer.counted = passed.threads.iter().sum();
    answer.expected = rounds * u64::from(threads);
    answer
}

/// As [`competition`], but `reads` per cent of the operations only read.
fn readers_and_writers<L: Rw>(spec: &Spec, reads: u32) -> Answer {
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

/// How much memory `locks` locks take beside themselves.
fn memory<M: Mutex>(locks: u32, contended: bool) -> Answer {
    /// The first locks only warm up: stacks, tables and thread data are not a lock's own.
    const WARM_UP: usize = 256;
    let count = locks as usize + WARM_UP;
    let mut array: Vec<M> = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: within the capacity. Volatile: zeros written plainly may become a zeroed allocation,
        // whose pages are mapped by the first touch only, and then count as the locks'.
        unsafe { array.as_mut_ptr().add(i).write_volatile(M::new()) };
    }
    // SAFETY: the loop wrote them all.
    unsafe { array.set_len(count) };
    let (offered, asking, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let guarded = Guarded::new(0);
    let mut before = 0;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut node = M::Node::default();
            for (i, lock) in (1u64..).zip(&array) {
                while offered.load(Acquire) < i {
                    std::thread::yield_now();
                }
                asking.store(i, Release);
                if contended {
                    // SAFETY: lock and node stay in place; released at once.
                    unsafe {
                        lock.lock(&mut node);
                        guarded.touch();
                        lock.unlock(&mut node);
                    }
                }
                done.store(i, Release);
            }
        });
        let mut node = M::Node::default();
        let node = &raw mut node;
        for (i, lock) in (1u64..).zip(&array) {
            if i as usize == WARM_UP {
                before = system::resident_bytes();
            }
            // SAFETY: lock and node stay in place; released below.
            unsafe { lock.lock(node) };
            guarded.touch();
            offered.store(i, Release);
            while asking.load(Acquire) < i {
                std::thread::yield_now();
            }
            if contended {
                // Long enough for the other one to have come to the lock.
                let asked = Instant::now();
                while asked.elapsed() < Duration::from_micros(5) {
                    std::hint::spin_loop();
                }
            }
            // SAFETY: held, with this node.
            unsafe { lock.unlock(node) };
            while done.load(Acquire) < i {
                std::thread::yield_now();
            }
        }
        let _ = other.join();
    });
    let grown = system::resident_bytes().saturating_sub(before);
    Answer {
        ops: count as u64,
        elapsed_ns: start.elapsed().as_nanos() as u64,
        counted: guarded.counted(),
        expected: count as u64 * (1 + u64::from(contended)),
        bytes_per_lock: Some(grown as f64 / f64::from(locks)),
        ..Answer::default()
    }
}

/// Who overtakes whom: each acquisition draws a ticket just before it asks.
fn order<M: Mutex>(spec: &Spec, grace_ns: u64) -> Answer {
    struct Log(UnsafeCell<Vec<(u64, u64)>>);
    // SAFETY: written under the lock only; if that fails, the tickets don't add up.
    unsafe impl Sync for Log {}

    let point = &spec.point;
    let lock = Line(M::new());
    let tickets = Line(AtomicU64::new(0));
    // Filled once, so that no page is mapped while we measure.
    let mut entries = vec![(u64::MAX, u64::MAX); ORDER_LOG];
    entries.clear();
    let log = Line(Log(UnsafeCell::new(entries)));
    let room = ORDER_LOG - point.threads as usize;
    let epoch = Instant::now();
    let pass = Pass::new(spec);
    let passed = pass.run(
        point.threads,
        Duration::from_secs_f64(spec.time_s),
        |i| Plan::new(point, spec.turns_per_ns, spec.seed, i),
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
                // SAFETY: lock and node stay in place; the log is touched under the lock, and has room.
                unsafe {
                    lock.0.lock(node);
                    (*log.0.get()).push((ticket, arrived));
                    full = (*log.0.get()).len() >= room;
                    compute(step.cs);
                    lock.0.unlock(node);
                }
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
            // Lost, torn or doubled: the lock let two in.
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

/// The measured point's threads, as the parent plans its time limit by it.
pub(crate) fn threads_of(point: &Point) -> u32 {
    match point.work {
        Work::Queue { producers, consumers } => producers + consumers,
        Work::Uncontended { .. } | Work::EpochCost => 1,
        Work::Memory { .. } => 2,
        _ => point.threads,
    }
}
