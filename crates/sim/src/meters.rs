//! Energy: what each core draws, depending on what its hardware threads do, and what a socket draws while one of its
//! cores is awake.

use crate::cpu::Cpu;
use crate::profile::Profile;
use crate::timeline::Activity;
use crate::units::{Ps, ps};

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
    pub(crate) fn busy(&mut self, start: Ps, stop: Ps) {
        let (from, end) = self.measured;
        self.cpu += stop.min(end).saturating_sub(start.max(from));
    }

    /// Adds the energy from `start` to `stop`, as far as that time is measured.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ps")]
    fn add(&mut self, watts: f64, start: Ps, stop: Ps) {
        let (from, end) = self.measured;
        self.joules += watts * stop.min(end).saturating_sub(start.max(from)) as f64 * 1e-12;
    }

    /// Counts what a core has drawn until `now`; `cpus` are its hardware threads.
    #[inline]
    pub(crate) fn core(&mut self, cpus: &[Cpu], now: Ps) {
        let meter = &mut self.cores[cpus[0].core as usize];
        let mut start = std::mem::replace(&mut meter.until, now);
        if let [cpu] = cpus
            && cpu.doing != Activity::Idle
        {
            let watts = cpu.watts(start, self.deep_after);
            return self.add(watts, start, now);
        }
        while start < now {
            // Some states change by themselves: a thread that has nothing to do becomes idle, and later deeply idle.
            let idle = cpus.iter().filter(|cpu| cpu.doing == Activity::Idle);
            let changes = idle.flat_map(|cpu| [cpu.doing_since, cpu.doing_since + self.deep_after]);
            let stop = changes.filter(|&at| at > start).min().map_or(now, |at| at.min(now));
            let (mut most, mut sum) = (0.0, 0.0);
            for cpu in cpus {
                let watts = cpu.watts(start, self.deep_after);
                most = f64::max(most, watts);
                sum += watts;
            }
            self.add(most + cpus[0].power.sibling * (sum - most), start, stop);
            start = stop;
        }
    }

    pub(crate) fn domain(&mut self, domain: u16, now: Ps) {
        let meter = &mut self.domains[usize::from(domain)];
        let (start, awake) = (std::mem::replace(&mut meter.until, now), meter.awake > 0);
        if awake {
            self.add(self.uncore_w, start, now);
        }
    }
}
