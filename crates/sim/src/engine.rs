//! The machine: its parts, and its threads as coroutines, all on one operating-system thread.
//!
//! Time is counted in picoseconds. Every operation of a lock costs time (`advance`). A thread whose operation ends
//! before the next event runs on without a switch. The same seed gives the same run, event by event: ties are broken by
//! order of creation, and the only thing that depends on addresses is which words share a line of 128 bytes.
//!
//! Invariants:
//! 1. At most one coroutine runs; while none does, every thread is in exactly one [`State`].
//! 2. A thread has at most one live `Resume`, `Timer` or request: `turn` counts, and an event of an old turn is void.
//! 3. Nothing else runs between a look at a word and the wait for its change; otherwise the wait doesn't begin.

mod events;
mod running;
mod stack;
mod thread;

pub(crate) use crate::agenda::What;
pub(crate) use crate::units::{Ps, Tid, ps};
pub(crate) use running::{advance, fail, on_its_own, suspend, switch};
pub(crate) use thread::{State, Then, Thread};

use crate::agenda::Agenda;
use crate::check::Violation;
use crate::cpu::Cpu;
use crate::directory::Lines;
use crate::explore::Explorer;
use crate::memory::{DeparturesLine, LINE, Product, ShownLine, Sim, doors};
use crate::meters::Meters;
use crate::order::Orders;
use crate::policies::{Person, Policies};
use crate::profile::Profile;
use crate::sleepers::Futexes;
use crate::timeline::Timeline;
use crate::transfers::Paths;
use crate::units::{real, whole};
use crate::unused::Unused;
use corosensei::{Coroutine, Yielder};
use lockwright_locks::posix::Policy;
use lockwright_platform::{Door, MEMOS, Memo, Stage, Word};
use stack::OwnStack;
use std::cell::Cell;

/// The machine.
pub(crate) struct Engine {
    pub(crate) profile: Profile,
    pub(crate) now: Ps,
    agenda: Agenda,
    /// Events to come, and how many of them let no thread go on. If there are no others, and threads are left, that is a deadlock.
    pending: usize,
    idle: usize,
    pub(crate) threads: Vec<Thread>,
    /// The threads' stacks, kept apart from their states.
    coroutines: Vec<Option<Coroutine<(), (), (), OwnStack>>>,
    /// Threads that have not ended.
    pub(crate) left: usize,
    pub(crate) running: Option<Tid>,
    /// Who goes on next, as the thread that ran last has found.
    next: Option<Tid>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) lines: Lines,
    pub(crate) futexes: Futexes,
    /// What locks note about themselves.
    pub(crate) memos: Box<[Memo<Sim>]>,
    /// The table in which readers show what they hold, once one does.
    shown: Option<Box<[ShownLine]>>,
    /// Where near waiters find each other; none on a machine of one cluster.
    pub(crate) doors: Box<[Door<Sim>]>,
    /// On which those sleep who wait for the table.
    pub(crate) departures: Box<DeparturesLine>,
    pub(crate) orders: Orders,
    pub(crate) rng: fastrand::Rng,
    pub(crate) timeline: Option<Timeline>,
    /// The hand-overs, if they are watched.
    pub(crate) paths: Option<Box<Paths>>,
    /// How many threads count as preempted.
    pub(crate) preempted: u32,
    pub(crate) violation: Option<Violation>,
    /// After this time, a thread that still runs is stuck.
    pub(crate) limit: Ps,
    /// How far the limit moves beyond the last progress.
    pub(crate) grace: Ps,
    pub(crate) meters: Meters,
    pub(crate) unused: Unused,
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

impl Engine {
    /// What the running thread reports about its wait.
    pub(crate) fn reached(&mut self, stage: Stage) {
        let (me, now) = (self.me(), self.now);
        let explores = self.explore.is_some();
        let thread = &mut self.threads[me as usize];
        let took_effect = if explores { now } else { thread.acted };
        match stage {
            Stage::Joined => (thread.joined, thread.in_line) = (Some(now), Some(took_effect)),
            Stage::Chosen | Stage::Uncounted => thread.passed = true,
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
            pending: 0,
            idle: 0,
            threads: Vec::new(),
            coroutines: Vec::new(),
            left: 0,
            running: None,
            next: None,
            lines: Lines::new(profile, &cpus),
            futexes: Futexes::new(profile),
            orders: Orders::default(),
            shown: None,
            doors: doors(cpus.iter().map(|cpu| cpu.domain).max()),
            departures: DeparturesLine::new(),
            memos: (0..MEMOS).map(|_| Memo(std::array::from_fn(|_| Word::new(0)))).collect(),
            rng: fastrand::Rng::with_seed(seed),
            timeline: None,
            paths: None,
            preempted: 0,
            violation: None,
            limit: Ps::MAX,
            grace: 0,
            meters: Meters::new(profile, &cpus),
            unused: Unused::default(),
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
    #[inline]
    pub(crate) fn me(&self) -> Tid {
        self.running.expect("a thread runs")
    }

    /// The CPU that it runs on.
    #[inline]
    pub(crate) fn my_cpu(&self) -> u32 {
        self.threads[self.me() as usize].cpu
    }

    /// `time`, give or take the profile's jitter.
    #[inline]
    pub(crate) fn about(&mut self, time: Ps) -> Ps {
        let jitter = self.profile.memory.jitter;
        whole(real(time) * (1.0 + jitter * (2.0 * self.rng.f64() - 1.0)))
    }

    #[inline]
    pub(crate) fn post(&mut self, time: Ps, what: What) {
        self.pending += 1;
        self.agenda.post(time, what);
    }

    /// As [`post`](Self::post), of what lets no thread go on.
    pub(crate) fn post_idle(&mut self, time: Ps, what: What) {
        self.idle += 1;
        self.post(time, what);
    }

    /// Nothing happens until `time`, nor at `time` itself.
    pub(crate) fn is_quiet_until(&self, time: Ps) -> bool {
        time < self.agenda.next
    }

    /// Makes a thread; it starts on a core of its own choice, or on CPU `pinned`.
    pub(crate) fn spawn(&mut self, name: String, pinned: Option<u32>, body: Box<dyn FnOnce()>) {
        debug_assert!(self.running.is_none(), "all threads are made before the first one runs");
        let id = Tid::try_from(self.threads.len()).expect("a few threads");
        let coroutine =
            Coroutine::with_stack(OwnStack::of(id), move |yielder: &Yielder<(), ()>, ()| {
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
            critical: 0,
            counts_as_preempted: false,
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

    /// Some thread has made progress, so none counts as stuck for a while.
    pub(crate) fn progress(&mut self) {
        self.limit = self.limit.max(self.now + self.grace);
    }

    /// A thread's name.
    pub(crate) fn name(&self, thread: Tid) -> String {
        self.threads[thread as usize].name.clone()
    }
}

thread_local! {
    // One operating-system thread runs one machine at a time; coroutines never leave it.
    static CURRENT: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
}

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
#[inline]
pub(crate) fn inside() -> Option<&'static mut Engine> {
    // SAFETY: `with_engine` outlives every coroutine. A reference is dropped before the coroutine suspends, and
    // nothing else runs until then.
    let engine = unsafe { CURRENT.get().as_mut()? };
    engine.running.is_some().then_some(engine)
}

/// The machine, inside or outside of a thread.
#[inline]
pub(crate) fn current() -> Option<&'static mut Engine> {
    // SAFETY: as in `inside`.
    unsafe { CURRENT.get().as_mut() }
}

/// As [`inside`], for calls that can't come from elsewhere.
#[inline]
pub(crate) fn engine() -> &'static mut Engine {
    let engine = current().expect("called by a simulated thread");
    debug_assert!(engine.running.is_some(), "called by a simulated thread");
    engine
}

impl Drop for Engine {
    fn drop(&mut self) {
        for coroutine in &mut self.coroutines {
            if let Some(mut coroutine) = coroutine.take() {
                // SAFETY: the values on its stack are forgotten, not dropped. Nothing outside points to them any more,
                // because the machine ends here. Memory that they owned is leaked.
                unsafe { coroutine.force_reset() };
                coroutine.into_stack().give_back();
            }
        }
        for line in self.arena.drain(..) {
            // SAFETY: made by `take_line` with this layout; the machine's locks have ended.
            unsafe { std::alloc::dealloc(line, LINE) };
        }
    }
}
