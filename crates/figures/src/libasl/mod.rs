//! The figures of LibASL (*Asymmetry-aware Scalable Locking*, PPoPP 2022).

mod motivation;

use crate::Experiment;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "libasl-1", measure: motivation::figure_1 },
    Experiment { id: "libasl-4", measure: motivation::figure_4 },
];

/// What fits need of them: the rows that machines are fitted to, the same as in the whole figure.
pub static FITTED: &[Experiment] = &[
    Experiment { id: "libasl-1", measure: motivation::rows_of_1 },
    Experiment { id: "libasl-4", measure: motivation::rows_of_4 },
];

/// Classes of the paper's machine.
const BIG: usize = 0;
const LITTLE: usize = 1;
