//! When the meters of energy are read: whenever a CPU begins to do something else.

use crate::engine::Engine;
use crate::timeline::Activity;

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
        let one = &self.cpus[cpu as usize];
        let first = (cpu - one.sibling) as usize;
        let smt = self.profile.class[one.class].smt as usize;
        self.meters.core(&self.cpus[first..first + smt], now);
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
        self.cpu_awakes(awake);
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
}
