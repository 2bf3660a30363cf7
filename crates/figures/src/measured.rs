//! What an experiment has measured.

use crate::plot::Plot;
use std::collections::BTreeMap;

/// What an experiment has measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// By the row's name, a value for each seed.
    pub rows: BTreeMap<String, Vec<f64>>,
    /// What the paper does not have: our own locks beside theirs. Shown, not judged.
    pub also: Vec<(String, Vec<f64>)>,
    /// In the paper's form.
    pub plots: Vec<Plot>,
}

impl Measured {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A row's values; without any (its lock is missing) there is no row.
    pub fn row(&mut self, name: impl Into<String>, values: Vec<f64>) {
        if !values.is_empty() {
            self.rows.insert(name.into(), values);
        }
    }

    /// A measurement beside the paper's.
    pub fn also(&mut self, name: impl Into<String>, values: Vec<f64>) {
        if !values.is_empty() {
            self.also.push((name.into(), values));
        }
    }
}

/// Seed by seed, one measurement to another; nothing if either is missing.
pub fn ratio(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(above, below)| above / below).collect()
}

/// Seed by seed, one of several measurements: the smallest, the largest. Nothing if any of them is missing.
pub(crate) fn across(measurements: &[Vec<f64>], choose: fn(f64, f64) -> f64) -> Vec<f64> {
    let seeds = measurements.iter().map(Vec::len).min().unwrap_or(0);
    (0..seeds).filter_map(|seed| measurements.iter().map(|m| m[seed]).reduce(choose)).collect()
}
