//! What must never happen, in any run.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use thiserror::Error;

/// A check that failed; the run ended there.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "violation")]
pub enum Violation {
    /// Mutual exclusion: two threads held one lock.
    #[error("two threads hold lock {lock} at {at_ns} ns: {first} and {second}")]
    Exclusion {
        /// The lock's number.
        lock: u32,
        /// When, ns of simulated time.
        at_ns: u64,
        /// Who held it.
        first: String,
        /// Who got it too.
        second: String,
    },
    /// Happens-before: data were written without knowledge of the last write.
    #[error(
        "data race at {at_ns} ns: {second} wrote data without a happens-before from {first}'s write: a hand-over lacks a Release or an Acquire"
    )]
    Race {
        /// When, ns of simulated time.
        at_ns: u64,
        /// Who wrote first.
        first: String,
        /// Who wrote second.
        second: String,
    },
    /// Happens-before: a lock was acquired without knowledge of the last critical section.
    #[error(
        "{second} got lock {lock} at {at_ns} ns without a happens-before from {first}'s critical section: a hand-over lacks a Release or an Acquire"
    )]
    HandOver {
        /// The lock's number.
        lock: u32,
        /// When, ns of simulated time.
        at_ns: u64,
        /// Who held it before.
        first: String,
        /// Who got it next.
        second: String,
    },
    /// The workload's own deadlock: its threads take the same locks in different orders.
    #[error(
        "at {at_ns} ns threads wait for each other's locks: {}; the workload takes these locks in different orders, which is no fault of the lock", who.join("; ")
    )]
    Circle {
        /// When, ns of simulated time.
        at_ns: u64,
        /// Each thread of the circle, and what it waits for.
        who: Vec<String>,
    },
    /// Conservation: fewer updates of shared data than critical sections.
    #[error("{missing} of {expected} updates of shared data were lost")]
    Lost {
        /// Critical sections.
        expected: u64,
        /// Updates that are missing.
        missing: u64,
    },
    /// Deadlock or lost wake-up: threads that will never run again.
    #[error("{why} at {at_ns} ns (a deadlock, or a lost wake-up): {}", who.join("; "))]
    Stuck {
        /// How it was noticed.
        why: Cow<'static, str>,
        /// When, ns of simulated time.
        at_ns: u64,
        /// Each thread that is left, and what it waits for.
        who: Vec<String>,
    },
    /// First come, first served: a later thread got the lock first.
    #[error(
        "{first} waited for lock {lock} since {waited_since_ns} ns; {second} came at {came_ns} ns and got it first"
    )]
    Order {
        /// The lock's number.
        lock: u32,
        /// Who waited.
        first: String,
        /// Since when, ns.
        waited_since_ns: u64,
        /// Who overtook it.
        second: String,
        /// When that one came, ns.
        came_ns: u64,
    },
    /// Bypass bound: a waiter was overtaken more often than the lock allows.
    #[error(
        "{who} waited for lock {lock} and was overtaken {times} times; the lock allows {bound}"
    )]
    Bypass {
        /// The lock's number.
        lock: u32,
        /// Who waited.
        who: String,
        /// How often it was overtaken.
        times: u32,
        /// How often it may be.
        bound: u32,
    },
    /// No thread makes progress, although all keep running.
    #[error(
        "nobody gets the lock any more at {at_ns} ns (a livelock): {steps} steps, {since} of them since the last acquisition, every thread that can go on in turn: {}", who.join("; ")
    )]
    Livelock {
        /// When, ns of simulated time.
        at_ns: u64,
        /// Operations so far.
        steps: u32,
        /// Operations since somebody got the lock.
        since: u32,
        /// Each thread that is left, and what it does.
        who: Vec<String>,
    },
    /// Starvation: a waiter stood by for longer than the longest window.
    #[error(
        "{who} let others go first at lock {lock} for {waited_ns} ns; a window ends after {bound_ns} ns"
    )]
    Starved {
        /// The lock's number.
        lock: u32,
        /// Who waited.
        who: String,
        /// How long, ns.
        waited_ns: u64,
        /// How long it may, ns.
        bound_ns: u64,
    },
    /// In the end, with no holder left, the lock can't be taken.
    #[error("all threads have released the lock, and it is not free: {who} tried")]
    NotFree {
        /// Who tried.
        who: String,
    },
    /// An operation returned a value that it must not return in this state.
    #[error("{who} asked for {what}")]
    Answer {
        /// Who asked.
        who: String,
        /// What it asked for, what was returned, and what should have been.
        what: String,
    },
    /// A thread used a word whose memory had been freed.
    #[error("{who} used a word whose memory was given up, at {at_ns} ns, in {site}")]
    Dangling {
        /// When, ns of simulated time.
        at_ns: u64,
        /// Who.
        who: String,
        /// Where in the source.
        site: String,
    },
    /// Happens-before: a thread used a word without a happens-before from its initialisation.
    #[error(
        "{second} used a word without a happens-before from its making by {first}, at {at_ns} ns, in {site}: it was published without a Release, or found without an Acquire"
    )]
    Unpublished {
        /// When, ns of simulated time.
        at_ns: u64,
        /// Who made it.
        first: String,
        /// Who used it.
        second: String,
        /// Where in the source.
        site: String,
    },
    /// Happens-before: a word's memory was freed without knowledge of a use.
    #[error(
        "{second} gave up a word's memory at {at_ns} ns without a happens-before from {first}'s use of it"
    )]
    Outlived {
        /// When, ns of simulated time.
        at_ns: u64,
        /// Who used it.
        first: String,
        /// Who freed it.
        second: String,
    },
    /// Lines that were taken from the machine's pool and not returned.
    #[error("{lines} lines of the machine's pool were not given back")]
    Leaked {
        /// How many.
        lines: i64,
    },
}

impl Violation {
    /// Which check it was, in a word or two.
    pub fn check(&self) -> &'static str {
        match self {
            Self::Exclusion { .. } => "exclusion",
            Self::Race { .. } | Self::HandOver { .. } => "happens-before",
            Self::Circle { .. } => "order of locks",
            Self::Unpublished { .. } => "publication",
            Self::Outlived { .. } => "end of use",
            Self::Dangling { .. } => "use after end",
            Self::Lost { .. } => "conservation",
            Self::Stuck { .. } => "lost wake-up",
            Self::Livelock { .. } => "livelock",
            Self::Starved { .. } => "starvation",
            Self::Order { .. } => "order",
            Self::Bypass { .. } => "bypass",
            Self::NotFree { .. } => "free in the end",
            Self::Answer { .. } => "answer",
            Self::Leaked { .. } => "leak",
        }
    }
}
