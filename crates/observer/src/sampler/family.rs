//! Samples several processes: a program, and what it starts; without knowing beforehand which those are.

use super::outcome::{name_sleeps, own_locks, taken_often};
use super::sample::{End, Sampled, Sampler};
use super::seen;
use super::target::Target;
use super::wait::Mutex;
use crate::counts::live::Live;
use crate::counts::observation::Observed;
use crate::counts::passers::Passers;
use crate::counts::reader::Reader;
use crate::counts::snapshot::{Of, Snapshot};
use crate::findings::Holding;
use crate::findings::{OwnLock, TakenOften};
use crate::process::Process;
use lockwright_contract::counters::Segment;
use lockwright_contract::counters::layout::{LENGTH, LockKind};
use lockwright_symbols::{proc_text, threads};
use lockwright_text::cause;
use memmap2::Mmap;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// The shortest time between two samples.
pub(super) const PERIOD: Duration = Duration::from_millis(20);
/// The shortest time between two looks at holders: no two fall into one tick of the scheduler's.
const GLANCE: Duration = Duration::from_millis(4);
/// Samples take at most one part in this many of a CPU's time, and so do looks at holders, and at running threads: a process with many threads is
/// sampled less often.
pub(super) const PARTS: u32 = 40;
/// So much CPU time may be spent on running threads at once: the files' names are read when the first of them are looked at.
const CREDIT: Duration = Duration::from_millis(100);
/// How often we look for new processes and new wrappers; and how often at least, however long that takes.
const AGAIN: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_millis(500);
/// When a process that couldn't be opened is tried again.
const REFUSED: Duration = Duration::from_secs(1);
/// Maximum number of processes that are sampled at a time.
pub const MOST: usize = 32;
/// Maximum number of processes that are looked for.
const FOUND: usize = 1024;

/// What was seen in one process.
struct SeenIn {
    pid: libc::pid_t,
    command: String,
    /// Locks that aren't pthread's, for which its threads waited.
    own_locks: Vec<OwnLock>,
    /// What the holders of its locks did while others waited for them, by the lock's address.
    holdings: HashMap<u64, Holding>,
    taken_often: TakenOften,
    /// Why running threads couldn't be sampled.
    running_unseen: Option<String>,
    /// The number of samples.
    samples: u64,
}

/// How much was looked at.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// How often threads were looked at, in all processes.
    pub looks: u64,
    /// Why running threads couldn't be sampled.
    pub running_unseen: Option<String>,
    /// More than [`MOST`] processes ran at a time, and some were not sampled.
    pub is_crowded: bool,
}

/// A process.
struct Member {
    command: String,
    program: PathBuf,
    sampler: Sampler,
    /// The counts of its locks, which say for which locks threads wait now. `None`: there are none so far.
    counts: Option<Mmap>,
    /// The same, as a file.
    file: Option<(File, PathBuf)>,
    reader: Reader,
    passers: Passers,
    /// The counts before the time without quota that is to be told next.
    before: Option<Snapshot>,
}

impl Member {
    /// The mutexes and readers-writer locks that threads wait for now.
    fn waited(&self) -> Vec<(u64, seen::LockKind)> {
        let Some(map) = &self.counts else { return Vec::new() };
        // SAFETY: mapped as long as `map` exists, which outlives this function; only reading methods are used.
        let segment = unsafe { Segment::of_other(map.as_ptr().cast_mut()) };
        let waited = segment.iter().flat_map(Segment::waited_now);
        let kind = |kind| match kind {
            _ if kind == LockKind::Mutex as u32 => Some(seen::LockKind::Mutex(Mutex::Plain)),
            _ if kind == LockKind::ReadWrite as u32 => Some(seen::LockKind::ReadWrite),
            _ => None,
        };
        waited.filter_map(|one| Some((one.lock, kind(one.kind)?))).collect()
    }

    /// Which locks' waits lasted as long as a time without quota, and ended after that time?
    fn tell_spanned(&mut self) {
        let Some(length) = self.sampler.without_quota() else { return };
        let mut spanned = Vec::new();
        if let Some((file, path)) = &self.file
            && let Ok(counts) = self.reader.read(file, path)
        {
            if let Some(before) = &self.before {
                let since = counts.clone().since(before);
                // Times from a histogram are the middles of its buckets.
                let least = length.as_nanos() as u64 / 10 * 9;
                let long = since.locks.iter().filter(|lock| lock.wait().max() > least);
                spanned.extend(long.filter_map(|lock| match lock.of {
                    Of::Lock(address) => Some(address),
                    Of::Gone(_) | Of::Others => None,
                }));
            }
            self.before = Some(counts);
        }
        self.sampler.spanned(&spanned);
    }

    /// Looks for its counts.
    fn meet_counts(&mut self, pid: libc::pid_t) {
        if let Some((file, path)) = &self.file {
            let (symbols, unwinder) = self.sampler.names();
            if let Ok(counts) = self.reader.read(file, path) {
                self.passers.look(pid, &counts, symbols, unwinder);
                if !self.sampler.is_to_be_spanned() {
                    self.before = Some(counts);
                }
            }
            return;
        }
        let file = Process::open(pid).and_then(|process| Live::find(&process)?.file(&process));
        let Ok(Some((file, path))) = file else { return };
        let is_long = file.metadata().is_ok_and(|about| about.len() >= LENGTH as u64);
        // SAFETY: the file is that long, and its process never shortens it.
        self.counts = is_long.then(|| unsafe { Mmap::map(&file) }).and_then(Result::ok);
        self.file = Some((file, path));
    }
}

/// The thread that samples. It ends soon after this is dropped.
pub struct Watching {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Vec<SeenIn>, bool)>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed); // a flag
    }
}

impl Watching {
    /// What was seen, and whether there were too many processes.
    fn stop(&mut self) -> (Vec<SeenIn>, bool) {
        self.ends.store(true, Relaxed); // a flag
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    /// Adds what was seen to what was counted. Processes that have counted nothing get an entry of their own if anything was seen in them.
    pub fn tell(mut self, outcomes: &mut Vec<Observed>, elapsed_ns: u64) -> Looked {
        let (all, is_crowded) = self.stop();
        let mut looked = Looked { is_crowded, ..Looked::default() };
        // A process in a container counts under another id, but then it is the only one.
        let is_one = outcomes.len() == 1;
        for seen in all {
            looked.looks += seen.samples;
            if looked.running_unseen.is_none() {
                looked.running_unseen.clone_from(&seen.running_unseen);
            }
            let pid = seen.pid.cast_unsigned();
            let its = match outcomes.iter().position(|one| one.pid == pid) {
                None if is_one && seen.holdings.keys().any(|at| is_lock_of(&outcomes[0], *at)) => {
                    Some(0)
                }
                its => its,
            };
            let at = its.unwrap_or(outcomes.len());
            if its.is_none() {
                if seen.own_locks.is_empty() && seen.taken_often.sites.is_empty() {
                    continue;
                }
                let command = seen.command.clone();
                outcomes.push(Observed { pid, command, elapsed_ns, ..Observed::default() });
            }
            let outcome = &mut outcomes[at];
            if outcome.command.is_empty() {
                outcome.command.clone_from(&seen.command); // it has counted nothing
            }
            for lock in &mut outcome.locks {
                lock.holding = seen.holdings.get(&lock.address).cloned();
            }
            let is_counted = |lock: &OwnLock| {
                lock.address != 0 && outcome.locks.iter().any(|one| one.address == lock.address)
            };
            let uncounted = seen.own_locks.into_iter().filter(|lock| !is_counted(lock));
            (outcome.own_locks, outcome.samples) = (uncounted.collect(), seen.samples);
            let mut often = seen.taken_often;
            let waiters = outcome.locks.iter().flat_map(|lock| &lock.waiters);
            let waits: Vec<_> =
                waiters.map(|site| (site.function.as_str(), site.count, site.ns)).collect();
            often.without_waits(&waits);
            if outcome.command.is_empty() {
                outcome.command = seen.command; // it has counted nothing
            }
            (outcome.taken_often, outcome.running_unseen) = (Some(often), seen.running_unseen);
        }
        looked
    }
}

/// The processes.
pub struct Family {
    /// `Some`: this one alone. `None`: all children of this command.
    only: Option<libc::pid_t>,
    samplers: BTreeMap<libc::pid_t, Member>,
    /// Those that couldn't be opened, and when. Some only start another program at that moment.
    refused: BTreeMap<libc::pid_t, Instant>,
    /// What was seen in those that have ended. They no longer count.
    ended: Vec<SeenIn>,
    /// There were more than [`MOST`] at a time.
    is_crowded: bool,
    /// When the next sample is due, and when the next look at holders.
    next: Instant,
    next_glance: Instant,
    /// When we look for new processes, and for wrappers, again.
    next_meeting: Instant,
    /// Since when, and how much CPU time has been spent on running threads.
    begun: Instant,
    spent: Duration,
    own: PathBuf,
}

impl Family {
    /// For this process, or for what this command starts.
    fn begin(only: Option<libc::pid_t>) -> Self {
        Self {
            only,
            samplers: BTreeMap::new(),
            refused: BTreeMap::new(),
            ended: Vec::new(),
            is_crowded: false,
            next: Instant::now(),
            next_glance: Instant::now(),
            next_meeting: Instant::now(),
            begun: Instant::now(),
            spent: Duration::ZERO,
            own: program(std::process::id().cast_signed()).unwrap_or_default(),
        }
    }

    /// Samples on a thread of its own.
    pub fn start(only: Option<libc::pid_t>) -> Watching {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = spawn({
            let ends = Arc::clone(&ends);
            move || {
                let mut family = Self::begin(only);
                while !ends.load(Relaxed) {
                    family.look();
                    sleep(GLANCE);
                }
                family.end()
            }
        });
        Watching { ends, thread: Some(thread) }
    }

    /// Takes a sample, or looks at holders, if it is time to.
    fn look(&mut self) {
        let begun = Instant::now();
        // By the time of this thread: on a busy machine, a sample may take long without costing much.
        let cost = |since| thread_time().saturating_sub(since) * PARTS;
        if begun >= self.next_meeting {
            let before = thread_time();
            self.meet();
            // Names are loaded once. A process that isn't told its wrappers early counts at them.
            self.next_meeting = begun + cost(before).clamp(AGAIN, LATEST);
        }
        let (begun, before) = (Instant::now(), thread_time());
        if begun >= self.next {
            self.sample();
            self.next = begun + PERIOD.max(cost(before));
            if self.spent <= CREDIT + self.begun.elapsed() / PARTS {
                let before = thread_time();
                self.samplers.values_mut().for_each(|member| member.sampler.look_at_running());
                self.spent += thread_time().saturating_sub(before);
            }
        } else if begun >= self.next_glance {
            for member in self.samplers.values_mut() {
                let waited = member.waited();
                if !waited.is_empty() || member.sampler.has_quota() {
                    member.sampler.glance(&waited);
                    member.tell_spanned();
                }
            }
            self.next_glance = begun + GLANCE.max(cost(before));
        }
    }

    fn sample(&mut self) {
        let ended: Vec<libc::pid_t> = self
            .samplers
            .iter_mut()
            .filter_map(|(pid, member)| {
                let waited = member.waited();
                member.sampler.tick(0, &waited).is_err().then_some(*pid)
            })
            .collect();
        for pid in ended {
            self.forget(pid);
        }
    }

    fn forget(&mut self, pid: libc::pid_t) {
        if let Some(Member { command, sampler, .. }) = self.samplers.remove(&pid) {
            self.ended.push(SeenIn::of(pid, command, sampler.end(End::ProcessEnded)));
        }
    }

    /// Begins to sample new processes.
    fn meet(&mut self) {
        // One that has started another program is another process to us.
        let has_changed = |(pid, member): &(&libc::pid_t, &mut Member)| {
            program(**pid).is_some_and(|path| path != member.program)
        };
        let changed: Vec<libc::pid_t> =
            self.samplers.iter_mut().filter(has_changed).map(|(pid, _)| *pid).collect();
        for pid in changed {
            self.forget(pid);
        }
        for (pid, member) in &mut self.samplers {
            member.meet_counts(*pid);
        }
        let all = match self.only {
            Some(pid) => vec![pid],
            None => descendants(std::process::id().cast_signed()),
        };
        for pid in all {
            let is_refused = self.refused.get(&pid).is_some_and(|at| at.elapsed() < REFUSED);
            let is_known = self.samplers.contains_key(&pid) || is_refused;
            if is_known {
                continue;
            }
            // While it starts, it has no command line; and between fork and exec it is a copy of this command.
            let command = command(pid);
            let Some(program) =
                program(pid).filter(|path| *path != self.own && !command.is_empty())
            else {
                continue;
            };
            if self.samplers.len() >= MOST {
                self.is_crowded = true;
                break;
            }
            let begun = Instant::now();
            match Target::open(pid) {
                Ok(target) => {
                    let sampler = Sampler::begin(target, PERIOD, false);
                    let member = Member {
                        command,
                        program,
                        sampler,
                        counts: None,
                        file: None,
                        reader: Reader::default(),
                        passers: Passers::default(),
                        before: None,
                    };
                    self.samplers.insert(pid, member);
                }
                Err(_) => drop(self.refused.insert(pid, begun)),
            }
        }
    }

    /// What was seen, of processes that were sampled; and whether there were too many.
    fn end(self) -> (Vec<SeenIn>, bool) {
        let still = self.samplers.into_iter();
        let still = still.map(|(pid, Member { command, sampler, .. })| {
            SeenIn::of(pid, command, sampler.end(End::TimeIsUp))
        });
        let all = self.ended.into_iter().chain(still);
        (all.filter(|seen| seen.samples > 0).collect(), self.is_crowded)
    }
}

impl SeenIn {
    fn of(pid: libc::pid_t, command: String, mut sampled: Sampled) -> Self {
        let (own_locks, samples) = own_locks(&mut sampled);
        name_sleeps(&mut sampled);
        let taken_often = taken_often(&mut sampled);
        let refused = sampled.refused.as_ref();
        let running_unseen = refused.map(|error| cause(error).to_string());
        let holdings = sampled.holdings;
        Self { pid, command, own_locks, holdings, taken_often, running_unseen, samples }
    }
}

/// The calling thread's CPU time so far.
pub(super) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn is_lock_of(outcome: &Observed, address: u64) -> bool {
    outcome.locks.iter().any(|lock| lock.address == address)
}

/// The path of a process's program.
fn program(pid: libc::pid_t) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn command(pid: libc::pid_t) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned()
}

/// All processes that descend from this one.
fn descendants(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        // A kernel without these lists shows no children; then only processes with our library are known.
        for tid in threads(parent).unwrap_or_default() {
            let path = format!("/proc/{parent}/task/{tid}/children");
            let list = proc_text(path).unwrap_or_default();
            let children = list.split_whitespace().filter_map(|id| id.parse().ok());
            for child in children {
                if found.len() < FOUND && !found.contains(&child) {
                    found.push(child);
                    open.push(child);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// All children of this process are met, so one test has children at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleeping() -> Child {
        Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn children_of_children_are_met_when_they_run_a_program_of_their_own() {
        let _alone = alone();
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 100 & wait"]).stdin(Stdio::null());
        let mut child = shell.spawn().unwrap();
        let mut family = Family::begin(None);
        let is_met = |family: &Family, name: &str| {
            family.samplers.values().any(|member| member.command.starts_with(name))
        };
        let begun = Instant::now();
        while !(is_met(&family, "sh -c") && is_met(&family, "sleep 100")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "they are never met");
            family.next = Instant::now();
            family.next_meeting = Instant::now();
            family.look();
        }
        let below = descendants(child.id().cast_signed());
        assert_eq!(below.len(), 1);
        // SAFETY: a process of ours, which nobody has waited for yet.
        unsafe { libc::kill(below[0], libc::SIGKILL) };
        child.wait().unwrap();
        let (seen, is_crowded) = family.end();
        assert!(!is_crowded);
        assert!(seen.iter().all(|seen| seen.own_locks.is_empty() && seen.samples > 0));
    }

    /// One after the other, more than are sampled at a time.
    #[test]
    fn processes_that_have_ended_leave_room_for_others() {
        let _alone = alone();
        let mut family = Family::begin(None);
        let begun = Instant::now();
        for number in 0..MOST + 2 {
            let mut child = sleeping();
            let pid = child.id().cast_signed();
            while !family.samplers.contains_key(&pid) {
                assert!(begun.elapsed() < Duration::from_secs(120), "{number} is never met");
                family.meet();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            while family.samplers.contains_key(&pid) {
                assert!(begun.elapsed() < Duration::from_secs(120), "{number} never ends");
                family.sample();
            }
        }
        assert!(family.ended.len() > MOST);
    }

    #[test]
    fn processes_that_are_too_many_are_told() {
        let _alone = alone();
        let mut all: Vec<Child> = (0..=MOST).map(|_| sleeping()).collect();
        let mut family = Family::begin(None);
        let begun = Instant::now();
        while !family.is_crowded && begun.elapsed() < Duration::from_secs(120) {
            family.meet();
        }
        for child in &mut all {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(family.is_crowded && family.samplers.len() == MOST);
    }
}
