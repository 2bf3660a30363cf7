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
pub mod libasl;
mod measured;
pub mod mutexee;
mod plan;
pub mod plot;
pub mod policies;
pub mod rcl;
mod wrong;

pub use evaluate::{Count, FigureReport, ReportRow, Tally, evaluate, median};
pub use measured::{Measured, ratio};
pub use plan::{Here, Key, Load, Memo, Plan, Results, Runs};
pub use wrong::{Wrong, models, planted};

use lockwright_sim::profile::Profile;
use lockwright_sim::{Violation, targets};
use std::sync::Arc;
use thiserror::Error;

/// How a figure is measured. Each family's file lists its own.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The figure's id, which is also that of its targets.
    pub id: &'static str,
    /// Runs it. A row's measurement has one value for each seed. Rows of locks that don't exist yet are left out.
    pub measure: fn(&Context<'_>) -> Result<Measured, Error>,
}

impl Experiment {
    /// Can it run on that machine? Plans the runs without making them.
    ///
    /// # Errors
    /// Why it can't.
    pub fn check(&self, profile: Arc<Profile>) -> Result<(), Error> {
        match (self.measure)(&Context { only_plan: true, ..Context::new(profile, 1) }) {
            Ok(_) | Err(Error::OnlyPlanned) => Ok(()),
            Err(why) => Err(why),
        }
    }
}

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

/// What an experiment is run with.
pub struct Context<'a> {
    /// Its machine; rows on another machine (`Row::machine`) name theirs.
    pub profile: Arc<Profile>,
    /// Each point is run with the seeds 1 to `seeds`.
    pub seeds: u32,
    /// The same for points on which the sign of an effect depends: at least [`targets::SIGN_SEEDS`] for a verdict.
    pub often: u32,
    /// A planted wrong model.
    pub wrong: Option<&'a Wrong>,
    /// Simulated time, as a share of what the figure needs for steady percentiles: 1, or less for quick runs.
    pub length: f64,
    /// Is told how many runs are planned, and when each is done.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Figures that use the same context share runs.
    pub memo: Memo,
    /// Who makes the runs.
    pub runs: &'a dyn Runs,
    /// Don't run anything: a plan that could run ends with [`Error::OnlyPlanned`].
    pub only_plan: bool,
}

impl Context<'_> {
    /// With the given number of seeds, in full length, without progress reports.
    pub fn new(profile: Arc<Profile>, seeds: u32) -> Self {
        let memo = Memo::default();
        let (progress, runs) = (&|_| (), &Here);
        let (often, wrong, length, only_plan) = (seeds, None, 1.0, false);
        Self { profile, seeds, often, wrong, length, progress, memo, runs, only_plan }
    }
}

/// Progress of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many more runs will be made.
    Planned(usize),
    /// One run is over.
    Done,
}

/// Why a figure could not be measured.
#[derive(Debug, Error)]
pub enum Error {
    /// A lock has broken a rule, so all figures are void.
    #[error("{run}: {violation}")]
    Violation {
        /// Lock, machine, workload, threads, seed.
        run: String,
        /// Which rule.
        violation: Box<Violation>,
    },
    /// A thread is placed on a CPU that the machine doesn't have.
    #[error("needs CPU {cpu}, '{machine}' has 0 to {last}")]
    NoCpu {
        /// Which.
        cpu: u32,
        /// The machine.
        machine: String,
        /// Its last CPU.
        last: u32,
    },
    /// Nothing was run, as [`Context::only_plan`] demands.
    #[error("it was only planned")]
    OnlyPlanned,
    /// Other processes make these runs.
    #[error("its runs are made elsewhere")]
    Elsewhere,
    /// Runs could not be kept, or those that were kept can't be had.
    #[error("{0}")]
    NotMade(Box<dyn std::error::Error + Send + Sync>),
    /// A number that a figure takes from its targets (`[chosen]`) is missing.
    #[error("figure {figure}: its targets choose no '{key}'")]
    NotChosen {
        /// The figure.
        figure: String,
        /// Which number.
        key: String,
    },
}

/// A number that the paper doesn't publish, and that `figure`'s targets choose.
///
/// # Errors
/// They choose none of that name.
pub fn chosen(figure: &str, key: &str) -> Result<f64, Error> {
    let number = targets::figure(figure)
        .and_then(|figure| figure.chosen.get(key).map(|chosen| chosen.value));
    number.ok_or_else(|| Error::NotChosen { figure: figure.to_owned(), key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
