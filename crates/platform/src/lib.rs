//! The narrow waist: what a lock may ask of a machine, and what a lock offers.
//!
//! ```text
//!        locks  (one file each, generic over Platform)
//!          │
//!     ┌────▼─────┐
//!     │ Platform │  atomics · waiting · sleeping · clock · place
//!     └────▲─────┘
//!   ┌──────┼────────┬──────────┐
//! native  loom   shuttle   simulator
//! ```
//!
//! A lock says *what* it waits for; the machine decides *how*: spin, pause, sleep, explore, or advance
//! virtual time. That is why one lock file runs in a process, in the model checkers and in the simulator.
#![no_std]

pub mod hooks;
mod lock;
mod place;

pub use core::sync::atomic::Ordering;
pub use lock::{Held, InPlace, Probe, RawLock, Sections, TimedLock, TryLock};
pub use place::{Class, Place};

/// A 32-bit atomic, small enough to be a futex.
///
/// The same operations, with the same meaning, as `core::sync::atomic::AtomicU32`.
pub trait Word: Send + Sync {
    /// A word that holds `value`.
    fn new(value: u32) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> u32;
    /// Writes.
    fn store(&self, value: u32, order: Ordering);
    /// Writes `value`; returns the old value.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Writes `new` if the word holds `current`; never fails spuriously. Returns the old value either way.
    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// Adds (wrapping); returns the old value.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Subtracts (wrapping); returns the old value.
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;
    /// Sets bits; returns the old value.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    /// Keeps only `bits`; returns the old value.
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32;
}

/// An atomic pointer. The same meaning as `core::sync::atomic::AtomicPtr<T>`.
pub trait Ptr<T>: Send + Sync {
    /// A cell that holds `value`.
    fn new(value: *mut T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> *mut T;
    /// Writes.
    fn store(&self, value: *mut T, order: Ordering);
    /// Writes `value`; returns the old value.
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T;
    /// Writes `new` if the cell holds `current`; never fails spuriously.
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T>;
}

/// Why [`Platform::park`] returned. Wake-ups may be spurious: look at the word again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Somebody woke us, or the word had changed, or it was a spurious wake-up.
    Maybe,
    /// The deadline passed before anybody woke us.
    TimedOut,
}

/// The stages of a thread that waits in a front lock's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is in the line.
    Joined,
    /// It got the lock through the line, under a rule that chooses who is next. So it came before any later head, even if that
    /// thread joined first.
    Chosen,
    /// It is the head of the line, and isn't napping (any more).
    Head,
    /// It is the head, and leaves the lock to others for a bounded time.
    Naps,
    /// It took the lock past a head that [`Naps`](Self::Naps) at this moment, or isn't awake yet.
    Passed,
}

/// What a lock notes about itself, in a cache line of its own.
#[repr(align(128))]
pub struct Memo<P: Platform>(pub [P::Word; 8]);

/// The [`Platform::speed`] of the fastest cores.
pub const FULL_SPEED: u32 = 1024;

/// The number of memos.
pub const MEMOS: usize = 256;

/// A machine: everything a lock may ask for.
pub trait Platform: Sized + Send + Sync + 'static {
    /// Its 32-bit atomic.
    type Word: Word;
    /// Its atomic pointer.
    type Ptr<T>: Ptr<T>;
    /// A point in time that ends a wait.
    type Deadline: Copy + Send + Sync;

    /// Waits, awake and without a bound, until `done(value)`; returns that value, read with `order`.
    ///
    /// It assumes that the other thread is running. Use it only for short hand-overs, and in locks that were published as
    /// pure spin locks.
    fn spin_until(word: &Self::Word, order: Ordering, done: impl Fn(u32) -> bool) -> u32;

    /// As [`spin_until`](Self::spin_until), for a pointer.
    fn spin_until_ptr<T>(
        ptr: &Self::Ptr<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T;

    /// Waits awake, for about `ns` nanoseconds at most, until `done(value)`; returns the value read last.
    ///
    /// It looks at least once, so `ns == 0` means one load. Model checkers look once or twice, whatever `ns` is.
    /// It calls `done` at each look, so `done` may itself try to take the word (by a compare-and-swap).
    fn spin_for(word: &Self::Word, order: Ordering, ns: u32, done: impl FnMut(u32) -> bool) -> u32;

    /// A relaxed read of a word whose cache line the calling thread will soon write. A machine that fetches the line for
    /// writing at once moves it between cores once, not twice.
    fn load_to_write(word: &Self::Word) -> u32 {
        word.load(Ordering::Relaxed)
    }

    /// Lets about `ns` nanoseconds pass, awake, without memory traffic (for exponential back-off).
    fn pause(ns: u32);

    /// Sleeps while `word == seen`, until [`unpark`](Self::unpark) or the deadline. May return early.
    ///
    /// If the word has changed, it returns at once. Comparing and falling asleep are atomic with respect to `unpark` on the
    /// same word.
    fn park(word: &Self::Word, seen: u32, deadline: Option<Self::Deadline>) -> Woken;

    /// Wakes at most `count` threads that sleep on `word`: by priority, then in the order of arrival.
    ///
    /// It uses only the address, so the word may be gone by now. Then it may wake nobody, or a thread that waits for
    /// something else at the same address (which must look again).
    fn unpark(word: *const Self::Word, count: u32);

    /// As [`park`](Self::park). After [`requeue`](Self::requeue) has moved the sleeper,
    /// [`unpark_moved`](Self::unpark_moved) can tell it from threads that fell asleep there themselves.
    fn park_movable(word: &Self::Word, seen: u32, deadline: Option<Self::Deadline>) -> Woken;

    /// As [`unpark`](Self::unpark), but wakes only threads that sleep by [`park_movable`](Self::park_movable). Other
    /// sleepers don't take these wakes, whatever their priorities. Returns how many it woke.
    fn unpark_moved(word: *const Self::Word, count: u32) -> u32;

    /// Nanoseconds since some fixed moment.
    fn now() -> u64;

    /// Yields this CPU to another thread, if one waits for it. A hint.
    fn give_way() {}

    /// The deadline about `ns` nanoseconds from now.
    fn after(ns: u32) -> Self::Deadline;

    /// Where the calling thread runs. Cheap, and stale as soon as it is read.
    fn place() -> Place;

    /// The speed of this class's cores, in 1024ths of the speed of the fastest cores that the program may run on. A hint.
    fn speed(class: Class) -> u32 {
        let _ = class;
        FULL_SPEED
    }

    /// Identifies the critical section that the calling thread is about to enter: equal numbers mean the same section. For
    /// locks that order waiters by the lengths of their sections. 0: this machine can't tell.
    fn site() -> u32 {
        0
    }

    /// Moves at most `count` threads that sleep on `from` to `to`, and wakes none. Moves nobody unless `from` still holds
    /// `seen`. Apart from that comparison, only the addresses matter. Returns how many threads it moved.
    fn requeue(from: *const Self::Word, seen: u32, to: *const Self::Word, count: u32) -> u32;

    /// The number of CPUs that this program may keep busy at once, by affinity and CPU quota together; at least 1.
    fn cpus() -> u32;

    /// The usable bytes of a line; model checkers' words need more.
    const LINE: usize = 120;

    /// Zeroed memory of [`LINE`](Self::LINE) bytes, aligned to 128 bytes. It stays readable forever, though it may be handed
    /// out again. For algorithms whose waiters may look at a node that its owner has abandoned (CLH).
    fn take_line() -> *mut u8;

    /// Looks at one of the [`MEMOS`] memos, in which locks note what they learn about themselves. A memo is zero at first, all
    /// threads share it, and its contents are hints. `None`: this machine keeps no memos.
    fn memo<R>(index: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        let _ = (index, look);
        None
    }

    /// The number of rows of the table in which readers of any lock may show which lock they hold; 0: this machine has no
    /// such table.
    const ROWS: usize = 0;

    /// The number of slots in a row, which is one cache line.
    const ROW: usize = 8;

    /// Looks at a slot of that table; it is null at first. `None`: the table has no such slot.
    fn shown<R>(slot: usize, look: impl FnOnce(&Self::Ptr<u8>) -> R) -> Option<R> {
        let _ = (slot, look);
        None
    }

    /// Looks at the one word of this machine on which those sleep who wait for a slot of that table to be cleared. `None`: it has no
    /// such word, and they wait awake.
    fn departures<R>(look: impl FnOnce(&Self::Word) -> R) -> Option<R> {
        let _ = look;
        None
    }

    /// Which hooks the policy in this slot has: the sum of their [bits](hooks::Hook::bit), and
    /// [`LENGTHS`](hooks::LENGTHS). 0: there is no policy.
    fn hooks(policy: u32) -> u32 {
        let _ = policy;
        0
    }

    /// Asks the policy in this slot. 0 if there is none, if it has no such hook, or if the calling thread is in a hook already.
    fn ask(policy: u32, hook: hooks::Hook, context: &hooks::Context) -> u64 {
        let _ = (policy, hook, context);
        0
    }

    /// Describes the calling thread to policies, but for what a lock knows: how long it has waited, how often it was passed.
    fn describe() -> hooks::Node {
        let place = Self::place();
        hooks::Node {
            cpu: place.cpu,
            numa: place.domain.into(),
            core_class: place.class.0.into(),
            speed: Self::speed(place.class),
            ..hooks::Node::default()
        }
    }

    /// The holder with this thread id gets the calling thread's priority until [`unboost`](Self::unboost). A hint.
    fn boost(holder: u32) {
        let _ = holder;
    }

    /// The calling thread, which may have been boosted, releases a lock.
    fn unboost() {}

    /// A thread that waits for a lock reports its stage. Machines that check a lock's promises use this; others ignore it.
    fn reached(stage: Stage) {
        let _ = stage;
    }

    /// Gives a line back.
    ///
    /// # Safety
    /// `line` came from [`take_line`](Self::take_line), and the thread that took it won't write to it any more.
    unsafe fn give_line(line: *mut u8);
}
