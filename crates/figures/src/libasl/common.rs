//! What LibASL's figures share: the paper's locks by our names, Bench-1, and the form of plots.

use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Error, Key, Load, Results, chosen, median};

/// Classes of the paper's machine.
pub(super) const BIG: usize = 0;
pub(super) const LITTLE: usize = 1;

/// SHFL-PB10 as the paper describes it: ShflLock with the proportion as its policy.
pub(super) const PB10: &str = "shfllock-pb10";

/// The paper's locks, by our names; its pthread_mutex_lock is glibc's algorithm.
pub(super) const EXISTING: [&str; 5] = ["glibc", "tas", "ticket", "mcs", PB10];

/// LibASL as published: a reorderable MCS lock.
pub(super) const ASL: &str = "asl-mcs";

/// Our own lock of that idea, shown beside it.
pub(super) const OURS: &str = "asl";

/// Bench-1 under `lock`.
pub(super) fn bench1(lock: &str) -> Result<Load, Error> {
    let load = Load::new("bench1", lock).with("lines", chosen("libasl-8a", "lines")?);
    Ok(load.with("gap", chosen("libasl-8a", "gap")?).lasting(20.0, 50.0))
}

/// A point's median over the seeds, at `x`; `None` if its lock is missing.
pub(super) fn dot(x: f64, values: &[f64]) -> Option<(f64, f64)> {
    Some((x, median(values)?))
}

/// A plot of throughput (left axis) and of P99 latency by class of cores (right axis), as in Figures 8a, 8b, 8h and
/// 8i.
pub(super) fn throughput_and_tails(
    name: &str,
    title: &str,
    x: Axis,
    kinds: (Kind, Kind),
    results: &Results,
    points: &[(f64, Key)],
) -> Plot {
    let of = |what: &dyn Fn(Key) -> Vec<f64>| {
        points.iter().filter_map(|&(x, key)| dot(x, &what(key))).collect::<Vec<_>>()
    };
    let (bars, marks) = kinds;
    let throughput = |key| results.of(key, |outcome| outcome.throughput / 1e6);
    let tail = |name: &str, what: &dyn Fn(Key) -> Vec<f64>| {
        Series::new(name, marks, of(what)).on_the_right().of_operations()
    };
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x,
        left: Axis::linear("million epochs a second"),
        right: Some(Axis::log("P99 latency, µs")),
        series: vec![
            Series::new("throughput", bars, of(&throughput)),
            tail("P99 little", &|key| results.p99_of(key, LITTLE)),
            tail("P99 big", &|key| results.p99_of(key, BIG)),
            tail("P99 all", &|key| results.p99(key)),
        ],
    }
}
