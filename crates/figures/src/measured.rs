//! What an experiment has measured.

use crate::plot::Plot;
use std::collections::BTreeMap;

/// What an experiment has measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// A value for each seed, by the row's name.
    pub rows: BTreeMap<String, Vec<f64>>,
    /// What the paper doesn't have: our own locks beside its own. Shown, but not judged.
    pub also: Vec<(String, Vec<f64>)>,
    /// Plots in the paper's form.
    pub plots: Vec<Plot>,
}

impl Measured {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row's values; if there are none (its lock is missing), there is no row.
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

/// Seed by seed, one measurement divided by another; empty if either is missing.
pub fn ratio(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(above, below)| above / below).collect()
}

/// Seed by seed, one of several measurements, such as the smallest or the largest. Empty if any of them is
/// missing.
pub(crate) fn across(measurements: &[Vec<f64>], choose: fn(f64, f64) -> f64) -> Vec<f64> {
    let seeds = measurements.iter().map(Vec::len).min().unwrap_or(0);
    (0..seeds).filter_map(|seed| measurements.iter().map(|m| m[seed]).reduce(choose)).collect()
}
