//! A recorded program: each of its threads computes, sleeps, takes and releases locks as recorded, and waits as the
//! simulated lock makes it wait.
//!
//! A lock that runs sections for its callers (`Sections`) gets each section with all that is in it, also the sections inside. A lock that was
//! released before one that was taken after it is then held for as long as that one.

use crate::load::{DataId, LockId, Me, ParamSpec, Setup, Workload};
use std::cell::{Cell, RefCell};

/// One step of a recorded thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Computes something that took this long, ns, on the recorded machine, which counts as the fastest class.
    Compute(u64),
    /// Sleeps, ns.
    Sleep(u64),
    /// Acquires a lock, by its number.
    Acquire(u32),
    /// Releases it.
    Release(u32),
}

/// A recorded thread. It releases what it acquires, and only that.
#[derive(Clone, Debug, Default)]
pub struct RecordedThread {
    /// What it did.
    pub steps: Vec<Step>,
    /// From the start of the recording to its first step, ns.
    pub before_ns: u64,
    /// From its last step to the end of the recording, ns.
    pub after_ns: u64,
}

/// The longest times between two checks whether the run is over, ns.
const COMPUTE_NS: u64 = 1_000_000;
const SLEEP_NS: u64 = 500_000_000;

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        key: "scale",
        meaning: "a factor: how many times as long computing takes as recorded, on cores of the fastest class",
        default: 1.0,
        min: 0.01,
        max: 100.0,
    },
    ParamSpec {
        key: "idle",
        meaning: "a factor: how many times as long threads sleep outside of sections as recorded; 0: work is always there",
        default: 1.0,
        min: 0.0,
        max: 100.0,
    },
    ParamSpec {
        key: "blocked",
        meaning: "the same factor inside of sections, where a recorded thread may have waited for one of too few CPUs",
        default: 1.0,
        min: 0.0,
        max: 100.0,
    },
    ParamSpec {
        key: "lines",
        meaning: "cache lines of its own that each section under a lock reads, modifies and writes; a trace doesn't say how many",
        default: 0.0,
        min: 0.0,
        max: 4096.0,
    },
];

/// The workload that repeats what `threads` did. A run has one thread for each of them, or several if it has more
/// threads. An operation is a critical section with everything in it, starting when the thread asks for its lock.
///
/// Workloads are distinguished by address and live as long as the program, so this one does, too.
pub fn workload(id: &str, threads: Vec<RecordedThread>) -> &'static Workload {
    let locks = threads.iter().flat_map(|thread| &thread.steps).map(|step| match step {
        Step::Acquire(lock) => lock + 1,
        _ => 0,
    });
    let count = locks.max().unwrap_or(0);
    let threads: &'static [RecordedThread] = Vec::leak(threads);
    let setup = move |setup: &mut Setup<'_>| {
        let (scale, idle) = (setup.param("scale"), setup.param("idle"));
        let (blocked, lines) = (setup.param("blocked"), setup.count("lines"));
        let is_delegated = setup.is_delegated();
        let mut locks: Vec<(LockId, DataId)> = Vec::new();
        for _ in 0..count {
            // One server for all of them, if there are servers.
            let lock = match locks.first() {
                Some(&(first, _)) => setup.lock_beside(first, false),
                None => setup.lock(),
            };
            locks.push((lock, setup.data(lines)));
        }
        for number in 0..setup.thread_count() as usize {
            let (recorded, locks) = (&threads[number % threads.len().max(1)], locks.clone());
            setup.thread(move |me| {
                let early = RefCell::default();
                let locks = &locks;
                Replay { me, recorded, locks, scale, idle, blocked, lines, is_delegated, early }
                    .all();
            });
        }
    };
    Box::leak(Box::new(Workload {
        id: String::leak(id.to_owned()),
        idea: "every thread does what it did when it was recorded, over and over",
        source: "lockwright profile --record",
        params: PARAMS,
        holds: false,
        setup: Box::leak(Box::new(setup)),
    }))
}

struct Replay<'a> {
    me: &'a Me,
    recorded: &'a RecordedThread,
    locks: &'a [(LockId, DataId)],
    scale: f64,
    idle: f64,
    blocked: f64,
    lines: u32,
    is_delegated: bool,
    /// Locks of open sections that were released before one that was taken after them.
    early: RefCell<Vec<u32>>,
}

impl Replay<'_> {
    fn all(&self) {
        while self.me.goes_on() {
            let began = self.me.now_ns();
            self.sleep(self.recorded.before_ns, self.idle);
            self.pass();
            self.sleep(self.recorded.after_ns, self.idle);
            if self.me.now_ns() == began {
                return; // the recording is empty
            }
        }
    }

    fn pass(&self) {
        let steps = &self.recorded.steps;
        let next = Cell::new(0);
        while self.me.goes_on() && next.get() < steps.len() {
            if let Step::Acquire(lock) = steps[next.get()] {
                self.me.operation(|| match self.is_delegated {
                    true => self.handed(lock, &next),
                    false => self.section(&next),
                });
            } else {
                match steps[next.get()] {
                    Step::Sleep(ns) => self.sleep(ns, self.idle),
                    step => self.step(step),
                }
                next.set(next.get() + 1);
            }
        }
    }

    /// Replays steps until the thread holds no lock.
    fn section(&self, next: &Cell<usize>) {
        let mut held = 0;
        while let Some(step) = self.recorded.steps.get(next.get()) {
            next.set(next.get() + 1);
            self.step(*step);
            match step {
                Step::Acquire(_) => held += 1,
                Step::Release(_) => held -= 1,
                Step::Compute(_) | Step::Sleep(_) => {}
            }
            if held == 0 {
                return;
            }
        }
    }

    /// Hands over the section that begins here. It may run on another core.
    fn handed(&self, lock: u32, next: &Cell<usize>) {
        next.set(next.get() + 1);
        let (id, data) = self.locks[lock as usize];
        self.me.locked(id, || {
            self.me.touch(data, 0..self.lines);
            while let Some(&step) = self.recorded.steps.get(next.get()) {
                match step {
                    Step::Acquire(inner) => self.handed(inner, next),
                    Step::Release(other) => {
                        next.set(next.get() + 1);
                        if other == lock {
                            return;
                        }
                        self.early.borrow_mut().push(other);
                    }
                    Step::Compute(_) | Step::Sleep(_) => {
                        next.set(next.get() + 1);
                        self.step(step);
                    }
                }
                let mut early = self.early.borrow_mut();
                if let Some(at) = early.iter().position(|it| *it == lock) {
                    early.swap_remove(at);
                    return;
                }
            }
        });
    }

    fn step(&self, step: Step) {
        match step {
            Step::Acquire(lock) => {
                let (id, data) = self.locks[lock as usize];
                self.me.acquire(id);
                self.me.touch(data, 0..self.lines);
            }
            Step::Release(lock) => self.me.release(self.locks[lock as usize].0),
            Step::Sleep(ns) => self.sleep(ns, self.blocked),
            Step::Compute(ns) => stretches(self.me, ns, COMPUTE_NS, |ns| {
                #[allow(clippy::cast_precision_loss, reason = "at most COMPUTE_NS")]
                self.me.compute(ns as f64 * self.scale);
            }),
        }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a time")]
    #[allow(clippy::cast_sign_loss, reason = "a factor of at least 0")]
    fn sleep(&self, ns: u64, factor: f64) {
        let ns = (ns as f64 * factor) as u64;
        let sleep = |ns| self.me.sleep(u32::try_from(ns).expect("at most SLEEP_NS"));
        stretches(self.me, ns, SLEEP_NS, sleep);
    }
}

fn stretches(me: &Me, ns: u64, longest: u64, each: impl Fn(u64)) {
    let mut left = ns;
    while left > 0 && me.goes_on() {
        let now = left.min(longest);
        each(now);
        left -= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockSpec, Outcome, Placement, Run, profile};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn run(threads: Vec<RecordedThread>, count: u32, cpus: Vec<u32>, scale: f64) -> Outcome {
        a_run(threads, count, cpus, scale).outcome()
    }

    fn a_run(threads: Vec<RecordedThread>, count: u32, cpus: Vec<u32>, scale: f64) -> Run {
        Run {
            profile: Arc::new(profile::builtin("m1").unwrap()),
            lock: LockSpec::parse("mcs").unwrap(),
            workload: workload("a trace", threads),
            params: BTreeMap::from([("scale".to_owned(), scale)]),
            threads: count,
            placement: Placement::Cpus(cpus),
            seed: 1,
            warmup_ns: 0,
            duration_ns: 2_000_000,
            samples: false,
            timeline: None,
            transfers: false,
        }
    }

    fn thread(steps: &[Step]) -> RecordedThread {
        RecordedThread { steps: steps.to_vec(), ..RecordedThread::default() }
    }

    use Step::{Acquire, Compute, Release, Sleep};

    #[test]
    fn recorded_time_passes_as_recorded_and_slower_on_little_cores() {
        let steps = [Compute(1500), Acquire(0), Compute(500), Release(0)];
        let count = |cpu, scale| run(vec![thread(&steps)], 1, vec![cpu], scale).operations as f64;
        // 2 us per pass, and about 20 ns for the lock.
        let big = count(0, 1.0);
        assert!((950.0..1000.0).contains(&big), "{big}");
        let little = profile::builtin("m1").unwrap().class[1].compute;
        assert!((big / count(4, 1.0) / little - 1.0).abs() < 0.05);
        assert!((big / count(0, 2.0) / 2.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn nested_sections_are_one_operation_and_locks_are_told_apart() {
        let nested = [
            Acquire(1),
            Compute(100),
            Acquire(0),
            Compute(100),
            Release(1),
            Compute(100),
            Release(0),
            Sleep(1000),
        ];
        let outcome = run(vec![thread(&nested), thread(&nested)], 2, vec![0, 1], 1.0);
        assert_eq!(outcome.violation, None);
        let operations = outcome.operations as f64;
        let acquisitions = outcome.acquisitions as f64;
        assert!(
            operations > 10.0 && (acquisitions / operations - 2.0).abs() < 0.2,
            "{acquisitions} {operations}"
        );
        assert!(outcome.latency.p50_ns >= 280, "{:?}", outcome.latency);
        // Two locks that nobody shares: nobody waits.
        let alone = |lock| thread(&[Acquire(lock), Compute(5000), Release(lock)]);
        let outcome = run(vec![alone(0), alone(1)], 2, vec![0, 1], 1.0);
        assert!(outcome.latency.p50_ns < 5500, "{:?}", outcome.latency);
        let outcome = run(vec![alone(0), alone(0)], 2, vec![0, 1], 1.0);
        assert!(outcome.latency.p50_ns > 9000, "{:?}", outcome.latency);
    }

    #[test]
    fn idle_time_can_go_but_for_that_in_sections() {
        let steps = [Sleep(1_000_000), Acquire(0), Sleep(100_000), Release(0), Compute(10_000)];
        let mut run = a_run(vec![thread(&steps)], 1, vec![0], 1.0);
        assert!(run.outcome().operations <= 2);
        run.params.insert("idle".to_owned(), 0.0);
        let operations = run.outcome().operations;
        assert!((10..=20).contains(&operations), "{operations}");
        run.params.insert("blocked".to_owned(), 0.0);
        let operations = run.outcome().operations;
        assert!((100..=200).contains(&operations), "{operations}");
    }

    #[test]
    fn sections_of_a_trace_can_be_handed_over() {
        // The second pair is not nested; the inner lock's section sleeps.
        let steps = [
            Acquire(0),
            Compute(100),
            Acquire(1),
            Sleep(10),
            Release(1),
            Release(0),
            Compute(50),
            Acquire(0),
            Acquire(1),
            Release(0),
            Compute(100),
            Release(1),
        ];
        for lock in ["rcl", "combiner", "flat-combining", "mcs"] {
            let mut run = a_run(vec![thread(&steps); 3], 3, vec![0, 1, 2, 3], 1.0);
            run.lock = LockSpec::parse(lock).unwrap();
            run.params.insert("lines".to_owned(), 2.0);
            if lock == "rcl" {
                run.placement = Placement::Pinned;
            }
            let outcome = run.outcome();
            assert_eq!(outcome.violation, None, "{lock}");
            let (operations, acquisitions) = (outcome.operations, outcome.acquisitions);
            assert!(operations > 50, "{lock}: {operations}");
            assert!((acquisitions as f64 / operations as f64 - 2.0).abs() < 0.2, "{lock}");
        }
    }

    #[test]
    fn locks_in_different_orders_are_said_to_be_the_traces_own_fault() {
        let nested = |a, b| {
            thread(&[Acquire(a), Compute(1000), Acquire(b), Compute(100), Release(b), Release(a)])
        };
        let threads = vec![nested(0, 1), nested(1, 2), nested(2, 0), thread(&[Compute(100)])];
        let violation = run(threads, 4, vec![0, 1, 2, 3], 1.0).violation.unwrap();
        assert_eq!(violation.check(), "order of locks");
        let text = violation.to_string();
        for part in [
            "thread 0 waits for lock 1, which thread 1 holds; thread 1 waits for lock 2, which",
            "which thread 2 holds; thread 2 waits for lock 0, which thread 0 holds; the workload",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let outcome = run(vec![nested(0, 1), nested(0, 1)], 2, vec![0, 1], 1.0);
        assert_eq!(outcome.violation, None);
    }

    #[test]
    fn a_thread_that_did_nothing_ends_and_one_that_sleeps_for_long_too() {
        let idle =
            RecordedThread { before_ns: 10_000_000_000, ..thread(&[Acquire(0), Release(0)]) };
        let outcome = run(vec![thread(&[]), idle, thread(&[Compute(0)])], 5, vec![0, 1, 2], 1.0);
        assert_eq!((outcome.violation, outcome.operations), (None, 0));
        let outcome = run(Vec::new(), 0, vec![0], 1.0);
        assert_eq!(outcome.violation, None);
    }
}
