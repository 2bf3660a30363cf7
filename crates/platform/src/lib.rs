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
    /// Writes `value`, returns what was there.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Writes `new` if `current` is there; never fails spuriously. Returns what was there either way.
    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// Adds (wrapping), returns what was there.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Subtracts (wrapping), returns what was there.
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;
    /// Sets bits, returns what was there.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    /// Keeps only `bits`, returns what was there.
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
    /// Writes `value`, returns what was there.
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T;
    /// Writes `new` if `current` is there; never fails spuriously.
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T>;
}

/// Why [`Platform::park`] returned. A return may also be spurious: look at the word again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Somebody woke us, the word had changed, or no reason at all.
    Maybe,
    /// The deadline passed before anybody woke us.
    TimedOut,
}

/// What a thread that waits in a front lock's line has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is in the line.
    Joined,
    /// It has the lock by the line, of a rule that chooses who is next: it stood before any head, though it may have come later.
    Chosen,
    /// It is head of the line, and not napping (any more).
    Head,
    /// It is head, and leaves the lock to others for a bounded time.
    Naps,
    /// It has the lock, past a head that at this moment [`Naps`](Self::Naps), or isn't awake yet.
    Passed,
}

/// What a lock notes of itself, in a line of memory of its own.
#[repr(align(128))]
pub struct Memo<P: Platform>(pub [P::Word; 8]);

/// The fastest cores' [`Platform::speed`].
pub const FULL_SPEED: u32 = 1024;

/// How many memos there are.
pub const MEMOS: usize = 256;

/// A machine: everything a lock may ask for.
pub trait Platform: Sized + Send + Sync + 'static {
    /// Its 32-bit atomic.
    type Word: Word;
    /// Its atomic pointer.
    type Ptr<T>: Ptr<T>;
    /// A point in time that ends a wait.
    type Deadline: Copy + Send + Sync;

    /// Waits, awake and without bound, until `done(value)`; returns that value, read with `order`.
    ///
    /// One thread waits for another that is running: keep it for short hand-overs and for the locks
    /// that are published as pure spin locks.
    fn spin_until(word: &Self::Word, order: Ordering, done: impl Fn(u32) -> bool) -> u32;

    /// As [`spin_until`](Self::spin_until), for a pointer.
    fn spin_until_ptr<T>(
        ptr: &Self::Ptr<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T;

    /// Waits awake, for about `ns` nanoseconds at most, until `done(value)`; returns the value read last.
    ///
    /// It looks at least once, so `ns == 0` is one load. Model checkers look once or twice, whatever `ns`.
    /// `done` may itself try to take the word (a compare-and-swap): it is called on each new look.
    fn spin_for(word: &Self::Word, order: Ordering, ns: u32, done: impl FnMut(u32) -> bool) -> u32;

    /// Reads, relaxed; the calling thread will write to the same line soon. If it fetches the line for both, the line
    /// travels from core to core once, not twice.
    fn load_to_write(word: &Self::Word) -> u32 {
        word.load(Ordering::Relaxed)
    }

    /// Lets about `ns` nanoseconds pass, awake, off the memory bus (exponential back-off).
    fn pause(ns: u32);

    /// Sleeps while `word == seen`, until [`unpark`](Self::unpark) or the deadline. May return early.
    ///
    /// If the word has changed, it returns at once. Comparing and falling asleep are one step with
    /// respect to `unpark` on the same word.
    fn park(word: &Self::Word, seen: u32, deadline: Option<Self::Deadline>) -> Woken;

    /// Wakes at most `count` threads that sleep on `word`, by priority, then first come first served.
    ///
    /// Only the address is used, so the word may be gone: it may wake nobody, or a thread that by now
    /// waits for something else at the same address (it must look again).
    fn unpark(word: *const Self::Word, count: u32);

    /// As [`park`](Self::park); and if [`requeue`](Self::requeue) moves the sleeper,
    /// [`unpark_moved`](Self::unpark_moved) tells it from threads that fell asleep there themselves.
    fn park_movable(word: &Self::Word, seen: u32, deadline: Option<Self::Deadline>) -> Woken;

    /// As [`unpark`](Self::unpark), but only threads that sleep by [`park_movable`](Self::park_movable):
    /// whatever the others' priorities, they don't take these wakes. Returns how many it woke.
    fn unpark_moved(word: *const Self::Word, count: u32) -> u32;

    /// Nanoseconds since some fixed moment.
    fn now() -> u64;

    /// Lets another thread have this CPU, if one waits for it. A hint.
    fn give_way() {}

    /// About `ns` nanoseconds from now.
    fn after(ns: u32) -> Self::Deadline;

    /// Where the calling thread runs. Cheap, and stale as soon as it is read.
    fn place() -> Place;

    /// How fast cores of this class are, in 1024ths of the speed of the fastest that the program may run on. A hint.
    fn speed(class: Class) -> u32 {
        let _ = class;
        FULL_SPEED
    }

    /// Which critical section the calling thread asks for: the same number, the same section. For locks that order waiters by the lengths
    /// of their sections. 0: this machine can't tell.
    fn site() -> u32 {
        0
    }

    /// Moves at most `count` threads that sleep on `from` over to `to`, waking none; `from` must still
    /// hold `seen`. Only the addresses are used. Returns how many moved.
    fn requeue(from: *const Self::Word, seen: u32, to: *const Self::Word, count: u32) -> u32;

    /// CPUs that this program may keep busy at once: affinity and CPU quota together, at least 1.
    fn cpus() -> u32;

    /// Bytes of a line that may be written; checkers' words need more.
    const LINE: usize = 120;

    /// A 128-aligned, zeroed piece of memory of [`LINE`](Self::LINE) bytes that stays readable forever (it may be handed
    /// out again). For algorithms whose waiters may look at a node that its owner has left (CLH).
    fn take_line() -> *mut u8;

    /// One of [`MEMOS`] memos, in which locks note what they learn of themselves: zero at first, shared by all threads, and hints to
    /// whoever reads them. None: this machine keeps none.
    fn memo<R>(index: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        let _ = (index, look);
        None
    }

    /// Rows of the table in which readers of any lock may show which one they hold; 0: this machine has none.
    const ROWS: usize = 0;

    /// Slots of a row: a line of memory.
    const ROW: usize = 8;

    /// A slot of that table, null at first. None: there is no such slot.
    fn shown<R>(slot: usize, look: impl FnOnce(&Self::Ptr<u8>) -> R) -> Option<R> {
        let _ = (slot, look);
        None
    }

    /// The calling thread waits for a lock, and reports what it has become, for machines that check what the lock
    /// promises. Others ignore it.
    fn reached(stage: Stage) {
        let _ = stage;
    }

    /// Gives a line back.
    ///
    /// # Safety
    /// `line` came from [`take_line`](Self::take_line), and its caller won't write to it any more.
    unsafe fn give_line(line: *mut u8);
}
