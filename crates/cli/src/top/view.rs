//! What the screen is about.

use super::lease;
use super::list::List;
use super::rule;
use crate::ctl::epochs::{Epoch, Followed, Slo};
use crate::hints::Failure;
use crate::observed::outcome::{Observed, Ranked};
use crate::observed::snapshot::{Lock, Of};
use crate::observed::watched::Watched;
use crate::process::Process;
use crate::table::Table;
use lockwright_observe::control::Level;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Locks that get names: more than a terminal has lines.
const MOST: usize = 100;
/// Looks that a lock's course shows.
pub(crate) const COURSE: usize = 8;
/// How long stacks are sampled.
const SAMPLING: Duration = Duration::from_secs(5);

/// All of it.
pub(crate) struct View {
    pub(crate) interval: Duration,
    /// There is a list only if no process was named.
    pub(crate) list: Option<List>,
    pub(crate) row: usize,
    pub(crate) process: Option<Shown>,
    pub(crate) mode: Mode,
    /// What came of the last key, or what is wrong.
    pub(crate) status: String,
}

/// What keys mean, and what is on top of the locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Locks,
    Help,
    /// What the user has typed so far.
    Typing(Field, String),
}

/// What is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Rule,
    /// An epoch, and its SLO.
    Slo,
}

/// What is below the table of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Who holds the selected lock, and who waits for it.
    Places,
    /// The same with whole stacks, which are sampled until then.
    Stacks(Instant),
    Epochs,
}

/// Which lock comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Blocked,
    Waiting,
    Waits,
    Wait,
    Hold,
}

impl Sort {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Blocked => Self::Waiting,
            Self::Waiting => Self::Waits,
            Self::Waits => Self::Wait,
            Self::Wait => Self::Hold,
            Self::Hold => Self::Blocked,
        }
    }

    /// For people: by what.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Waiting => "waiting",
            Self::Waits => "waits",
            Self::Wait => "P99 wait",
            Self::Hold => "hold P50",
        }
    }

    fn key(self, lock: &Lock) -> (u64, u64) {
        let first = match self {
            Self::Blocked => lock.blocked_ns,
            Self::Waiting => lock.wait_ns(),
            Self::Waits => lock.arrived,
            Self::Wait => lock.wait().quantile(0.99),
            Self::Hold => lock.hold.quantile(0.5),
        };
        (first, lock.wait_ns())
    }
}

/// A process.
pub(crate) struct Shown {
    /// `None`: there is nothing to look at, but what has been seen.
    watched: Option<Watched>,
    /// In the last interval.
    pub(crate) outcome: Observed,
    /// How many locks somebody waited for in it, and the sums of all of them.
    pub(crate) locks: usize,
    pub(crate) blocked_ns: u64,
    pub(crate) contended: u64,
    pub(crate) rules: Table,
    pub(crate) level: Level,
    pub(crate) has_ended: bool,
    pub(crate) sort: Sort,
    /// The lock that is shown in detail.
    pub(crate) selected: usize,
    pub(crate) detail: Detail,
    followed: Option<Followed>,
    /// In the last interval.
    pub(crate) epochs: Vec<Epoch>,
    /// The part of each interval in which somebody waited for a lock, percent, the last one last.
    pub(crate) courses: BTreeMap<Of, VecDeque<u8>>,
}

impl View {
    pub(crate) fn open(pid: Option<libc::pid_t>, interval: Duration) -> Result<Self, Failure> {
        let (mut list, mut process) = (None, None);
        match pid {
            Some(pid) => process = Some(Shown::open(pid, interval)?),
            None => list = Some(List::new()),
        }
        Ok(Self { interval, list, row: 0, process, mode: Mode::Locks, status: String::new() })
    }

    /// Looks again.
    pub(crate) fn look(&mut self) {
        match &mut self.process {
            Some(process) => {
                if let Err(failure) = process.look() {
                    self.status = failure.message().to_owned();
                }
            }
            None => {
                if let Some(list) = &mut self.list {
                    let pid = list.rows.get(self.row).map(|row| row.pid);
                    list.look();
                    let again = list.rows.iter().position(|row| Some(row.pid) == pid);
                    self.row = again.unwrap_or(self.row).min(list.rows.len().saturating_sub(1));
                }
            }
        }
    }

    /// Opens the process in the list's line.
    pub(crate) fn enter(&mut self) {
        let row = self.list.as_ref().and_then(|list| list.rows.get(self.row));
        let Some(row) = row.filter(|_| self.process.is_none()) else { return };
        match Shown::open(row.pid, self.interval) {
            Ok(process) => self.process = Some(process),
            Err(failure) => self.status = failure.message().to_owned(),
        }
    }

    /// Back to the list; `false`: there is none.
    pub(crate) fn back(&mut self) -> bool {
        let goes = self.process.is_some() && self.list.is_some();
        if goes {
            self.process = None;
            self.look();
        }
        goes
    }

    /// The next line, or the one before.
    pub(crate) fn step(&mut self, by: isize) {
        let (at, len) = match (&mut self.process, &self.list) {
            (Some(process), _) => (&mut process.selected, process.outcome.locks.len()),
            (None, Some(list)) => (&mut self.row, list.rows.len()),
            (None, None) => return,
        };
        *at = at.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Does something with the process, and says what came of it.
    pub(crate) fn act(&mut self, act: impl FnOnce(&mut Shown) -> Result<String, Failure>) {
        self.status = match &mut self.process {
            Some(process) if process.has_ended => "the process has ended".to_owned(),
            Some(process) => act(process).unwrap_or_else(|failure| failure.message().to_owned()),
            None => "Enter opens a process".to_owned(),
        };
    }
}

impl Shown {
    fn open(pid: libc::pid_t, interval: Duration) -> Result<Self, Failure> {
        let watched = Watched::open(pid, Level::Counters, lease(interval))?;
        let mut shown = Self::new(Observed { pid: watched.pid as u32, ..Observed::default() });
        shown.outcome.command = watched.command();
        shown.rules = rule::read(watched.pid).unwrap_or_default();
        shown.level = watched.level;
        shown.followed = Followed::begin(&Process::open(watched.pid)?).ok();
        shown.watched = Some(watched);
        Ok(shown)
    }

    /// What has been seen, and no more.
    pub(crate) fn new(outcome: Observed) -> Self {
        Self {
            watched: None,
            locks: outcome.locks.len(),
            blocked_ns: outcome.locks.iter().map(|lock| lock.blocked_ns).sum(),
            contended: outcome.locks.iter().map(|lock| lock.contended).sum(),
            outcome,
            rules: Table::default(),
            level: Level::Counters,
            has_ended: false,
            sort: Sort::Waiting,
            selected: 0,
            detail: Detail::Places,
            followed: None,
            epochs: Vec::new(),
            courses: BTreeMap::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.outcome.pid
    }

    pub(crate) fn selected(&self) -> Option<&Ranked> {
        self.outcome.locks.get(self.selected)
    }

    fn look(&mut self) -> Result<(), Failure> {
        let Some(watched) = self.watched.as_mut().filter(|_| !self.has_ended) else {
            return Ok(());
        };
        let look = watched.look()?;
        (self.level, self.has_ended) = (watched.level, watched.has_ended);
        if self.has_ended {
            return Ok(()); // what was seen last stays
        }
        if let Some(followed) = &mut self.followed {
            // It may end at any moment: the next look says so.
            let epochs = Process::open(watched.pid).and_then(|process| followed.look(&process));
            self.epochs = epochs.unwrap_or_default();
        }
        let Some(since) = &look.since else { return Ok(()) };
        let elapsed_ns = look.elapsed.as_nanos().max(1) as u64;
        let mut courses = std::mem::take(&mut self.courses);
        for lock in &since.locks {
            let mut course = courses.remove(&lock.of).unwrap_or_default();
            course.push_back((100 * lock.blocked_ns / elapsed_ns).min(100) as u8);
            if course.len() > COURSE {
                course.pop_front();
            }
            self.courses.insert(lock.of, course);
        }
        // Of those for which nobody waited: until there is nothing to show.
        for (of, mut course) in courses {
            course.push_back(0);
            if course.len() > COURSE {
                course.pop_front();
            }
            if course.iter().any(|&part| part > 0) {
                self.courses.insert(of, course);
            }
        }
        self.locks = since.locks.len();
        self.blocked_ns = since.locks.iter().map(|lock| lock.blocked_ns).sum();
        self.contended = since.locks.iter().map(|lock| lock.arrived).sum();
        let was = self.outcome.locks.get(self.selected).map(|lock| lock.of);
        let sort = self.sort;
        self.outcome = watched.named(since, &look, MOST, |lock| sort.key(lock));
        let again = self.outcome.locks.iter().position(|lock| Some(lock.of) == was);
        let last = self.outcome.locks.len().saturating_sub(1);
        self.selected = again.unwrap_or(self.selected.min(last));
        Ok(())
    }

    /// Counts at the next level.
    pub(crate) fn next_level(&mut self) -> Result<String, Failure> {
        let Some(watched) = &mut self.watched else { return Ok(String::new()) };
        let level = match watched.asks() {
            Level::Off => Level::Counters,
            Level::Counters => Level::Full,
            Level::Full => Level::Off,
        };
        watched.ask(level)?;
        self.level = watched.level;
        Ok(match self.level == level {
            true => format!("counts: {}", level.name()),
            false => format!("counts: {}, because another command asks for it", self.level.name()),
        })
    }

    /// Has stacks taken for a while, and shows them; or shows places again.
    pub(crate) fn sample(&mut self) -> Result<String, Failure> {
        if let Detail::Stacks(_) = self.detail {
            self.detail = Detail::Places;
            return Ok(String::new());
        }
        if let Some(watched) = &mut self.watched {
            watched.ask_once(Level::Full, SAMPLING)?;
            self.level = watched.level;
        }
        self.detail = Detail::Stacks(Instant::now() + SAMPLING);
        Ok(String::new())
    }

    /// Shows epochs, or places again.
    pub(crate) fn show_epochs(&mut self) -> Result<String, Failure> {
        self.detail = match self.detail {
            Detail::Epochs => Detail::Places,
            Detail::Places | Detail::Stacks(_) => Detail::Epochs,
        };
        Ok(String::new())
    }

    /// Gives epochs another SLO: `get 100us`, or `100us` for all; `own` instead of a time is the program's.
    pub(crate) fn set_slo(&mut self, typed: &str) -> Result<String, Failure> {
        let typed = typed.trim();
        let (epoch, slo) = typed.rsplit_once(char::is_whitespace).unwrap_or(("all", typed));
        let slo: Slo = slo.parse().map_err(|why| Failure::new(format!("SLO '{slo}': {why}")))?;
        let Some(followed) = &self.followed else { return Ok("it has no epochs".to_owned()) };
        let process = Process::open(self.pid() as libc::pid_t)?;
        let names = followed.set_slo(&process, epoch.trim(), slo)?;
        self.detail = Detail::Epochs;
        Ok(format!("{}: {slo}", names.join(", ")))
    }

    /// Gives the process another lock.
    pub(crate) fn switch(&mut self, lock: &str) -> Result<String, Failure> {
        let said = rule::switch(self.pid() as libc::pid_t, lock)?;
        self.rules = rule::read(self.pid() as libc::pid_t)?;
        Ok(said)
    }
}
