//! Cores: which thread runs where, and for how long.
//!
//! The scheduler is the simplest one with the effects that matter to locks: a queue per CPU, time slices (each CPU's out of step with the
//! others'), preemption of any running thread (including lock holders), woken threads that go to an idle CPU if they may, and idle CPUs that
//! steal work.

use crate::cpu::Cpu;
use crate::engine::{Engine, Ps, State, Then, Tid, What, ps};
use crate::timeline::Activity;

/// After this many looks, a spinning thread yields its core to a thread that waits for it, as on our native platform.
const LOOKS_BEFORE_YIELD: u64 = 4096;

impl Engine {
    /// The factor by which the CPU's work takes longer because its core's other hardware thread works, too. A spinning
    /// thread leaves the core to the other: a pause instruction, a barrier and an atomic operation on a remote line all
    /// stall only its own thread.
    pub(crate) fn smt_factor(&self, cpu: u32) -> f64 {
        let me = &self.cpus[cpu as usize];
        let works = |one: &Cpu| {
            let waits = |id: Tid| matches!(self.threads[id as usize].state, State::InKernel(_));
            let busy = matches!(one.doing, Activity::Work | Activity::Kernel);
            one.sibling != me.sibling && busy && one.running.is_some_and(|id| !waits(id))
        };
        let first = (cpu - me.sibling) as usize;
        let siblings = self.cpus[first..].iter().take_while(|one| one.core == me.core);
        if me.smt_speed < 1.0 && siblings.into_iter().any(works) { 1.0 / me.smt_speed } else { 1.0 }
    }

    /// Finds a CPU for a runnable thread.
    #[inline(never)]
    pub(crate) fn place_thread(&mut self, id: Tid) {
        let thread = &mut self.threads[id as usize];
        if !matches!(thread.state, State::Woken | State::Sleeping(_)) {
            return;
        }
        thread.state = State::Ready(Then::Finish(0));
        let cpu = self.choose_cpu(id);
        self.enqueue(cpu, id);
    }

    fn choose_cpu(&self, id: Tid) -> u32 {
        let thread = &self.threads[id as usize];
        if let Some(pinned) = thread.pinned {
            return pinned;
        }
        let crowded = |number: usize| {
            let first = number - self.cpus[number].sibling as usize;
            let siblings =
                self.cpus[first..].iter().take_while(|one| one.core == self.cpus[number].core);
            siblings.filter(|one| !one.is_idle()).count()
        };
        // Its last CPU, if idle; otherwise the fastest idle one, preferably on a core that is entirely idle.
        let place = |(number, cpu): (usize, &Cpu)| {
            let elsewhere = number != thread.cpu as usize;
            cpu.is_idle().then(|| (crowded(number), elsewhere, cpu.class, number))
        };
        let best = self.cpus.iter().enumerate().filter_map(place).min();
        best.map_or(thread.cpu, |(.., number)| u32::try_from(number).expect("few"))
    }

    /// A thread that is [`State::Ready`] waits for the CPU, or gets it.
    fn enqueue(&mut self, cpu: u32, id: Tid) {
        self.threads[id as usize].cpu = cpu;
        let kernel = &self.profile.kernel;
        let one = &self.cpus[cpu as usize];
        if one.is_idle() {
            // A CPU that is just becoming idle can't be disturbed until it is.
            let idle = self.now.saturating_sub(one.doing_since);
            let late = one.doing_since.saturating_sub(self.now);
            let deep =
                idle > ps(kernel.deep_after_ns) && one.doing == Activity::Idle && self.now > 0;
            let exit = if deep { ps(kernel.deep_exit_ns) } else { 0 };
            return self.dispatch(cpu, id, late + exit);
        }
        let ran = self.now - one.since.min(self.now);
        let preempts = ran > ps(kernel.wakeup_granularity_ns);
        self.cpus[cpu as usize].queue.push_back(id);
        if preempts {
            self.preempt(cpu);
        } else {
            self.arm_slice(cpu);
        }
    }

    fn arm_slice(&mut self, cpu: u32) {
        let one = &self.cpus[cpu as usize];
        if !one.slice_armed && !one.queue.is_empty() {
            let whole = ps(self.profile.kernel.slice_ns);
            // All threads start within 200 ns. If all slices began then, too, they would end together: gang scheduling.
            let slice = if one.turn <= 1 { self.rng.u64(0..=whole) } else { whole };
            let one = &mut self.cpus[cpu as usize];
            one.slice_armed = true;
            let (at, turn) = (one.since.max(self.now) + slice, one.turn);
            // As long as a thread waits for a CPU, this event counts as one that lets it go on: see `any_ready`.
            self.post_idle(at, What::Slice { cpu, turn });
            if let Some(runs) = self.cpus[cpu as usize].running {
                self.yields_later(runs);
            }
        }
    }

    fn dispatch(&mut self, cpu: u32, id: Tid, delay: Ps) {
        self.account(cpu);
        if self.cpus[cpu as usize].doing == Activity::Idle {
            self.is_awake(cpu, true);
        }
        let switch = ps(self.profile.kernel.switch_ns);
        let start = self.now + delay + self.about(switch);
        let one = &mut self.cpus[cpu as usize];
        one.running = Some(id);
        one.since = self.now;
        one.turn += 1;
        one.slice_armed = false;
        one.doing = Activity::Kernel;
        let thread = &mut self.threads[id as usize];
        self.preempted -= u32::from(std::mem::take(&mut thread.counts_as_preempted));
        thread.turn += 1;
        let State::Ready(then) = thread.state else {
            unreachable!("only ready threads get a core")
        };
        match then {
            Then::Finish(rest) => {
                thread.state = State::Busy;
                thread.busy_until = start + rest;
                let turn = thread.turn;
                self.post(start + rest, What::Resume { thread: id, turn });
            }
            Then::Look(line) => {
                thread.state = State::Asking(line);
                self.post(start, What::Arrive { thread: id, line, write: false });
            }
        }
        self.arm_slice(cpu);
    }

    /// A CPU's thread leaves it, which takes `delay`, and the next one takes over.
    pub(crate) fn give_up_cpu(&mut self, cpu: u32, delay: Ps) {
        self.account(cpu);
        let one = &mut self.cpus[cpu as usize];
        one.running = None;
        one.turn += 1;
        one.slice_armed = false;
        let next = one.queue.pop_front().or_else(|| self.steal());
        if let Some(next) = next {
            self.threads[next as usize].cpu = cpu;
            return self.dispatch(cpu, next, delay);
        }
        self.is_awake(cpu, false);
        let one = &mut self.cpus[cpu as usize];
        one.doing = Activity::Idle;
        one.doing_since = self.now + delay;
        self.meters.busy(self.now, self.now + delay);
    }

    /// Takes a thread that may run anywhere from the longest queue.
    fn steal(&mut self) -> Option<Tid> {
        let free =
            |threads: &[crate::engine::Thread], id: &Tid| threads[*id as usize].pinned.is_none();
        let movable = |cpu: &Cpu| cpu.queue.iter().filter(|id| free(&self.threads, id)).count();
        let longest =
            (0..self.cpus.len()).max_by_key(|&cpu| (movable(&self.cpus[cpu]), usize::MAX - cpu))?;
        let at = self.cpus[longest].queue.iter().position(|id| free(&self.threads, id))?;
        self.cpus[longest].queue.remove(at)
    }

    #[inline(never)]
    pub(crate) fn slice_ends(&mut self, cpu: u32, turn: u32) {
        let one = &mut self.cpus[cpu as usize];
        if one.turn == turn && one.slice_armed {
            one.slice_armed = false;
            self.preempt(cpu);
        }
    }

    /// The CPU's thread goes to the end of the CPU's queue, now or at the end of its operation.
    fn preempt(&mut self, cpu: u32) {
        let Some(id) = self.cpus[cpu as usize].running else { return };
        let thread = &mut self.threads[id as usize];
        match thread.state {
            State::Busy if !thread.unpreempted => {
                let rest = thread.busy_until.saturating_sub(self.now);
                self.evict(id, Then::Finish(rest));
            }
            State::Spinning(line) => {
                self.lines.stop_spinning(line, id);
                self.evict(id, Then::Look(line));
            }
            _ => thread.evict = true,
        }
    }

    /// A thread loses its core to the next in the queue.
    pub(crate) fn evict(&mut self, id: Tid, then: Then) {
        let thread = &mut self.threads[id as usize];
        thread.evict = false;
        thread.state = State::Ready(then);
        thread.counts_as_preempted = thread.critical > 0;
        self.preempted += u32::from(thread.counts_as_preempted);
        if matches!(then, Then::Finish(_)) {
            thread.turn += 1; // its `Resume` is void; a spin's deadline is not
        }
        let cpu = thread.cpu;
        self.cpus[cpu as usize].queue.push_back(id);
        self.give_up_cpu(cpu, 0);
    }

    /// A thread that spins without a deadline yields its core after a while, if another thread waits for it.
    pub(crate) fn yields_later(&mut self, id: Tid) {
        let thread = &self.threads[id as usize];
        let one = &self.cpus[thread.cpu as usize];
        if matches!(thread.state, State::Spinning(_)) && !one.queue.is_empty() {
            let (at, turn) = (self.now + LOOKS_BEFORE_YIELD * one.pause, thread.turn);
            self.post(at, What::Yield { thread: id, turn });
        }
    }

    /// The running thread yields its core at the end of its operation, if another thread waits for it.
    pub(crate) fn gives_way(&mut self) {
        let waited_for = !self.cpus[self.my_cpu() as usize].queue.is_empty();
        let me = self.me() as usize;
        self.threads[me].evict |= waited_for;
    }

    #[inline(never)]
    pub(crate) fn yields(&mut self, id: Tid, turn: u32) {
        let thread = &self.threads[id as usize];
        let spins = matches!(thread.state, State::Spinning(_)) && thread.turn == turn;
        let cpu = thread.cpu;
        if spins && !self.cpus[cpu as usize].queue.is_empty() {
            self.preempt(cpu);
        }
    }

    pub(crate) fn start_noise(&mut self) {
        let every = ps(self.profile.kernel.noise_every_ns);
        if every > 0 {
            for cpu in 0..self.cpus.len() {
                let cpu = u32::try_from(cpu).expect("few");
                let at = self.now + self.rng.u64(0..every);
                self.post_idle(at, What::Noise { cpu });
            }
        }
    }

    /// An interrupt: the thread that runs there continues later.
    #[inline(never)]
    pub(crate) fn noise(&mut self, cpu: u32) {
        let every = ps(self.profile.kernel.noise_every_ns);
        let at = self.now + self.about(every);
        self.post_idle(at, What::Noise { cpu });
        if let Some(id) = self.cpus[cpu as usize].running {
            let takes = ps(self.profile.kernel.noise_ns);
            let takes = self.about(takes);
            let thread = &mut self.threads[id as usize];
            if thread.state == State::Busy {
                thread.busy_until += takes;
                thread.turn += 1;
                let (at, turn) = (thread.busy_until, thread.turn);
                self.post(at, What::Resume { thread: id, turn });
            } else {
                thread.debt += takes;
            }
        }
    }
}
