//! The kernel's scheduler, and interruptions of a core.

use crate::sleep::one_late;
use crate::together::{on, together};
use lockwright_bench::turns_per_ns;
use lockwright_native::futex::{self, Clock};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

fn now() -> u64 {
    futex::now(Clock::Monotonic)
}

fn give_way() {
    // SAFETY: no preconditions.
    unsafe { libc::sched_yield() };
}

/// A context switch on `cpu`, ns: two threads yield to each other, minus the time of a yield to nobody.
pub(crate) fn switch(cpu: usize) -> f64 {
    const CALLS: u32 = 500;
    let alone = on(cpu, || crate::alone::per_turn(CALLS, || (0..CALLS).for_each(|_| give_way())));
    let last = AtomicU32::new(u32::MAX);
    let spans = together(&[cpu, cpu], |who| {
        let me = who as u32;
        let begin = now();
        let mut came = 0u64;
        for _ in 0..CALLS {
            came += u64::from(last.swap(me, Relaxed) != me); // on one CPU, it is atomic only for the compiler's sake
            give_way();
        }
        (begin, now(), came)
    });
    let began = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let ended = spans.iter().map(|span| span.1).max().unwrap_or(0);
    let switches: u64 = spans.iter().map(|span| span.2).sum();
    ((ended - began) as f64 - 2.0 * f64::from(CALLS) * alone) / switches.max(1) as f64
}

/// How long each of two threads that never sleep runs on `cpu` before the other takes over, ns: every turn within
/// `time`.
pub(crate) fn slices(cpu: usize, time: Duration) -> Vec<f64> {
    let last = AtomicU32::new(u32::MAX);
    let over = AtomicBool::new(false);
    let starts = together(&[cpu, cpu], |who| {
        let me = who as u32;
        let begin = Instant::now();
        let mut starts = Vec::new();
        while !over.load(Relaxed) {
            if last.load(Relaxed) != me {
                // Both threads run on one CPU, so no other thread writes in between.
                last.store(me, Relaxed);
                starts.push(now());
                if begin.elapsed() > time {
                    over.store(true, Relaxed);
                }
            }
        }
        starts
    });
    let mut starts = starts.concat();
    starts.sort_unstable();
    starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

/// One thread computes on `cpu` without end; another one sleeps there for `ns`, `times` times. Returns how late it
/// wakes up.
pub(crate) fn woken_beside_a_runner(cpu: usize, ns: u64, times: u32) -> Vec<f64> {
    let over = AtomicBool::new(false);
    together(&[cpu, cpu], |who| {
        if who == 0 {
            while !over.load(Relaxed) {
                black_box(());
            }
            return Vec::new();
        }
        let late = (0..times).map(|_| one_late(ns)).collect();
        over.store(true, Relaxed);
        late
    })
    .pop()
    .unwrap_or_default()
}

/// What interrupted a loop that looks at the clock.
#[derive(Debug)]
pub(crate) struct Noise {
    /// How long the loop ran, ns.
    pub(crate) looked_ns: f64,
    /// Lengths of gaps, ns.
    pub(crate) gaps: Vec<f64>,
    /// Gaps too long for an interrupt: another thread, or the machine stood still.
    pub(crate) stalls: Vec<f64>,
}

/// A gap is longer than this, ns.
const GAP: u64 = 1_000;
/// No interrupt is longer than this, ns.
const STALL: u64 = 500_000;

/// Looks at the clock on `cpu` for this long.
pub(crate) fn noise(cpu: usize, time: Duration) -> Noise {
    on(cpu, || {
        let begin = now();
        let end = begin + time.as_nanos() as u64;
        let mut noise = Noise { looked_ns: 0.0, gaps: Vec::new(), stalls: Vec::new() };
        let mut last = begin;
        while last < end {
            let at = now();
            let gap = at - last;
            if gap > STALL {
                noise.stalls.push(gap as f64);
            } else if gap > GAP {
                noise.gaps.push(gap as f64);
            }
            last = at;
        }
        noise.looked_ns = (last - begin) as f64 - noise.stalls.iter().sum::<f64>();
        noise
    })
}

/// Speed of each of two hardware threads of one core while both compute, relative to that of one alone.
pub(crate) fn siblings(one: usize, other: usize) -> f64 {
    let speed = |cpus: &[usize]| {
        let speeds = together(cpus, |_| turns_per_ns());
        speeds.iter().sum::<f64>() / speeds.len() as f64
    };
    speed(&[one, other]) / speed(&[one])
}
