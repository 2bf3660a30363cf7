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

use crate::arbiter::{Request, Weights};
use crate::directory::{Lines, NOBODY, bit, part};
use crate::engine::{Engine, Ps, State, Tid, What, advance, engine, suspend};
use crate::timeline::Activity;

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
#[inline]
pub(crate) fn reach(address: usize, access: Access) -> Ps {
    match access {
        Access::Load => read(address),
        Access::Store => store(address),
        Access::Modify => modify(address),
    }
}

#[inline(never)]
fn read(address: usize) -> Ps {
    let e = engine();
    let (me, cpu, id) = (e.me(), e.my_cpu(), e.lines.at(address));
    let hit = e.cpus[cpu as usize].load;
    let has = |e: &Engine| e.lines.lines[id as usize].sharers & bit(cpu) != 0;
    if has(e) {
        await_granted(e, id);
        if has(engine()) {
            return hit;
        }
    }
    hit + ask(me, cpu, id, Access::Load)
}

#[inline(never)]
fn store(address: usize) -> Ps {
    let e = engine();
    let (me, cpu, id) = (e.me(), e.my_cpu(), e.lines.at(address));
    let class = &e.cpus[cpu as usize];
    let hit = class.load;
    e.threads[me as usize].drained_at = e.now + hit + class.drain;
    if owns(e, cpu, id) {
        await_granted(e, id);
        let e = engine();
        if owns(e, cpu, id) {
            e.written(me, id);
            return hit;
        }
    }
    ask(me, cpu, id, Access::Store);
    hit
}

#[inline(never)]
fn modify(address: usize) -> Ps {
    let e = engine();
    let (me, cpu, id) = (e.me(), e.my_cpu(), e.lines.at(address));
    let drained_at = e.threads[me as usize].drained_at;
    let hit = drained_at.saturating_sub(e.now) + e.cpus[cpu as usize].atomic;
    if owns(e, cpu, id) {
        await_granted(e, id);
        if owns(engine(), cpu, id) {
            // The operation changes the word when it ends, if no other core has taken the line by then.
            advance(hit, Activity::Work);
            let e = engine();
            if owns(e, cpu, id) {
                e.written(me, id);
                return 0;
            }
        }
    }
    hit + ask(me, cpu, id, Access::Modify)
}

fn owns(e: &Engine, cpu: u32, id: u32) -> bool {
    e.lines.lines[id as usize].owner == cpu
}

/// A store of this core has requested the line; it may still be on its way. When it is granted, another core may have it.
#[inline(always)]
fn await_granted(e: &Engine, id: u32) {
    let granted_at = e.lines.lines[id as usize].granted_at;
    if granted_at > e.now {
        advance(granted_at - e.now, Activity::Work);
    }
}

/// The line is not there: the calling thread asks for it. Returns when it is served, with what is left of the transfer.
#[inline(always)]
fn ask(me: Tid, cpu: u32, id: u32, access: Access) -> Ps {
    let write = access != Access::Load;
    let e = engine();
    let travel = e.travel(cpu, id);
    let line = &e.lines.lines[id as usize];
    let arrival = e.now + travel;
    if line.queue.is_empty() && line.free_at <= arrival && e.is_quiet_until(arrival) {
        e.now = arrival;
        e.ran_on += 1;
        return e.grant(id, me, write);
    }
    e.threads[me as usize].state = State::Asking(id);
    e.is_doing(cpu, if access == Access::Modify { Activity::SpinGlobal } else { Activity::Work });
    e.post(arrival, What::Arrive { thread: me, line: id, write });
    suspend();
    engine().granted()
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
        let travel = self.lines.fetch(cpu, &self.lines.lines[line as usize]).travel;
        self.about(travel)
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
        line.queue.push(Request { thread, write, class, cluster }, classes);
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
        let Lines { lines, draw, weights, local_weight, back_to_back, clusters, .. } =
            &mut self.lines;
        let line = &mut lines[id as usize];
        if line.queue.len() == 1 {
            return 0;
        }
        let weights = &weights[usize::from(line.period < *back_to_back)];
        let home = self.cpus.get(line.last as usize).map(|cpu| cpu.cluster);
        let (clusters, local) = (*clusters, *local_weight);
        let weights = Weights { by_class: weights, clusters, home, local };
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
        let transfer = *self.lines.fetch(cpu, line);
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
        self.lines.lines[id as usize].written();
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
