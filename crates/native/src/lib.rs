//! The Linux machine: core's atomics, futexes, the monotonic clock, and what the kernel says about the CPUs.
//!
//! `no_std` and without allocation, because it runs inside other people's programs: before their
//! constructors, inside their signal handlers, after their forks.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod access;
pub mod arena;
pub mod cpus;
mod file;
pub mod futex;
pub mod kernel;
pub mod pause;
pub mod place;
pub mod policies;
pub mod relax;
pub mod signals;
pub mod symbol;
pub mod topology;
pub mod urgency;

pub use futex::{Clock, Deadline};
pub use relax::ask_now_and_then;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use lockwright_platform::hooks::{Context, Hook, Node};
use lockwright_platform::{
    Class, Door, Doors, FOLLOWERS, Learning, MEMOS, Memo, Numbered, Ordering, Place, Platform,
    Priorities, Programmable, Ptr, Publishing, ReaderTable, Requeue, Stages, Undisturbed, Unique,
    Woken, Word, numbered,
};

/// The machine itself.
#[derive(Debug)]
pub struct Native;

/// The number of looks between two readings of the clock: one look takes about 25 to 60 ns.
const LOOKS_PER_CLOCK: u32 = 8;

/// An unbounded wait yields the CPU after this many looks, and then at each further look: with more
/// threads than CPUs the thread that we wait for may need this very CPU. (The published textbook locks would spin on.)
const LOOKS_BEFORE_YIELD: u32 = 4096;

// Functions that only pass a call on are always inlined: a wait is a chain of short steps, and each such call would be one more.
impl Platform for Native {
    type Word = Atomic32;
    type Ptr<T> = AtomicAddress<T>;
    type Deadline = Deadline;

    #[inline]
    fn spin_until(word: &Atomic32, order: Ordering, done: impl Fn(u32) -> bool) -> u32 {
        let mut looks = 0;
        loop {
            let value = word.load(order);
            if done(value) {
                return value;
            }
            // Relaxed: a hint, the next look decides.
            let is_same = || word.load(Ordering::Relaxed) == value;
            relax::or_yield(&mut looks, LOOKS_BEFORE_YIELD, word.as_ptr().cast(), is_same);
        }
    }

    #[inline]
    fn spin_until_ptr<T>(
        ptr: &AtomicAddress<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T {
        let mut looks = 0;
        loop {
            let value = ptr.load(order);
            if done(value) {
                return value;
            }
            let is_same = || ptr.load(Ordering::Relaxed) == value; // a hint, the next look decides
            let address = core::ptr::from_ref(ptr).cast();
            relax::or_yield(&mut looks, LOOKS_BEFORE_YIELD, address, is_same);
        }
    }

    #[inline]
    fn spin_for(
        word: &Atomic32,
        order: Ordering,
        ns: u32,
        mut done: impl FnMut(u32) -> bool,
    ) -> u32 {
        let mut value = word.load(order);
        if done(value) || ns == 0 {
            return value;
        }
        let end = Self::now() + u64::from(ns);
        loop {
            for _ in 0..LOOKS_PER_CLOCK / pause::looks() {
                // Relaxed: a hint, the next look decides.
                pause::once(word.as_ptr().cast(), || word.load(Ordering::Relaxed) == value);
                value = word.load(order);
                if done(value) {
                    return value;
                }
            }
            if Self::now() >= end {
                let value = word.load(order);
                done(value);
                return value;
            }
        }
    }

    fn pause(ns: u32) {
        relax::ask();
        let end = Self::now() + u64::from(ns);
        let nobody_writes = 0u8;
        while Self::now() < end {
            pause::once(&nobody_writes, || true);
        }
    }

    #[inline(always)]
    fn park(word: &Atomic32, seen: u32, deadline: Option<Deadline>) -> Woken {
        // Without a deadline nobody minds to wake up for nothing.
        let asks = relax::ask() && deadline.is_none();
        let deadline = if asks { Some(Deadline::after(relax::ASK_NS)) } else { deadline };
        match futex::wait(word.as_ptr(), seen, deadline, futex::Sleeper::Own) {
            Woken::TimedOut if asks => Woken::Maybe,
            woken => woken,
        }
    }

    #[inline(always)]
    fn unpark(word: *const Atomic32, count: u32) {
        futex::wake(word.cast(), count);
    }

    #[inline(always)]
    fn now() -> u64 {
        futex::now(Clock::Monotonic)
    }

    fn give_way() {
        futex::yield_cpu();
    }

    #[inline(always)]
    fn after(ns: u32) -> Deadline {
        Deadline::after(u64::from(ns))
    }

    fn sooner(one: Deadline, other: Deadline) -> Deadline {
        if one.left() <= other.left() { one } else { other }
    }

    #[inline(always)]
    fn place() -> Place {
        place::among_usable()
    }

    fn cpus() -> u32 {
        cpus::usable()
    }

    #[inline(always)]
    fn take_line() -> *mut u8 {
        arena::take()
    }

    #[inline(always)]
    fn is_line_ours(line: *const u8) -> bool {
        arena::is_ours(line)
    }

    #[inline(always)]
    fn load_to_write(word: &Self::Word) -> u32 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; a processor without it ignores it.
        unsafe {
            core::arch::asm!(
                "prefetchw byte ptr [{word}]",
                word = in(reg) word,
                options(nostack, readonly, preserves_flags),
            );
        }
        word.load(Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn give_line(line: *mut u8) {
        // SAFETY: the caller's promise is the same as ours.
        unsafe { arena::give(line) }
    }
}

impl Requeue for Native {
    #[inline(always)]
    fn park_movable(word: &Atomic32, seen: u32, deadline: Option<Deadline>) -> Woken {
        futex::wait(word.as_ptr(), seen, deadline, futex::Sleeper::Movable)
    }

    #[inline(always)]
    fn unpark_moved(word: *const Atomic32, count: u32) -> u32 {
        futex::wake_movable(word.cast(), count)
    }

    fn requeue(from: *const Atomic32, seen: u32, to: *const Atomic32, count: u32) -> u32 {
        futex::requeue(from.cast(), seen, to.cast(), count)
    }
}

impl Learning for Native {
    fn memo<R>(index: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        static ALL: [Memo<Native>; MEMOS] = [const { Memo([const { Atomic32::of(0) }; 8]) }; MEMOS];
        ALL.get(index).map(look)
    }

    #[inline(always)]
    fn speed(class: Class) -> u32 {
        place::speed(class)
    }
}

impl Doors for Native {
    #[inline]
    fn door<R>(cluster: u16, lock: usize, look: impl FnOnce(&Door<Self>) -> R) -> Option<R> {
        static ALL: [[Door<Native>; DOORS]; CLUSTERS] =
            [const { [const { closed() }; DOORS] }; CLUSTERS];
        if place::clusters() < 2 {
            return None;
        }
        // Mutexes often lie 40 bytes, a cache line or a page apart.
        let door = (lock / 8) ^ (lock / 512) ^ (lock / 4096);
        Some(look(&ALL[usize::from(cluster) % CLUSTERS][door % DOORS]))
    }
}

/// So many clusters have doors of their own; more share them.
const CLUSTERS: usize = 32;

/// The doors of a cluster.
const DOORS: usize = 16;

/// A door that nobody has opened.
const fn closed() -> Door<Native> {
    Door {
        word: Atomic32::of(0),
        era: Atomic32::of(0),
        left: Atomic32::of(0),
        lock: AtomicAddress::null(),
        leader: AtomicAddress::null(),
        followers: [const { AtomicAddress::null() }; FOLLOWERS],
    }
}

impl ReaderTable for Native {
    const ROWS: usize = 512;

    #[inline]
    fn shown<R>(slot: usize, look: impl FnOnce(&AtomicAddress<u8>) -> R) -> Option<R> {
        /// A cache line.
        #[repr(align(64))]
        struct ShownLine([AtomicAddress<u8>; Native::ROW]);
        static ALL: [ShownLine; Native::ROWS] =
            [const { ShownLine([const { AtomicAddress::null() }; Native::ROW]) }; Native::ROWS];
        Some(look(&ALL.get(slot / Native::ROW)?.0[slot % Native::ROW]))
    }

    #[inline]
    fn departures<R>(look: impl FnOnce(&Atomic32) -> R) -> Option<R> {
        /// Alone in its cache line: readers only look at it, as a rule.
        #[repr(align(128))]
        struct Alone(Atomic32);
        static DEPARTURES: Alone = Alone(Atomic32::of(0));
        Some(look(&DEPARTURES.0))
    }
}

impl Programmable for Native {
    #[inline]
    fn hooks(policy: u32) -> u32 {
        policies::hooks(policy)
    }

    #[inline]
    fn ask(policy: u32, hook: Hook, context: &Context) -> u64 {
        policies::ask(policy, hook, context)
    }

    fn describe() -> Node {
        let place = Self::place();
        let mut node = Node {
            cpu: place.cpu,
            numa: place.domain.into(),
            core_class: place.class.0.into(),
            speed: Self::speed(place.class),
            ..Node::default()
        };
        policies::describe(&mut node);
        node
    }

    #[inline(always)]
    fn boost(holder: u32) {
        policies::boost(holder);
    }

    #[inline(always)]
    fn unboost() {
        policies::unboost();
    }
}

impl Publishing for Native {}

// SAFETY: threads that run at the same time have their descriptors in different places.
unsafe impl Numbered for Native {
    #[inline]
    fn number() -> usize {
        // SAFETY: it reads a register.
        unsafe { libc::pthread_self() as usize }
    }
}

impl Priorities for Native {
    #[inline]
    fn is_urgent(now: u64) -> bool {
        urgency::is_urgent(now)
    }

    #[inline(always)]
    fn park_urgent(word: &Atomic32, seen: u32, deadline: Option<Deadline>) -> Woken {
        futex::wait(word.as_ptr(), seen, deadline, futex::Sleeper::Any)
    }

    fn urge(word: *const Atomic32) {
        urgency::urge(word.cast());
    }

    #[inline(always)]
    fn urged() -> *const Atomic32 {
        urgency::urged().cast()
    }

    fn has_looked(word: *const Atomic32) {
        urgency::has_looked(word.cast());
    }
}

impl Stages for Native {}

impl Unique for Native {
    /// A source for each CPU, or for some: no thread-locals here.
    #[inline]
    fn unique() -> usize {
        /// In a cache line of its own.
        #[repr(align(128))]
        struct Source(AtomicUsize);
        const SOURCES: usize = 64;
        static ALL: [Source; SOURCES] = [const { Source(AtomicUsize::new(0)) }; SOURCES];
        let source = place::cpu() as usize % SOURCES;
        // Relaxed: the number carries no message.
        numbered(source, SOURCES, ALL[source].0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Undisturbed for Native {
    fn undisturbed<R>(run: impl FnOnce() -> R) -> Option<R> {
        signals::blocked(run)
    }
}

/// Core's 32-bit atomic; it can lie over a word of a `pthread_mutex_t`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Atomic32(AtomicU32);

impl Atomic32 {
    /// A word that holds `value`, in a constant.
    pub const fn of(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// Its address.
    pub fn as_ptr(&self) -> *const u32 {
        self.0.as_ptr()
    }
}

impl Word for Atomic32 {
    #[inline(always)]
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }
    #[inline(always)]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    #[inline(always)]
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(value, order)
    }
    #[inline(always)]
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_or(bits, order)
    }
    #[inline(always)]
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_and(bits, order)
    }
}

/// Core's atomic pointer.
#[repr(transparent)]
pub struct AtomicAddress<T>(AtomicPtr<T>);

impl<T> AtomicAddress<T> {
    /// A null pointer, in a constant.
    pub const fn null() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }
}

impl<T> Ptr<T> for AtomicAddress<T> {
    #[inline(always)]
    fn new(value: *mut T) -> Self {
        Self(AtomicPtr::new(value))
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> *mut T {
        self.0.load(order)
    }
    #[inline(always)]
    fn store(&self, value: *mut T, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.0.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
