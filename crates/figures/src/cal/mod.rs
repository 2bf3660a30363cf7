//! The figures of CAL (*Core-Aware Lock for big.LITTLE multicore architecture*, Applied Sciences 2024).
//!
//! Fairness is the paper's: the smallest slowdown of any thread divided by the largest. A thread's slowdown is the mean
//! time of its critical sections, from the request to the release, with the other threads divided by that without them.

mod scaling;

use crate::experiment::Experiment;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "cal-3", measure: scaling::figure_3 },
    Experiment { id: "cal-7", measure: scaling::figure_7 },
    Experiment { id: "cal-8", measure: scaling::figure_8 },
    Experiment { id: "cal-9", measure: scaling::figure_9 },
];
