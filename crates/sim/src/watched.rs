//! What is checked at every acquisition: exclusion, hand-overs, and the order and bounds that the lock
//! promises.

use crate::any_lock::{AnyLock, Carried};
use crate::check::Violation;
use crate::engine::{Ps, Thread, Tid, engine, fail};
use crate::lock::LockSpec;
use crate::making::make;
use crate::memory::Sim;
use crate::order::Stamp;
use crate::timeline::Hold;
use lockwright_locks::amp::feedback::WINDOW_MAX_NS;
use lockwright_locks::entry::Promise;
use lockwright_platform::Machine;
use std::cell::{Cell, RefCell};
use std::ops::Deref;

struct Overtaken {
    thread: Tid,
    asked: Ps,
    overtaken: u32,
    /// The same, since it became the head of the line.
    overtaken_as_head: u32,
    /// By how many that joined the line after it.
    passed_in_line: u32,
    /// It waits until a deadline.
    is_timed: bool,
}

/// What a lock promises, in this run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promised {
    /// No thread is served before one that came earlier and was seen waiting.
    pub(crate) in_order: bool,
    /// How often threads that came after the head joined the line may overtake it; and how often a choice may put those that joined after
    /// a waiter before it.
    pub(crate) bypass: Option<u32>,
    /// Waiters on slower cores stand by first.
    pub(crate) reorders: bool,
}

impl Promised {
    /// What `spec` promises to `threads` threads, on the current machine.
    fn by<P: Machine>(spec: &LockSpec, threads: usize) -> Self {
        let promise = spec.entry().map_or(Promise::Nothing, |entry| entry.promise);
        // A line that is longer than it counts is crowded, however many CPUs there are.
        let fits = threads <= P::cpus() as usize && spec.counts(threads);
        Self {
            in_order: match promise {
                Promise::Arrival => true,
                Promise::ArrivalOrBypass => fits,
                Promise::Bypass | Promise::Nothing => false,
            },
            bypass: match promise {
                Promise::Bypass | Promise::ArrivalOrBypass => spec.bypass::<P>(),
                Promise::Arrival | Promise::Nothing => None,
            },
            reorders: spec.window_ns().is_some() || spec.programs().next().is_some(),
        }
    }
}

/// The watch over a lock.
pub(crate) struct Watch {
    number: u32,
    promised: Promised,
    holder: Cell<Option<(Tid, Ps, Ps)>>,
    /// Threads that hold it for reading.
    readers: RefCell<Vec<Tid>>,
    waiters: RefCell<Vec<Overtaken>>,
    /// The most that any waiter was overtaken.
    pub(crate) most_overtaken: Cell<u32>,
    pub(crate) acquisitions: Cell<u64>,
    last: Cell<Option<Tid>>,
    /// Acquisitions by a thread other than the last holder.
    pub(crate) hand_overs: Cell<u64>,
    /// The end of the last critical section, as a write of data under this lock would have it.
    stamp: Cell<Option<Stamp>>,
}

impl Watch {
    pub(crate) fn new(number: u32, promised: Promised) -> Self {
        Self {
            number,
            promised,
            holder: Cell::new(None),
            readers: RefCell::default(),
            waiters: RefCell::default(),
            most_overtaken: Cell::new(0),
            acquisitions: Cell::new(0),
            last: Cell::new(None),
            hand_overs: Cell::new(0),
            stamp: Cell::new(None),
        }
    }

    /// Who holds it.
    pub(crate) fn holder(&self) -> Option<Tid> {
        self.holder.get().map(|(thread, ..)| thread)
    }

    /// Who waits for it.
    pub(crate) fn waiting(&self) -> Vec<Tid> {
        self.waiters.borrow().iter().map(|waiter| waiter.thread).collect()
    }

    /// The calling thread asks for the lock; returns the time.
    pub(crate) fn asks(&self) -> Ps {
        let e = engine();
        let (me, asked) = (e.me(), e.now);
        let thread = &mut e.threads[me as usize];
        (thread.seen_waiting, thread.joined, thread.in_line) = (None, None, None);
        (thread.head, thread.passed) = (None, false);
        thread.asks = Some(self.number);
        self.waiters.borrow_mut().push(Overtaken {
            thread: me,
            asked,
            overtaken: 0,
            overtaken_as_head: 0,
            passed_in_line: 0,
            is_timed: false,
        });
        asked
    }

    /// The calling thread has the lock that it asked for.
    pub(crate) fn served(&self, asked: Ps) {
        self.serves(engine().me(), asked);
        self.stood_by(engine().me(), asked);
    }

    /// As [`asks`](Self::asks), until a deadline: such threads come in any order, but they are counted.
    pub(crate) fn asks_in_time(&self) -> Ps {
        let asked = self.asks();
        self.waiters.borrow_mut().last_mut().expect("it has just asked").is_timed = true;
        asked
    }

    /// As [`served`](Self::served), after [`asks_in_time`](Self::asks_in_time).
    pub(crate) fn served_in_time(&self, asked: Ps) {
        self.serves(engine().me(), asked);
    }

    /// The calling thread no longer asks for the lock.
    pub(crate) fn gave_up(&self) {
        let e = engine();
        let me = e.me();
        e.threads[me as usize].asks = None;
        self.waiters.borrow_mut().retain(|waiter| waiter.thread != me);
    }

    /// `me` has the lock that it asked for, or another thread runs its section for it.
    fn serves(&self, me: Tid, asked: Ps) {
        let mut waiters = self.waiters.borrow_mut();
        let mine = waiters.iter().position(|w| w.thread == me).expect("we are waiting");
        let is_timed = waiters.swap_remove(mine).is_timed;
        let e = engine();
        // A thread that reads an old tail sees the line as it was before a waiter joined: that doesn't count
        // as overtaking.
        let is_weak = e.explore.as_ref().is_some_and(|x| x.is_weak());
        e.threads[me as usize].asks = None;
        let Thread { passed, in_line, .. } = e.threads[me as usize];
        let (mut out_of_order, mut too_often) = (None, None);
        let bound = self.promised.bypass;
        let exceeds = |times: u32| bound.is_some_and(|bound| times > bound);
        for waiter in waiters.iter_mut() {
            let thread = &e.threads[waiter.thread as usize];
            if !is_timed && thread.seen_waiting.is_some_and(|since| since < asked) {
                waiter.overtaken += 1;
                self.most_overtaken.set(self.most_overtaken.get().max(waiter.overtaken));
                if self.promised.in_order && !is_weak && !waiter.is_timed {
                    out_of_order.get_or_insert((waiter.thread, waiter.asked));
                }
            }
            if !passed && thread.head.is_some() && thread.joined.is_some_and(|since| since < asked)
            {
                waiter.overtaken_as_head += 1;
                if !is_weak && exceeds(waiter.overtaken_as_head) {
                    too_often = Some((waiter.thread, waiter.overtaken_as_head));
                }
            }
            if in_line.zip(thread.in_line).is_some_and(|(mine, its)| its < mine) {
                waiter.passed_in_line += 1;
                if exceeds(waiter.passed_in_line) {
                    too_often = Some((waiter.thread, waiter.passed_in_line));
                }
            }
        }
        drop(waiters);
        let lock = self.number;
        if let Some((first, since)) = out_of_order {
            let (first, second) = (e.name(first), e.name(me));
            let (waited_since_ns, came_ns) = (since / 1000, asked / 1000);
            fail(Violation::Order { lock, first, waited_since_ns, second, came_ns });
        }
        if let Some(((who, times), bound)) = too_often.zip(bound) {
            fail(Violation::Bypass { lock, who: e.name(who), times, bound });
        }
        self.acquired(me, asked);
    }

    /// Checks that `me`, which has the lock now, was in its line soon enough.
    fn stood_by(&self, me: Tid, asked: Ps) {
        let e = engine();
        // Explorations let time pass at will.
        if !self.promised.reorders || e.explore.is_some() {
            return;
        }
        let joined = e.threads[me as usize].seen_waiting.unwrap_or(e.now);
        let waited_ns = joined.saturating_sub(asked) / 1000;
        let bound_ns = 2 * u64::from(WINDOW_MAX_NS);
        if waited_ns > bound_ns {
            let who = e.name(me);
            fail(Violation::Starved { lock: self.number, who, waited_ns, bound_ns });
        }
    }

    /// The calling thread got the lock in a way without promises.
    pub(crate) fn took(&self, asked: Ps) {
        self.acquired(engine().me(), asked);
    }

    fn acquired(&self, me: Tid, asked: Ps) {
        let e = engine();
        let reader = self.readers.borrow().first().copied();
        let holder = self.holder.replace(Some((me, asked, e.now))).map(|(other, ..)| other);
        e.is_held(self.number, true);
        if let Some(other) = holder.or(reader) {
            self.not_alone(other);
        }
        // Explorations have data of their own in every critical section.
        if e.explore.is_none() {
            let last = self.stamp.get();
            // The thread that runs the section must have seen the last one.
            if let (Some(last), None) = (last, e.orders.write(e.me(), last)) {
                let (first, second) = (e.name(last.thread()), e.name(me));
                fail(Violation::HandOver { lock: self.number, at_ns: e.now / 1000, first, second });
            }
            e.progress();
        }
        if let Some(paths) = &mut e.paths {
            paths.acquired(self.number, me, e.running.unwrap_or(me), e.now);
        }
        self.acquisitions.set(self.acquisitions.get() + 1);
        if self.last.replace(Some(me)) != Some(me) {
            self.hand_overs.set(self.hand_overs.get() + 1);
        }
    }

    /// The calling thread and `other` both hold it, at least one of them for writing.
    fn not_alone(&self, other: Tid) -> ! {
        let e = engine();
        let (first, second) = (e.name(other), e.name(e.me()));
        fail(Violation::Exclusion { lock: self.number, at_ns: e.now / 1000, first, second })
    }

    /// The calling thread now holds it for reading.
    fn reads(&self) {
        let e = engine();
        let me = e.me();
        e.threads[me as usize].asks = None;
        self.waiters.borrow_mut().retain(|waiter| waiter.thread != me);
        if let Some(other) = self.holder() {
            self.not_alone(other);
        }
        let last = self.stamp.get();
        // It must have seen the last write.
        if let (Some(last), None) = (last, e.orders.write(me, last)) {
            let (first, second) = (e.name(last.thread()), e.name(me));
            fail(Violation::HandOver { lock: self.number, at_ns: e.now / 1000, first, second });
        }
        self.readers.borrow_mut().push(me);
        if let Some(paths) = &mut e.paths {
            paths.acquired(self.number, me, me, e.now);
        }
        self.acquisitions.set(self.acquisitions.get() + 1);
        e.progress();
    }

    /// The calling thread is about to release.
    pub(crate) fn released(&self) -> Tid {
        let e = engine();
        let me = e.me();
        self.stamp.set(e.orders.write(me, None));
        e.is_held(self.number, false);
        if let Some((thread, asked_ps, start_ps)) = self.holder.take()
            && let Some(timeline) = &mut e.timeline
        {
            let lock = self.number;
            timeline.hold(Hold { lock, thread, asked_ps, start_ps, end_ps: e.now });
        }
        if let Some(paths) = &mut e.paths {
            paths.released(self.number, me, e.now, &self.waiting());
        }
        me
    }

    /// The calling thread's unlock has returned.
    fn returned(&self) {
        let e = engine();
        let me = e.me();
        if let Some(paths) = &mut e.paths {
            paths.returned(self.number, me);
        }
    }
}

/// The calling thread writes plain data, which it last saw as `stamp` says.
fn write_plain(stamp: &Cell<Option<Stamp>>) {
    let e = engine();
    let (me, last) = (e.me(), stamp.get());
    match (last, e.orders.write(me, last)) {
        (Some(last), None) => {
            let (first, second) = (e.name(last.thread()), e.name(me));
            fail(Violation::Race { at_ns: e.now / 1000, first, second });
        }
        (_, now) => stamp.set(now),
    }
}

/// A lock under observation.
pub(crate) struct Watched {
    watch: Watch,
    lock: Box<dyn AnyLock>,
}

impl Deref for Watched {
    type Target = Watch;

    fn deref(&self) -> &Watch {
        &self.watch
    }
}

impl Watched {
    pub(crate) fn new(spec: &LockSpec, number: u32, threads: usize) -> Self {
        Self::over::<Sim>(make(spec, threads), spec, number, threads)
    }

    /// The lock that `spec` names, on the current machine.
    pub(crate) fn over<P: Machine>(
        lock: Box<dyn AnyLock>,
        spec: &LockSpec,
        number: u32,
        threads: usize,
    ) -> Self {
        Self { watch: Watch::new(number, Promised::by::<P>(spec, threads)), lock }
    }

    pub(crate) fn lock(&self, window_ns: u32) {
        let asked = self.asks();
        self.lock.lock(engine().me(), window_ns);
        self.served(asked);
    }

    /// A critical section, on whichever thread the lock runs it.
    pub(crate) fn with(&self, window_ns: u32, section: impl FnOnce()) {
        let (me, asked) = (engine().me(), self.asks());
        // The request, and then the result, lie on the asker's stack: plain data.
        let request = Cell::new(None);
        write_plain(&request);
        let mut section = Some(section);
        let mut watched = || {
            write_plain(&request);
            self.serves(me, asked);
            self.stood_by(me, asked);
            section.take().expect("a section runs once")();
            self.released();
            write_plain(&request);
        };
        self.lock.with(me, window_ns, Carried(&mut watched));
        write_plain(&request);
        self.returned();
    }

    /// As [`AnyLock::is_delegated`].
    pub(crate) fn is_delegated(&self) -> bool {
        self.lock.is_delegated()
    }

    /// As [`AnyLock::servers`].
    pub(crate) fn servers(&self) -> u32 {
        self.lock.servers()
    }

    /// As [`AnyLock::pool`].
    pub(crate) fn pool(&self) -> u32 {
        self.lock.pool()
    }

    /// As [`AnyLock::share`].
    pub(crate) fn share(&self, with: &Self) {
        self.lock.share(&*with.lock);
    }

    /// As [`AnyLock::vary`].
    pub(crate) fn vary(&self, how: u32) {
        self.lock.vary(how);
    }

    /// As [`AnyLock::serve`].
    pub(crate) fn serve(&self) {
        self.lock.serve();
    }

    /// As [`AnyLock::stop`].
    pub(crate) fn stop(&self) {
        self.lock.stop();
    }

    /// A section that only reads: together with other readers, or alone if the lock is a mutex.
    pub(crate) fn reading(&self, window_ns: u32, section: impl FnOnce()) {
        let me = engine().me();
        if self.is_delegated() {
            return self.with(window_ns, section);
        }
        let asked = self.asks();
        if !self.lock.read(me) {
            self.lock.lock(me, window_ns);
            self.served(asked);
            section();
            return self.unlock();
        }
        self.reads();
        section();
        self.readers.borrow_mut().retain(|reader| *reader != me);
        self.lock.leave_read(me);
    }

    /// As [`AnyLock::lock_on_word`].
    pub(crate) fn lock_on_word(&self, ns: Option<u32>) -> Option<bool> {
        let e = engine();
        let asked = if ns.is_some() { self.asks_in_time() } else { e.now };
        let got = self.lock.lock_on_word(e.me(), ns);
        match (got, ns) {
            (Some(true), Some(_)) => self.served_in_time(asked),
            (Some(true), None) => self.took(asked),
            _ => self.gave_up(),
        }
        got
    }

    pub(crate) fn try_lock(&self) -> bool {
        let e = engine();
        let (me, asked) = (e.me(), e.now);
        let got = self.lock.try_lock(me);
        if got {
            self.took(asked);
        }
        got
    }

    /// As [`AnyLock::torn_wait`].
    pub(crate) fn torn_wait(&self, asleep: bool, ns: Option<u32>) -> bool {
        self.lock.torn_wait(asleep, ns)
    }

    pub(crate) fn unlock(&self) {
        let me = self.released();
        self.lock.unlock(me);
        self.returned();
    }

    /// As [`AnyLock::unlock_as_glibc`], if the lock has it.
    pub(crate) fn unlock_as_glibc(&self) {
        let me = self.released();
        if !self.lock.unlock_as_glibc(me) {
            self.lock.unlock(me);
        }
        self.returned();
    }
}
