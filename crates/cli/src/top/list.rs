//! The processes that have our locks.

use crate::observed::processes::Finder;
use crate::observed::watched::Watched;
use lockwright_observe::control::Level;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// All of them. None begins to count because of this list.
#[derive(Default)]
pub(crate) struct List {
    finder: Finder,
    known: BTreeMap<libc::pid_t, Result<Watched, String>>,
    /// By the time for which somebody waited, the longest first; at the end those that can't be looked at.
    pub(crate) rows: Vec<Row>,
}

/// One.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) pid: libc::pid_t,
    pub(crate) name: String,
    /// What it counts: off, counters, full.
    pub(crate) level: &'static str,
    /// The lock algorithm; empty: not known as yet.
    pub(crate) lock: String,
    /// How long the last interval was, ns.
    pub(crate) elapsed_ns: u64,
    /// For how long somebody waited in it, the sum of all locks, ns; `None`: it does not count.
    pub(crate) blocked_ns: Option<u64>,
    /// Threads that had to wait in it.
    pub(crate) contended: Option<u64>,
    /// Why it can't be looked at.
    pub(crate) refused: Option<String>,
}

impl List {
    pub(crate) fn new() -> Self {
        let mut list = Self::default();
        list.look();
        list
    }

    pub(crate) fn look(&mut self) {
        let pids = self.finder.find();
        self.known.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            self.known.entry(pid).or_insert_with(|| {
                Watched::open(pid, Level::Off, Duration::ZERO)
                    .map_err(|why| why.message().to_owned())
            });
        }
        self.rows = self.known.iter_mut().filter_map(|(pid, watched)| row(*pid, watched)).collect();
        self.rows.sort_by_key(|row| (row.refused.is_some(), std::cmp::Reverse(row.blocked_ns)));
    }
}

/// `None`: it has ended.
fn row(pid: libc::pid_t, watched: &mut Result<Watched, String>) -> Option<Row> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let mut row = Row {
        pid,
        name: String::from_utf8_lossy(&name).trim_end().to_owned(),
        level: Level::Off.name(),
        lock: String::new(),
        elapsed_ns: 0,
        blocked_ns: None,
        contended: None,
        refused: None,
    };
    let watched = match watched {
        Ok(watched) => watched,
        Err(why) => {
            row.refused = Some(why.clone());
            return Some(row);
        }
    };
    match watched.look() {
        Ok(_) if watched.has_ended => return None,
        Ok(look) => {
            row.level = watched.level.name();
            row.elapsed_ns = look.elapsed.as_nanos() as u64;
            row.lock = look.total.map_or_else(String::new, |total| total.lock);
            if let Some(since) = look.since.filter(|_| watched.level > Level::Off) {
                row.blocked_ns = Some(since.locks.iter().map(|lock| lock.blocked_ns).sum());
                row.contended = Some(since.locks.iter().map(|lock| lock.arrived).sum());
            }
        }
        Err(why) => row.refused = Some(why.message().to_owned()),
    }
    Some(row)
}
