//! Transfers of cache lines on the way of a lock from its holder to the next one.
//!
//! ```text
//!   holder ── unlock begins ─ t ─ t ─ writes what the next holder reads ─ (t) ─ unlock returns
//!                  │                             │
//!   next           │  waits                      └─ t ─ t ─ lock returns
//!                  └──────────────── the hand-over ────────────────┘
//! ```
//!
//! A *hand-over* leads from the moment at which a holder begins its unlock to the moment at which `lock` returns on the
//! next holder, which asked before that unlock began. A *transfer* (`t`) is an access to the lock's memory that the
//! core can't serve from its own cache. A transfer counts for a hand-over if
//! 1. the next holder got the line during the hand-over, or
//! 2. the releaser got the line since its unlock began, and not after its last action that the next holder depends on:
//!    a write to a line that the next holder got afterwards, or its wake-up. What the releaser does after that, `(t)`,
//!    doesn't count. If there is no such action (a third thread passed the lock on, or both run on one CPU), all counts
//!    that the releaser did before its unlock returned and before the hand-over was over. If the releaser itself runs
//!    the next holder's section, all counts that it did until then, and nothing of the next holder's.
//!
//! Transfers of other threads don't count. Data that a workload touches are not in the lock's memory. A lock that nobody
//! had asked for when its holder began to unlock was handed over to nobody: such releases are counted apart. So are those
//! after which a thread was next that had not waited, or the releaser itself.

use hdrhistogram::Histogram;
use lockwright_numbers::recorder;
use serde::{Deserialize, Serialize};

/// What an access that isn't served by the core's own cache needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    /// A copy, to read it.
    Copy,
    /// The line, to write to it; the core has no copy.
    Take,
    /// The right to write to it; the core has a copy, and other copies must go.
    Upgrade,
}

/// Transfers of each kind, on average over hand-overs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByKind {
    /// A copy was fetched, to read it.
    pub copies: f64,
    /// The line was fetched, to write to it.
    pub takes: f64,
    /// The core had a copy; the others' copies were invalidated, to write to it.
    pub upgrades: f64,
}

impl ByKind {
    /// All kinds together.
    pub fn all(&self) -> f64 {
        self.copies + self.takes + self.upgrades
    }
}

/// Hand-overs of all locks of a run, within the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandOverPath {
    /// How many: the next holder had asked before the unlock began.
    pub hand_overs: u64,
    /// Transfers for each, on average.
    pub transfers: f64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The most.
    pub max: u64,
    /// By the releaser.
    pub releaser: ByKind,
    /// By the next holder.
    pub next: ByKind,
    /// From the unlock's begin until the next holder has the lock: mean, ns.
    pub mean_ns: f64,
    /// The median, ns.
    pub p50_ns: u64,
    /// The 99th percentile, ns.
    pub p99_ns: u64,
    /// Releases while nobody had asked.
    pub free: u64,
    /// Releases while others waited, after which a thread was next that had not asked before, or the releaser.
    pub passed_over: u64,
}

/// Transfers of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts([u32; 3]);

impl Counts {
    fn add(&mut self, kind: Transfer) {
        self.0[kind as usize] += 1;
    }

    fn all(self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }
}

/// A thread that had asked when an unlock began.
struct Waiter {
    thread: u32,
    own: Counts,
    /// The releaser's transfers up to its last action that this thread depends on.
    needs: Option<Counts>,
}

/// A release: from the unlock's begin until the next thread has the lock.
struct Release {
    by: u32,
    /// When it began, ps.
    began: u64,
    /// The unlock has returned.
    returned: bool,
    own: Counts,
    /// The lines that the releaser has written to since, with its transfers until the last write.
    wrote: Vec<(u32, Counts)>,
    waiters: Vec<Waiter>,
}

impl Release {
    fn writes(&mut self, line: u32) {
        let own = self.own;
        match self.wrote.iter_mut().find(|(written, _)| *written == line) {
            Some((_, counts)) => *counts = own,
            None => self.wrote.push((line, own)),
        }
    }

    fn waiter(&mut self, thread: u32) -> Option<&mut Waiter> {
        self.waiters.iter_mut().find(|waiter| waiter.thread == thread)
    }

    fn is_by(&self, thread: u32) -> bool {
        self.by == thread && !self.returned
    }
}

/// Watches all hand-overs of a run.
pub(crate) struct Paths {
    /// What counts: begun and ended between these, ps.
    measured: (u64, u64),
    /// By lock.
    releases: Vec<Option<Release>>,
    /// Sums.
    releaser: [u64; 3],
    next: [u64; 3],
    /// Hand-overs by their number of transfers.
    by_number: Vec<u64>,
    times: Histogram<u64>,
    /// The sum of the times, ps.
    took: u64,
    free: u64,
    passed_over: u64,
}

impl Paths {
    /// Counts what begins and ends between these times, ps.
    pub(crate) fn new(measured: (u64, u64)) -> Self {
        Self {
            measured,
            releases: Vec::new(),
            releaser: [0; 3],
            next: [0; 3],
            by_number: Vec::new(),
            times: recorder(),
            took: 0,
            free: 0,
            passed_over: 0,
        }
    }

    /// `thread` begins to unlock, while `waiting` have asked for the lock.
    pub(crate) fn released(&mut self, lock: u32, thread: u32, now: u64, waiting: &[u32]) {
        let lock = lock as usize;
        if self.releases.len() <= lock {
            self.releases.resize_with(lock + 1, || None);
        }
        let waits = |&thread: &u32| Waiter { thread, own: Counts::default(), needs: None };
        self.releases[lock] = Some(Release {
            by: thread,
            began: now,
            returned: false,
            own: Counts::default(),
            wrote: Vec::new(),
            waiters: waiting.iter().map(waits).collect(),
        });
    }

    /// The unlock of `thread` has returned.
    pub(crate) fn returned(&mut self, lock: u32, thread: u32) {
        if let Some(Some(release)) = self.releases.get_mut(lock as usize)
            && release.by == thread
        {
            release.returned = true;
        }
    }

    /// `thread` gets the line, to write to it or to read it; its core has a copy or not.
    pub(crate) fn gets(&mut self, thread: u32, line: u32, write: bool, has_copy: bool) {
        let kind = match (write, has_copy) {
            (false, _) => Transfer::Copy,
            (true, false) => Transfer::Take,
            (true, true) => Transfer::Upgrade,
        };
        self.transfer(thread, line, kind);
    }

    fn transfer(&mut self, thread: u32, line: u32, kind: Transfer) {
        for release in self.releases.iter_mut().flatten() {
            if release.is_by(thread) {
                release.own.add(kind);
                if kind != Transfer::Copy {
                    release.writes(line);
                }
                continue;
            }
            let written = release.wrote.iter().find(|(written, _)| *written == line);
            let needs = written.map(|(_, counts)| *counts);
            if let Some(waiter) = release.waiter(thread) {
                waiter.own.add(kind);
                waiter.needs = later(waiter.needs, needs);
            }
        }
    }

    /// `thread` writes to a line that its core has.
    pub(crate) fn writes(&mut self, thread: u32, line: u32) {
        for release in self.releases.iter_mut().flatten().filter(|one| one.is_by(thread)) {
            release.writes(line);
        }
    }

    /// `thread` wakes a thread that sleeps in the kernel.
    pub(crate) fn wakes(&mut self, thread: u32, sleeper: u32) {
        for release in self.releases.iter_mut().flatten().filter(|one| one.is_by(thread)) {
            let own = release.own;
            if let Some(waiter) = release.waiter(sleeper) {
                waiter.needs = later(waiter.needs, Some(own));
            }
        }
    }

    /// `thread` has the lock; its section runs on `runner`.
    pub(crate) fn acquired(&mut self, lock: u32, thread: u32, runner: u32, now: u64) {
        let release = self.releases.get_mut(lock as usize).and_then(Option::take);
        let Some(mut release) = release else { return };
        let (from, end) = self.measured;
        if release.began < from || now > end {
            return;
        }
        if release.waiters.is_empty() {
            self.free += 1;
            return;
        }
        let own = release.own;
        let Some(waiter) = release.waiter(thread) else {
            self.passed_over += 1;
            return;
        };
        let (by_releaser, by_next) = match waiter.needs {
            _ if runner != thread => (own, Counts::default()),
            needs => (needs.unwrap_or(own), waiter.own),
        };
        for (sums, counts) in [(&mut self.releaser, by_releaser), (&mut self.next, by_next)] {
            for (sum, count) in sums.iter_mut().zip(counts.0) {
                *sum += u64::from(count);
            }
        }
        let number = usize::try_from(by_releaser.all() + by_next.all()).expect("far fewer");
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, 0);
        }
        self.by_number[number] += 1;
        self.took += now - release.began;
        self.times.saturating_record((now - release.began) / 1000);
    }

    /// What came out.
    #[allow(clippy::cast_precision_loss, reason = "counts and times far below 2^52")]
    pub(crate) fn outcome(&self) -> HandOverPath {
        let hand_overs: u64 = self.by_number.iter().sum();
        let each = |sum: u64| sum as f64 / (hand_overs as f64).max(1.0);
        let by_kind = |[copies, takes, upgrades]: [u64; 3]| ByKind {
            copies: each(copies),
            takes: each(takes),
            upgrades: each(upgrades),
        };
        HandOverPath {
            hand_overs,
            transfers: each(self.releaser.iter().chain(&self.next).sum()),
            p50: self.quantile(hand_overs.div_ceil(2)),
            p99: self.quantile((hand_overs * 99).div_ceil(100)),
            max: self.by_number.len().saturating_sub(1) as u64,
            releaser: by_kind(self.releaser),
            next: by_kind(self.next),
            mean_ns: each(self.took) / 1000.0,
            p50_ns: self.times.value_at_quantile(0.5),
            p99_ns: self.times.value_at_quantile(0.99),
            free: self.free,
            passed_over: self.passed_over,
        }
    }

    /// The number of transfers that this many hand-overs have at most.
    fn quantile(&self, rank: u64) -> u64 {
        let mut so_far = 0;
        let reaches = |count: &u64| {
            so_far += count;
            so_far >= rank
        };
        self.by_number.iter().position(reaches).unwrap_or(0) as u64
    }
}

/// Counts of one releaser only grow: the larger ones are from the later action.
fn later(one: Option<Counts>, other: Option<Counts>) -> Option<Counts> {
    one.into_iter().chain(other).max_by_key(|counts| counts.all())
}

#[cfg(test)]
mod tests;
