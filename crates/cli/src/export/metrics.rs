//! Formats samples as OpenMetrics.

use crate::hints::Failure;
use lockwright_numbers::Times;
use lockwright_observer::counts::observation::Observed;
use lockwright_observer::counts::snapshot::{self, Of};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// The histograms' bounds, ns: a few in each decade of typical lock times.
const BOUNDS_NS: [u64; 16] = [
    250,
    1_000,
    2_500,
    10_000,
    25_000,
    100_000,
    250_000,
    1_000_000,
    2_500_000,
    10_000_000,
    25_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

/// What one process's locks have done since it began to count.
#[derive(Debug)]
pub(crate) struct Told {
    locks: Vec<LockTotals>,
}

#[derive(Debug)]
struct LockTotals {
    labels: Vec<(&'static str, String)>,
    contended: u64,
    slept: u64,
    gave_up: u64,
    blocked_s: f64,
    wait: Histogram,
    hold: Histogram,
}

#[derive(Debug)]
struct Histogram {
    sum_s: f64,
    count: u64,
    /// Upper bounds, s, each with the number of values above the previous bound and up to this one.
    buckets: Vec<(f64, u64)>,
}

impl Histogram {
    fn new(times: &Times, sum_ns: u64) -> Self {
        let counts = times.up_to(&BOUNDS_NS);
        let count = times.count();
        let beyond = count - counts.iter().sum::<u64>();
        let bounds = BOUNDS_NS.iter().map(|&ns| ns as f64 / 1e9).chain([f64::INFINITY]);
        let buckets = bounds.zip(counts.into_iter().chain([beyond])).collect();
        Self { sum_s: sum_ns as f64 / 1e9, count, buckets }
    }
}

impl Told {
    /// `named` are the locks to show, chosen from `all`.
    pub(crate) fn new(named: &Observed, all: &[Rc<snapshot::Lock>], process: String) -> Self {
        let all: BTreeMap<Of, _> = all.iter().map(|lock| (lock.of, lock)).collect();
        let mut names = BTreeSet::new();
        let lock = |ranked: &lockwright_observer::counts::observation::Ranked| {
            let lock = all.get(&ranked.of)?;
            // Two locks with one name (static variables in two files) must not share a series.
            let name = match names.insert(ranked.name.clone()) {
                true => ranked.name.clone(),
                false => format!("{} at {:#x}", ranked.name, ranked.address),
            };
            Some(LockTotals {
                labels: vec![
                    ("process", process.clone()),
                    ("pid", named.pid.to_string()),
                    ("lock", name),
                ],
                contended: lock.arrived,
                slept: lock.asleep(),
                gave_up: lock.gave_up,
                blocked_s: lock.blocked_ns as f64 / 1e9,
                wait: Histogram::new(&lock.wait(), lock.wait_ns()),
                hold: Histogram::new(&lock.hold, lock.hold_ns),
            })
        };
        Self { locks: named.locks.iter().filter_map(lock).collect() }
    }
}

#[derive(Debug)]
struct All(Vec<Told>);

impl All {
    fn locks(&self) -> impl Iterator<Item = &LockTotals> {
        self.0.iter().flat_map(|told| &told.locks)
    }

    fn counters<N>(
        &self,
        to: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        of: impl Fn(&LockTotals) -> N,
    ) -> fmt::Result
    where
        ConstCounter<N>: EncodeMetric,
    {
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for lock in self.locks() {
            ConstCounter::new(of(lock)).encode(metric.encode_family(&lock.labels)?)?;
        }
        Ok(())
    }

    fn histograms(
        &self,
        to: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        of: impl Fn(&LockTotals) -> &Histogram,
    ) -> fmt::Result {
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for lock in self.locks() {
            let Histogram { sum_s, count, buckets } = of(lock);
            let mut metric = metric.encode_family(&lock.labels)?;
            metric.encode_histogram::<NoLabelSet>(*sum_s, *count, buckets, None)?;
        }
        Ok(())
    }
}

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut encoder;
        let contended = ("lockwright_lock_contended", "Threads that had to wait for the lock");
        self.counters(to, contended, |lock| lock.contended)?;
        let slept = ("lockwright_lock_slept", "Waits with a sleep");
        self.counters(to, slept, |lock| lock.slept)?;
        let gave_up =
            ("lockwright_lock_gave_up", "Waits that ended at their deadline, without the lock");
        self.counters(to, gave_up, |lock| lock.gave_up)?;
        let blocked = (
            "lockwright_lock_blocked_seconds",
            "Time in which at least one thread waited for the lock",
        );
        self.counters(to, blocked, |lock| lock.blocked_s)?;
        let wait = ("lockwright_lock_wait_seconds", "Waits that were timed");
        self.histograms(to, wait, |lock| &lock.wait)?;
        let hold = ("lockwright_lock_hold_seconds", "Hold times of threads that had to wait");
        self.histograms(to, hold, |lock| &lock.hold)
    }
}

/// The OpenMetrics text.
pub(crate) fn text(told: Vec<Told>) -> Result<String, Failure> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(told)));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(Failure::new)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        let histogram =
            || Histogram { sum_s: 0.5, count: 3, buckets: vec![(0.1, 2), (f64::INFINITY, 1)] };
        let lock = LockTotals {
            labels: vec![("process", "a \"b\"\n".to_owned()), ("pid", "7".to_owned())],
            contended: 3,
            slept: 2,
            gave_up: 1,
            blocked_s: 0.25,
            wait: histogram(),
            hold: histogram(),
        };
        text(vec![Told { locks: vec![lock] }]).unwrap()
    }

    #[test]
    fn what_is_told_is_open_metrics() {
        let text = page();
        let labels = r#"process="a \"b\"\n",pid="7""#;
        for line in [
            "# TYPE lockwright_lock_contended counter".to_owned(),
            format!("lockwright_lock_contended_total{{{labels}}} 3"),
            format!("lockwright_lock_blocked_seconds_total{{{labels}}} 0.25"),
            format!("lockwright_lock_wait_seconds_sum{{{labels}}} 0.5"),
            format!("lockwright_lock_wait_seconds_count{{{labels}}} 3"),
            format!("lockwright_lock_wait_seconds_bucket{{le=\"0.1\",{labels}}} 2"),
            format!("lockwright_lock_wait_seconds_bucket{{le=\"+Inf\",{labels}}} 3"),
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// The dashboard uses only metrics that exist.
    #[test]
    fn the_dashboard_asks_for_metrics_that_are_told() {
        let board = include_str!("../../../../contrib/grafana.json");
        let board: serde_json::Value = serde_json::from_str(board).unwrap();
        let panels = board["panels"].as_array().unwrap();
        let queries: Vec<_> = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
            .map(|target| target["expr"].as_str().unwrap())
            .collect();
        let text = page();
        let is_told = |name: &str| text.lines().any(|line| line.starts_with(&format!("{name}{{")));
        let mut count = 0;
        for query in queries {
            let words = query.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            for name in words.filter(|word| word.starts_with("lockwright_")) {
                assert!(is_told(name), "{name} of {query}");
                count += 1;
            }
        }
        assert!(count >= 5, "{count} names");
    }

    #[test]
    fn every_time_lies_in_a_bucket() {
        let histogram = Histogram::new(&Times::default(), 7_000);
        assert_eq!((histogram.count, histogram.buckets.len()), (0, BOUNDS_NS.len() + 1));
        assert!(BOUNDS_NS.is_sorted());
    }
}
