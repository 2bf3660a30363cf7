//! A process that is sampled repeatedly.

use super::lifetimes::monotonic;
use super::line::{self, Lines};
use super::live::Live;
use super::observation::Observed;
use super::outcome::{busiest, together};
use super::period::cpu_ns;
use super::reader::Reader;
use super::snapshot::{Lock, Snapshot};
use crate::mailbox::{Remote, refuse_detached};
use crate::process::Process;
use lockwright_contract::counters::control::Level;
use lockwright_symbols::{Symboliser, threads};
use lockwright_text::{Failure, cause};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often we refresh the process's memory map.
const REFRESH: Duration = Duration::from_secs(10);

/// The process.
pub struct Watched {
    /// Its id.
    pub pid: libc::pid_t,
    live: Live,
    symbols: Symboliser,
    refreshed: Instant,
    /// Kept open, so that we can read it after the process has ended.
    segment: Option<(File, PathBuf)>,
    reader: Reader,
    /// The last sample; `None`: nothing had been counted.
    before: Option<Snapshot>,
    looked: Instant,
    looked_ns: u64,
    lines: Lines,
    /// At the last sample.
    threads: usize,
    cpu_ns: u64,
    /// The level that we request, and for how long each time.
    asks: Level,
    lease: Duration,
    /// The level in force.
    pub level: Level,
    /// Has the process ended, or started another program?
    pub has_ended: bool,
}

/// What the locks did between two samples.
pub struct Look {
    /// All counts so far.
    pub total: Option<Snapshot>,
    /// The counts since the last sample.
    pub since: Option<Snapshot>,
    /// The time since the last sample.
    pub elapsed: Duration,
    /// Number of threads: the larger one of now and the last sample.
    pub threads: usize,
    /// Their CPU time since the last sample, ns.
    pub cpu_ns: u64,
    /// When it was taken, ns of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
}

impl Look {
    /// The locks that threads wait for now.
    pub fn open(&self) -> impl Iterator<Item = &Rc<Lock>> {
        let locks = self.total.iter().flat_map(|total| &total.locks);
        locks.filter(|lock| lock.open_since_ns != 0)
    }
}

/// How long the process keeps counting for this command if the command is killed.
pub fn lease(time: Duration) -> Duration {
    time + Duration::from_secs(3)
}

impl Watched {
    /// Starts to observe a process, which counts at this level from now on. Sample it again within `lease`.
    pub fn open(pid: libc::pid_t, asks: Level, lease: Duration) -> Result<Self, Failure> {
        let process = Process::open(pid)?;
        let live = Live::find(&process)?;
        let symbols = Symboliser::of_process(live.pid).map_err(|error| {
            Failure::new(format!("cannot look into process {pid}: {}", cause(&error)))
        })?;
        if asks > Level::Off {
            refuse_detached(&process, &Remote::find(&process)?)?;
            live.ask(&process, asks, lease)?;
        }
        let segment = live.file(&process)?;
        let level = live.level(&process)?;
        drop(process);
        let mut reader = Reader::default();
        let before = segment.as_ref().map(|(file, path)| reader.read(file, path)).transpose()?;
        let mut lines = Lines::default();
        if let Some(before) = &before {
            lines.look(pid, before.locks.iter().map(AsRef::as_ref));
        }
        let now = Instant::now();
        Ok(Self {
            pid: live.pid,
            live,
            symbols,
            refreshed: now,
            segment,
            reader,
            before,
            looked: now,
            looked_ns: monotonic(),
            lines,
            threads: threads(pid).map_or(0, |all| all.len()),
            cpu_ns: cpu_ns(pid),
            asks,
            lease,
            level,
            has_ended: false,
        })
    }

    /// Its command line, from the system.
    pub fn command(&self) -> String {
        let words = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned()
    }

    /// Its name.
    pub fn name(&self) -> String {
        let name = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end().to_owned()
    }

    /// The level that we request.
    pub fn asks(&self) -> Level {
        self.asks
    }

    /// Requests another level.
    pub fn ask(&mut self, level: Level) -> Result<(), Failure> {
        let process = Process::open(self.pid)?;
        if self.asks > level {
            self.live.leave(&process, self.asks)?;
        }
        self.asks = level;
        self.renew(&process)
    }

    /// Requests a level once, for this long. The request then expires.
    pub fn ask_once(&mut self, level: Level, time: Duration) -> Result<(), Failure> {
        let process = Process::open(self.pid)?;
        self.live.ask(&process, level, time)?;
        self.level = self.live.level(&process)?;
        Ok(())
    }

    fn renew(&mut self, process: &Process) -> Result<(), Failure> {
        if self.asks > Level::Off {
            self.live.ask(process, self.asks, self.lease)?;
        }
        if self.segment.is_none() {
            self.segment = self.live.file(process)?;
        }
        self.level = self.live.level(process)?;
        Ok(())
    }

    /// Takes a sample. It includes all counts of a process that has ended.
    pub fn look(&mut self) -> Result<Look, Failure> {
        let renewed = match self.has_ended {
            true => Ok(()),
            false => Process::open(self.pid).and_then(|process| self.renew(&process)),
        };
        if let Err(failure) = renewed {
            // A process that can't have shared memory is an error; one that has ended is not.
            if Path::new(&format!("/proc/{}", self.pid)).exists() && self.segment.is_none() {
                return Err(failure);
            }
            self.has_ended = true;
        }
        if !self.has_ended && self.refreshed.elapsed() > REFRESH {
            self.symbols.refresh();
            self.refreshed = Instant::now();
        }
        let total = match &self.segment {
            Some((file, path)) => Some(self.reader.read(file, path)?),
            None => None,
        };
        let elapsed = self.looked.elapsed();
        self.looked = Instant::now();
        let mut since = match (&total, &self.before) {
            (Some(total), Some(before)) => Some(total.clone().since(before)),
            (total, _) => total.clone(),
        };
        let at_ns = monotonic();
        if let Some(since) = &mut since {
            let lines = self.lines.look(self.pid, since.locks.iter().map(AsRef::as_ref));
            line::close(since, (self.looked_ns, at_ns), &lines);
        }
        self.looked_ns = at_ns;
        self.before.clone_from(&total);
        // They may have ended meanwhile, or begun.
        let now = threads(self.pid).map_or(0, |all| all.len());
        let threads = now.max(std::mem::replace(&mut self.threads, now));
        let computed = self.cpu_ns.max(cpu_ns(self.pid));
        let cpu_ns = computed - std::mem::replace(&mut self.cpu_ns, computed);
        Ok(Look { total, since, elapsed, threads, cpu_ns, at_ns })
    }

    /// Its locks or condition variables, distinguished as by [`named`](Self::named).
    pub fn told_apart(&mut self, locks: &[Rc<Lock>]) -> Vec<Rc<Lock>> {
        together(locks, &mut self.symbols)
    }

    /// Names the first `most` locks, the highest `key` first.
    pub fn named<K: Ord>(
        &mut self,
        snapshot: &Snapshot,
        look: &Look,
        most: usize,
        key: impl Fn(&Lock) -> K,
    ) -> Observed {
        let elapsed_ns = look.elapsed.as_nanos() as u64;
        let mut seen = busiest(snapshot, &mut self.symbols, elapsed_ns, look.threads, most, key);
        // Of those that go on, the counts have the part that lies within the interval.
        for lock in seen.locks.iter_mut().filter(|lock| lock.unended_ns > 0) {
            let open = look.open().find(|open| open.of == lock.of);
            lock.unended_ns = open.map_or(0, |open| look.at_ns.saturating_sub(open.open_since_ns));
        }
        // In a container it counts under another id.
        Observed { pid: self.pid as u32, ..seen }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.asks > Level::Off
            && !self.has_ended
            && let Ok(process) = Process::open(self.pid)
        {
            let _ = self.live.leave(&process, self.asks); // on failure, the request expires
        }
    }
}
