//! What the bench asks a worker process, and what the worker answers: JSON both ways.

use serde::{Deserialize, Serialize};

/// Whose lock a worker measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// The process's `pthread_*` functions, whoever provides them (glibc, or a preloaded library).
    Pthread,
    /// A lock of our catalogue, compiled in.
    Catalogue(String),
    /// `parking_lot`, compiled in.
    ParkingLot,
    /// `std::sync`, compiled in.
    Std,
}

/// How lengths vary around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Length {
    /// Every length is the mean. Two pinned threads then fall into step: see docs/bench.md.
    Fixed,
    /// Drawn from an exponential distribution.
    Exponential,
}

/// What the threads do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// Each thread: lock, critical section, unlock, gap.
    Mutex,
    /// One thread locks and unlocks; `second_thread`: another one exists, asleep.
    Uncontended {
        /// Does the process have a second thread?
        second_thread: bool,
    },
    /// As `Mutex`, but with trylock: who fails goes on to the gap.
    Trylock,
    /// As `Mutex`, but with a deadline.
    Timedlock {
        /// The time until the deadline.
        timeout_us: u32,
    },
    /// As `Mutex`, but most of the acquisitions only read.
    Rwlock {
        /// Per cent of reads.
        reads: u32,
    },
    /// Producers and consumers on a bounded queue: one mutex, two condition variables.
    Queue {
        /// Threads that put.
        producers: u32,
        /// Threads that take.
        consumers: u32,
    },
    /// A barrier of all threads made of a mutex and a broadcast.
    Barrier,
    /// Memory that many locks take.
    Memory {
        /// How many locks.
        locks: u32,
        /// Contended once each, or only locked by one thread.
        contended: bool,
    },
    /// The paper's Bench-1: each operation is an epoch with four critical sections of different lengths under
    /// two locks. Its first third, in which windows settle, is not counted.
    Epoch {
        /// The epoch's latency SLO.
        slo_ns: u64,
        /// Locks that its critical sections take in turns: 2 in the paper, or 1.
        locks: u32,
    },
    /// One thread begins and ends an empty epoch, again and again; and the memory that epochs take.
    EpochCost,
    /// As `Mutex`, with tickets drawn on arrival to see who overtakes whom.
    Order {
        /// An overtaker that came within this time of its victim is not held against the lock.
        grace_ns: u64,
    },
}

/// One measurement: a point of the grid, without the lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// What the threads do.
    pub work: Work,
    /// How many threads compete.
    pub threads: u32,
    /// Mean length of the critical section.
    pub cs_ns: u32,
    /// Mean length of the gap between two critical sections.
    pub gap_ns: u32,
    /// How lengths vary.
    pub length: Length,
    /// Cache lines that the critical section writes besides.
    pub lines: u32,
    /// Is thread i bound to CPU i (modulo CPUs)?
    pub pin: bool,
    /// Is there a second pass that takes the time of each wait?
    pub latency: bool,
    /// The emulated machine, as LOCKWRIGHT_EMULATE; `None`: the real one.
    pub emulate: Option<String>,
}

impl Point {
    /// The workload's name, as on the command line.
    pub(crate) fn workload(&self) -> &'static str {
        match self.work {
            Work::Mutex => "mutex",
            Work::Uncontended { .. } => "uncontended",
            Work::Trylock => "trylock",
            Work::Timedlock { .. } => "timedlock",
            Work::Rwlock { .. } => "rwlock",
            Work::Queue { .. } => "queue",
            Work::Barrier => "barrier",
            Work::Memory { .. } => "memory",
            Work::Order { .. } => "order",
            Work::Epoch { .. } => "epoch",
            Work::EpochCost => "epoch-cost",
        }
    }

    /// The point in a few words: what stands in the tables, and names it in the raw data.
    pub(crate) fn label(&self) -> String {
        match &self.emulate {
            None => self.bare_label(),
            Some(spec) => format!("{} emulated {spec}", self.bare_label()),
        }
    }

    /// Where the point's figures come from.
    pub(crate) fn origin(&self) -> &'static str {
        if self.emulate.is_some() { "emulated" } else { "real" }
    }

    fn bare_label(&self) -> String {
        let shape = || {
            let pin = if self.pin { " pinned" } else { "" };
            let lines =
                if self.lines > 0 { format!(" {} lines", self.lines) } else { String::new() };
            let fixed = if self.length == Length::Fixed { " fixed" } else { "" };
            format!("{} thr {}/{} ns{lines}{fixed}{pin}", self.threads, self.cs_ns, self.gap_ns)
        };
        match &self.work {
            Work::Mutex => shape(),
            Work::Uncontended { second_thread: true } => "uncontended, 2-thread process".into(),
            Work::Uncontended { second_thread: false } => "uncontended, 1-thread process".into(),
            Work::Trylock => format!("trylock {}", shape()),
            Work::Timedlock { timeout_us } => format!("timedlock {timeout_us} us {}", shape()),
            Work::Rwlock { reads } => format!("rwlock {reads} % reads {}", shape()),
            Work::Queue { producers, consumers } => format!("queue {producers}:{consumers}"),
            Work::Barrier => format!("barrier {} thr", self.threads),
            Work::Memory { contended: true, .. } => "memory, contended once".into(),
            Work::Memory { contended: false, .. } => "memory, never contended".into(),
            Work::Order { .. } => format!("order {}", shape()),
            Work::Epoch { slo_ns, locks } => {
                let locks = if *locks == 1 { "1 lock" } else { "2 locks" };
                format!("epoch SLO {} {locks} {}", crate::report::time(*slo_ns as f64), shape())
            }
            Work::EpochCost => "epoch, empty".into(),
        }
    }

    /// What the rate of this point counts.
    pub(crate) fn unit(&self) -> &'static str {
        match self.work {
            Work::Barrier => "rounds/s",
            Work::Epoch { .. } | Work::EpochCost => "epochs/s",
            Work::Queue { .. } => "items/s",
            Work::Memory { .. } => "B/lock",
            _ => "op/s",
        }
    }
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
    /// Operations (rounds, items) counted.
    pub ops: u64,
    /// Over this time.
    pub elapsed_ns: u64,
    /// User and system time that the process spent on them.
    pub cpu_ns: u64,
    /// Tries that failed (trylock), deadlines that passed (timedlock).
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

    /// 99th percentile of the epochs that ended on the slowest class of cores, in nanoseconds.
    pub(crate) fn slowest_p99(&self) -> Option<f64> {
        self.classes.iter().max_by_key(|c| c.class)?.latency.map(|l| l.p99)
    }

    /// CPU time of one operation.
    pub(crate) fn cpu_per_op(&self) -> f64 {
        if self.ops == 0 { f64::INFINITY } else { self.cpu_ns as f64 / self.ops as f64 }
    }

    /// Jain's index over the threads' operations.
    pub(crate) fn jain(&self) -> Option<f64> {
        let shares: Vec<f64> = self.per_thread.iter().map(|&o| o as f64).collect();
        (shares.len() > 1).then(|| crate::stats::jain(&shares))
    }

    /// CAL's fairness over the threads.
    pub(crate) fn cal(&self) -> Option<f64> {
        let shared: Vec<f64> =
            self.per_thread.iter().map(|&o| self.elapsed_ns as f64 / o as f64).collect();
        (shared.len() > 1 && self.alone_ns.len() == shared.len())
            .then(|| crate::stats::cal(&shared, &self.alone_ns))
    }
}
