//! A suite, and the results of its bars.

use crate::measured::Measured;
use crate::plan::{Plan, Row};
use crate::subject::Subject;
use lockwright_numbers::Spread;
use serde::Serialize;

/// The suite: a plan, and bars for its figures.
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
    /// The row of the grid.
    pub row: usize,
    /// The point.
    pub what: String,
    /// Our lock.
    pub lock: String,
    /// The compared figure.
    pub figure: String,
    /// The bar as text.
    pub bar: String,
    /// The measured value; `None`: nothing was measured.
    pub measured: Option<Spread>,
    /// Was the bar met? `None`: not measured, or there is no bar.
    pub met: Option<bool>,
    /// A short description of the reference.
    pub against: Option<String>,
}
