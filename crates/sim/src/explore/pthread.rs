//! What threads do with the runtime's mutex and condition variable in a schedule, and what must hold.
//!
//! ```text
//!   thread 0   visits, and gives permits: under the mutex or after it, by signals or a broadcast
//!   others     visits, and waits for permits, forever or for a time
//!   a visit    lock, trylock, timedlock; glibc's own lock; torn out of the line      unlock: ours or glibc's own
//!   anybody    swaps the table of locks, at some moment; and perhaps swaps it back
//! ```
//!
//! The mutex begins without a lock; the first thread that finds it contended chooses one of two or three, by its
//! own rule.

use super::explorer::explorer;
use super::memory::{ExploreCell, Explored, Process};
use super::process::{Mutex, ProcessLocks, Unlock, recount};
use super::protected::{Protected, check_lines, is_last, pause};
use crate::check::Violation;
use crate::engine::{Engine, Tid, engine, fail};
use crate::product::{lock_as_glibc, unlock_as_glibc};
use crate::watched::{Promised, Watch};
use lockwright_locks::condvar::{Cond, Outcome, Sleeper};
use lockwright_locks::front::Parts;
use lockwright_locks::posix::{self, Environment, Policy, Refused};
use lockwright_locks::torn::torn_wait;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Ptr, Word};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How a thread acquires.
#[derive(Clone, Copy, Debug)]
enum Way {
    Lock,
    Try,
    Until { ns: u32 },
    Glibc { ns: Option<u32> },
    Torn { asleep: bool, ns: Option<u32> },
}

/// One action of a thread.
#[derive(Clone, Copy, Debug)]
enum Act {
    Visit,
    /// Waits for a permit.
    Wait {
        ns: Option<u32>,
    },
    /// Gives permits.
    Give {
        permits: u32,
    },
    /// Puts other locks at the table's places.
    Swap,
}

/// What all threads of a schedule share.
struct World {
    mutex: Mutex,
    unlock: Unlock,
    watch: Watch,
    data: Protected,
    lock: ExploreCell<u32>,
    first: <Explored as Platform>::Ptr<Sleeper<Explored>>,
    last: <Explored as Platform>::Ptr<Sleeper<Explored>>,
    list_era: ExploreCell<u32>,
    record: ExploreCell<u32>,
    /// Each thread's sleeper.
    sleepers: Vec<Sleeper<Explored>>,
    /// Protected by the mutex.
    permits: Cell<u32>,
    /// The table to swap in.
    then: RefCell<Vec<Policy<Process>>>,
    finished: Cell<u32>,
    /// glibc's own code locks and unlocks, too.
    foreign: bool,
    /// It also counts holders, in the word where we have hints.
    counts: bool,
    rng: RefCell<fastrand::Rng>,
}

/// The calling thread got a wrong answer.
fn wrong(asked: &str, said: Result<(), Refused>, right: Result<(), Refused>) -> ! {
    let e = engine();
    let what = format!("{asked}, and was told {said:?}; right is {right:?}");
    fail(Violation::Answer { who: e.name(e.me()), what });
}

fn expect(asked: &str, said: Result<(), Refused>, right: Result<(), Refused>) {
    if said != right {
        wrong(asked, said, right);
    }
}

impl World {
    fn draw(&self, below: u32) -> u32 {
        self.rng.borrow_mut().u32(0..below)
    }

    fn time(&self) -> u32 {
        [0, 500, 100_000][self.draw(3) as usize]
    }

    fn way(&self) -> Way {
        match self.draw(10) {
            0..5 => Way::Lock,
            5 => Way::Try,
            6 => Way::Until { ns: self.time() },
            7 => {
                let ns = (self.draw(3) == 0).then(|| self.time());
                Way::Torn { asleep: self.draw(2) == 0, ns }
            }
            _ if self.foreign => Way::Glibc { ns: (self.draw(4) == 0).then(|| self.time()) },
            _ => Way::Lock,
        }
    }

    /// Holders, as glibc's code does.
    fn count(&self, m: &Mutex, by: u32) {
        if self.counts {
            recount(m, by);
        }
    }

    fn kind(&self) -> u32 {
        self.mutex.kind.load(Relaxed) & posix::TYPE
    }

    /// Acquires, or not, as a thread that would choose the place `caller`.
    fn acquire(&self, way: Way, caller: usize) -> bool {
        let (m, asked) = (&self.mutex, engine().now);
        match way {
            Way::Lock => {
                let asked = self.watch.asks();
                expect("a lock", posix::lock(m, caller), Ok(()));
                self.watch.served(asked);
                return true;
            }
            Way::Try => match posix::try_lock(m) {
                Ok(()) => {}
                Err(Refused::Busy) => return false,
                said => wrong("a lock, without waiting", said, Err(Refused::Busy)),
            },
            Way::Until { ns } => {
                let asked = self.watch.asks_in_time();
                match posix::lock_until(m, Some(Explored::after(ns))) {
                    Ok(()) => self.watch.served_in_time(asked),
                    Err(Refused::TimedOut) => {
                        self.watch.gave_up();
                        return false;
                    }
                    said => wrong("a lock, for a time", said, Err(Refused::TimedOut)),
                }
                return true;
            }
            Way::Glibc { ns } => {
                if !lock_as_glibc(m, ns.map(Explored::after), |m, by| self.count(m, by)) {
                    return false;
                }
            }
            Way::Torn { asleep, ns } => {
                let (_, Policy { tuning, .. }) = Process::policy(caller as u32);
                torn_wait(&m.parts(), &tuning, asleep, ns.map(Explored::after));
                return false;
            }
        }
        self.watch.took(asked);
        true
    }

    /// A critical section, with all checks of the mutex's kind in it.
    fn section(&self, caller: usize) {
        let m = &self.mutex;
        let x = explorer(engine());
        x.acquired_at = x.steps;
        self.data.section(self.draw(8));
        if posix::holds(m) == Some(false) {
            fail(Violation::Answer {
                who: engine().name(engine().me()),
                what: "whether it holds the mutex, which it does, and was told no".to_owned(),
            });
        }
        match (self.draw(8), self.kind()) {
            (0, posix::RECURSIVE) => {
                expect("a second lock", posix::lock(m, caller), Ok(()));
                expect("a third lock", posix::try_lock(m), Ok(()));
                expect("an unlock of three", (self.unlock)(m), Ok(()));
                expect("an unlock of two", (self.unlock)(m), Ok(()));
            }
            (0, posix::ERRORCHECK) => {
                expect("a second lock", posix::lock(m, caller), Err(Refused::Deadlock));
                expect("to try once more", posix::try_lock(m), Err(Refused::Busy));
            }
            (0, _) => expect("to try once more", posix::try_lock(m), Err(Refused::Busy)),
            (1, _) => expect("the end of it", posix::destroy(m), Err(Refused::Busy)),
            _ => {}
        }
    }

    fn release(&self) {
        self.watch.released();
        if self.foreign && self.draw(2) == 0 {
            unlock_as_glibc(&self.mutex, |m, by| self.count(m, by));
        } else {
            expect("an unlock", (self.unlock)(&self.mutex), Ok(()));
        }
    }

    fn visit(&self, caller: usize) {
        let checks = matches!(self.kind(), posix::RECURSIVE | posix::ERRORCHECK);
        if checks && self.draw(8) == 0 {
            let said = posix::unlock(&self.mutex);
            expect("an unlock of what it does not hold", said, Err(Refused::NotHolder));
        }
        if self.acquire(self.way(), caller) {
            self.section(caller);
            self.release();
        }
    }

    fn cond(&self) -> Cond<'_, Explored> {
        let Self { lock, first, last, list_era, record, .. } = self;
        let me = engine().me() + 1;
        Cond { lock, first, last, list_era, record, me, era: 0 }
    }

    /// Acquires in a way that always succeeds.
    fn enter(&self, caller: usize) {
        let foreign = self.foreign && self.draw(4) == 0;
        self.acquire(if foreign { Way::Glibc { ns: None } } else { Way::Lock }, caller);
        self.section(caller);
    }

    /// Waits for a permit, as programs do: in a loop.
    fn wait(&self, me: Tid, ns: Option<u32>, caller: usize) {
        self.enter(caller);
        let deadline = ns.map(Explored::after);
        let mut in_time = true;
        while self.permits.get() == 0 && in_time {
            in_time = self.wait_once(me, deadline, caller) != Outcome::TimedOut;
            self.section(caller);
        }
        self.permits.set(self.permits.get().saturating_sub(1));
        self.release();
    }

    /// `pthread_cond_wait`, as the runtime does it.
    fn wait_once(
        &self,
        me: Tid,
        deadline: Option<<Explored as Platform>::Deadline>,
        caller: usize,
    ) -> Outcome {
        let (m, sleeper) = (&self.mutex, &self.sleepers[me as usize]);
        m.users.fetch_add(1, Relaxed);
        // SAFETY: the thread waits once at a time, and the sleeper stays where it is.
        unsafe { self.cond().enlist(sleeper) };
        self.watch.released();
        expect("an unlock before a wait", (self.unlock)(m), Ok(()));
        let outcome = self.cond().sleep(sleeper, [0, 1_000][self.draw(2) as usize], deadline);
        if outcome == Outcome::Moved {
            let asked = engine().now;
            expect("the lock, after a wait", posix::lock_again(m, true, caller), Ok(()));
            self.watch.took(asked);
        } else {
            let asked = self.watch.asks();
            expect("the lock, after a wait", posix::lock_again(m, false, caller), Ok(()));
            self.watch.served(asked);
        }
        m.users.fetch_sub(1, Relaxed);
        outcome
    }

    fn give(&self, permits: u32, caller: usize) {
        self.enter(caller);
        self.permits.set(self.permits.get() + permits);
        let (after, all) = (self.draw(2) == 0, self.draw(2) == 0);
        if after {
            self.release();
        }
        let held = || -> Option<Parts<'_, Explored>> {
            (posix::holds(&self.mutex) == Some(true)).then(|| self.mutex.parts())
        };
        if all {
            self.cond().broadcast(held);
        } else {
            for _ in 0..permits {
                self.cond().signal(held);
            }
        }
        if !after {
            self.release();
        }
    }

    fn act(&self, me: Tid, act: Act, caller: usize) {
        match act {
            Act::Visit => self.visit(caller),
            Act::Wait { ns } => self.wait(me, ns, caller),
            Act::Give { permits } => self.give(permits, caller),
            Act::Swap => {
                let x = explorer(engine());
                std::mem::swap(&mut x.table, &mut *self.then.borrow_mut());
                x.generation += self.draw(2); // it may choose the same as the one before
            }
        }
    }

    /// The last thread to end checks that all is well.
    fn finish(&self, threads: u32) {
        let Some(me) = is_last(&self.finished, threads) else { return };
        self.data.check();
        if posix::try_lock(&self.mutex).is_err() {
            fail(Violation::NotFree { who: engine().name(me) });
        }
        expect("an unlock", posix::unlock(&self.mutex), Ok(()));
        // If glibc's code unlocked last, a node may still be in line, until another thread comes.
        expect("a lock", posix::lock(&self.mutex, 1), Ok(()));
        expect("an unlock", posix::unlock(&self.mutex), Ok(()));
        check_lines();
        // (Holders that glibc's code has counted up, and our code not down, look like waiters.)
        if !self.counts {
            expect("the end of a mutex that is free", posix::destroy(&self.mutex), Ok(()));
        }
    }
}

/// Makes mutex, condition variable and threads. The returned value must stay until they have ended.
pub(super) fn set_up(
    e: &mut Engine,
    plan: &ProcessLocks,
    unlock: Unlock,
    threads: u32,
    mut rng: fastrand::Rng,
) -> impl Sized + use<> {
    let [first, then] = plan.tables();
    explorer(e).table = first;
    let foreign = rng.bool();
    let counts = foreign && rng.u8(0..4) == 0;
    // Wrong hints may cost the head its turn, for a while.
    let bypass = if counts { None } else { plan.bypass() };
    let acts = acts(threads, &mut rng);
    let world = Rc::new(World {
        mutex: plan.mutex(),
        unlock,
        watch: Watch::new(0, Promised { bypass, ..Promised::default() }),
        data: Protected::default(),
        lock: Word::new(0),
        first: Ptr::new(std::ptr::null_mut()),
        last: Ptr::new(std::ptr::null_mut()),
        list_era: Word::new(0),
        record: Word::new([0, 15][rng.usize(0..2)]),
        sleepers: (0..threads).map(|_| Sleeper::default()).collect(),
        permits: Cell::default(),
        then: RefCell::new(then),
        finished: Cell::default(),
        foreign,
        counts,
        rng: RefCell::new(rng.fork()),
    });
    let start = std::ptr::from_ref(&world.mutex).addr();
    explorer(e).lock = (start, start + size_of::<Mutex>());
    for (me, acts) in (0..).zip(acts) {
        let world = world.clone();
        let caller = rng.usize(1..=plan.places() as usize);
        let body = move || {
            for act in acts {
                if world.draw(4) == 0 {
                    pause(1_000);
                }
                world.act(me, act, caller);
            }
            world.finish(threads);
        };
        e.spawn(format!("thread {me}"), None, Box::new(body));
    }
    world
}

/// What each thread does: as many permits are given as are waited for.
fn acts(threads: u32, rng: &mut fastrand::Rng) -> Vec<Vec<Act>> {
    let mut acts: Vec<Vec<Act>> = Vec::new();
    let mut permits = 0;
    for _ in 1..threads {
        let waits = rng.u32(0..3);
        permits += waits;
        let visits = rng.usize(0..3);
        let mut own = vec![Act::Visit; visits];
        for _ in 0..waits {
            let ns = (rng.u8(0..3) == 0).then(|| [0, 500, 100_000][rng.usize(0..3)]);
            own.push(Act::Wait { ns });
        }
        rng.shuffle(&mut own);
        acts.push(own);
    }
    let visits = rng.usize(0..3);
    let mut own = vec![Act::Visit; visits];
    while permits > 0 {
        let portion = rng.u32(1..=permits);
        permits -= portion;
        own.push(Act::Give { permits: portion });
    }
    rng.shuffle(&mut own);
    acts.insert(0, own);
    for _ in 0..rng.u8(1..3) {
        let swaps = rng.usize(0..threads as usize);
        let at = rng.usize(0..=acts[swaps].len());
        acts[swaps].insert(at, Act::Swap);
    }
    acts
}
