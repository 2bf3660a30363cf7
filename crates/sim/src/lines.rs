//! Cache lines: which cores have a copy, which ask for one, and which is served next.
//!
//! ```text
//!   core ── request travels ──► directory: queue ── arbiter ──► served: the line is taken ──► granted: the core goes on
//!           (1 - occupancy) / 2             by weights           for occupancy x latency       (1 - occupancy) / 2
//! ```
//!
//! A transfer takes `latency` from request to grant, but only `occupancy` of that blocks the line: requests overlap.
//! Readers of a line that is already shared follow each other after `share_ns`. A core that got it for writing keeps it
//! for another `hold_ns`, and may use it repeatedly. On a machine whose lines migrate, a read of a line that another
//! core has changed moves the line. A write removes every copy, so threads that spin on one ask again. An operation
//! changes the word at the moment when it is served.

use crate::arbiter::{Draw, Queue, Request, Weights};
use crate::cores::Cpu;
use crate::engine::{Engine, Ps, State, Tid, What, advance, engine, ps, suspend};
use crate::profile::{ClassProfile, Profile};
use crate::timeline::Activity;
use rustc_hash::FxHashMap;

/// Bytes of a line: two of x86's 64-byte lines, which are fetched in pairs, or one of Apple's.
pub(crate) const LINE: usize = 128;

const NOBODY: u32 = u32::MAX;

/// The lines that were used last are found by their address's low bits.
const RECENT: usize = 256;

/// What a transfer between two CPUs costs.
#[derive(Clone, Copy)]
struct Transfer {
    /// From request to grant.
    latency: Ps,
    /// From the core to the directory.
    travel: Ps,
    /// How long the line is taken.
    taken: Ps,
    /// From service to grant.
    back: Ps,
}

struct Line {
    /// The core that may write without asking. `NOBODY`: copies may exist, see `sharers`.
    owner: u32,
    /// The owner has written to it.
    dirty: bool,
    /// The cores that have a copy, including the owner.
    sharers: u128,
    /// The last owner, from which the data come.
    last: u32,
    /// From when on it can serve the next request.
    free_at: Ps,
    /// From when on its owner can use it.
    granted_at: Ps,
    queue: Queue,
    spinners: Vec<Tid>,
    /// Counts writes.
    writes: u64,
    /// When its value last changed hands, and how long that takes on average.
    changed_at: Ps,
    period: Ps,
}

/// All lines, and what transfers cost.
pub(crate) struct Lines {
    lines: Vec<Line>,
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
    share: Ps,
    /// Weights by class: of spaced requests, and back to back.
    weights: [Vec<f64>; 2],
    local_weight: f64,
    clusters: usize,
    draw: Draw,
    hold: Ps,
    migrates: bool,
    back_to_back: Ps,
    /// Transfers, for reports.
    pub(crate) transfers: u64,
}

fn bit(cpu: u32) -> u128 {
    1 << cpu
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 ps")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a time")]
fn part(time: Ps, share: f64) -> Ps {
    (time as f64 * share) as Ps
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
    fn at(&mut self, address: usize) -> u32 {
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

    fn fetch(&self, cpu: u32, line: &Line) -> Transfer {
        let others = line.sharers & !bit(cpu);
        let from = if line.last != cpu && line.last != NOBODY {
            line.last
        } else if others != 0 {
            others.trailing_zeros()
        } else {
            return self.cold;
        };
        self.between(cpu, from)
    }

    fn between(&self, to: u32, from: u32) -> Transfer {
        let ((to, core), (from, other)) = (self.places[to as usize], self.places[from as usize]);
        if core == other { self.siblings[to] } else { self.between[to * self.clusters + from] }
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

/// What an operation on a word needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A copy.
    Load,
    /// The only copy; the core continues before it has it.
    Store,
    /// The only copy.
    Modify,
}

/// The calling thread gets the line of `address`. Returns when it has the line, which is when the operation takes
/// place, with the rest of the operation's time.
pub(crate) fn reach(address: usize, access: Access) -> Ps {
    let e = engine();
    let (me, cpu) = (e.me(), e.my_cpu());
    let id = e.lines.at(address);
    let class = &e.cpus[cpu as usize];
    let drained_at = &mut e.threads[me as usize].drained_at;
    let hit = match access {
        Access::Load => class.load,
        Access::Store => {
            *drained_at = e.now + class.load + class.drain;
            class.load
        }
        Access::Modify => drained_at.saturating_sub(e.now) + class.atomic,
    };
    let write = access != Access::Load;
    let has = |e: &Engine| {
        let line = &e.lines.lines[id as usize];
        if write { line.owner == cpu } else { line.sharers & bit(cpu) != 0 }
    };
    let granted_at = e.lines.lines[id as usize].granted_at;
    if has(e) && granted_at > e.now {
        // A store has requested it, and it is still on its way. When it is granted, another core may have it.
        advance(granted_at - e.now, Activity::Work);
    }
    if access == Access::Modify && has(engine()) {
        // The operation changes the word when it ends, if no other core has taken the line by then.
        advance(hit, Activity::Work);
        if has(engine()) {
            engine().written(me, id);
            return 0;
        }
    }
    let e = engine();
    if has(e) {
        if write {
            e.written(me, id);
        }
        return hit;
    }
    let travel = e.travel(cpu, id);
    let line = &e.lines.lines[id as usize];
    let arrival = e.now + travel;
    let back = if line.queue.is_empty() && line.free_at <= arrival && e.is_quiet_until(arrival) {
        e.now = arrival;
        e.ran_on += 1;
        e.grant(id, me, write)
    } else {
        e.threads[me as usize].state = State::Asking(id);
        e.is_doing(
            cpu,
            if access == Access::Modify { Activity::SpinGlobal } else { Activity::Work },
        );
        e.post(arrival, What::Arrive { thread: me, line: id, write });
        suspend();
        engine().granted()
    };
    hit + if access == Access::Store { 0 } else { back }
}

/// The calling thread gets the line of `address` to read it now, and to write to it soon; returns as [`reach`] does.
pub(crate) fn fetch(address: usize) -> Ps {
    let e = engine();
    let (me, cpu, id) = (e.me(), e.my_cpu(), e.lines.at(address));
    if e.lines.lines[id as usize].owner == cpu {
        return reach(address, Access::Load);
    }
    let drained_at = e.threads[me as usize].drained_at;
    let hit = reach(address, Access::Store);
    let e = engine();
    e.threads[me as usize].drained_at = drained_at; // nothing has been stored yet
    hit + e.lines.lines[id as usize].granted_at.saturating_sub(e.now)
}

/// How a wait for a change of a word ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The line has been written to and read again: look. The rest of the read's time, ps.
    Maybe(Ps),
    /// The time is up.
    TimedOut,
}

/// The number of writes to the line of `address` so far: while it stays the same, so does the word.
pub(crate) fn writes(address: usize) -> u64 {
    let e = engine();
    let id = e.lines.at(address);
    e.lines.lines[id as usize].writes
}

/// The calling thread spins on its copy of `address`'s line until the line is written, or until `end`. When it
/// looked, the line had seen `seen` writes.
pub(crate) fn spin(address: usize, seen: u64, end: Option<Ps>) -> Change {
    let e = engine();
    let (me, cpu) = (e.me(), e.my_cpu());
    let id = e.lines.at(address);
    if end.is_some_and(|end| end <= e.now) {
        return Change::TimedOut;
    }
    let line = &mut e.lines.lines[id as usize];
    if line.writes != seen || line.sharers & bit(cpu) == 0 {
        // A write came before our wait (invariant 3 of the engine).
        let pause = e.cpus[cpu as usize].pause;
        advance(pause, Activity::SpinLocal);
        return Change::Maybe(reach(address, Access::Load));
    }
    let thread = &mut e.threads[me as usize];
    thread.word = address;
    thread.timed_out = false;
    thread.seen_waiting.get_or_insert(e.now);
    if thread.evict {
        e.evict(me, crate::engine::Then::Look(id));
    } else {
        thread.state = State::Spinning(id);
        let turn = thread.turn;
        line.spinners.push(me);
        e.is_doing(cpu, Activity::SpinLocal);
        if let Some(end) = end {
            e.post(end, What::Timer { thread: me, turn });
        } else {
            e.yields_later(me);
        }
    }
    suspend();
    let e = engine();
    if std::mem::take(&mut e.threads[me as usize].timed_out) {
        Change::TimedOut
    } else {
        Change::Maybe(e.granted())
    }
}

impl Engine {
    /// From a core to the directory.
    fn travel(&mut self, cpu: u32, line: u32) -> Ps {
        let transfer = self.lines.fetch(cpu, &self.lines.lines[line as usize]);
        self.about(transfer.travel)
    }

    /// A request reaches the directory.
    pub(crate) fn arrive(&mut self, thread: Tid, id: u32, write: bool) -> Option<Tid> {
        let line = &mut self.lines.lines[id as usize];
        if line.queue.is_empty() && line.free_at <= self.now {
            return Some(self.serve(id, thread, write));
        }
        let cpu = &self.cpus[self.threads[thread as usize].cpu as usize];
        let few = |number: usize| u16::try_from(number).expect("few");
        let (class, cluster) = (few(cpu.class), few(cpu.cluster));
        let classes = self.lines.weights[0].len();
        line.queue.push(Request { thread, write, class, cluster }, classes, self.lines.clusters);
        if line.queue.len() == 1 {
            let at = line.free_at;
            self.post(at, What::Free { line: id });
        }
        None
    }

    /// The line is free for the next request: one is chosen.
    pub(crate) fn serve_next(&mut self, id: u32) -> Option<Tid> {
        if self.lines.lines[id as usize].queue.is_empty() {
            return None;
        }
        let place = self.choose(id);
        let classes = self.lines.weights[0].len();
        let request = self.lines.lines[id as usize].queue.take(place, classes);
        let thread = self.serve(id, request.thread, request.write);
        let line = &self.lines.lines[id as usize];
        if !line.queue.is_empty() {
            self.post(line.free_at, What::Free { line: id });
        }
        Some(thread)
    }

    /// A weighted draw among the requests.
    fn choose(&mut self, id: u32) -> usize {
        let Lines { lines, draw, weights, local_weight, back_to_back, .. } = &mut self.lines;
        let line = &lines[id as usize];
        if line.queue.len() == 1 {
            return 0;
        }
        let weights = &weights[usize::from(line.period < *back_to_back)];
        let home = self.cpus.get(line.last as usize).map(|cpu| cpu.cluster);
        let weights = Weights { by_class: weights, home, local: *local_weight };
        line.queue.draw(draw, weights, self.rng.f64())
    }

    fn serve(&mut self, id: u32, who: Tid, write: bool) -> Tid {
        let back = self.grant(id, who, write);
        let thread = &mut self.threads[who as usize];
        thread.busy_until = back; // until the thread asks, see `granted`
        thread.turn += 1; // a deadline of a spin is void: it looks now
        who
    }

    /// What is left of a transfer that has just been served.
    fn granted(&mut self) -> Ps {
        let me = self.me();
        std::mem::take(&mut self.threads[me as usize].busy_until)
    }

    /// The line goes to the requester; returns the time until its core can go on.
    fn grant(&mut self, id: u32, thread: Tid, write: bool) -> Ps {
        self.lines.transfers += 1;
        let cpu = self.threads[thread as usize].cpu;
        let line = &self.lines.lines[id as usize];
        if let Some(paths) = &mut self.paths {
            paths.gets(thread, id, write, line.sharers & bit(cpu) != 0);
        }
        let transfer = self.lines.fetch(cpu, line);
        let is_shared = line.owner == NOBODY && line.sharers != 0;
        let blocks = if !write && is_shared { self.lines.share } else { transfer.taken };
        let back = self.about(transfer.back);
        let now = self.now;
        let line = &mut self.lines.lines[id as usize];
        line.free_at = now + blocks;
        let takes = write || self.lines.migrates && line.dirty && line.owner != NOBODY;
        if takes {
            line.free_at += self.lines.hold;
            line.writes += u64::from(write);
            line.dirty = write;
            line.owner = cpu;
            line.sharers = bit(cpu);
            line.last = cpu;
            line.granted_at = now + back;
            let mut spinners = std::mem::take(&mut line.spinners);
            for spinner in spinners.drain(..) {
                self.look_again(spinner, id);
            }
            self.lines.lines[id as usize].spinners = spinners;
        } else {
            line.owner = NOBODY;
            line.sharers |= bit(cpu);
            line.granted_at = now;
            if line.last == NOBODY {
                line.last = cpu;
            }
        }
        back
    }

    /// A thread writes to a line that its core owns.
    fn written(&mut self, thread: Tid, id: u32) {
        let line = &mut self.lines.lines[id as usize];
        line.writes += 1;
        line.dirty = true;
        if let Some(paths) = &mut self.paths {
            paths.writes(thread, id);
        }
    }

    /// A spinning thread's copy is gone: it asks for a new one.
    pub(crate) fn look_again(&mut self, thread: Tid, line: u32) {
        let cpu = self.threads[thread as usize].cpu;
        self.threads[thread as usize].state = State::Asking(line);
        let notices = part(self.cpus[cpu as usize].pause, self.rng.f64());
        let travel = self.travel(cpu, line);
        self.post(self.now + notices + travel, What::Arrive { thread, line, write: false });
    }

    /// A word of the line has another value now.
    pub(crate) fn changed(&mut self, address: usize) {
        let id = self.lines.at(address);
        let now = self.now;
        let line = &mut self.lines.lines[id as usize];
        let since = (now - line.changed_at).min(self.lines.back_to_back * 16);
        line.period = line.period - line.period / 8 + since / 8;
        line.changed_at = now;
    }
}
