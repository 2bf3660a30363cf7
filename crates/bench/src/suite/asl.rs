//! The suite `asl`: promises about SLO-guided locking. Little cores are emulated if necessary; the point then says so.
//!
//! Epochs use one lock here, not the paper's two. With one big core and two locks, the little core would find one of
//! them free whenever the big core holds the other, and no SLO would matter (lockwright bench --workload epoch).

use super::verdict::{Suite, Verdict};
use crate::measured::{Measured, kept, paired};
use crate::plan::{Plan, Row};
use crate::point::{Length, Point, Work};
use crate::spec::Answer;
use crate::subject::Subject;
use crate::system;
use anyhow::{Result, bail};
use lockwright_numbers::Spread;
use std::path::Path;

/// The SLOs for which the little core's latency is judged. An SLO is feasible where `fifo` keeps it.
const SLOS_US: [u64; 5] = [100, 150, 250, 350, 500];
/// The SLO for comparing feedback with static windows.
const BEST_US: u64 = 150;
/// The static windows, ns.
const WINDOWS_NS: [u32; 6] = [10_000, 15_000, 20_000, 30_000, 40_000, 60_000];
/// The SLO with four threads per CPU.
const CROWDED_MS: u64 = 20;
/// Mean critical section and gap of the epochs, ns.
const EPOCH_NS: (u32, u32) = (2_000, 0);

/// A bar: a measured figure, and the bounds for its median.
struct Bar {
    row: usize,
    lock: String,
    figure: String,
    low: f64,
    high: f64,
    measure: Box<Measure>,
}

/// The result, and a note on what it was compared with.
type Measure = dyn Fn(&Plan, &Measured, usize) -> (Option<Spread>, String);

fn named(plan: &Plan, name: &str) -> Option<usize> {
    plan.subjects.iter().position(|subject| subject.name == name)
}

/// The spread of `figure` for `lock`.
fn spread(
    plan: &Plan,
    measured: &Measured,
    row: usize,
    lock: &str,
    figure: impl Fn(&Answer) -> Option<f64>,
) -> Option<Spread> {
    let values = kept(measured, row, named(plan, lock)?).filter_map(|(_, answer)| figure(answer));
    Spread::of(&values.collect::<Vec<_>>())
}

/// The throughput of `lock` relative to `other`.
fn rates(plan: &Plan, measured: &Measured, row: usize, lock: &str, other: &str) -> Option<Spread> {
    let (lock, other) = (named(plan, lock)?, named(plan, other)?);
    paired(measured, row, lock, other, |answer| Some(answer.rate()))
}

/// How many ns longer an operation of `lock` takes than one of `other` in the same group.
fn extra_ns(
    plan: &Plan,
    measured: &Measured,
    row: usize,
    lock: &str,
    other: &str,
) -> Option<Spread> {
    let (lock, other) = (named(plan, lock)?, named(plan, other)?);
    let pairs = kept(measured, row, lock).filter_map(|(rep, ours)| {
        let (_, theirs) = kept(measured, row, other).find(|(r, _)| *r == rep)?;
        Some(1e9 / ours.rate() - 1e9 / theirs.rate())
    });
    Spread::of(&pairs.collect::<Vec<_>>())
}

/// The P99 of the slowest class.
fn p99(plan: &Plan, measured: &Measured, row: usize, lock: &str) -> Option<f64> {
    spread(plan, measured, row, lock, Answer::slowest_p99).map(|p99| p99.median)
}

/// The throughput of `asl` divided by that of the best static window whose P99 doesn't exceed the larger of `asl`'s P99
/// and the SLO.
fn of_best_window(
    plan: &Plan,
    measured: &Measured,
    row: usize,
    slo_ns: f64,
) -> (Option<Spread>, String) {
    let Some(limit) = p99(plan, measured, row, "asl") else { return (None, String::new()) };
    let limit = limit.max(slo_ns);
    let best = WINDOWS_NS.iter().map(|window| window_lock(*window)).filter_map(|lock| {
        let kept = p99(plan, measured, row, &lock)? <= limit;
        let rate = spread(plan, measured, row, &lock, |answer| Some(answer.rate()))?.median;
        kept.then_some((rate, lock))
    });
    match best.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, lock)) => (rates(plan, measured, row, "asl", &lock), lock),
        None => (None, "no window of the grid keeps it".into()),
    }
}

fn window_lock(ns: u32) -> String {
    format!("asl-opt:window={ns}")
}

/// The suite.
pub(crate) fn asl(library: &Path) -> Result<Suite> {
    let cpus = system::cpus();
    let Some(&little) = cpus.get(1) else {
        bail!(
            "the suite 'asl' needs a big and a little core: two CPUs\nhint: lockwright bench --suite bars"
        );
    };
    let machine = |factor: &str| Some(system::one_little(little, factor));
    let mut subjects = vec![Subject::glibc_emulated(library)];
    let mut names: Vec<String> =
        ["fifo", "asl", "asl-max", "asl-opt:window=0"].map(String::from).into();
    names.extend(WINDOWS_NS.iter().map(|window| window_lock(*window)));
    for name in &names {
        subjects.push(Subject::parse(name, Ok(library))?);
    }
    let only = |names: &[&str]| -> Vec<usize> {
        let at = |name: &&str| subjects.iter().position(|subject| subject.name == *name);
        names.iter().filter_map(at).collect()
    };
    let point = |work, threads, (cs_ns, gap_ns), emulate| Point {
        work,
        threads,
        cs_ns,
        gap_ns,
        length: Length::Fixed,
        lines: 0,
        pin: true,
        hogs: 0,
        latency: false,
        emulate,
    };
    let mut rows: Vec<Row> = Vec::new();
    let mut bars: Vec<Bar> = Vec::new();
    let mut bar = |row, lock: &str, figure: &str, (low, high), measure: Box<Measure>| {
        bars.push(Bar { row, lock: lock.into(), figure: figure.into(), low, high, measure });
    };
    let any = f64::NEG_INFINITY;

    // The cost, on the real machine.
    rows.push(Row { point: point(Work::EpochCost, 1, (0, 0), None), subjects: only(&["asl"]) });
    bar(
        0,
        "asl",
        "TSC ticks, start + end",
        (any, 70.0),
        Box::new(|plan, measured, row| {
            (spread(plan, measured, row, "asl", |a| a.epoch_ticks), String::new())
        }),
    );
    bar(
        0,
        "asl",
        "bytes for each thread and epoch",
        (any, 24.0),
        Box::new(|plan, measured, row| {
            (spread(plan, measured, row, "asl", |a| a.bytes_per_epoch), String::new())
        }),
    );
    for (work, threads, lengths) in
        [(Work::Uncontended { second_thread: true }, 1, (0, 0)), (Work::Mutex, 2, (500, 500))]
    {
        let row = rows.len();
        let length = Length::Exponential;
        let point = Point { length, ..point(work, threads, lengths, None) };
        rows.push(Row { point, subjects: only(&["fifo", "asl"]) });
        bar(
            row,
            "asl",
            "ns per operation beyond fifo",
            (any, 2.0),
            Box::new(|plan, measured, row| {
                (extra_ns(plan, measured, row, "asl", "fifo"), "fifo".into())
            }),
        );
    }

    // SLO 0 means first come, first served.
    let row = rows.len();
    rows.push(Row {
        point: point(Work::Epoch { slo_ns: 0, locks: 1 }, 2, EPOCH_NS, machine("3.75")),
        subjects: only(&["fifo", "asl", "asl-opt:window=0"]),
    });
    for lock in ["asl", "asl-opt:window=0"] {
        bar(
            row,
            lock,
            "throughput / fifo",
            (0.95, 1.05),
            Box::new(move |plan, measured, row| {
                (rates(plan, measured, row, lock, "fifo"), "fifo".into())
            }),
        );
    }

    // The maximum gain from overtaking.
    for (factor, wanted, ideal) in [("1.8", 1.25, 1.40), ("3.75", 2.0, 2.37)] {
        let row = rows.len();
        rows.push(Row {
            point: point(Work::Mutex, 2, (1_000, 20), machine(factor)),
            subjects: only(&["fifo", "asl-max"]),
        });
        bar(
            row,
            "asl-max",
            "throughput / fifo",
            (wanted, f64::INFINITY),
            Box::new(move |plan, measured, row| {
                (rates(plan, measured, row, "asl-max", "fifo"), format!("ideal {ideal:.2}"))
            }),
        );
    }

    // Points with SLOs.
    for slo_us in SLOS_US {
        let row = rows.len();
        let slo = (slo_us * 1000) as f64;
        let mut subjects = only(&["fifo", "asl", "asl-max"]);
        if slo_us == BEST_US {
            let windows: Vec<_> = WINDOWS_NS.iter().map(|window| window_lock(*window)).collect();
            subjects.extend(only(&windows.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        rows.push(Row {
            point: point(
                Work::Epoch { slo_ns: slo_us * 1000, locks: 1 },
                2,
                EPOCH_NS,
                machine("3.75"),
            ),
            subjects,
        });
        bar(
            row,
            "asl",
            "little cores' P99 / SLO",
            (0.90, 1.05),
            Box::new(move |plan, measured, row| {
                let ours = spread(plan, measured, row, "asl", |a| Some(a.slowest_p99()? / slo));
                // The latencies without and with full overtaking show whether the SLO is feasible, and whether it has
                // an effect.
                let of = |lock| p99(plan, measured, row, lock).map_or(f64::NAN, |p99| p99 / slo);
                (ours, format!("fifo {:.2}, asl-max {:.2}", of("fifo"), of("asl-max")))
            }),
        );
        if slo_us == BEST_US {
            bar(
                row,
                "asl",
                "throughput / best window's",
                (0.94, f64::INFINITY),
                Box::new(move |plan, measured, row| of_best_window(plan, measured, row, slo)),
            );
        }
    }

    // Points with more threads than CPUs.
    let row = rows.len();
    let slo = (CROWDED_MS * 1_000_000) as f64;
    let crowd = 4 * cpus.len() as u32;
    let work = Work::Epoch { slo_ns: CROWDED_MS * 1_000_000, locks: 2 };
    rows.push(Row {
        point: Point { pin: false, ..point(work, crowd, EPOCH_NS, machine("3.75")) },
        subjects: only(&["glibc", "asl"]),
    });
    bar(
        row,
        "asl",
        "throughput / glibc",
        (1.0, f64::INFINITY),
        Box::new(|plan, measured, row| {
            (rates(plan, measured, row, "asl", "glibc"), "glibc".into())
        }),
    );
    bar(
        row,
        "asl",
        "little cores' P99 / SLO",
        (any, 1.05),
        Box::new(move |plan, measured, row| {
            let ours = spread(plan, measured, row, "asl", |a| Some(a.slowest_p99()? / slo));
            let glibc = p99(plan, measured, row, "glibc").map_or(f64::NAN, |p99| p99 / slo);
            (ours, format!("glibc {glibc:.2}"))
        }),
    );

    let judge = Box::new(move |plan: &Plan, measured: &Measured| {
        bars.iter().map(|bar| verdict(bar, plan, measured)).collect()
    });
    Ok(Suite { subjects, rows, judge })
}

fn verdict(bar: &Bar, plan: &Plan, measured: &Measured) -> Verdict {
    let (spread, against) = (bar.measure)(plan, measured, bar.row);
    Verdict {
        row: bar.row,
        what: plan.rows[bar.row].point.label(),
        lock: bar.lock.clone(),
        figure: bar.figure.clone(),
        bar: match (bar.low.is_finite(), bar.high.is_finite()) {
            (true, true) => format!("{} .. {}", bar.low, bar.high),
            (true, false) => format!(">= {}", bar.low),
            _ => format!("<= {}", bar.high),
        },
        measured: spread,
        met: spread.map(|s| (bar.low..=bar.high).contains(&s.median)),
        against: Some(against).filter(|text| !text.is_empty()),
    }
}
