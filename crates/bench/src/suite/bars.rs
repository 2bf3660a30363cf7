//! The suite `bars`: what the project promises, each row with its bar.

use super::verdict::{Suite, Verdict};
use crate::measured::{Measured, kept, paired};
use crate::plan::{Plan, Row};
use crate::point::{Length, Point, Work};
use crate::stats::Spread;
use crate::subject::{Role, Subject};
use std::path::Path;

/// What a bar compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Operations per second, by the reference's; more is better.
    Rate,
    /// Time per operation, by the reference's; less is better.
    Time,
    /// Operations per second, by the best peer's; more is better.
    Peer,
    /// CPU time per operation, by the reference's; less is better.
    Cpu,
    /// Longest wait, by the reference's; less is better.
    MaxWait,
    /// Bytes beside the lock; less is better.
    Bytes,
    /// Share of acquisitions nobody overtook, by that of the ticket lock; more is better.
    Order,
    /// Most overtakers of one acquisition: stated, no bar.
    Bypass,
}

impl Figure {
    fn more_is_better(self) -> bool {
        matches!(self, Figure::Rate | Figure::Peer | Figure::Order)
    }

    fn name(self) -> &'static str {
        match self {
            Figure::Rate => "throughput / glibc",
            Figure::Time => "time / glibc",
            Figure::Peer => "throughput / best peer",
            Figure::Cpu => "CPU per op / glibc",
            Figure::MaxWait => "longest wait / glibc",
            Figure::Bytes => "bytes beside the lock",
            Figure::Order => "share not overtaken / ticket",
            Figure::Bypass => "longest bypass",
        }
    }
}

struct Promise {
    row: usize,
    lock: &'static str,
    figure: Figure,
    bar: f64,
}

/// The locks of the suite: glibc, ours, the peers (and `more`).
pub(crate) fn bars(library: &Path, more: &[Subject]) -> anyhow::Result<Suite> {
    let mut subjects = vec![Subject::glibc()];
    for name in ["auto", "fifo", "parking_lot", "std", "in:ttas", "in:ticket"] {
        subjects.push(Subject::parse(name, Ok(library))?);
    }
    for subject in more {
        if subjects.iter().all(|s| s.name != subject.name) {
            subjects.push(subject.clone());
        }
    }
    let named = |name: &str| subjects.iter().position(|s| s.name == name);
    let only = |names: &[&str]| names.iter().filter_map(|n| named(n)).collect::<Vec<_>>();
    // Everybody but those that spin in strict order, who do nothing useful here.
    let field = || (0..subjects.len()).filter(|&i| subjects[i].name != "in:ticket");
    let pair = || field().filter(|&i| subjects[i].name != "fifo").collect::<Vec<_>>();
    let crowd = || field().collect::<Vec<_>>();

    let point = |work, threads, cs_ns, gap_ns, pin| Point {
        work,
        threads,
        cs_ns,
        gap_ns,
        length: Length::Exponential,
        lines: 0,
        pin,
        latency: false,
        emulate: None,
    };
    let mut rows = Vec::new();
    let mut promises = Vec::new();
    let mut row = |point, subjects, wanted: &[(&'static str, Figure, f64)]| {
        for &(lock, figure, bar) in wanted {
            promises.push(Promise { row: rows.len(), lock, figure, bar });
        }
        rows.push(Row { point, subjects });
    };
    use Figure::*;
    for (second_thread, bar) in [(true, 1.03), (false, 1.08)] {
        row(
            point(Work::Uncontended { second_thread }, 1, 0, 0, true),
            only(&["glibc", "auto", "fifo", "parking_lot", "std"]),
            &[("auto", Time, bar)],
        );
    }
    row(point(Work::Mutex, 2, 50, 100, true), pair(), &[("auto", Peer, 0.97)]);
    for (ns, bar) in [(500, 1.85), (5000, 1.45)] {
        row(
            point(Work::Mutex, 2, ns, ns, true),
            pair(),
            &[("auto", Rate, bar), ("auto", Peer, 0.97)],
        );
    }
    for threads in [8, 32] {
        row(
            Point { latency: true, ..point(Work::Mutex, threads, 100, 400, false) },
            crowd(),
            &[
                ("auto", Rate, 1.2),
                ("auto", Peer, 0.97),
                ("auto", Cpu, 1.0),
                ("auto", MaxWait, 1.5),
                ("fifo", Rate, 0.5),
            ],
        );
    }
    for (n, bar) in [(1, 1.0), (4, 1.3)] {
        row(
            point(Work::Queue { producers: n, consumers: n }, 2 * n, 0, 100, false),
            only(&["glibc", "auto", "fifo", "parking_lot", "std"]),
            &[("auto", Rate, bar)],
        );
    }
    row(
        point(Work::Barrier, 8, 0, 100, false),
        only(&["glibc", "auto", "fifo", "parking_lot", "std"]),
        &[("auto", Time, 1.1)],
    );
    for (contended, bar) in [(false, 0.0), (true, 256.0)] {
        row(
            point(Work::Memory { locks: 20_000, contended }, 2, 0, 0, false),
            only(&["glibc", "auto", "fifo", "parking_lot", "std"]),
            &[("auto", Bytes, bar), ("fifo", Bytes, bar)],
        );
    }
    row(
        point(Work::Order { grace_ns: 1000 }, 2, 100, 400, true),
        only(&["glibc", "auto", "fifo", "in:ticket"]),
        &[("fifo", Order, 1.0)],
    );
    row(
        point(Work::Order { grace_ns: 1000 }, 8, 100, 400, false),
        only(&["glibc", "auto", "fifo"]),
        &[("fifo", Bypass, f64::INFINITY)],
    );
    let judge = Box::new(move |plan: &Plan, measured: &Measured| {
        promises.iter().map(|promise| judge_one(promise, plan, measured)).collect()
    });
    Ok(Suite { subjects, rows, judge })
}

/// Measurement noise of the memory and order rows: one page over all locks, one acquisition in 10 000.
const BYTES_NOISE: f64 = 0.5;
const ORDER_NOISE: f64 = 1e-4;

fn judge_one(promise: &Promise, plan: &Plan, measured: &Measured) -> Verdict {
    let Promise { row, lock, figure, bar } = *promise;
    let named = |name: &str| plan.subjects.iter().position(|s| s.name == name);
    let subjects = &plan.rows[row].subjects;
    let ours = named(lock).filter(|s| subjects.contains(s));
    let glibc = subjects[0];
    let mut against = None;
    let spread = ours.and_then(|ours| match figure {
        Figure::Rate => paired(measured, row, ours, glibc, |a| Some(a.rate())),
        Figure::Time => paired(measured, row, ours, glibc, |a| Some(1.0 / a.rate())),
        Figure::Cpu => paired(measured, row, ours, glibc, |a| Some(a.cpu_per_op())),
        Figure::MaxWait => paired(measured, row, ours, glibc, |a| a.wait.map(|w| w.max)),
        Figure::Peer => {
            let rate = |s: usize| {
                let rates: Vec<f64> = kept(measured, row, s).map(|(_, a)| a.rate()).collect();
                Spread::of(&rates).map(|r| r.median)
            };
            let (best, _) = subjects
                .iter()
                .filter(|&&s| matches!(plan.subjects[s].role, Role::Peer | Role::InProcess))
                .filter_map(|&s| Some((s, rate(s)?)))
                .max_by(|a, b| a.1.total_cmp(&b.1))?;
            against = Some(plan.subjects[best].name.clone());
            paired(measured, row, ours, best, |a| Some(a.rate()))
        }
        Figure::Bytes => {
            let bytes: Vec<f64> =
                kept(measured, row, ours).filter_map(|(_, a)| a.bytes_per_lock).collect();
            Spread::of(&bytes)
        }
        Figure::Order => {
            let ticket = named("in:ticket")?;
            against = Some("in:ticket".into());
            paired(measured, row, ours, ticket, |a| Some(1.0 - a.overtaken_late?))
        }
        Figure::Bypass => {
            let most: Vec<f64> = kept(measured, row, ours)
                .filter_map(|(_, a)| Some(a.longest_bypass? as f64))
                .collect();
            Spread::of(&most)
        }
    });
    let noise = match figure {
        Figure::Bytes => BYTES_NOISE,
        Figure::Order => ORDER_NOISE,
        _ => 0.0,
    };
    let met = spread.filter(|_| bar.is_finite()).map(|s| {
        if figure.more_is_better() { s.median >= bar - noise } else { s.median <= bar + noise }
    });
    Verdict {
        what: plan.rows[row].point.label(),
        lock: lock.into(),
        figure: figure.name().into(),
        bar: match (bar.is_finite(), figure.more_is_better()) {
            (false, _) => "stated".into(),
            (true, true) => format!(">= {bar}"),
            (true, false) => format!("<= {bar}"),
        },
        measured: spread,
        met,
        against,
    }
}
