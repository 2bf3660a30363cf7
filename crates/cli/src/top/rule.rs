//! The lock algorithm of a process's locks: which one, and another one.

use crate::hints::Failure;
use crate::mailbox::{Remote, Said};
use crate::process::Process;
use crate::{catalog, machine};

/// A process's table of locks, as far as it can be told from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// The lock of mutexes that no rule names.
    default: String,
    /// Those of the rules.
    others: Vec<String>,
}

/// The places of mutexes that no rule names, or that were contended before there were rules (the runtime's `rules.rs`).
const DEFAULT: [u32; 3] = [0, 1, 31];

impl Rules {
    pub(crate) fn read(pid: libc::pid_t) -> Result<Self, Failure> {
        let process = Process::open(pid)?;
        Ok(Self::of(&Remote::find(&process)?.table()?))
    }

    pub(crate) fn of(table: &str) -> Self {
        let (default, rules) = table.split_once('\n').unwrap_or((table, ""));
        let locks = rules.split(';').filter_map(|rule| Some(rule.split_once('=')?.1.to_owned()));
        Self { default: default.to_owned(), others: locks.collect() }
    }

    /// The lock at a place. Which of several rules has which place is known to the process alone.
    pub(crate) fn at(&self, place: u32) -> String {
        match &*self.others {
            _ if DEFAULT.contains(&place) => self.default.clone(),
            [] => self.default.clone(),
            [lock] => format!("{lock}, by a rule"),
            locks => format!("one of the rules': {}", locks.join(", ")),
        }
    }
}

/// Gives the process another default; the rules stay. What came of it, in a line.
pub(crate) fn switch(pid: libc::pid_t, lock: &str) -> Result<String, Failure> {
    catalog::check(lock)?;
    let lock = machine::tuned(lock);
    let process = Process::open(pid)?;
    let mailbox = Remote::find(&process)?;
    let now = match mailbox.posted()? {
        Some(posted) => posted,
        None => mailbox.table()?,
    };
    let (_, rules) = now.split_once('\n').unwrap_or((&now, ""));
    match mailbox.post(&format!("{lock}\n{rules}"))? {
        Said::Done => Ok(format!("now on {lock}")),
        Said::Refused(why) => Err(Failure::new(format!("it keeps its locks: {why}"))),
        Said::Nothing => {
            Ok(format!("{lock} is posted, and in force when a thread next has to wait"))
        }
    }
}
