//! What lies where in the segment. Version 2. Little-endian machines of 64 bits only, as ours are.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_record::histogram::Scale;

/// The first eight bytes of a complete segment; written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lwobserv");
/// Counts changes of this layout.
pub const VERSION: u32 = 2;
/// How a segment's name ends: `PID-N.observe`.
pub const ENDING: &str = ".observe";
pub(crate) const ENDING_NUL: &[u8] = b".observe\0";

/// Where segments live if nobody says where, by preference: a user's number stands between the two parts.
pub const FOLDERS: [(&str, &str); 2] =
    [("/dev/shm/lockwright-", ""), ("/run/user/", "/lockwright")];

/// Records that a process can have at a time.
pub const LOCKS: usize = 2048;
/// A key may stand in any of this many places.
pub const WAYS: usize = 16;
/// Places in the program that one record tells apart, of waiters and of holders; the last one stands for all others.
pub const SITES: usize = 8;
/// Threads that one record tells apart; the last one stands for all others.
pub const THREADS: usize = 32;
/// Classes of cores that are told apart; slower ones count as the last.
pub const CLASSES: usize = 4;
/// Semaphores whose takers are known at a time.
pub const TAKERS: usize = 2048;
/// A semaphore's taker may stand in any of this many places: one line of the caches has four.
pub const TAKER_WAYS: usize = 8;
/// Different stacks.
pub const STACKS: usize = 2048;
/// Pieces of stacks, of programs without frame pointers.
pub const PIECES: usize = 256;
/// In the number of a stack: it is a piece's.
pub const PIECE: u32 = 1 << 31;
/// Return addresses of a stack; deeper callers are left out.
pub const DEPTH: usize = 15;
/// The histograms' scale.
pub const SCALE: Scale = Scale::COARSE;
/// Their buckets.
pub const BUCKETS: usize = SCALE.buckets();
/// A mapping's unit of populating.
pub const PAGE: usize = 4096;

/// In place of a return address: it is not known.
pub const UNKNOWN: u64 = 1;
/// In place of a return address: all those that found no room.
pub const OTHERS: u64 = 2;

/// In place of a thread's id: all those that found no room.
pub const OTHER_THREADS: u32 = u32::MAX;

/// In a key: this many bits are an address.
pub const ADDRESS_BITS: u32 = 56;
/// In a key: locks that are gone, by the place that waited for them first.
pub const GONE: u64 = 1 << ADDRESS_BITS;
/// In a key, beside [`GONE`]: semaphores that are gone, and were no locks.
pub const SIGNALS: u64 = GONE << 1;
/// A key: the record is being given to another lock.
pub const MOVING: u64 = u64::MAX;

/// Who wrote the segment. What is not atomic is constant once `magic` is there.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: u32,
    /// The process, as it is known to itself.
    pub pid: u32,
    /// The inode of the namespace in which that is its id; 0: not known.
    pub namespace: u64,
    /// The N of its name.
    pub number: u64,
    /// The segment's length, bytes.
    pub length: u64,
    /// When the process began, clock ticks since the machine did (`/proc/PID/stat`, field 22); 0: not known.
    pub started: u64,
    /// When counting began, ns of `CLOCK_MONOTONIC`: later than the segment, if it began anew ([`Segment::reset`](crate::Segment)).
    pub start_ns: AtomicU64,
    /// When something was counted last, ns of `CLOCK_MONOTONIC`; up to a millisecond behind.
    pub last_ns: AtomicU64,
    /// Waits that found no record ([`Segment::record_of`](crate::Segment)): they count in the last one.
    pub unplaced: AtomicU64,
    /// Records that were given to another lock. What they counted went to the place that waited for the former one first.
    pub evicted: AtomicU64,
    /// Locks that were destroyed.
    pub retired: AtomicU64,
    /// Stacks that found no room.
    pub stacks_lost: AtomicU64,
    /// Operations for which there was no memory (a full disk).
    pub lost: AtomicU64,
    /// Bytes of the map at [`MAPS_AT`]; 0: there is none, or it is being written.
    pub maps_length: AtomicU64,
    /// This boot, as `/proc/sys/kernel/random/boot_id` says it.
    pub boot: [u8; 40],
    /// The lock in use when counting began, as `LOCKWRIGHT_LOCK` said it; UTF-8, filled with zeroes.
    pub lock: [u8; 128],
    /// The command line, its words set apart by blanks; cut where it is longer.
    pub command: [u8; 512],
}

/// A stack: who called whom, the innermost first.
#[repr(C)]
#[derive(Debug)]
pub struct Stack {
    /// A hash of the addresses, not 0; 0: this place is free.
    pub hash: AtomicU64,
    /// Return addresses; 0: no more.
    pub frames: [AtomicU64; DEPTH],
}

/// Who has a semaphore.
#[repr(C)]
#[derive(Debug)]
pub struct Taker {
    /// Which semaphore ([`taker_tag`]), and the thread's id in the lowest [`TID_BITS`] bits; no thread: nobody has it. 0: this place
    /// is free.
    pub who: AtomicU64,
    /// Since when, ns of `CLOCK_MONOTONIC`; 0: not known, it took it without waiting.
    pub since_ns: AtomicU64,
}

/// In [`Taker::who`]: this many bits are a thread id. Linux has no larger ones than 4 million.
pub const TID_BITS: u32 = 24;

/// In [`Taker::who`]: the semaphore. Two of them may share one, by a chance of 1 in 2^39.
pub const fn taker_tag(semaphore: u64) -> u64 {
    (spread(semaphore) >> TID_BITS | 1) << TID_BITS
}

/// The places in which a semaphore's taker may stand.
pub const fn taker_ways(semaphore: u64) -> Range<usize> {
    let first = (spread(semaphore) >> 32) as usize % (TAKERS / TAKER_WAYS) * TAKER_WAYS;
    first..first + TAKER_WAYS
}

const fn spread(semaphore: u64) -> u64 {
    semaphore.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Kind {
    /// A mutex.
    #[default]
    Mutex = 0,
    /// A semaphore, which may be a lock ([`is_lock`]).
    Semaphore = 1,
}

/// Is a semaphore a lock? Those who take it release it themselves. One that was released once or twice, and is gone, says that
/// something has ended: of each of Python's threads there is one, which the thread releases, and whoever has joined it.
pub const fn is_lock(releases: u64, signals: u64, is_gone: bool) -> bool {
    signals == 0 && releases > if is_gone { 2 } else { 0 }
}

/// A place in the program.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// The return address of the call that locks, or unlocks, [`UNKNOWN`], or [`OTHERS`]; 0: this place is free.
    pub address: AtomicU64,
    /// How often. (Where one in several is timed, each counts as several, here and below.)
    pub count: AtomicU64,
    /// Waiters: how long they waited, ns. Holders: for how long somebody waited for them, ns.
    pub ns: AtomicU64,
    /// The longest, ns.
    pub max_ns: AtomicU64,
    /// Index of one of its stacks, + 1; with the bit [`PIECE`], of a piece; 0: none.
    pub stack: AtomicU32,
    /// The thread of the longest.
    pub max_tid: AtomicU32,
}

/// What a thread has to do with a lock.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// How often it had to wait. (As in [`Site`]: each wait that is timed counts as several.)
    pub waits: AtomicU64,
    /// How long it waited, ns.
    pub wait_ns: AtomicU64,
    /// For how long others waited for it, ns.
    pub blamed_ns: AtomicU64,
}

/// Times by [`SCALE`].
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    /// How many lie in each bucket.
    pub buckets: [AtomicU64; BUCKETS],
}

/// Waits of threads on cores of one class.
#[repr(C)]
#[derive(Debug)]
pub struct Class {
    /// Acquisitions that came without a sleep.
    pub awake: AtomicU64,
    /// Those after a sleep.
    pub asleep: AtomicU64,
    /// How long all of them waited, ns.
    pub wait_ns: AtomicU64,
    /// The longest wait, ns.
    pub max_ns: AtomicU64,
}

/// A lock. Zeroes are a new one.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// Counts who has had this record, so that a reader sees that it has changed hands.
    pub tenants: AtomicU64,
    /// Threads that had to wait. A thread's waits between two that are timed are added with the second.
    pub arrived: AtomicU64,
    /// Those of them that gave up when their deadline passed.
    pub gave_up: AtomicU64,
    /// When something was counted here last, ms of `CLOCK_MONOTONIC`.
    pub last_ms: AtomicU64,
    /// Holds that were timed, of threads that had to wait before.
    pub holds: AtomicU64,
    /// How long they lasted, ns.
    pub hold_ns: AtomicU64,
    /// The longest, ns.
    pub hold_max_ns: AtomicU64,
    /// Where it ended: a return address.
    pub hold_max_site: AtomicU64,
    /// Since when somebody has waited for the present holder, ns of `CLOCK_MONOTONIC`; 0: nobody. The lowest three bits: the
    /// logarithm of as how many that one counts ([`Sampling`](crate::control::Sampling)).
    pub blocked_since_ns: AtomicU64,
    /// For how long somebody waited, ns.
    pub blocked_ns: AtomicU64,
    /// Until when that is counted, ns of `CLOCK_MONOTONIC`.
    pub blocked_until_ns: AtomicU64,
    /// The longest wait, ns.
    pub wait_max_ns: AtomicU64,
    /// Where: a return address.
    pub wait_max_site: AtomicU64,
    /// When it ended, ns of `CLOCK_MONOTONIC`.
    pub wait_max_at_ns: AtomicU64,
    /// Acquisitions for which `owners` and `cores` are known.
    pub followed: AtomicU64,
    /// Those by another thread than the one before.
    pub owners: AtomicU64,
    /// Those on another CPU than the one before.
    pub cores: AtomicU64,
    /// Who acquired it before, if the next one that had to wait is to say whether it is another: thread id, CPU + 1 in the upper
    /// half. 0: it is not.
    pub last_owner: AtomicU64,
    /// Not 0: the lock was destroyed. The record is another's as soon as one needs it, at this address or for want of room.
    pub destroyed: AtomicU64,
    /// Semaphores: releases by the thread that took it last.
    pub releases: AtomicU64,
    /// Semaphores: what no lock sees. Another thread releases it, the one that has it waits for it, it is more than free.
    pub signals: AtomicU64,
    /// The mutex's place in the process's table of locks.
    pub place: AtomicU32,
    /// Locks whose records were added here, in the record of a place.
    pub locks: AtomicU32,
    /// A [`Kind`]'s number.
    pub kind: AtomicU32,
    /// Semaphores: the thread that began to wait last.
    pub waiter: AtomicU32,
    /// By class of core, the fastest first.
    pub classes: [Class; CLASSES],
    /// Who waits.
    pub waiters: [Site; SITES],
    /// For whom.
    pub holders: [Site; SITES],
    /// Ids of the threads of `threads`, [`OTHER_THREADS`] for the last one; 0: this place is free.
    pub tids: [AtomicU32; THREADS],
    /// What each of them waited, and was waited for; at level `full`.
    pub threads: [Thread; THREADS],
    /// Holds.
    pub hold: Histogram,
    /// Waits on cores of the fastest class.
    pub wait: Histogram,
    /// Waits on the others; there only if its memory is [`WHOLE`].
    pub slower: [Histogram; CLASSES - 1],
}

/// A record's memory: nobody has asked for any.
pub const UNUSED: u32 = 0;
/// A record's memory: all but `slower`.
pub const HEAD: u32 = 1;
/// A record's memory: all of it.
pub const WHOLE: u32 = 2;
/// A record's memory: there is none, the disk is full.
pub const NOTHING: u32 = 3;

/// Where the keys begin.
pub const KEYS_AT: usize = PAGE;
/// Where the stacks begin.
pub const STACKS_AT: usize = KEYS_AT + LOCKS * 8;
/// Where the states of the records' memory begin: before there is any.
pub const MEMORY_AT: usize = STACKS_AT + STACKS * size_of::<Stack>();
/// Where the takers of semaphores begin.
pub const TAKERS_AT: usize = (MEMORY_AT + (LOCKS + 1) * 4).next_multiple_of(PAGE);
/// Where the keys of the pieces begin.
pub const PIECE_KEYS_AT: usize = TAKERS_AT + TAKERS * size_of::<Taker>();
/// Where the map of the process's memory begins: lines of `/proc/PID/maps`, those of files, of the heap and of the stack.
pub const MAPS_AT: usize = (PIECE_KEYS_AT + PIECES * 8).next_multiple_of(PAGE);
/// The bytes that it may have.
pub const MAPS: usize = 32 * PAGE;
/// Where the records begin.
pub const RECORDS_AT: usize = MAPS_AT + MAPS;
/// From one record to the next: whole pages.
pub const RECORD: usize = size_of::<Record>().next_multiple_of(PAGE);
/// The bytes of a record that are there when its memory is [`HEAD`]: whole pages.
pub const HEAD_LENGTH: usize = core::mem::offset_of!(Record, slower).next_multiple_of(PAGE);
/// Where the pieces begin ([`Pieces`](lockwright_record::pieces::Pieces)).
pub const PIECES_AT: usize = RECORDS_AT + (LOCKS + 1) * RECORD;
/// The segment's length; most of it is holes.
pub const LENGTH: usize = PIECES_AT + PIECES * size_of::<lockwright_record::pieces::Stack>();

/// Where a record lies.
pub const fn record_at(index: usize) -> usize {
    RECORDS_AT + index * RECORD
}

const _: () = {
    assert!(size_of::<Header>() <= PAGE);
    assert!(size_of::<Stack>() == 128);
    assert!(LOCKS.is_multiple_of(WAYS) && STACKS.is_power_of_two());
    assert!((TAKERS / TAKER_WAYS).is_power_of_two() && MAPS_AT.is_multiple_of(PAGE));
    assert!(HEAD_LENGTH == 2 * PAGE && RECORD == 4 * PAGE);
    assert!(cfg!(target_endian = "little"));
};
