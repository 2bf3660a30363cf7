//! What only some locks ask of a machine: one trait for each need.
//!
//! Where a lock can do without an answer, the default is "this machine doesn't know", so a bare machine writes
//! `impl Learning for Bare {}`. [`Requeue`] has no defaults: its users would sleep forever. Nor
//! have [`Undisturbed`] and [`Unique`]: there is no answer that is always right.

use crate::Ordering::Relaxed;
use crate::hooks;
use crate::{Class, Platform, Ptr, Woken, Word};

/// Moves sleepers from one word to another without waking them.
///
/// For condition variables (a broadcast's sleepers go to the mutex one by one) and front locks (a head that comes to sleep on
/// the mutex's word). A machine that can't do this runs textbook locks and readers-writer locks only.
pub trait Requeue: Platform {
    /// Moves at most `count` threads that sleep on `from` to `to`, and wakes none. Moves nobody unless `from` still holds
    /// `seen`. Apart from that comparison, only the addresses matter. Returns how many threads it moved.
    fn requeue(from: *const Self::Word, seen: u32, to: *const Self::Word, count: u32) -> u32;

    /// As [`park`](Platform::park). After [`requeue`](Self::requeue) has moved the sleeper,
    /// [`unpark_moved`](Self::unpark_moved) can tell it from threads that fell asleep there themselves.
    fn park_movable(word: &Self::Word, seen: u32, deadline: Option<Self::Deadline>) -> Woken;

    /// As [`unpark`](Platform::unpark), but wakes only threads that sleep by [`park_movable`](Self::park_movable). Other
    /// sleepers don't take these wakes, whatever their priorities. Returns how many it woke.
    fn unpark_moved(word: *const Self::Word, count: u32) -> u32;
}

/// What a lock notes about itself, in a cache line of its own.
#[repr(align(128))]
pub struct Memo<P: Platform>(pub [P::Word; 8]);

/// The [`Learning::speed`] of the fastest cores.
pub const FULL_SPEED: u32 = 1024;

/// The number of memos.
pub const MEMOS: usize = 256;

/// What helps a lock to learn how long its critical sections take: which section it is, how fast this core is, and where to
/// note it.
///
/// For locks that choose by length ([`site`](Self::site): CAL as published) and for front locks, whose state in a
/// `pthread_mutex_t` has no room for what they learn. On a machine without it all sections count as one, all cores as equally
/// fast, and nothing is remembered.
pub trait Learning: Platform {
    /// Identifies the critical section that the calling thread is about to enter: equal numbers mean the same section. For
    /// locks that order waiters by the lengths of their sections. 0: this machine can't tell.
    fn site() -> u32 {
        0
    }

    /// The speed of this class's cores, in 1024ths of the speed of the fastest cores that the program may run on. A hint.
    fn speed(class: Class) -> u32 {
        let _ = class;
        FULL_SPEED
    }

    /// Looks at one of the [`MEMOS`] memos, in which locks note what they learn about themselves. A memo is zero at first, all
    /// threads share it, and its contents are hints. `None`: this machine keeps no memos.
    fn memo<R>(index: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        let _ = (index, look);
        None
    }
}

/// A table, one for all locks, in which readers show which lock they hold. So readers of one lock write to different cache
/// lines, and a writer looks through the table.
///
/// For biased readers-writer locks (BRAVO and its kin), and for locks whose waiters show odd numbers there (hapax). Who finds a slot
/// taken does without. On a machine without it readers count themselves in the lock.
pub trait ReaderTable: Platform {
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
}

/// Where waiters of one cluster find each other, in a cache line of its own: the waiter that lets others follow it, and those that do.
#[repr(align(128))]
pub struct Door<P: Platform> {
    /// The locks' own: generation, state, and a count.
    pub word: P::Word,
    /// In which process it was opened: a count of forks.
    pub era: P::Word,
    /// How many more may follow, in this run of near waiters.
    pub left: P::Word,
    /// For which lock.
    pub lock: P::Ptr<()>,
    /// Who opened it.
    pub leader: P::Ptr<()>,
    /// Who follows, in order.
    pub followers: [P::Ptr<()>; FOLLOWERS],
}

/// The most that follow at a time: as many as fit into the door's cache line.
pub const FOLLOWERS: usize = 12;

impl<P: Platform> Door<P> {
    /// A door that nobody has opened.
    pub fn closed() -> Self {
        let (word, none) = (|| P::Word::new(0), || P::Ptr::new(core::ptr::null_mut()));
        let followers = core::array::from_fn(|_| none());
        Self { word: word(), era: word(), left: word(), lock: none(), leader: none(), followers }
    }
}

/// Doors, some for each cluster of CPUs, which all locks share.
///
/// For locks that prefer waiters near the holder. A machine with one cluster has none, and then locks ask for no more.
pub trait Doors: Platform {
    /// Looks at the door that a cluster's threads use for the lock at this address; locks may share one. `None`: there is none.
    fn door<R>(domain: u16, lock: usize, look: impl FnOnce(&Door<Self>) -> R) -> Option<R> {
        let _ = (domain, lock, look);
        None
    }
}

/// Policies, which answer the locks' questions: see [`hooks`].
///
/// For the locks that ask them (`programmed`, `programmed-rw`), and for the mutexes that tell them of each acquisition. On a
/// machine without it there is no policy, and each lock decides as if none was loaded.
///
/// It needs [`Learning`], because a policy is told the [speed](Learning::speed) of a thread's core.
pub trait Programmable: Learning {
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
    /// It may take the lock past any head, and isn't counted: it is urgent, or has given way to the head for long enough.
    Uncounted,
}

/// Waiters that tell others that they are running: by the time, which each writes again and again.
///
/// For time-published locks (MCS-TP). To a model checker a thread that writes is one that goes on, and those who wait for news
/// look again. Waiters that only publish the time would then go on forever.
pub trait Publishing: Platform {
    /// Writes `value`, relaxed: a hint, for which nobody waits.
    #[track_caller]
    fn publish(word: &Self::Word, value: u32) {
        word.store(value, Relaxed);
    }
}

/// Threads that have numbers.
///
/// For locks that keep an account of each thread (u-SCL).
///
/// # Safety
/// As long as a thread runs, no other thread of the process has its number.
pub unsafe trait Numbered: Platform {
    /// The calling thread's number, never 0. Threads that run at the same time needn't have numbers that are close.
    fn number() -> usize;
}

/// Threads that the kernel runs before all others, by a real-time policy: locks may serve them first.
///
/// For front locks, where such a thread waits on the mutex's word, whose sleepers the kernel wakes by priority. On a machine without it all
/// threads count as ordinary ones.
pub trait Priorities: Platform {
    /// Has the calling thread a real-time policy? The answer may be some milliseconds old. `now`: what the clock says; 0: the caller hasn't
    /// looked.
    fn is_urgent(now: u64) -> bool {
        let _ = now;
        false
    }

    /// As [`park`](Platform::park), for an urgent thread: a wake for any kind of sleeper on this word may be for it.
    #[track_caller]
    fn park_urgent(word: &Self::Word, seen: u32, deadline: Option<Self::Deadline>) -> Woken {
        Self::park(word, seen, deadline)
    }

    /// An urgent thread is about to sleep on this word: holders that wouldn't look at the word should. A hint.
    fn urge(word: *const Self::Word) {
        let _ = word;
    }

    /// A word on which an urgent thread sleeps, or has slept until a moment ago; null: there is none. A hint.
    #[inline(always)]
    fn urged() -> *const Self::Word {
        core::ptr::null()
    }

    /// The opposite of [`urge`](Self::urge): a holder has looked at the word.
    fn has_looked(word: *const Self::Word) {
        let _ = word;
    }
}

/// Listens to what waiters report, to check what a lock promises: how many may pass a head, and in which order threads come.
///
/// For front locks, since only their line has stages. A machine that checks nothing ignores the reports.
pub trait Stages: Platform {
    /// The calling thread, which waits for a lock, has reached `stage`.
    fn reached(stage: Stage) {
        let _ = stage;
    }
}

/// Keeps a thread from being torn away: by a signal handler that doesn't return, or a cancellation.
///
/// For front locks, whose waiters can be taken out of the line wherever they were torn away. The result of an exchange would be lost
/// with the thread that was told.
pub trait Undisturbed: Platform {
    /// Runs `run`, out of which nothing tears the calling thread; `None`: the machine can't promise that, and hasn't run it. It may cost
    /// system calls.
    fn undisturbed<R>(run: impl FnOnce() -> R) -> Option<R>;
}

/// Numbers that nobody gets twice.
///
/// For locks that tell acquisitions apart by a number (hapax). Such a lock has no thread-local for a block of numbers, and none of its
/// words could make numbers that differ from those of all other locks.
pub trait Unique: Platform {
    /// A number that no other call in this process returns; it fits into 63 bits. A thread's numbers are near each other, as a rule: in the
    /// same block of [`BLOCK`].
    fn unique() -> usize;
}

/// How many numbers a source of [`Unique`] numbers takes at a time.
pub const BLOCK: usize = 1 << 16;

/// The number that comes after `count` others from one source of numbers, of `sources`: each has each `sources`-th block.
#[inline]
pub const fn numbered(source: usize, sources: usize, count: usize) -> usize {
    (count / BLOCK * sources + source) * BLOCK + count % BLOCK
}

/// A whole machine: one on which every lock of the catalogue runs.
///
/// For front locks and what stands on them, and for code that is generic over the catalogue. Whoever implements the traits above
/// has it; nobody implements it by hand.
pub trait Machine:
    Requeue
    + ReaderTable
    + Doors
    + Programmable
    + Publishing
    + Numbered
    + Priorities
    + Stages
    + Undisturbed
    + Unique
{
}

impl<P> Machine for P where
    P: Requeue
        + ReaderTable
        + Doors
        + Programmable
        + Publishing
        + Numbered
        + Priorities
        + Stages
        + Undisturbed
        + Unique
{
}
