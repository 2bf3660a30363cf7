//! The segment's layout, version 6.

use crate::hash::spread;
use crate::header::{CLASSES, Header, Layout, PAGE};
use crate::histogram::Scale;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Default folders of segments, in order of preference. The user's id goes between the two parts.
pub const FOLDERS: [(&str, &str); 2] =
    [("/dev/shm/lockwright-", ""), ("/run/user/", "/lockwright")];

/// Maximum number of records that a process has at a time.
pub const LOCKS: usize = 2048;
/// The index of the record for all locks without a record of their own.
pub const OTHER_LOCKS: usize = LOCKS;
/// The same for condition variables.
pub const OTHER_CONDITIONS: usize = LOCKS + 1;
/// Number of records.
pub const RECORDS: usize = LOCKS + 2;
/// Number of places that a key may occupy.
pub const WAYS: usize = 16;
/// Places in the program that one record distinguishes, for waiters and for holders; the last one stands for all
/// others.
pub const SITES: usize = 8;
/// Threads that one record distinguishes; the last one stands for all others.
pub const THREADS: usize = 32;
/// Number of semaphores whose takers are known at a time.
pub const TAKERS: usize = 2048;
/// Number of places that a semaphore's taker may occupy; a cache line contains four.
pub const TAKER_WAYS: usize = 8;
/// Different stacks.
pub const STACKS: usize = 2048;
/// Pieces of stacks, for programs without frame pointers.
pub const PIECES: usize = 256;
/// This bit in the number of a stack means that it is the number of a piece.
pub const PIECE: u32 = 1 << 31;
/// Maximum number of return addresses in a stack; deeper callers are left out.
pub const DEPTH: usize = 15;
/// The histograms' scale.
pub const SCALE: Scale = Scale::COARSE;
/// Number of their buckets.
pub const BUCKETS: usize = SCALE.buckets();

/// Replaces a return address that isn't known.
pub const UNKNOWN: u64 = 1;
/// Replaces all return addresses without a place of their own.
pub const OTHERS: u64 = 2;

/// Replaces the ids of all threads without a place of their own.
pub const OTHER_THREADS: u32 = u32::MAX;

/// Number of bits of a key that are an address.
pub const ADDRESS_BITS: u32 = 56;
/// In a key: destroyed locks, by the place that first waited for them.
pub const GONE: u64 = 1 << ADDRESS_BITS;
/// In a key, together with [`GONE`]: destroyed semaphores that were not locks.
pub const SIGNALS: u64 = GONE << 1;
/// In a key, together with [`GONE`]: destroyed condition variables.
pub const CONDITIONS: u64 = SIGNALS << 1;

/// How the segment begins. A reset moves `start_ns` ([`Segment::reset`](crate::counters::Segment)), any count `last_ns`.
#[repr(C)]
#[derive(Debug)]
pub struct CountersHeader {
    /// Who writes it.
    pub common: Header,
    /// Waits for locks without a record ([`Segment::record_of`](crate::counters::Segment)). They count in the last record.
    pub unplaced: AtomicU64,
    /// Records that were given to another lock. Their counts went to the place that first waited for the former lock.
    pub evicted: AtomicU64,
    /// Locks that were destroyed.
    pub retired: AtomicU64,
    /// Stacks for which there was no space.
    pub stacks_lost: AtomicU64,
    /// Operations for which there was no memory (a full disk).
    pub lost: AtomicU64,
    /// Bytes of the map at [`MAPS_AT`]; 0: there is none, or it is being written.
    pub maps_length: AtomicU64,
}

// SAFETY: `repr(C)`, a header first, integers all, and the assertion below.
unsafe impl Layout for CountersHeader {
    const MAGIC: u64 = u64::from_le_bytes(*b"lwobserv");
    const VERSION: u32 = 6;
    const ENDING: &'static str = ".observe";
    const LENGTH: Option<usize> = Some(LENGTH);
}

/// A stack: return addresses, the innermost first.
#[repr(C)]
#[derive(Debug)]
pub struct Stack {
    /// A hash of the addresses, not 0; 0: this place is free.
    pub hash: AtomicU64,
    /// Return addresses; 0: no more.
    pub frames: [AtomicU64; DEPTH],
}

/// The thread that has a semaphore.
#[repr(C)]
#[derive(Debug)]
pub struct Taker {
    /// The semaphore ([`taker_tag`]), and the thread's id in the lowest [`TID_BITS`] bits; id 0: no thread has it. All
    /// 0: this place is free.
    pub who: AtomicU64,
    /// Since when, ns of `CLOCK_MONOTONIC`; 0: not known, because it didn't have to wait.
    pub since_ns: AtomicU64,
}

/// In [`Taker::who`]: number of bits for a thread id. Linux has no ids above 4 million.
pub const TID_BITS: u32 = 24;

/// In [`Taker::who`]: the tag of the semaphore. Two semaphores share a tag with a probability of 1 in 2^39.
pub const fn taker_tag(semaphore: u64) -> u64 {
    (spread(semaphore) >> TID_BITS | 1) << TID_BITS
}

/// The places that a semaphore's taker may occupy.
pub const fn taker_ways(semaphore: u64) -> Range<usize> {
    let first = (spread(semaphore) >> 32) as usize % (TAKERS / TAKER_WAYS) * TAKER_WAYS;
    first..first + TAKER_WAYS
}

/// Number of locks whose last owner is known at a time.
pub const OWNERS: usize = 256;
/// In a last owner: number of bits for a CPU, above those for the thread's id.
pub const CPU_BITS: u32 = 12;
const OWNER_TAG: u32 = TID_BITS + CPU_BITS;

/// A lock's last owner, with which the next owner is to be compared: the lock's tag, the CPU, the thread's id. Not 0.
pub const fn owner(lock: u64, tid: u32, cpu: u32) -> u64 {
    let (tid, cpu) = (tid as u64 % (1 << TID_BITS), cpu as u64 % (1 << CPU_BITS));
    (spread(lock) >> OWNER_TAG | 1) << OWNER_TAG | cpu << TID_BITS | tid
}

/// Did this owner acquire this lock? Two locks at one place are confused with a probability of 1 in 2^27.
pub const fn is_owner(known: u64, lock: u64) -> bool {
    (known ^ owner(lock, 0, 0)) >> OWNER_TAG == 0
}

/// The place of a lock's last owner.
pub const fn owner_at(lock: u64) -> usize {
    (spread(lock) >> 24) as usize % OWNERS // no bits of the tag
}

/// The kind of lock that a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum LockKind {
    /// A mutex.
    #[default]
    Mutex = 0,
    /// A semaphore, which may be a lock ([`is_lock`]).
    Semaphore = 1,
    /// A readers-writer lock.
    ReadWrite = 2,
    /// A spin lock. Nobody knows who holds it.
    Spin = 3,
    /// A condition variable, which is no lock: threads wait for a signal.
    Cond = 4,
}

impl LockKind {
    /// The kind with this number; `None`: there is none.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Mutex),
            1 => Some(Self::Semaphore),
            2 => Some(Self::ReadWrite),
            3 => Some(Self::Spin),
            4 => Some(Self::Cond),
            _ => None,
        }
    }
}

/// Is a semaphore used as a lock? It is if threads release it themselves after taking it. A semaphore that is destroyed
/// after one or two releases signals the end of something: each of Python's threads has one, released by the thread
/// itself and by the thread that joins it.
pub const fn is_lock(releases: u64, signals: u64, is_gone: bool) -> bool {
    signals == 0 && releases > if is_gone { 2 } else { 0 }
}

/// A place in the program.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// The return address of the call that locks, or unlocks, [`UNKNOWN`], or [`OTHERS`]; 0: this place is free.
    pub address: AtomicU64,
    /// How often. (If one in N is timed, it counts N times, here and below.)
    pub count: AtomicU64,
    /// For waiters: how long they waited, ns. For holders: how long threads waited for them, ns.
    pub ns: AtomicU64,
    /// The longest, ns.
    pub max_ns: AtomicU64,
    /// Index of one of its stacks, plus 1; with the bit [`PIECE`], that of a piece; 0: none.
    pub stack: AtomicU32,
    /// The thread with the longest.
    pub max_tid: AtomicU32,
}

/// A thread's waits for a lock, and the waits for the thread.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// How often it had to wait. (As in [`Site`], each timed wait counts for several.)
    pub waits: AtomicU64,
    /// How long it waited, ns.
    pub wait_ns: AtomicU64,
    /// How long others waited for it, ns.
    pub blamed_ns: AtomicU64,
}

/// A histogram of times, with the buckets of [`SCALE`].
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    /// The number of times in each bucket.
    pub buckets: [AtomicU64; BUCKETS],
}

/// Waits of threads on cores of one class.
#[repr(C)]
#[derive(Debug)]
pub struct Class {
    /// Acquisitions without a sleep.
    pub awake: AtomicU64,
    /// Acquisitions after a sleep.
    pub asleep: AtomicU64,
    /// How long all of them waited, ns.
    pub wait_ns: AtomicU64,
    /// The longest wait, ns.
    pub max_ns: AtomicU64,
}

/// One side of a readers-writer lock: the waits of its readers, or those of its writers.
#[repr(C)]
#[derive(Debug)]
pub struct Side {
    /// How often they had to wait. (As in [`Site`], each timed wait counts for several, here and below.)
    pub waits: AtomicU64,
    /// How long, ns.
    pub wait_ns: AtomicU64,
    /// The longest, ns.
    pub max_ns: AtomicU64,
    /// Waits that began while readers held the lock.
    pub behind_readers: AtomicU64,
    /// Waits that began while a writer held it.
    pub behind_writer: AtomicU64,
}

/// What happened to the waiters of a condition variable. A call that found no waiter doesn't count.
#[repr(C)]
#[derive(Debug)]
pub struct Wakes {
    /// The mutex that it was last used with: an address.
    pub mutex: AtomicU64,
    /// Calls that wake one waiter.
    pub signals: AtomicU64,
    /// Calls that wake all waiters.
    pub broadcasts: AtomicU64,
    /// The threads that these calls woke.
    pub woken: AtomicU64,
    /// How many of them then released the mutex.
    pub got_on: AtomicU64,
    /// How many of them waited for the same condition variable again, and had not released the mutex before.
    pub wasted: AtomicU64,
    /// Calls of threads whose own last wait was for this condition variable.
    pub by_waiters: AtomicU64,
}

/// A lock's record. Zeroes are valid for a new lock.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// Counts the locks that have had this record, so that a reader sees that it has changed hands.
    pub tenants: AtomicU64,
    /// How often threads had to wait. A thread's waits between two timed ones are added with the second.
    pub arrived: AtomicU64,
    /// How many of these gave up when their deadline passed.
    pub gave_up: AtomicU64,
    /// When something was last counted here, ms of `CLOCK_MONOTONIC`.
    pub last_ms: AtomicU64,
    /// Timed holds, of threads that had to wait for the lock.
    pub holds: AtomicU64,
    /// How long they lasted, ns.
    pub hold_ns: AtomicU64,
    /// The longest, ns.
    pub hold_max_ns: AtomicU64,
    /// Where it ended: a return address.
    pub hold_max_site: AtomicU64,
    /// When a thread began to wait for the current holder, ns of `CLOCK_MONOTONIC`; 0: none waits. The lowest four bits
    /// are the logarithm of the number of waiters that this one counts for ([`Sampling`](crate::counters::control::Sampling)).
    pub blocked_since_ns: AtomicU64,
    /// Time during which at least one thread waited, ns.
    pub blocked_ns: AtomicU64,
    /// The time up to which `blocked_ns` has been counted, ns of `CLOCK_MONOTONIC`.
    pub blocked_until_ns: AtomicU64,
    /// The longest wait, ns.
    pub wait_max_ns: AtomicU64,
    /// Where that was: a return address.
    pub wait_max_site: AtomicU64,
    /// When it ended, ns of `CLOCK_MONOTONIC`.
    pub wait_max_at_ns: AtomicU64,
    /// Acquisitions for which `owners` and `cores` are known.
    pub followed: AtomicU64,
    /// Acquisitions by a thread other than the one before.
    pub owners: AtomicU64,
    /// Acquisitions on a CPU other than the one before.
    pub cores: AtomicU64,
    /// Not 0: the lock was destroyed. The record goes to the next lock that needs it, because that lock has the same
    /// address or lacks a record.
    pub destroyed: AtomicU64,
    /// Semaphores: releases by the thread that took it last.
    pub releases: AtomicU64,
    /// Semaphores: events that never happen to a lock. Another thread releases it, its holder waits for it, or it is
    /// released while free.
    pub signals: AtomicU64,
    /// The index of the mutex's rule in the process's table of locks.
    pub place: AtomicU32,
    /// In the record of a place: the number of locks whose records were added to it.
    pub locks: AtomicU32,
    /// A [`LockKind`]'s number.
    pub kind: AtomicU32,
    /// Semaphores: the thread that last began to wait.
    pub waiter: AtomicU32,
    /// Readers-writer locks: who goes first. 0: readers; 1: writers, but readers join readers; 2: writers.
    pub prefer: AtomicU32,
    /// Not used.
    pub unused: AtomicU32,
    /// Readers-writer locks: the readers' waits.
    pub readers: Side,
    /// Readers-writer locks: the writers' waits.
    pub writers: Side,
    /// Condition variables: what happened to the waiters.
    pub wakes: Wakes,
    /// Acquisitions of a mutex from its first timed wait to its last, with and without a wait; 0: not known.
    pub acquired: AtomicU64,
    /// How often a thread tried to take the lock, and didn't get it. These are no waits.
    pub failed_tries: AtomicU64,
    /// Those that the next holder to release the lock by the slow path is to blame for.
    pub unblamed_tries: AtomicU64,
    /// Places that tried in vain. Their times are 0.
    pub triers: [Site; SITES],
    /// Places that released the lock after others had tried in vain. Their times are 0.
    pub tried_holders: [Site; SITES],
    /// By class of core, the fastest first.
    pub classes: [Class; CLASSES],
    /// Places that wait.
    pub waiters: [Site; SITES],
    /// Places that make them wait. Condition variables: places that wake them, and how long those had waited.
    pub holders: [Site; SITES],
    /// Ids of the threads in `threads`; the last one may be [`OTHER_THREADS`]; 0: this place is free.
    pub tids: [AtomicU32; THREADS],
    /// How long each of them waited, and how long others waited for it; at level `full`.
    pub threads: [Thread; THREADS],
    /// Hold times.
    pub hold: Histogram,
    /// Waits on cores of the fastest class.
    pub wait: Histogram,
    /// Waits on the other classes; exists only if the record's memory is [`WHOLE`].
    pub slower: [Histogram; CLASSES - 1],
}

/// State of a record's memory: not needed so far.
pub const UNUSED: u32 = 0;
/// State of a record's memory: everything except `slower` exists.
pub const HEAD: u32 = 1;
/// State of a record's memory: all of it exists.
pub const WHOLE: u32 = 2;
/// State of a record's memory: there is none, because the disk is full.
pub const NOTHING: u32 = 3;

/// Where the last owners begin. They are apart from the records: every thread that had to wait reads its lock's last
/// owner, but records are written all the time.
pub const OWNERS_AT: usize = PAGE - OWNERS * 8;
const _: () = assert!(size_of::<CountersHeader>() <= OWNERS_AT);
/// Where the keys begin.
pub const KEYS_AT: usize = PAGE;
/// Where the stacks begin.
pub const STACKS_AT: usize = KEYS_AT + LOCKS * 8;
/// Where the states of the records' memory begin. They exist before that memory does.
pub const MEMORY_AT: usize = STACKS_AT + STACKS * size_of::<Stack>();
/// Where the takers of semaphores begin.
pub const TAKERS_AT: usize = (MEMORY_AT + RECORDS * 4).next_multiple_of(PAGE);
/// Where the keys of the pieces begin.
pub const PIECE_KEYS_AT: usize = TAKERS_AT + TAKERS * size_of::<Taker>();
/// Where the map of the process's memory begins: those lines of `/proc/PID/maps` that describe files, the heap and the
/// stack.
pub const MAPS_AT: usize = (PIECE_KEYS_AT + PIECES * 8).next_multiple_of(PAGE);
/// Maximum size of the map.
pub const MAPS: usize = 32 * PAGE;
/// Where the records begin.
pub const RECORDS_AT: usize = MAPS_AT + MAPS;
/// The distance from one record to the next: whole pages.
pub const RECORD: usize = size_of::<Record>().next_multiple_of(PAGE);
/// The bytes of a record that exist when its memory is [`HEAD`]: whole pages.
pub const HEAD_LENGTH: usize = core::mem::offset_of!(Record, slower).next_multiple_of(PAGE);
/// Where the pieces begin ([`Pieces`](crate::pieces::Pieces)).
pub const PIECES_AT: usize = RECORDS_AT + RECORDS * RECORD;
/// The segment's length; most of it is holes.
pub const LENGTH: usize = PIECES_AT + PIECES * size_of::<crate::pieces::Stack>();

/// Where a record is.
pub const fn record_at(index: usize) -> usize {
    RECORDS_AT + index * RECORD
}

const _: () = {
    assert!(size_of::<Stack>() == 128);
    assert!(LOCKS.is_multiple_of(WAYS) && STACKS.is_power_of_two());
    assert!((TAKERS / TAKER_WAYS).is_power_of_two() && MAPS_AT.is_multiple_of(PAGE));
    assert!(HEAD_LENGTH == 2 * PAGE && RECORD == 4 * PAGE);
};
