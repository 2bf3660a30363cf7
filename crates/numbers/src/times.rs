//! Distributions of times.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A histogram for recording times as they occur: 1 ns to 100 s, to three digits. All recorders have the same bounds,
/// so adding one to another cannot fail.
pub fn recorder() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("legal bounds")
}

/// How often each time occurred. It is as exact as its source: times from a histogram are the middles of its buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times(BTreeMap<u64, u64>);

impl FromIterator<u64> for Times {
    /// From single times, ns, in any order.
    fn from_iter<I: IntoIterator<Item = u64>>(times: I) -> Self {
        let mut sorted: Vec<_> = times.into_iter().collect();
        sorted.sort_unstable();
        sorted
            .chunk_by(|one, other| one == other)
            .map(|same| (same[0], same.len() as u64))
            .collect()
    }
}

impl FromIterator<(u64, u64)> for Times {
    /// From distinct times, ns, each with its number of occurrences.
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(counted: I) -> Self {
        Self(counted.into_iter().filter(|(_, count)| *count > 0).collect())
    }
}

impl Times {
    /// Adds a time, ns, that occurred `count` times.
    pub fn add(&mut self, ns: u64, count: u64) {
        if count > 0 {
            let known = self.0.entry(ns).or_default();
            *known = known.saturating_add(count);
        }
    }

    /// Adds the times of another distribution.
    pub fn merge(&mut self, other: &Self) {
        other.counts().for_each(|(ns, count)| self.add(ns, count));
    }

    /// The times added since `before`, an earlier state of this distribution.
    pub fn since(&self, before: &Self) -> Self {
        let had = |ns| before.0.get(&ns).copied().unwrap_or(0);
        self.counts().map(|(ns, count)| (ns, count.saturating_sub(had(ns)))).collect()
    }

    /// Each time, ns, with its number of occurrences, the shortest first.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&ns, &count)| (ns, count))
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }

    /// Their sum, ns.
    pub fn total(&self) -> u64 {
        self.counts().fold(0, |sum: u64, (ns, count)| sum.saturating_add(ns.saturating_mul(count)))
    }

    /// The longest time, ns; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(&ns, _)| ns)
    }

    /// The smallest recorded time, ns, that at least a share `q` (0 to 1) of the times do not exceed; 0 if there is
    /// none.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((q * self.count() as f64).ceil() as u64).max(1);
        let mut below = 0_u64;
        let reaches = |&(_, count): &(u64, u64)| {
            below = below.saturating_add(count);
            below >= rank
        };
        self.counts().find(reaches).map_or(0, |(ns, _)| ns)
    }

    /// The smallest recorded time, ns, such that times up to it make up at least a share `q` (0 to 1) of their sum; 0 if there is none.
    pub fn quantile_of_sum(&self, q: f64) -> u64 {
        let rank = q * self.counts().map(|(ns, count)| ns as f64 * count as f64).sum::<f64>();
        let mut below = 0.0;
        let reaches = |&(ns, count): &(u64, u64)| {
            below += ns as f64 * count as f64;
            below >= rank
        };
        self.counts().find(reaches).map_or(self.max(), |(ns, _)| ns)
    }

    /// The cumulative distribution: each time, ns, and the share of times up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        let all = self.count().max(1) as f64;
        let mut below = 0_u64;
        self.counts().map(move |(ns, count)| {
            below = below.saturating_add(count);
            (ns, below as f64 / all)
        })
    }

    /// For each of these ascending bounds, ns: how many times lie above the previous bound and do not exceed this one.
    pub fn up_to(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len()];
        for (ns, count) in self.counts() {
            if let Some(within) = counts.get_mut(bounds.partition_point(|bound| *bound < ns)) {
                *within = u64::saturating_add(*within, count);
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_add_up_and_go_apart_again() {
        let times = |all: &[u64]| all.iter().copied().collect::<Times>();
        let (early, late) = (times(&[5, 3, 5]), times(&[1000, 1_000_000]));
        let mut all = early.clone();
        all.merge(&late);
        assert_eq!(all, times(&[3, 5, 5, 1000, 1_000_000]));
        assert_eq!((all.since(&early), all.since(&late)), (late, early));
        assert_eq!((all.since(&all), all.count()), (Times::default(), 5));
        assert_eq!((all.quantile(0.2), all.quantile(0.6)), (3, 5));
        assert_eq!((all.quantile(1.0), all.max(), all.total()), (1_000_000, 1_000_000, 1_001_013));
        assert_eq!((Times::default().quantile(0.5), Times::default().max()), (0, 0));
        assert_eq!(all.up_to(&[4, 10, 1000]), [1, 2, 1]);
        // 1 s of 1.001 s.
        assert_eq!((all.quantile_of_sum(0.0005), all.quantile_of_sum(0.5)), (1000, 1_000_000));
        assert_eq!(Times::default().quantile_of_sum(0.5), 0);
        let shares: Vec<_> = all.cumulative().collect();
        assert_eq!(shares, [(3, 0.2), (5, 0.6), (1000, 0.8), (1_000_000, 1.0)]);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_times(
            mut times in prop::collection::vec(0..1000u64, 1..100),
            q in 0.0..=1.0_f64,
        ) {
            let found = times.iter().copied().collect::<Times>().quantile(q);
            times.sort_unstable();
            let rank = ((q * times.len() as f64).ceil() as usize).clamp(1, times.len());
            prop_assert_eq!(found, times[rank - 1]);
        }
    }
}
