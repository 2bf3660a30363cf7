//! What the front locks' behaviour depends on: the machine, and the options of `NAME:key=value`.

use super::{barging, side};
use crate::catalog::OptionSpec;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// What a front lock's behaviour depends on, options and machine together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long a waiter stays awake before it sleeps, ns. 0: it sleeps at once.
    pub spin_ns: u32,
    /// Threads that may spin in front of the line at a time (0 to 6; [`ANY`]: not counted).
    pub spinners: u32,
    /// Arrivals that may overtake the line's head before it has the lock (0 to 511).
    pub bypass: u32,
    /// How long the line's head leaves a saturated lock to those who come back for it, ns. 0: it does not.
    pub batch_ns: u32,
    /// CPUs that the program may use.
    pub cpus: u32,
    /// Moved sleepers that one unlock wakes at most.
    pub herd: u32,
    /// Counts forks (0 to 63): a line from before a fork consists of threads that don't exist.
    pub era: usize,
}

/// How long waiters of the front locks stay awake by default, ns: about the price of a sleep and a wake.
pub const SPIN_NS: u32 = 30_000;

/// As many spinners as there are CPUs.
pub const ANY: u32 = 7;

/// How long they stay awake at most while the line is crowded, ns.
const CROWDED_SPIN_NS: u32 = 4_000;

impl Tuning {
    /// The tuning that suits `cpus` CPUs.
    pub fn for_cpus(cpus: u32) -> Self {
        let alone = cpus <= 1;
        Self {
            spin_ns: if alone { 0 } else { SPIN_NS },
            // Few CPUs can't have too many spinners, and then we need not count them.
            spinners: if alone {
                0
            } else if cpus <= 4 {
                ANY
            } else {
                4
            },
            bypass: barging::BYPASS,
            batch_ns: if alone { 0 } else { barging::BATCH_NS },
            cpus,
            herd: cpus * 4,
            era: 0,
        }
    }

    /// How long a waiter stays awake now, ns. Where waiters are more than the CPUs, a holder that does not
    /// release at once has probably lost its CPU: then the waiter had better give it its own.
    pub(super) fn awake_ns<P: Platform>(&self, side: &P::Word) -> u32 {
        let crowded = side.load(Relaxed) & side::CROWDED != 0; // a hint: awake or asleep, both work
        if crowded { self.spin_ns.min(CROWDED_SPIN_NS) } else { self.spin_ns }
    }

    /// Sets the option called `key`; `false` if a front lock has no such option.
    pub fn set(&mut self, key: &str, value: u32) -> bool {
        match key {
            "spin" => self.spin_ns = value,
            "spinners" => self.spinners = value,
            "bypass" => self.bypass = value,
            "batch" => self.batch_ns = value,
            _ => return false,
        }
        true
    }
}

/// The option `spin`.
pub const OPTION_SPIN: OptionSpec = OptionSpec {
    key: "spin",
    meaning: "ns that a waiter stays awake before it sleeps (0 where one CPU must do)",
    min: 0,
    max: 10_000_000,
    default: Some(SPIN_NS),
};

/// The option `spinners`.
pub const OPTION_SPINNERS: OptionSpec = OptionSpec {
    key: "spinners",
    meaning: "threads that may spin in front of the line at a time (7: any number)",
    min: 0,
    max: 7,
    default: None,
};

/// The option `bypass`.
pub(crate) const fn option_bypass(default: u32) -> OptionSpec {
    OptionSpec {
        key: "bypass",
        meaning: "arrivals that may overtake the line's head before it has the lock",
        min: 0,
        max: 511,
        default: Some(default),
    }
}
