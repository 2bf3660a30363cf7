//! What threads do: the few calls that a workload is written in.
//!
//! ```text
//! fn setup(setup: &mut Setup) {
//!     let (lock, data) = (setup.lock(), setup.data(2));
//!     let gap = setup.param("gap");
//!     setup.threads(move |me| {
//!         while me.goes_on() {
//!             me.operation(|| {
//!                 me.locked(lock, || me.touch(data, 0..2));
//!             });
//!             me.nops(gap);
//!         }
//!     });
//! }
//! ```

mod setup;
mod world;

pub use setup::{Setup, Workload};
pub(crate) use world::RunWorld;

use crate::check::Violation;
use crate::engine::{Ps, advance, engine, fail, on_its_own, ps};
use crate::memory::Sim;
use crate::policies::Person;
use crate::timeline::Activity;
use crate::watched::Watched;
use lockwright_locks::amp::feedback::{Feedback, Percentile, WINDOW_MAX_NS};
use lockwright_platform::{Class, Platform, Word};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A lock of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockId(u32);

/// Lines of shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataId(u32);

/// An option of a workload: what may be swept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSpec {
    /// The word before `=`.
    pub key: &'static str,
    /// What it means, with its unit.
    pub meaning: &'static str,
    /// Its value when not given.
    pub default: f64,
    /// Smallest legal value.
    pub min: f64,
    /// Largest legal value.
    pub max: f64,
}

struct Epoch {
    id: u32,
    feedback: Option<Feedback>,
}

/// The calling thread.
pub struct Me {
    number: u32,
    world: Rc<RunWorld>,
    rng: RefCell<fastrand::Rng>,
    epochs: RefCell<Vec<Epoch>>,
    /// The current epoch's window, ns; outside epochs the largest window.
    window: Cell<u32>,
}

impl Me {
    /// Its number, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The class of the core that runs it now.
    pub fn class(&self) -> Class {
        let e = engine();
        Class(u8::try_from(e.cpus[e.my_cpu() as usize].class).unwrap_or(u8::MAX))
    }

    /// Simulated time, ns; costs nothing.
    pub fn now_ns(&self) -> u64 {
        engine().now / 1000
    }

    /// Its body is over. The last thread to end stops the servers of all locks.
    fn ends(&self) {
        self.world.ended.set(self.world.ended.get() + 1);
        if self.world.ended.get() == self.world.clients.get() {
            let locks: Vec<_> = self.world.locks.borrow().clone();
            locks.iter().for_each(|lock| lock.stop());
        }
    }

    /// Is there time left?
    pub fn goes_on(&self) -> bool {
        engine().now < self.world.end
    }

    /// A number drawn evenly from `range`.
    pub fn draw(&self, range: Range<u32>) -> u32 {
        self.rng.borrow_mut().u32(range)
    }

    /// A number drawn evenly from 0 to 1.
    pub fn chance(&self) -> f64 {
        self.rng.borrow_mut().f64()
    }

    /// Executes `count` NOPs.
    pub fn nops(&self, count: f64) {
        let e = engine();
        self.works(count * e.cpus[e.my_cpu() as usize].nop);
    }

    /// Computes something that takes the fastest class `ns` nanoseconds.
    pub fn compute(&self, ns: f64) {
        let e = engine();
        self.works(ns * 1000.0 * e.cpus[e.my_cpu() as usize].compute);
    }

    /// Computes for `cycles` of this core's clock.
    pub fn cycles(&self, cycles: f64) {
        let e = engine();
        let class = e.cpus[e.my_cpu() as usize].class;
        self.works(cycles / e.profile.class[class].ghz * 1000.0);
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
    fn works(&self, ps: f64) {
        let e = engine();
        let time = ps * e.smt_factor(e.my_cpu());
        let time = e.about(time as Ps);
        on_its_own(|| advance(time, Activity::Work));
    }

    /// Sleeps for `ns` nanoseconds.
    pub fn sleep(&self, ns: u32) {
        let nobody_wakes = <Sim as Platform>::Word::new(0);
        on_its_own(|| {
            Sim::park(&nobody_wakes, 0, Some(Sim::after(ns)));
        });
    }

    /// Acquires.
    pub fn acquire(&self, lock: LockId) {
        let watched = self.watched(lock);
        let asked = engine().now;
        watched.lock(self.window.get());
        self.waited_since(asked, None);
        self.stays_longer();
    }

    /// The lock's planted fault, if it has one.
    fn stays_longer(&self) {
        let ns = self.world.slower_ns.get();
        if ns > 0.0 {
            self.compute(ns);
        }
    }

    /// This thread now has the lock that it asked for, maybe on another thread, which runs its section: `elsewhere` is the class of
    /// the core on which it waits for that.
    fn waited_since(&self, asked: Ps, elsewhere: Option<usize>) {
        let e = engine();
        if asked >= self.world.from && asked < self.world.end {
            let class = elsewhere.unwrap_or_else(|| e.cpus[e.my_cpu() as usize].class);
            let waited = e.now - asked;
            self.world.collect.borrow_mut().acquired(self.number, class, waited);
        }
    }

    /// Acquires if nobody holds the lock.
    pub fn try_acquire(&self, lock: LockId) -> bool {
        self.watched(lock).try_lock()
    }

    /// Releases.
    pub fn release(&self, lock: LockId) {
        self.watched(lock).unlock();
    }

    /// From now on it asks for critical sections of this number.
    pub fn asks_for(&self, site: u32) {
        let e = engine();
        let me = e.me();
        e.threads[me as usize].site = site;
    }

    /// A critical section under `lock`.
    pub fn locked(&self, lock: LockId, section: impl FnOnce()) {
        let watched = self.watched(lock);
        let e = engine();
        let (asked, me, class) = (e.now, e.me(), e.cpus[e.my_cpu() as usize].class);
        watched.with(self.window.get(), || {
            self.waited_since(asked, (engine().me() != me).then_some(class));
            self.stays_longer();
            section();
        });
    }

    /// A section under `lock` that only reads: together with other readers, if it is a readers-writer lock.
    pub fn reading(&self, lock: LockId, section: impl FnOnce()) {
        let watched = self.watched(lock);
        watched.reading(self.window.get(), || {
            self.stays_longer();
            section();
        });
    }

    fn watched(&self, lock: LockId) -> Rc<Watched> {
        self.world.locks.borrow()[lock.0 as usize].clone()
    }

    /// Reads, modifies and writes these lines of `data`, all under one lock.
    pub fn touch(&self, data: DataId, lines: Range<u32>) {
        let e = engine();
        let (me, number) = (e.me(), e.my_cpu());
        let overlap = e.profile.memory.overlap.max(1.0);
        let cpu = &e.cpus[number as usize];
        let (mut cost, mut longest, mut misses) = (0, 0, 0);
        let mut seen = Vec::new();
        let mut raced = None;
        {
            let mut all = self.world.data.borrow_mut();
            let data = &mut all[data.0 as usize];
            data.expected += u64::from(lines.end - lines.start);
            for line in &mut data.lines[lines.start as usize..lines.end as usize] {
                cost += cpu.line;
                line.copies = 0;
                let miss = match line.owner.replace(number) {
                    Some(owner) if owner == number => 0,
                    Some(owner) => e.lines.transfer(number, owner),
                    None => e.lines.cold(),
                };
                longest = longest.max(miss);
                misses += miss;
                match e.orders.write(me, line.stamp) {
                    Some(stamp) => line.stamp = Some(stamp),
                    None => raced = line.stamp,
                }
                seen.push(line.updates);
            }
        }
        if let Some(last) = raced {
            let (first, second) = (e.name(last.thread()), e.name(me));
            fail(Violation::Race { at_ns: e.now / 1000, first, second });
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ps")]
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let overlapped = (misses as f64 / overlap) as Ps;
        // However many lines are in flight at once, each takes its time.
        let cost = e.about(cost + overlapped.max(longest));
        if !lines.is_empty() {
            e.threads[me as usize].drained_at = e.now + cost + e.cpus[number as usize].drain;
        }
        on_its_own(|| advance(cost, Activity::Work));
        let mut all = self.world.data.borrow_mut();
        let touched = &mut all[data.0 as usize].lines[lines.start as usize..lines.end as usize];
        for (line, seen) in touched.iter_mut().zip(seen) {
            line.updates = seen + 1; // not += 1: an update in between must get lost, as on a real machine
        }
    }

    /// Reads these lines of `data`, under a lock that keeps writers out.
    pub fn look(&self, data: DataId, lines: Range<u32>) {
        let e = engine();
        let (me, number) = (e.me(), e.my_cpu());
        let (mut cost, mut longest, mut raced) = (0, 0, None);
        {
            let mut all = self.world.data.borrow_mut();
            for line in &mut all[data.0 as usize].lines[lines.start as usize..lines.end as usize] {
                cost += e.cpus[number as usize].line;
                let copy = 1 << (number % 64);
                let miss = match line.owner {
                    Some(owner) if owner == number || line.copies & copy != 0 => 0,
                    Some(owner) => e.lines.transfer(number, owner),
                    None => e.lines.cold(),
                };
                line.owner.get_or_insert(number);
                line.copies |= copy;
                longest = longest.max(miss);
                if e.orders.write(me, line.stamp).is_none() {
                    raced = line.stamp;
                }
            }
        }
        if let Some(last) = raced {
            let (first, second) = (e.name(last.thread()), e.name(me));
            fail(Violation::Race { at_ns: e.now / 1000, first, second });
        }
        let cost = e.about(cost + longest);
        on_its_own(|| advance(cost, Activity::Work));
    }

    /// One operation: the unit of throughput and latency.
    pub fn operation(&self, body: impl FnOnce()) {
        let start = self.begins();
        body();
        self.count_since(start, None);
    }

    /// One operation that is an epoch with a latency SLO, ns (P99 unless stated otherwise).
    pub fn epoch(&self, id: u32, slo_ns: u64, percentile: Percentile, body: impl FnOnce()) {
        let outer = self.window.get();
        let known = |epochs: &Vec<Epoch>| epochs.iter().position(|epoch| epoch.id == id);
        let found = known(&self.epochs.borrow());
        let index = found.unwrap_or_else(|| {
            let mut epochs = self.epochs.borrow_mut();
            epochs.push(Epoch { id, feedback: None });
            epochs.len() - 1
        });
        // In its first execution the SLO is still unknown, so it is first come, first served.
        let feedback = self.epochs.borrow()[index].feedback;
        self.window.set(feedback.map_or(0, |feedback| feedback.window_ns));
        let counted_from = self.begins();
        let start = Sim::now();
        self.in_epoch(slo_ns, body);
        let latency = Sim::now() - start;
        let next = match feedback {
            Some(feedback) => feedback.after(latency, slo_ns, percentile),
            None => Feedback::first(slo_ns, percentile),
        };
        self.epochs.borrow_mut()[index].feedback = Some(next);
        self.window.set(outer);
        self.count_since(counted_from, Some(slo_ns));
    }

    /// One operation with an SLO, ns, in which each acquisition may be overtaken for `window_ns`: a fixed window,
    /// without feedback.
    pub fn operation_within(&self, window_ns: u32, slo_ns: Option<u64>, body: impl FnOnce()) {
        let outer = self.window.replace(window_ns.min(WINDOW_MAX_NS));
        let start = self.begins();
        self.in_epoch(slo_ns.unwrap_or(0), body);
        self.window.set(outer);
        self.count_since(start, slo_ns);
    }

    /// Runs `body`; meanwhile policies see that the thread is in an epoch with this SLO.
    fn in_epoch(&self, slo_ns: u64, body: impl FnOnce()) {
        let before = self.person(|person| {
            let before = *person;
            (person.slo_ns, person.in_epoch) = (slo_ns, true);
            before
        });
        body();
        self.person(|person| {
            (person.slo_ns, person.in_epoch) = (before.slo_ns, before.in_epoch);
        });
    }

    /// Tags the thread: policies see that.
    pub fn tag(&self, tag: u64) {
        self.person(|person| person.tag = tag);
    }

    /// Gives the thread a priority, which only policies see: nice 1 to 19 is -1 to -19, real-time is above 0.
    pub fn prio(&self, prio: i32) {
        self.person(|person| person.prio = prio);
    }

    fn person<R>(&self, change: impl FnOnce(&mut Person) -> R) -> R {
        let e = engine();
        let me = e.me();
        change(&mut e.threads[me as usize].person)
    }

    /// An operation begins, now.
    fn begins(&self) -> Ps {
        let e = engine();
        let class = e.cpus[e.my_cpu() as usize].class;
        self.world.collect.borrow_mut().begins(self.number, class, e.now);
        e.now
    }

    fn count_since(&self, start: Ps, slo_ns: Option<u64>) {
        let e = engine();
        // Counts what ended within the measured time, as a benchmark of fixed length does.
        if start >= self.world.from && e.now <= self.world.end {
            let class = e.cpus[e.my_cpu() as usize].class;
            let mut collect = self.world.collect.borrow_mut();
            collect.operation(self.number, class, e.now, e.now - start, slo_ns);
        }
    }
}

/// `ns` of simulated time.
pub(crate) fn time(ns: u64) -> Ps {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
    ps(ns as f64)
}
