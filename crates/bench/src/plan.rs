//! What to run: points, and who runs at each.

use crate::point::Point;
use crate::subject::Subject;
use serde::Serialize;

/// One row of the grid: a point and who runs there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The point.
    pub point: Point,
    /// Indices of subjects; the reference comes first.
    pub subjects: Vec<usize>,
}

/// What to run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The locks; number 0 is the reference.
    pub subjects: Vec<Subject>,
    /// The points.
    pub rows: Vec<Row>,
    /// Repetitions of each.
    pub reps: u32,
    /// Length of one measurement.
    pub time_s: f64,
    /// Seed of the lengths.
    pub seed: u64,
}
