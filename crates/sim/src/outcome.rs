//! What a run has measured.

use crate::check::Violation;
use crate::timeline::Timeline;
use crate::transfers::HandOverPath;
use hdrhistogram::Histogram;
use lockwright_numbers::recorder;
use serde::{Deserialize, Serialize};

/// Quantiles of times, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many.
    pub count: u64,
    /// Their mean, ns.
    pub mean_ns: f64,
    /// The median, ns.
    pub p50_ns: u64,
    /// The 90th percentile, ns.
    pub p90_ns: u64,
    /// The 95th percentile, ns.
    pub p95_ns: u64,
    /// The 99th percentile, ns.
    pub p99_ns: u64,
    /// The 99.9th percentile, ns.
    pub p999_ns: u64,
    /// The 99.99th percentile, ns.
    pub p9999_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
        }
    }
}

/// What the threads on one class of cores did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassOutcome {
    /// The class's name.
    pub class: String,
    /// Threads on its CPUs; with free placement, threads that find no CPU of another class.
    pub threads: u32,
    /// Operations.
    pub operations: u64,
    /// How long operations took.
    pub latency: Quantiles,
    /// How long acquisitions took.
    pub wait: Quantiles,
    /// Operations that took longer than their SLO.
    pub violations: u64,
    /// When the first operation began there, whether it ended or not, ns from the start of the run.
    #[serde(skip)]
    pub first_ns: Option<u64>,
}

impl ClassOutcome {
    /// Did a thread run there?
    pub fn ran(&self) -> bool {
        self.threads > 0 || self.operations > 0
    }
}

/// What one thread did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadOutcome {
    /// Operations.
    pub operations: u64,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Time in operations, ns.
    pub busy_ns: u64,
    /// Time in acquisitions, ns.
    pub wait_ns: u64,
    /// When its first operation began, whether it ended or not, ns from the start of the run.
    #[serde(skip)]
    pub first_ns: Option<u64>,
}

/// One operation of a run that keeps them all.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The thread.
    pub thread: u32,
    /// The rank of its core's class; the fastest is 0.
    pub class: usize,
    /// When it ended, ns from the start of the run.
    pub end_ns: u64,
    /// How long it took, ns.
    pub latency_ns: u64,
    /// Its SLO, ns.
    pub slo_ns: Option<u64>,
}

/// What a run has measured; all times are simulated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Measured time, s.
    pub seconds: f64,
    /// Operations within it.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// All operations' latency.
    pub latency: Quantiles,
    /// Figures by class of cores, the fastest first.
    pub classes: Vec<ClassOutcome>,
    /// Figures by thread.
    pub threads: Vec<ThreadOutcome>,
    /// Energy of all cores and the package, J.
    pub joules: f64,
    /// Power, W.
    pub watts: f64,
    /// Throughput per power: operations per joule.
    #[serde(default, skip_deserializing)]
    pub tpp: f64,
    /// Energy per operation, J.
    pub epo: f64,
    /// CPU time of all threads, including spinning and the kernel, s.
    pub cpu_seconds: f64,
    /// The share of the time in which no thread (or writer) held a lock, a thread that had gone to sleep for it slept or waited for a CPU,
    /// and a CPU was idle.
    #[serde(default)]
    pub unused: f64,
    /// Acquisitions, from the start on.
    pub acquisitions: u64,
    /// Acquisitions by a thread other than the last holder, from the start on.
    pub hand_overs: u64,
    /// The largest number of later arrivals that overtook one waiter, once it was seen waiting.
    pub most_overtaken: u32,
    /// Line transfers, from the start on.
    pub transfers: u64,
    /// Sleeps and wakes, from the start on.
    pub sleeps: u64,
    /// Threads woken, from the start on.
    pub wakes: u64,
    /// Events that the simulator handled.
    pub events: u64,
    /// Events, plus operations that ended before the next event and so needed none: how often simulated time
    /// advanced.
    pub steps: u64,
    /// The check that failed, if any; then all figures are void.
    pub violation: Option<Violation>,
    /// What lies on the way from holder to holder, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<HandOverPath>,
    /// Every operation, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// What each core did, if asked for.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

impl Outcome {
    /// The class's figures, by its rank.
    pub fn class(&self, rank: usize) -> &ClassOutcome {
        &self.classes[rank]
    }
}

struct OfClass {
    name: String,
    latency: Histogram<u64>,
    wait: Histogram<u64>,
    violations: u64,
    first_ns: Option<u64>,
}

/// Collects figures during the run.
pub(crate) struct Collect {
    classes: Vec<OfClass>,
    threads: Vec<ThreadOutcome>,
    samples: Option<Vec<Sample>>,
}

impl Collect {
    pub(crate) fn new(classes: impl Iterator<Item = String>, threads: u32, samples: bool) -> Self {
        let of = |name| OfClass {
            name,
            latency: recorder(),
            wait: recorder(),
            violations: 0,
            first_ns: None,
        };
        Self {
            classes: classes.map(of).collect(),
            threads: vec![ThreadOutcome::default(); threads as usize],
            samples: samples.then(Vec::new),
        }
    }

    /// An operation begins.
    pub(crate) fn begins(&mut self, thread: u32, class: usize, now: u64) {
        self.classes[class].first_ns.get_or_insert(now / 1000);
        self.threads[thread as usize].first_ns.get_or_insert(now / 1000);
    }

    pub(crate) fn acquired(&mut self, thread: u32, class: usize, waited: u64) {
        self.classes[class].wait.saturating_record(waited / 1000);
        let thread = &mut self.threads[thread as usize];
        thread.acquisitions += 1;
        thread.wait_ns += waited / 1000;
    }

    pub(crate) fn operation(
        &mut self,
        number: u32,
        class: usize,
        end: u64,
        latency: u64,
        slo_ns: Option<u64>,
    ) {
        let latency_ns = latency / 1000;
        let of = &mut self.classes[class];
        of.latency.saturating_record(latency_ns);
        of.violations += u64::from(slo_ns.is_some_and(|slo| latency_ns > slo));
        let thread = &mut self.threads[number as usize];
        thread.operations += 1;
        thread.busy_ns += latency_ns;
        if let Some(samples) = &mut self.samples {
            samples.push(Sample { thread: number, class, end_ns: end / 1000, latency_ns, slo_ns });
        }
    }

    /// The totals.
    pub(crate) fn outcome(self) -> Outcome {
        let mut all = recorder();
        for class in &self.classes {
            all.add(&class.latency).expect("same bounds");
        }
        let class = |of: OfClass| ClassOutcome {
            class: of.name,
            threads: 0,
            operations: of.latency.len(),
            latency: Quantiles::of(&of.latency),
            wait: Quantiles::of(&of.wait),
            violations: of.violations,
            first_ns: of.first_ns,
        };
        Outcome {
            seconds: 0.0,
            operations: all.len(),
            throughput: 0.0,
            latency: Quantiles::of(&all),
            classes: self.classes.into_iter().map(class).collect(),
            threads: self.threads,
            joules: 0.0,
            watts: 0.0,
            tpp: 0.0,
            epo: 0.0,
            cpu_seconds: 0.0,
            unused: 0.0,
            acquisitions: 0,
            hand_overs: 0,
            most_overtaken: 0,
            transfers: 0,
            sleeps: 0,
            wakes: 0,
            events: 0,
            steps: 0,
            violation: None,
            path: None,
            samples: self.samples.unwrap_or_default(),
            timeline: None,
        }
    }
}
