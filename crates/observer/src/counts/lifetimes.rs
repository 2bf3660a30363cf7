//! How long the threads of a process ran, as seen from outside.

use crate::process::started;
use lockwright_symbols::threads;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often threads are listed.
const TICK: Duration = Duration::from_millis(20);

/// The threads' running times. Threads that lived between two looks, 20 ms or more apart, are missed.
#[derive(Debug)]
pub struct Lifetimes {
    begun: Instant,
    looked: Instant,
    /// Threads that were there at the last look, with their process.
    alive: BTreeSet<(u32, libc::pid_t)>,
    /// By process, ns: all threads together.
    total: BTreeMap<u32, u64>,
    /// By process: when it was last seen to run, ns of `CLOCK_MONOTONIC`.
    ran_ns: BTreeMap<u32, u64>,
}

impl Lifetimes {
    /// Begins now.
    pub fn begin() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            looked: now,
            alive: BTreeSet::new(),
            total: BTreeMap::new(),
            ran_ns: BTreeMap::new(),
        }
    }

    /// Looks at these processes, if it is time to.
    pub fn look(&mut self, pids: impl IntoIterator<Item = u32>) {
        if self.looked.elapsed() < TICK {
            return;
        }
        let now = monotonic();
        let ran_ns = &mut self.ran_ns;
        let there = pids.into_iter().flat_map(|pid| {
            if started(pid).is_some() {
                ran_ns.insert(pid, now);
            }
            let all = threads(pid as libc::pid_t).unwrap_or_default();
            all.into_iter().map(move |tid| (pid, tid))
        });
        let there: BTreeSet<_> = there.collect();
        let since = nanoseconds(self.looked.elapsed());
        self.looked = Instant::now();
        let most = nanoseconds(self.begun.elapsed());
        self.count(there, since, |tid| age_ns(tid).unwrap_or(0).min(most));
    }

    /// Counts the threads that are there now, `since` ns after the last time. A thread that is gone counts as if it had ended
    /// just now, and a new one from its start, `age` ns ago.
    fn count(
        &mut self,
        there: BTreeSet<(u32, libc::pid_t)>,
        since: u64,
        age: impl Fn(libc::pid_t) -> u64,
    ) {
        for (pid, _) in &self.alive {
            *self.total.entry(*pid).or_default() += since;
        }
        for (pid, tid) in there.difference(&self.alive) {
            *self.total.entry(*pid).or_default() += age(*tid);
        }
        self.alive = there;
    }

    /// Looking is over: all threads that were there at the last look ran until now.
    pub fn end(&mut self) {
        self.count(BTreeSet::new(), nanoseconds(self.looked.elapsed()), |_| 0);
    }

    /// When a process was last seen to run, ns of `CLOCK_MONOTONIC`. `None`: it was not seen.
    pub fn ran_ns(&self, pid: u32) -> Option<u64> {
        self.ran_ns.get(&pid).copied()
    }

    /// The running time of a process's threads until the [`end`](Self::end), ns. `None`: it was not seen.
    pub fn of(&self, pid: u32) -> Option<u64> {
        self.total.get(&pid).copied()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The clock of the segments, ns.
pub(super) fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How long ago a thread was started, ns, to within 10 ms; `None`: it is gone.
fn age_ns(tid: libc::pid_t) -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a writable timespec; sysconf has no preconditions.
    let ticks = unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now);
        libc::sysconf(libc::_SC_CLK_TCK)
    };
    let tick_ns = 1_000_000_000 / u64::try_from(ticks).ok().filter(|&ticks| ticks > 0)?;
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    Some(now_ns.saturating_sub(started(tid as u32)? * tick_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_from_their_start_to_their_end() {
        let mut lifetimes = Lifetimes::begin();
        let age = |_| 7;
        lifetimes.count([(1, 10), (1, 11), (2, 20)].into(), 100, age);
        assert_eq!(lifetimes.total, [(1, 14), (2, 7)].into());
        // One has ended meanwhile, and one is new.
        lifetimes.count([(1, 10), (1, 12)].into(), 100, age);
        assert_eq!(lifetimes.total, [(1, 14 + 200 + 7), (2, 107)].into());
        lifetimes.count(BTreeSet::new(), 50, age);
        lifetimes.end();
        assert_eq!(
            (lifetimes.of(1), lifetimes.of(2), lifetimes.of(3)),
            (Some(321), Some(107), None)
        );
    }

    #[test]
    fn this_thread_has_an_age() {
        // SAFETY: no preconditions.
        let tid = unsafe { libc::gettid() };
        let age = age_ns(tid).unwrap();
        assert!(age < 86_400_000_000_000, "{age}");
        assert_eq!(age_ns(-1), None);
    }
}
