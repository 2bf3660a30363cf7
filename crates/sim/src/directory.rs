//! The directory of cache lines: who has a copy of each, who asks for one, and what a transfer costs.

use crate::arbiter::{Draw, Queue};
use crate::cpu::Cpu;
use crate::profile::{ClassProfile, Profile};
use crate::units::{Ps, Tid, ps, real, whole};
use rustc_hash::FxHashMap;

/// Bytes of a line: two of x86's 64-byte lines, which are fetched in pairs, or one of Apple's.
pub(crate) const LINE: usize = 128;

/// No CPU.
pub(crate) const NOBODY: u32 = u32::MAX;

/// The lines that were used last are found by their address's low bits.
const RECENT: usize = 256;

/// What a transfer between two CPUs costs.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    /// From request to grant.
    latency: Ps,
    /// From the core to the directory.
    pub(crate) travel: Ps,
    /// How long the line is taken.
    pub(crate) taken: Ps,
    /// From service to grant.
    pub(crate) back: Ps,
}

/// A cache line.
pub(crate) struct Line {
    /// The core that may write without asking. `NOBODY`: copies may exist, see `sharers`.
    pub(crate) owner: u32,
    /// The owner has written to it.
    pub(crate) dirty: bool,
    /// The cores that have a copy, including the owner.
    pub(crate) sharers: u128,
    /// The last owner, from which the data come.
    pub(crate) last: u32,
    /// From when on it can serve the next request.
    pub(crate) free_at: Ps,
    /// From when on its owner can use it.
    pub(crate) granted_at: Ps,
    pub(crate) queue: Queue,
    pub(crate) spinners: Vec<Tid>,
    /// Counts writes.
    pub(crate) writes: u64,
    /// When its value last changed hands, and how long that takes on average.
    pub(crate) changed_at: Ps,
    pub(crate) period: Ps,
}

/// All lines, and what transfers cost.
pub(crate) struct Lines {
    pub(crate) lines: Vec<Line>,
    by_address: FxHashMap<usize, u32>,
    /// Recently used lines, by address.
    recent: Box<[(usize, u32); RECENT]>,
    /// Indexed by the requester's cluster, then the source's.
    between: Vec<Transfer>,
    /// Within a core, by cluster.
    siblings: Vec<Transfer>,
    /// Cluster and core of each CPU.
    places: Vec<(usize, u32)>,
    cold: Transfer,
    pub(crate) share: Ps,
    /// Weights by class: of spaced requests, and back to back.
    pub(crate) weights: [Vec<f64>; 2],
    pub(crate) local_weight: f64,
    pub(crate) clusters: usize,
    pub(crate) draw: Draw,
    pub(crate) hold: Ps,
    pub(crate) migrates: bool,
    pub(crate) back_to_back: Ps,
    /// Transfers, for reports.
    pub(crate) transfers: u64,
}

impl Line {
    /// Its owner writes to it.
    pub(crate) fn written(&mut self) {
        self.writes += 1;
        self.dirty = true;
    }
}

pub(crate) fn bit(cpu: u32) -> u128 {
    1 << cpu
}

pub(crate) fn part(time: Ps, share: f64) -> Ps {
    whole(real(time) * share)
}

impl Transfer {
    fn of(latency: Ps, occupancy: f64) -> Self {
        let (travel, taken) = (part(latency, (1.0 - occupancy) / 2.0), part(latency, occupancy));
        Self { latency, travel, taken, back: taken + travel }
    }
}

impl Lines {
    pub(crate) fn new(profile: &Profile, cpus: &[Cpu]) -> Self {
        let memory = &profile.memory;
        // All cores of a cluster have one class.
        let slower = |cluster: usize| {
            let first = cpus.iter().find(|cpu| cpu.cluster == cluster);
            first.map_or(1.0, |cpu| profile.class[cpu.class].latency)
        };
        let of = |ns: f64, to| Transfer::of(ps(ns * slower(to)), memory.occupancy);
        let clusters = profile.cluster.len();
        let pairs = (0..clusters).flat_map(|to| (0..clusters).map(move |from| (to, from)));
        let weights = |of: fn(&ClassProfile) -> f64| profile.class.iter().map(of).collect();
        Self {
            lines: Vec::new(),
            by_address: FxHashMap::default(),
            recent: Box::new([(usize::MAX, NOBODY); RECENT]),
            between: pairs.map(|(to, from)| of(memory.latency_ns[to][from], to)).collect(),
            siblings: (0..clusters).map(|to| of(memory.sibling_ns, to)).collect(),
            places: cpus.iter().map(|cpu| (cpu.cluster, cpu.core)).collect(),
            cold: Transfer::of(ps(memory.cold_ns), memory.occupancy),
            share: ps(memory.share_ns),
            weights: [weights(|c| c.weight_spaced), weights(|c| c.weight_back_to_back)],
            local_weight: memory.local_weight,
            clusters,
            draw: Draw::default(),
            hold: ps(memory.hold_ns),
            migrates: memory.migrates,
            back_to_back: ps(memory.back_to_back_ns),
            transfers: 0,
        }
    }

    /// The line that `address` is in; lines are numbered in the order of their first use.
    #[inline]
    pub(crate) fn at(&mut self, address: usize) -> u32 {
        let number = address / LINE;
        let (recent, id) = self.recent[number % RECENT];
        if recent == number {
            return id;
        }
        let id = self.find(address);
        self.recent[number % RECENT] = (number, id);
        id
    }

    fn find(&mut self, address: usize) -> u32 {
        let next = u32::try_from(self.lines.len()).expect("fewer than 4 G lines");
        let id = *self.by_address.entry(address / LINE).or_insert(next);
        if id == next {
            self.lines.push(Line {
                owner: NOBODY,
                dirty: false,
                sharers: 0,
                last: NOBODY,
                free_at: 0,
                granted_at: 0,
                queue: Queue::default(),
                spinners: Vec::new(),
                writes: 0,
                changed_at: 0,
                period: self.back_to_back * 4,
            });
        }
        id
    }

    /// Line and offset of a word, which may be new.
    pub(crate) fn name_of(&mut self, address: usize) -> (u32, usize) {
        (self.at(address), self.offset(address))
    }

    /// Line and offset of a word, for reports.
    pub(crate) fn name(&self, address: usize) -> (u32, usize) {
        (self.by_address.get(&(address / LINE)).copied().unwrap_or(NOBODY), self.offset(address))
    }

    /// Where in its line a word is.
    #[allow(clippy::unused_self, reason = "goes with `name`")]
    pub(crate) fn offset(&self, address: usize) -> usize {
        address % LINE
    }

    #[inline]
    pub(crate) fn fetch(&self, cpu: u32, line: &Line) -> &Transfer {
        let others = line.sharers & !bit(cpu);
        let from = if line.last != cpu && line.last != NOBODY {
            line.last
        } else if others != 0 {
            others.trailing_zeros()
        } else {
            return &self.cold;
        };
        self.between(cpu, from)
    }

    #[inline]
    fn between(&self, to: u32, from: u32) -> &Transfer {
        let ((to, core), (from, other)) = (self.places[to as usize], self.places[from as usize]);
        if core == other { &self.siblings[to] } else { &self.between[to * self.clusters + from] }
    }

    /// From one CPU to another, from request to grant.
    pub(crate) fn transfer(&self, to: u32, from: u32) -> Ps {
        self.between(to, from).latency
    }

    pub(crate) fn cold(&self) -> Ps {
        self.cold.latency
    }

    pub(crate) fn stop_spinning(&mut self, line: u32, thread: Tid) {
        self.lines[line as usize].spinners.retain(|&one| one != thread);
    }
}
