//! The papers' figures: each is run on the virtual machine and compared with what the paper says.
//!
//! ```text
//!   targets/<id>.toml ───────────────────────────────► evaluate ─► Report: target, result, accepted or not
//!   Experiment::measure(Context) ─► Plan ─► Measured ─────┘ └────► plots in the paper's form
//! ```
//!
//! What to compare is data ([`lockwright_sim::targets`]); how to measure it is an [`Experiment`]. Results are *simulated*.

mod by_policy;
pub mod c3;
pub mod cal;
mod evaluate;
mod experiment;
pub mod libasl;
mod measured;
pub mod mutexee;
mod plan;
pub mod plot;
pub mod policies;
pub mod rcl;
mod wrong;

pub use evaluate::{Count, FigureReport, ReportRow, Tally, evaluate, median};
pub use experiment::{Experiment, chosen};
pub use measured::{Measured, ratio};
pub use plan::{Context, Error, Here, Key, Load, Memo, Plan, Progress, Results, Runs};
pub use wrong::Wrong;

use lockwright_sim::targets::{Figure, Row};

/// Every figure that can be measured, in the papers' order.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    libasl::EXPERIMENTS
        .iter()
        .chain(cal::EXPERIMENTS)
        .chain(mutexee::EXPERIMENTS)
        .chain(rcl::EXPERIMENTS)
        .chain(c3::EXPERIMENTS)
}

/// The experiment of that id.
pub fn find(id: &str) -> Option<&'static Experiment> {
    experiments().find(|experiment| experiment.id == id)
}

/// The smallest experiment that measures the figure's fitted rows (`Row::fit`) as the figure itself does. It should be
/// small because a fit runs it a thousand times.
pub fn find_fitted(id: &str) -> Option<&'static Experiment> {
    libasl::FITTED
        .iter()
        .chain(mutexee::FITTED)
        .find(|experiment| experiment.id == id)
        .or_else(|| find(id))
}

/// The figure's rows, each as its own wrong model has it, in their order. `of` makes a context for a model.
///
/// # Errors
/// A figure can't be measured on a wrong model.
pub fn planted<'a>(
    figure: &Figure,
    experiment: &Experiment,
    of: impl Fn(&'a Wrong) -> Context<'a>,
    models: &'a [Wrong],
) -> Result<Vec<ReportRow>, Error> {
    let mut rows = vec![None; figure.row.len()];
    for model in models {
        let its = |row: &Row| Wrong::parse(&row.wrong).as_ref() == Ok(model);
        if !figure.row.iter().any(its) {
            continue;
        }
        let context = of(model);
        let measured = (experiment.measure)(&context)?;
        let report = evaluate(figure, &context.profile, context.seeds, &measured);
        for ((place, row), judged) in rows.iter_mut().zip(&figure.row).zip(report.rows) {
            if its(row) {
                *place = Some(judged);
            }
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// The wrong models of the figure's rows, each once.
pub fn models(figure: &Figure) -> Vec<Wrong> {
    let mut models = Vec::new();
    for row in &figure.row {
        let model = Wrong::parse(&row.wrong).expect("tested");
        if !models.contains(&model) {
            models.push(model);
        }
    }
    models
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::targets;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// One seed, a hundredth of the time.
    fn quick(id: &str) -> (targets::Figure, Measured) {
        let target = targets::figure(id).unwrap();
        let profile = Arc::new(lockwright_sim::profile::builtin(&target.machine).unwrap());
        let context = Context { length: 0.01, ..Context::new(profile, 1) };
        let measured = (find(id).unwrap().measure)(&context).unwrap();
        (target, measured)
    }

    #[test]
    fn every_experiment_has_targets() {
        let ids: BTreeSet<&str> = experiments().map(|experiment| experiment.id).collect();
        assert_eq!(ids.len(), experiments().count(), "an id is there twice");
        for id in ids {
            assert!(targets::figure(id).is_some(), "{id}");
        }
    }

    #[test]
    fn a_figure_measures_its_rows_and_the_same_again() {
        let (target, first) = quick("libasl-1");
        let names: BTreeSet<&String> = target.row.iter().map(|row| &row.name).collect();
        assert_eq!(first.rows.keys().collect::<BTreeSet<_>>(), names);
        assert!(
            first
                .plots
                .iter()
                .all(|plot| plot.series.iter().all(|series| series.points.len() == 8))
        );
        assert_eq!(quick("libasl-1").1.rows, first.rows);
    }
}
