//! RCL's microbenchmark, in this process: threads that change a few cache lines under one lock, with a delay of random
//! length between two sections (Lozi et al., *Remote Core Locking*, USENIX ATC 2012, section 5).

use crate::point::{Length, Point, Work};
use crate::spec::{Lock, Spec};
use crate::system::provider_of_pthread_mutex_lock;
use crate::worker::measure;
use anyhow::{Result, bail};
use lockwright_energy::Watts;
use lockwright_locks::spec::GLIBC;
use std::time::Duration;

/// What the threads do, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rcl {
    /// Number of threads. Each is bound to a CPU; with more threads than CPUs, several share one.
    pub threads: u32,
    /// Cache lines that a section reads and changes, at least 1.
    pub lines: u32,
    /// Mean delay between two sections of a thread, ns; each is drawn from an exponential distribution.
    pub delay_ns: u32,
    /// How long sections are counted. Timing them takes another half of it.
    pub time: Duration,
    /// What [`turns_per_ns`](crate::turns_per_ns) returns.
    pub turns_per_ns: f64,
    /// Seed of the delays: equal seeds, equal delays.
    pub seed: u64,
}

/// The result for one lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RclResult {
    /// Sections a second, all threads together.
    pub rate: f64,
    /// The share (0 to 1) of the threads' time from before they ask for the lock until after they have released it:
    /// RCL's measure of contention. `None`: sections were not timed.
    pub share: Option<f64>,
}

impl Rcl {
    /// Runs it with `glibc`'s mutex, or with a lock of the catalogue (also a delegated one) that is compiled in.
    /// `is_timed`: a second pass times the sections.
    ///
    /// # Errors
    /// There is no such lock, this process has replaced glibc's mutex, or the lock let two threads in at a time.
    pub fn run(&self, lock: &str, is_timed: bool) -> Result<RclResult> {
        let provider = provider_of_pthread_mutex_lock();
        if lock == GLIBC && !(provider.starts_with("libc.") || provider.starts_with("libpthread")) {
            bail!("pthread_mutex_lock came from '{provider}'");
        }
        let point = Point {
            work: Work::Mutex,
            threads: self.threads,
            cs_ns: 0,
            gap_ns: self.delay_ns,
            length: Length::Exponential,
            lines: self.lines.saturating_sub(1), // the counter has a line of its own
            pin: true,
            hogs: 0,
            latency: is_timed,
            emulate: None,
        };
        let answer = measure(&Spec {
            lock: if lock == GLIBC { Lock::Pthread } else { Lock::Catalogue(lock.into()) },
            point,
            time_s: self.time.as_secs_f64(),
            turns_per_ns: self.turns_per_ns,
            seed: self.seed,
            watts: Watts::assumed(),
            fastest_first: false,
            alone: false,
        })?;
        if answer.counted != answer.expected {
            bail!(
                "'{lock}' broke mutual exclusion: its counter is {}, but must be {}",
                answer.counted,
                answer.expected
            );
        }
        Ok(RclResult { rate: answer.rate(), share: answer.in_sections })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Rcl = Rcl {
        threads: 2,
        lines: 2,
        delay_ns: 100,
        time: Duration::from_millis(2),
        turns_per_ns: 1.0,
        seed: 1,
    };

    #[test]
    fn locks_and_delegated_locks_run_and_are_timed_on_request() {
        for lock in ["glibc", "mcs", "combiner"] {
            let share = SHORT.run(lock, true).unwrap().share.unwrap();
            assert!((0.0..=1.0).contains(&share), "{lock}: {share}");
            assert_eq!(SHORT.run(lock, false).unwrap().share, None);
        }
    }

    #[test]
    fn an_unknown_lock_is_named() {
        let why = SHORT.run("msc", false).unwrap_err().to_string();
        assert_eq!(why, "no lock 'msc' in the catalogue");
    }
}
