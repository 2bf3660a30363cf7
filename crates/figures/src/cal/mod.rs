//! The figures of CAL (*Core-Aware Lock for big.LITTLE multicore architecture*, Applied Sciences 2024).
//!
//! Fairness is the paper's: the smallest slowdown of a thread to the largest; a thread's slowdown is the mean time that its
//! critical sections take, from the request to the release, with the others to that without them.

mod scaling;

use crate::Experiment;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "cal-3", measure: scaling::figure_3 },
    Experiment { id: "cal-7", measure: scaling::figure_7 },
    Experiment { id: "cal-8", measure: scaling::figure_8 },
];
