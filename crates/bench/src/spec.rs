//! The bench's request to a worker process, and the worker's answer, both in JSON.

use crate::point::Point;
use crate::stats;
use lockwright_energy::Watts;
use serde::{Deserialize, Serialize};

/// The implementation of the lock that a worker measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// The process's `pthread_*` functions, from glibc or a preloaded library.
    Pthread,
    /// A lock of our catalogue, compiled in.
    Catalogue(String),
    /// `parking_lot`, compiled in.
    ParkingLot,
    /// `std::sync`, compiled in.
    Std,
}

/// The request to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The lock's implementation.
    pub lock: Lock,
    /// The point.
    pub point: Point,
    /// The measured time. The latency pass takes another half of it.
    pub time_s: f64,
    /// Calibration of the compute loop, the same for all workers of a run.
    pub turns_per_ns: f64,
    /// Seed for the lengths, the same for all locks of a repetition.
    pub seed: u64,
    /// The power that the machine draws, if nothing measures it.
    pub watts: Watts,
    /// Are pinned threads placed on the fastest CPUs first, rather than in CPU order?
    pub fastest_first: bool,
    /// Is each thread timed alone first, as CAL's fairness needs?
    pub alone: bool,
}

/// Which locks the process runs, according to lockwright's library in it (`lockwright_contract::mailbox`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InForce {
    /// There is no such library.
    #[default]
    NoLibrary,
    /// A library of another version, which can't be queried.
    OtherVersion,
    /// It stands aside: all locks are glibc's.
    Aside,
    /// The default lock, and rules for single mutexes.
    Locks {
        /// In the form of LOCKWRIGHT_LOCK.
        default: String,
        /// In the form of LOCKWRIGHT_RULES.
        rules: String,
    },
}

/// Percentiles of a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

/// The results of the threads on one class of cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClassResult {
    /// The class (0 is the fastest) at the end of the run.
    pub class: u8,
    /// Number of threads that ended on it.
    pub threads: u32,
    /// Their operations.
    pub ops: u64,
    /// Their waits.
    pub wait: Option<Percentiles>,
    /// Their epochs' latencies. For epochs, `threads` is 0, and the class is that of the CPU on which an epoch ended.
    pub latency: Option<Percentiles>,
    /// Epochs that took longer than their SLO.
    pub violations: u64,
}

/// A worker's answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The lock lacks this operation; ignore everything else.
    pub unsupported: bool,
    /// File name of the object that provides `pthread_mutex_lock`.
    pub provider: String,
    /// The locks that the preloaded library reported at the end of the measurement.
    pub in_force: InForce,
    /// Number of operations (rounds, items).
    pub ops: u64,
    /// The time that they took.
    pub elapsed_ns: u64,
    /// The user and system time that the process used for them.
    pub cpu_ns: u64,
    /// The energy that the machine used in that time; `None`: not known.
    pub joules: Option<f64>,
    /// The source of the energy figure: `rapl`, `model`.
    pub joules_source: String,
    /// Failed tries and missed deadlines (trylock, timedlock, calls).
    pub failures: u64,
    /// The final value of the counter that the lock protected.
    pub counted: u64,
    /// Its expected value.
    pub expected: u64,
    /// Number of operations of each thread.
    pub per_thread: Vec<u64>,
    /// Each thread's time per operation when alone and without the lock.
    pub alone_ns: Vec<f64>,
    /// Time from requesting to getting the lock (latency pass).
    pub wait: Option<Percentiles>,
    /// Time from getting the lock to having released it (latency pass).
    pub hold: Option<Percentiles>,
    /// The share of the threads' time from requesting a lock to having released it (latency pass).
    pub in_sections: Option<f64>,
    /// Epochs' latencies.
    pub latency: Option<Percentiles>,
    /// Time-stamp ticks of an empty epoch's start and end.
    pub epoch_ticks: Option<f64>,
    /// Bytes per thread and epoch.
    pub bytes_per_epoch: Option<f64>,
    /// Results by class of cores.
    pub classes: Vec<ClassResult>,
    /// Bytes that each lock took in addition to itself.
    pub bytes_per_lock: Option<f64>,
    /// The lock's own size.
    pub size_of: u64,
    /// Share of acquisitions that were overtaken.
    pub overtaken: Option<f64>,
    /// Share of acquisitions that were overtaken, ignoring overtakers within the grace time.
    pub overtaken_late: Option<f64>,
    /// Maximum number of overtakers of one acquisition.
    pub longest_bypass: Option<u64>,
    /// 99.9th percentile of the number of overtakers.
    pub bypass_p999: Option<u64>,
}

impl Answer {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.ops as f64 * 1e9 / (self.elapsed_ns.max(1)) as f64
    }

    /// Latency of the epochs that ended on the slowest class of cores.
    pub(crate) fn slowest(&self) -> Option<Percentiles> {
        self.classes.iter().max_by_key(|c| c.class)?.latency
    }

    /// Its 99th percentile, in nanoseconds.
    pub(crate) fn slowest_p99(&self) -> Option<f64> {
        Some(self.slowest()?.p99)
    }

    /// CPU time per operation.
    pub(crate) fn cpu_per_op(&self) -> f64 {
        if self.ops == 0 { f64::INFINITY } else { self.cpu_ns as f64 / self.ops as f64 }
    }

    /// Operations per joule (TPP).
    pub(crate) fn per_joule(&self) -> Option<f64> {
        // A source with coarse steps may not have advanced.
        self.joules.filter(|joules| *joules > 0.0).map(|joules| self.ops as f64 / joules)
    }

    /// Jain's index over the threads' operations.
    pub(crate) fn jain(&self) -> Option<f64> {
        let shares: Vec<f64> = self.per_thread.iter().map(|&o| o as f64).collect();
        (shares.len() > 1).then(|| stats::jain(&shares))
    }

    /// CAL's fairness over the threads.
    pub(crate) fn cal(&self) -> Option<f64> {
        let shared: Vec<f64> =
            self.per_thread.iter().map(|&o| self.elapsed_ns as f64 / o as f64).collect();
        (shared.len() > 1 && self.alone_ns.len() == shared.len())
            .then(|| stats::cal(&shared, &self.alone_ns))
    }
}
