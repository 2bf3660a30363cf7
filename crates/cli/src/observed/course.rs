//! How long threads waited for each lock in each time slice of a program's run.

use super::outcome::Observed;
use super::reader::Reader;
use super::run::open_file;
use super::snapshot::Of;
use lockwright_contract::counters::layout::CountersHeader;
use lockwright_contract::header::Layout;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often we sample.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Maximum number of slices. Beyond that, pairs of slices are merged.
const MOST: usize = 256;

/// A lock of a process.
type Key = (u32, Of);

/// Samples segments repeatedly.
pub(crate) struct Course {
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
    pub(crate) fn begin() -> Self {
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
    pub(crate) fn look_into(&mut self, folder: &Path) {
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
    pub(crate) fn look_at(&mut self, file: &File, path: &Path) {
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
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        self.before.keys().map(|(pid, _)| *pid).collect()
    }

    /// Adds the waiting time per slice to the locks, and names to their threads.
    pub(crate) fn tell(&self, outcomes: &mut [Observed]) {
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

/// Draws the slices in at most this many columns. Also returns the highest value: the average number of waiting
/// threads.
pub(crate) fn signs(course: &[u64], slice_ns: u64, columns: usize) -> (String, f64) {
    const SIGNS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = course.len().div_ceil(columns.max(1)).max(1);
    let waiting = |slices: &[u64]| {
        slices.iter().sum::<u64>() as f64 / (slices.len() as u64 * slice_ns.max(1)) as f64
    };
    let all: Vec<f64> = course.chunks(width).map(waiting).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    let sign = |value: &f64| SIGNS[((value / most.max(1e-9) * 7.0).round() as usize).min(7)];
    (all.iter().map(sign).collect(), most)
}

/// The slices as counters in Chrome's trace format, which Perfetto shows (ui.perfetto.dev).
pub(crate) fn timeline(outcomes: &[Observed]) -> Value {
    let mut events = Vec::new();
    for outcome in outcomes {
        events.push(json!({
            "name": "process_name", "ph": "M", "pid": outcome.pid,
            "args": { "name": outcome.command },
        }));
        for lock in outcome.locks.iter().filter(|lock| lock.course.iter().any(|&ns| ns > 0)) {
            for (at, ns) in lock.course.iter().enumerate() {
                events.push(json!({
                    "name": lock.name, "ph": "C", "pid": outcome.pid,
                    "ts": (at as u64 * outcome.slice_ns) as f64 / 1000.0,
                    "args": { "threads waiting": *ns as f64 / outcome.slice_ns.max(1) as f64 },
                }));
            }
        }
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::advice::tests::lock;

    #[test]
    fn a_course_is_drawn_in_few_columns() {
        assert_eq!(signs(&[0, 50, 100, 100], 100, 10), ("▁▅██".to_owned(), 1.0));
        assert_eq!(signs(&[0, 0, 300, 100, 200], 100, 3), ("▁██".to_owned(), 2.0));
        assert_eq!(signs(&[], 100, 3).0, "");
    }

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

    #[test]
    fn a_timeline_has_a_counter_for_each_lock() {
        let mut waited = lock(10, (1, 1, 1));
        waited.course = vec![0, 50_000_000];
        let outcome = Observed {
            pid: 7,
            slice_ns: 100_000_000,
            locks: vec![waited, lock(10, (1, 1, 1))],
            ..Observed::default()
        };
        let timeline = timeline(&[outcome]);
        let events = timeline["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 3, "{timeline:#}");
        assert_eq!((&events[2]["name"], &events[2]["ph"]), (&json!("lock"), &json!("C")));
        assert_eq!(events[2]["ts"], json!(100_000.0));
        assert_eq!(events[2]["args"]["threads waiting"], json!(0.5));
    }
}
