//! The list of processes that use our locks.

use lockwright_contract::counters::control::Level;
use lockwright_observer::counts::processes::Finder;
use lockwright_observer::counts::watched::Watched;
use lockwright_observer::counts::window;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// How long a process keeps counting for this command unless the request is renewed.
pub(crate) fn lease(interval: Duration) -> Duration {
    2 * interval + Duration::from_secs(3)
}

/// The list. Showing it doesn't make any process count.
#[derive(Default)]
pub(crate) struct List {
    finder: Finder,
    known: BTreeMap<libc::pid_t, Result<Watched, String>>,
    /// Sorted by how many threads waited, the most first. Processes that can't be observed come last.
    pub(crate) rows: Vec<ProcessRow>,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessRow {
    pub(crate) pid: libc::pid_t,
    pub(crate) name: String,
    /// What it counts: off, counters, full.
    pub(crate) level: &'static str,
    /// The lock algorithm.
    pub(crate) lock: Option<String>,
    /// Why that isn't known; `None` if it is, or if the process can't be observed.
    pub(crate) lock_unknown: Option<&'static str>,
    /// Length of the last interval, ns.
    pub(crate) elapsed_ns: u64,
    /// How many threads waited for locks in the interval, on average; `None`: it isn't counting.
    pub(crate) waiting: Option<f64>,
    /// Number of waits in the interval.
    pub(crate) contended: Option<u64>,
    /// Why it can't be observed.
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
        let waiting = |row: &ProcessRow| row.waiting.unwrap_or(-1.0);
        self.rows.sort_by(|one, other| {
            let refused = one.refused.is_some().cmp(&other.refused.is_some());
            refused.then(waiting(other).total_cmp(&waiting(one)))
        });
    }
}

/// A process tells its lock where it counts, once a thread has had to wait.
const NO_COUNTS: &str = "it doesn't count yet: see lockwright top PID";

/// `None`: it has ended.
fn row(pid: libc::pid_t, watched: &mut Result<Watched, String>) -> Option<ProcessRow> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let mut row = ProcessRow {
        pid,
        name: String::from_utf8_lossy(&name).trim_end().to_owned(),
        level: Level::Off.name(),
        lock: None,
        lock_unknown: None,
        elapsed_ns: 0,
        waiting: None,
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
            row.lock = look.total.map(|total| total.lock).filter(|lock| !lock.is_empty());
            row.lock_unknown = row.lock.is_none().then_some(NO_COUNTS);
            if let Some(since) = look.since.filter(|_| watched.level > Level::Off) {
                let waiting = |lock| window::waiting(lock, row.elapsed_ns, look.threads);
                let all = since.locks.iter().map(|lock| waiting(lock)).sum::<f64>();
                row.waiting = Some(all.min(look.threads as f64));
                row.contended = Some(since.locks.iter().map(|lock| lock.arrived).sum());
            }
        }
        Err(why) => row.refused = Some(why.message().to_owned()),
    }
    Some(row)
}
