//! The suite `bars`: promises about the default lock on real machines, with a bar for each figure.

use super::verdict::{Suite, Verdict};
use crate::measured::{Measured, ceiling, kept, paired};
use crate::plan::{Plan, Row};
use crate::point::{Call, Length, Point, Work};
use crate::spec::Answer;
use crate::subject::{Role, Subject};
use anyhow::Result;
use lockwright_numbers::Spread;
use lockwright_numbers::format::ratio;
use std::path::Path;

/// The lock under test, if the user names none.
const DEFAULT: &str = "auto";

/// Locks that may be the best with two threads: the front locks for equal cores, and the strongest peers.
const FAMILY: [&str; 6] = ["barging", "fifo", "malthusian", "parking_lot", "std", "in:ttas"];

/// The figure of a bar; the default reference is glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Operations per second.
    Rate,
    /// Operations per second, relative to the point's ceiling.
    Ceiling,
    /// Operations per second, relative to the best of all locks of the point and its ceiling.
    Best,
    /// Time per operation.
    Time,
    /// CPU time per operation.
    Cpu,
    /// 99th percentile of the waits.
    P99,
    /// 99.9th percentile.
    P999,
    /// The longest wait.
    Longest,
    /// Bytes in addition to the lock.
    Bytes,
}

impl Figure {
    fn more_is_better(self) -> bool {
        matches!(self, Figure::Rate | Figure::Ceiling | Figure::Best)
    }

    fn name(self) -> &'static str {
        match self {
            Figure::Rate => "throughput",
            Figure::Ceiling => "of the ceiling",
            Figure::Best => "of the best",
            Figure::Time => "time",
            Figure::Cpu => "CPU an operation",
            Figure::P99 => "wait P99",
            Figure::P999 => "wait P99.9",
            Figure::Longest => "longest wait",
            Figure::Bytes => "bytes beside it",
        }
    }
}

/// A figure of the lock, and its bound: a minimum or a maximum, depending on the figure.
#[derive(Clone, Copy, Debug)]
struct Promise {
    row: usize,
    /// The lock's index among the subjects.
    lock: usize,
    figure: Figure,
    limit: f64,
}

/// One page over all locks of the memory points is noise.
const BYTES_NOISE: f64 = 0.5;

impl Promise {
    /// Does `median` meet it, rounded to the bar's two decimals?
    fn is_met(&self, median: f64) -> bool {
        let seen = (median * 100.0).round() / 100.0;
        match self.figure {
            Figure::Bytes => median <= self.limit + BYTES_NOISE,
            figure if figure.more_is_better() => seen >= self.limit,
            _ => seen <= self.limit,
        }
    }
}

/// Collects the subjects, the points and the promises.
struct Plot {
    subjects: Vec<Subject>,
    /// Indices of the locks under test.
    ours: Vec<usize>,
    /// Indices of the other locks, which run where the best is needed.
    family: Vec<usize>,
    rows: Vec<Row>,
    promises: Vec<Promise>,
}

impl Plot {
    /// Starts with glibc and the locks under test: our own locks in `more`, or else the default. The others in `more`
    /// run beside them.
    fn new(library: &Path, more: &[Subject]) -> Result<Plot> {
        let mut subjects = vec![Subject::glibc()];
        let place = |subjects: &mut Vec<Subject>, subject: Subject| {
            let known = subjects.iter().position(|s| s.name == subject.name);
            known.unwrap_or_else(|| {
                subjects.push(subject);
                subjects.len() - 1
            })
        };
        let (mut ours, mut family) = (Vec::new(), Vec::new());
        for subject in more.iter().filter(|subject| subject.role == Role::Ours) {
            ours.push(place(&mut subjects, subject.clone()));
        }
        if ours.is_empty() {
            ours.push(place(&mut subjects, Subject::parse(DEFAULT, Ok(library))?));
        }
        for name in FAMILY {
            family.push(place(&mut subjects, Subject::parse(name, Ok(library))?));
        }
        for peer in more.iter().filter(|s| !matches!(s.role, Role::Ours | Role::Reference)) {
            family.push(place(&mut subjects, peer.clone()));
        }
        for places in [&mut ours, &mut family] {
            places.sort_unstable();
            places.dedup();
        }
        Ok(Plot { subjects, ours, family, rows: Vec::new(), promises: Vec::new() })
    }

    /// Adds a row with glibc and the locks under test, and with the others if the best is needed.
    fn row(&mut self, point: Point, wanted: &[(Figure, f64)]) {
        let row = self.rows.len();
        let mut subjects = [&[0], &self.ours[..]].concat();
        if wanted.iter().any(|(figure, _)| *figure == Figure::Best) {
            subjects.extend(self.family.iter().filter(|place| !self.ours.contains(place)));
        }
        for &lock in &self.ours {
            let promise = |&(figure, limit)| Promise { row, lock, figure, limit };
            self.promises.extend(wanted.iter().map(promise));
        }
        self.rows.push(Row { point, subjects });
    }
}

/// Builds the suite. Our own locks in `more` replace the default lock.
pub(crate) fn bars(library: &Path, more: &[Subject]) -> Result<Suite> {
    use Figure::*;
    let mut plot = Plot::new(library, more)?;
    let point = |work, threads, (cs_ns, gap_ns), pin| Point {
        work,
        threads,
        cs_ns,
        gap_ns,
        length: Length::Exponential,
        lines: 0,
        pin,
        hogs: 0,
        latency: false,
        emulate: None,
    };
    for ns in [(50, 100), (500, 500), (5000, 5000)] {
        plot.row(point(Work::Mutex, 2, ns, true), &[(Best, 0.97)]);
    }
    for (threads, ns) in [(4, (100, 400)), (8, (100, 400)), (32, (100, 400)), (8, (1000, 100))] {
        let point = Point { latency: true, ..point(Work::Mutex, threads, ns, false) };
        // The goal is 1.0; 0.97 allows for noise.
        let rates = [(Rate, 0.97), (Ceiling, 0.95), (Cpu, 1.0)];
        let waits = [(P99, 1.1), (P999, 1.1), (Longest, 1.0)];
        plot.row(point, &[rates, waits].concat());
    }
    for calls in [&[Call::Try][..], &[Call::Timed], &[Call::Clock], &[Call::Yield], &Call::ALL] {
        let work = Work::Calls { calls: calls.to_vec(), mutexes: 6, timeout_us: 60 };
        plot.row(point(work, 64, (50, 200), false), &[(Rate, 1.0)]);
    }
    for second_thread in [false, true] {
        plot.row(point(Work::Uncontended { second_thread }, 1, (0, 0), true), &[(Time, 1.0)]);
    }
    for contended in [false, true] {
        let work = Work::Memory { locks: 20_000, contended };
        plot.row(point(work, 2, (0, 0), false), &[(Bytes, 0.0)]);
    }
    plot.row(point(Work::Barrier, 8, (0, 100), false), &[(Time, 1.0)]);
    for (n, limit) in [(1, 1.2), (4, 1.5)] {
        let work = Work::Queue { producers: n, consumers: n };
        plot.row(point(work, 2 * n, (0, 100), false), &[(Rate, limit)]);
    }
    let Plot { subjects, rows, promises, .. } = plot;
    let judge = Box::new(move |plan: &Plan, measured: &Measured| {
        promises.iter().map(|promise| verdict(promise, plan, measured)).collect()
    });
    Ok(Suite { subjects, rows, judge })
}

/// The median rate of `subject`.
fn rate(measured: &Measured, row: usize, subject: usize) -> Option<f64> {
    let rates: Vec<f64> = kept(measured, row, subject).map(|(_, a)| a.rate()).collect();
    Spread::of(&rates).map(|rates| rates.median)
}

/// The rates of `subject` relative to the point's maximum in the same group.
fn of_ceiling(plan: &Plan, measured: &Measured, row: usize, subject: usize) -> Option<Spread> {
    let ratio = |(rep, a): (u32, &Answer)| Some(a.rate() / ceiling(plan, measured, row, rep)?);
    Spread::of(&kept(measured, row, subject).filter_map(ratio).collect::<Vec<_>>())
}

/// The ratio to the best of the others, with that lock's name. The others include the reference and the ceiling.
fn of_best(
    plan: &Plan,
    measured: &Measured,
    row: usize,
    subject: usize,
) -> (Option<Spread>, Option<String>) {
    let others = plan.rows[row].subjects.iter().chain(&plan.ceilings[row]);
    let rates = others
        .filter(|&&other| other != subject)
        .filter_map(|&other| Some((other, rate(measured, row, other)?)));
    let Some((best, _)) = rates.max_by(|a, b| a.1.total_cmp(&b.1)) else { return (None, None) };
    let spread = paired(measured, row, subject, best, |a| Some(a.rate()));
    (spread, Some(plan.subjects[best].name.clone()))
}

fn verdict(promise: &Promise, plan: &Plan, measured: &Measured) -> Verdict {
    let Promise { row, lock, figure, limit } = *promise;
    let reference = plan.rows[row].subjects[0];
    let by_glibc = |of: &dyn Fn(&Answer) -> Option<f64>| paired(measured, row, lock, reference, of);
    let glibc = || Some(plan.subjects[reference].name.clone());
    let (spread, against) = match figure {
        // Also show how much glibc leaves to gain.
        Figure::Rate => (by_glibc(&|a| Some(a.rate())), {
            let glibc_of = of_ceiling(plan, measured, row, reference);
            let gain = glibc_of.map(|of| format!("; ceiling {}", ratio(1.0 / of.median)));
            glibc().map(|name| name + &gain.unwrap_or_default())
        }),
        Figure::Ceiling => (of_ceiling(plan, measured, row, lock), None),
        Figure::Best => of_best(plan, measured, row, lock),
        Figure::Time => (by_glibc(&|a| Some(1.0 / a.rate())), glibc()),
        Figure::Cpu => (by_glibc(&|a| Some(a.cpu_per_op())), glibc()),
        Figure::P99 => (by_glibc(&|a| Some(a.wait?.p99)), glibc()),
        Figure::P999 => (by_glibc(&|a| Some(a.wait?.p999)), glibc()),
        Figure::Longest => (by_glibc(&|a| Some(a.wait?.max)), glibc()),
        Figure::Bytes => {
            let bytes = kept(measured, row, lock).filter_map(|(_, a)| a.bytes_per_lock);
            (Spread::of(&bytes.collect::<Vec<_>>()), None)
        }
    };
    Verdict {
        row,
        what: plan.rows[row].point.label(),
        lock: plan.subjects[lock].name.clone(),
        figure: figure.name().into(),
        bar: format!("{} {limit}", if figure.more_is_better() { ">=" } else { "<=" }),
        measured: spread,
        // A bar without a measurement is missed.
        met: Some(spread.is_some_and(|spread| promise.is_met(spread.median))),
        against,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::measured;
    use crate::measured::{self, Sample};
    use crate::plan::ceilings;
    use crate::spec::Percentiles;

    fn suite(more: &[&str]) -> (Plan, Box<super::super::verdict::Judge>) {
        let so = Path::new("/lib/liblockwright.so");
        let more: Vec<_> = more.iter().map(|name| Subject::parse(name, Ok(so)).unwrap()).collect();
        let Suite { mut subjects, rows, judge } = bars(so, &more).unwrap();
        let ceilings = ceilings(&rows, 2, Some(so), &mut subjects);
        (Plan { subjects, rows, ceilings, reps: 3, time_s: 1.0, limit_s: None, seed: 1 }, judge)
    }

    fn sample(plan: &Plan, row: usize, lock: &str, rep: u32, ops: u64, wait: f64) -> Sample {
        let wait = Percentiles { p50: wait, p90: wait, p99: wait, p999: wait, max: wait };
        let subject = plan.subjects.iter().position(|s| s.name == lock).unwrap();
        let mut sample = measured::tests::sample(row, subject, rep, ops);
        let answer = sample.answer.as_mut().unwrap();
        (answer.cpu_ns, answer.wait) = (500_000_000, Some(wait));
        sample
    }

    fn row_of(plan: &Plan, label: &str) -> usize {
        plan.rows.iter().position(|row| row.point.label() == label).unwrap()
    }

    #[test]
    fn a_bar_is_met_to_its_two_decimals() {
        let met = |figure, limit, median| Promise { row: 0, lock: 0, figure, limit }.is_met(median);
        assert!(met(Figure::Rate, 0.97, 0.97) && met(Figure::Rate, 0.97, 0.9651));
        assert!(!met(Figure::Rate, 0.97, 0.9649) && met(Figure::Rate, 0.97, 2.0));
        assert!(met(Figure::P99, 1.1, 1.104) && !met(Figure::P99, 1.1, 1.106));
        assert!(met(Figure::Longest, 1.0, 0.01) && !met(Figure::Longest, 1.0, 33.0));
        assert!(met(Figure::Bytes, 0.0, 0.2) && !met(Figure::Bytes, 0.0, 8.0));
        assert!(!met(Figure::Rate, 1.0, f64::NAN) && !met(Figure::Time, 1.0, f64::INFINITY));
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        let (plan, judge) = suite(&[]);
        let verdicts = judge(&plan, &measured(Vec::new()));
        assert!(verdicts.iter().all(|v| v.met == Some(false) && v.measured.is_none()));
        assert!(verdicts.iter().all(|v| v.lock == "auto"), "the default's bars");
        // 3 with two threads, 4 points of 6, 5 kinds of calls, 2 uncontended, 2 of memory, a barrier, 2 queues.
        assert_eq!(verdicts.len(), 3 + 4 * 6 + 5 + 2 + 2 + 1 + 2);
    }

    #[test]
    fn each_figure_is_a_ratio_within_its_group() {
        let (plan, judge) = suite(&[]);
        let row = row_of(&plan, "8 thr 100/400 ns");
        let mut samples = Vec::new();
        // The second group ran during a slow period, which ratios hide.
        for (rep, speed) in [(0, 100), (1, 10), (2, 100)] {
            samples.push(sample(&plan, row, "glibc", rep, 10 * speed, 100.0));
            samples.push(sample(&plan, row, "auto", rep, 12 * speed, 130.0));
            samples.push(sample(&plan, row, "ceiling, 2 CPUs", rep, 15 * speed, 1.0));
            samples.push(sample(&plan, row, "ceiling, one CPU", rep, 5 * speed, 1.0));
        }
        let verdicts = judge(&plan, &measured(samples));
        let seen = |figure: &str| {
            let is = |v: &&Verdict| v.row == row && v.figure == figure;
            let v = verdicts.iter().find(is).unwrap();
            let median = (v.measured.unwrap().median * 1000.0).round() / 1000.0;
            (median, v.met.unwrap(), v.against.clone().unwrap_or_default())
        };
        assert_eq!(seen("throughput"), (1.2, true, "glibc; ceiling 1.50".into()));
        assert_eq!(seen("of the ceiling"), (0.8, false, String::new()));
        assert_eq!(seen("CPU an operation"), (0.833, true, "glibc".into()));
        for waits in ["wait P99", "wait P99.9", "longest wait"] {
            assert_eq!(seen(waits), (1.3, false, "glibc".into()), "{waits}");
        }
    }

    #[test]
    fn the_best_may_be_anybody_of_the_point() {
        let (plan, judge) = suite(&[]);
        let row = row_of(&plan, "2 thr 50/100 ns pinned");
        for best in ["glibc", "fifo", "parking_lot", "ceiling, 2 CPUs"] {
            let locks = ["glibc", "auto", "fifo", "parking_lot", "ceiling, 2 CPUs"];
            let of = |lock: &str| if lock == best { 100 } else { 50 };
            let samples = locks.map(|lock| sample(&plan, row, lock, 0, of(lock), 1.0));
            let verdicts = judge(&plan, &measured(samples.to_vec()));
            let v = verdicts.iter().find(|v| v.row == row).unwrap();
            assert_eq!((v.met, v.against.as_deref()), (Some(false), Some(best)));
            assert_eq!(v.measured.unwrap().median, 0.5, "{best}");
        }
    }

    #[test]
    fn other_locks_may_stand_in_the_defaults_place() {
        let (plan, judge) = suite(&["fifo", "auto:budget=0", "in:mcs"]);
        let verdicts = judge(&plan, &measured(Vec::new()));
        let of = |lock: &str| verdicts.iter().filter(|v| v.lock == lock).count();
        assert_eq!((of("fifo"), of("auto:budget=0"), of("auto"), of("in:mcs")), (39, 39, 0, 0));
        let names = |row: usize| plan.rows[row].subjects.iter().map(|&s| &*plan.subjects[s].name);
        let pinned = ["glibc", "fifo", "auto:budget=0", "barging", "malthusian", "parking_lot"];
        assert!(names(0).eq(pinned.into_iter().chain(["std", "in:ttas", "in:mcs"])));
        assert!(names(3).eq(["glibc", "fifo", "auto:budget=0"]), "nobody else runs elsewhere");
    }
}
