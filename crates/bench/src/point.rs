//! A point of the grid: what the threads do, how many, for how long.

use lockwright_numbers::format::given;
use serde::{Deserialize, Serialize};

/// How lengths vary around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Length {
    /// Every length is the mean. Two pinned threads then run in lockstep: see docs/bench.md.
    Fixed,
    /// Drawn from an exponential distribution.
    Exponential,
}

/// A way to request a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// Waits as long as it takes.
    Lock,
    /// Doesn't wait.
    Try,
    /// Waits until a time of the wall clock (pthread_mutex_timedlock).
    Timed,
    /// Waits until a time of the monotonic clock (pthread_mutex_clocklock).
    Clock,
    /// As lock, but every 64th critical section yields the CPU (sched_yield) while it holds the mutex.
    Yield,
}

impl Call {
    /// All ways.
    pub(crate) const ALL: [Call; 5] =
        [Call::Lock, Call::Try, Call::Timed, Call::Clock, Call::Yield];

    /// Does it have a deadline?
    pub(crate) fn has_deadline(self) -> bool {
        matches!(self, Call::Timed | Call::Clock)
    }

    fn name(self) -> &'static str {
        match self {
            Call::Lock => "lock",
            Call::Try => "try",
            Call::Timed => "timed",
            Call::Clock => "clock",
            Call::Yield => "yield",
        }
    }
}

/// What the threads do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// Each thread: lock, critical section, unlock, gap.
    Mutex,
    /// One thread locks and unlocks; `second_thread`: a second thread exists, but sleeps.
    Uncontended {
        /// Does the process have a second thread?
        second_thread: bool,
    },
    /// As `Mutex`, but with trylock: a thread that fails goes on to the gap.
    Trylock,
    /// As `Mutex`, but with a deadline.
    Timedlock {
        /// The time until the deadline.
        timeout_us: u32,
    },
    /// As `Mutex`, but each operation draws one of several mutexes, and one of several ways to request it.
    Calls {
        /// The ways.
        calls: Vec<Call>,
        /// Number of mutexes.
        mutexes: u32,
        /// The maximum time until a deadline; each is drawn between zero and this.
        timeout_us: u32,
    },
    /// As `Mutex`, but most acquisitions are for reading.
    Rwlock {
        /// Percentage of reads.
        reads: f64,
    },
    /// Producers and consumers on a bounded queue: one mutex, two condition variables.
    Queue {
        /// Number of producers.
        producers: u32,
        /// Number of consumers.
        consumers: u32,
    },
    /// A barrier of all threads, made of a mutex and a broadcast.
    Barrier,
    /// Measures the memory that many locks take.
    Memory {
        /// Number of locks.
        locks: u32,
        /// Is each lock contended once, or only locked by a single thread?
        contended: bool,
    },
    /// The paper's Bench-1: each operation is an epoch with four critical sections of different lengths under two
    /// locks. The first third of the run, in which windows settle, is not counted.
    Epoch {
        /// The epoch's latency SLO.
        slo_ns: u64,
        /// The number of locks between which its critical sections alternate: 2 in the paper, or 1.
        locks: u32,
    },
    /// One thread repeatedly begins and ends an empty epoch. Also measures the memory that epochs take.
    EpochCost,
    /// As `Mutex`, but threads draw tickets on arrival, to show which threads overtake which.
    Order {
        /// Overtaking doesn't count if the overtaker arrived within this time after its victim.
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
    /// Additional cache lines that the critical section writes.
    pub lines: u32,
    /// Is thread i bound to CPU i (modulo CPUs)?
    pub pin: bool,
    /// How many other processes compute all the time meanwhile?
    pub hogs: u32,
    /// Is there a second pass that measures each wait?
    pub latency: bool,
    /// The emulated machine in the form of LOCKWRIGHT_EMULATE; `None`: the real one.
    pub emulate: Option<String>,
}

/// `1 hog`, `2 hogs`.
pub fn hogs(count: u32) -> String {
    format!("{count} hog{}", if count == 1 { "" } else { "s" })
}

impl Point {
    /// The workload's name, as on the command line.
    pub(crate) fn workload(&self) -> &'static str {
        match self.work {
            Work::Mutex => "mutex",
            Work::Uncontended { .. } => "uncontended",
            Work::Trylock => "trylock",
            Work::Timedlock { .. } => "timedlock",
            Work::Calls { .. } => "calls",
            Work::Rwlock { .. } => "rwlock",
            Work::Queue { .. } => "queue",
            Work::Barrier => "barrier",
            Work::Memory { .. } => "memory",
            Work::Order { .. } => "order",
            Work::Epoch { .. } => "epoch",
            Work::EpochCost => "epoch-cost",
        }
    }

    /// A short description of the point, for tables and raw data.
    pub(crate) fn label(&self) -> String {
        let mut label = self.bare_label();
        if self.hogs > 0 {
            label += &format!(" beside {}", hogs(self.hogs));
        }
        if let Some(spec) = &self.emulate {
            label += &format!(" emulated {spec}");
        }
        label
    }

    /// The origin of the point's figures.
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
        let us = |timeout_us: u32| given(u64::from(timeout_us) * 1000);
        match &self.work {
            Work::Mutex => shape(),
            Work::Uncontended { second_thread: true } => "uncontended, 2-thread process".into(),
            Work::Uncontended { second_thread: false } => "uncontended, 1-thread process".into(),
            Work::Trylock => format!("trylock {}", shape()),
            Work::Timedlock { timeout_us } => format!("timedlock {} {}", us(*timeout_us), shape()),
            Work::Calls { calls, mutexes, timeout_us } => {
                let all = Call::ALL.iter().all(|call| calls.contains(call));
                let names: Vec<_> = calls.iter().map(|call| call.name()).collect();
                let names = if all { "all".into() } else { names.join(",") };
                let deadline = match calls.iter().any(|call| call.has_deadline()) {
                    true => format!(" <= {}", us(*timeout_us)),
                    false => String::new(),
                };
                let plural = if *mutexes == 1 { "" } else { "es" };
                format!("calls {names}{deadline} {mutexes} mutex{plural} {}", shape())
            }
            Work::Rwlock { reads } => format!("rwlock {reads} % reads {}", shape()),
            Work::Queue { producers, consumers } => format!("queue {producers}:{consumers}"),
            Work::Barrier => format!("barrier {} thr", self.threads),
            Work::Memory { contended: true, .. } => "memory, contended once".into(),
            Work::Memory { contended: false, .. } => "memory, never contended".into(),
            Work::Order { .. } => format!("order {}", shape()),
            Work::Epoch { slo_ns, locks } => {
                let locks = if *locks == 1 { "1 lock" } else { "2 locks" };
                format!("epoch SLO {} {locks} {}", given(*slo_ns), shape())
            }
            Work::EpochCost => "epoch, empty".into(),
        }
    }

    /// The number of threads, on which a measurement's time limit depends.
    pub(crate) fn threads_used(&self) -> u32 {
        match self.work {
            Work::Queue { producers, consumers } => producers + consumers,
            Work::Uncontended { .. } | Work::EpochCost => 1,
            Work::Memory { .. } => 2,
            _ => self.threads,
        }
    }
}
