//! Energy: what each core draws, depending on what its hardware threads do, and what a socket draws while one of its
//! cores is awake.

use crate::cores::Cpu;
use crate::engine::{Engine, Ps, ps};
use crate::profile::Profile;
use crate::timeline::Activity;

/// A core, or a domain, and until when its energy is counted.
#[derive(Clone, Default)]
struct Meter {
    until: Ps,
    /// For a domain: its hardware threads that are not idle.
    awake: u32,
}

/// All meters of a machine.
pub(crate) struct Meters {
    cores: Vec<Meter>,
    domains: Vec<Meter>,
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
    fn core(&mut self, cpus: &[Cpu], now: Ps) {
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

    fn domain(&mut self, domain: u16, now: Ps) {
        let meter = &mut self.domains[usize::from(domain)];
        let (start, awake) = (std::mem::replace(&mut meter.until, now), meter.awake > 0);
        if awake {
            self.add(self.uncore_w, start, now);
        }
    }
}

impl Cpu {
    /// What it draws at `time`, if it has its core to itself.
    fn watts(&self, time: Ps, deep_after: Ps) -> f64 {
        let power = &self.power;
        match self.doing {
            Activity::Work | Activity::Kernel => power.active_w,
            Activity::SpinLocal if self.fences => power.spin_fence_w,
            Activity::SpinLocal => power.spin_local_w,
            Activity::SpinGlobal => power.spin_global_w,
            Activity::Idle if time < self.doing_since => power.active_w, // becoming idle, still in the kernel
            Activity::Idle if time < self.doing_since + deep_after => power.idle_w,
            Activity::Idle => power.deep_w,
        }
    }
}

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
