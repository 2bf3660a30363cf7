//! Energy: what each core draws, depending on what its hardware threads do, and what a socket draws while one of its
//! cores is awake.

use crate::cpu::Cpu;
use crate::profile::Profile;
use crate::timeline::Activity;
use crate::units::{Ps, ps, real};

/// A core, or a domain, and until when its energy is counted.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    until: Ps,
    /// For a domain: its hardware threads that are not idle.
    pub(crate) awake: u32,
}

/// All meters of a machine.
pub(crate) struct Meters {
    cores: Vec<Meter>,
    pub(crate) domains: Vec<Meter>,
    uncore_w: f64,
    deep_after: Ps,
    /// The time in which energy counts: start and end.
    pub(crate) measured: (Ps, Ps),
    /// Energy of cores and sockets within that time.
    pub(crate) joules: f64,
    /// CPU time within it: computing, spinning, in the kernel.
    pub(crate) cpu: Ps,
}

impl Meters {
    pub(crate) fn new(profile: &Profile, cpus: &[Cpu]) -> Self {
        let cores = cpus.last().map_or(0, |cpu| cpu.core + 1);
        let domains = cpus.iter().map(|cpu| cpu.domain + 1).max().unwrap_or(0);
        Self {
            cores: vec![Meter::default(); cores as usize],
            domains: vec![Meter::default(); usize::from(domains)],
            uncore_w: profile.kernel.uncore_w,
            deep_after: ps(profile.kernel.deep_after_ns),
            measured: (0, Ps::MAX),
            joules: 0.0,
            cpu: 0,
        }
    }

    /// A CPU is not idle from `start` to `stop`.
    #[inline]
    pub(crate) fn busy(&mut self, start: Ps, stop: Ps) {
        let (from, end) = self.measured;
        self.cpu += stop.min(end).saturating_sub(start.max(from));
    }

    /// Adds the energy from `start` to `stop`, as far as that time is measured.
    #[inline]
    fn add(&mut self, watts: f64, start: Ps, stop: Ps) {
        let (from, end) = self.measured;
        self.joules += watts * real(stop.min(end).saturating_sub(start.max(from))) * 1e-12;
    }

    /// Counts what a core has drawn until `now`, and as [`busy`](Self::busy), if its only hardware thread isn't idle.
    #[inline]
    pub(crate) fn alone(&mut self, core: u32, watts: f64, began: Ps, now: Ps) {
        let start = std::mem::replace(&mut self.cores[core as usize].until, now);
        self.add(watts, start, now);
        self.busy(began, now);
    }

    /// Counts what a core has drawn until `now`; `cpus` are its hardware threads.
    #[inline]
    pub(crate) fn core(&mut self, cpus: &[Cpu], now: Ps) {
        let meter = &mut self.cores[cpus[0].core as usize];
        let start = std::mem::replace(&mut meter.until, now);
        if cpus.iter().all(|cpu| cpu.doing != Activity::Idle) {
            return self.add(self.together(cpus, start), start, now);
        }
        self.idles(cpus, start, now);
    }

    /// The same for a core of which some hardware threads are idle.
    #[inline(never)]
    fn idles(&mut self, cpus: &[Cpu], mut start: Ps, now: Ps) {
        while start < now {
            // Some states change by themselves: a thread that has nothing to do becomes idle, and later deeply idle.
            let idle = cpus.iter().filter(|cpu| cpu.doing == Activity::Idle);
            let changes = idle.flat_map(|cpu| [cpu.doing_since, cpu.doing_since + self.deep_after]);
            let stop = changes.filter(|&at| at > start).min().map_or(now, |at| at.min(now));
            self.add(self.together(cpus, start), start, stop);
            start = stop;
        }
    }

    /// What a core's hardware threads draw together.
    #[inline]
    fn together(&self, cpus: &[Cpu], time: Ps) -> f64 {
        if let [cpu] = cpus {
            return cpu.watts(time, self.deep_after);
        }
        let (mut most, mut sum) = (0.0, 0.0);
        for cpu in cpus {
            let watts = cpu.watts(time, self.deep_after);
            most = f64::max(most, watts);
            sum += watts;
        }
        most + cpus[0].power.sibling * (sum - most)
    }

    pub(crate) fn domain(&mut self, domain: u16, now: Ps) {
        let meter = &mut self.domains[usize::from(domain)];
        let (start, awake) = (std::mem::replace(&mut meter.until, now), meter.awake > 0);
        if awake {
            self.add(self.uncore_w, start, now);
        }
    }
}
