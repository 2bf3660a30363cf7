//! An outcome in a file, with all that reports need of it. What [`Outcome`] writes by itself is what people read.

use crate::outcome::Outcome;
use serde::{Deserialize, Serialize};

/// An outcome that comes back from JSON as it was, but without its timeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    outcome: Outcome,
    /// When the first operation began, by class and by thread.
    first_ns: (Vec<Option<u64>>, Vec<Option<u64>>),
}

impl From<Outcome> for Kept {
    fn from(outcome: Outcome) -> Self {
        let classes = outcome.classes.iter().map(|class| class.first_ns).collect();
        let threads = outcome.threads.iter().map(|thread| thread.first_ns).collect();
        Self { outcome, first_ns: (classes, threads) }
    }
}

impl From<Kept> for Outcome {
    fn from(Kept { mut outcome, first_ns: (classes, threads) }: Kept) -> Self {
        for (class, first_ns) in outcome.classes.iter_mut().zip(classes) {
            class.first_ns = first_ns;
        }
        for (thread, first_ns) in outcome.threads.iter_mut().zip(threads) {
            thread.first_ns = first_ns;
        }
        // JSON has no infinity, which it is on a machine that draws no power.
        outcome.tpp = outcome.operations as f64 / outcome.joules;
        outcome
    }
}
