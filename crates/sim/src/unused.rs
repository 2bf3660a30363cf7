//! The time in which a lock is free, a thread that waits for it is off its CPU, and a CPU idles: nobody does what could be done.

use crate::engine::Engine;
use crate::units::{Ps, Tid};

/// One lock.
#[derive(Clone, Copy, Default)]
struct Lock {
    is_held: bool,
    /// Threads that wait for it, and sleep or are on their way to a CPU.
    off_cpu: u32,
}

/// The meter.
#[derive(Default)]
pub(crate) struct Unused {
    locks: Vec<Lock>,
    /// CPUs that aren't idle.
    awake: u32,
    /// Since when it is the case.
    since: Option<Ps>,
    /// For how long it was, within the measured time.
    pub(crate) time: Ps,
}

impl Engine {
    /// A lock begins or ceases to be held.
    pub(crate) fn is_held(&mut self, lock: u32, is_held: bool) {
        self.unused(|unused| unused.lock(lock).is_held = is_held);
    }

    /// A thread falls asleep, or has a CPU again.
    pub(crate) fn is_off_cpu(&mut self, thread: Tid, is_off: bool) {
        if let Some(lock) = self.threads[thread as usize].asks {
            let change = if is_off { 1 } else { u32::MAX };
            self.unused(|unused| {
                let lock = unused.lock(lock);
                lock.off_cpu = lock.off_cpu.wrapping_add(change);
            });
        }
    }

    /// A CPU begins or ceases to be idle.
    pub(crate) fn cpu_awakes(&mut self, awakes: bool) {
        let change = if awakes { 1 } else { u32::MAX };
        self.unused(|unused| unused.awake = unused.awake.wrapping_add(change));
    }

    /// Something changes. (At the end of a run nothing does.)
    pub(crate) fn unused(&mut self, change: impl FnOnce(&mut Unused)) {
        let (from, end) = self.meters.measured;
        if let Some(since) = self.unused.since {
            self.unused.time += self.now.min(end).saturating_sub(since.max(from));
        }
        change(&mut self.unused);
        let idles = (self.unused.awake as usize) < self.cpus.len();
        let is_wanted = |lock: &Lock| !lock.is_held && lock.off_cpu > 0;
        let is = idles && self.unused.locks.iter().any(is_wanted);
        self.unused.since = is.then_some(self.now);
    }
}

impl Unused {
    fn lock(&mut self, number: u32) -> &mut Lock {
        let number = number as usize;
        if self.locks.len() <= number {
            self.locks.resize(number + 1, Lock::default());
        }
        &mut self.locks[number]
    }
}

#[cfg(test)]
mod tests {
    use crate::{LockSpec, Placement, Run, profile, workload};
    use std::sync::Arc;

    fn share(lock: &str, threads: u32) -> f64 {
        let run = Run {
            profile: Arc::new(profile::builtin("m1").unwrap()),
            lock: LockSpec::parse(lock).unwrap(),
            workload: workload::find("bench").unwrap(),
            params: [("gap".to_owned(), 1000.0)].into(),
            threads,
            placement: Placement::Free,
            seed: 1,
            warmup_ns: 1_000_000,
            duration_ns: 5_000_000,
            samples: false,
            timeline: None,
            transfers: false,
        };
        run.outcome().unused
    }

    #[test]
    fn spinners_use_what_sleepers_in_order_leave() {
        assert_eq!(share("ttas", 16).to_bits(), 0.0_f64.to_bits(), "nobody sleeps");
        let sleepers = share("fifo", 16);
        assert!((0.3..1.0).contains(&sleepers), "{sleepers}");
        assert!(share("fifo", 2) < 0.1);
    }
}
