//! Transfers of cache lines between CPUs.

use crate::alone::{adds, per_turn};
use crate::chain::Chain;
use crate::stats::Sample;
use crate::together::together;
use lockwright_bench::line_transfer_between;
use lockwright_native::futex::{self, Clock};
use lockwright_numbers::median;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// A value on a cache line of its own: two lines, because some processors fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// Lines of a chain: they fill a third of the smallest first-level cache.
const LINES: u16 = 64;
/// One sample is the median of this many transfers of a whole chain.
const PASSES: usize = 9;

/// What was measured between two probes.
#[derive(Debug)]
pub(crate) struct Probed<R> {
    before: f64,
    pub(crate) result: R,
    after: f64,
}

impl<R> Probed<R> {
    /// The sample of one figure.
    pub(crate) fn of(&self, figure: impl Fn(&R) -> f64) -> Sample {
        Sample { before: self.before, value: figure(&self.result), after: self.after }
    }
}

/// Two CPUs, and the current state of the lines between them.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The one that asks for the lines.
    pub(crate) to: usize,
    /// The one that has them.
    pub(crate) from: usize,
    last: f64,
}

impl Pair {
    pub(crate) fn new(to: usize, from: usize) -> Self {
        let mut pair = Self { to, from, last: 0.0 };
        pair.last = pair.probe();
        pair
    }

    /// One-way time of a ping-pong, ns.
    fn probe(&self) -> f64 {
        line_transfer_between(self.to, self.from, Duration::from_millis(1)).unwrap_or(f64::NAN)
    }

    /// Measures between two probes; the first may be the previous sample's last one.
    pub(crate) fn sample<R>(&mut self, measure: impl FnOnce(&Self) -> R) -> Probed<R> {
        let before = self.last;
        let result = measure(self);
        let after = self.probe();
        self.last = after;
        Probed { before, result, after }
    }

    /// One line transfer, ns: `to` writes lines that `from` wrote last, one after the other; minus the time of the
    /// write itself.
    pub(crate) fn transfer(&self) -> f64 {
        self.passes(|chain| {
            let remote = chain.walk();
            remote - chain.walk()
        })
    }

    /// From a store of one CPU until another CPU, which has been spinning on the line for a while, sees it; ns. (In the
    /// probe's ping-pong the store hits, because its CPU has just fetched the line.)
    pub(crate) fn hand_over(&self) -> f64 {
        const TIMES: u32 = 200;
        /// Cycles between seeing the other's store and making its own.
        const WORK: u32 = 256;
        let flags = [Line(AtomicU32::new(0)), Line(AtomicU32::new(0))];
        let one_way = together(&[self.to, self.from], |who| {
            let work = per_turn(TIMES, || (0..TIMES).for_each(|_| adds(WORK)));
            let both = per_turn(2 * TIMES, || {
                for turn in 1..=TIMES {
                    if who == 0 {
                        adds(WORK);
                        flags[1].0.store(turn, Release);
                    }
                    // Without a pause instruction, because its length would count.
                    while flags[who].0.load(Acquire) < turn {}
                    if who == 1 {
                        adds(WORK);
                        flags[0].0.store(turn, Release);
                    }
                }
            });
            both - work
        });
        one_way[0]
    }

    /// Changes [`LINES`] lines that `from` wrote last, as a critical section does: their transfers may overlap. The
    /// time of all of them, ns.
    pub(crate) fn block(&self) -> f64 {
        self.passes(|chain| {
            let remote = chain.time_to_add();
            remote - chain.time_to_add()
        })
    }

    /// How many times as long as a single transfer [`block`](Self::block) would take without any overlap.
    pub(crate) const BLOCK: f64 = LINES as f64;

    fn passes(&self, measure: impl Fn(&Chain) -> f64 + Sync) -> f64 {
        let chain = Chain::new(LINES);
        // Even: `from` writes the lines; odd: `to`.
        let turn = AtomicU32::new(0);
        let until = |parity: u32| {
            while turn.load(Acquire) % 2 != parity {
                spin_loop();
            }
        };
        let mut results = together(&[self.to, self.from], |who| {
            let mut values = Vec::new();
            for _ in 0..PASSES {
                if who == 0 {
                    until(1);
                    values.push(measure(&chain));
                } else {
                    until(0);
                    // Both ways write the whole line.
                    chain.walk();
                    chain.add_to_each();
                }
                turn.fetch_add(1, AcqRel);
            }
            values
        });
        median(&results.swap_remove(0)).expect("several passes")
    }
}

/// The result of several CPUs that change one line as fast as they can.
#[derive(Debug)]
pub(crate) struct Hammered {
    /// Time between two transfers of the line, ns.
    pub(crate) interval_ns: f64,
    /// Operations of a CPU from one transfer to the next.
    pub(crate) run: f64,
    /// Each CPU's operations.
    pub(crate) done: Vec<u64>,
}

/// Every one of `cpus` writes its number into one line, over and over, with `gap` turns of waiting in between, for
/// about a millisecond.
pub(crate) fn hammer(cpus: &[usize], gap: u32) -> Hammered {
    let line = Line(AtomicU32::new(u32::MAX));
    let over = AtomicBool::new(false);
    let results = together(cpus, |who| {
        let me = who as u32;
        let (mut done, mut came) = (0u64, 0u64);
        let start = Instant::now();
        while !over.load(Relaxed) {
            for _ in 0..64 {
                came += u64::from(line.0.swap(me, AcqRel) != me);
                done += 1;
                (0..gap).for_each(|_| spin_loop());
            }
            if who == 0 && start.elapsed() > Duration::from_millis(1) {
                over.store(true, Relaxed);
            }
        }
        (done, came, start.elapsed())
    });
    let transfers: u64 = results.iter().map(|(_, came, _)| came).sum();
    let operations: u64 = results.iter().map(|(done, ..)| done).sum();
    Hammered {
        interval_ns: results[0].2.as_nanos() as f64 / transfers.max(1) as f64,
        run: operations as f64 / transfers.max(1) as f64,
        done: results.iter().map(|(done, ..)| *done).collect(),
    }
}

/// How much later each additional reader sees a line that the first of `cpus` wrote and all others wait for, ns: the
/// median over a few hundred writes. Needs three CPUs.
pub(crate) fn share(cpus: &[usize]) -> f64 {
    const WRITES: u64 = 201;
    let line = Line(AtomicU64::new(0));
    let ready: Vec<Line<AtomicU64>> = cpus.iter().map(|_| Line(AtomicU64::new(0))).collect();
    let seen = together(cpus, |who| {
        let mut seen = Vec::new();
        for write in 1..=WRITES {
            if who == 0 {
                for reader in &ready[1..] {
                    while reader.0.load(Acquire) < write {
                        spin_loop();
                    }
                }
                line.0.store(write, Release);
            } else {
                ready[who].0.store(write, Release);
                while line.0.load(Acquire) < write {}
                seen.push(futex::now(Clock::Monotonic));
            }
        }
        seen
    });
    let readers = &seen[1..];
    let further = (readers.len() - 1) as f64;
    let spans: Vec<_> = (0..WRITES as usize)
        .map(|write| {
            let times = || readers.iter().map(|times| times[write]);
            let (first, last) = (times().min(), times().max());
            first.zip(last).map_or(0.0, |(first, last)| (last - first) as f64 / further)
        })
        .collect();
    median(&spans).expect("several writes")
}
