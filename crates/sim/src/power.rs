//! When the meters are read: those of energy whenever a CPU begins to do something else, that of unused time whenever a lock, a waiter or a CPU
//! changes.

use crate::engine::Engine;
use crate::timeline::Activity;
use crate::units::Tid;
use crate::unused::Unused;

impl Engine {
    /// Notes what a CPU does from now on.
    #[inline]
    pub(crate) fn is_doing(&mut self, cpu: u32, activity: Activity) {
        if self.cpus[cpu as usize].doing != activity {
            self.account(cpu);
            self.cpus[cpu as usize].doing = activity;
        }
    }

    /// Adds up what a CPU and its core have drawn since the CPU began its current activity.
    pub(crate) fn account(&mut self, cpu: u32) {
        let now = self.now;
        let one = &mut self.cpus[cpu as usize];
        if let Some(watts) = one.watts_alone()
            && self.timeline.is_none()
        {
            self.meters.alone(one.core, watts, one.doing_since, now);
            one.doing_since = now.max(one.doing_since);
            return;
        }
        let (first, smt) = ((cpu - one.sibling) as usize, one.smt as usize);
        let siblings = &self.cpus[first..][..smt];
        self.meters.core(siblings, now);
        let one = &mut self.cpus[cpu as usize];
        let began = one.doing_since;
        if one.doing != Activity::Idle {
            self.meters.busy(began, now);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.span(cpu, one.running, one.doing, began, now);
        }
        one.doing_since = now.max(began);
    }

    /// A CPU stops or starts being idle.
    pub(crate) fn is_awake(&mut self, cpu: u32, awake: bool) {
        let domain = self.cpus[cpu as usize].domain;
        self.meters.domain(domain, self.now);
        let count = &mut self.meters.domains[usize::from(domain)].awake;
        *count = if awake { *count + 1 } else { *count - 1 };
        self.unused(|unused| unused.awakes(awake));
    }

    /// Everything up to now is counted.
    pub(crate) fn account_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.account(u32::try_from(cpu).expect("few CPUs"));
        }
        for domain in 0..self.meters.domains.len() {
            self.meters.domain(u16::try_from(domain).expect("few domains"), self.now);
        }
    }

    /// A lock begins or ceases to be held.
    pub(crate) fn is_held(&mut self, lock: u32, is_held: bool) {
        self.unused(|unused| unused.is_held(lock, is_held));
    }

    /// A thread falls asleep, or has a CPU again.
    pub(crate) fn is_off_cpu(&mut self, thread: Tid, is_off: bool) {
        if let Some(lock) = self.threads[thread as usize].asks {
            self.unused(|unused| unused.is_off_cpu(lock, is_off));
        }
    }

    /// Something changes. (At the end of a run nothing does.)
    pub(crate) fn unused(&mut self, change: impl FnOnce(&mut Unused)) {
        self.unused.count(self.now, self.meters.measured);
        change(&mut self.unused);
        self.unused.changed(self.now, self.cpus.len());
    }
}
