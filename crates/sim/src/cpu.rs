//! A hardware thread: what its operations cost, what it draws, and what it does now.

use crate::profile::{ClassProfile, Power, Profile};
use crate::timeline::Activity;
use crate::units::{Ps, Tid, ps};
use std::collections::VecDeque;

/// One hardware thread.
pub(crate) struct Cpu {
    pub(crate) class: usize,
    pub(crate) cluster: usize,
    pub(crate) domain: u16,
    /// Its physical core.
    pub(crate) core: u32,
    /// Which of the core's hardware threads it is, and how many there are.
    pub(crate) sibling: u32,
    pub(crate) smt: u32,
    pub(crate) load: Ps,
    pub(crate) atomic: Ps,
    pub(crate) drain: Ps,
    pub(crate) pause: Ps,
    pub(crate) clock: Ps,
    pub(crate) line: Ps,
    /// In ps; a fraction, because a NOP may take less than one.
    pub(crate) nop: f64,
    pub(crate) compute: f64,
    pub(crate) smt_speed: f64,
    pub(crate) power: Power,
    /// What it draws while it does each [`Activity`] but nothing, if it has its core to itself.
    draws: [f64; 4],
    pub(crate) running: Option<Tid>,
    pub(crate) since: Ps,
    pub(crate) queue: VecDeque<Tid>,
    pub(crate) turn: u32,
    pub(crate) slice_armed: bool,
    pub(crate) doing: Activity,
    pub(crate) doing_since: Ps,
    /// Its spare lines of memory, see `Platform::take_line`.
    pub(crate) free_lines: Vec<*mut u8>,
}

impl Cpu {
    /// All CPUs of a machine, cluster by cluster.
    pub(crate) fn all(profile: &Profile) -> Vec<Self> {
        let mut all = Vec::new();
        let mut core = 0;
        for (cluster, of) in profile.cluster.iter().enumerate() {
            let class = profile.class.iter().position(|c| c.name == of.class).expect("checked");
            let kind = &profile.class[class];
            for _ in 0..of.cores {
                for sibling in 0..kind.smt {
                    all.push(Self {
                        class,
                        cluster,
                        domain: of.domain,
                        core,
                        sibling,
                        smt: kind.smt,
                        load: ps(kind.load_ns),
                        atomic: ps(kind.atomic_ns),
                        drain: ps(kind.drain_ns),
                        pause: ps(kind.pause_ns).max(1),
                        clock: ps(kind.clock_ns),
                        line: ps(kind.line_ns),
                        nop: kind.nop_ns * 1000.0,
                        compute: kind.compute,
                        smt_speed: kind.smt_speed,
                        draws: draws(kind),
                        power: kind.power.clone(),
                        running: None,
                        since: 0,
                        queue: VecDeque::new(),
                        turn: 0,
                        slice_armed: false,
                        doing: Activity::Idle,
                        doing_since: 0,
                        free_lines: Vec::new(),
                    });
                }
                core += 1;
            }
        }
        all
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// What it draws, if it is its core's only hardware thread and isn't idle.
    #[inline]
    pub(crate) fn watts_alone(&self) -> Option<f64> {
        if self.smt == 1 { self.draws.get(self.doing as usize).copied() } else { None }
    }

    /// What it draws at `time`, if it has its core to itself.
    #[inline]
    pub(crate) fn watts(&self, time: Ps, deep_after: Ps) -> f64 {
        let power = &self.power;
        match self.draws.get(self.doing as usize) {
            Some(&watts) => watts,
            None if time < self.doing_since => power.active_w, // becoming idle, still in the kernel
            None if time < self.doing_since + deep_after => power.idle_w,
            None => power.deep_w,
        }
    }
}

/// In the order of [`Activity`].
fn draws(kind: &ClassProfile) -> [f64; 4] {
    let power = &kind.power;
    let local = if kind.fences { power.spin_fence_w } else { power.spin_local_w };
    [power.active_w, power.active_w, local, power.spin_global_w]
}
