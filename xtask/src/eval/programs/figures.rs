//! Figures from runs: ratios within rounds, bars, and lines for files.

use super::bench::Program;
use super::bench::{ProgramSample, Tail};
use crate::demo::stats::spread;
use lockwright_numbers::Spread;
use lockwright_numbers::format::{self, si, time, with_range};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The compared figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Rate,
    P99,
    P999,
    Longest,
    Cpu,
}
use Metric::{Cpu, Longest, P99, P999, Rate};

pub(super) const METRICS: [Metric; 5] = [Rate, P99, P999, Longest, Cpu];

/// The default lock, for which there are promises.
const JUDGED: &str = "auto";

impl Metric {
    /// The heading of a column.
    pub(super) fn head(self) -> &'static str {
        match self {
            Rate => "ops/s",
            P99 => "P99",
            P999 => "P99.9",
            Longest => "longest",
            Cpu => "CPU/op",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Rate => "operations per second",
            P99 => "P99 latency",
            P999 => "P99.9 latency",
            Longest => "longest operation",
            Cpu => "CPU time an operation",
        }
    }

    /// `None`: a batch program is a single operation, without percentiles.
    pub(super) fn of(self, sample: &ProgramSample) -> Option<f64> {
        match (self, sample.tails) {
            (Rate, _) => Some(sample.rate),
            (Cpu, _) => Some(sample.cpu_ns),
            (Longest, Tail::Whole(ns)) => Some(ns),
            (_, Tail::Whole(_)) => None,
            (P99, Tail::Of(tails)) => Some(tails.p99),
            (P999, Tail::Of(tails)) => Some(tails.p999),
            (Longest, Tail::Of(tails)) => Some(tails.longest),
        }
    }

    /// The bar for the default's ratio to glibc: a bound, and whether it is a minimum.
    pub(super) fn bar(self) -> Option<(f64, bool)> {
        match self {
            Rate => Some((0.98, true)),
            P99 => Some((1.05, false)),
            Longest => Some((1.1, false)),
            P999 | Cpu => None,
        }
    }
}

/// All runs of one program.
pub(super) struct Results {
    pub(super) program: &'static Program,
    /// The first is glibc.
    pub(super) locks: Vec<String>,
    /// For each lock, one run per round.
    pub(super) runs: Vec<Vec<ProgramSample>>,
}

impl Results {
    pub(super) fn values(&self, metric: Metric, lock: usize) -> Option<Vec<f64>> {
        self.runs[lock].iter().map(|sample| metric.of(sample)).collect()
    }

    pub(super) fn value(&self, metric: Metric, lock: usize) -> Option<Spread> {
        self.values(metric, lock).map(|all| spread(&all))
    }

    /// Energy per operation (EPO), J; throughput per power (TPP) is its inverse. `None`: not measured.
    pub(super) fn joules(&self, lock: usize) -> Option<Vec<f64>> {
        self.runs[lock].iter().map(|sample| sample.joules).collect()
    }

    /// TPP relative to glibc's in the same round.
    pub(super) fn tpp_ratio(&self, lock: usize) -> Option<Spread> {
        let (own, base) = (self.joules(lock)?, self.joules(0)?);
        Some(spread(&base.iter().zip(&own).map(ratio).collect::<Vec<_>>()))
    }

    /// Ratios to glibc's figure in the same round, one per round.
    pub(super) fn ratios(&self, metric: Metric, lock: usize) -> Option<Vec<f64>> {
        let (own, base) = (self.values(metric, lock)?, self.values(metric, 0)?);
        Some(own.iter().zip(&base).map(ratio).collect())
    }

    pub(super) fn ratio(&self, metric: Metric, lock: usize) -> Option<Spread> {
        self.ratios(metric, lock).map(|all| spread(&all))
    }

    /// A cell of the table: glibc's own figure, or another lock's ratio.
    pub(super) fn cell(&self, metric: Metric, lock: usize) -> String {
        let text = if lock == 0 {
            self.value(metric, 0).map(|value| match metric {
                Rate => si(value.median),
                _ => time(value.median),
            })
        } else {
            self.ratio(metric, lock).map(|ratio| format::ratio(ratio.median))
        };
        text.unwrap_or_else(|| "-".into())
    }

    /// Does this ratio meet its bar? `None`: there is no bar for this lock.
    pub(super) fn is_met(&self, metric: Metric, lock: usize) -> Option<bool> {
        let (bound, lowest) = metric.bar().filter(|_| self.locks[lock] == JUDGED)?;
        let ratio = self.ratio(metric, lock)?.median;
        Some(if lowest { ratio >= bound } else { ratio <= bound })
    }

    /// One line for each missed bar.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for lock in 1..self.locks.len() {
            for metric in METRICS {
                let (Some(false), Some((bound, lowest)), Some(ratio)) =
                    (self.is_met(metric, lock), metric.bar(), self.ratio(metric, lock))
                else {
                    continue;
                };
                lines.push(format!(
                    "{}: {} {}, wanted {} {bound:.2}",
                    self.program.id,
                    metric.name(),
                    with_range(&Some(ratio)),
                    if lowest { "at least" } else { "at most" },
                ));
            }
        }
        lines
    }

    /// One line per run.
    pub(super) fn raw(&self, csv: &mut String) {
        for (lock, runs) in self.locks.iter().zip(&self.runs) {
            for (round, sample) in runs.iter().enumerate() {
                let _ = write!(csv, "{},{lock},{}", self.program.id, round + 1);
                let p50 = match sample.tails {
                    Tail::Of(tails) => Some(tails.p50),
                    Tail::Whole(_) => None,
                };
                let figures = [Rate, Cpu].map(|metric| metric.of(sample));
                let tails = [P99, P999, Longest].map(|metric| metric.of(sample));
                for value in figures.into_iter().chain([p50]).chain(tails) {
                    let _ = match value {
                        Some(value) => write!(csv, ",{value:.0}"),
                        None => write!(csv, ","),
                    };
                }
                let _ = match sample.joules {
                    Some(joules) => write!(csv, ",{joules:.3e}"),
                    None => write!(csv, ","),
                };
                csv.push('\n');
            }
        }
    }

    pub(super) fn summary(&self, judged: bool) -> Value {
        let locks = self.locks.iter().enumerate().map(|(lock, name)| {
            let metrics = METRICS.map(|metric| {
                let spread = |spread: Option<Spread>| {
                    spread.map(|s| json!({ "median": s.median, "min": s.min, "max": s.max }))
                };
                json!({
                    "name": metric.name(),
                    "value": spread(self.value(metric, lock)),
                    "of_glibc": spread(self.ratio(metric, lock)),
                    "met": self.is_met(metric, lock).filter(|_| judged),
                })
            });
            let epo = self.joules(lock).map(|all| spread(&all).median);
            let energy = epo.map(|epo| {
                let to_glibc = self.tpp_ratio(lock).map(|ratio| ratio.median);
                json!({ "epo_j": epo, "tpp_ops_per_j": 1.0 / epo, "tpp_of_glibc": to_glibc })
            });
            json!({ "lock": name, "metrics": metrics, "energy": energy })
        });
        json!({
            "program": self.program.id,
            "name": self.program.name,
            "rounds": self.runs[0].len(),
            "locks": locks.collect::<Vec<_>>(),
        })
    }
}

/// Zero by zero (CPU time, or energy, below what is counted) is one.
fn ratio((own, base): (&f64, &f64)) -> f64 {
    if own == base { 1.0 } else { own / base }
}

/// Columns of [`Results::raw`]; times in ns.
pub(super) const RAW: &str =
    "program,lock,round,ops_per_s,cpu_per_op_ns,p50_ns,p99_ns,p99.9_ns,longest_ns,joules_per_op\n";

#[cfg(test)]
mod tests {
    use super::super::list::PROGRAMS;
    use super::super::load::Tails;
    use super::*;

    fn sample(rate: f64, ns: f64) -> ProgramSample {
        let tails = Tails { p50: ns, p99: 2.0 * ns, p999: 3.0 * ns, longest: 4.0 * ns };
        // The power is always 50 W.
        let joules = Some(50.0 / rate);
        ProgramSample { rate, cpu_ns: 1e9 / rate, joules, tails: Tail::Of(tails), output: None }
    }

    fn batch(took: f64) -> ProgramSample {
        let tails = Tail::Whole(took);
        ProgramSample { rate: 1e9 / took, cpu_ns: took, joules: None, tails, output: Some(1) }
    }

    impl Results {
        /// An example with the widest possible figures.
        pub(in super::super) fn example(program: &'static Program) -> Results {
            let runs = vec![vec![sample(123_456.0, 123_456.0)], vec![sample(22_345.0, 1e9)]];
            Results { program, locks: vec!["glibc".into(), "auto".into()], runs }
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let runs = vec![
            vec![sample(100.0, 10.0), sample(200.0, 20.0), sample(300.0, 10.0)],
            vec![sample(110.0, 11.0), sample(200.0, 20.0), sample(270.0, 12.0)],
        ];
        let results =
            Results { program: &PROGRAMS[0], locks: vec!["glibc".into(), "auto".into()], runs };
        let ratio = results.ratio(Rate, 1).unwrap();
        assert_eq!((ratio.median, ratio.min), (1.0, 0.9));
        // At equal power, TPP ratios equal throughput ratios.
        let tpp = results.tpp_ratio(1).unwrap();
        assert!((tpp.median - 1.0).abs() < 1e-9 && (tpp.min - 0.9).abs() < 1e-9);
        assert_eq!(results.cell(P99, 1), "1.10");
        assert_eq!(results.cell(Rate, 0), "200");
        let missed = results.missed();
        assert_eq!(missed.len(), 1, "{missed:?}");
        assert!(missed[0].contains("P99 latency 1.10 [1.00 .. 1.20], wanted at most 1.05"));
    }

    #[test]
    fn other_locks_are_not_judged() {
        let runs = vec![vec![batch(1e9)], vec![batch(2e9)]];
        let of = |lock: &str| Results {
            program: &PROGRAMS[0],
            locks: vec!["glibc".into(), lock.into()],
            runs: runs.clone(),
        };
        assert_eq!(of("fifo").missed().len(), 0);
        assert_eq!(of("auto").missed().len(), 2);
        assert!(of("auto").tpp_ratio(1).is_none(), "nobody measured joules");
        assert_eq!(of("auto").cell(P99, 1), "-");
        assert_eq!(of("auto").ratio(Longest, 1).map(|ratio| ratio.median), Some(2.0));
    }

    #[test]
    fn files_have_a_line_for_each_run() {
        let mut csv = RAW.to_owned();
        Results::example(&PROGRAMS[0]).raw(&mut csv);
        let columns: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [10, 10, 10]);
    }
}
