//! Who goes next: the state of an exploration, and its strategies.
//!
//! At every operation on a word, and at every sleep, wake and pause, any other thread may go first. A waiting thread
//! isn't a candidate until something happens that may end its wait:
//!
//! | a thread that | waits until |
//! |---|---|
//! | spins on a word | somebody changes the word, or its time is up |
//! | pauses | its time is up |
//! | sleeps on a word | somebody wakes it, its time is up, or (in some schedules) for no reason |
//!
//! Time advances with each step. It also jumps to the end of a wait, at random and whenever nobody else can go on,
//! because running threads may be preempted for any length of time. So whatever happens here can happen on a machine.

mod steps;
mod trace;

pub(crate) use steps::{Ended, block, explorer, point, run};

use super::adversary::Adversary;
use super::memory::{ExploreCell, Explored, MemoryLine, Process};
use super::mutant::{At, Mutant, Mutation, Op, Sites};
use super::setting::{Cast, Strategy};
use crate::units::{Ps, Tid};
use lockwright_locks::posix::{Held, Policy};
use lockwright_platform::{Door, Memo, Ordering, Ptr, ReaderTable, Word};

/// Steps of one schedule; the second half of them is fair.
const BOUND: u32 = 30_000;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Its turn.
    Turn,
    /// A change of the word.
    Spins,
    /// Time.
    Pauses,
    /// A wake.
    Sleeps { movable: bool },
    /// Nothing: it has ended.
    Ended,
}

struct Blocked {
    wait: Wait,
    word: usize,
    end: Option<Ps>,
    at: Option<At>,
    /// Somebody has changed the word, or has woken it.
    woken: bool,
}

/// A strategy at work.
enum Chooser {
    /// Stays with the running thread with this probability, or else draws any thread.
    Random { stay: f64 },
    /// Burckhardt, Kothari, Musuvathi, Nagarakatte, *A Randomized Scheduler with Probabilistic Guarantees of Finding
    /// Bugs*, ASPLOS 2010: the first by priority; at some steps, drawn in advance, the running thread becomes the last.
    Pct { priorities: Vec<u32>, changes: Vec<u32> },
}

/// One operation, for the report of a finding.
struct TracedOperation {
    thread: Tid,
    what: &'static str,
    word: usize,
    value: Option<u64>,
    at: At,
}

/// What was seen of a schedule, for its report.
#[derive(Default)]
struct Trace {
    steps: Vec<TracedOperation>,
    /// Words, in the order of their first use.
    words: Vec<usize>,
}

/// What an exploration knows in addition to the machine.
pub(crate) struct Explorer {
    rng: fastrand::Rng,
    chooser: Chooser,
    waiters: Vec<Blocked>,
    /// Bit mask of the threads that can go on.
    runnable: u32,
    /// When the first timed wait is due; it may be too early, never too late.
    next_end: Ps,
    /// Who goes on, if that has been chosen already.
    chosen: Option<Tid>,
    pub(crate) steps: u32,
    /// Steps after which a thread other than the running one went on.
    pub(crate) switches: u32,
    /// Which threads went on, hashed.
    pub(crate) path: u64,
    passes: f64,
    spurious: f64,
    moves: f64,
    old: f64,
    pub(crate) cpus: u32,
    classes: Vec<u8>,
    mutant: Option<Mutant>,
    pub(crate) sites: Option<Sites>,
    trace: Option<Trace>,
    /// Where the lock is.
    pub(crate) lock: (usize, usize),
    /// Lines that were taken and not returned.
    pub(crate) lines_out: i64,
    #[expect(clippy::vec_box, reason = "a line stays where it is while the list grows")]
    memory: Vec<Box<MemoryLine>>,
    /// The table in which readers show what they hold.
    pub(crate) shown: Vec<ExploreCell<*mut u8>>,
    /// How many unique numbers it has given.
    pub(crate) numbers: usize,
    /// On which those sleep who wait for the table.
    pub(crate) departures: ExploreCell<u32>,
    /// What locks note about themselves. All share one: which one a lock has depends on its address, and that isn't the same in a replay.
    pub(crate) memo: Memo<Explored>,
    /// Where near waiters find each other: one for each class, which is a cluster.
    pub(crate) doors: [Door<Explored>; 3],
    /// The locks that threads hold by nodes.
    pub(crate) held: Vec<Held<Explored>>,
    /// The process's current table of locks.
    pub(crate) table: Vec<Policy<Process>>,
    /// The table's generation.
    pub(crate) generation: u32,
    pub(crate) acquired_at: u32,
    /// The policy of programmed locks.
    pub(crate) adversary: Adversary,
    /// Bit mask of the threads with a real-time policy: some, in one schedule of eight.
    pub(crate) urgent: u32,
    /// The word on which one of them sleeps.
    pub(crate) urged: usize,
}

/// Draws the urgent threads.
fn urgent(mut rng: fastrand::Rng) -> u32 {
    if rng.u8(0..8) == 0 { rng.u32(..) } else { 0 }
}

impl Explorer {
    pub(crate) fn new(
        strategy: Strategy,
        setting: &Cast,
        mut rng: fastrand::Rng,
        mutant: Option<Mutant>,
    ) -> Self {
        let threads = setting.threads;
        let chooser = match strategy {
            Strategy::Random => Chooser::Random { stay: [0.0, 0.5, 0.9, 0.97][rng.usize(0..4)] },
            Strategy::Pct => {
                let changes = rng.u32(0..4);
                let length = 1 << rng.u32(5..11);
                let mut priorities: Vec<u32> = (changes..changes + threads).collect();
                rng.shuffle(&mut priorities);
                let mut changes: Vec<u32> = (0..changes).map(|_| rng.u32(1..length)).collect();
                changes.sort_unstable_by(|one, other| other.cmp(one));
                Chooser::Pct { priorities, changes }
            }
        };
        let waiter = |_| Blocked { wait: Wait::Turn, word: 0, end: None, at: None, woken: false };
        Self {
            chooser,
            waiters: (0..threads).map(waiter).collect(),
            runnable: (1 << threads) - 1,
            next_end: Ps::MAX,
            chosen: None,
            steps: 0,
            switches: 0,
            path: 0,
            passes: [0.0, 0.01, 0.1][rng.usize(0..3)],
            spurious: if rng.u8(0..8) == 0 { 0.03 } else { 0.0 },
            moves: if rng.u8(0..4) == 0 { 0.1 } else { 0.0 },
            old: [0.0, 0.2][rng.usize(0..2)],
            cpus: setting.cpus,
            classes: setting.classes.clone(),
            mutant,
            sites: None,
            trace: None,
            lock: (0, 0),
            lines_out: 0,
            memory: Vec::new(),
            shown: (0..Explored::ROWS * Explored::ROW)
                .map(|_| Ptr::new(std::ptr::null_mut()))
                .collect(),
            numbers: 0,
            departures: Word::new(0),
            memo: Memo(std::array::from_fn(|_| Word::new(0))),
            doors: std::array::from_fn(|_| Door::closed()),
            held: (0..threads).map(|_| Held::default()).collect(),
            table: Vec::new(),
            generation: 0,
            acquired_at: 0,
            adversary: Adversary::new(rng.clone()),
            urgent: urgent(rng.clone()),
            urged: 0,
            rng,
        }
    }

    pub(crate) fn trace(&mut self) {
        self.trace = Some(Trace::default());
    }

    fn is_runnable(&self, thread: Tid) -> bool {
        self.runnable & 1 << thread != 0
    }

    /// The thread's wait is over.
    fn goes_on(&mut self, thread: Tid, woken: bool) {
        self.runnable |= 1 << thread;
        let waiter = &mut self.waiters[thread as usize];
        (waiter.wait, waiter.woken, waiter.end) = (Wait::Turn, woken, None);
    }

    pub(crate) fn ended(&mut self, thread: Tid) {
        self.runnable &= !(1 << thread);
        self.waiters[thread as usize].wait = Wait::Ended;
    }

    /// The class of a thread's core, which may change from call to call.
    pub(crate) fn class(&mut self, thread: Tid) -> u8 {
        if self.moves > 0.0 && self.rng.f64() < self.moves {
            self.classes[thread as usize] = self.rng.u8(0..3);
        }
        self.classes[thread as usize]
    }

    /// A word has another value now.
    pub(crate) fn changed(&mut self, word: usize) {
        for thread in 0..self.waiters.len() {
            let waiter = &self.waiters[thread];
            if waiter.wait == Wait::Spins && waiter.word == word {
                self.goes_on(thread as Tid, true);
            }
        }
    }

    /// Wakes at most `count` sleepers on the word, in any order: the kernel wakes by priority.
    pub(crate) fn wake(&mut self, word: usize, count: u32, moved: bool) -> u32 {
        for woken in 0..count {
            let meant = |waiter: &Blocked| match waiter.wait {
                Wait::Sleeps { movable } => waiter.word == word && (movable || !moved),
                _ => false,
            };
            let sleepers: Vec<Tid> = (0..self.waiters.len())
                .filter(|&t| meant(&self.waiters[t]))
                .map(|t| t as Tid)
                .collect();
            let Some(&one) = self.rng.choice(&sleepers) else { return woken };
            self.goes_on(one, true);
        }
        count
    }

    /// Moves at most `count` sleepers from one word to another.
    pub(crate) fn requeue(&mut self, from: usize, to: usize, count: u32) -> u32 {
        let sleeps = |w: &&mut Blocked| matches!(w.wait, Wait::Sleeps { .. }) && w.word == from;
        let moved = self.waiters.iter_mut().filter(sleeps).take(count as usize);
        moved.map(|waiter| waiter.word = to).count() as u32
    }

    /// Ends the waits whose time is up.
    fn expire(&mut self, now: Ps) {
        self.next_end = Ps::MAX;
        for thread in 0..self.waiters.len() {
            match self.waiters[thread].end {
                Some(end) if end <= now => self.goes_on(thread as Tid, false),
                Some(end) => self.next_end = self.next_end.min(end),
                None => {}
            }
        }
    }

    /// A sleeper wakes up spuriously.
    fn wake_for_no_reason(&mut self) {
        let thread = self.rng.usize(0..self.waiters.len());
        if matches!(self.waiters[thread].wait, Wait::Sleeps { .. }) {
            self.goes_on(thread as Tid, true);
        }
    }

    /// The next thread to go on, and the time; `None`: none ever can.
    fn choose(&mut self, now: &mut Ps, running: Option<Tid>) -> Option<Tid> {
        let waits = self.next_end != Ps::MAX;
        if waits && (self.next_end <= *now || self.rng.f64() < self.passes) {
            *now = self.next_end.max(*now);
            self.expire(*now);
        }
        if self.spurious > 0.0 && self.rng.f64() < self.spurious {
            self.wake_for_no_reason();
        }
        while self.runnable == 0 {
            if self.next_end == Ps::MAX {
                return None;
            }
            *now = self.next_end.max(*now);
            self.expire(*now);
        }
        let next = self.pick(running.filter(|&one| self.is_runnable(one)));
        self.switches += u32::from(running != Some(next));
        self.path =
            (self.path.rotate_left(5) ^ u64::from(next)).wrapping_mul(0x517c_c1b7_2722_0a95);
        Some(next)
    }

    fn pick(&mut self, running: Option<Tid>) -> Tid {
        if self.steps > BOUND / 2 {
            // Fair from here on: a thread that makes no progress now never will.
            let after = running.map_or(self.steps % 32, |one| one + 1);
            return self.runnable.rotate_right(after).trailing_zeros().wrapping_add(after) % 32;
        }
        match &mut self.chooser {
            Chooser::Random { stay } => match running {
                Some(one) if self.rng.f64() < *stay => one,
                _ => {
                    let mut left = self.rng.u32(0..self.runnable.count_ones());
                    let mut rest = self.runnable;
                    while left > 0 {
                        rest &= rest - 1;
                        left -= 1;
                    }
                    rest.trailing_zeros()
                }
            },
            Chooser::Pct { priorities, changes } => {
                while changes.last().is_some_and(|&at| at <= self.steps) {
                    changes.pop();
                    if let Some(one) = running {
                        priorities[one as usize] = changes.len() as u32;
                    }
                }
                let can = |&one: &Tid| self.runnable & 1 << one != 0;
                let first = (0..priorities.len() as Tid)
                    .filter(can)
                    .max_by_key(|&t| priorities[t as usize]);
                first.expect("somebody can")
            }
        }
    }

    /// Loads may return old values in this schedule, whatever was drawn.
    pub(crate) fn often_reads_old(&mut self) {
        self.old = 0.3;
    }

    /// May loads return old values in this schedule? Then it isn't defined which thread came first.
    pub(crate) fn is_weak(&self) -> bool {
        self.old > 0.0
    }

    /// Does a load return an old value, if it may?
    pub(crate) fn reads_old(&mut self) -> bool {
        self.old > 0.0 && self.rng.f64() < self.old
    }

    /// Memory that is never reused, so that late accesses are noticed.
    pub(crate) fn memory(&mut self) -> *mut u8 {
        self.memory.push(MemoryLine::zeroed());
        self.memory.last_mut().expect("just added").start()
    }

    /// How many threads sleep on a word.
    #[cfg(test)]
    pub(crate) fn asleep_on(&self, word: usize) -> usize {
        let sleeps = |w: &&Blocked| matches!(w.wait, Wait::Sleeps { .. }) && w.word == word;
        self.waiters.iter().filter(sleeps).count()
    }

    /// A uniform random number, both ends included.
    pub(crate) fn draw(&mut self, from: u32, to: u32) -> u32 {
        self.rng.u32(from..=to)
    }

    /// Notes a site of the lock, while sites are being collected.
    pub(crate) fn note(&mut self, at: At, op: Op, yes: Ordering, no: Ordering) {
        if let Some(sites) = &mut self.sites {
            sites.note(at, op, yes, no);
        }
    }

    /// The fault at this place of the source, if it is the mutant's.
    pub(crate) fn mutation(&self, at: At) -> Option<Mutation> {
        self.mutant.filter(|mutant| mutant.site.is(at)).map(|mutant| mutant.mutation)
    }
}
