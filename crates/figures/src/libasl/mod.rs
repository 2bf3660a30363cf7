//! The figures of LibASL (*Asymmetry-aware Scalable Locking*, PPoPP 2022).

mod bench1;
mod bench2;
mod bench3;
mod bench4;
mod bench5;
mod bench6;
mod common;
mod databases;
mod motivation;
mod platforms;
mod proportion;

use crate::experiment::Experiment;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "libasl-1", measure: motivation::figure_1 },
    Experiment { id: "libasl-4", measure: motivation::figure_4 },
    Experiment { id: "libasl-5", measure: proportion::figure_5 },
    Experiment { id: "libasl-8a", measure: bench1::figure_8a },
    Experiment { id: "libasl-8b", measure: bench1::figure_8b },
    Experiment { id: "libasl-8c", measure: bench3::figure_8c },
    Experiment { id: "libasl-8d", measure: bench2::figure_8d },
    Experiment { id: "libasl-8e", measure: bench4::figure_8e },
    Experiment { id: "libasl-8f", measure: bench4::figure_8f },
    Experiment { id: "libasl-8g", measure: bench5::figure_8g },
    Experiment { id: "libasl-8h", measure: bench6::figure_8h },
    Experiment { id: "libasl-8i", measure: bench6::figure_8i },
    Experiment { id: "libasl-9", measure: databases::figure_9 },
    Experiment { id: "libasl-10", measure: databases::figure_10 },
    Experiment { id: "libasl-platforms", measure: platforms::platforms },
];

/// The parts that fits need: the fitted rows, measured as in the whole figure.
pub static FITTED: &[Experiment] = &[
    Experiment { id: "libasl-1", measure: motivation::rows_of_1 },
    Experiment { id: "libasl-4", measure: motivation::rows_of_4 },
    Experiment { id: "libasl-8a", measure: bench1::rows_of_tails },
    Experiment { id: "libasl-8g", measure: bench5::rows_without_a_gap },
    Experiment { id: "libasl-8h", measure: bench6::row_of_8h },
];
