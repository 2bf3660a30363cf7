//! The machine: threads as coroutines, events in the order of their time, one operating-system thread for all.
//!
//! ```text
//!   event ──► what it changes (line, core, sleeper) ──► resume a thread ──► it runs until it has to wait
//!     ▲                                                                              │
//!     └───────────────── a later event: "resume me", "my request arrives" ◄──────────┘
//! ```
//!
//! Time is counted in picoseconds. Every operation of a lock costs some (`advance`); a thread whose operation ends before
//! the next event runs on without a switch. The same seed gives the same run, event by event: ties are broken by the order
//! in which events were made, and the only thing that depends on addresses is which words share a line of
//! 128 bytes.
//!
//! Invariants:
//! 1. At most one coroutine runs; while none does, every thread is in exactly one [`State`].
//! 2. A thread has at most one live `Resume`, `Timer` or request: `turn` counts, and an event of an old turn is void.
//! 3. Between a look at a word and the wait for its change nothing else runs, or the wait is not begun.

use crate::agenda::Agenda;
use crate::check::Violation;
use crate::cores::Cpu;
use crate::explore::Explorer;
use crate::futex::Futexes;
use crate::lines::Lines;
use crate::order::Orders;
use crate::platform::{Row, Sim};
use crate::power::Meters;
use crate::product::Product;
use crate::profile::Profile;
use crate::timeline::{Activity, Timeline};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use lockwright_locks::posix::{Held, Policy};
use lockwright_platform::{MEMOS, Memo, Stage, Word};
use std::cell::{Cell, RefCell};

/// Picoseconds.
pub(crate) type Ps = u64;
/// A thread's number.
pub(crate) type Tid = u32;

/// `ns` in picoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "profiles are checked")]
pub(crate) fn ps(ns: f64) -> Ps {
    (ns * 1000.0).round() as Ps
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A thread goes on.
    Resume { thread: Tid, turn: u32 },
    /// A thread's request for a line reaches the directory.
    Arrive { thread: Tid, line: u32, write: bool },
    /// A line can serve the next request.
    Free { line: u32 },
    /// A wait has lasted as long as it may.
    Timer { thread: Tid, turn: u32 },
    /// A woken thread needs a core.
    Ready { thread: Tid },
    /// A thread's time slice is over.
    Slice { cpu: u32, turn: u32 },
    /// A spinning thread gives its core away, if another one waits for it.
    Yield { thread: Tid, turn: u32 },
    /// An interrupt.
    Noise { cpu: u32 },
}

/// What a thread does first when it gets the core that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Finishes what it was doing, which takes this long.
    Finish(Ps),
    /// Looks again at the line that it spins on.
    Look(u32),
}

/// What a thread that does not run right now waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its operation to end; on a core.
    Busy,
    /// Its request for a line to be served; on a core.
    Asking(u32),
    /// A change of the line; on a core.
    Spinning(u32),
    /// A bucket of the kernel's futexes; on a core.
    InKernel(usize),
    /// A core.
    Ready(Then),
    /// A wake; on no core.
    Sleeping(usize),
    /// It was woken, and is on its way to a core.
    Woken,
    /// Nothing: it has ended.
    Ended,
}

/// A simulated thread.
pub(crate) struct Thread {
    pub(crate) name: String,
    yielder: *const Yielder<(), ()>,
    pub(crate) state: State,
    pub(crate) cpu: u32,
    /// It runs on this CPU only.
    pub(crate) pinned: Option<u32>,
    pub(crate) turn: u32,
    /// When its operation ends, in [`State::Busy`].
    pub(crate) busy_until: Ps,
    /// Its stores are in its cache by then; an atomic read-modify-write waits for that.
    pub(crate) drained_at: Ps,
    /// Interrupts that it has to make up for.
    pub(crate) debt: Ps,
    /// It loses its core at the end of its operation.
    pub(crate) evict: bool,
    /// It has a lock of the kernel's, or spins for one: it keeps its core.
    pub(crate) unpreempted: bool,
    pub(crate) timed_out: bool,
    /// It waits in a lock since then, as anybody could see.
    pub(crate) seen_waiting: Option<Ps>,
    /// It is in a front lock's line since then.
    pub(crate) joined: Option<Ps>,
    /// It is head of that line since then, and not napping.
    pub(crate) head: Option<Ps>,
    /// When its last operation on memory took effect, before it took its time.
    pub(crate) acted: Ps,
    /// It took its lock while the line's head was not awake to take it.
    pub(crate) passed: bool,
    /// The number of the lock that it waits for.
    pub(crate) asks: Option<u32>,
    /// The word that it looks at, or sleeps on.
    pub(crate) word: usize,
    /// The reorder window with which it last asked for a lock, ns.
    pub(crate) window_ns: u32,
    /// Which critical section it asks for, as its workload numbers them.
    pub(crate) site: u32,
    /// What it holds by nodes.
    pub(crate) held: Box<Held<Sim>>,
    /// It spends time as its workload says, outside of any lock. That ends by itself.
    on_its_own: bool,
}

/// The machine.
pub(crate) struct Engine {
    pub(crate) profile: Profile,
    pub(crate) now: Ps,
    agenda: Agenda,
    /// Events that let some thread go on: without any, and with threads left, there is a deadlock.
    live: usize,
    pub(crate) threads: Vec<Thread>,
    /// Their stacks, apart from what they do with their threads.
    coroutines: Vec<Option<Coroutine<(), (), (), DefaultStack>>>,
    /// Threads that have not ended.
    pub(crate) left: usize,
    pub(crate) running: Option<Tid>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) lines: Lines,
    pub(crate) futexes: Futexes,
    /// What locks note of themselves.
    pub(crate) memos: Box<[Memo<Sim>]>,
    /// What readers show, once any does.
    shown: Option<Box<[Row]>>,
    pub(crate) orders: Orders,
    pub(crate) rng: fastrand::Rng,
    pub(crate) timeline: Option<Timeline>,
    pub(crate) violation: Option<Violation>,
    /// After this time, a thread that still runs is stuck.
    pub(crate) limit: Ps,
    /// How far that moves beyond any progress.
    pub(crate) grace: Ps,
    pub(crate) meters: Meters,
    pub(crate) arena: Vec<*mut u8>,
    /// Events handled, for reports of speed.
    pub(crate) handled: u64,
    /// What threads did without an event: it was over before the next one.
    pub(crate) ran_on: u64,
    /// The locks of its mutexes (product.rs).
    pub(crate) table: Vec<Policy<Product>>,
    /// Who goes next, if that is not a matter of time.
    pub(crate) explore: Option<Box<Explorer>>,
}

thread_local! {
    // One operating-system thread runs one machine at a time; coroutines never leave it.
    static CURRENT: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of a coroutine's stack.
const STACK: usize = 128 << 10;

/// Makes `engine` the machine for platform calls on this thread, while `body` runs.
pub(crate) fn with_engine<R>(engine: &mut Engine, body: impl FnOnce(*mut Engine) -> R) -> R {
    struct Restore(*mut Engine);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let engine: *mut Engine = engine;
    let _restore = Restore(CURRENT.replace(engine));
    body(engine)
}

/// The machine, if a platform call comes from inside of one of its threads.
pub(crate) fn inside() -> Option<&'static mut Engine> {
    // SAFETY: `with_engine` outlives every coroutine; a reference is used up before the coroutine suspends, and nobody
    // else runs until then.
    let engine = unsafe { CURRENT.get().as_mut()? };
    engine.running.is_some().then_some(engine)
}

/// The machine, inside or outside of a thread.
pub(crate) fn current() -> Option<&'static mut Engine> {
    // SAFETY: as in `inside`.
    unsafe { CURRENT.get().as_mut() }
}

/// As [`inside`], for what can't happen elsewhere.
pub(crate) fn engine() -> &'static mut Engine {
    inside().expect("called by a simulated thread")
}

/// The calling thread waits until it is resumed.
pub(crate) fn suspend() {
    let e = engine();
    let yielder = e.threads[e.me() as usize].yielder;
    // SAFETY: the yielder lives as long as its coroutine, which is running.
    unsafe { (*yielder).suspend(()) };
}

/// The calling thread spends `cost` on `activity`.
pub(crate) fn advance(cost: Ps, activity: Activity) {
    let e = engine();
    let me = e.me();
    let thread = &mut e.threads[me as usize];
    thread.acted = e.now;
    let cost = cost + std::mem::take(&mut thread.debt);
    let cpu = thread.cpu;
    if thread.evict && !thread.unpreempted {
        e.evict(me, Then::Finish(cost));
        return suspend();
    }
    e.is_doing(cpu, activity);
    let end = e.now + cost;
    if end < e.agenda.next && end <= e.limit {
        e.now = end;
        e.ran_on += 1;
        return;
    }
    let thread = &mut e.threads[me as usize];
    thread.state = State::Busy;
    thread.busy_until = end;
    let turn = thread.turn;
    e.post(end, What::Resume { thread: me, turn });
    suspend();
}

/// The calling thread's own work, as its workload says.
pub(crate) fn on_its_own(body: impl FnOnce()) {
    let set = |is| {
        let e = engine();
        let me = e.me() as usize;
        e.threads[me].on_its_own = is;
    };
    set(true);
    body();
    set(false);
}

impl Engine {
    /// What the running thread says of its wait.
    pub(crate) fn reached(&mut self, stage: Stage) {
        let (me, now) = (self.me(), self.now);
        let thread = &mut self.threads[me as usize];
        match stage {
            Stage::Joined => thread.joined = Some(now),
            Stage::Chosen => thread.passed = true,
            Stage::Head => thread.head = Some(now),
            Stage::Naps => thread.head = None,
            Stage::Passed => {
                // What it has just read may be old by now.
                let (asks, read) =
                    (thread.asks, if self.explore.is_some() { now } else { thread.acted });
                let meets = |other: &Thread| {
                    other.asks == asks && other.head.is_some_and(|since| since <= read)
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
            memos: (0..MEMOS).map(|_| Memo(std::array::from_fn(|_| Word::new(0)))).collect(),
            rng: fastrand::Rng::with_seed(seed),
            timeline: None,
            violation: None,
            limit: Ps::MAX,
            grace: 0,
            meters: Meters::new(profile, &cpus),
            arena: Vec::new(),
            table: Vec::new(),
            handled: 0,
            ran_on: 0,
            explore: None,
            cpus,
            profile: profile.clone(),
        }
    }

    /// The table in which readers show what they hold.
    pub(crate) fn shown(&mut self) -> &[Row] {
        self.shown.get_or_insert_with(Row::all)
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

    /// Nothing happens before `time`, and not at `time` either.
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
            head: None,
            acted: 0,
            passed: false,
            asks: None,
            word: 0,
            window_ns: 0,
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
        // Threads do not start at one moment: nobody's queue lock falls into step.
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
        // SAFETY: the caller's promise; while the coroutine runs, nobody looks at `coroutines`: all threads are made before.
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

    /// Some thread has made progress: nobody counts as stuck for a while.
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
            self.violation = Some(Violation::Stuck { why, at_ns: self.now / 1000, who });
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
                // SAFETY: what its stack holds is forgotten, not dropped: nothing outside points to it any more, since
                // the machine ends here; memory that it owned is leaked.
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
