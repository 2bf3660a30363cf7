//! The locks and loads that are compared. `calibrate` measures none of them.

use lockwright_locks::catalog::CATALOG;
use lockwright_locks::entry::{Entry, Kind};
use std::collections::BTreeMap;

/// Four that differ in how they hand over, for a quick look.
pub(super) const SOME: [&str; 4] = ["tas", "ttas", "ticket", "mcs"];

/// Every lock of mutexes, without front locks that are others with options. Those that reorder little cores' waiters have none to
/// reorder on equal cores.
pub(super) fn all() -> Vec<&'static str> {
    let is_other = |entry: &&Entry| entry.kind == Kind::Front && entry.preset_of.is_some();
    CATALOG.iter().filter(|entry| !is_other(entry)).map(|entry| entry.id).collect()
}

/// A critical section and a gap; the simulator's workload `bench`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Shared lines that a critical section changes.
    pub(super) lines: u32,
    /// Computation in it, ns.
    pub(super) cs_ns: f64,
    /// Computation after it, ns.
    pub(super) gap_ns: f64,
    /// Durations of computation are random, with these means.
    pub(super) exponential: bool,
}

const fn fixed(lines: u32, cs_ns: f64, gap_ns: f64) -> Load {
    Load { lines, cs_ns, gap_ns, exponential: false }
}

const fn exponential(lines: u32, cs_ns: f64, gap_ns: f64) -> Load {
    Load { lines, cs_ns, gap_ns, exponential: true }
}

/// From an empty critical section to some microseconds, from saturated to hardly contended.
pub(super) const LOADS: [Load; 10] = [
    fixed(0, 0.0, 0.0),
    fixed(1, 0.0, 0.0),
    fixed(4, 0.0, 100.0),
    fixed(16, 0.0, 400.0),
    fixed(2, 100.0, 400.0),
    fixed(1, 1000.0, 1000.0),
    exponential(1, 50.0, 100.0),
    exponential(2, 200.0, 800.0),
    exponential(4, 500.0, 500.0),
    exponential(1, 1000.0, 6000.0),
];

impl Load {
    /// Does the model predict it with that many threads? It doesn't predict one thread that neither computes nor has a
    /// gap, because there the costs of single instructions don't add up (docs/sim.md, Validation).
    pub(super) fn is_predicted(&self, threads: u32) -> bool {
        threads > 1 || self.cs_ns > 0.0 || self.gap_ns > 0.0
    }

    /// The parameters of the simulator's workload.
    pub(super) fn params(&self) -> BTreeMap<String, f64> {
        let exponential = if self.exponential { 1.0 } else { 0.0 };
        let all = [
            ("lines", f64::from(self.lines)),
            ("cs", self.cs_ns),
            ("gap", self.gap_ns),
            ("exponential", exponential),
        ];
        all.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// `4 lines + 0 ns, gap 100 ns`.
    pub(super) fn words(&self) -> String {
        let Self { lines, cs_ns, gap_ns, exponential } = self;
        let drawn = if *exponential { ", exponential" } else { "" };
        let lines = format!("{lines} line{}", if *lines == 1 { "" } else { "s" });
        format!("{lines} + {cs_ns} ns, gap {gap_ns} ns{drawn}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_sections_of_one_thread_are_not_predicted_and_nothing_else() {
        let outside = |threads| LOADS.iter().filter(|load| !load.is_predicted(threads)).count();
        assert_eq!((outside(1), outside(2)), (2, 0));
        assert!(fixed(0, 0.0, 100.0).is_predicted(1) && !fixed(16, 0.0, 0.0).is_predicted(1));
    }
}
