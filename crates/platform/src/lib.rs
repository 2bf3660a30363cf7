//! The narrow waist: what a lock may ask of a machine, and what a lock offers.
//!
//! ```text
//!        locks  (one file each, generic over Platform)
//!          │
//!     ┌────▼─────┐
//!     │ Platform │  atomics · waiting · sleeping · clock · place · lines of memory
//!     └────▲─────┘    + what only some locks ask for: Requeue · Learning · ReaderTable · Doors · Programmable · Publishing · Numbered · Priorities · Stages · Unique
//!   ┌──────┼────────┬──────────┐        (all of them together: Machine)
//! native  loom   shuttle   simulator
//! ```
//!
//! A lock says *what* it waits for; the machine decides *how*: spin, pause, sleep, explore, or advance
//! virtual time. That is why one lock file runs in a process, in the model checkers and in the simulator.
//!
//! Most textbook locks ask for no more than [`Platform`]. A lock that needs more names the extension in its bound
//! (`P: Learning`), so its first lines say what it asks for. Code for any lock of the catalogue asks for a [`Machine`].
#![no_std]

mod extensions;
pub mod hooks;
mod lock;
mod place;

pub use core::sync::atomic::Ordering;
pub use extensions::{
    BLOCK, Door, Doors, FOLLOWERS, FULL_SPEED, Learning, MEMOS, Machine, Memo, Numbered,
    Priorities, Programmable, Publishing, ReaderTable, Requeue, Stage, Stages, Undisturbed, Unique,
    numbered,
};
pub use lock::{Delegated, Held, InPlace, Probe, RawLock, Sections, TimedLock, TryLock};
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

/// A machine, as every lock sees it. A new item needs an argument: ARCHITECTURE.md, "Boundary: Platform".
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

    /// Nanoseconds since some fixed moment.
    fn now() -> u64;

    /// Yields this CPU to another thread, if one waits for it. A hint.
    fn give_way() {}

    /// The deadline about `ns` nanoseconds from now.
    fn after(ns: u32) -> Self::Deadline;

    /// The earlier of two deadlines, for a wait with two ends: the caller's and the lock's own.
    fn sooner(one: Self::Deadline, other: Self::Deadline) -> Self::Deadline;

    /// Where the calling thread runs. Cheap, and stale as soon as it is read.
    fn place() -> Place;

    /// The number of CPUs that this program may keep busy at once, by affinity and CPU quota together; at least 1.
    fn cpus() -> u32;

    /// The usable bytes of a line; model checkers' words need more.
    const LINE: usize = 120;

    /// Zeroed memory of [`LINE`](Self::LINE) bytes, aligned to 128 bytes. It stays readable forever, though it may be handed
    /// out again. For algorithms whose waiters may look at a node that its owner has abandoned (CLH).
    fn take_line() -> *mut u8;

    /// Was this line taken in this process, and not in one that this was forked from? The caller has synchronized with the thread that
    /// took it. Lines that were in use at a fork are never handed out in the child. (Where processes don't fork, all lines are ours.)
    fn is_line_ours(line: *const u8) -> bool {
        let _ = line;
        true
    }

    /// Gives a line back.
    ///
    /// # Safety
    /// `line` came from [`take_line`](Self::take_line), and the thread that took it won't write to it any more.
    unsafe fn give_line(line: *mut u8);
}
