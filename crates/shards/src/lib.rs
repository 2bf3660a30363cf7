//! Experiments in shards. A command's jobs are divided among `n` processes, on one machine or on many. Each process
//! keeps its results as they come, and one report is made from all of them.
//!
//! ```text
//!  plan ─► shard 1/n ─► shard-1-of-n.jsonl ─┐
//!       ─► ...                              ├─► merge ─► the command's own report
//!       ─► shard n/n ─► shard-n-of-n.jsonl ─┘
//! ```
//!
//! * A *plan* is what determines the results: the command's words, and the contents of the files that they name. Its
//!   jobs have numbers, and keys that stay the same. Job number `k` always belongs to shard `k mod n + 1`.
//! * A shard's *file* has a header (the plan, the build, the machine) and a line of JSON for each result. When a shard
//!   is resumed, it drops a line that a kill left incomplete.
//! * A [`Session`] gives a command its results, whether they are made now, were made earlier, or come from many files.
//!   A command without shards uses a session that owns every job and keeps nothing.

mod file;
mod merge;
mod session;
mod words;

pub use file::{Plan, ShardHeader};
pub use merge::{Merge, Merger};
pub use session::{Done, Job, Session};
pub use words::{Flags, stripped, words};

use std::fmt;
use std::str::FromStr;

/// More shards than anybody has machines.
const MANY: u32 = 100_000;

/// One part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// Counts from 1.
    number: u32,
    of: u32,
}

impl Shard {
    /// The whole plan, as one shard.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Shard `number` of `of`; `None` if there is no such shard.
    pub fn new(number: u32, of: u32) -> Option<Self> {
        ((1..=of).contains(&number) && of <= MANY).then_some(Self { number, of })
    }

    /// The shard's number, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of shards.
    pub fn of(self) -> u32 {
        self.of
    }

    /// Does the job with this number, from 0, belong to this shard?
    pub fn owns(self, job: usize) -> bool {
        Self::owner(job, self.of) == self
    }

    /// How many of the jobs before this number it owns.
    pub fn owned_before(self, end: u64) -> u64 {
        end.saturating_sub(u64::from(self.number) - 1).div_ceil(u64::from(self.of))
    }

    /// The shard that owns the job with this number.
    pub fn owner(job: usize, of: u32) -> Self {
        let number = u32::try_from(job % of as usize).expect("smaller than a u32");
        Self { number: number + 1, of }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |text: &str| text.parse().ok();
        let parts = text.split_once('/').and_then(|(number, of)| read(number).zip(read(of)));
        let (number, of) = parts.ok_or("not I/N, as in 3/8")?;
        Self::new(number, of).ok_or(format!("not within 1/{of} to {of}/{of}, {MANY} at most"))
    }
}

const INTERRUPTED: &str = "interrupted";

/// An error message, and a command that helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    hint: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// Ctrl-C ended the command before its jobs were done. This isn't a fault.
    pub fn interrupted() -> Self {
        Self::new(INTERRUPTED, "run it again")
    }

    /// Was the command interrupted by Ctrl-C?
    pub fn is_interrupted(&self) -> bool {
        self.message == INTERRUPTED
    }

    /// The message, on one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How to fix it.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_one_owner() {
        for job in 0..20 {
            let owners = (1..=8).filter(|&n| Shard::new(n, 8).unwrap().owns(job)).count();
            assert_eq!(owners, 1);
        }
        assert!((0..20).all(|job| Shard::WHOLE.owns(job)));
        for (number, end) in (1..=8).flat_map(|number| (0..20).map(move |end| (number, end))) {
            let shard = Shard::new(number, 8).unwrap();
            let owned = (0..end).filter(|&job| shard.owns(job)).count();
            assert_eq!(shard.owned_before(end as u64), owned as u64);
        }
    }

    #[test]
    fn a_shard_is_written_as_i_of_n() {
        assert_eq!("3/8".parse::<Shard>(), Ok(Shard::new(3, 8).unwrap()));
        assert_eq!(Shard::new(3, 8).unwrap().to_string(), "3/8");
        for bad in ["", "3", "0/8", "9/8", "a/8", "1/0", "1/100001"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
