//! The time in which no thread (or writer) holds a lock, a thread that has gone to sleep for it sleeps or waits for a CPU, and a CPU idles:
//! nobody does what could be done.

use crate::units::Ps;

/// One lock.
#[derive(Clone, Copy, Default)]
struct Wanted {
    is_held: bool,
    /// Threads that wait for it, and sleep or are on their way to a CPU.
    off_cpu: u32,
}

/// The meter.
#[derive(Default)]
pub(crate) struct Unused {
    locks: Vec<Wanted>,
    /// CPUs that aren't idle.
    awake: u32,
    /// Since when time has been unused. None: now it isn't.
    since: Option<Ps>,
    /// For how long it was, within the measured time.
    pub(crate) time: Ps,
}

impl Unused {
    /// A lock begins or ceases to be held.
    pub(crate) fn is_held(&mut self, lock: u32, is_held: bool) {
        self.lock(lock).is_held = is_held;
    }

    /// A thread that waits for this lock falls asleep, or has a CPU again.
    pub(crate) fn is_off_cpu(&mut self, lock: u32, is_off: bool) {
        let lock = self.lock(lock);
        lock.off_cpu = if is_off { lock.off_cpu + 1 } else { lock.off_cpu - 1 };
    }

    /// A CPU begins or ceases to be idle.
    pub(crate) fn awakes(&mut self, awakes: bool) {
        self.awake = if awakes { self.awake + 1 } else { self.awake - 1 };
    }

    /// Counts the time until `now`, as far as it is `measured`.
    pub(crate) fn count(&mut self, now: Ps, measured: (Ps, Ps)) {
        if let Some(since) = self.since {
            self.time += now.min(measured.1).saturating_sub(since.max(measured.0));
        }
    }

    /// Something has changed at `now`, on a machine of so many CPUs.
    pub(crate) fn changed(&mut self, now: Ps, cpus: usize) {
        let idles = (self.awake as usize) < cpus;
        let is_wanted = |lock: &Wanted| !lock.is_held && lock.off_cpu > 0;
        self.since = (idles && self.locks.iter().any(is_wanted)).then_some(now);
    }

    fn lock(&mut self, number: u32) -> &mut Wanted {
        let number = number as usize;
        if self.locks.len() <= number {
            self.locks.resize(number + 1, Wanted::default());
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
