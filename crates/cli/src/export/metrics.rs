//! Formats samples as OpenMetrics.

use crate::hints::Failure;
use lockwright_numbers::Times;
use lockwright_observer::counts::beyond::{Side, Sides};
use lockwright_observer::counts::observation::{Observed, Ranked};
use lockwright_observer::counts::snapshot::{self, Of};
use lockwright_observer::standing::Standing;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
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
    conditions: Vec<ConditionTotals>,
    now: WaitingNow,
}

/// A condition variable, for which threads wait without contention, unless it acts as a lock.
#[derive(Debug)]
struct ConditionTotals {
    labels: Labels,
    waits: u64,
    wait_s: f64,
    woken: u64,
    in_vain: u64,
}

/// Threads that have waited for long, or for ever.
#[derive(Debug)]
struct WaitingNow {
    labels: Labels,
    threads: usize,
    /// `None`: threads wait, but since when isn't known.
    longest_s: Option<f64>,
    deadlocked: usize,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct LockTotals {
    labels: Labels,
    contended: u64,
    slept: u64,
    gave_up: u64,
    wait: Histogram,
    hold: Histogram,
    failed_tries: u64,
    sides: Option<Sides>,
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
    /// `named` are the locks and condition variables to show, chosen from `locks` and `conditions`.
    pub(crate) fn new(
        named: &Observed,
        locks: &[Rc<snapshot::Lock>],
        conditions: &[Rc<snapshot::Lock>],
        standing: &Standing,
        process: &str,
    ) -> Self {
        let of = |labels: &[(&'static str, String)]| {
            let own = [("process", process.to_owned()), ("pid", named.pid.to_string())];
            own.into_iter().chain(labels.iter().cloned()).collect()
        };
        let locks = each(&named.locks, locks, |name, lock| LockTotals {
            labels: of(&[("lock", name)]),
            contended: lock.arrived,
            slept: lock.asleep(),
            gave_up: lock.gave_up,
            wait: Histogram::new(&lock.wait(), lock.wait_ns()),
            hold: Histogram::new(&lock.hold, lock.hold_ns),
            failed_tries: lock.beyond.failed_tries,
            sides: lock.beyond.sides,
        });
        let conditions = each(&named.conditions, conditions, |name, condition| {
            let wakes = condition.beyond.wakes.unwrap_or_default();
            ConditionTotals {
                labels: of(&[("condition", name)]),
                waits: condition.arrived,
                wait_s: condition.wait_ns() as f64 / 1e9,
                woken: wakes.woken,
                in_vain: wakes.wasted,
            }
        });
        let longest = standing.waits.iter().filter_map(|wait| wait.since).max();
        let now = WaitingNow {
            labels: of(&[]),
            threads: standing.waits.len() + standing.in_line,
            longest_s: match longest {
                None if standing.is_empty() => Some(0.0),
                longest => longest.map(|since| since.as_secs_f64()),
            },
            deadlocked: standing.deadlocks.iter().map(Vec::len).sum(),
        };
        Self { locks, conditions, now }
    }
}

/// Each of them, with a name of its own: two locks with one name (static variables in two files) must not share a series.
fn each<T>(
    named: &[Ranked],
    all: &[Rc<snapshot::Lock>],
    told: impl Fn(String, &snapshot::Lock) -> T,
) -> Vec<T> {
    let all: BTreeMap<Of, _> = all.iter().map(|lock| (lock.of, lock)).collect();
    let mut names = BTreeSet::new();
    let one = |ranked: &Ranked| {
        let lock = all.get(&ranked.of)?;
        let name = match names.insert(ranked.name.clone()) {
            true => ranked.name.clone(),
            false => format!("{} at {:#x}", ranked.name, ranked.address),
        };
        Some(told(name, lock))
    };
    named.iter().filter_map(one).collect()
}

#[derive(Debug)]
struct All(Vec<Told>);

impl All {
    fn locks(&self) -> impl Iterator<Item = &LockTotals> {
        self.0.iter().flat_map(|told| &told.locks)
    }

    fn conditions(&self) -> impl Iterator<Item = &ConditionTotals> {
        self.0.iter().flat_map(|told| &told.conditions)
    }

    /// One value for each lock.
    fn counters<N>(
        &self,
        to: &mut DescriptorEncoder<'_>,
        about: (&str, &str),
        of: impl Fn(&LockTotals) -> N,
    ) -> fmt::Result
    where
        ConstCounter<N>: EncodeMetric,
    {
        counters(to, about, self.locks().map(|lock| (lock.labels.clone(), of(lock))))
    }

    /// One value for each side of each readers-writer lock.
    fn sides<N>(
        &self,
        to: &mut DescriptorEncoder<'_>,
        about: (&str, &str),
        of: impl Fn(&Side) -> N,
    ) -> fmt::Result
    where
        ConstCounter<N>: EncodeMetric,
    {
        let all = self.locks().filter_map(|lock| Some((lock, lock.sides.as_ref()?)));
        let values = all.flat_map(|(lock, Sides { readers, writers, .. })| {
            [("reader", readers), ("writer", writers)].map(|(name, side)| {
                let mut labels = lock.labels.clone();
                labels.push(("side", name.to_owned()));
                (labels, of(side))
            })
        });
        counters(to, about, values)
    }

    /// One value for each process.
    fn gauges(
        &self,
        to: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        of: impl Fn(&WaitingNow) -> Option<f64>,
    ) -> fmt::Result {
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for Told { now, .. } in &self.0 {
            if let Some(value) = of(now) {
                ConstGauge::new(value).encode(metric.encode_family(&now.labels)?)?;
            }
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

fn counters<N>(
    to: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (Labels, N)>,
) -> fmt::Result
where
    ConstCounter<N>: EncodeMetric,
{
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
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
        let wait = ("lockwright_lock_wait_seconds", "Waits that were timed");
        self.histograms(to, wait, |lock| &lock.wait)?;
        let hold = ("lockwright_lock_hold_seconds", "Hold times of threads that had to wait");
        self.histograms(to, hold, |lock| &lock.hold)?;
        let tries = ("lockwright_lock_failed_tries", "Trylocks that didn't get the lock");
        self.counters(to, tries, |lock| lock.failed_tries)?;
        let waits = ("lockwright_rwlock_waits", "Waits for a readers-writer lock that have ended");
        self.sides(to, waits, |side| side.waits)?;
        let time = ("lockwright_rwlock_wait_seconds", "How long these waits took");
        self.sides(to, time, |side| side.wait_ns as f64 / 1e9)?;
        let conditions = |of: fn(&ConditionTotals) -> u64| {
            self.conditions().map(move |one| (one.labels.clone(), of(one)))
        };
        let waits = ("lockwright_condition_waits", "Waits for a condition variable");
        counters(to, waits, conditions(|one| one.waits))?;
        let time = ("lockwright_condition_wait_seconds", "How long threads waited for it");
        counters(to, time, self.conditions().map(|one| (one.labels.clone(), one.wait_s)))?;
        let woken = ("lockwright_condition_woken", "Threads that signals and broadcasts woke");
        counters(to, woken, conditions(|one| one.woken))?;
        let in_vain = (
            "lockwright_condition_woken_in_vain",
            "Woken threads that waited again without leaving the mutex",
        );
        counters(to, in_vain, conditions(|one| one.in_vain))?;
        let waiting = (
            "lockwright_waiting_threads",
            "Threads that wait for a lock now, and have for half a second or longer, or for ever",
        );
        self.gauges(to, waiting, |now| Some(now.threads as f64))?;
        let longest =
            ("lockwright_waiting_longest_seconds", "How long the first of them has waited");
        self.gauges(to, longest, |now| now.longest_s)?;
        let circles = ("lockwright_deadlocked_threads", "Threads that wait for each other");
        self.gauges(to, circles, |now| Some(now.deadlocked as f64))
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
        let side = Side { waits: 2, wait_ns: 250_000_000, ..Side::default() };
        let lock = LockTotals {
            labels: vec![("process", "a \"b\"\n".to_owned()), ("pid", "7".to_owned())],
            contended: 3,
            slept: 2,
            gave_up: 1,
            wait: histogram(),
            hold: histogram(),
            failed_tries: 4,
            sides: Some(Sides { writers: side, ..Sides::default() }),
        };
        let condition = ConditionTotals {
            labels: vec![("condition", "filled".to_owned())],
            waits: 6,
            wait_s: 1.5,
            woken: 5,
            in_vain: 3,
        };
        let labels = vec![("process", "a".to_owned())];
        let now = WaitingNow { labels, threads: 3, longest_s: Some(2.5), deadlocked: 2 };
        text(vec![Told { locks: vec![lock], conditions: vec![condition], now }]).unwrap()
    }

    #[test]
    fn what_is_told_is_open_metrics() {
        let text = page();
        let labels = r#"process="a \"b\"\n",pid="7""#;
        for line in [
            "# TYPE lockwright_lock_contended counter".to_owned(),
            format!("lockwright_lock_contended_total{{{labels}}} 3"),
            format!("lockwright_lock_wait_seconds_sum{{{labels}}} 0.5"),
            format!("lockwright_lock_wait_seconds_count{{{labels}}} 3"),
            format!("lockwright_lock_wait_seconds_bucket{{le=\"0.1\",{labels}}} 2"),
            format!("lockwright_lock_wait_seconds_bucket{{le=\"+Inf\",{labels}}} 3"),
            format!("lockwright_lock_failed_tries_total{{{labels}}} 4"),
            format!("lockwright_rwlock_waits_total{{{labels},side=\"reader\"}} 0"),
            format!("lockwright_rwlock_waits_total{{{labels},side=\"writer\"}} 2"),
            format!("lockwright_rwlock_wait_seconds_total{{{labels},side=\"writer\"}} 0.25"),
            "lockwright_condition_waits_total{condition=\"filled\"} 6".to_owned(),
            "lockwright_condition_wait_seconds_total{condition=\"filled\"} 1.5".to_owned(),
            "lockwright_condition_woken_total{condition=\"filled\"} 5".to_owned(),
            "lockwright_condition_woken_in_vain_total{condition=\"filled\"} 3".to_owned(),
            "# TYPE lockwright_waiting_threads gauge".to_owned(),
            "lockwright_waiting_threads{process=\"a\"} 3.0".to_owned(),
            "lockwright_waiting_longest_seconds{process=\"a\"} 2.5".to_owned(),
            "lockwright_deadlocked_threads{process=\"a\"} 2.0".to_owned(),
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
