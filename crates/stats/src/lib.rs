//! Reads what processes recorded about their epochs (`LOCKWRIGHT_STATS=DIR`), while they run or afterwards, and about
//! their lock operations ([`trace`]).
//!
//! ```no_run
//! for process in lockwright_stats::read_dir("recorded".as_ref())? {
//!     for epoch in &process.epochs {
//!         println!("{}: P99 {} ns", epoch.name, epoch.all().quantile(0.99));
//!     }
//! }
//! # Ok::<(), lockwright_stats::Error>(())
//! ```

mod author;
mod error;
mod read;
pub mod trace;

pub use author::Author;
pub use error::Error;
pub use read::{read_dir, read_file};

use lockwright_numbers::Times;

/// What one process recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its command line, with blanks between the words, cut after 511 bytes.
    pub command: String,
    /// The lock that it ran on, as given in `LOCKWRIGHT_LOCK`.
    pub lock: String,
    /// The emulated machine that it ran on, as given in `LOCKWRIGHT_EMULATE`; `None`: a real one.
    pub emulated: Option<String>,
    /// When recording began, ns of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When an epoch last ended, ns of `CLOCK_MONOTONIC`; up to a millisecond behind.
    pub last_ns: u64,
    /// Its epochs, in the order in which they first ended.
    pub epochs: Vec<Epoch>,
}

impl Process {
    /// A process without epochs.
    fn new(author: Author) -> Self {
        let Author { pid, command, lock, emulated, start_ns, last_ns } = author;
        Self { pid, command, lock, emulated, start_ns, last_ns, epochs: Vec::new() }
    }
}

/// One epoch of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// Its number: the program's (0 to 1023), or 1024 and more for functions (`--epoch`).
    pub id: u32,
    /// Its name; the number, if it was given none.
    pub name: String,
    /// Its last SLO, ns.
    pub slo_ns: u64,
    /// The percentile for which the SLO holds: 99.0 is P99.
    pub percentile: f64,
    /// The totals of its executions, by the class of the core on which they ended, fastest class
    /// first.
    pub classes: Vec<ClassStats>,
}

impl Epoch {
    /// All classes together; its `class` is 0 and has no meaning.
    pub fn all(&self) -> ClassStats {
        let mut all = ClassStats::default();
        for class in &self.classes {
            all.merge(class);
        }
        all
    }

    /// Adds what another process recorded about the same epoch. The other's SLO and percentile are ignored.
    pub fn merge(&mut self, other: &Self) {
        for theirs in &other.classes {
            match self.classes.iter_mut().find(|ours| ours.class == theirs.class) {
                Some(ours) => ours.merge(theirs),
                None => self.classes.push(theirs.clone()),
            }
        }
        self.classes.sort_by_key(|class| class.class);
    }

    /// Is the SLO out of reach even without reordering? It is if at least 100 executions began with a window
    /// negligible against the SLO, and more of these violated it than the percentile allows.
    pub fn is_infeasible(&self) -> bool {
        let all = self.all();
        let allowed = 1.0 - self.percentile / 100.0;
        all.at_fifo >= 100 && all.at_fifo_violations as f64 > allowed * all.at_fifo as f64
    }
}

/// The totals of an epoch's executions that ended on cores of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassStats {
    /// The class: 0 is the fastest.
    pub class: u8,
    /// Executions.
    pub count: u64,
    /// Executions slower than the SLO.
    pub violations: u64,
    /// The window after the last execution, ns.
    pub window_ns: u64,
    /// The shortest execution, ns; 0 if there was none.
    pub min_ns: u64,
    /// The longest execution, ns.
    pub max_ns: u64,
    /// Executions that began with a window negligible against the SLO (at most 1/64 of it).
    pub at_fifo: u64,
    /// How many of these were slower than the SLO.
    pub at_fifo_violations: u64,
    /// How long they took: the middle of a bucket of the file's histogram, off by at most 1/64.
    pub latency: Times,
}

impl ClassStats {
    /// The latency that a share `q` of the executions didn't exceed, ns; off by at most 1/64 of itself. 0 if there
    /// were none.
    pub fn quantile(&self, q: f64) -> u64 {
        self.latency.quantile(q).clamp(self.min_ns, self.max_ns.max(self.min_ns))
    }

    /// Adds another's executions. The window becomes the larger of the two.
    pub fn merge(&mut self, other: &Self) {
        self.min_ns = match (self.count, other.count) {
            (0, _) => other.min_ns,
            (_, 0) => self.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.violations += other.violations;
        self.window_ns = self.window_ns.max(other.window_ns);
        self.at_fifo += other.at_fifo;
        self.at_fifo_violations += other.at_fifo_violations;
        self.latency.merge(&other.latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn with(violations: u64, of: u64) -> Epoch {
        let class = ClassStats {
            count: of,
            at_fifo: of,
            at_fifo_violations: violations,
            ..ClassStats::default()
        };
        Epoch { id: 1, name: "1".into(), slo_ns: 1, percentile: 99.0, classes: vec![class] }
    }

    #[test]
    fn infeasible_needs_a_hundred_executions_and_too_many_violations() {
        assert!(!with(99, 99).is_infeasible());
        assert!(with(100, 100).is_infeasible());
        assert!(with(11, 1000).is_infeasible());
        assert!(!with(10, 1000).is_infeasible());
    }

    #[test]
    fn merging_keeps_extremes_and_adds_counts() {
        let mut one = ClassStats::default();
        one.merge(&ClassStats { count: 2, min_ns: 5, max_ns: 9, ..ClassStats::default() });
        one.merge(&ClassStats { count: 1, min_ns: 3, max_ns: 4, ..ClassStats::default() });
        one.merge(&ClassStats::default());
        assert_eq!((one.count, one.min_ns, one.max_ns), (3, 3, 9));
    }
}
