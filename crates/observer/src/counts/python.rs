//! Finds which Python functions run while other threads wait for their locks.
//!
//! Python's locks are semaphores, and the code that takes and releases them is the interpreter's. So the counts only
//! tell which lock threads wait for, for how long, and which thread holds it. The function that this thread runs in the
//! meantime is sampled from outside.

use super::observation::{Observed, Site};
use super::snapshot::{LockKind, Of};
use lockwright_contract::counters::layout::{CountersHeader, LENGTH};
use lockwright_contract::counters::{Segment, WaitedSemaphore};
use lockwright_contract::header::Layout;
use lockwright_files::open_entry;
use lockwright_symbols::{Frame, Python, PythonFrame, blocked, mappings};
use lockwright_text::cause;
use memmap2::Mmap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Time between two samples. Nothing is read from a process in which no thread waits.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of processes that are sampled at a time.
const MOST: usize = 16;
/// Maximum number of distinct stacks for a lock's holders, and for its waiters.
const STACKS: usize = 4096;

/// Samples all Python processes passed to it, each on a separate thread.
#[derive(Default)]
pub struct Samplers {
    known: BTreeSet<PathBuf>,
    all: BTreeMap<libc::pid_t, Sampler>,
}

/// The sampling thread ends soon after this is dropped.
struct Sampler {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<SeenProcess>>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed); // a flag
    }
}

impl Samplers {
    /// Looks for new segments in a folder.
    pub fn look_into(&mut self, folder: &Path) {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|one| one.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let pid =
                name.strip_suffix(CountersHeader::ENDING).and_then(|name| name.split('-').next());
            let Some(pid) = pid.and_then(|pid| pid.parse().ok()) else { continue };
            // A process in a container may have a different id there. Make sure that the process with this id has this
            // file.
            let is_its = || {
                let all = mappings(pid).unwrap_or_default();
                all.iter().any(|mapping| mapping.path.file_name() == path.file_name())
            };
            if !self.known.contains(&path)
                && is_its()
                && let Ok(file) = open_entry(&path)
            {
                self.look_at(pid, &file);
                self.known.insert(path);
            }
        }
    }

    /// Samples this process, which counts in that file.
    pub fn look_at(&mut self, pid: libc::pid_t, file: &File) {
        if self.all.contains_key(&pid) || self.all.len() == MOST {
            return;
        }
        let is_long = file.metadata().is_ok_and(|about| about.len() >= LENGTH as u64);
        // SAFETY: the file is that long, and its process never shortens it.
        let Some(map) = is_long.then(|| unsafe { Mmap::map(file) }).and_then(Result::ok) else {
            return;
        };
        let ends = Arc::new(AtomicBool::new(false));
        let thread = spawn({
            let ends = Arc::clone(&ends);
            move || sample(pid, &map, &ends)
        });
        self.all.insert(pid, Sampler { ends, thread: Some(thread) });
    }

    /// Adds what was seen to the locks of all processes.
    pub fn tell(&mut self, outcomes: &mut [Observed]) {
        for (pid, mut sampler) in std::mem::take(&mut self.all) {
            sampler.ends.store(true, Relaxed); // a flag
            let seen = sampler.thread.take().and_then(|thread| thread.join().ok());
            // A process in a container has a different id there, but then it is the only one.
            let is_one = outcomes.len() == 1;
            let is_its = |outcome: &&mut Observed| is_one || outcome.pid == pid.cast_unsigned();
            let its = outcomes.iter_mut().find(is_its);
            if let (Some(seen), Some(outcome)) = (seen, its) {
                seen.tell(outcome);
            }
        }
    }
}

/// What was seen in one process.
#[derive(Default)]
struct SeenProcess {
    /// Why nothing was seen.
    unread: Option<String>,
    /// By the semaphore's address, and by which of the semaphores at that address it is.
    locks: BTreeMap<(u64, u64), Places>,
}

/// The stacks of the lock's holders while a thread waited, and the stacks of its waiters; the innermost function first.
#[derive(Default)]
struct Places {
    holders: HashMap<Vec<PythonFrame>, Samples>,
    waiters: HashMap<Vec<PythonFrame>, Samples>,
}

#[derive(Clone, Copy, Default)]
struct Samples {
    count: u64,
    /// The waiting times seen in the samples: their sum, and the longest, ns; 0: not known.
    sum_ns: u64,
    longest_ns: u64,
    /// The holder during the longest one.
    tid: u32,
}

/// A function's name and file.
type Function = (String, String);

/// What was seen of a function.
#[derive(Default)]
struct SeenFunction<'a> {
    all: Samples,
    /// How often each of its lines was seen.
    lines: BTreeMap<u32, u64>,
    /// The stack of the longest wait.
    stack: &'a [PythonFrame],
}

/// Samples a process until `ends` is set.
fn sample(pid: libc::pid_t, map: &Mmap, ends: &AtomicBool) -> SeenProcess {
    let mut seen = SeenProcess::default();
    // SAFETY: mapped as long as `map` exists, which outlives this function; only reading methods are used.
    let Some(segment) = (unsafe { Segment::of_other(map.as_ptr().cast_mut()) }) else {
        return seen; // the process is still creating it, or it is another version's: the report says so
    };
    let mut python = match Python::of_process(pid) {
        Ok(Some(python)) => python,
        Ok(None) => return seen,
        Err(error) => {
            seen.unread = Some(cause(&error).to_string());
            return seen;
        }
    };
    while !ends.load(Relaxed) {
        sleep(PAUSE);
        for held in segment.waited_for() {
            seen.look(pid, &mut python, &segment, &held);
        }
    }
    seen
}

impl SeenProcess {
    fn look(
        &mut self,
        pid: libc::pid_t,
        python: &mut Python,
        segment: &Segment,
        held: &WaitedSemaphore,
    ) {
        if held.holder == held.waiter {
            return; // the holder doesn't wait for its own lock
        }
        let key = (held.semaphore, held.tenant);
        // The stack belongs to this hold only if the hold still lasts.
        if held.holder != 0
            && let Some(stack) = python.stack(held.holder)
            && segment.is_still(held)
        {
            let now_ns = super::live::now_ns();
            let places = self.locks.entry(key).or_default();
            let ns = now_ns.saturating_sub(held.since_ns);
            note(&mut places.holders, stack, held.holder, ns);
        }
        let waits = || {
            let tid = held.waiter.cast_signed();
            let blocked = blocked(pid, tid).ok().flatten();
            blocked.is_some_and(|blocked| {
                blocked.call == Some(libc::SYS_futex) && blocked.arguments[0] == held.semaphore
            })
        };
        if held.waiter != 0
            && waits()
            && let Some(stack) = python.stack(held.waiter)
            && waits()
        {
            let places = self.locks.entry(key).or_default();
            note(&mut places.waiters, stack, held.waiter, 0);
        }
    }

    fn tell(&self, outcome: &mut Observed) {
        let semaphores = outcome.locks.iter_mut().filter(|lock| lock.kind == LockKind::Semaphore);
        for lock in semaphores {
            outcome.python_unread.clone_from(&self.unread);
            let Of::Lock(address) = lock.of else { continue };
            let Some(places) = self.locks.get(&(address, lock.tenant)) else { continue };
            replace(&mut lock.holders, &places.holders());
            replace(&mut lock.waiters, &places.waiters());
            if let (Some(waiter), true) = (lock.waiters.first(), lock.name.contains(", of ")) {
                lock.name = format!("{address:#x}, of {}", waiter.function);
            }
        }
    }
}

impl Places {
    /// Stacks of holders, grouped by the function that contains the critical section.
    fn holders(&self) -> BTreeMap<Function, SeenFunction<'_>> {
        let innermost = |stack: &Vec<PythonFrame>| own(stack).next().map(function);
        let asked: BTreeSet<Function> = self.waiters.keys().filter_map(innermost).collect();
        let mut known: BTreeSet<Function> = self.holders.keys().filter_map(innermost).collect();
        known.extend(asked.iter().cloned());
        let enters =
            |stack: &Vec<PythonFrame>| own(stack).next().is_some_and(|one| one.enters_with);
        let is_entered = self.waiters.keys().any(enters);
        by_function(&self.holders, |stack| {
            // Consider functions that were innermost while they held the lock or waited for it. Each of these takes the
            // lock, or is called by the function that takes it. So the outermost of them, or one of its callers, takes
            // it.
            let outermost = own(stack).filter(|one| known.contains(&function(one))).last()?;
            let takes = outermost.is_in_with || asked.contains(&function(outermost));
            // If this lock was seen to be taken by `with`, the taker is a function inside a `with` statement.
            let mut callers = own(stack).skip_while(|one| !std::ptr::eq(*one, outermost));
            let with = || callers.find(|one| one.is_in_with);
            (!takes && is_entered).then(with).flatten().or(Some(outermost))
        })
    }

    /// Stacks of waiters, grouped by the function that requests the lock.
    fn waiters(&self) -> BTreeMap<Function, SeenFunction<'_>> {
        by_function(&self.waiters, |stack| own(stack).next())
    }
}

fn by_function<'a>(
    stacks: &'a HashMap<Vec<PythonFrame>, Samples>,
    frame: impl Fn(&'a [PythonFrame]) -> Option<&'a PythonFrame>,
) -> BTreeMap<Function, SeenFunction<'a>> {
    let mut places: BTreeMap<Function, SeenFunction<'_>> = BTreeMap::new();
    for (stack, samples) in stacks {
        let Some(frame) = frame(stack).or(stack.first()) else { continue };
        let place = places.entry(function(frame)).or_default();
        *place.lines.entry(frame.frame.line.unwrap_or(0)).or_default() += samples.count;
        place.all.count += samples.count;
        place.all.sum_ns += samples.sum_ns;
        if place.stack.is_empty() || samples.longest_ns > place.all.longest_ns {
            (place.all.longest_ns, place.all.tid) = (samples.longest_ns, samples.tid);
            place.stack = stack;
        }
    }
    places
}

fn function(one: &PythonFrame) -> Function {
    (one.frame.name(), one.frame.file.clone().unwrap_or_default())
}

/// The program's own frames, without the methods of locks.
fn own(stack: &[PythonFrame]) -> impl Iterator<Item = &PythonFrame> {
    let is_of_a_lock = |one: &PythonFrame| {
        one.frame.file.as_ref().is_some_and(|file| file.ends_with("/threading.py"))
    };
    stack.iter().filter(move |one| !is_of_a_lock(one))
}

fn note(
    stacks: &mut HashMap<Vec<PythonFrame>, Samples>,
    stack: Vec<PythonFrame>,
    tid: u32,
    ns: u64,
) {
    // A thread that runs only C code has no Python frames.
    if stack.is_empty() || stacks.len() == STACKS && !stacks.contains_key(&stack) {
        return;
    }
    let samples = stacks.entry(stack).or_default();
    samples.count += 1;
    samples.sum_ns += ns;
    if ns >= samples.longest_ns {
        (samples.longest_ns, samples.tid) = (ns, tid);
    }
}

/// Replaces the interpreter's places by the program's, each with its share of the counts.
fn replace(sites: &mut Vec<Site>, places: &BTreeMap<Function, SeenFunction<'_>>) {
    let samples: u64 = places.values().map(|place| place.all.count).sum();
    if samples == 0 {
        return;
    }
    let (count, ns) =
        sites.iter().fold((0, 0), |(count, ns), site| (count + site.count, ns + site.ns));
    let longest =
        sites.iter().max_by_key(|site| site.max_ns).map(|site| (site.max_ns, site.max_tid));
    let part = |all: u64, place: &SeenFunction<'_>| {
        (all as f64 * place.all.count as f64 / samples as f64) as u64
    };
    let named = places.iter().map(|((function, _), place)| {
        let line = place.lines.iter().max_by_key(|(_, times)| **times).map_or(0, |(line, _)| *line);
        let frame = place.stack.iter().map(|one| &one.frame).find(|one| one.name() == *function);
        let frame = frame.cloned();
        let frame = frame.map(|frame| Frame { line: Some(line).filter(|line| *line > 0), ..frame });
        let its_ns = part(ns, place);
        // If there is only one place, the counts are its own. A sample falls in the middle of a hold on average, so the
        // total time corresponds to this number of holds.
        let (its_count, (max_ns, max_tid)) = match longest {
            Some(longest) if places.len() == 1 => (count, longest),
            _ => {
                let twice_the_mean = (2 * place.all.sum_ns).checked_div(place.all.count);
                let holds = twice_the_mean.and_then(|mean_ns| its_ns.checked_div(mean_ns));
                (
                    holds.unwrap_or(part(count, place)).min(count),
                    (place.all.longest_ns, place.all.tid),
                )
            }
        };
        Site {
            function: function.clone(),
            place: frame.as_ref().and_then(Frame::site).unwrap_or_default(),
            address: 0,
            count: its_count.max(1),
            ns: its_ns,
            max_ns,
            max_tid,
            share: place.all.count as f64 / samples as f64,
            stack: place.stack.iter().map(|one| one.frame.to_string()).collect(),
            samples: Some(place.all.count),
        }
    });
    *sites = named.collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.samples));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::observation::tests::lock;

    fn frame(function: &str, file: &str, line: u32) -> PythonFrame {
        let (function, file) = (Some(function.into()), Some(file.into()));
        let frame = Frame { function, file, line: Some(line), ..Frame::default() };
        PythonFrame { frame, ..PythonFrame::default() }
    }

    #[test]
    fn what_was_counted_goes_to_the_functions_that_were_seen() {
        let mut seen = SeenProcess::default();
        let places = seen.locks.entry((64, 0)).or_default();
        let stack = |frames: &[(&str, u32)]| -> Vec<PythonFrame> {
            frames.iter().map(|(name, line)| frame(name, "/srv/hoard.py", *line)).collect()
        };
        for (line, ns) in [(20, 10_000), (21, 40_000), (20, 25_000)] {
            let mut held = stack(&[("hoard", line), ("main", 40)]);
            held.insert(0, frame("Condition.__enter__", "/usr/lib/python3.11/threading.py", 271));
            note(&mut places.holders, held, 7, ns);
        }
        note(&mut places.waiters, stack(&[("quick", 8), ("main", 41)]), 8, 0);
        // Code called from the critical section belongs to it.
        note(&mut places.holders, stack(&[("helper", 3), ("quick", 9), ("main", 41)]), 8, 100);
        let mut one = lock(4_000_000, (100, 4_000_000, 2_000_000));
        (one.kind, one.name) = (LockKind::Semaphore, "0x40, of PyThread_acquire_lock_timed".into());
        one.waiters = one.holders.clone();
        let mut mutex = lock(10, (1, 1, 1));
        mutex.name = "gil".into();
        let mut outcome = Observed { pid: 7, locks: vec![one, mutex], ..Observed::default() };
        seen.tell(&mut outcome);
        let [one, mutex] = &outcome.locks[..] else { panic!("two locks") };
        let told = |site: &Site| {
            (site.function.clone(), site.place.clone(), site.count, site.ns, site.max_ns)
        };
        assert_eq!(one.name, "0x40, of quick");
        assert_eq!(
            told(&one.holders[0]),
            ("hoard".into(), "hoard.py:20".into(), 60, 3_000_000, 40_000)
        );
        assert_eq!(
            told(&one.holders[1]),
            ("quick".into(), "hoard.py:9".into(), 100, 1_000_000, 100)
        );
        assert_eq!(one.holders[0].stack[2], "main (hoard.py:40)");
        assert_eq!((one.waiters[0].max_ns, one.waiters[0].samples), (2_000_000, Some(1)));
        assert_eq!((mutex.holders[0].function.as_str(), mutex.name.as_str()), ("update", "gil"));
    }

    /// A section that only calls functions is never seen itself, but its `with` statement is.
    #[test]
    fn a_with_statement_says_who_took_it() {
        let at = |is_in_with, enters_with, name: &str| PythonFrame {
            is_in_with,
            enters_with,
            ..frame(name, "/srv/a.py", 1)
        };
        let held =
            || vec![at(false, false, "helper"), at(true, false, "hoard"), at(true, false, "main")];
        let names = |places: &Places| -> Vec<String> {
            places.holders().into_keys().map(|(name, _)| name).collect()
        };
        let mut places = Places::default();
        note(&mut places.holders, held(), 7, 1000);
        assert_eq!(names(&places), ["helper"], "nobody was seen to take it by `with`");
        note(&mut places.waiters, vec![at(false, true, "quick"), at(true, false, "main")], 8, 0);
        assert_eq!(names(&places), ["hoard"]);
        note(&mut places.waiters, vec![at(false, false, "helper")], 9, 0);
        assert_eq!(names(&places), ["helper"], "it was seen to ask for it");
    }
}
