//! Computation that takes a given time without accessing memory: the critical section and the gap.

use crate::point::Length;
use crate::spec::Spec;
use std::hint::black_box;
use std::time::Instant;

/// Size of a thread's table of lengths.
const TABLE: usize = 4096;

/// A chain of dependent multiplications: its time is proportional to `turns`, regardless of caches.
#[inline(never)]
pub(crate) fn compute(turns: u32) {
    let mut x = u64::from(turns) | 1;
    for _ in 0..turns {
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (x >> 29);
    }
    black_box(x);
}

/// Turns per nanosecond, from the fastest of many short stretches, because a stall can only lengthen one.
pub fn calibrate() -> f64 {
    const TURNS: u32 = 20_000;
    let mut best = u128::MAX;
    for _ in 0..400 {
        let start = Instant::now();
        compute(black_box(TURNS));
        best = best.min(start.elapsed().as_nanos().max(1));
    }
    f64::from(TURNS) / best as f64
}

/// SplitMix64: small, seeded, good enough for lengths.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// The computation of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Turns in the critical section.
    pub(crate) cs: u32,
    /// Turns in the gap.
    pub(crate) gap: u32,
    /// 0 to 999: decides between read and write.
    pub(crate) permille: u16,
}

/// A thread's lengths. They are computed before the start, and used cyclically.
#[derive(Debug)]
pub(crate) struct LengthPlan {
    steps: Vec<Step>,
    at: usize,
}

impl LengthPlan {
    /// The lengths of thread `thread`. They are the same for every lock with this seed.
    pub(crate) fn of(spec: &Spec, thread: u32) -> LengthPlan {
        let (point, turns_per_ns) = (&spec.point, spec.turns_per_ns);
        let mut random = Random(spec.seed ^ (u64::from(thread) << 32));
        random.next();
        let cs = lengths(point.cs_ns, point.length, turns_per_ns, &mut random);
        let gap = lengths(point.gap_ns, point.length, turns_per_ns, &mut random);
        let steps = cs
            .into_iter()
            .zip(gap)
            .map(|(cs, gap)| Step { cs, gap, permille: (random.next() % 1000) as u16 })
            .collect();
        LengthPlan { steps, at: 0 }
    }

    /// The next operation.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Step {
        self.at = (self.at + 1) % TABLE;
        self.steps[self.at]
    }
}

/// A table of turns with exactly (to within one turn) the wanted mean.
fn lengths(mean_ns: u32, length: Length, turns_per_ns: f64, random: &mut Random) -> Vec<u32> {
    let mean = f64::from(mean_ns) * turns_per_ns;
    match length {
        Length::Fixed => vec![mean.round() as u32; TABLE],
        Length::Exponential => {
            let draws: Vec<f64> = (0..TABLE).map(|_| -random.unit().ln()).collect();
            let scale = mean * TABLE as f64 / draws.iter().sum::<f64>();
            // Random rounding preserves the mean of short lengths.
            draws.iter().map(|d| (d * scale + random.unit()).floor() as u32).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exponential_lengths_keep_their_mean(mean_ns in 10u32..10_000, seed: u64) {
            let table = lengths(mean_ns, Length::Exponential, 0.5, &mut Random(seed));
            let mean = table.iter().map(|&t| f64::from(t)).sum::<f64>() / TABLE as f64;
            let wanted = f64::from(mean_ns) * 0.5;
            prop_assert!((mean - wanted).abs() < 0.02 * wanted + 0.05, "{} for {}", mean, wanted);
            let above = table.iter().filter(|&&t| f64::from(t) > wanted).count() as f64 / TABLE as f64;
            // Share of values above the mean: e^-1 = 0.37 for an exponential distribution, half for a symmetric one.
            prop_assert!((0.25..0.45).contains(&above), "{above}");
        }
    }

    #[test]
    fn more_turns_take_more_time() {
        let time = |turns| {
            (0..20)
                .map(|_| {
                    let start = Instant::now();
                    compute(black_box(turns));
                    start.elapsed()
                })
                .min()
        };
        assert!(time(100_000) > time(10_000));
    }
}
