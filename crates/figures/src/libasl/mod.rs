//! The figures of LibASL (*Asymmetry-aware Scalable Locking*, PPoPP 2022).

mod bench1;
mod bench2;
mod bench3;
mod bench4;
mod bench5;
mod bench6;
mod databases;
mod motivation;
mod platforms;
mod proportion;

use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Error, Experiment, Key, Load, Results, chosen, median};

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

/// Classes of the paper's machine.
const BIG: usize = 0;
const LITTLE: usize = 1;

/// SHFL-PB10 as the paper describes it: ShflLock with the proportion as its policy.
const PB10: &str = "shfllock-pb10";

/// The paper's locks, by our names; its pthread_mutex_lock is glibc's algorithm.
const EXISTING: [&str; 5] = ["glibc", "tas", "ticket", "mcs", PB10];

/// LibASL as published: a reorderable MCS lock.
const ASL: &str = "asl-mcs";

/// Our own lock of that idea, shown beside it.
const OURS: &str = "asl";

/// Bench-1 under `lock`.
fn bench1(lock: &str) -> Result<Load, Error> {
    let load = Load::new("bench1", lock).with("lines", chosen("libasl-8a", "lines")?);
    Ok(load.with("gap", chosen("libasl-8a", "gap")?).lasting(20.0, 50.0))
}

/// A point's median over the seeds, at `x`; `None` if its lock is missing.
fn dot(x: f64, values: &[f64]) -> Option<(f64, f64)> {
    Some((x, median(values)?))
}

/// A plot of throughput (left axis) and of P99 latency by class of cores (right axis), as in Figures 8a, 8b, 8h and
/// 8i.
fn throughput_and_tails(
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
