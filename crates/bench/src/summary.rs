//! The sums: what the kept repetitions of each lock at each point amount to.

use crate::measured::{Measured, Status, kept, paired};
use crate::plan::Plan;
use crate::point::Work;
use crate::spec::{Answer, ClassResult, Percentiles};
use crate::stats::Spread;
use serde::Serialize;

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
    pub wait: Option<Percentiles>,
    /// Holds, likewise.
    pub hold: Option<Percentiles>,
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
    pub latency: Option<Percentiles>,
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
            let times = |f: fn(&Answer) -> Option<Percentiles>| {
                let of = |g: fn(&Percentiles) -> f64| spread(&|a| f(a).map(|p| g(&p)));
                Some(Percentiles {
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
                let of = |f: &dyn Fn(&Answer, &ClassResult) -> Option<f64>| {
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
                        let of = |f: &dyn Fn(&Answer, &ClassResult) -> Option<f64>| {
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
