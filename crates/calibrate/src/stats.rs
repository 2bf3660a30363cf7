//! Selects the samples that count, and computes figures from them.
//!
//! A machine may change its speed while it is being measured: a virtual machine moves between two regimes of cache-line
//! transfers, and pauses for milliseconds. So each sample lies between two probes of the same kind, one before and one
//! after. It is rejected if these differ, or if they belong to a regime other than the profile's.

use lockwright_numbers::format::{digits, time};
use lockwright_numbers::quantile;
use serde::Serialize;

/// If the probes before and after a sample differ by more than this factor, the machine changed in between.
pub(crate) const STEADY: f64 = 1.25;
/// Probes of one regime lie within this ratio of each other.
const REGIME: f64 = 1.6;
/// A regime with a smaller share of the probes doesn't count.
const RARE: f64 = 0.1;

/// One measurement between two probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) before: f64,
    pub(crate) value: f64,
    pub(crate) after: f64,
}

impl Sample {
    pub(crate) fn is_steady(&self) -> bool {
        self.before / self.after <= STEADY && self.after / self.before <= STEADY
    }
}

/// Which regime the profile describes, if the machine has several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The most frequent one.
    #[default]
    Frequent,
    /// The one with the fastest line transfers, if a tenth of the probes belong to it.
    Fast,
    /// The one with the slowest line transfers, likewise.
    Slow,
    /// All of them together.
    Any,
}

/// A range of probes that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Regime {
    /// The smallest probe.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// The share of all probes that lie there.
    pub share: f64,
}

impl Regime {
    /// The regimes of these probes, the most frequent first, without rare ones.
    pub(crate) fn all(probes: &[f64]) -> Vec<Self> {
        let mut left: Vec<f64> =
            probes.iter().copied().filter(|p| p.is_finite() && *p > 0.0).collect();
        left.sort_by(f64::total_cmp);
        let total = left.len() as f64;
        let mut found = Vec::new();
        while !left.is_empty() {
            let within =
                |first: usize| left.partition_point(|p| *p <= left[first] * REGIME) - first;
            // If several are equally frequent, take the first, which is the lowest.
            let start = (0..left.len()).rev().max_by_key(|&first| within(first)).unwrap_or(0);
            let end = start + within(start);
            let share = (end - start) as f64 / total;
            if share < RARE {
                break;
            }
            found.push(Self { low: left[start], high: left[end - 1], share });
            left.drain(start..end);
        }
        found
    }

    /// The wanted one of [`all`](Self::all); `None`: any, or there was no probe.
    pub(crate) fn choose(all: &[Self], wanted: Wanted) -> Option<Self> {
        let low = |a: &&Self, b: &&Self| a.low.total_cmp(&b.low);
        match wanted {
            Wanted::Frequent => all.first(),
            Wanted::Fast => all.iter().min_by(low),
            Wanted::Slow => all.iter().max_by(low),
            Wanted::Any => None,
        }
        .copied()
    }

    /// `24.1 ns .. 27.9 ns (60 % of the probes)`.
    pub(crate) fn words(&self) -> String {
        let share = 100.0 * self.share;
        format!("{} .. {} ({share:.0} % of the probes)", time(self.low), time(self.high))
    }

    fn has(&self, sample: &Sample) -> bool {
        let range = self.low..=self.high;
        range.contains(&sample.before) && range.contains(&sample.after)
    }
}

/// Samples that didn't count, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// The probes before and after differ.
    pub changed: usize,
    /// They agree, but belong to another regime.
    pub other_regime: usize,
}

impl Rejected {
    /// Rejected samples in all.
    pub fn all(&self) -> usize {
        self.changed + self.other_regime
    }
}

/// The result of the samples of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) p10: f64,
    pub(crate) p90: f64,
    /// Samples that counted.
    pub(crate) kept: usize,
    pub(crate) rejected: Rejected,
    /// Every sample was rejected, so the median is that of all of them.
    pub(crate) doubtful: bool,
}

impl Estimate {
    /// `None` if no sample is a number.
    pub(crate) fn of(samples: &[Sample], regime: Option<&Regime>) -> Option<Self> {
        let mut rejected = Rejected::default();
        let mut kept = Vec::new();
        let samples = || samples.iter().filter(|sample| sample.value.is_finite());
        for sample in samples() {
            if !sample.is_steady() {
                rejected.changed += 1;
            } else if regime.is_some_and(|regime| !regime.has(sample)) {
                rejected.other_regime += 1;
            } else {
                kept.push(sample.value);
            }
        }
        let count = kept.len();
        if count == 0 {
            kept.extend(samples().map(|sample| sample.value));
        }
        kept.sort_by(f64::total_cmp);
        let at = |share| quantile(&kept, share);
        Some(Self {
            median: at(0.5)?,
            p10: at(0.1)?,
            p90: at(0.9)?,
            kept: count,
            rejected,
            doubtful: count == 0,
        })
    }

    /// The estimate of another figure that depends monotonically on this one.
    pub(crate) fn map(self, figure: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (figure(self.p10), figure(self.p90));
        Self { median: figure(self.median), p10: one.min(other), p90: one.max(other), ..self }
    }

    /// `median of 17 samples, 24.1 ns .. 27.9 ns (p10 .. p90), 3 of 20 rejected (the line transfer changed)`.
    pub(crate) fn words(&self, unit: &str, probe: &str) -> String {
        let [low, high] = [self.p10, self.p90].map(|value| with_unit(value, unit));
        let total = self.kept + self.rejected.all();
        if self.doubtful {
            return format!(
                "median of {total} samples, {low} .. {high} (p10 .. p90), none of them steady ({probe} changed): doubtful"
            );
        }
        let mut text = format!("median of {} samples, {low} .. {high} (p10 .. p90)", self.kept);
        let Rejected { changed, other_regime } = self.rejected;
        let reasons =
            [(changed, format!("{probe} changed")), (other_regime, "another regime".into())];
        let reasons: Vec<_> =
            reasons.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n}: {why}")).collect();
        if !reasons.is_empty() {
            text +=
                &format!(", {} of {total} rejected ({})", self.rejected.all(), reasons.join(", "));
        }
        text
    }
}

/// To four digits.
pub(crate) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    if digits >= 0 {
        let scale = 10f64.powi(digits);
        (value * scale).round() / scale
    } else {
        let scale = 10f64.powi(-digits);
        (value / scale).round() * scale
    }
}

/// A figure for people; times in the unit that suits them.
fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time(value),
        "" => digits(value),
        unit => format!("{} {unit}", digits(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(before: f64, value: f64, after: f64) -> Sample {
        Sample { before, value, after }
    }

    #[test]
    fn a_sample_counts_if_the_machine_stayed_the_same() {
        let mut samples: Vec<_> = (1..=17).map(|n| sample(25.0, f64::from(n), 26.0)).collect();
        samples.push(sample(25.0, 900.0, 120.0));
        samples.push(sample(120.0, 900.0, 25.0));
        samples.push(sample(25.0, 900.0, 25.0 * STEADY * 1.01));
        let estimate = Estimate::of(&samples, None).unwrap();
        assert_eq!((estimate.median, estimate.kept), (9.0, 17));
        assert_eq!(estimate.rejected, Rejected { changed: 3, other_regime: 0 });
        assert_eq!(
            estimate.words("ns", "the line transfer"),
            "median of 17 samples, 2.60 ns .. 15.4 ns (p10 .. p90), 3 of 20 rejected (3: the line transfer changed)"
        );
    }

    #[test]
    fn the_most_frequent_regime_counts_unless_another_is_wanted() {
        let mut samples = vec![sample(118.0, 300.0, 122.0); 12];
        samples.extend([sample(25.0, 60.0, 25.0); 6]);
        samples.extend([sample(25.0, 100.0, 120.0); 2]);
        samples.push(sample(9000.0, 1.0, 9000.0));
        let probes: Vec<_> = samples.iter().flat_map(|s| [s.before, s.after]).collect();
        let regimes = Regime::all(&probes);
        assert_eq!(regimes.len(), 2, "{regimes:?}");
        let median = |wanted| {
            let regime = Regime::choose(&regimes, wanted);
            Estimate::of(&samples, regime.as_ref()).unwrap()
        };
        let frequent = median(Wanted::Frequent);
        assert_eq!((frequent.median, frequent.kept), (300.0, 12));
        assert_eq!(frequent.rejected, Rejected { changed: 2, other_regime: 7 });
        assert_eq!(median(Wanted::Slow).median, 300.0);
        assert_eq!((median(Wanted::Fast).median, median(Wanted::Fast).kept), (60.0, 6));
        assert_eq!(median(Wanted::Any).kept, 19);
    }

    #[test]
    fn without_a_steady_sample_the_estimate_says_so() {
        let estimate = Estimate::of(&[sample(1.0, 5.0, 2.0), sample(1.0, 7.0, 2.0)], None).unwrap();
        assert_eq!((estimate.median, estimate.kept, estimate.doubtful), (6.0, 0, true));
        assert!(estimate.words("ns", "the speed").contains("doubtful"));
        assert_eq!(Estimate::of(&[], None), None);
        assert_eq!(Estimate::of(&[sample(1.0, f64::NAN, 1.0)], None), None);
    }

    #[test]
    fn a_figure_that_falls_keeps_its_spread_in_order() {
        let samples: Vec<_> = (1..=11).map(|n| sample(1.0, f64::from(n), 1.0)).collect();
        let inverse = Estimate::of(&samples, None).unwrap().map(|value| 60.0 / value);
        assert_eq!((inverse.p10, inverse.median, inverse.p90), (6.0, 10.0, 30.0));
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, rounded) in
            [(0.0, 0.0), (4.62137, 4.621), (123_456.0, 123_500.0), (0.042_428, 0.04243)]
        {
            assert_eq!(round(value), rounded);
        }
    }

    proptest! {
        #[test]
        fn every_sample_is_kept_or_rejected(
            probes in prop::collection::vec((1.0..200.0f64, 0.7..1.4f64, 1.0..1e4f64), 1..60)
        ) {
            let samples: Vec<_> = probes.iter().map(|&(b, r, v)| sample(b, v, b * r)).collect();
            let all: Vec<_> = samples.iter().flat_map(|s| [s.before, s.after]).collect();
            let regimes = Regime::all(&all);
            prop_assert!(regimes.iter().all(|r| r.high <= r.low * REGIME * 1.0001));
            prop_assert!(regimes.windows(2).all(|r| r[0].share >= r[1].share));
            prop_assert!(regimes.iter().map(|r| r.share).sum::<f64>() < 1.0001);
            let regime = Regime::choose(&regimes, Wanted::Frequent);
            let estimate = Estimate::of(&samples, regime.as_ref()).unwrap();
            prop_assert_eq!(estimate.kept + estimate.rejected.all(), samples.len());
            prop_assert!(estimate.p10 <= estimate.median && estimate.median <= estimate.p90);
        }
    }
}
