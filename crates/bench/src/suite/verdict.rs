//! A suite, and the results for its bars.

use crate::measured::Measured;
use crate::plan::{Plan, Row};
use crate::subject::Subject;
use lockwright_numbers::Spread;
use serde::Serialize;

/// The suite: a plan, and what its figures must reach.
pub(crate) struct Suite {
    /// Locks.
    pub subjects: Vec<Subject>,
    /// Points.
    pub rows: Vec<Row>,
    pub(super) judge: Box<Judge>,
}

pub(super) type Judge = dyn Fn(&Plan, &Measured) -> Vec<Verdict>;

impl Suite {
    /// Compares the measurements with the bars.
    pub(crate) fn judge(&self, plan: &Plan, measured: &Measured) -> Vec<Verdict> {
        (self.judge)(plan, measured)
    }
}

/// A bar and its measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// Which row of the grid.
    pub row: usize,
    /// The point.
    pub what: String,
    /// Our lock.
    pub lock: String,
    /// What is compared.
    pub figure: String,
    /// The bar, as text.
    pub bar: String,
    /// What was measured; `None`: nothing.
    pub measured: Option<Spread>,
    /// Was it met? `None`: not measured, or no bar.
    pub met: Option<bool>,
    /// The reference, in a few words.
    pub against: Option<String>,
}
