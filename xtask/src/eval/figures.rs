//! Figures from runs, for plots, bars and files.

use super::drivers::{Database, NO_LIMIT_NS, Run, Subject};
use super::machine::Cores;
use crate::demo::stats::spread;
use lockwright_numbers::format::{given, with_range};
use lockwright_numbers::{Spread, Times};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The share of epochs that may take longer than their SLO: 1 % by definition (P99), plus what feedback needs to
/// adjust.
pub(super) const VIOLATIONS: f64 = 0.015;

/// The share beyond P99.
const BEYOND_P99: f64 = 0.01;

/// With this number of epochs on little cores or fewer, a share of 1 % means nothing.
const ENOUGH: u64 = 300;

/// All runs of one database.
pub(super) struct Results {
    pub(super) database: Database,
    /// The locks and SLOs that are compared, each with one run per round.
    pub(super) points: Vec<Point>,
    pub(super) machine: Cores,
}

/// One lock at one SLO.
pub(super) struct Point {
    pub(super) subject: Subject,
    pub(super) runs: Vec<Run>,
}

/// A latency with its unit, in short form: `50 µs`, `1.2 ms`, `0`.
pub(super) fn slo(ns: u64) -> String {
    match ns {
        0 => "0".into(),
        NO_LIMIT_NS => "max".into(),
        _ => given(ns),
    }
}

/// Two significant digits.
pub(super) fn round(ns: f64) -> u64 {
    let unit = 10_f64.powf(ns.max(1.0).log10().floor() - 1.0).max(1.0);
    ((ns / unit).round() * unit).max(1.0) as u64
}

impl Point {
    pub(super) fn rates(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.rate).collect()
    }

    /// Operations per second, all cores.
    pub(super) fn rate(&self) -> Spread {
        spread(&self.rates())
    }

    /// Latencies of all rounds on the cores of `class`; `None`: on all cores.
    pub(super) fn latency(&self, class: Option<usize>) -> Times {
        let mut all = Times::default();
        for run in &self.runs {
            for (n, own) in run.classes.iter().enumerate() {
                if class.is_none_or(|class| class == n) {
                    all.merge(&own.latency);
                }
            }
        }
        all
    }

    fn count(&self, class: usize) -> u64 {
        self.runs.iter().map(|run| run.classes[class].operations).sum()
    }

    /// The share of operations of `class` that took longer than their runs' SLO.
    pub(super) fn violations(&self, class: usize) -> f64 {
        let over: u64 = self.runs.iter().map(|run| run.classes[class].over_slo).sum();
        over as f64 / self.count(class).max(1) as f64
    }

    /// The share of all operations that the cores of `class` did.
    pub(super) fn share(&self, class: usize) -> f64 {
        let all: u64 = (0..self.runs[0].classes.len()).map(|class| self.count(class)).sum();
        self.count(class) as f64 / all.max(1) as f64
    }
}

/// A promise, with the measured value.
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) wanted: String,
    pub(super) measured: String,
    /// `None`: no verdict is possible.
    pub(super) met: Option<bool>,
    /// Why it isn't; otherwise empty.
    pub(super) why: String,
}

impl Bar {
    pub(super) fn verdict(&self) -> String {
        match self.met {
            Some(true) => "met".into(),
            Some(false) => "missed".into(),
            None => format!("not judged: {}", self.why),
        }
    }
}

impl Results {
    pub(super) fn point(&self, lock: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.subject.lock == lock)
    }

    /// The points of the lock with SLOs, from the smallest SLO to the largest.
    pub(super) fn sweep(&self) -> Vec<&Point> {
        let mut points: Vec<_> =
            self.points.iter().filter(|point| point.subject.slo_ns.is_some()).collect();
        points.sort_by_key(|point| point.subject.slo_ns);
        points
    }

    /// The throughput of `point` relative to `base`, in the same round.
    pub(super) fn ratio(point: &Point, base: &Point) -> Spread {
        let rates = base.rates();
        spread(&point.rates().iter().zip(&rates).map(|(own, base)| own / base).collect::<Vec<_>>())
    }

    /// The share of little-core operations under FIFO that took longer than `slo_ns`.
    pub(super) fn fifo_violations(&self, slo_ns: u64) -> Option<f64> {
        let latency = self.point("fifo")?.latency(Some(self.machine.little()));
        let within = latency.cumulative().take_while(|(ns, _)| *ns <= slo_ns).last();
        Some(1.0 - within.map_or(0.0, |(_, share)| share))
    }

    /// Can a lock without overtaking keep this SLO?
    pub(super) fn feasible(&self, slo_ns: u64) -> bool {
        self.fifo_violations(slo_ns).is_none_or(|share| share <= BEYOND_P99)
    }

    /// The promises for this database.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let name = self.database.name;
        let (sweep, little) = (self.sweep(), self.machine.little());
        let mut bars = Vec::new();
        if let (Some(last), Some(fifo)) = (sweep.last(), self.point("fifo")) {
            let ratio = Results::ratio(last, fifo);
            bars.push(Bar {
                what: format!("{name}, {}", last.subject.name()),
                wanted: "at least 1.00 of fifo".into(),
                measured: with_range(&Some(ratio)),
                met: Some(ratio.median >= 1.0),
                why: String::new(),
            });
        }
        for point in sweep {
            let slo_ns = point.subject.slo_ns.unwrap_or(0);
            if slo_ns == NO_LIMIT_NS {
                continue;
            }
            let violations = point.violations(little);
            let fifo = self.fifo_violations(slo_ns);
            let (met, why) = if !self.feasible(slo_ns) {
                let share = fifo.unwrap_or(0.0) * 100.0;
                (None, format!("infeasible, since fifo itself violates it in {share:.1} %"))
            } else if point.count(little) < ENOUGH {
                (None, format!("only {} epochs", point.count(little)))
            } else {
                (Some(violations <= VIOLATIONS), String::new())
            };
            bars.push(Bar {
                what: format!("{name}, SLO {}", slo(slo_ns)),
                wanted: format!("at most {:.1} % violations", VIOLATIONS * 100.0),
                measured: format!("{:.2} %", violations * 100.0),
                met,
                why,
            });
        }
        bars
    }

    /// A name for each class, and one for all cores.
    pub(super) fn groups(&self) -> Vec<(Option<usize>, String)> {
        let classes = self.machine.classes.iter().enumerate();
        let mut groups: Vec<_> = classes.map(|(n, class)| (Some(n), class.name.clone())).collect();
        groups.push((None, "overall".into()));
        groups
    }

    /// One line per run and class.
    pub(super) fn raw(&self, csv: &mut String) {
        for point in &self.points {
            for (round, run) in point.runs.iter().enumerate() {
                for (class, own) in self.machine.classes.iter().zip(&run.classes) {
                    let at = |q| own.latency.quantile(q);
                    let _ = writeln!(
                        csv,
                        "{},{},{},{},{},{},{:.0},{},{},{:.0},{},{},{},{},{},{}",
                        self.database.id,
                        self.machine.tag(),
                        point.subject.lock,
                        point.subject.slo_ns.map_or(String::new(), |ns| ns.to_string()),
                        round + 1,
                        class.name,
                        run.rate,
                        run.seconds,
                        own.operations,
                        own.operations as f64 / run.seconds,
                        own.over_slo,
                        at(0.5),
                        at(0.95),
                        at(0.99),
                        at(0.999),
                        own.latency.max(),
                    );
                }
            }
        }
    }

    /// The distributions of all rounds together, at round percentages.
    pub(super) fn cdf(&self, csv: &mut String) {
        for point in &self.points {
            for (class, name) in self.groups() {
                let latency = point.latency(class);
                for share in SHARES {
                    let _ = writeln!(
                        csv,
                        "{},{},{},{},{name},{share},{}",
                        self.database.id,
                        self.machine.tag(),
                        point.subject.lock,
                        point.subject.slo_ns.map_or(String::new(), |ns| ns.to_string()),
                        latency.quantile(share),
                    );
                }
            }
        }
    }

    /// Medians, and verdicts if there are any.
    pub(super) fn summary(&self, judged: bool) -> Value {
        let fifo = self.point("fifo");
        json!({
            "database": self.database.id,
            "engine": self.points[0].runs[0].engine,
            "figures": self.machine.tag(),
            "points": self.points.iter().map(|point| json!({
                "lock": point.subject.lock,
                "slo_ns": point.subject.slo_ns,
                "operations_per_second": spread_json(point.rate()),
                "of_fifo": fifo.map(|fifo| spread_json(Results::ratio(point, fifo))),
                "groups": self.groups().iter().map(|(class, name)| {
                    let latency = point.latency(*class);
                    json!({
                        "name": name,
                        "share": class.map_or(1.0, |class| point.share(class)),
                        "violations": class.map(|class| point.violations(class)),
                        "p50_ns": latency.quantile(0.5),
                        "p95_ns": latency.quantile(0.95),
                        "p99_ns": latency.quantile(0.99),
                        "p99.9_ns": latency.quantile(0.999),
                        "max_ns": latency.max(),
                    })
                }).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "bars": self.bars().iter().map(|bar| json!({
                "what": bar.what, "wanted": bar.wanted, "measured": bar.measured,
                "verdict": if judged { bar.verdict() } else { "too short".into() },
            })).collect::<Vec<_>>(),
        })
    }
}

fn spread_json(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

/// Columns of [`Results::raw`].
pub(super) const RAW: &str = "database,figures,lock,slo_ns,round,class,total_ops_per_s,seconds,operations,\
                              ops_per_s,over_slo,p50_ns,p95_ns,p99_ns,p99.9_ns,max_ns\n";

/// Columns of [`Results::cdf`].
pub(super) const CDF: &str = "database,figures,lock,slo_ns,class,share,latency_ns\n";

const SHARES: [f64; 28] = [
    0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75,
    0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999, 1.0,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::drivers::{ClassRun, DATABASES};

    /// A run on two cores; on the little one, 1000 operations, `over` of which exceed the SLO.
    fn run(rate: f64, ns: u64, over: u64) -> Run {
        let mut latency = Times::default();
        latency.add(ns, 1000 - over);
        latency.add(100 * ns, over);
        let little = ClassRun { operations: 1000, over_slo: over, latency };
        Run {
            rate,
            seconds: 1.0,
            cpu_seconds: 2.0,
            classes: vec![little.clone(), little],
            engine: "E 1".into(),
            libc: "glibc".into(),
            epochs: true,
        }
    }

    fn results(asl: &[(u64, f64, u64)]) -> Results {
        let point = |lock: &str, slo_ns, run| Point {
            subject: Subject { lock: lock.into(), slo_ns },
            runs: vec![run],
        };
        let mut points = vec![point("fifo", None, run(100.0, 1000, 5))];
        points.extend(
            asl.iter().map(|&(slo, rate, over)| point("asl", Some(slo), run(rate, 1000, over))),
        );
        let machine = Cores::parse("big:0,little:1x2").unwrap();
        Results { database: DATABASES[0], points, machine }
    }

    #[test]
    fn bars_judge_what_fifo_can_keep() {
        let results = results(&[
            (NO_LIMIT_NS, 90.0, 0),
            (0, 1.0, 1000),
            (2000, 100.0, 10),
            (4000, 100.0, 20),
        ]);
        let verdicts: Vec<_> = results.bars().iter().map(Bar::verdict).collect();
        let infeasible = "not judged: infeasible, since fifo itself violates it in 100.0 %";
        assert_eq!(verdicts, ["missed", infeasible, "met", "missed"]);
        assert!(!results.feasible(999) && results.feasible(1000));
        assert_eq!(results.fifo_violations(50_000).map(|share| (share * 1e4).round()), Some(50.0));
    }

    #[test]
    fn files_have_a_line_for_each_run_and_class() {
        let results = results(&[(2000, 120.0, 10)]);
        let (mut raw, mut cdf) = (String::new(), String::new());
        results.raw(&mut raw);
        results.cdf(&mut cdf);
        assert_eq!(raw.lines().count(), 4);
        assert_eq!(cdf.lines().count(), 2 * 3 * SHARES.len());
        let columns = |text: &str| text.trim().split(',').count();
        assert!(raw.lines().all(|line| columns(line) == columns(RAW)));
        assert!(cdf.lines().all(|line| columns(line) == columns(CDF)));
        assert_eq!(results.summary(true)["points"][1]["of_fifo"]["median"], 1.2);
    }

    #[test]
    fn objectives_are_short() {
        assert_eq!(
            [slo(0), slo(2_000), slo(1_250_000), slo(NO_LIMIT_NS)],
            ["0", "2 µs", "1.25 ms", "max"]
        );
        assert_eq!([round(2345.0), round(99.6), round(0.0), round(7.0)], [2300, 100, 1, 7]);
    }
}
