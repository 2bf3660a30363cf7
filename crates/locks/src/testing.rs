//! A machine for unit tests: std's atomics and threads. Sleeping is a spurious wake-up, which is legal.
//!
//! The models check what matters about a lock. Here we only check that zeroed memory works and that the code runs.
#![allow(
    clippy::disallowed_types,
    reason = "this is a machine, the one place in this crate that may name core's atomics"
)]

extern crate std;

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use lockwright_platform::{
    Class, Door, Doors, InPlace, Learning, MEMOS, Memo, Numbered, Ordering, Place, Platform,
    Priorities, Programmable, Ptr, Publishing, ReaderTable, Requeue, Sections, Stages, TryLock,
    Undisturbed, Unique, Woken, Word, numbered,
};
use std::alloc::Layout;
use std::thread;

/// Operating-system threads. Each has a clock of its own, which pauses and sleeps advance. They run on cores of
/// classes 0 and 1, by turns; the cores of a class are a domain.
pub(crate) struct Threads;

std::thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    static CLASS: Cell<u8> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) as u8 % 2);
}
std::thread_local! {
    static NUMBER: usize = NUMBERS.fetch_add(1, Ordering::Relaxed) as usize;
}
static NUMBERS: AtomicU32 = AtomicU32::new(1);
/// Those with a number.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// From now on the calling thread runs on a core of this class.
pub(crate) fn run_on(class: u8) {
    CLASS.set(class);
}

std::thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
    /// What happens then; `None`: the operation is torn.
    static MEANWHILE: Cell<Option<*mut dyn FnMut()>> = const { Cell::new(None) };
}

/// The payload with which a torn operation unwinds.
struct Torn;

/// One more operation of the calling thread on an atomic.
fn step() {
    let left = STEPS.get();
    STEPS.set(left.saturating_sub(1));
    if left != 1 {
        return;
    }
    if let Some(other) = MEANWHILE.take() {
        // SAFETY: `interrupted` set it, and has not returned.
        unsafe { (*other)() };
    } else {
        std::panic::resume_unwind(std::boxed::Box::new(Torn));
    }
}

/// Runs `operation` until right before its `at`-th access to an atomic, as if a signal handler interrupted it there and did
/// not return. `None`: it was torn; otherwise it had fewer accesses.
pub(crate) fn torn<R>(at: u32, operation: impl FnOnce() -> R) -> Option<R> {
    STEPS.set(at);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(operation));
    STEPS.set(0);
    result.map_err(|payload| assert!(payload.is::<Torn>(), "it panicked by itself")).ok()
}

/// Runs `operation`, and `other` right before its `at`-th access to an atomic, as if it lost its CPU there to another thread. `None`: it
/// had fewer accesses, and `other` did not run.
pub(crate) fn interrupted<R>(
    at: u32,
    mut other: impl FnMut() + 'static,
    operation: impl FnOnce() -> R,
) -> Option<R> {
    MEANWHILE.set(Some(&raw mut other));
    STEPS.set(at);
    let result = operation();
    STEPS.set(0);
    MEANWHILE.take().is_none().then_some(result)
}

pub(crate) struct Word32(AtomicU32);
pub(crate) struct Pointer<T>(AtomicPtr<T>);

impl Word for Word32 {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load(&self, order: Ordering) -> u32 {
        step();
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        step();
        self.0.store(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        step();
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, old: u32, new: u32, ok: Ordering, no: Ordering) -> Result<u32, u32> {
        step();
        self.0.compare_exchange(old, new, ok, no)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_sub(value, order)
    }
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_and(bits, order)
    }
}

impl<T> Ptr<T> for Pointer<T> {
    fn new(value: *mut T) -> Self {
        Self(AtomicPtr::new(value))
    }
    fn load(&self, order: Ordering) -> *mut T {
        step();
        self.0.load(order)
    }
    fn store(&self, value: *mut T, order: Ordering) {
        step();
        self.0.store(value, order);
    }
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        step();
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        old: *mut T,
        new: *mut T,
        ok: Ordering,
        no: Ordering,
    ) -> Result<*mut T, *mut T> {
        step();
        self.0.compare_exchange(old, new, ok, no)
    }
}

const LINE: Layout = match Layout::from_size_align(128, 128) {
    Ok(layout) => layout,
    Err(_) => panic!("128 is a power of two"),
};

std::thread_local! {
    static FORKS: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// How often the calling thread has [forked](fork).
pub(crate) fn forks() -> usize {
    FORKS.get()
}

/// From now on the calling thread is that of a forked child.
pub(crate) fn fork() {
    FORKS.set(forks() + 1);
}

impl Platform for Threads {
    type Word = Word32;
    type Ptr<T> = Pointer<T>;
    type Deadline = u64;

    fn spin_until(word: &Word32, order: Ordering, done: impl Fn(u32) -> bool) -> u32 {
        loop {
            let value = word.load(order);
            if done(value) {
                return value;
            }
            thread::yield_now();
        }
    }

    fn spin_until_ptr<T>(
        ptr: &Pointer<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T {
        loop {
            let value = ptr.load(order);
            if done(value) {
                return value;
            }
            thread::yield_now();
        }
    }

    fn spin_for(
        word: &Word32,
        order: Ordering,
        _ns: u32,
        mut done: impl FnMut(u32) -> bool,
    ) -> u32 {
        let value = word.load(order);
        done(value);
        value
    }

    fn pause(ns: u32) {
        CLOCK.set(CLOCK.get() + u64::from(ns));
        thread::yield_now();
    }

    fn park(_word: &Word32, _seen: u32, deadline: Option<Self::Deadline>) -> Woken {
        thread::yield_now();
        match deadline {
            Some(end) => {
                CLOCK.set(end.max(CLOCK.get()));
                Woken::TimedOut
            }
            None => Woken::Maybe,
        }
    }

    fn unpark(_word: *const Word32, _count: u32) {}

    fn now() -> u64 {
        CLOCK.get()
    }

    fn after(ns: u32) -> Self::Deadline {
        CLOCK.get() + u64::from(ns)
    }

    fn sooner(one: u64, other: u64) -> u64 {
        one.min(other)
    }

    fn place() -> Place {
        Place { cpu: 0, class: Class(CLASS.get()), domain: CLASS.get().into() }
    }

    fn cpus() -> u32 {
        2
    }

    /// Its last word says how many forks there were.
    fn take_line() -> *mut u8 {
        // SAFETY: the layout is not empty, and has room for a word behind the usable bytes.
        unsafe {
            let line = std::alloc::alloc_zeroed(LINE);
            line.add(Self::LINE).cast::<usize>().write(forks());
            line
        }
    }

    fn is_line_ours(line: *const u8) -> bool {
        // SAFETY: written by `take_line`.
        unsafe { line.add(Self::LINE).cast::<usize>().read() == forks() }
    }

    unsafe fn give_line(_line: *mut u8) {} // never freed: lines must stay readable
}

impl Requeue for Threads {
    fn park_movable(word: &Word32, seen: u32, deadline: Option<Self::Deadline>) -> Woken {
        Self::park(word, seen, deadline)
    }

    fn unpark_moved(_word: *const Word32, _count: u32) -> u32 {
        0
    }

    fn requeue(_from: *const Word32, _seen: u32, _to: *const Word32, _count: u32) -> u32 {
        0
    }
}

impl Learning for Threads {
    /// Each thread has memos of its own: tests run side by side.
    fn memo<R>(index: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        MEMO.with(|memos| memos.get(index).map(look))
    }
}

impl Doors for Threads {
    fn door<R>(cluster: u16, lock: usize, look: impl FnOnce(&Door<Self>) -> R) -> Option<R> {
        static ALL: std::sync::LazyLock<std::vec::Vec<Door<Threads>>> =
            std::sync::LazyLock::new(|| (0..128).map(|_| Door::closed()).collect());
        Some(look(&ALL[usize::from(cluster) % 2 * 64 + lock / 8 % 64]))
    }
}

impl ReaderTable for Threads {}

impl Programmable for Threads {}

impl Publishing for Threads {}

// SAFETY: threads are counted, and the numbers aren't used again.
unsafe impl Numbered for Threads {
    fn number() -> usize {
        NUMBER.with(|&number| number)
    }
}

impl Priorities for Threads {}

impl Stages for Threads {}

impl Unique for Threads {
    fn unique() -> usize {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        numbered(0, 1, NUMBERS.fetch_add(1, Ordering::Relaxed))
    }
}

impl Undisturbed for Threads {
    fn undisturbed<R>(run: impl FnOnce() -> R) -> Option<R> {
        let left = STEPS.replace(0);
        let result = run();
        STEPS.set(left);
        Some(result)
    }
}

std::thread_local! {
    static MEMO: std::vec::Vec<Memo<Threads>> =
        (0..MEMOS).map(|_| Memo(core::array::from_fn(|_| Word32(AtomicU32::new(0))))).collect();
}

/// Zeroed memory, with the size and alignment that a `pthread_mutex_t` offers, works as an unlocked lock.
pub(crate) fn lives_in_zeroed_memory<L: TryLock<Threads> + InPlace>() {
    const { assert!(size_of::<L>() <= 8 && align_of::<L>() <= 8) }
    assert!(!core::mem::needs_drop::<L>());
    let memory = 0_u64;
    // SAFETY: InPlace: large enough, aligned, zero is unlocked.
    let lock: &L = unsafe { &*(&raw const memory).cast() };
    let (mut mine, mut other) = (L::Node::default(), L::Node::default());
    // SAFETY: both nodes outlive their use; each unlock follows a lock with the same node.
    unsafe {
        for _ in 0..2 {
            assert!(lock.try_lock(&mut mine), "free");
            assert!(!lock.try_lock(&mut other), "held");
            lock.unlock(&mut mine);
            lock.lock(&mut other);
            assert!(!lock.try_lock(&mut mine), "held");
            lock.unlock(&mut other);
        }
    }
}

/// Four threads increment a plain counter under the lock.
pub(crate) fn counts_right<L: Sections<Threads>>() {
    const ROUNDS: u64 = 2_000;
    struct Shared<L> {
        lock: L,
        counter: core::cell::UnsafeCell<u64>,
    }
    // SAFETY: the counter is only touched under the lock.
    unsafe impl<L: Sync> Sync for Shared<L> {}
    let shared = Shared { lock: L::new(), counter: core::cell::UnsafeCell::new(0) };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let shared = &shared;
                let mut node = L::Node::default();
                for _ in 0..ROUNDS {
                    // SAFETY: the node outlives the section; the counter is the section's own while it runs.
                    unsafe { shared.lock.with(&mut node, || *shared.counter.get() += 1) };
                }
            });
        }
    });
    assert_eq!(shared.counter.into_inner(), 4 * ROUNDS);
}

#[test]
fn a_section_that_unwinds_leaves_the_lock_free() {
    use crate::queue::mcs::Lock as Mcs;
    let lock = <Mcs<Threads> as Sections<Threads>>::new();
    let panics = || -> u32 { std::panic::resume_unwind(std::boxed::Box::new("no harm")) };
    let mut node = Default::default();
    let node = &raw mut node;
    // SAFETY: the node outlives every section, which come one after another.
    unsafe {
        let with = std::panic::AssertUnwindSafe(|| lock.with(node, panics));
        assert!(std::panic::catch_unwind(with).is_err());
        let with = std::panic::AssertUnwindSafe(|| lock.try_with(node, panics));
        assert!(std::panic::catch_unwind(with).is_err());
        assert_eq!(lock.try_with(node, || 7), Some(7), "free");
        assert_eq!(lock.with(node, || lock.try_with(&mut Default::default(), || 8)), None, "held");
    }
}
