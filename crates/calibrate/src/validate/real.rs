//! A load on the real machine: the same steps as in the simulator's workload `bench`.
//!
//! Computation begins when everything before it has been executed, and nothing after it begins before it ends.
//! Otherwise an out-of-order core would fetch the next lock while it computes, which the simulator doesn't model.

use super::grid::Load;
use crate::alone::{cycle, per_turn};
use crate::line::Line;
use crate::together::together;
use lockwright_locks::amp::feedback::WINDOW_MAX_NS;
use lockwright_locks::catalog::{Visitor, visit_all};
use lockwright_locks::entry::Entry;
use lockwright_native::Native;
use lockwright_platform::TryLock;
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The number of durations that each thread draws beforehand and uses in rotation.
const TABLE: usize = 1024;
/// Number of operations between two readings of the clock.
const BATCH: usize = 16;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Time per operation over all threads, ns.
    pub(super) ns: f64,
    /// Did the kernel preempt one of the threads?
    pub(super) preempted: bool,
}

/// What threads do, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) load: &'a Load,
    /// A thread runs on each of these.
    pub(super) cpus: &'a [usize],
    pub(super) time: Duration,
    pub(super) speed: Speed,
    pub(super) seed: u64,
}

impl Job<'_> {
    /// Runs it with the catalogue's lock `id`; `None`: there is no such lock.
    pub(super) fn run(&self, id: &str) -> Option<Pass> {
        struct FindLock<'a, 'b> {
            id: &'a str,
            job: &'a Job<'b>,
            pass: Option<Pass>,
        }
        impl Visitor<Native> for FindLock<'_, '_> {
            fn visit<L: TryLock<Native> + 'static>(&mut self, entry: &'static Entry) {
                if entry.id == self.id {
                    self.pass = Some(self.job.with(&L::new()));
                }
            }
        }
        let mut find = FindLock { id, job: self, pass: None };
        visit_all(&mut find);
        find.pass
    }

    fn with<L: TryLock<Native>>(&self, lock: &L) -> Pass {
        let lines: Vec<_> = (0..self.load.lines).map(|_| Line(UnsafeCell::new(0))).collect();
        let over = Line(AtomicBool::new(false));
        let (guarded, over) = (&Guarded(lines), &over.0);
        let (lock, load) = (&Line(lock), self.load);
        let results = together(self.cpus, |who| {
            let steps = self.steps(who);
            let mut node = L::Node::default();
            let node = &raw mut node;
            let switches = preemptions();
            let (mut done, mut x) = (0u64, who as u64);
            let mut batches = steps.chunks_exact(BATCH).cycle();
            // Look these up beforehand: after an atomic operation, everything that follows would wait for it.
            let (computes, pauses) = (load.cs_ns > 0.0, load.gap_ns > 0.0);
            let start = Instant::now();
            while !over.load(Relaxed) {
                for step in batches.next().expect("round and round") {
                    let section = || {
                        guarded.touch();
                        if computes { mix(x, step.0) } else { x }
                    };
                    // SAFETY: lock and node outlive the loop and stay where they are.
                    x = unsafe { lock.0.with_window(node, WINDOW_MAX_NS, section) };
                    if pauses {
                        x = mix(x, step.1);
                    }
                }
                done += BATCH as u64;
                if who == 0 && start.elapsed() > self.time {
                    over.store(true, Relaxed);
                }
            }
            black_box(x);
            (done, start.elapsed(), preemptions() > switches)
        });
        let done: u64 = results.iter().map(|(done, ..)| done).sum();
        let ns = results[0].1.as_nanos() as f64 / done as f64;
        Pass { ns, preempted: results.iter().any(|result| result.2) }
    }

    /// Turns of computation in each critical section and after it.
    fn steps(&self, thread: usize) -> Vec<(u32, u32)> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (thread as u64) << 32);
        let mut turns = |mean_ns: f64| {
            let ns = match self.load.exponential {
                true => -mean_ns * (1.0 - random.f64()).ln(),
                false => mean_ns,
            };
            self.speed.turns(ns)
        };
        (0..TABLE).map(|_| (turns(self.load.cs_ns), turns(self.load.gap_ns))).collect()
    }
}

/// Computes with `x` for the given number of turns; each turn needs the one before.
#[inline(never)]
fn mix(mut x: u64, turns: u32) -> u64 {
    in_order();
    for _ in 0..turns {
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (x >> 29);
    }
    in_order();
    x
}

/// A barrier: nothing after it begins until everything before it has been executed.
#[inline(always)]
fn in_order() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: changes no register and no memory.
    unsafe {
        core::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

/// How long [`mix`] takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    turn_ns: f64,
    /// A call without any turn, and the mispredicted branch at the end of the loop.
    call_ns: f64,
}

impl Speed {
    /// Measures it on the calling thread's core, if that runs at `ghz`.
    pub(super) fn at(ghz: f64) -> Self {
        const TURNS: u32 = 4096;
        // Disturbances only make it longer.
        let least =
            |measure: &dyn Fn() -> f64| (0..400).map(|_| measure()).fold(f64::INFINITY, f64::min);
        let cycle = least(&cycle);
        let turn = least(&|| per_turn(TURNS, || _ = black_box(mix(black_box(1), TURNS))));
        let mut random = fastrand::Rng::with_seed(1);
        let lengths: Vec<_> = (0..TABLE).map(|_| random.u32(16..240)).collect();
        let mean = f64::from(lengths.iter().sum::<u32>()) / TABLE as f64;
        let call = least(&|| {
            per_turn(TABLE as u32, || {
                lengths.iter().fold(1, |x, &turns| black_box(mix(x, turns)));
            })
        });
        let ns = |measured: f64| measured / cycle / ghz;
        Self { turn_ns: ns(turn), call_ns: ns((call - mean * turn).max(0.0)) }
    }

    /// The number of turns that take `ns`, including the call.
    fn turns(self, ns: f64) -> u32 {
        ((ns - self.call_ns).max(0.0) / self.turn_ns).round() as u32
    }
}

/// What the lock protects.
struct Guarded(Vec<Line<UnsafeCell<u64>>>);

// SAFETY: it is only touched under the lock.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Reads, modifies and writes every line. The caller holds the lock.
    #[inline(always)]
    fn touch(&self) {
        for cell in &self.0 {
            // SAFETY: the caller holds the lock. Volatile, so that every section really does it.
            unsafe { cell.0.get().write_volatile(cell.0.get().read_volatile() + 1) };
        }
    }
}

/// How often the kernel has preempted the calling thread so far.
fn preemptions() -> i64 {
    // SAFETY: rusage is plain numbers, filled by the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nivcsw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_contain_the_call() {
        let speed = Speed { turn_ns: 2.0, call_ns: 10.0 };
        assert_eq!((speed.turns(110.0), speed.turns(10.0), speed.turns(3.0)), (50, 0, 0));
    }

    #[test]
    fn drawn_lengths_keep_their_mean() {
        let load = Load { lines: 0, cs_ns: 500.0, gap_ns: 2000.0, exponential: true };
        let speed = Speed { turn_ns: 2.0, call_ns: 0.0 };
        let job = Job { load: &load, cpus: &[], time: Duration::ZERO, speed, seed: 7 };
        let mean = |turns: fn(&(u32, u32)) -> u32| {
            let steps = job.steps(1);
            steps.iter().map(|step| f64::from(turns(step))).sum::<f64>() / steps.len() as f64
        };
        assert!((mean(|step| step.0) / 250.0 - 1.0).abs() < 0.1);
        assert!((mean(|step| step.1) / 1000.0 - 1.0).abs() < 0.1);
    }
}
