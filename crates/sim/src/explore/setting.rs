//! How a schedule goes: its strategy, and what its seed determines before the first step.

use serde::{Deserialize, Serialize};

/// The maximal number of threads of one schedule. As many take a lock whose rule chooses who is next.
pub const THREADS: usize = 7;

/// How many threads take any other lock, drawn from these.
pub(super) const USUAL: [u32; 5] = [2, 2, 3, 3, 4];

/// The most of them.
pub const MOST_USUAL: u32 = USUAL[USUAL.len() - 1];

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// A random walk: the running thread goes on with some probability, or else any thread that can.
    Random,
    /// Random priorities, and a few points at which the running thread's drops to the lowest (PCT, ASPLOS 2010).
    Pct,
}

impl Strategy {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Pct => "pct",
        }
    }

    /// The strategy of that name.
    pub fn find(name: &str) -> Option<Self> {
        [Self::Random, Self::Pct].into_iter().find(|one| one.name() == name)
    }

    /// The strategies in turn, seed by seed.
    pub fn for_seed(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Self::Random } else { Self::Pct }
    }
}

/// What a schedule's seed determines before the first step.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    /// All, servers included.
    pub(crate) threads: u32,
    /// The number of CPUs that the lock sees.
    pub(crate) cpus: u32,
    /// The class of each thread's core.
    pub(crate) classes: Vec<u8>,
}
