//! Times of single operations.

use crate::spec::Percentiles;
use hdrhistogram::Histogram;
use lockwright_numbers::recorder;
use std::time::Duration;

/// Times of a latency pass.
pub(super) struct Times {
    pub(super) wait: Histogram<u64>,
    pub(super) hold: Histogram<u64>,
}

impl Times {
    pub(super) fn new() -> Self {
        Times { wait: recorder(), hold: recorder() }
    }

    pub(super) fn add(&mut self, wait: Duration, hold: Duration) {
        self.wait.saturating_record(wait.as_nanos() as u64);
        self.hold.saturating_record(hold.as_nanos() as u64);
    }

    /// All waits and holds together, ns, as exact as the histograms.
    pub(super) fn total_ns(&self) -> f64 {
        [&self.wait, &self.hold].map(|times| times.mean() * times.len() as f64).iter().sum()
    }

    /// The times of several threads together.
    pub(super) fn sum<'a>(threads: impl Iterator<Item = &'a Times>) -> Self {
        let mut all = Times::new();
        for one in threads {
            // The bounds are equal, so adding can't fail.
            let _ = all.wait.add(&one.wait);
            let _ = all.hold.add(&one.hold);
        }
        all
    }
}

/// `None` if nothing was recorded.
pub(super) fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    let at = |q| histogram.value_at_quantile(q) as f64;
    (!histogram.is_empty()).then(|| Percentiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64,
    })
}
