//! The run: repetitions of groups, each group all locks at one point, between two looks at the machine.

use crate::child::{self, Outcome};
use crate::compute;
use crate::progress::progress;
use crate::spec::{Answer, Point, Spec, Work};
use crate::stats::Spread;
use crate::subject_list::{Role, Subject};
use crate::system;
use crate::worker;
use anyhow::{Result, bail};
use serde::Serialize;
use std::time::Duration;

/// A line transfer that grows or shrinks by more than this within a group: another regime of the hypervisor.
const REGIME: f64 = 1.6;
/// Repetitions of the memory points: they hardly vary.
const MEMORY_REPS: u32 = 3;

/// One row of the grid: a point and who runs there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The point.
    pub point: Point,
    /// Indices of subjects; the reference comes first.
    pub subjects: Vec<usize>,
}

/// What to run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The locks; number 0 is the reference.
    pub subjects: Vec<Subject>,
    /// The points.
    pub rows: Vec<Row>,
    /// Repetitions of each.
    pub reps: u32,
    /// Length of one measurement.
    pub time_s: f64,
    /// Seed of the lengths.
    pub seed: u64,
}

/// How one measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Measured.
    Ok,
    /// The lock has no such operation.
    Unsupported,
    /// Killed at its time limit.
    Hung,
    /// The worker died.
    Failed,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Which row of the grid.
    pub row: usize,
    /// Which lock.
    pub subject: usize,
    /// Which repetition.
    pub rep: u32,
    /// One-way line transfer before and after the group, in nanoseconds.
    pub line_ns: (Option<f64>, Option<f64>),
    /// Was the regime the same before and after?
    pub kept: bool,
    /// How it ended.
    pub status: Status,
    /// What it found.
    pub answer: Option<Answer>,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// Every measurement, discarded ones too.
    pub samples: Vec<Sample>,
    /// Groups discarded because the regime changed.
    pub discarded: u32,
    /// Groups whose regime changed in every attempt: measured less often than asked.
    pub given_up: u32,
    /// Groups kept.
    pub kept: u32,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// Turns of the compute loop per nanosecond.
    pub turns_per_ns: f64,
    /// Lines for people: what failed and how.
    pub notes: Vec<String>,
}

/// Runs the plan, with a progress bar on stderr unless `quiet`.
pub(crate) fn run(plan: &Plan, quiet: bool) -> Result<Measured> {
    system::catch_interrupts();
    let mut measured = Measured {
        samples: Vec::new(),
        discarded: 0,
        given_up: 0,
        kept: 0,
        interrupted: false,
        turns_per_ns: compute::calibrate(),
        notes: Vec::new(),
    };
    let reps_of = |row: &Row| match row.point.work {
        Work::Memory { .. } => plan.reps.min(MEMORY_REPS),
        _ => plan.reps,
    };
    let steps: u64 =
        plan.rows.iter().map(|r| u64::from(reps_of(r)) * r.subjects.len() as u64).sum();
    let bar = progress(steps, quiet);
    let mut retries = vec![plan.reps.max(3); plan.rows.len()];
    // (row, subject) pairs that will not be asked again.
    let mut out = vec![vec![false; plan.subjects.len()]; plan.rows.len()];

    'all: for rep in 0..plan.reps {
        for (number, row) in plan.rows.iter().enumerate() {
            if rep >= reps_of(row) {
                continue;
            }
            loop {
                let before = system::line_transfer_ns();
                let first = measured.samples.len();
                for turn in 0..row.subjects.len() {
                    let subject = row.subjects[(turn + rep as usize) % row.subjects.len()];
                    if system::interrupted() {
                        measured.samples.truncate(first);
                        measured.interrupted = true;
                        break 'all;
                    }
                    if out[number][subject] {
                        continue;
                    }
                    bar.set_message(format!(
                        "{}: {}",
                        row.point.label(),
                        plan.subjects[subject].name
                    ));
                    let sample = one(plan, &mut measured, number, subject, rep)?;
                    out[number][subject] = sample.status != Status::Ok;
                    measured.samples.push(sample);
                }
                let after = system::line_transfer_ns();
                let same = match (before, after) {
                    (Some(b), Some(a)) => a / b <= REGIME && b / a <= REGIME,
                    _ => true,
                };
                for sample in &mut measured.samples[first..] {
                    sample.line_ns = (before, after);
                    sample.kept = same;
                }
                if same {
                    measured.kept += 1;
                    break;
                }
                measured.discarded += 1;
                if retries[number] == 0 {
                    measured.given_up += 1;
                    break;
                }
                retries[number] -= 1;
            }
            bar.inc(row.subjects.len() as u64);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

/// One measurement. An error if the lock let two threads in, or the worker did not run on it at all.
fn one(
    plan: &Plan,
    measured: &mut Measured,
    row: usize,
    subject: usize,
    rep: u32,
) -> Result<Sample> {
    let point = &plan.rows[row].point;
    let spec = Spec {
        lock: plan.subjects[subject].lock.clone(),
        point: point.clone(),
        time_s: plan.time_s,
        turns_per_ns: measured.turns_per_ns,
        seed: plan.seed.wrapping_add(u64::from(rep).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    };
    // Crowds of spinners need their time to leave.
    let limit = match point.work {
        Work::Memory { .. } => 60.0,
        // A standby competitor may wait for as long as its window, at the end too.
        _ => 20.0 + 4.0 * plan.time_s + 0.25 * f64::from(worker::threads_of(point)),
    };
    let who = &plan.subjects[subject];
    let outcome = child::run(who, &spec, Duration::from_secs_f64(limit))?;
    let place = format!("'{}' at '{}'", who.name, point.label());
    let (status, answer) = match outcome {
        Outcome::Answered(answer) => {
            if !who.provided_by(&answer.provider) {
                bail!(
                    "{place} was not measured: pthread_mutex_lock came from '{}'\n\
                     hint: check that the library loads: LD_PRELOAD={} true",
                    answer.provider,
                    who.preload.as_deref().unwrap_or("".as_ref()).display()
                );
            }
            if answer.counted != answer.expected {
                bail!(
                    "{place} failed to exclude: its counter reads {}, it must read {}\n\
                     hint: no figure of a lock that fails means anything; leave it out, and report it",
                    answer.counted,
                    answer.expected
                );
            }
            (if answer.unsupported { Status::Unsupported } else { Status::Ok }, Some(*answer))
        }
        Outcome::Hung(threads) => {
            measured.notes.push(format!(
                "{place} hung: killed after {limit:.0} s (its threads, state and CPU time: {threads})"
            ));
            (Status::Hung, None)
        }
        Outcome::Failed(why) => {
            measured.notes.push(format!("{place} failed: {why}"));
            (Status::Failed, None)
        }
    };
    Ok(Sample { row, subject, rep, line_ns: (None, None), kept: true, status, answer })
}

/// What the kept repetitions of one lock at one point amount to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// Which row of the grid.
    pub row: usize,
    /// Which lock.
    pub subject: usize,
    /// How it ended.
    pub status: Status,
    /// Operations (rounds, items) per second.
    pub rate: Option<Spread>,
    /// Rate, by that of the reference in the same group.
    pub ratio: Option<Spread>,
    /// CPU time of an operation, in nanoseconds.
    pub cpu_ns: Option<Spread>,
    /// CPU time of an operation, by the reference's.
    pub cpu_ratio: Option<Spread>,
    /// Longest wait by the reference's.
    pub wait_max_ratio: Option<Spread>,
    /// Waits: the medians of the repetitions' percentiles, but the maximum of maxima.
    pub wait: Option<crate::spec::Percentiles>,
    /// Holds, likewise.
    pub hold: Option<crate::spec::Percentiles>,
    /// Jain's index.
    pub jain: Option<f64>,
    /// CAL's fairness.
    pub cal: Option<f64>,
    /// Share of tries that failed.
    pub failed_share: Option<f64>,
    /// Bytes beside the lock.
    pub bytes_per_lock: Option<Spread>,
    /// The lock's own size.
    pub size_of: Option<u64>,
    /// Share of acquisitions overtaken (any; beyond the grace time).
    pub overtaken: Option<(f64, f64)>,
    /// Most overtakers of one acquisition: 99.9th percentile, maximum.
    pub bypass: Option<(u64, u64)>,
    /// Latency of the epochs.
    pub latency: Option<crate::spec::Percentiles>,
    /// Epochs per class of cores.
    pub epochs: Vec<EpochClass>,
    /// Ticks of an empty epoch.
    pub epoch_ticks: Option<Spread>,
    /// Bytes for each thread and epoch.
    pub bytes_per_epoch: Option<Spread>,
    /// Per class of cores: (class, operations per second per thread, P99 wait in nanoseconds).
    pub classes: Vec<(u8, f64, Option<f64>)>,
}

/// The epochs that ended on one class of cores: medians over the repetitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EpochClass {
    /// 0 is the fastest.
    pub class: u8,
    /// Epochs per second.
    pub rate: f64,
    /// Median latency, ns.
    pub p50: f64,
    /// 99th percentile of the latency, ns.
    pub p99: f64,
    /// Share of epochs that took longer than their SLO.
    pub violations: f64,
}

/// Kept samples of one row and subject that have an answer.
pub(crate) fn kept(
    measured: &Measured,
    row: usize,
    subject: usize,
) -> impl Iterator<Item = (u32, &Answer)> {
    measured
        .samples
        .iter()
        .filter(move |s| s.row == row && s.subject == subject && s.kept && s.status == Status::Ok)
        .filter_map(|s| Some((s.rep, s.answer.as_ref()?)))
}

/// `figure` of `subject` by that of `other` in the same group.
pub(crate) fn paired(
    measured: &Measured,
    row: usize,
    subject: usize,
    other: usize,
    figure: impl Fn(&Answer) -> Option<f64>,
) -> Option<Spread> {
    let values: Vec<f64> = kept(measured, row, subject)
        .filter_map(|(rep, ours)| {
            let (_, theirs) = kept(measured, row, other).find(|(r, _)| *r == rep)?;
            let ratio = figure(ours)? / figure(theirs)?;
            (!ratio.is_nan()).then_some(ratio)
        })
        .collect();
    Spread::of(&values)
}

/// Sums up.
pub(crate) fn summarise(plan: &Plan, measured: &Measured) -> Vec<Summary> {
    let mut all = Vec::new();
    for (row, wanted) in plan.rows.iter().enumerate() {
        for &subject in &wanted.subjects {
            let mine: Vec<&Answer> = kept(measured, row, subject).map(|(_, a)| a).collect();
            let bad = measured
                .samples
                .iter()
                .find(|s| s.row == row && s.subject == subject && s.status != Status::Ok);
            let spread = |f: &dyn Fn(&Answer) -> Option<f64>| {
                Spread::of(&mine.iter().filter_map(|a| f(a)).collect::<Vec<_>>())
            };
            let median = |f: &dyn Fn(&Answer) -> Option<f64>| spread(f).map(|s| s.median);
            let times = |f: fn(&Answer) -> Option<crate::spec::Percentiles>| {
                let of = |g: fn(&crate::spec::Percentiles) -> f64| spread(&|a| f(a).map(|p| g(&p)));
                Some(crate::spec::Percentiles {
                    p50: of(|p| p.p50)?.median,
                    p90: of(|p| p.p90)?.median,
                    p99: of(|p| p.p99)?.median,
                    p999: of(|p| p.p999)?.median,
                    max: of(|p| p.max)?.max,
                })
            };
            let reference = wanted.subjects[0];
            let is_memory = matches!(wanted.point.work, Work::Memory { .. });
            let rates = |s: Option<Spread>| if is_memory { None } else { s };
            let mut classes: Vec<u8> =
                mine.iter().flat_map(|a| a.classes.iter().map(|c| c.class)).collect();
            classes.sort_unstable();
            classes.dedup();
            let epochs = classes.iter().filter_map(|&class| {
                let of = |f: &dyn Fn(&Answer, &crate::spec::ClassResult) -> Option<f64>| {
                    median(&|a| a.classes.iter().find(|c| c.class == class).and_then(|c| f(a, c)))
                };
                Some(EpochClass {
                    class,
                    rate: of(&|a, c| Some(c.ops as f64 * 1e9 / a.elapsed_ns.max(1) as f64))?,
                    p50: of(&|_, c| Some(c.latency?.p50))?,
                    p99: of(&|_, c| Some(c.latency?.p99))?,
                    violations: of(&|_, c| Some(c.violations as f64 / c.ops.max(1) as f64))?,
                })
            });
            let epochs: Vec<_> = epochs.collect();
            if !epochs.is_empty() {
                classes.clear();
            }
            all.push(Summary {
                row,
                subject,
                status: bad.map_or(Status::Ok, |s| s.status),
                rate: rates(spread(&|a| Some(a.rate()))),
                ratio: rates(paired(measured, row, subject, reference, |a| Some(a.rate()))),
                cpu_ns: rates(spread(&|a| Some(a.cpu_per_op()))),
                cpu_ratio: rates(paired(measured, row, subject, reference, |a| {
                    Some(a.cpu_per_op())
                })),
                wait_max_ratio: paired(measured, row, subject, reference, |a| {
                    a.wait.map(|w| w.max)
                }),
                wait: times(|a| a.wait),
                hold: times(|a| a.hold),
                jain: median(&|a| a.jain()),
                cal: median(&|a| a.cal()),
                failed_share: median(&|a| match wanted.point.work {
                    Work::Trylock | Work::Timedlock { .. } => {
                        Some(a.failures as f64 / (a.failures + a.ops).max(1) as f64)
                    }
                    _ => None,
                }),
                bytes_per_lock: spread(&|a| a.bytes_per_lock),
                size_of: mine.first().map(|a| a.size_of).filter(|&s| s > 0),
                overtaken: median(&|a| a.overtaken).zip(median(&|a| a.overtaken_late)),
                bypass: median(&|a| a.bypass_p999.map(|b| b as f64))
                    .map(|b| b as u64)
                    .zip(mine.iter().filter_map(|a| a.longest_bypass).max()),
                latency: times(|a| a.latency),
                epochs,
                epoch_ticks: spread(&|a| a.epoch_ticks),
                bytes_per_epoch: spread(&|a| a.bytes_per_epoch),
                classes: classes
                    .into_iter()
                    .filter_map(|class| {
                        let of = |f: &dyn Fn(&Answer, &crate::spec::ClassResult) -> Option<f64>| {
                            median(&|a| {
                                a.classes.iter().find(|c| c.class == class).and_then(|c| f(a, c))
                            })
                        };
                        let rate = of(&|a, c| {
                            Some(
                                c.ops as f64 * 1e9
                                    / a.elapsed_ns.max(1) as f64
                                    / f64::from(c.threads.max(1)),
                            )
                        })?;
                        Some((class, rate, of(&|_, c| c.wait.map(|w| w.p99))))
                    })
                    .collect(),
            });
        }
    }
    all
}

/// Did one of our own locks (not a peer) hang or die?
pub(crate) fn ours_failed(plan: &Plan, measured: &Measured) -> bool {
    measured.samples.iter().any(|s| {
        matches!(s.status, Status::Hung | Status::Failed)
            && plan.subjects[s.subject].role == Role::Ours
    })
}
