//! What the bench asks a worker process, and what the worker answers: JSON both ways.

use crate::point::Point;
use crate::stats;
use lockwright_energy::Watts;
use serde::{Deserialize, Serialize};

/// Whose lock a worker measures.
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

/// What a worker gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Whose lock.
    pub lock: Lock,
    /// Which point.
    pub point: Point,
    /// The measured time; the latency pass takes half of it more.
    pub time_s: f64,
    /// Calibration of the compute loop, the same for all workers of a run.
    pub turns_per_ns: f64,
    /// Seed of the lengths, the same for all locks of a repetition.
    pub seed: u64,
    /// What the machine draws, if nothing measures it.
    pub watts: Watts,
    /// Are pinned threads given the fastest CPUs first, rather than in the order of their numbers?
    pub fastest_first: bool,
}

/// What the process says about its own locks: lockwright's library tells which it runs
/// (`lockwright_record::mailbox`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InForce {
    /// No such library is there.
    #[default]
    NoLibrary,
    /// One of another version, which can't be asked.
    OtherVersion,
    /// It stands aside: all locks are glibc's.
    Aside,
    /// This default lock, and these rules for single mutexes.
    Locks {
        /// As in LOCKWRIGHT_LOCK.
        default: String,
        /// As in LOCKWRIGHT_RULES.
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

/// What the threads of one class of cores did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClassResult {
    /// The class (0 is the fastest), as of the end of the run.
    pub class: u8,
    /// Threads that ended on it.
    pub threads: u32,
    /// Their operations.
    pub ops: u64,
    /// Their waits.
    pub wait: Option<Percentiles>,
    /// Their epochs' latencies; of epochs, `threads` is 0 and the class is that of the CPU where one ended.
    pub latency: Option<Percentiles>,
    /// Epochs that took longer than their SLO.
    pub violations: u64,
}

/// What a worker answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The lock has no such operation; everything else is void.
    pub unsupported: bool,
    /// File name of the object that provides `pthread_mutex_lock`.
    pub provider: String,
    /// Which locks the preloaded library says that it ran, at the end of the measurement.
    pub in_force: InForce,
    /// Operations (rounds, items) counted.
    pub ops: u64,
    /// Over this time.
    pub elapsed_ns: u64,
    /// User and system time that the process spent on them.
    pub cpu_ns: u64,
    /// What the machine used meanwhile; `None`: not known.
    pub joules: Option<f64>,
    /// Where that comes from: `rapl`, `model`.
    pub joules_source: String,
    /// Tries that failed, deadlines that passed (trylock, timedlock, calls).
    pub failures: u64,
    /// The counter that the lock protected.
    pub counted: u64,
    /// What it must read.
    pub expected: u64,
    /// Operations of each thread.
    pub per_thread: Vec<u64>,
    /// Time per operation of each thread alone, without the lock.
    pub alone_ns: Vec<f64>,
    /// From asking to having (latency pass).
    pub wait: Option<Percentiles>,
    /// From having to having given back (latency pass).
    pub hold: Option<Percentiles>,
    /// Epochs' latencies.
    pub latency: Option<Percentiles>,
    /// Time-stamp ticks of an empty epoch's start and end.
    pub epoch_ticks: Option<f64>,
    /// Bytes for each thread and epoch.
    pub bytes_per_epoch: Option<f64>,
    /// By class of cores.
    pub classes: Vec<ClassResult>,
    /// Bytes that each lock took beside itself.
    pub bytes_per_lock: Option<f64>,
    /// The lock's own size.
    pub size_of: u64,
    /// Acquisitions that were overtaken, share of all.
    pub overtaken: Option<f64>,
    /// The same, not counting overtakers within the grace time.
    pub overtaken_late: Option<f64>,
    /// Most overtakers of one acquisition.
    pub longest_bypass: Option<u64>,
    /// 99.9th percentile of overtakers.
    pub bypass_p999: Option<u64>,
}

impl Answer {
    /// What happened per second.
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

    /// CPU time of one operation.
    pub(crate) fn cpu_per_op(&self) -> f64 {
        if self.ops == 0 { f64::INFINITY } else { self.cpu_ns as f64 / self.ops as f64 }
    }

    /// Operations a joule (TPP).
    pub(crate) fn per_joule(&self) -> Option<f64> {
        // What is measured in steps may not have moved.
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
