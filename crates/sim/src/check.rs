//! What must never happen, in any run.

use serde::{Deserialize, Serialize};
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
        /// Who wrote before.
        first: String,
        /// Who wrote then.
        second: String,
    },
    /// Conservation: fewer updates of shared data than critical sections.
    #[error("{missing} of {expected} updates of shared data were lost")]
    Lost {
        /// Critical sections.
        expected: u64,
        /// Updates that are missing.
        missing: u64,
    },
    /// Deadlock or lost wake-up: threads that will never go on.
    #[error("{why} at {at_ns} ns (a deadlock, or a lost wake-up): {}", who.join("; "))]
    Stuck {
        /// How it shows.
        why: &'static str,
        /// When, ns of simulated time.
        at_ns: u64,
        /// Each thread that is left, and what it waits for.
        who: Vec<String>,
    },
    /// First come first served: somebody who came later got the lock first.
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
}
