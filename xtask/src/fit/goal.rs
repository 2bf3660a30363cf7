//! The goal of a fit: the marked rows of the papers' figures, and a profile's distance from them.

use anyhow::{Context as _, Result};
use lockwright_figures::{Context, Experiment, find_fitted, median};
use lockwright_sim::profile::Profile;
use lockwright_sim::targets::{self, Figure, Row};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A row without a result counts as an error by this factor.
const WORST: f64 = 10.0;

/// The figures that a machine is fitted to.
pub(crate) struct Goal {
    figures: Vec<(Figure, &'static Experiment)>,
}

/// The effort of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of runs per point, each with its own seed.
    pub(crate) seeds: u32,
    /// The length of runs, relative to the figure's own.
    pub(crate) length: f64,
}

/// A row with its measured values.
#[derive(Clone, Debug)]
pub(crate) struct Measurement<'a> {
    /// The id of its figure.
    pub(crate) figure: &'a str,
    /// The row.
    pub(crate) row: &'a Row,
    /// One value per seed.
    values: Vec<f64>,
}

impl Measurement<'_> {
    /// The median over the seeds.
    pub(crate) fn result(&self) -> Option<f64> {
        median(&self.values)
    }
}

impl Goal {
    /// The figures with these ids.
    pub(crate) fn of(ids: &BTreeSet<String>) -> Result<Self> {
        let one = |id: &String| {
            let figure = targets::figure(id).zip(find_fitted(id));
            figure.with_context(|| format!("figure '{id}' cannot be measured"))
        };
        Ok(Self { figures: ids.iter().map(one).collect::<Result<_>>()? })
    }

    /// Does the runs that the marked rows need, using `profile`.
    pub(crate) fn measure(
        &self,
        profile: &Profile,
        effort: Effort,
    ) -> Result<Vec<Measurement<'_>>> {
        let mut context = Context::new(Arc::new(profile.clone()), effort.seeds);
        context.length = effort.length;
        let mut all = Vec::new();
        for (figure, experiment) in &self.figures {
            let mut measured = (experiment.measure)(&context)?;
            let mine = |row: &&Row| {
                row.fit && row.machine.as_ref().unwrap_or(&figure.machine) == &profile.name
            };
            for row in figure.row.iter().filter(mine) {
                let values = measured.rows.remove(&row.name).unwrap_or_default();
                all.push(Measurement { figure: &figure.figure, row, values });
            }
        }
        Ok(all)
    }
}

/// For each seed, the rows' distance from the paper: the sum of the squared logarithms of result / paper.
pub(crate) fn losses(rows: &[Measurement<'_>], seeds: u32) -> Vec<f64> {
    let of = |seed: usize, one: &Measurement<'_>| {
        let error = one.row.error(one.values.get(seed).copied().unwrap_or(f64::NAN));
        one.row.weight * error.abs().min(WORST).powi(2)
    };
    (0..seeds as usize).map(|seed| rows.iter().map(|row| of(seed, row)).sum()).collect()
}

/// The mean, and its standard error.
#[allow(clippy::cast_precision_loss, reason = "a handful of seeds")]
pub(crate) fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured<'a>(figure: &'a Figure, name: &str, values: &[f64]) -> Measurement<'a> {
        let row = figure.row.iter().find(|row| row.name == name).unwrap();
        Measurement { figure: &figure.figure, row, values: values.to_vec() }
    }

    #[test]
    fn the_loss_is_the_sum_of_squared_logarithms_and_no_result_is_the_worst() {
        let figure = targets::figure("libasl-1").unwrap();
        let rows = [
            measured(&figure, "tas-8/mcs-8", &[0.65, 1.3]), // the paper's value, and twice that
            measured(&figure, "tas-8/tas-4", &[0.4, 1.0]),  // below the bound, and on it
        ];
        let losses_of = losses(&rows, 2);
        assert!(losses_of[0].abs() < 1e-12 && (losses_of[1] - 2.0_f64.ln().powi(2)).abs() < 1e-12);
        assert_eq!(losses(&rows, 3)[2], 2.0 * WORST * WORST);
    }

    #[test]
    fn the_mean_has_its_standard_error() {
        let (middle, error) = mean(&[1.0, 2.0, 3.0]);
        assert!((middle - 2.0).abs() < 1e-12 && (error - (1.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn an_unknown_figure_is_named() {
        let why = Goal::of(&BTreeSet::from(["libasl-99".to_owned()])).err().unwrap().to_string();
        assert!(why.contains("'libasl-99'"), "{why}");
    }
}
