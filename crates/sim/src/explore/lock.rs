//! Locks of the catalogue on the machine of explorations. Each acquisition has its own node, which ends right after it.

use super::memory::Explored;
use crate::any_lock::{AnyLock, Carried, Nodes, Sent};
use crate::lock::LockSpec;
use crate::published;
use crate::units::Tid;
use lockwright_locks::catalog::{
    DelegatedVisitor, FrontVisitor, Visitor, visit_all, visit_delegated, visit_front,
};
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::front::{Alone, HELD, Rule, Tuning, fifo};
use lockwright_locks::front::{View, lock_as_glibc};
use lockwright_locks::torn::torn_wait;
use lockwright_platform::{Delegated, Machine, Platform, RawLock, Sections, TimedLock, TryLock};
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;

type Node<L> = <L as Sections<Explored>>::Node;
/// What glibc's own code may do to a front lock, because word 0 is glibc's.
struct OnWord<L: RawLock<Explored>> {
    /// Sleeps on the word, until a deadline if there is one.
    lock: fn(&L, *mut Node<L>, Option<<Explored as Platform>::Deadline>) -> bool,
    /// Releases.
    unlock: fn(&L),
    /// Joins the line and is torn out of its wait.
    torn_wait: fn(&L, bool, Option<<Explored as Platform>::Deadline>),
}

/// A lock, and where its words are.
pub(super) type Made = (Box<dyn AnyLock>, (usize, usize));

struct Typed<L: RawLock<Explored>> {
    lock: L,
    on_word: Option<OnWord<L>>,
    /// Each thread's current node.
    current: Vec<Cell<*mut Node<L>>>,
    /// Ended nodes. Their memory stays until the lock ends, so that late uses are noticed.
    ended: RefCell<Vec<Box<MaybeUninit<Node<L>>>>>,
}

impl<L: TryLock<Explored> + 'static> Typed<L> {
    fn boxed(lock: L, on_word: Option<OnWord<L>>, threads: usize) -> Made {
        let current = (0..threads).map(|_| Cell::new(std::ptr::null_mut())).collect();
        let made = Box::new(Self { lock, on_word, current, ended: RefCell::default() });
        let start = std::ptr::from_ref(&made.lock).addr();
        (made, (start, start + size_of::<L>()))
    }

    fn begin(&self, thread: Tid) -> *mut Node<L> {
        let node = Box::into_raw(Box::new(Node::<L>::default()));
        self.current[thread as usize].set(node);
        node
    }

    fn end(&self, thread: Tid) {
        let node = self.current[thread as usize].get();
        // SAFETY: created by `begin`, and ended once; its memory stays.
        unsafe {
            node.drop_in_place();
            self.ended.borrow_mut().push(Box::from_raw(node.cast::<MaybeUninit<Node<L>>>()));
        }
    }
}

impl<L: TryLock<Explored> + 'static> AnyLock for Typed<L> {
    fn lock(&self, thread: Tid, window_ns: u32) {
        let node = self.begin(thread);
        // SAFETY: the node is this acquisition's own.
        unsafe { self.lock.lock_in_front(node, window_ns, || true) }
    }

    fn try_lock(&self, thread: Tid) -> bool {
        let node = self.begin(thread);
        // SAFETY: as above.
        let got = unsafe { self.lock.try_lock(node) };
        if !got {
            self.end(thread);
        }
        got
    }

    fn lock_on_word(&self, thread: Tid, ns: Option<u32>) -> Option<bool> {
        let on_word = self.on_word.as_ref()?;
        let node = self.begin(thread);
        let got = (on_word.lock)(&self.lock, node, ns.map(Explored::after));
        if !got {
            self.end(thread);
        }
        Some(got)
    }

    fn torn_wait(&self, asleep: bool, ns: Option<u32>) -> bool {
        if let Some(on_word) = &self.on_word {
            (on_word.torn_wait)(&self.lock, asleep, ns.map(Explored::after));
        }
        self.on_word.is_some()
    }

    fn unlock_as_glibc(&self, thread: Tid) -> bool {
        if let Some(on_word) = &self.on_word {
            (on_word.unlock)(&self.lock);
            self.end(thread);
        }
        self.on_word.is_some()
    }

    fn unlock(&self, thread: Tid) {
        // SAFETY: as above; the caller holds it.
        unsafe { self.lock.unlock(self.current[thread as usize].get()) };
        self.end(thread);
    }

    fn with(&self, thread: Tid, window_ns: u32, section: Carried<'_>) {
        let node = self.begin(thread);
        // SAFETY: as above.
        unsafe { self.lock.with_window(node, window_ns, || section.run()) };
        self.end(thread);
    }
}

struct Making<'a> {
    spec: &'a LockSpec,
    entry: &'static Entry,
    threads: usize,
    made: Option<Made>,
}

impl FrontVisitor<Explored> for Making<'_> {
    fn visit<R: Rule<Explored>>(&mut self, entry: &'static Entry, defaults: fn(Tuning) -> Tuning) {
        if std::ptr::eq(entry, self.entry) {
            let tuning = self.spec.tuned_for::<Explored>(defaults);
            self.made = Some(front::<R>(tuning, self.threads));
        }
    }
}

impl Visitor<Explored> for Making<'_> {
    fn visit<L: TryLock<Explored> + 'static>(&mut self, entry: &'static Entry) {
        if std::ptr::eq(entry, self.entry) {
            self.made = Some(Typed::boxed(L::new(), None, self.threads));
        }
    }
}

impl DelegatedVisitor<Explored> for Making<'_> {
    fn visit<L: Delegated<Explored> + 'static>(&mut self, entry: &'static Entry) {
        if std::ptr::eq(entry, self.entry) {
            let made = Box::new(Sent::<Explored, L, _>::new(OwnEach::default()));
            let start = std::ptr::from_ref(&*made).addr();
            let end = start + size_of_val(&*made);
            self.made = Some((made, (start, end)));
        }
    }
}

/// Each section has a node of its own, which ends right after it. The memory stays, so that late uses are noticed.
struct OwnEach<N>(RefCell<Vec<Box<MaybeUninit<N>>>>);

impl<N> Default for OwnEach<N> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<N: Default> Nodes<N> for OwnEach<N> {
    fn with(&self, _: Tid, with: impl FnOnce(*mut N)) {
        let node = Box::into_raw(Box::new(N::default()));
        with(node);
        // SAFETY: made above, and ended once; its memory stays.
        unsafe {
            node.drop_in_place();
            self.0.borrow_mut().push(Box::from_raw(node.cast::<MaybeUninit<N>>()));
        }
    }
}

/// How many threads have to serve this lock.
pub(super) fn servers(spec: &LockSpec) -> u32 {
    struct Served(Option<&'static Entry>, u32);
    impl DelegatedVisitor<Explored> for Served {
        fn visit<L: Delegated<Explored> + 'static>(&mut self, entry: &'static Entry) {
            if self.0.is_some_and(|asked| std::ptr::eq(asked, entry)) {
                self.1 = L::SERVERS * L::POOL;
            }
        }
    }
    let mut asked = Served(spec.entry(), 0);
    visit_delegated::<Explored>(&mut asked);
    asked.1
}

/// Does this lock's rule choose who is next? That takes more threads than other decisions.
pub(super) fn chooses(spec: &LockSpec) -> bool {
    struct Asked(Option<&'static Entry>, bool);
    impl FrontVisitor<Explored> for Asked {
        fn visit<R: Rule<Explored>>(&mut self, entry: &'static Entry, _: fn(Tuning) -> Tuning) {
            self.1 |= R::AHEAD > 0 && self.0.is_some_and(|asked| std::ptr::eq(asked, entry));
        }
    }
    let mut asked = Asked(spec.entry(), false);
    visit_front::<Explored>(&mut asked);
    asked.1
}

pub(super) fn front<R: Rule<Explored>>(tuning: Tuning, threads: usize) -> Made {
    let lock = Alone::<Explored, R>::tuned(tuning);
    let on_word: OnWord<Alone<Explored, R>> = OnWord {
        lock: |lock, node, deadline| match deadline {
            // SAFETY: the node is this acquisition's own.
            Some(end) => unsafe { lock.lock_until(node, end) },
            None => {
                lock_as_glibc(&lock.parts(), 0);
                true
            }
        },
        unlock: |lock| {
            let parts = lock.parts();
            if parts.word.release_as_glibc() > HELD {
                Explored::unpark(parts.word.address(), 1);
            }
        },
        torn_wait: |lock, asleep, deadline| {
            torn_wait(&lock.parts(), lock.tuning(), asleep, deadline);
        },
    };
    Typed::boxed(lock, Some(on_word), threads)
}

/// Boxes a lock for this many threads.
struct Boxing(usize);

impl published::Visitor<Explored> for Boxing {
    type Made = Made;
    fn visit<L: TryLock<Explored> + 'static>(self, lock: L) -> Made {
        Typed::boxed(lock, None, self.0)
    }
}

/// An unlocked lock for `threads` threads.
pub(super) fn make(spec: &LockSpec, threads: usize) -> Made {
    let Some(entry) = spec.entry() else {
        return Typed::boxed(Glibc::<Explored>::new(), None, threads);
    };
    if let Some(made) = published::make(entry, |key| spec.value(key), Boxing(threads)) {
        return made;
    }
    let mut making = Making { spec, entry, threads, made: None };
    match entry.kind {
        Kind::Front => visit_front::<Explored>(&mut making),
        Kind::Delegated => visit_delegated::<Explored>(&mut making),
        Kind::Whole | Kind::ReadWrite => visit_all::<Explored>(&mut making),
    }
    making.made.expect("every lock of the catalogue is visited")
}

/// glibc's algorithm on a front lock's memory: a thread that finds the lock taken sleeps, and tries again when it is
/// woken.
struct Glibc<P: Machine>(Alone<P, fifo::Lock>);

impl<P: Machine> Sections<P> for Glibc<P> {
    type Node = ();

    fn new() -> Self {
        Self(Alone::new())
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Machine> RawLock<P> for Glibc<P> {
    unsafe fn lock(&self, _: *mut ()) {
        let parts = self.0.parts();
        if !parts.word.try_take() {
            lock_as_glibc(&parts, 0);
        }
    }

    unsafe fn unlock(&self, _: *mut ()) {
        let (parts, tuning) = (self.0.parts(), self.0.tuning());
        if !parts.word.give() {
            View::new(&parts, tuning).release();
        }
    }
}

impl<P: Machine> TryLock<P> for Glibc<P> {
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        self.0.parts().word.try_take()
    }
}
