//! Locks of the catalogue on the virtual machine, by name, and glibc's algorithm as a baseline.

use crate::check::Violation;
use crate::engine::{Ps, Tid, engine, fail};
use crate::order::Stamp;
use crate::platform::Sim;
use crate::timeline::Hold;
use lockwright_locks::amp::feedback::WINDOW_MAX_NS;
use lockwright_locks::catalog::{find, visit_all, visit_front};
use lockwright_locks::entry::{Entry, FrontVisitor, Kind, OptionSpec, Promise, Visitor};
use lockwright_locks::front::{Alone, Rule, Tuning, lock_as_glibc, try_take, unlock_slow};
use lockwright_locks::front::{FREE, HELD};
use lockwright_platform::Ordering::{Relaxed, Release};
use lockwright_platform::Word;
use lockwright_platform::{Platform, RawLock, Sections, TryLock};
use std::cell::{Cell, RefCell};
use thiserror::Error;

/// Everybody's baseline: glibc's own algorithm (`pthread_mutex_lock` of a normal mutex): a swap, then sleep.
pub const GLIBC: &str = "glibc";

/// Which lock, with which options: `NAME[:key=value,...]`.
#[derive(Clone, Debug)]
pub struct LockSpec {
    text: String,
    entry: Option<&'static Entry>,
    options: Vec<(String, u32)>,
}

/// Why a text names no lock.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LockError {
    /// Not in the catalogue.
    #[error("unknown lock '{0}'")]
    Unknown(String),
    /// The lock has no such option, or the value is none.
    #[error("lock '{lock}': option '{option}' is not among its options, or out of range")]
    Option {
        /// The lock.
        lock: String,
        /// What was asked for.
        option: String,
    },
}

impl LockSpec {
    /// Reads `NAME[:key=value,...]`.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let entry = find(name);
        if entry.is_none() && name != GLIBC {
            return Err(LockError::Unknown(name.to_owned()));
        }
        let known = entry.map_or(&[][..], |entry| entry.options);
        let bad = |option: &str| LockError::Option { lock: name.into(), option: option.into() };
        let parse = |option: &str| {
            let (key, value) = option.split_once('=').ok_or_else(|| bad(option))?;
            let spec = known.iter().find(|spec| spec.key == key).ok_or_else(|| bad(option))?;
            let value = value.parse().map_err(|_| bad(option))?;
            if !(spec.min..=spec.max).contains(&value) {
                return Err(bad(option));
            }
            Ok((key.to_owned(), value))
        };
        let options = options.split(',').filter(|o| !o.is_empty()).map(parse);
        Ok(Self { text: text.to_owned(), entry, options: options.collect::<Result<_, _>>()? })
    }

    /// As it was written.
    pub fn name(&self) -> &str {
        &self.text
    }

    /// What the catalogue says of it; none for [`GLIBC`].
    pub fn entry(&self) -> Option<&'static Entry> {
        self.entry
    }

    /// What the catalogue says of the lock's option `key`, if it has it.
    pub fn option(&self, key: &str) -> Option<&'static OptionSpec> {
        self.entry?.options.iter().find(|spec| spec.key == key)
    }

    /// The same lock, with this option.
    pub fn with(&self, key: &str, value: u32) -> Result<Self, LockError> {
        let (name, _) = self.text.split_once(':').unwrap_or((&self.text, ""));
        let others = self.options.iter().filter(|(known, _)| known != key);
        let mut options: Vec<_> = others.map(|(key, value)| format!("{key}={value}")).collect();
        options.push(format!("{key}={value}"));
        Self::parse(&format!("{name}:{}", options.join(",")))
    }

    /// For how long a thread on a slower core lets others go first, at most, unless an epoch says so, ns; `None`: it does not.
    pub fn window_ns(&self) -> Option<u32> {
        self.entry?.stands_by.then(|| self.value("window").unwrap_or(WINDOW_MAX_NS))
    }

    /// The value of an option; `None`: the machine decides.
    fn value(&self, key: &str) -> Option<u32> {
        let given = self.options.iter().find(|(known, _)| known == key).map(|(_, value)| *value);
        given.or_else(|| self.option(key)?.default)
    }

    /// The same lock, with some of the options that it was not given drawn: often their defaults, or else small values.
    pub(crate) fn varied(&self, rng: &mut fastrand::Rng) -> Self {
        let mut varied = self.clone();
        for option in self.entry.map_or(&[][..], |entry| entry.options) {
            let draw = rng.u32(0..8);
            if draw < 4 || self.options.iter().any(|(key, _)| key == option.key) {
                continue;
            }
            let value = (option.min + draw.saturating_sub(5)).min(option.max);
            let sign = if varied.options.is_empty() { ':' } else { ',' };
            varied.text.push_str(&format!("{sign}{}={value}", option.key));
            varied.options.push((option.key.to_owned(), value));
        }
        varied
    }

    /// The tuning of a front lock of rule `R`, on the machine of the moment.
    pub(crate) fn tuned_for<P: Platform, R: Rule<P>>(&self) -> Tuning {
        let mut tuning = R::defaults(Tuning::for_cpus(P::cpus()));
        for (key, value) in &self.options {
            tuning.set(key, *value);
        }
        tuning
    }

    /// How often the head of the lock's line may be overtaken, if it is a front lock.
    pub(crate) fn bypass<P: Platform>(&self) -> Option<u32> {
        struct Bypass<'a>(&'a LockSpec, Option<u32>);
        impl<P: Platform> FrontVisitor<P> for Bypass<'_> {
            fn visit<R: Rule<P>>(&mut self, entry: &'static Entry) {
                if self.0.entry.is_some_and(|own| std::ptr::eq(own, entry)) {
                    self.1 = Some(self.0.tuned_for::<P, R>().bypass);
                }
            }
        }
        let mut bypass = Bypass(self, None);
        visit_front::<P>(&mut bypass);
        bypass.1
    }

    /// An unlocked lock for `threads` threads.
    pub(crate) fn make(&self, threads: usize) -> Box<dyn AnyLock> {
        let Some(entry) = self.entry else {
            return Typed::boxed(Glibc::<Sim>::new(), threads);
        };
        let mut making = Making { spec: self, entry, threads, made: None };
        if entry.kind == Kind::Front {
            visit_front::<Sim>(&mut making);
        } else {
            visit_all::<Sim>(&mut making);
        }
        making.made.expect("every lock of the catalogue is visited")
    }
}

struct Making<'a> {
    spec: &'a LockSpec,
    entry: &'static Entry,
    threads: usize,
    made: Option<Box<dyn AnyLock>>,
}

impl FrontVisitor<Sim> for Making<'_> {
    fn visit<R: Rule<Sim>>(&mut self, entry: &'static Entry) {
        if std::ptr::eq(entry, self.entry) {
            let lock = Alone::<Sim, R>::tuned(self.spec.tuned_for::<Sim, R>());
            self.made = Some(Typed::boxed(lock, self.threads));
        }
    }
}

impl Visitor<Sim> for Making<'_> {
    fn visit<L: TryLock<Sim> + 'static>(&mut self, entry: &'static Entry) {
        if std::ptr::eq(entry, self.entry) {
            self.made = Some(Typed::boxed(L::new(), self.threads));
        }
    }
}

/// glibc's algorithm on a front lock's memory: whoever finds the lock taken sleeps, and tries again when it is woken.
pub(crate) struct Glibc<P: Platform>(Alone<P, lockwright_locks::front::fifo::Lock>);

impl<P: Platform> Sections<P> for Glibc<P> {
    type Node = ();

    fn new() -> Self {
        Self(Alone::new())
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Glibc<P> {
    unsafe fn lock(&self, _: *mut ()) {
        let parts = self.0.parts();
        if !try_take::<P>(parts.word) {
            lock_as_glibc(parts);
        }
    }

    unsafe fn unlock(&self, _: *mut ()) {
        // [release] ORDERING: Release, pairs with every Acquire that takes the word.
        let (parts, tuning) = (self.0.parts(), self.0.tuning());
        if parts.word.compare_exchange(HELD, FREE, Release, Relaxed).is_err() {
            unlock_slow(parts, tuning);
        }
    }
}

impl<P: Platform> TryLock<P> for Glibc<P> {
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        try_take::<P>(self.0.parts().word)
    }
}

/// A lock whose type is not known.
pub(crate) trait AnyLock {
    /// Acquires for a thread.
    fn lock(&self, thread: Tid, window_ns: u32);
    /// Tries to.
    fn try_lock(&self, thread: Tid) -> bool;
    /// Acquires by sleeping on the lock's own word, as glibc's code does, and as timed lockers do, for so many ns at most;
    /// `None`: it has no such way.
    fn lock_on_word(&self, thread: Tid, ns: Option<u32>) -> Option<bool> {
        let _ = (thread, ns);
        None
    }
    /// Releases as glibc's own code does, from then on at any time; `false`: it has no such way, and nothing was done.
    fn unlock_as_glibc(&self, thread: Tid) -> bool {
        let _ = thread;
        false
    }
    /// Releases.
    fn unlock(&self, thread: Tid);
    /// Has `section` run under the lock for a thread, which may be by another one.
    fn with(&self, thread: Tid, window_ns: u32, section: Carried<'_>) {
        self.lock(thread, window_ns);
        section.run();
        self.unlock(thread);
    }
}

/// A section that locks may carry to another thread of the machine.
pub(crate) struct Carried<'a>(pub(crate) &'a mut dyn FnMut());

// SAFETY: a machine's threads are all run by the one thread of the operating system that runs the machine.
unsafe impl Send for Carried<'_> {}

impl Carried<'_> {
    /// Runs it.
    pub(crate) fn run(self) {
        (self.0)();
    }
}

/// As much memory as it needs, and a line of its own.
#[repr(align(128))]
struct Aligned<T>(T);

struct Typed<L: RawLock<Sim>> {
    lock: Aligned<L>,
    /// One for each thread.
    nodes: Vec<Aligned<Cell<L::Node>>>,
}

impl<L: TryLock<Sim> + 'static> Typed<L> {
    fn boxed(lock: L, threads: usize) -> Box<dyn AnyLock> {
        let nodes = (0..threads).map(|_| Aligned(Cell::new(L::Node::default()))).collect();
        Box::new(Self { lock: Aligned(lock), nodes })
    }
}

impl<L: TryLock<Sim>> AnyLock for Typed<L> {
    fn lock(&self, thread: Tid, window_ns: u32) {
        // SAFETY: the node is this thread's, for one acquisition at a time, and the vector does not grow.
        unsafe {
            self.lock.0.lock_in_front(self.nodes[thread as usize].0.as_ptr(), window_ns, || true)
        }
    }

    fn try_lock(&self, thread: Tid) -> bool {
        // SAFETY: as above.
        unsafe { self.lock.0.try_lock(self.nodes[thread as usize].0.as_ptr()) }
    }

    fn unlock(&self, thread: Tid) {
        // SAFETY: as above; the caller holds it.
        unsafe { self.lock.0.unlock(self.nodes[thread as usize].0.as_ptr()) }
    }

    fn with(&self, thread: Tid, window_ns: u32, section: Carried<'_>) {
        let node = self.nodes[thread as usize].0.as_ptr();
        // SAFETY: as above.
        unsafe { self.lock.0.with_window(node, window_ns, || section.run()) }
    }
}

struct Waiter {
    thread: Tid,
    asked: Ps,
    overtaken: u32,
    /// The same, since it is head of the line.
    overtaken_as_head: u32,
}

/// A lock under watch.
pub(crate) struct Watched {
    number: u32,
    lock: Box<dyn AnyLock>,
    holder: Cell<Option<(Tid, Ps, Ps)>>,
    waiters: RefCell<Vec<Waiter>>,
    /// Nobody is served before one who was seen waiting, and came earlier.
    in_order: bool,
    /// How often a head of the line may be overtaken by those who came after it joined.
    bypass: Option<u32>,
    /// Waiters on other than the fastest cores stand by first.
    reorders: bool,
    /// The most that any was.
    pub(crate) most_overtaken: Cell<u32>,
    pub(crate) acquisitions: Cell<u64>,
    last: Cell<Option<Tid>>,
    /// Acquisitions by another thread than the last holder.
    pub(crate) hand_overs: Cell<u64>,
    /// The end of the last critical section, as a write of data under this lock would have it.
    stamp: Cell<Option<Stamp>>,
}

impl Watched {
    pub(crate) fn new(spec: &LockSpec, number: u32, threads: usize) -> Self {
        Self::over::<Sim>(spec.make(threads), spec, number, threads)
    }

    /// The lock that `spec` names, on the machine of the moment.
    pub(crate) fn over<P: Platform>(
        lock: Box<dyn AnyLock>,
        spec: &LockSpec,
        number: u32,
        threads: usize,
    ) -> Self {
        let promise = spec.entry.map_or(Promise::Nothing, |entry| entry.promise);
        let fits = threads <= P::cpus() as usize;
        Self {
            number,
            lock,
            holder: Cell::new(None),
            waiters: RefCell::default(),
            in_order: match promise {
                Promise::Arrival => true,
                Promise::ArrivalOrBypass => fits,
                Promise::Bypass | Promise::Nothing => false,
            },
            bypass: match promise {
                Promise::Bypass | Promise::ArrivalOrBypass => spec.bypass::<P>(),
                Promise::Arrival | Promise::Nothing => None,
            },
            reorders: spec.window_ns().is_some(),
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

    pub(crate) fn lock(&self, window_ns: u32) {
        let (me, asked) = self.asks();
        self.lock.lock(me, window_ns);
        self.got(me, asked);
    }

    /// A critical section, on whichever thread the lock runs it.
    pub(crate) fn with(&self, window_ns: u32, section: impl FnOnce()) {
        let (me, asked) = self.asks();
        let mut section = Some(section);
        let mut watched = || {
            self.got(me, asked);
            section.take().expect("a section runs once")();
            self.released();
        };
        self.lock.with(me, window_ns, Carried(&mut watched));
    }

    /// The calling thread is about to ask: who it is, and since when it waits.
    fn asks(&self) -> (Tid, Ps) {
        let e = engine();
        let (me, asked) = (e.me(), e.now);
        let thread = &mut e.threads[me as usize];
        (thread.seen_waiting, thread.joined, thread.is_head) = (None, None, false);
        self.waiters.borrow_mut().push(Waiter {
            thread: me,
            asked,
            overtaken: 0,
            overtaken_as_head: 0,
        });
        (me, asked)
    }

    /// `me`, which has asked, has the lock now.
    fn got(&self, me: Tid, asked: Ps) {
        let mut waiters = self.waiters.borrow_mut();
        let mine = waiters.iter().position(|w| w.thread == me).expect("we are waiting");
        waiters.swap_remove(mine);
        let e = engine();
        // Who reads an old tail looks at the line as it was before a waiter joined: that is not overtaking it.
        let is_weak = e.explore.as_ref().is_some_and(|x| x.is_weak());
        let (mut out_of_order, mut too_often) = (None, None);
        for waiter in waiters.iter_mut() {
            let thread = &e.threads[waiter.thread as usize];
            if thread.seen_waiting.is_some_and(|since| since < asked) {
                waiter.overtaken += 1;
                self.most_overtaken.set(self.most_overtaken.get().max(waiter.overtaken));
                if self.in_order && !is_weak {
                    out_of_order.get_or_insert((waiter.thread, waiter.asked));
                }
            }
            if thread.is_head && thread.joined.is_some_and(|since| since < asked) {
                waiter.overtaken_as_head += 1;
                if !is_weak && self.bypass.is_some_and(|bound| waiter.overtaken_as_head > bound) {
                    too_often = Some((waiter.thread, waiter.overtaken_as_head));
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
        if let Some(((who, times), bound)) = too_often.zip(self.bypass) {
            fail(Violation::Bypass { lock, who: e.name(who), times, bound });
        }
        self.stood_by(me, asked);
        self.acquired(me, asked);
    }

    /// Looks whether `me`, which has the lock now, was in its line soon enough.
    fn stood_by(&self, me: Tid, asked: Ps) {
        let e = engine();
        // Explorations let time pass at will.
        if !self.reorders || e.explore.is_some() {
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

    /// As [`AnyLock::lock_on_word`].
    pub(crate) fn lock_on_word(&self, ns: Option<u32>) -> Option<bool> {
        let e = engine();
        let (me, asked) = (e.me(), e.now);
        let got = self.lock.lock_on_word(me, ns)?;
        if got {
            self.acquired(me, asked);
        }
        Some(got)
    }

    pub(crate) fn try_lock(&self) -> bool {
        let e = engine();
        let (me, asked) = (e.me(), e.now);
        let got = self.lock.try_lock(me);
        if got {
            self.acquired(me, asked);
        }
        got
    }

    fn acquired(&self, me: Tid, asked: Ps) {
        let e = engine();
        if let Some((other, ..)) = self.holder.replace(Some((me, asked, e.now))) {
            let (first, second) = (e.name(other), e.name(me));
            fail(Violation::Exclusion { lock: self.number, at_ns: e.now / 1000, first, second });
        }
        // Explorations have data of their own in every critical section.
        if e.explore.is_none() {
            let last = self.stamp.get();
            // Whoever runs the section must have seen the last one.
            if let (Some(last), None) = (last, e.orders.write(e.me(), last)) {
                let (first, second) = (e.name(last.thread()), e.name(me));
                fail(Violation::HandOver { lock: self.number, at_ns: e.now / 1000, first, second });
            }
            e.progress();
        }
        self.acquisitions.set(self.acquisitions.get() + 1);
        if self.last.replace(Some(me)) != Some(me) {
            self.hand_overs.set(self.hand_overs.get() + 1);
        }
    }

    pub(crate) fn unlock(&self) {
        let me = self.released();
        self.lock.unlock(me);
    }

    /// As [`AnyLock::unlock_as_glibc`], if there is that way.
    pub(crate) fn unlock_as_glibc(&self) {
        let me = self.released();
        if !self.lock.unlock_as_glibc(me) {
            self.lock.unlock(me);
        }
    }

    /// The calling thread is about to release.
    fn released(&self) -> Tid {
        let e = engine();
        let me = e.me();
        self.stamp.set(e.orders.write(me, None));
        if let Some((thread, asked_ps, start_ps)) = self.holder.take()
            && let Some(timeline) = &mut e.timeline
        {
            let lock = self.number;
            timeline.hold(Hold { lock, thread, asked_ps, start_ps, end_ps: e.now });
        }
        me
    }
}
