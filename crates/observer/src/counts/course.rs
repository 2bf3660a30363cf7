//! How long threads waited for each lock in each time slice of a program's run.

use super::observation::Observed;
use super::reader::Reader;
use super::snapshot::Of;
use crate::files::open_file;
use lockwright_contract::counters::layout::CountersHeader;
use lockwright_contract::header::Layout;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often we sample.
pub const TICK: Duration = Duration::from_millis(100);
/// Maximum number of slices. Beyond that, pairs of slices are merged.
const MOST: usize = 256;

/// A lock of a process.
type Key = (u32, Of);

/// Samples segments repeatedly.
pub struct Course {
    begun: Instant,
    looked: Instant,
    /// The length of a slice.
    every: Duration,
    segments: BTreeMap<PathBuf, (File, Reader)>,
    /// The counts at the last sample, ns.
    before: BTreeMap<Key, u64>,
    /// Thread names, by process id and thread id.
    names: BTreeMap<(u32, u32), String>,
    /// Waiting time added in each slice, ns.
    slices: Vec<BTreeMap<Key, u64>>,
}

impl Course {
    /// Begins now.
    pub fn begin() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            looked: now,
            every: TICK,
            segments: BTreeMap::new(),
            before: BTreeMap::new(),
            names: BTreeMap::new(),
            slices: Vec::new(),
        }
    }

    /// Samples all segments in a folder, if it is time to.
    pub fn look_into(&mut self, folder: &Path) {
        if self.looked.elapsed() < self.every {
            return;
        }
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|one| one.path()) {
            let is_one = path.to_str().is_some_and(|path| path.ends_with(CountersHeader::ENDING));
            if is_one && let Some(file) = open_file(&path) {
                self.segments.entry(path).or_insert_with(|| (file, Reader::default()));
            }
        }
        self.look();
    }

    /// Samples one segment, if it is time to. Counts from before the first sample are ignored.
    pub fn look_at(&mut self, file: &File, path: &Path) {
        let is_new = !self.segments.contains_key(path);
        if !is_new && self.looked.elapsed() < self.every {
            return;
        }
        if let (true, Ok(file)) = (is_new, file.try_clone()) {
            self.segments.insert(path.to_owned(), (file, Reader::default()));
        }
        self.look();
        if is_new {
            self.slices.clear();
            self.begun = self.looked;
        }
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        let mut now = BTreeMap::new();
        for (path, (file, reader)) in &mut self.segments {
            let Ok(snapshot) = reader.read(file, path) else { continue }; // the process is still creating it
            for lock in &snapshot.locks {
                now.insert((snapshot.pid, lock.of), lock.wait_ns());
                for thread in &lock.threads {
                    let (pid, tid) = (snapshot.pid, thread.tid);
                    self.names.entry((pid, tid)).or_insert_with(|| name(pid, tid));
                }
            }
        }
        let before = |key| self.before.get(key).copied().unwrap_or(0);
        let added = now.iter().map(|(key, ns)| (*key, ns.saturating_sub(before(key))));
        self.slices.push(added.filter(|(_, ns)| *ns > 0).collect());
        self.before = now;
        if self.slices.len() > MOST {
            self.every *= 2;
            let pairs = std::mem::take(&mut self.slices);
            self.slices = pairs.chunks(2).map(add).collect();
        }
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
        if self.slices.len() < 2 {
            return;
        }
        // Until the last look: reading the segments and their symbols since then took time of its own.
        let seen = self.looked.saturating_duration_since(self.begun);
        let slice_ns = seen.as_nanos() as u64 / self.slices.len() as u64;
        for outcome in outcomes {
            outcome.slice_ns = slice_ns;
            for lock in &mut outcome.locks {
                let key = (outcome.pid, lock.of);
                let slice = |slice: &BTreeMap<_, _>| slice.get(&key).copied().unwrap_or(0);
                lock.course = self.slices.iter().map(slice).collect();
            }
        }
    }
}

/// A thread's name; empty: it has ended.
fn name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

fn add(slices: &[BTreeMap<Key, u64>]) -> BTreeMap<Key, u64> {
    let mut sum = BTreeMap::new();
    for (key, ns) in slices.iter().flatten() {
        *sum.entry(*key).or_default() += ns;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::observation::tests::lock;

    #[test]
    fn what_happens_after_the_last_look_is_in_no_slice() {
        let mut course = Course::begin();
        course.looked = course.begun + Duration::from_secs(3);
        course.begun -= Duration::from_secs(3);
        course.slices = vec![BTreeMap::new(); 2];
        let mut outcomes =
            [Observed { pid: 7, locks: vec![lock(10, (1, 1, 1))], ..Observed::default() }];
        course.tell(&mut outcomes);
        assert_eq!(outcomes[0].slice_ns, 3_000_000_000);
    }
}
