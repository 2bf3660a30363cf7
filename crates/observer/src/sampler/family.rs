//! Samples several processes: a program, and what it starts; without knowing beforehand which those are.

use super::hold::Holding;
use super::outcome::{OwnLock, name_sleeps, own_locks};
use super::sample::{End, Sampled, Sampler};
use super::target::Target;
use crate::counts::observation::Observed;
use lockwright_symbols::{proc_text, threads};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The shortest time between two samples.
const PERIOD: Duration = Duration::from_millis(20);
/// Sampling takes at most one part in this many of the time: a process with many threads is sampled less often.
const PARTS: u32 = 40;
/// How often we look for new processes.
const AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of processes.
const MOST: usize = 32;

/// What was seen in one process.
struct SeenIn {
    pid: libc::pid_t,
    command: String,
    /// Locks that aren't pthread's, for which its threads waited.
    own_locks: Vec<OwnLock>,
    /// What the holders of its locks did while others waited for them, by the lock's address.
    holdings: HashMap<u64, Holding>,
    /// The number of samples.
    samples: u64,
}

/// The processes.
pub struct Family {
    /// `Some`: this one alone. `None`: all children of this command.
    only: Option<libc::pid_t>,
    samplers: BTreeMap<libc::pid_t, (String, Sampler)>,
    /// Those that can't be sampled.
    refused: BTreeSet<libc::pid_t>,
    ended: Vec<(String, Sampled)>,
    next: Instant,
    listed: Option<Instant>,
    own: PathBuf,
}

impl Family {
    /// For this process, or for what this command starts.
    pub fn begin(only: Option<libc::pid_t>) -> Self {
        Self {
            only,
            samplers: BTreeMap::new(),
            refused: BTreeSet::new(),
            ended: Vec::new(),
            next: Instant::now(),
            listed: None,
            own: program(std::process::id().cast_signed()).unwrap_or_default(),
        }
    }

    /// Takes a sample, if it is time to.
    pub fn look(&mut self) {
        let (begun, before) = (Instant::now(), thread_time());
        if begun < self.next {
            return;
        }
        if self.listed.is_none_or(|listed| listed.elapsed() >= AGAIN) {
            self.listed = Some(begun);
            self.meet();
        }
        let ended: Vec<libc::pid_t> = self
            .samplers
            .iter_mut()
            .filter_map(|(pid, (_, sampler))| sampler.tick(0).is_err().then_some(*pid))
            .collect();
        for pid in ended {
            if let Some((command, sampler)) = self.samplers.remove(&pid) {
                self.ended.push((command, sampler.end(End::ProcessEnded)));
            }
        }
        // By the time of this thread: on a busy machine, a sample may take long without costing much.
        let took = thread_time().saturating_sub(before);
        self.next = begun + PERIOD.max(took * PARTS);
    }

    /// Begins to sample new processes.
    fn meet(&mut self) {
        let all = match self.only {
            Some(pid) => vec![pid],
            None => descendants(std::process::id().cast_signed()),
        };
        for pid in all {
            let is_known = self.samplers.contains_key(&pid) || self.refused.contains(&pid);
            if is_known || self.samplers.len() + self.ended.len() >= MOST {
                continue;
            }
            // Between fork and exec it is a copy of this command.
            if program(pid).is_none_or(|path| path == self.own) {
                continue;
            }
            match Target::open(pid) {
                Ok(target) => {
                    let sampler = Sampler::begin(target, PERIOD, false);
                    self.samplers.insert(pid, (command(pid), sampler));
                }
                Err(_) => drop(self.refused.insert(pid)),
            }
        }
    }

    /// Adds what was seen to what was counted. Processes that have counted nothing get an entry of their own if anything was seen
    /// in them.
    pub fn tell(self, outcomes: &mut Vec<Observed>, elapsed_ns: u64) {
        // A process in a container counts under another id, but then it is the only one.
        let is_one = outcomes.len() == 1;
        for seen in self.end() {
            let pid = seen.pid.cast_unsigned();
            let its = match outcomes.iter().position(|one| one.pid == pid) {
                None if is_one && seen.holdings.keys().any(|at| is_lock_of(&outcomes[0], *at)) => {
                    Some(0)
                }
                its => its,
            };
            let at = its.unwrap_or(outcomes.len());
            if its.is_none() {
                if seen.own_locks.is_empty() {
                    continue;
                }
                let command = seen.command.clone();
                outcomes.push(Observed { pid, command, elapsed_ns, ..Observed::default() });
            }
            let outcome = &mut outcomes[at];
            for lock in &mut outcome.locks {
                lock.holding = seen.holdings.get(&lock.address).cloned();
            }
            (outcome.own_locks, outcome.samples) = (seen.own_locks, seen.samples);
        }
    }

    /// What was seen, of processes in which anything was.
    fn end(self) -> Vec<SeenIn> {
        let still = self.samplers.into_values();
        let still = still.map(|(command, sampler)| (command, sampler.end(End::TimeIsUp)));
        let all = self.ended.into_iter().chain(still).map(|(command, mut sampled)| {
            let (own_locks, samples) = own_locks(&mut sampled);
            name_sleeps(&mut sampled);
            let (pid, holdings) = (sampled.target.pid, sampled.holdings);
            SeenIn { pid, command, own_locks, holdings, samples }
        });
        all.filter(|seen| seen.samples > 0).collect()
    }
}

/// The calling thread's CPU time so far.
fn thread_time() -> Duration {
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
                if found.len() < MOST && !found.contains(&child) {
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
    use std::process::{Command, Stdio};

    #[test]
    fn children_of_children_are_met_when_they_run_a_program_of_their_own() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 100 & wait"]).stdin(Stdio::null());
        let mut child = shell.spawn().unwrap();
        let mut family = Family::begin(None);
        let is_met = |family: &Family, name: &str| {
            family.samplers.values().any(|(command, _)| command.starts_with(name))
        };
        while !(is_met(&family, "sh -c") && is_met(&family, "sleep 100")) {
            family.next = Instant::now();
            family.listed = None;
            family.look();
        }
        let below = descendants(child.id().cast_signed());
        assert_eq!(below.len(), 1);
        // SAFETY: a process of ours, which nobody has waited for yet.
        unsafe { libc::kill(below[0], libc::SIGKILL) };
        child.wait().unwrap();
        let seen = family.end();
        assert!(seen.iter().all(|seen| seen.own_locks.is_empty() && seen.samples > 0));
    }
}
