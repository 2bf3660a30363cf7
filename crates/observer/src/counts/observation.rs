//! What was observed in a process, with names: the contents of a report.

use super::beyond::Beyond;
use super::counter::Event;
use super::snapshot::{LockKind, Of, Signals};
use crate::findings::Holding;
use crate::findings::{OwnLock, TakenOften};
use lockwright_numbers::Times;
use serde::Serialize;

/// What one process's locks did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Observed {
    /// Its id; 0: it stands for several.
    pub pid: u32,
    /// The ids of the processes that it stands for; empty: it is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<u32>,
    /// Its command line.
    pub command: String,
    /// The lock algorithm in use.
    pub lock: String,
    /// The emulated little cores; every figure is emulated then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// How long it was observed, ns.
    pub elapsed_ns: u64,
    /// Length of the slices in [`Ranked::course`], ns; 0: there are none.
    pub slice_ns: u64,
    /// Number of threads; 0: not known.
    pub threads: usize,
    /// Sorted by the total waiting time of all threads, the longest first.
    pub locks: Vec<Ranked>,
    /// Condition variables, which are no locks, in the same order. `holders` are the places that wake waiters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Ranked>,
    /// Locks that share a cache line.
    pub false_sharing: Vec<Suspects>,
    /// The requested event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Total>,
    /// Semaphores that are not used as locks.
    pub signals: Signals,
    /// Locks that aren't pthread's, for which threads were seen to wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_locks: Vec<OwnLock>,
    /// CPU time that goes into taking locks without waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_often: Option<TakenOften>,
    /// Why running threads couldn't be sampled: then it isn't known where locks are taken often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_unseen: Option<String>,
    /// How often its threads were looked at for such waits; 0: never.
    #[serde(skip_serializing_if = "is_zero")]
    pub samples: u64,
    /// Why a Python program's functions have no names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_unread: Option<String>,
    /// What was not counted, or not attributed.
    pub lost: Lost,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What was not counted, or not attributed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lost {
    /// Waits for locks without a record. They all count as one lock.
    pub unplaced: u64,
    /// Locks whose records were reused for others.
    pub evicted: u64,
    /// Locks that were destroyed.
    pub retired: u64,
    /// Stacks for which there was no room.
    pub stacks: u64,
    /// Operations for which there was no memory.
    pub memory: u64,
}

/// A lock with its names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ranked {
    /// The record that it was read from.
    #[serde(skip)]
    pub of: Of,
    /// Which of the locks that used this record it is.
    #[serde(skip)]
    pub tenant: u64,
    /// Its place in the process's table of locks.
    #[serde(skip)]
    pub place: u32,
    /// Mutex or semaphore.
    pub kind: LockKind,
    /// The variable, or the location.
    pub name: String,
    /// 0: it stands for several locks.
    pub address: u64,
    /// The number of locks that it stands for.
    pub locks: u32,
    /// How often threads took it, from its first timed wait to its last; 0: not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub acquired: u64,
    /// Number of waits.
    pub contended: u64,
    /// How many of the waits were given up.
    pub gave_up: u64,
    /// How many of the waits included a sleep.
    pub slept: u64,
    /// Time in which at least one thread waited and a holder was to blame, ns: a lower bound.
    pub blamed_ns: u64,
    /// Total waiting time of all threads, ns.
    pub wait_ns: u64,
    /// How many threads waited for it, on average over the time observed.
    pub waiting: f64,
    /// How long a wait was on average, ns.
    pub mean_ns: u64,
    /// How long a thread had waited that still did at the end, ns; `wait_ns` has what of it lies in the time observed. 0: none did.
    #[serde(skip_serializing_if = "is_zero")]
    pub unended_ns: u64,
    /// Total time of the timed holds, ns.
    pub hold_ns: u64,
    /// How long threads waited.
    pub wait: Percentiles,
    /// The same, whole.
    #[serde(skip)]
    pub wait_times: Times,
    /// Hold times, whole.
    #[serde(skip)]
    pub hold_times: Times,
    /// By class of core, the fastest first; classes without waits are left out.
    pub wait_by_class: Vec<(usize, Percentiles)>,
    /// Hold times of threads that had to wait.
    pub hold: Percentiles,
    /// Of the acquisitions after a wait, the share in which the owner changed to another thread; `None`: not measured.
    pub owner_changes: Option<f64>,
    /// The share in which the lock moved to another CPU.
    pub core_changes: Option<f64>,
    /// What its holders did while others waited, as far as that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holding: Option<Holding>,
    /// The place of the longest wait.
    pub longest_wait_at: String,
    /// The place of the longest hold.
    pub longest_hold_at: String,
    /// Places that wait, sorted by time.
    pub waiters: Vec<Site>,
    /// Places that hold the lock, sorted by the time that others waited for them.
    pub holders: Vec<Site>,
    /// Threads that wait for it, or for which others wait; empty: they weren't told apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadWaits>,
    /// Waiting time in each time slice, ns, of all threads together. Empty: it wasn't sampled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<u64>,
    /// Estimated number of events ([`Observed::events`]) in functions that hold the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Advice, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// What only some locks have.
    #[serde(flatten)]
    pub beyond: Beyond<Site>,
}

/// How long waits, or holds, were, ns.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// The median of their lengths.
    pub p50_ns: u64,
    /// 99 % of them are at most that long.
    pub p99_ns: u64,
    /// 99.9 % of them are at most that long.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Half of the time, all of them together, was in those that were at least that long. Thousands of waits that are over at once
    /// say nothing of the time that threads lose.
    pub half_over_ns: u64,
    /// The same of a tenth of the time.
    pub tenth_over_ns: u64,
}

impl Percentiles {
    pub(crate) fn of(times: &Times, max_ns: u64) -> Self {
        // A histogram knows the longest only to the width of its bucket.
        let exact = |ns: u64| if ns == times.max() { max_ns } else { ns.min(max_ns.max(1)) };
        let (at, of_sum) =
            (|part| exact(times.quantile(part)), |part| exact(times.quantile_of_sum(part)));
        Self {
            count: times.count(),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
            half_over_ns: of_sum(0.5),
            tenth_over_ns: of_sum(0.9),
        }
    }
}

/// A place in the program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Site {
    /// The function.
    pub function: String,
    /// File and line, or the module.
    pub place: String,
    /// Return address; 0: not known.
    pub address: u64,
    /// How often threads waited here, or others waited for a thread here.
    pub count: u64,
    /// How long, all waits together, ns.
    pub ns: u64,
    /// The longest wait, ns.
    pub max_ns: u64,
    /// The thread of the longest wait.
    pub max_tid: u32,
    /// The share of the lock's time.
    pub share: f64,
    /// One of its stacks, the innermost function first.
    pub stack: Vec<String>,
    /// The number of samples. The figures are then the lock's, divided in proportion to the samples. `None`: the
    /// figures were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

/// The rule that led to the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Threads lose little time here: leave the lock as it is.
    Little,
    /// Threads wait, but no wait has ended that was timed.
    Unknown,
    /// A thread had waited long for it, and still did at the end.
    Unended,
    /// Its critical sections are long.
    LongSections,
    /// A thread waits far longer than critical sections last.
    Starved,
    /// Its critical sections are short, and threads lose time.
    ShortSections,
    /// A writer waits, and readers go on to join readers.
    WritersStarve,
    /// Many trylocks fail.
    TriedInVain,
    /// A thread waits for a holder of far lower priority that has no CPU.
    Inverted,
    /// Its holder sleeps in a system call.
    HolderSleeps,
    /// Its holder has no CPU.
    HolderPreempted,
    /// Its holder has no CPU because the quota of its cgroup is used up.
    HolderThrottled,
    /// Its holder waits for memory.
    HolderFaults,
    /// Its holder waits for another lock or thread.
    HolderWaits,
    /// Its holder runs on a slow core.
    HolderOnSlowCore,
}

/// A piece of advice.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The rule that led to it.
    pub rule: Rule,
    /// The share of the threads' time that they waited for this lock.
    pub lost: f64,
    /// The share (0 to 1) of the running time of its process's threads in which they waited for it.
    pub waiting_share: f64,
    /// The share in which they held it after a wait. Other holds aren't timed, so the true share may be larger.
    pub holding: f64,
    /// Both together, RCL's measure: a lower bound.
    pub in_sections: f64,
    /// The advice in words, with the threshold.
    pub text: String,
    /// A further note; empty: none.
    pub note: String,
    /// A command to try; empty: there is nothing to do.
    pub command: String,
}

/// What was counted in a process.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// The event.
    pub event: Event,
    /// Estimated number of events in the sampled threads.
    pub count: u64,
    /// Why nothing could be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// Contended locks that share a line. They are suspects only: nothing has measured the line itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suspects {
    /// The line's address.
    pub line: u64,
    /// The names of the locks, by address.
    pub locks: Vec<String>,
    /// Total waiting time of all threads, ns.
    pub wait_ns: u64,
}

/// One thread's waits for a lock, and others' waits for that thread.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadWaits {
    /// `None`: all threads without a slot of their own.
    pub tid: Option<u32>,
    /// The thread's name when it was last sampled; empty: it never was.
    pub name: String,
    /// How often it had to wait.
    pub waits: u64,
    /// Its total waiting time, ns.
    pub wait_ns: u64,
    /// How long others waited for it, ns.
    pub blamed_ns: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A lock with one holder. `holder` has how often it made others wait, for how long, and the longest such wait, ns.
    pub(crate) fn lock(wait_ns: u64, holder: (u64, u64, u64)) -> Ranked {
        let (count, ns, max_ns) = holder;
        let site = Site {
            function: "update".into(),
            place: "a.c:1".into(),
            address: 1,
            count,
            ns,
            max_ns,
            max_tid: 1,
            share: 1.0,
            ..Site::default()
        };
        Ranked {
            of: Of::Lock(64),
            name: "lock".into(),
            address: 64,
            locks: 1,
            contended: 1000,
            blamed_ns: wait_ns,
            wait_ns,
            wait: Percentiles { max_ns: 2 * max_ns, ..Percentiles::default() },
            holders: vec![site],
            ..Ranked::default()
        }
    }
}
