//! Traces of locks: what each thread did with each lock, and how long it computed in between.
//!
//! A [`Trace`] is what `lockwright profile --record` writes, from the files that processes left in a folder
//! (`LOCKWRIGHT_TRACE=DIR`, [`Trace::collect`]). It contains only what was measured on the machine where it was
//! recorded. It can be replayed on any other machine, because waiting is separated from a thread's own time.
//!
//! ```no_run
//! use lockwright_stats::trace::{Step, Trace};
//! let trace = Trace::read("lockwright-trace.bin".as_ref())?;
//! for thread in &trace.threads {
//!     for step in &thread.steps {
//!         match *step {
//!             Step::Compute(ns) | Step::Idle(ns) => println!("{ns} ns"),
//!             Step::Acquire { lock, .. } => println!("takes {lock}"),
//!             Step::Release(lock) => println!("gives {lock} back"),
//!         }
//!     }
//! }
//! # Ok::<(), lockwright_stats::Error>(())
//! ```

mod collect;
mod file;
mod summary;

pub use file::{MAGIC, VERSION};
pub use summary::{LockSummary, Summary};

use serde::{Deserialize, Serialize};

/// What the threads of a program did with its locks.
///
/// Every thread releases exactly what it acquired, and holds each lock at most once at a time. Every lock is in
/// `locks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Where it comes from.
    pub meta: Meta,
    /// The locks, in the order in which threads first asked for them: a [`Step`] names them by their index here.
    pub locks: Vec<LockInfo>,
    /// The threads, ordered by their first operations.
    pub threads: Vec<TraceThread>,
}

/// Where a trace comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The command line of each process, with blanks between the words, cut after 511 bytes.
    pub processes: Vec<String>,
    /// The lock that they ran on, as given in `LOCKWRIGHT_LOCK`.
    pub lock: String,
    /// The emulated machine that they ran on, as given in `LOCKWRIGHT_EMULATE`; `None`: a real one.
    pub emulated: Option<String>,
    /// CPUs that the program could keep busy.
    pub cpus: u32,
    /// From the first operation to the end of the last, ns.
    pub span_ns: u64,
    /// Acquisitions that were not recorded because there was no room; they came after all recorded ones.
    pub dropped: u64,
    /// Did recording end because the disk was full? Otherwise it was the limit.
    pub is_disk_full: bool,
}

/// A lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInfo {
    /// Whose it is: a place in [`Meta::processes`].
    pub process: u32,
    /// Its address. A lock in reused memory counts as the same lock.
    pub address: u64,
    /// The program or library in whose memory it is; `None`: none of those loaded when the process began.
    pub place: Option<Place>,
}

/// Where in a program or library a lock is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The path of its file.
    pub object: String,
    /// The offset from the start of its memory.
    pub offset: u64,
    /// The variable there, with the offset into it unless that is 0: `stats_lock`, `cache+0x28`. [`Trace::collect`]
    /// leaves it out, because it reads no programs.
    pub symbol: Option<String>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceThread {
    /// Whose it is: a place in [`Meta::processes`].
    pub process: u32,
    /// The class of the cores that it ran on, 0 is the fastest; `None`: it was seen on several.
    pub class: Option<u8>,
    /// When its first operation began, ns after the trace's first one.
    pub start_ns: u64,
    /// What it did, from its first operation to its last.
    pub steps: Vec<Step>,
}

/// When a thread held locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadHolds {
    /// The thread's id, as its process sees it; 0: not known.
    pub tid: u32,
    /// In the order of the releases.
    pub holds: Vec<Hold>,
}

/// A critical section: a thread held a lock from one moment to another, ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// An index into [`Trace::locks`].
    pub lock: u32,
    /// When the thread had it.
    pub from_ns: u64,
    /// When it began to release it.
    pub to_ns: u64,
}

/// One step of a thread. Steps don't contain time in which it waited for a lock, or for a CPU that others used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// It computed for this long, ns.
    Compute(u64),
    /// It acquired a lock.
    Acquire {
        /// An index into [`Trace::locks`].
        lock: u32,
        /// How long it waited in the recording, ns, beyond the cost of taking a free lock. A replay has its own waits.
        wait_ns: u64,
    },
    /// It released a lock: an index into [`Trace::locks`].
    Release(u32),
    /// It slept for this long, ns: for a condition variable, for I/O, or until a point in time.
    Idle(u64),
}

impl Trace {
    /// How many acquisitions there are.
    pub fn acquisitions(&self) -> u64 {
        let steps = self.threads.iter().flat_map(|thread| &thread.steps);
        steps.filter(|step| matches!(step, Step::Acquire { .. })).count() as u64
    }

    /// What is wrong with it; `None`: nothing, it keeps the promises of [`Trace`].
    fn fault(&self) -> Option<String> {
        let processes = self.meta.processes.len();
        if let Some(at) = self.locks.iter().position(|lock| lock.process as usize >= processes) {
            return Some(format!("lock {at} belongs to no process"));
        }
        self.threads.iter().enumerate().find_map(|(number, thread)| {
            if thread.process as usize >= processes {
                return Some(format!("thread {number} belongs to no process"));
            }
            let why = fault(&thread.steps, self.locks.len())?;
            Some(format!("thread {number} {why}"))
        })
    }
}

fn fault(steps: &[Step], locks: usize) -> Option<String> {
    let mut held = Vec::new();
    for step in steps {
        match *step {
            Step::Acquire { lock, .. } if lock as usize >= locks => {
                return Some(format!("acquires lock {lock} of {locks}"));
            }
            Step::Acquire { lock, .. } if held.contains(&lock) => {
                return Some(format!("acquires lock {lock} twice"));
            }
            Step::Acquire { lock, .. } => held.push(lock),
            Step::Release(lock) => match held.iter().position(|&other| other == lock) {
                Some(at) => drop(held.swap_remove(at)),
                None => return Some(format!("releases lock {lock}, which it does not hold")),
            },
            Step::Compute(_) | Step::Idle(_) => {}
        }
    }
    held.first().map(|lock| format!("never releases lock {lock}"))
}
