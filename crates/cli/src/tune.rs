//! `lockwright tune`: runs a program with a range of SLOs, and evaluates the results.
//!
//! ```text
//!  settings (SLOs, other locks) ─► measure ─► runs ─► curves ─► advice ─► plot, report
//! ```

pub(crate) mod advice;
pub(crate) mod measure;
mod pareto;
mod plot;
pub(crate) mod report;

use crate::epochs::{ClassNames, Record, Verdict, judge, percentile, tail};
use lockwright_numbers::Spread;
use lockwright_numbers::units::word;
use lockwright_stats::{ClassStats, Epoch};
use serde::Serialize;

/// The settings of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// The tuned lock with this SLO, in ns.
    Slo(u64),
    /// Another lock, for comparison.
    Lock(String),
}

impl Setting {
    pub(crate) fn label(&self) -> String {
        match self {
            Setting::Slo(ns) => format!("SLO {}", word(*ns)),
            Setting::Lock(lock) => lock.clone(),
        }
    }
}

/// `steps` SLOs from `low` to `high` ns in a geometric sequence, rounded to three digits.
pub(crate) fn steps(low: u64, high: u64, steps: u32) -> Vec<u64> {
    let ratio = high as f64 / low as f64;
    let mut slos: Vec<_> = (0..steps)
        .map(|step| match step {
            0 => low,
            last if last + 1 == steps => high,
            _ => {
                let ns = low as f64 * ratio.powf(f64::from(step) / f64::from(steps - 1));
                let digit = 10f64.powf(ns.log10().floor() - 2.0).max(1.0);
                ((ns / digit).round() * digit) as u64
            }
        })
        .collect();
    slos.dedup();
    slos
}

/// A completed run.
#[derive(Clone, Debug)]
pub(crate) struct TuneRun {
    pub(crate) setting: usize,
    /// 1, 2, ...
    pub(crate) round: u32,
    pub(crate) record: Record,
    /// For the whole run; `None`: not known.
    pub(crate) joules: Option<f64>,
}

/// One epoch under one setting: medians and ranges over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// Executions per second.
    pub(crate) rate: Spread,
    /// Latency at the epoch's percentile, ns, over all cores.
    pub(crate) all: Spread,
    /// That latency on the slowest class of cores.
    pub(crate) slow: Spread,
    /// That latency on the fastest class, if there are several classes.
    pub(crate) fast: Option<Spread>,
    /// Executions per joule.
    pub(crate) per_joule: Option<Spread>,
    /// The share of executions that took longer than the SLO: 0 to 1.
    pub(crate) violations: f64,
    /// Executions on the slowest class, in the run with the fewest.
    pub(crate) executions: u64,
    #[serde(serialize_with = "as_word")]
    pub(crate) verdict: Verdict,
}

fn as_word<S: serde::Serializer>(verdict: &Verdict, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(verdict.word())
}

/// One epoch under all settings.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) epoch: String,
    /// `P99`.
    pub(crate) percentile: String,
    /// The names of the fastest and the slowest class that executed it, if they differ.
    pub(crate) classes: Option<(String, String)>,
    /// By SLO in ns, in ascending order.
    pub(crate) slos: Vec<(u64, Point)>,
    /// The locks used for comparison.
    pub(crate) locks: Vec<(String, Point)>,
}

impl Curve {
    /// `little cores`, or `all cores` if there is only one class.
    pub(crate) fn slow_cores(&self) -> String {
        self.classes.as_ref().map_or("all cores".into(), |(_, slow)| format!("{slow} cores"))
    }

    pub(crate) fn lock(&self, name: &str) -> Option<&Point> {
        self.locks.iter().find(|(lock, _)| lock == name).map(|(_, point)| point)
    }
}

/// One curve per epoch, the one with the most executions first.
pub(crate) fn curves(settings: &[Setting], runs: &[TuneRun], names: &ClassNames) -> Vec<Curve> {
    let mut epochs: Vec<(String, u64)> = Vec::new();
    for (name, epoch) in runs.iter().flat_map(|run| run.record.epochs()) {
        match epochs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += epoch.all().count,
            None => epochs.push((name, epoch.all().count)),
        }
    }
    epochs.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    epochs.iter().map(|(name, _)| curve(name, settings, runs, names)).collect()
}

fn curve(name: &str, settings: &[Setting], runs: &[TuneRun], names: &ClassNames) -> Curve {
    let of = |run: &TuneRun| -> Option<Epoch> {
        run.record.epochs().find(|(other, _)| other == name).map(|(_, epoch)| epoch.clone())
    };
    let known: Vec<(&TuneRun, Epoch)> =
        runs.iter().filter_map(|run| Some((run, of(run)?))).collect();
    let executed = |epoch: &Epoch| -> Vec<u8> {
        epoch.classes.iter().filter(|class| class.count > 0).map(|class| class.class).collect()
    };
    let classes = || known.iter().flat_map(|(_, epoch)| executed(epoch));
    let (fast, slow) = (classes().min().unwrap_or(0), classes().max().unwrap_or(0));
    let mut curve = Curve {
        epoch: name.to_owned(),
        percentile: known.first().map_or("P99".into(), |(_, epoch)| percentile(epoch)),
        classes: (fast != slow).then(|| (names.of(fast).to_owned(), names.of(slow).to_owned())),
        slos: Vec::new(),
        locks: Vec::new(),
    };
    for (at, setting) in settings.iter().enumerate() {
        let own: Vec<_> = known.iter().filter(|(run, _)| run.setting == at).collect();
        let Some(point) = point(&own, fast, slow) else { continue };
        match setting {
            Setting::Slo(ns) => curve.slos.push((*ns, point)),
            Setting::Lock(lock) => curve.locks.push((lock.clone(), point)),
        }
    }
    curve.slos.sort_by_key(|(ns, _)| *ns);
    curve
}

fn point(runs: &[&(&TuneRun, Epoch)], fast: u8, slow: u8) -> Option<Point> {
    let of_class = |epoch: &Epoch, number: u8| -> Option<ClassStats> {
        epoch.classes.iter().find(|class| class.class == number && class.count > 0).cloned()
    };
    let spread = |figure: &dyn Fn(&TuneRun, &Epoch) -> Option<f64>| {
        let values: Vec<_> = runs.iter().filter_map(|(run, epoch)| figure(run, epoch)).collect();
        Spread::of(&values)
    };
    let tail_of = |number| {
        spread(&|_, epoch| of_class(epoch, number).map(|class| tail(epoch, &class) as f64))
    };
    let all = spread(&|_, epoch| Some(tail(epoch, &epoch.all()) as f64))?;
    let (count, violations) = runs.iter().fold((0, 0), |(count, violations), (_, epoch)| {
        let all = epoch.all();
        (count + all.count, violations + all.violations)
    });
    // The most frequent verdict of the rounds; in a tie, the worse one.
    let mut verdicts: Vec<_> = runs.iter().map(|(_, epoch)| judge(epoch)).collect();
    verdicts.sort();
    let on_slow = |epoch: &Epoch| of_class(epoch, slow).map_or(0, |class| class.count);
    Some(Point {
        rate: spread(&|run, epoch| {
            Some(epoch.all().count as f64 / run.record.seconds).filter(|rate| rate.is_finite())
        })?,
        all,
        slow: tail_of(slow).unwrap_or(all),
        fast: if fast == slow { None } else { tail_of(fast) },
        per_joule: spread(&|run, epoch| {
            let joules = run.joules.filter(|joules| *joules > 0.0)?;
            Some(epoch.all().count as f64 / joules)
        }),
        violations: violations as f64 / count.max(1) as f64,
        executions: runs.iter().map(|(_, epoch)| on_slow(epoch)).min()?,
        verdict: *verdicts.get(verdicts.len() / 2)?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::epochs::tests::{class, epoch, record};

    /// Latencies in us, as in the paper's Figure 8b.
    pub(crate) fn example() -> Curve {
        let spread = |value: f64| Spread::of(&[value * 0.96, value, value * 1.03]).unwrap();
        let point = |rate: f64, fast: f64, slow: f64, verdict| Point {
            rate: spread(rate),
            all: spread((fast * slow).sqrt() * 1e3),
            slow: spread(slow * 1e3),
            fast: Some(spread(fast * 1e3)),
            per_joule: None,
            violations: 0.01,
            executions: 10_000,
            verdict,
        };
        let slo =
            |us: u64, rate, fast, slow, verdict| (us * 1000, point(rate, fast, slow, verdict));
        let (kept, infeasible) = (Verdict::Kept, Verdict::Infeasible);
        Curve {
            epoch: "get".into(),
            percentile: "P99".into(),
            classes: Some(("big".into(), "little".into())),
            slos: vec![
                slo(25, 100e3, 58.0, 60.0, infeasible),
                slo(50, 101e3, 58.0, 61.0, infeasible),
                slo(100, 140e3, 40.0, 99.0, kept),
                slo(200, 165e3, 30.0, 198.0, kept),
                slo(400, 180e3, 25.0, 401.0, kept),
                slo(800, 182e3, 22.0, 790.0, kept),
                slo(1600, 183e3, 21.0, 1000.0, kept),
            ],
            locks: vec![
                ("fifo".into(), point(100e3, 58.0, 60.0, kept)),
                ("barging".into(), point(130e3, 60.0, 400.0, kept)),
            ],
        }
    }

    #[test]
    fn steps_grow_by_one_factor_from_end_to_end() {
        assert_eq!(steps(20_000, 2_000_000, 3), [20_000, 200_000, 2_000_000]);
        let many = steps(20_000, 2_000_000, 12);
        assert_eq!((many.len(), many[0], many[11]), (12, 20_000, 2_000_000));
        for pair in many.windows(2) {
            assert!((1.48..1.56).contains(&(pair[1] as f64 / pair[0] as f64)), "{pair:?}");
        }
        assert_eq!(steps(1, 3, 12), [1, 2, 3]);
    }

    #[test]
    fn points_are_medians_over_the_rounds() {
        let settings = [Setting::Slo(100_000), Setting::Lock("fifo".into())];
        let run = |setting, round, n, slow_ns| {
            let classes = vec![
                class(0, 100_000, &vec![10_000; n], false),
                class(1, 100_000, &[slow_ns; 100], false),
            ];
            let record = record(vec![epoch("get", 100_000, classes)]);
            TuneRun { setting, round, record, joules: Some(0.5) }
        };
        let runs = [run(0, 1, 300, 90_000), run(0, 2, 500, 99_000), run(0, 3, 400, 140_000)];
        let names = ClassNames::new(None);
        let curves = curves(&settings, &runs, &names);
        let [curve] = &curves[..] else { panic!("one epoch") };
        assert!(curve.locks.is_empty() && curve.lock("fifo").is_none());
        let [(100_000, point)] = &curve.slos[..] else { panic!("one SLO") };
        // 400 + 100 executions in two seconds.
        assert_eq!((point.rate.median, point.rate.n), (250.0, 3));
        assert!((point.slow.median - 99_000.0).abs() < 2000.0);
        assert_eq!(point.per_joule.map(|spread| spread.median), Some(1000.0));
        assert_eq!(point.verdict, Verdict::Kept);
        assert_eq!(point.executions, 100);
        assert!((point.violations - 100.0 / 1500.0).abs() < 1e-9);
    }
}
