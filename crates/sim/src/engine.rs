//! The machine: threads as coroutines, events in order of time, all on one operating-system thread.
//!
//! ```text
//!   event ──► what it changes (line, core, sleeper) ──► resume a thread ──► it runs until it has to wait
//!     ▲                                                                              │
//!     └───────────────── a later event: "resume me", "my request arrives" ◄──────────┘
//! ```
//!
//! Time is counted in picoseconds. Every operation of a lock costs time (`advance`). A thread whose operation ends
//! before the next event runs on without a switch. The same seed gives the same run, event by event: ties are broken by
//! order of creation, and the only thing that depends on addresses is which words share a line of 128 bytes.
//!
//! Invariants:
//! 1. At most one coroutine runs; while none does, every thread is in exactly one [`State`].
//! 2. A thread has at most one live `Resume`, `Timer` or request: `turn` counts, and an event of an old turn is void.
//! 3. Nothing else runs between a look at a word and the wait for its change; otherwise the wait doesn't begin.

mod current;
mod thread;

pub(crate) use current::{advance, current, engine, inside, on_its_own, suspend, with_engine};
pub(crate) use thread::{State, Then, Thread, What};

use crate::agenda::Agenda;
use crate::check::Violation;
use crate::cores::Cpu;
use crate::explore::Explorer;
use crate::futex::Futexes;
use crate::lines::Lines;
use crate::order::Orders;
use crate::platform::{DeparturesLine, ShownLine, Sim};
use crate::power::Meters;
use crate::product::Product;
use crate::profile::Profile;
use crate::programs::{Person, Policies};
use crate::timeline::Timeline;
use crate::transfers::Paths;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use lockwright_locks::posix::Policy;
use lockwright_platform::{MEMOS, Memo, Stage, Word};
use std::cell::RefCell;

/// Picoseconds.
pub(crate) type Ps = u64;
/// A thread's number.
pub(crate) type Tid = u32;

/// `ns` in picoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "profiles are checked")]
pub(crate) fn ps(ns: f64) -> Ps {
    (ns * 1000.0).round() as Ps
}

/// The machine.
pub(crate) struct Engine {
    pub(crate) profile: Profile,
    pub(crate) now: Ps,
    agenda: Agenda,
    /// Events that let some thread go on. If there are none, and threads are left, that is a deadlock.
    live: usize,
    pub(crate) threads: Vec<Thread>,
    /// The threads' stacks, kept apart from their states.
    coroutines: Vec<Option<Coroutine<(), (), (), DefaultStack>>>,
    /// Threads that have not ended.
    pub(crate) left: usize,
    pub(crate) running: Option<Tid>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) lines: Lines,
    pub(crate) futexes: Futexes,
    /// What locks note about themselves.
    pub(crate) memos: Box<[Memo<Sim>]>,
    /// The table in which readers show what they hold, once one does.
    shown: Option<Box<[ShownLine]>>,
    /// On which those sleep who wait for the table.
    pub(crate) departures: Box<DeparturesLine>,
    pub(crate) orders: Orders,
    pub(crate) rng: fastrand::Rng,
    pub(crate) timeline: Option<Timeline>,
    /// The hand-overs, if they are watched.
    pub(crate) paths: Option<Box<Paths>>,
    pub(crate) violation: Option<Violation>,
    /// After this time, a thread that still runs is stuck.
    pub(crate) limit: Ps,
    /// How far the limit moves beyond the last progress.
    pub(crate) grace: Ps,
    pub(crate) meters: Meters,
    pub(crate) arena: Vec<*mut u8>,
    /// Events handled, for reports of speed.
    pub(crate) handled: u64,
    /// Operations that needed no event, because they ended before the next one.
    pub(crate) ran_on: u64,
    /// The locks of its mutexes (product.rs).
    pub(crate) table: Vec<Policy<Product>>,
    /// The policies that program them.
    pub(crate) policies: Policies,
    /// Who goes next, in explorations, where time doesn't decide.
    pub(crate) explore: Option<Box<Explorer>>,
}

thread_local! {
    /// Stacks of coroutines that have ended.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of a coroutine's stack.
const STACK: usize = 128 << 10;

impl Engine {
    /// What the running thread reports about its wait.
    pub(crate) fn reached(&mut self, stage: Stage) {
        let (me, now) = (self.me(), self.now);
        let explores = self.explore.is_some();
        let thread = &mut self.threads[me as usize];
        let took_effect = if explores { now } else { thread.acted };
        match stage {
            Stage::Joined => (thread.joined, thread.in_line) = (Some(now), Some(took_effect)),
            Stage::Chosen => thread.passed = true,
            Stage::Head => thread.head = Some(now),
            Stage::Naps => thread.head = None,
            Stage::Passed => {
                // What it has just read may be outdated by now.
                let asks = thread.asks;
                let meets = |other: &Thread| {
                    other.asks == asks && other.head.is_some_and(|since| since <= took_effect)
                };
                let passed = !self.threads.iter().any(meets);
                self.threads[me as usize].passed = passed; // not on its word alone
            }
        }
    }

    pub(crate) fn new(profile: &Profile, seed: u64) -> Self {
        let cpus = Cpu::all(profile);
        Self {
            now: 0,
            agenda: Agenda::default(),
            live: 0,
            threads: Vec::new(),
            coroutines: Vec::new(),
            left: 0,
            running: None,
            lines: Lines::new(profile, &cpus),
            futexes: Futexes::new(profile),
            orders: Orders::default(),
            shown: None,
            departures: DeparturesLine::new(),
            memos: (0..MEMOS).map(|_| Memo(std::array::from_fn(|_| Word::new(0)))).collect(),
            rng: fastrand::Rng::with_seed(seed),
            timeline: None,
            paths: None,
            violation: None,
            limit: Ps::MAX,
            grace: 0,
            meters: Meters::new(profile, &cpus),
            arena: Vec::new(),
            table: Vec::new(),
            policies: Policies::default(),
            handled: 0,
            ran_on: 0,
            explore: None,
            cpus,
            profile: profile.clone(),
        }
    }

    /// The table in which readers show what they hold.
    pub(crate) fn shown(&mut self) -> &[ShownLine] {
        self.shown.get_or_insert_with(ShownLine::all)
    }

    /// The running thread.
    pub(crate) fn me(&self) -> Tid {
        self.running.expect("a thread runs")
    }

    /// The CPU that it runs on.
    pub(crate) fn my_cpu(&self) -> u32 {
        self.threads[self.me() as usize].cpu
    }

    /// `time`, give or take the profile's jitter.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a time")]
    #[allow(clippy::cast_precision_loss, reason = "times are far below 2^52 ps")]
    pub(crate) fn about(&mut self, time: Ps) -> Ps {
        let jitter = self.profile.memory.jitter;
        (time as f64 * (1.0 + jitter * (2.0 * self.rng.f64() - 1.0))) as Ps
    }

    pub(crate) fn post(&mut self, time: Ps, what: What) {
        self.live += usize::from(!matches!(what, What::Noise { .. } | What::Slice { .. }));
        self.agenda.post(time, what);
    }

    /// Nothing happens until `time`, nor at `time` itself.
    pub(crate) fn is_quiet_until(&self, time: Ps) -> bool {
        time < self.agenda.next
    }

    /// Makes a thread; it starts on a core of its own choice, or on CPU `pinned`.
    pub(crate) fn spawn(&mut self, name: String, pinned: Option<u32>, body: Box<dyn FnOnce()>) {
        debug_assert!(self.running.is_none(), "all threads are made before the first one runs");
        let id = Tid::try_from(self.threads.len()).expect("a few threads");
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a stack"));
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            engine().threads[id as usize].yielder = yielder;
            body();
        });
        self.threads.push(Thread {
            name,
            yielder: std::ptr::null(),
            state: State::Woken,
            cpu: pinned.unwrap_or(id % u32::try_from(self.cpus.len()).expect("few CPUs")),
            pinned,
            turn: 0,
            busy_until: 0,
            drained_at: 0,
            debt: 0,
            evict: false,
            unpreempted: false,
            timed_out: false,
            seen_waiting: None,
            joined: None,
            in_line: None,
            head: None,
            acted: 0,
            passed: false,
            asks: None,
            word: 0,
            window_ns: 0,
            person: Person::default(),
            site: 0,
            held: Box::default(),
            on_its_own: false,
        });
        self.coroutines.push(Some(coroutine));
        self.orders.add_thread();
        self.left += 1;
        if self.explore.is_some() {
            return;
        }
        // Threads start at different moments, so that no queue lock falls into step.
        let start = ps(self.rng.f64() * 200.0);
        self.post(self.now + start, What::Ready { thread: id });
    }

    /// Runs until all threads have ended, or a check fails.
    ///
    /// # Safety
    /// `this` is the current machine ([`with_engine`]), and nobody else uses it.
    pub(crate) unsafe fn run(this: *mut Self) {
        // SAFETY: the caller's promise; no reference is held while a coroutine runs.
        unsafe {
            (*this).start_noise();
            while (*this).left > 0 && (*this).violation.is_none() {
                let Some(thread) = (*this).step() else { continue };
                Self::resume(this, thread);
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    pub(crate) unsafe fn resume(this: *mut Self, thread: Tid) {
        // SAFETY: the caller's promise. While the coroutine runs, nobody looks at `coroutines`: all threads were
        // created before.
        unsafe {
            (*this).running = Some(thread);
            let place: *mut Option<_> = &mut (&mut (*this).coroutines)[thread as usize];
            let outcome = (*place).as_mut().expect("it has not ended").resume(());
            let e = &mut *this;
            e.running = None;
            if let CoroutineResult::Return(()) = outcome {
                let stack = e.coroutines[thread as usize].take().map(Coroutine::into_stack);
                STACKS.with_borrow_mut(|stacks| stacks.extend(stack));
                e.ended(thread);
            }
        }
    }

    fn ended(&mut self, thread: Tid) {
        let one = &mut self.threads[thread as usize];
        one.state = State::Ended;
        one.turn += 1;
        let cpu = one.cpu;
        self.left -= 1;
        if let Some(explorer) = &mut self.explore {
            return explorer.ended(thread);
        }
        self.give_up_cpu(cpu, 0);
    }

    /// Handles the next event; returns the thread that can go on, if any.
    fn step(&mut self) -> Option<Tid> {
        let Some((time, what)) = self.agenda.pop() else {
            self.stuck("no event is left");
            return None;
        };
        self.handled += 1;
        self.now = time;
        self.live -= usize::from(!matches!(what, What::Noise { .. } | What::Slice { .. }));
        if self.now > self.limit {
            if !self.threads.iter().any(|thread| thread.on_its_own) {
                self.stuck("threads are left long after the end");
                return None;
            }
            self.progress();
        }
        match what {
            What::Resume { thread, turn } => {
                (self.threads[thread as usize].turn == turn).then(|| {
                    self.threads[thread as usize].turn += 1;
                    thread
                })
            }
            What::Arrive { thread, line, write } => self.arrive(thread, line, write),
            What::Free { line } => self.serve_next(line),
            What::Timer { thread, turn } => self.timer(thread, turn),
            What::Ready { thread } => {
                self.place_thread(thread);
                None
            }
            What::Slice { cpu, turn } => {
                self.slice_ends(cpu, turn);
                None
            }
            What::Yield { thread, turn } => {
                self.yields(thread, turn);
                None
            }
            What::Noise { cpu } => {
                self.noise(cpu);
                if self.live == 0 && !self.any_ready() {
                    self.stuck("nobody can go on");
                }
                None
            }
        }
    }

    /// Some thread has made progress, so none counts as stuck for a while.
    pub(crate) fn progress(&mut self) {
        self.limit = self.limit.max(self.now + self.grace);
    }

    fn any_ready(&self) -> bool {
        self.threads.iter().any(|thread| matches!(thread.state, State::Ready(_)))
    }

    fn timer(&mut self, id: Tid, turn: u32) -> Option<Tid> {
        let thread = &mut self.threads[id as usize];
        if thread.turn != turn {
            return None;
        }
        match thread.state {
            State::Spinning(line) => {
                thread.timed_out = true;
                thread.turn += 1;
                self.lines.stop_spinning(line, id);
                Some(id)
            }
            State::Sleeping(_) => {
                thread.timed_out = true;
                thread.turn += 1;
                thread.state = State::Woken;
                self.futexes.leave(id);
                self.place_thread(id);
                None
            }
            // It will see it when it has looked again.
            State::Asking(_) | State::Ready(_) => {
                thread.timed_out = true;
                None
            }
            State::Busy | State::InKernel(_) | State::Woken | State::Ended => None,
        }
    }

    /// Reports that no thread will ever go on, and what each waits for.
    fn stuck(&mut self, why: &'static str) {
        if self.violation.is_none() {
            let who = (0..self.threads.len()).filter_map(|id| self.waits_for(id)).collect();
            let (why, at_ns) = (why.into(), self.now / 1000);
            self.violation = Some(Violation::Stuck { why, at_ns, who });
        }
    }

    fn waits_for(&self, id: usize) -> Option<String> {
        let thread = &self.threads[id];
        let what = match thread.state {
            State::Ended => return None,
            State::Busy => "runs".to_owned(),
            State::Asking(line) => format!("waits for line {line} to arrive"),
            State::Spinning(line) => {
                format!("spins on line {line}, word {}", self.lines.offset(thread.word))
            }
            State::InKernel(bucket) => format!("waits for bucket {bucket} of the kernel's futexes"),
            State::Ready(_) => format!("waits for CPU {}", thread.cpu),
            State::Sleeping(word) => {
                let (line, offset) = self.lines.name(word);
                format!("sleeps on line {line}, word {offset}")
            }
            State::Woken => "was woken".to_owned(),
        };
        Some(format!("{} {what}", thread.name))
    }

    /// A thread's name.
    pub(crate) fn name(&self, thread: Tid) -> String {
        self.threads[thread as usize].name.clone()
    }
}

/// The calling thread reports a violation; the run ends here.
pub(crate) fn fail(violation: Violation) -> ! {
    engine().violation.get_or_insert(violation);
    loop {
        suspend();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for coroutine in &mut self.coroutines {
            if let Some(mut coroutine) = coroutine.take() {
                // SAFETY: the values on its stack are forgotten, not dropped. Nothing outside points to them any more,
                // because the machine ends here. Memory that they owned is leaked.
                unsafe { coroutine.force_reset() };
                STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
            }
        }
        for line in self.arena.drain(..) {
            // SAFETY: made by `take_line` with this layout; the machine's locks have ended.
            unsafe { std::alloc::dealloc(line, crate::platform::LINE) };
        }
    }
}
