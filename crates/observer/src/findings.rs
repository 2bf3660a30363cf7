//! What samples of a process's threads tell: plain types, for reports.

use crate::origin::Origin;
use serde::Serialize;

/// What a holder was doing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "what", content = "call")]
pub enum Cause {
    /// It ran.
    Running,
    /// It ran, mostly to get pages of memory.
    PageFaults,
    /// It slept until a page of memory had been read.
    Paging,
    /// It could have run, but other threads had the CPUs.
    Preempted,
    /// It could have run, but its cgroup had used up its quota of CPU time.
    Throttled,
    /// It slept in this system call.
    Asleep(String),
    /// It waited for another lock.
    Lock,
    /// It waited for a condition variable or the like.
    Signal,
    /// A signal or a debugger had stopped it.
    Stopped,
}

/// What one lock's holders did while others waited for it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Holding {
    /// The number of samples.
    pub samples: u64,
    /// The share (0 to 1) of them in which holders did what.
    pub causes: Vec<(Cause, f64)>,
    /// The share by class of core, the fastest first; empty: all cores are of one class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<f64>,
    /// The function of the program in which it slept most often, and its place: `flush (log.c:12)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asleep_in: Option<String>,
    /// A thread that waited for one with a far lower priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inversion: Option<Inversion>,
}

impl Holding {
    /// What holders did most.
    pub fn main(&self) -> Option<&(Cause, f64)> {
        self.causes.first()
    }

    /// The share of one cause.
    pub fn share(&self, cause: &Cause) -> f64 {
        self.causes.iter().find(|(one, _)| one == cause).map_or(0.0, |(_, share)| *share)
    }
}

/// A thread with a high priority that waited for one with a low priority.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inversion {
    /// The waiter: its name, and its policy or nice value.
    pub waiter: (String, String),
    /// The holder, likewise.
    pub holder: (String, String),
    /// The share of the lock's samples with a known waiter in which this was so.
    pub share: f64,
    /// How long that was in all, ns, as far as samples tell.
    pub ns: u64,
}

/// Locks of one origin that aren't pthread's, and for which threads waited.
#[derive(Clone, Debug, Serialize)]
pub struct OwnLock {
    /// Its address, if it is a single lock that pthread's functions serve; else 0.
    #[serde(skip)]
    pub address: u64,
    /// Whose they are.
    pub origin: Origin,
    /// In words, with the function of glibc that was called: `malloc's arena lock (free)`.
    pub name: String,
    /// Average number of waiting threads over all samples.
    pub waiting: f64,
    /// The sum of waiting threads over all samples.
    pub waits: u64,
    /// Shares of all waits.
    pub waiters: Vec<WaitSite>,
    /// What can be done.
    pub advice: String,
}

/// What a thread was doing.
#[derive(Clone, Debug, Serialize)]
pub struct WaitSite {
    /// The share (0 to 1) of the samples.
    pub share: f64,
    /// Number of samples.
    pub samples: u64,
    /// For a holder: `running`, `sleeping`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// The innermost function that belongs to the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// All functions of its most frequent stack, the innermost first: `function (file:line)`.
    pub stack: Vec<String>,
    /// The callers of `function`, from inside to outside.
    #[serde(skip)]
    pub callers: Vec<String>,
}

/// CPU time that goes into taking and releasing locks that hardly anybody waits for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TakenOften {
    /// The share (0 to 1) of the CPU time that goes into lock operations without waiting, all together.
    pub share: f64,
    /// Samples of running threads in such operations.
    pub samples: u64,
    /// All samples of running threads.
    pub of: u64,
    /// CPU time that a sample stands for, ns.
    pub sample_ns: u64,
    /// Where so much of it is that it is worth telling; the largest share first.
    pub sites: Vec<OftenSite>,
    /// Why calls weren't counted, if anything is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
}

/// A function that takes locks often.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OftenSite {
    /// The function: the program's own, or the library's that the program called.
    pub function: String,
    /// The line that takes the lock, or that calls the library: `server.c:12`; empty: not known.
    pub place: String,
    /// The program's function that called the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The share (0 to 1) of the CPU time.
    pub share: f64,
    /// Samples.
    pub samples: u64,
    /// Samples in which a thread spun, slept or woke another one for a lock taken there: few, or the site isn't told.
    pub waiting: u64,
    /// Waits that were counted there, or seen by looks: short ones, likewise.
    pub waits: u64,
    /// How long these took, ns.
    pub wait_ns: u64,
    /// Locks are taken there at least this many times a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Too often to be counted: most of the time went into counting.
    pub is_too_often: bool,
    /// The lock that was taken there, if it was nearly always the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// How many locks were seen to be taken there; 0: it wasn't looked at.
    pub locks: usize,
    /// Does it take locks, too, or only release them?
    #[serde(skip)]
    pub acquires: bool,
    /// All functions of the most frequent stack, the innermost first.
    pub stack: Vec<String>,
    /// The innermost functions of the program on its stacks, past wrappers, to which waits would be charged.
    #[serde(skip)]
    pub inner: std::collections::BTreeSet<String>,
}
