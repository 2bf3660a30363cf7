//! How long threads waited for each lock in each time slice of a program's run.

use super::lifetimes::monotonic;
use super::observation::Observed;
use super::reader::Reader;
use super::slices::Slices;
use super::snapshot::{Lock, Of};
use lockwright_contract::counters::layout::CountersHeader;
use lockwright_contract::header::Layout;
use lockwright_files::open_entry;
use lockwright_symbols::threads;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How often we sample.
pub const TICK: Duration = Duration::from_millis(100);

/// A lock of a process.
type Key = (u32, Of);

/// A process.
#[derive(Clone, Copy, Default)]
struct Presence {
    /// The most threads that it had at a time; 0: not known.
    threads: usize,
    /// When it was last there, ns of `CLOCK_MONOTONIC`.
    there_ns: u64,
}

/// Samples segments repeatedly.
pub struct Course {
    /// Both are ns of `CLOCK_MONOTONIC`.
    begun_ns: u64,
    looked_ns: u64,
    segments: BTreeMap<PathBuf, (File, Reader)>,
    /// The counts at the last sample.
    before: BTreeMap<Key, Rc<Lock>>,
    seen: BTreeMap<u32, Presence>,
    /// Thread names, by process id and thread id.
    names: BTreeMap<(u32, u32), String>,
    /// Waiting time in each slice.
    slices: Slices<Key>,
}

impl Course {
    /// Begins now.
    pub fn begin() -> Self {
        let now_ns = monotonic();
        Self {
            begun_ns: now_ns,
            looked_ns: now_ns,
            segments: BTreeMap::new(),
            before: BTreeMap::new(),
            seen: BTreeMap::new(),
            names: BTreeMap::new(),
            slices: Slices::new(TICK.as_nanos() as u64),
        }
    }

    /// Samples all segments in a folder, if it is time to.
    pub fn look_into(&mut self, folder: &Path) {
        if !self.is_time() {
            return;
        }
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|one| one.path()) {
            let is_one = path.to_str().is_some_and(|path| path.ends_with(CountersHeader::ENDING));
            if is_one && let Ok(file) = open_entry(&path) {
                self.segments.entry(path).or_insert_with(|| (file, Reader::default()));
            }
        }
        self.look(|pid| threads(pid as libc::pid_t).map_or(0, |all| all.len()));
    }

    /// Samples one segment, if it is time to. Its process has this many threads. Counts from before the first sample are ignored.
    pub fn look_at(&mut self, file: &File, path: &Path, threads: usize) {
        let is_new = !self.segments.contains_key(path);
        if !is_new && !self.is_time() {
            return;
        }
        if let (true, Ok(file)) = (is_new, file.try_clone()) {
            self.segments.insert(path.to_owned(), (file, Reader::default()));
        }
        self.look(|_| threads);
        if is_new {
            self.slices = Slices::new(TICK.as_nanos() as u64);
            self.begun_ns = self.looked_ns;
        }
    }

    fn is_time(&self) -> bool {
        monotonic().saturating_sub(self.looked_ns) >= self.slices.width_ns
    }

    fn look(&mut self, threads: impl Fn(u32) -> usize) {
        let now_ns = monotonic();
        let mut now = BTreeMap::new();
        for (path, (file, reader)) in &mut self.segments {
            let Ok(snapshot) = reader.read(file, path) else { continue }; // the process is still creating it
            let pid = snapshot.pid;
            let threads = threads(pid);
            let seen = self.seen.entry(pid).or_default();
            seen.threads = seen.threads.max(threads);
            if threads > 0 {
                seen.there_ns = now_ns;
            }
            for lock in snapshot.locks {
                for thread in &lock.threads {
                    let tid = thread.tid;
                    self.names.entry((pid, tid)).or_insert_with(|| name(pid, tid));
                }
                now.insert((pid, lock.of), lock);
            }
        }
        self.take(now_ns, now);
    }

    /// These are the counts now.
    fn take(&mut self, now_ns: u64, now: BTreeMap<Key, Rc<Lock>>) {
        let (at, since) = (now_ns - self.begun_ns, now_ns - self.looked_ns);
        self.slices.reach(at);
        for (key, lock) in &now {
            let before = self.before.get(key);
            if before.is_some_and(|before| Rc::ptr_eq(before, lock)) {
                continue;
            }
            let before = before.filter(|before| before.tenants == lock.tenants);
            let ns =
                lock.wait_ns() - before.map_or(0, |before| before.wait_ns()).min(lock.wait_ns());
            let times = match before {
                Some(before) => lock.wait().since(&before.wait()),
                None => lock.wait(),
            };
            let threads = self.seen.get(&key.0).map_or(0, |seen| seen.threads);
            let mut add = |length_ns: f64, ns: f64| {
                let now = at as f64;
                self.slices.add(*key, (now - length_ns, now), ns, threads);
            };
            // The histogram knows lengths only to the width of its buckets.
            let exact = ns as f64 / (times.total() as f64).max(1.0);
            let mut brief = if times.count() == 0 { ns as f64 } else { 0.0 };
            for (length_ns, count) in times.counts() {
                let spent = length_ns as f64 * count as f64 * exact;
                match length_ns > since {
                    true => add(length_ns as f64 * exact, spent),
                    false => brief += spent,
                }
            }
            if brief > 0.0 {
                add(since.max(1) as f64, brief);
            }
        }
        (self.before, self.looked_ns) = (now, now_ns);
    }

    /// The processes with counts.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.before.keys().map(|(pid, _)| *pid).collect()
    }

    /// Adds the waiting time per slice to the locks, and names to their threads.
    pub fn tell(&self, outcomes: &mut [Observed]) {
        for outcome in outcomes.iter_mut() {
            for thread in outcome.locks.iter_mut().flat_map(|lock| &mut lock.threads) {
                let name = thread.tid.and_then(|tid| self.names.get(&(outcome.pid, tid)));
                thread.name = name.cloned().unwrap_or_default();
            }
        }
        let mut slices = self.slices.clone();
        for (key, lock) in self.before.iter().filter(|(_, lock)| lock.open_since_ns != 0) {
            let Some(seen) = self.seen.get(&key.0) else { continue };
            // That wait hasn't ended.
            let at = |ns: u64| ns as f64 - self.begun_ns as f64;
            let (since, now) = (at(lock.open_since_ns), at(seen.there_ns));
            if now > since {
                slices.add(*key, (since, now), now - since, seen.threads);
            }
        }
        // Until the last look: reading the segments and their symbols since then took time of its own.
        let (slices, slice_ns) = slices.until(self.looked_ns - self.begun_ns);
        if slices.len() < 2 {
            return;
        }
        for outcome in outcomes {
            outcome.slice_ns = slice_ns as u64;
            for lock in &mut outcome.locks {
                let key = (outcome.pid, lock.of);
                let slice = |slice: &BTreeMap<_, _>| slice.get(&key).copied().unwrap_or(0.0) as u64;
                lock.course = slices.iter().map(slice).collect();
            }
        }
    }
}

/// A thread's name; empty: it has ended.
fn name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::observation::tests::lock;
    use crate::counts::snapshot::tests::lock as counted;

    const SECOND: u64 = 1_000_000_000;

    fn told(course: &Course) -> Observed {
        let mut outcomes =
            [Observed { pid: 7, locks: vec![lock(10, (1, 1, 1))], ..Observed::default() }];
        course.tell(&mut outcomes);
        let [outcome] = outcomes;
        outcome
    }

    /// Two threads, and looks at the lock 64, each second.
    fn seen(looks: &[Lock]) -> Course {
        let mut course = Course::begin();
        course.slices = Slices::new(SECOND);
        for lock in looks {
            let now_ns = course.looked_ns + SECOND;
            course.seen.insert(7, Presence { threads: 2, there_ns: now_ns });
            course.take(now_ns, [((7, Of::Lock(64)), Rc::new(lock.clone()))].into());
        }
        course
    }

    #[test]
    fn what_happens_after_the_last_look_is_in_no_slice() {
        let mut course = Course::begin();
        course.slices = Slices::new(3 * SECOND);
        course.looked_ns = course.begun_ns + 6 * SECOND;
        assert_eq!(told(&course).slice_ns, 3 * SECOND);
    }

    #[test]
    fn a_wait_is_where_it_was() {
        let first = counted(&[2 * SECOND]);
        let both = counted(&[2 * SECOND, SECOND / 2, SECOND / 2, 3 * SECOND / 2]);
        let mut looks = [counted(&[]), first.clone(), first, both];
        // Two threads waited until the fourth look, and each had waited before.
        let course = &told(&seen(&looks)).locks[0].course;
        assert_eq!(*course, [SECOND, SECOND, SECOND / 2, 2 * SECOND]);
        // One still does.
        let mut course = seen(&looks[..2]);
        looks[1].open_since_ns = course.begun_ns + SECOND / 2;
        course.before.insert((7, Of::Lock(64)), Rc::new(looks[1].clone()));
        let course = &told(&course).locks[0].course;
        assert_eq!(*course, [3 * SECOND / 2, 2 * SECOND]);
    }
}
