//! Medians and ranges of repetitions.

use serde::Serialize;

/// A median, and the range of its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Smallest repetition.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// The middle repetition.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Largest repetition.
    pub max: f64,
    /// Number of repetitions.
    pub n: usize,
}

impl Spread {
    /// The spread of `values`; `None` if they are empty or contain NaN.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let sorted = sorted(values)?;
        let at = |share| quantile(&sorted, share);
        Some(Spread {
            min: at(0.0)?,
            q1: at(0.25)?,
            median: at(0.5)?,
            q3: at(0.75)?,
            max: at(1.0)?,
            n: sorted.len(),
        })
    }

    /// The interquartile range.
    pub fn iqr(&self) -> f64 {
        self.q3 - self.q1
    }
}

/// The middle value, or the mean of the two middle values; `None` if they are empty or contain NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted(values)?, 0.5)
}

/// An interval that contains the median of what the values were drawn from, with a confidence of 95 % or more, whatever
/// its distribution: the k-th smallest and the k-th largest value, where k is the largest that keeps the confidence
/// (2 of 11 values: 98.8 %). `None` with fewer than 6 values, or if one isn't a number.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values)?;
    let count = sorted.len() as i32;
    // The chance that fewer than k of them lie below the median, and the same above.
    let (mut outside, mut chance) = (0.0, 0.5_f64.powi(count));
    let mut k = 0;
    while k < count && 2.0 * (outside + chance) <= 0.05 {
        outside += chance;
        k += 1;
        chance *= f64::from(count - k + 1) / f64::from(k);
    }
    let first = usize::try_from(k.checked_sub(1)?).ok()?;
    Some((sorted[first], sorted[sorted.len() - 1 - first]))
}

/// The value below which this share (0 to 1) of the ascending values lies, interpolated linearly between its two
/// nearest neighbours; `None` if there are no values.
pub fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let at = share * ascending.len().checked_sub(1)? as f64;
    let (low, high) = (ascending[at.floor() as usize], ascending[at.ceil() as usize]);
    // The difference of two infinite neighbours is NaN.
    Some(if low == high { low } else { low + (high - low) * at.fract() })
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_around_the_median_leaves_out_what_chance_allows() {
        let values = |count: u32| (1..=count).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(median_interval(&values(5)), None, "94 % at most");
        assert_eq!(median_interval(&values(6)), Some((1.0, 6.0)), "97 %");
        assert_eq!(
            median_interval(&values(11)),
            Some((2.0, 10.0)),
            "98.8 %; the third would be 93 %"
        );
        assert_eq!(median_interval(&values(20)), Some((6.0, 15.0)), "as in tables");
        assert_eq!(median_interval(&[1.0, f64::NAN, 1.0, 1.0, 1.0, 1.0, 1.0]), None);
    }
    use proptest::prelude::*;

    #[test]
    fn median_of_an_even_number_lies_between() {
        let s = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((s.min, s.q1, s.median, s.q3, s.max), (1.0, 1.75, 2.5, 3.25, 4.0));
        assert_eq!(s.iqr(), 1.5);
        assert_eq!((median(&[9.0, 1.0]), median(&[3.0, 9.0, 1.0])), (Some(5.0), Some(3.0)));
    }

    #[test]
    fn nothing_has_no_median() {
        for values in [[].as_slice(), &[f64::NAN], &[1.0, f64::NAN]] {
            assert_eq!((Spread::of(values), median(values)), (None, None));
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn infinite_values_have_a_median() {
        assert_eq!(median(&[1.0, f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
    }

    proptest! {
        #[test]
        fn spread_is_ordered(values in prop::collection::vec(-1e9..1e9f64, 1..40)) {
            let s = Spread::of(&values).unwrap();
            prop_assert!(s.min <= s.q1 && s.q1 <= s.median && s.median <= s.q3 && s.q3 <= s.max);
            let below = values.iter().filter(|&&v| v <= s.median).count();
            prop_assert!(2 * below >= values.len());
        }
    }
}
