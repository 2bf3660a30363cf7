//! feedback: from an epoch's latency to the reorder window of its next execution.
//!
//! Nian Liu, Jinyu Gu, Dahai Tang, Kenli Li, Binyu Zang, Haibo Chen, *Asymmetry-aware Scalable Locking*,
//! PPoPP 2022, Algorithm 2: linear growth and exponential reduction, as in TCP's congestion control.
//!
//! ```text
//!   window    latency > SLO: halve; unit = (1 - percentile) x window      otherwise: + unit, at most 100 ms
//!   2r ----------x-------------x------   After 1 / (1 - percentile) good executions the window is back at
//!              / |           / |         the size that violated: about that share of executions violates,
//!    r  ------   |    ------   |         however latency depends on the window, as long as it does so
//!                ------        -------   monotonically. With P99, about 1 in 101 violates.
//! ```
//!
//! We differ in three points.
//! 1. *The unit never falls below a 1024th of its value for a window as large as the SLO.* With integers it
//!    would become 0 after many violations, and the window would never grow again.
//! 2. *When a window has grown to four times its reduced size, its unit is doubled.* After a lasting
//!    change of load, the number of executions until the window fits then grows with the logarithm of the
//!    distance, not with the distance. A unit never exceeds half of what a reduction from the current window
//!    would make it, so this does not make violations more frequent than the percentile allows.
//! 3. *The first window is the SLO itself.* From a much smaller one, growth would take ten thousand
//!    executions.

/// The longest reorder window, ns: it bounds every wait for others to overtake (100 ms).
pub const WINDOW_MAX_NS: u32 = 100_000_000;

/// The share of executions that must keep the SLO, in millionths: P90 to P99.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile(u32);

const MILLION: u64 = 1_000_000;

impl Percentile {
    /// The 99th percentile, the default.
    pub const P99: Self = Self(990_000);

    /// The percentile of this many millionths; `None` below P90 and above P99.9.
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths >= 900_000 && millionths <= 999_000 { Some(Self(millionths)) } else { None }
    }

    /// Parses a percentile in decimal: `99`, `99.9`; `None` if that isn't a number from 90 to 99.9.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut millionths = 0_u32;
        let mut weight = None; // before the point
        for &byte in text {
            match (byte, weight) {
                (b'0'..=b'9', None) if millionths < 100 => {
                    millionths = millionths * 10 + u32::from(byte - b'0');
                }
                (b'0'..=b'9', Some(weighs)) if weighs > 0 => {
                    millionths += u32::from(byte - b'0') * weighs;
                    weight = Some(weighs / 10);
                }
                (b'.', None) => {
                    millionths *= 10_000;
                    weight = Some(1_000);
                }
                _ => return None,
            }
        }
        Self::from_millionths(if weight.is_none() { millionths * 10_000 } else { millionths })
    }

    /// In millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The share that may violate, in millionths.
    const fn spare(self) -> u64 {
        MILLION - self.0 as u64
    }

    /// The unit by which a window that has just been reduced to `window_ns` grows, ns.
    const fn unit_ns(self, window_ns: u32) -> u32 {
        (window_ns as u64 * self.spare() / MILLION) as u32
    }
}

/// An epoch's window and its unit of growth, for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// How long others may overtake, ns; at most [`WINDOW_MAX_NS`].
    pub window_ns: u32,
    /// By how much it grows after a good execution, ns.
    pub unit_ns: u32,
}

impl Feedback {
    /// An epoch's first window, once its SLO is known.
    pub const fn first(slo_ns: u64, percentile: Percentile) -> Self {
        let window_ns = capped(slo_ns);
        Self { window_ns, unit_ns: at_least(percentile.unit_ns(window_ns), window_ns, percentile) }
    }

    /// The same with a window of at most `window_ns`, another thread's last one.
    #[must_use]
    pub const fn at_most(self, window_ns: u32, slo_ns: u64, percentile: Percentile) -> Self {
        if self.window_ns <= window_ns {
            return self;
        }
        let unit_ns = at_least(percentile.unit_ns(window_ns), capped(slo_ns), percentile);
        Self { window_ns, unit_ns }
    }

    /// The next window, after an execution that took `latency_ns`.
    #[inline]
    #[must_use]
    pub const fn after(self, latency_ns: u64, slo_ns: u64, percentile: Percentile) -> Self {
        if latency_ns > slo_ns {
            let window_ns = capped(self.window_ns as u64) / 2;
            let unit_ns = at_least(percentile.unit_ns(window_ns), capped(slo_ns), percentile);
            return Self { window_ns, unit_ns };
        }
        let window_ns = capped(self.window_ns as u64 + self.unit_ns as u64);
        // window >= 4 reduced windows, where the unit is (1 - percentile) of the reduced one.
        let is_far = window_ns as u64 * percentile.spare() >= self.unit_ns as u64 * 4 * MILLION;
        let unit_ns = if is_far { self.unit_ns * 2 } else { self.unit_ns };
        Self { window_ns, unit_ns }
    }
}

const fn capped(ns: u64) -> u32 {
    if ns < WINDOW_MAX_NS as u64 { ns as u32 } else { WINDOW_MAX_NS }
}

/// See point 1 above.
const fn at_least(unit_ns: u32, slo_ns: u32, percentile: Percentile) -> u32 {
    let least = percentile.unit_ns(slo_ns) / 1024;
    let least = if least > 1 { least } else { 1 };
    if unit_ns > least { unit_ns } else { least }
}

#[cfg(test)]
#[path = "feedback_tests.rs"]
mod tests;
