//! Futexes: falling asleep, waking, and the cost of a wake.

use crate::together::together;
use lockwright_native::futex::{self, Clock, Deadline, Sleeper};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

fn now() -> u64 {
    futex::now(Clock::Monotonic)
}

/// The median; NaN if there are no values.
fn median(values: Vec<f64>) -> f64 {
    lockwright_numbers::median(&values).unwrap_or(f64::NAN)
}

/// A sleeper woken from another CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Woken {
    /// How long the wake call took, ns.
    pub(crate) call_ns: f64,
    /// From that call until the sleeper ran, ns.
    pub(crate) turnaround_ns: f64,
}

/// The thread on `sleeper` sleeps for about `ns`; then the thread on `waker` wakes it. Returns medians over the given
/// number of repetitions. In the meantime, the sleeper's CPU is idle.
pub(crate) fn wake(waker: usize, sleeper: usize, ns: u64, times: u32) -> Woken {
    let word = AtomicU32::new(0);
    let (asleep, ran) = (AtomicU32::new(0), AtomicU64::new(0));
    let (calls, turnarounds) = together(&[waker, sleeper], |who| {
        let (mut calls, mut turnarounds) = (Vec::new(), Vec::new());
        for turn in 0..times {
            if who == 1 {
                asleep.store(turn + 1, Release);
                while word.load(Acquire) == turn {
                    futex::wait(word.as_ptr(), turn, None, Sleeper::Own);
                }
                ran.store(now(), Release);
                continue;
            }
            while asleep.load(Acquire) <= turn {
                spin_loop();
            }
            let begin = now();
            while now() < begin + ns {
                spin_loop();
            }
            let call = now();
            word.store(turn + 1, Release);
            let slept = futex::wake(word.as_ptr(), 1) == 1;
            let end = now();
            while asleep.load(Acquire) == turn + 1 && ran.load(Acquire) < call {
                spin_loop();
            }
            if slept {
                calls.push((end - call) as f64);
                turnarounds.push(ran.load(Acquire).saturating_sub(call) as f64);
            }
        }
        (calls, turnarounds)
    })
    .swap_remove(0);
    Woken { call_ns: median(calls), turnaround_ns: median(turnarounds) }
}

/// From a futex wait call until another thread runs on its CPU, ns: two threads on `cpu` hand a turn back and forth.
pub(crate) fn hand_over(cpu: usize, times: u32) -> f64 {
    let turn = AtomicU32::new(0);
    let left = AtomicU64::new(0);
    let took = together(&[cpu, cpu], |who| {
        calm();
        let mut took = Vec::new();
        let me = who as u32;
        for _ in 0..times {
            // Whose turn it is: the lowest bit.
            let mut seen = turn.load(Acquire);
            while seen % 2 != me {
                left.store(now(), Release);
                futex::wait(turn.as_ptr(), seen, None, Sleeper::Own);
                seen = turn.load(Acquire);
            }
            // The other thread left the CPU with that call, if that was the last thing it did.
            took.push(now().saturating_sub(left.load(Acquire)) as f64);
            turn.store(seen + 1, Release);
            futex::wake(turn.as_ptr(), 1);
        }
        took
    });
    median(took.concat())
}

/// After this call, the thread doesn't preempt another one when it is woken.
fn calm() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: concerns only the calling thread, and reads `parameters`. If it is refused, nothing changes.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters) };
}

/// How much too long a sleep of `ns` on `cpu` is, ns: the median over the given number of sleeps.
pub(crate) fn late(cpu: usize, ns: u64, times: u32) -> f64 {
    crate::together::on(cpu, || median((0..times).map(|_| one_late(ns)).collect()))
}

/// Sleeps for `ns`; returns how much too long that was, ns.
pub(crate) fn one_late(ns: u64) -> f64 {
    let word = AtomicU32::new(0);
    let until = now() + ns;
    futex::wait(word.as_ptr(), 0, Some(Deadline::after(ns)), Sleeper::Own);
    now().saturating_sub(until) as f64
}

/// Each of `cpus` repeatedly looks for sleepers of another kind in a bucket that contains a sleeper. Returns the time
/// between two such calls, over all CPUs, ns; NaN if the sleeper didn't sleep.
pub(crate) fn bucket(cpus: &[usize]) -> f64 {
    let word = AtomicU32::new(0);
    let word = &word;
    std::thread::scope(|scope| {
        // Not bound to a CPU, because it sleeps.
        let sleeper = scope.spawn(|| {
            while word.load(Acquire) == 0 {
                futex::wait(word.as_ptr(), 0, None, Sleeper::Own);
            }
        });
        std::thread::sleep(Duration::from_micros(300));
        let over = AtomicBool::new(false);
        let results = together(cpus, |who| {
            let start = Instant::now();
            let mut calls = 0u32;
            while !over.load(Relaxed) {
                for _ in 0..16 {
                    futex::wake_movable(word.as_ptr(), 1);
                }
                calls += 16;
                if who == 0 && start.elapsed() > Duration::from_millis(1) {
                    over.store(true, Relaxed);
                }
            }
            (calls, start.elapsed())
        });
        word.store(1, Release);
        let slept = futex::wake(word.as_ptr(), 1) == 1;
        sleeper.join().expect("panics abort");
        if !slept {
            return f64::NAN; // the calls found an empty bucket, and didn't lock it
        }
        let calls: u32 = results.iter().map(|(calls, _)| calls).sum();
        results[0].1.as_nanos() as f64 / f64::from(calls)
    })
}
