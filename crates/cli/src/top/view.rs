//! The state behind the screen.

use super::list::{List, lease};
use super::rule;
use crate::ctl::delegated::Delegated;
use crate::ctl::epochs::{Epoch, Followed, Slo};
use crate::delegate;
use crate::hints::Failure;
use crate::observed::advice::{Circumstances, advise, wake_up_ns};
use crate::observed::target::Target;
use lockwright_contract::counters::control::Level;
use lockwright_observer::counts::lifetimes::Lifetimes;
use lockwright_observer::counts::observation::{Observed, Ranked};
use lockwright_observer::counts::snapshot::{Lock, Of};
use lockwright_observer::counts::watched::Watched;
use lockwright_observer::counts::window;
use lockwright_observer::process::Process;
use lockwright_observer::sampler::watch::OwnWatch;
use lockwright_observer::standing::{Standing, StandingWatch};
use lockwright_observer::table::Table;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Number of locks that get names: more than a terminal has lines.
const MOST: usize = 100;
/// Number of intervals in a lock's course.
pub(crate) const COURSE: usize = 8;
/// How long stacks are sampled.
const SAMPLING: Duration = Duration::from_secs(5);

/// All of it.
pub(crate) struct View {
    pub(crate) interval: Duration,
    /// Present only if the user named no process.
    pub(crate) list: Option<List>,
    pub(crate) row: usize,
    pub(crate) process: Option<Shown>,
    pub(crate) mode: Mode,
    /// The result of the last key, or an error.
    pub(crate) status: String,
}

/// The meaning of keys, and what covers the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Locks,
    Help,
    /// The text typed so far.
    Typing(Field, String),
}

/// What the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Rule,
    /// An epoch and its SLO.
    Slo,
}

/// What is shown below the table of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Places that hold the selected lock, and places that wait for it.
    Places,
    /// The same places with whole stacks, which are sampled until this moment.
    Stacks(Instant),
    Epochs,
}

/// The order of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Waiting,
    Waits,
    Mean,
    Longest,
}

impl Sort {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Waits,
            Self::Waits => Self::Mean,
            Self::Mean => Self::Longest,
            Self::Longest => Self::Waiting,
        }
    }

    /// The name of the sort key.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Waits => "waits",
            Self::Mean => "mean wait",
            Self::Longest => "longest wait",
        }
    }

    /// Of what a lock did in an interval of that length.
    fn key(self, lock: &Lock, interval_ns: u64) -> (u64, u64) {
        let waited_ns = window::waited_ns(lock, interval_ns) as u64;
        let first = match self {
            Self::Waiting => waited_ns,
            Self::Waits => lock.arrived,
            Self::Mean => window::mean_ns(lock),
            Self::Longest => lock.wait_max_ns,
        };
        (first, waited_ns)
    }
}

/// The process on the screen.
pub(crate) struct Shown {
    /// `None`: the process can no longer be observed; only the old data is shown.
    watched: Option<Watched>,
    /// For the last interval.
    pub(crate) outcome: Observed,
    /// How many locks threads waited for in the interval, and how often.
    pub(crate) locks: usize,
    pub(crate) contended: u64,
    pub(crate) rules: Table,
    pub(crate) delegated: Delegated,
    /// What `run --delegate` did, in a few words.
    pub(crate) elsewhere: Option<String>,
    pub(crate) level: Level,
    pub(crate) has_ended: bool,
    /// Who waits now, for long or for ever.
    pub(crate) standing: Standing,
    /// Finds that out. `None`: there is no process.
    standing_watch: Option<StandingWatch>,
    /// Finds locks that aren't pthread's, likewise.
    own_watch: Option<OwnWatch>,
    pub(crate) sort: Sort,
    /// The lock shown in detail.
    pub(crate) selected: usize,
    pub(crate) detail: Detail,
    followed: Option<Followed>,
    /// For the last interval.
    pub(crate) epochs: Vec<Epoch>,
    /// For each interval, how many threads waited for the lock, in chronological order.
    pub(crate) courses: BTreeMap<Of, VecDeque<f64>>,
    /// How long a wake-up takes here, for advice.
    wake_up_ns: u64,
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

    /// Takes a new sample.
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

    /// Opens the selected process of the list.
    pub(crate) fn enter(&mut self) {
        let row = self.list.as_ref().and_then(|list| list.rows.get(self.row));
        let Some(row) = row.filter(|_| self.process.is_none()) else { return };
        match Shown::open(row.pid, self.interval) {
            Ok(process) => self.process = Some(process),
            Err(failure) => self.status = failure.message().to_owned(),
        }
    }

    /// Returns to the list; `false`: there is none.
    pub(crate) fn back(&mut self) -> bool {
        let goes = self.process.is_some() && self.list.is_some();
        if goes {
            self.process = None;
            self.look();
        }
        goes
    }

    /// Moves the selection down or up.
    pub(crate) fn step(&mut self, by: isize) {
        let (at, len) = match (&mut self.process, &self.list) {
            (Some(process), _) => (&mut process.selected, process.outcome.locks.len()),
            (None, Some(list)) => (&mut self.row, list.rows.len()),
            (None, None) => return,
        };
        *at = at.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Applies an action to the process, and shows the result.
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
        shown.delegated = rule::delegated(watched.pid);
        shown.elsewhere = delegate::brief(watched.pid);
        shown.level = watched.level;
        shown.followed = Followed::begin(&Process::open(watched.pid)?).ok();
        shown.standing_watch = Some(StandingWatch::of(watched.pid));
        shown.own_watch = Some(OwnWatch::of(watched.pid, interval));
        shown.watched = Some(watched);
        shown.wake_up_ns = wake_up_ns();
        Ok(shown)
    }

    /// A fixed outcome, without a process.
    pub(crate) fn new(outcome: Observed) -> Self {
        Self {
            watched: None,
            locks: outcome.locks.len(),
            contended: outcome.locks.iter().map(|lock| lock.contended).sum(),
            outcome,
            rules: Table::default(),
            delegated: Delegated::default(),
            elsewhere: None,
            level: Level::Counters,
            has_ended: false,
            standing: Standing::default(),
            standing_watch: None,
            own_watch: None,
            sort: Sort::Waiting,
            selected: 0,
            detail: Detail::Places,
            followed: None,
            epochs: Vec::new(),
            courses: BTreeMap::new(),
            wake_up_ns: 0,
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
            return Ok(()); // keep the last data
        }
        if let Some(watch) = &self.standing_watch {
            self.standing = watch.latest();
        }
        if let Some(followed) = &mut self.followed {
            // The process may end at any moment. The next sample will report that.
            let epochs = Process::open(watched.pid).and_then(|process| followed.look(&process));
            self.epochs = epochs.unwrap_or_default();
        }
        if !self.delegated.data.is_empty() {
            self.delegated = rule::delegated(watched.pid);
        }
        self.elsewhere = delegate::brief(watched.pid);
        let elapsed_ns = look.elapsed.as_nanos().max(1) as u64;
        let Some(since) = &look.since else {
            // No thread has had to wait so far.
            (self.outcome.elapsed_ns, self.outcome.threads) = (elapsed_ns, look.threads);
            self.tell_own();
            return Ok(());
        };
        let mut courses = std::mem::take(&mut self.courses);
        for lock in &since.locks {
            let mut course = courses.remove(&lock.of).unwrap_or_default();
            course.push_back(window::waiting(lock, elapsed_ns, look.threads));
            if course.len() > COURSE {
                course.pop_front();
            }
            self.courses.insert(lock.of, course);
        }
        // Locks without waits in this interval: drop their course once all of it is zero.
        for (of, mut course) in courses {
            course.push_back(0.0);
            if course.len() > COURSE {
                course.pop_front();
            }
            if course.iter().any(|&waiting| waiting > 0.0) {
                self.courses.insert(of, course);
            }
        }
        self.locks = since.locks.len();
        self.contended = since.locks.iter().map(|lock| lock.arrived).sum();
        let was = self.outcome.locks.get(self.selected).map(|lock| lock.of);
        let sort = self.sort;
        self.outcome = watched.named(since, &look, MOST, |lock| sort.key(lock, elapsed_ns));
        let known = Circumstances {
            cpu_ns: look.cpu_ns,
            wake_up_ns: self.wake_up_ns,
            lifetimes: &Lifetimes::begin(),
            here: None,
            target: &Target::Process(watched.pid),
        };
        advise(std::slice::from_mut(&mut self.outcome), known);
        self.tell_own();
        let again = self.outcome.locks.iter().position(|lock| Some(lock.of) == was);
        let last = self.outcome.locks.len().saturating_sub(1);
        self.selected = again.unwrap_or(self.selected.min(last));
        Ok(())
    }

    /// Adds what samples have shown.
    fn tell_own(&mut self) {
        if let Some(watch) = &self.own_watch {
            let seen = watch.latest();
            (self.outcome.own_locks, self.outcome.samples) = (seen.locks, seen.samples);
        }
    }

    /// Changes to the next level.
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

    /// Samples stacks for a while and shows them, or goes back to places.
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

    /// Shows epochs, or goes back to places.
    pub(crate) fn show_epochs(&mut self) -> Result<String, Failure> {
        self.detail = match self.detail {
            Detail::Epochs => Detail::Places,
            Detail::Places | Detail::Stacks(_) => Detail::Epochs,
        };
        Ok(String::new())
    }

    /// Sets SLOs of epochs: `get 100us`, or `100us` for all. `own` instead of a time restores the program's SLO.
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

    /// Changes the process's lock.
    pub(crate) fn switch(&mut self, lock: &str) -> Result<String, Failure> {
        let said = rule::switch(self.pid() as libc::pid_t, lock)?;
        self.rules = rule::read(self.pid() as libc::pid_t)?;
        Ok(said)
    }
}
