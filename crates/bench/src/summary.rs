//! Summaries of the kept repetitions of each lock at each point.

use crate::measured::{Measured, Status, ceiling, hogs_cpus, kept, paired};
use crate::plan::Plan;
use crate::point::Work;
use crate::spec::{Answer, ClassResult, Percentiles};
use lockwright_numbers::Spread;
use serde::Serialize;

/// The summary of the kept repetitions of one lock at one point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// The row of the grid.
    pub row: usize,
    /// The lock.
    pub subject: usize,
    /// How it ended.
    pub status: Status,
    /// Operations (rounds, items) per second.
    pub rate: Option<Spread>,
    /// Rate relative to the reference in the same group.
    pub ratio: Option<Spread>,
    /// Rate relative to the point's maximum in the same group.
    pub of_ceiling: Option<Spread>,
    /// CPU time per operation, in nanoseconds.
    pub cpu_ns: Option<Spread>,
    /// CPU time per operation, relative to the reference.
    pub cpu_ratio: Option<Spread>,
    /// Operations per joule (TPP).
    pub tpp: Option<Spread>,
    /// Operations per joule, relative to the reference.
    pub tpp_ratio: Option<Spread>,
    /// Joules per operation (EPO).
    pub epo: Option<Spread>,
    /// The source of the energy figures.
    pub joules_source: Option<String>,
    /// The longest wait, relative to the reference.
    pub wait_max_ratio: Option<Spread>,
    /// Waits: the medians of the repetitions' percentiles, but the maximum of maxima.
    pub wait: Option<Percentiles>,
    /// Holds, computed as for waits.
    pub hold: Option<Percentiles>,
    /// Jain's index.
    pub jain: Option<f64>,
    /// CAL's fairness.
    pub cal: Option<f64>,
    /// The share of failed tries.
    pub failed_share: Option<f64>,
    /// Bytes in addition to the lock.
    pub bytes_per_lock: Option<Spread>,
    /// The lock's own size.
    pub size_of: Option<u64>,
    /// Share of acquisitions that were overtaken: at all, and beyond the grace time.
    pub overtaken: Option<(f64, f64)>,
    /// Number of overtakers of one acquisition: 99.9th percentile, maximum.
    pub bypass: Option<(u64, u64)>,
    /// Latency of the epochs.
    pub latency: Option<Percentiles>,
    /// Epochs per class of cores.
    pub epochs: Vec<EpochClass>,
    /// Ticks of an empty epoch.
    pub epoch_ticks: Option<Spread>,
    /// Bytes per thread and epoch.
    pub bytes_per_epoch: Option<Spread>,
    /// Per class of cores.
    pub classes: Vec<ClassSummary>,
    /// The number of CPUs that hogs used; `None`: there were none.
    pub hogs_cpus: Option<Spread>,
}

/// The results of threads that ended on one class of cores: medians over the repetitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassSummary {
    /// 0 is the fastest.
    pub class: u8,
    /// Operations per second and thread.
    pub rate: f64,
    /// Their waits: medians, but the maximum of maxima.
    pub wait: Option<Percentiles>,
}

/// The maximum rate of a point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ceiling {
    /// The row of the grid.
    pub row: usize,
    /// Operations per second: for each group, the maximum over all candidates.
    pub rate: Spread,
    /// That rate relative to the reference's in the same group.
    pub ratio: Option<Spread>,
    /// The candidate that was most often the fastest.
    pub by: usize,
}

/// The epochs that ended on one class of cores: medians over the repetitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EpochClass {
    /// 0 is the fastest.
    pub class: u8,
    /// Epochs per second.
    pub rate: f64,
    /// Their latency: medians, but the maximum of maxima.
    pub latency: Percentiles,
    /// Share of epochs that took longer than their SLO.
    pub violations: f64,
}

/// Computes the summaries.
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
            let times = |f: &dyn Fn(&Answer) -> Option<Percentiles>| {
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
            let in_class = |a: &Answer, class: u8| -> Option<ClassResult> {
                a.classes.iter().find(|c| c.class == class).cloned()
            };
            let epochs = classes.iter().filter_map(|&class| {
                let of = |f: &dyn Fn(&Answer, &ClassResult) -> f64| {
                    median(&|a| in_class(a, class).map(|c| f(a, &c)))
                };
                Some(EpochClass {
                    class,
                    rate: of(&|a, c| c.ops as f64 * 1e9 / a.elapsed_ns.max(1) as f64)?,
                    latency: times(&|a| in_class(a, class)?.latency)?,
                    violations: of(&|_, c| c.violations as f64 / c.ops.max(1) as f64)?,
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
                of_ceiling: rates(Spread::of(
                    &kept(measured, row, subject)
                        .filter_map(|(rep, a)| Some(a.rate() / ceiling(plan, measured, row, rep)?))
                        .collect::<Vec<_>>(),
                )),
                cpu_ns: rates(spread(&|a| Some(a.cpu_per_op()))),
                cpu_ratio: rates(paired(measured, row, subject, reference, |a| {
                    Some(a.cpu_per_op())
                })),
                tpp: rates(spread(&Answer::per_joule)),
                tpp_ratio: rates(paired(measured, row, subject, reference, Answer::per_joule)),
                epo: rates(spread(&|a| {
                    a.per_joule().map(f64::recip).filter(|epo| epo.is_finite())
                })),
                joules_source: mine
                    .iter()
                    .find(|a| a.joules.is_some())
                    .map(|a| a.joules_source.clone()),
                wait_max_ratio: paired(measured, row, subject, reference, |a| {
                    a.wait.map(|w| w.max)
                }),
                wait: times(&|a| a.wait),
                hold: times(&|a| a.hold),
                jain: median(&|a| a.jain()),
                cal: median(&|a| a.cal()),
                failed_share: median(&|a| match wanted.point.work {
                    Work::Trylock | Work::Timedlock { .. } | Work::Calls { .. } => {
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
                latency: times(&|a| a.latency),
                epochs,
                hogs_cpus: hogs_cpus(measured.samples.iter().filter(|s| {
                    s.row == row && s.subject == subject && s.kept && s.status == Status::Ok
                })),
                epoch_ticks: spread(&|a| a.epoch_ticks),
                bytes_per_epoch: spread(&|a| a.bytes_per_epoch),
                classes: classes
                    .into_iter()
                    .filter_map(|class| {
                        let rate = median(&|a| {
                            let c = in_class(a, class)?;
                            let seconds = a.elapsed_ns.max(1) as f64 / 1e9;
                            Some(c.ops as f64 / seconds / f64::from(c.threads.max(1)))
                        })?;
                        Some(ClassSummary {
                            class,
                            rate,
                            wait: times(&|a| in_class(a, class)?.wait),
                        })
                    })
                    .collect(),
            });
        }
    }
    all
}

/// The maximum rate of each point, if it was measured.
pub(crate) fn ceilings(plan: &Plan, measured: &Measured) -> Vec<Ceiling> {
    let of_row = |row: usize| {
        let reference = plan.rows[row].subjects[0];
        let mut reps: Vec<u32> =
            plan.ceilings[row].iter().flat_map(|&s| kept(measured, row, s)).map(|k| k.0).collect();
        reps.sort_unstable();
        reps.dedup();
        let highest = |rep: &u32| Some((*rep, ceiling(plan, measured, row, *rep)?));
        let best: Vec<(u32, f64)> = reps.iter().filter_map(highest).collect();
        let ratio = |(rep, rate): &(u32, f64)| {
            let (_, answer) = kept(measured, row, reference).find(|(r, _)| r == rep)?;
            Some(rate / answer.rate()).filter(|ratio| ratio.is_finite())
        };
        let wins = |subject: usize| {
            let won = |k: &(u32, &Answer)| best.contains(&(k.0, k.1.rate()));
            kept(measured, row, subject).filter(won).count()
        };
        Some(Ceiling {
            row,
            rate: Spread::of(&best.iter().map(|b| b.1).collect::<Vec<_>>())?,
            ratio: Spread::of(&best.iter().filter_map(ratio).collect::<Vec<_>>()),
            by: plan.ceilings[row].iter().copied().max_by_key(|&subject| wins(subject))?,
        })
    };
    (0..plan.rows.len()).filter_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::{measured, sample};
    use crate::plan::{Row, ceilings as places};
    use crate::point::{Length, Point};
    use crate::subject::Subject;

    #[test]
    fn a_ceiling_is_the_larger_of_two_in_the_same_group() {
        let point = Point {
            work: Work::Mutex,
            threads: 8,
            cs_ns: 1,
            gap_ns: 1,
            length: Length::Fixed,
            lines: 0,
            pin: false,
            hogs: 0,
            latency: false,
            emulate: None,
        };
        let rows = vec![Row { point, subjects: vec![0] }];
        let mut subjects = vec![Subject::glibc()];
        let ceilings_of = places(&rows, 2, None, &mut subjects);
        let plan = Plan {
            subjects,
            rows,
            ceilings: ceilings_of,
            reps: 3,
            time_s: 1.0,
            limit_s: None,
            seed: 1,
        };
        // glibc, two CPUs, one CPU: in the third group one CPU alone was faster.
        let rates = [(80, 100, 50), (90, 100, 60), (60, 40, 120)];
        let samples = (0..).zip(rates).flat_map(|(rep, (glibc, two, one))| {
            [sample(0, 0, rep, glibc), sample(0, 1, rep, two), sample(0, 2, rep, one)]
        });
        let measured = measured(samples.collect());
        let sums = summarise(&plan, &measured);
        assert_eq!(sums.len(), 1, "a ceiling is no lock");
        let of = sums[0].of_ceiling.unwrap();
        assert_eq!((of.min, of.median, of.max), (0.5, 0.8, 0.9));
        let ceilings = ceilings(&plan, &measured);
        assert_eq!((ceilings[0].rate.median, ceilings[0].rate.max), (100.0, 120.0));
        assert_eq!(ceilings[0].ratio.unwrap().max, 2.0);
        assert_eq!(plan.subjects[ceilings[0].by].name, "ceiling, 2 CPUs");
    }
}
