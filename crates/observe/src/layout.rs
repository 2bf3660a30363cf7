//! The segment's layout, version 3. Only for little-endian 64-bit machines, as ours are.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_record::histogram::Scale;

/// The first eight bytes of a complete segment; written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lwobserv");
/// Incremented when this layout changes.
pub const VERSION: u32 = 3;
/// How a segment's name ends: `PID-N.observe`.
pub const ENDING: &str = ".observe";
pub(crate) const ENDING_NUL: &[u8] = b".observe\0";

/// Where segments are by default, in order of preference: the user's number goes between the two parts.
pub const FOLDERS: [(&str, &str); 2] =
    [("/dev/shm/lockwright-", ""), ("/run/user/", "/lockwright")];

/// Records that a process can have at a time.
pub const LOCKS: usize = 2048;
/// A key may be in any of this many places.
pub const WAYS: usize = 16;
/// Places in the program that one record distinguishes, for waiters and for holders; the last one stands for all
/// others.
pub const SITES: usize = 8;
/// Threads that one record distinguishes; the last one stands for all others.
pub const THREADS: usize = 32;
/// Classes of cores that are distinguished; slower ones count as the last.
pub const CLASSES: usize = 4;
/// Semaphores whose takers are known at a time.
pub const TAKERS: usize = 2048;
/// A semaphore's taker may be in any of this many places; a cache line has four.
pub const TAKER_WAYS: usize = 8;
/// Different stacks.
pub const STACKS: usize = 2048;
/// Pieces of stacks, for programs without frame pointers.
pub const PIECES: usize = 256;
/// In the number of a stack: it is the number of a piece.
pub const PIECE: u32 = 1 << 31;
/// Return addresses of a stack; deeper callers are left out.
pub const DEPTH: usize = 15;
/// The histograms' scale.
pub const SCALE: Scale = Scale::COARSE;
/// Their buckets.
pub const BUCKETS: usize = SCALE.buckets();
/// The unit in which a mapping is populated.
pub const PAGE: usize = 4096;

/// In place of a return address: it is not known.
pub const UNKNOWN: u64 = 1;
/// In place of a return address: all addresses that found no room.
pub const OTHERS: u64 = 2;

/// In place of a thread's id: all threads that found no room.
pub const OTHER_THREADS: u32 = u32::MAX;

/// In a key: this many bits are an address.
pub const ADDRESS_BITS: u32 = 56;
/// In a key: destroyed locks, by the place that first waited for them.
pub const GONE: u64 = 1 << ADDRESS_BITS;
/// In a key, together with [`GONE`]: destroyed semaphores that were not locks.
pub const SIGNALS: u64 = GONE << 1;
/// A key: the record is being given to another lock.
pub const MOVING: u64 = u64::MAX;

/// Who wrote the segment. What isn't atomic is constant once `magic` is there.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: u32,
    /// The process's id, as the process sees it.
    pub pid: u32,
    /// The inode of the namespace of that id; 0: not known.
    pub namespace: u64,
    /// The N of its name.
    pub number: u64,
    /// The segment's length, bytes.
    pub length: u64,
    /// When the process began, in clock ticks since boot (`/proc/PID/stat`, field 22); 0: not known.
    pub started: u64,
    /// When counting began, ns of `CLOCK_MONOTONIC`; after a [`Segment::reset`](crate::Segment) later than the segment
    /// itself.
    pub start_ns: AtomicU64,
    /// When something was last counted, ns of `CLOCK_MONOTONIC`; up to a millisecond behind.
    pub last_ns: AtomicU64,
    /// Waits that found no record ([`Segment::record_of`](crate::Segment)); they count in the last one.
    pub unplaced: AtomicU64,
    /// Records that were given to another lock. Their counts went to the place that first waited for the former lock.
    pub evicted: AtomicU64,
    /// Locks that were destroyed.
    pub retired: AtomicU64,
    /// Stacks that found no room.
    pub stacks_lost: AtomicU64,
    /// Operations for which there was no memory (a full disk).
    pub lost: AtomicU64,
    /// Bytes of the map at [`MAPS_AT`]; 0: there is none, or it is being written.
    pub maps_length: AtomicU64,
    /// This boot's id, from `/proc/sys/kernel/random/boot_id`.
    pub boot: [u8; 40],
    /// The lock in use when counting began, as given in `LOCKWRIGHT_LOCK`; UTF-8, padded with zeroes.
    pub lock: [u8; 128],
    /// The command line, with blanks between the words; cut if it is longer.
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

/// Which thread has a semaphore.
#[repr(C)]
#[derive(Debug)]
pub struct Taker {
    /// Which semaphore ([`taker_tag`]), and the thread's id in the lowest [`TID_BITS`] bits; id 0: nobody has it. All
    /// 0: this place is free.
    pub who: AtomicU64,
    /// Since when, ns of `CLOCK_MONOTONIC`; 0: not known, because it didn't have to wait.
    pub since_ns: AtomicU64,
}

/// In [`Taker::who`]: this many bits are a thread id. Linux has no ids above 4 million.
pub const TID_BITS: u32 = 24;

/// In [`Taker::who`]: the semaphore. Two semaphores share a tag with a probability of 1 in 2^39.
pub const fn taker_tag(semaphore: u64) -> u64 {
    (spread(semaphore) >> TID_BITS | 1) << TID_BITS
}

/// The places in which a semaphore's taker may be.
pub const fn taker_ways(semaphore: u64) -> Range<usize> {
    let first = (spread(semaphore) >> 32) as usize % (TAKERS / TAKER_WAYS) * TAKER_WAYS;
    first..first + TAKER_WAYS
}

const fn spread(semaphore: u64) -> u64 {
    semaphore.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Locks whose last owner is known at a time.
pub const OWNERS: usize = 256;
/// In a last owner: this many bits are a CPU, above those of the thread's id.
pub const CPU_BITS: u32 = 12;
const OWNER_TAG: u32 = TID_BITS + CPU_BITS;

/// Who acquired a lock, if the next thread that had to wait should say whether it is another one: the lock's tag, the
/// CPU, the thread's id. Not 0.
pub const fn owner(lock: u64, tid: u32, cpu: u32) -> u64 {
    let (tid, cpu) = (tid as u64 % (1 << TID_BITS), cpu as u64 % (1 << CPU_BITS));
    (spread(lock) >> OWNER_TAG | 1) << OWNER_TAG | cpu << TID_BITS | tid
}

/// Was it this lock that this owner acquired? Two locks in one place are taken for each other with a probability of 1 in
/// 2^27.
pub const fn is_owner(known: u64, lock: u64) -> bool {
    (known ^ owner(lock, 0, 0)) >> OWNER_TAG == 0
}

/// The place of a lock's last owner.
pub const fn owner_at(lock: u64) -> usize {
    (spread(lock) >> 24) as usize % OWNERS // no bits of the tag
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

/// Is a semaphore a lock? It is if threads release it themselves after taking it. A semaphore that is gone after one or
/// two releases signals that something has ended: each of Python's threads has one, released by the thread and by
/// whoever joins it.
pub const fn is_lock(releases: u64, signals: u64, is_gone: bool) -> bool {
    signals == 0 && releases > if is_gone { 2 } else { 0 }
}

/// A place in the program.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// The return address of the call that locks, or unlocks, [`UNKNOWN`], or [`OTHERS`]; 0: this place is free.
    pub address: AtomicU64,
    /// How often. (Where one in several is timed, each counts for several, here and below.)
    pub count: AtomicU64,
    /// Waiters: how long they waited, ns. Holders: for how long somebody waited for them, ns.
    pub ns: AtomicU64,
    /// The longest, ns.
    pub max_ns: AtomicU64,
    /// Index of one of its stacks, + 1; with the bit [`PIECE`], that of a piece; 0: none.
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
    /// For how long others waited for it, ns.
    pub blamed_ns: AtomicU64,
}

/// Times by [`SCALE`].
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    /// How many times are in each bucket.
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

/// A lock. Zeroes are a new lock.
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
    /// Since when somebody has waited for the current holder, ns of `CLOCK_MONOTONIC`; 0: nobody. The lowest four bits
    /// are the logarithm of how many waiters this one counts for ([`Sampling`](crate::control::Sampling)).
    pub blocked_since_ns: AtomicU64,
    /// For how long at least one thread waited, ns.
    pub blocked_ns: AtomicU64,
    /// Until when that has been counted, ns of `CLOCK_MONOTONIC`.
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
    /// Not 0: the lock was destroyed. The record goes to the next lock that needs it, at this address or for want of
    /// room.
    pub destroyed: AtomicU64,
    /// Semaphores: releases by the thread that took it last.
    pub releases: AtomicU64,
    /// Semaphores: events that no lock has. Another thread releases it, its holder waits for it, or it is released
    /// while free.
    pub signals: AtomicU64,
    /// The place of the mutex's rule in the process's table of locks.
    pub place: AtomicU32,
    /// In the record of a place: how many locks' records were added here.
    pub locks: AtomicU32,
    /// A [`Kind`]'s number.
    pub kind: AtomicU32,
    /// Semaphores: the thread that last began to wait.
    pub waiter: AtomicU32,
    /// By class of core, the fastest first.
    pub classes: [Class; CLASSES],
    /// Who waits.
    pub waiters: [Site; SITES],
    /// Who makes them wait.
    pub holders: [Site; SITES],
    /// Ids of the threads of `threads`, [`OTHER_THREADS`] for the last one; 0: this place is free.
    pub tids: [AtomicU32; THREADS],
    /// How long each of them waited, and others waited for it; at level `full`.
    pub threads: [Thread; THREADS],
    /// Holds.
    pub hold: Histogram,
    /// Waits on cores of the fastest class.
    pub wait: Histogram,
    /// Waits on the other classes; exists only if the record's memory is [`WHOLE`].
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

/// Where the last owners begin. A lock's last owner lies apart from its record, because every thread that had to wait
/// looks at it, and records are written all the time.
pub const OWNERS_AT: usize = PAGE - OWNERS * 8;
const _: () = assert!(size_of::<Header>() <= OWNERS_AT);
/// Where the keys begin.
pub const KEYS_AT: usize = PAGE;
/// Where the stacks begin.
pub const STACKS_AT: usize = KEYS_AT + LOCKS * 8;
/// Where the states of the records' memory begin. They exist before that memory does.
pub const MEMORY_AT: usize = STACKS_AT + STACKS * size_of::<Stack>();
/// Where the takers of semaphores begin.
pub const TAKERS_AT: usize = (MEMORY_AT + (LOCKS + 1) * 4).next_multiple_of(PAGE);
/// Where the keys of the pieces begin.
pub const PIECE_KEYS_AT: usize = TAKERS_AT + TAKERS * size_of::<Taker>();
/// Where the map of the process's memory begins: those lines of `/proc/PID/maps` that describe files, the heap and the
/// stack.
pub const MAPS_AT: usize = (PIECE_KEYS_AT + PIECES * 8).next_multiple_of(PAGE);
/// The most bytes that the map may have.
pub const MAPS: usize = 32 * PAGE;
/// Where the records begin.
pub const RECORDS_AT: usize = MAPS_AT + MAPS;
/// The distance from one record to the next: whole pages.
pub const RECORD: usize = size_of::<Record>().next_multiple_of(PAGE);
/// The bytes of a record that exist when its memory is [`HEAD`]: whole pages.
pub const HEAD_LENGTH: usize = core::mem::offset_of!(Record, slower).next_multiple_of(PAGE);
/// Where the pieces begin ([`Pieces`](lockwright_record::pieces::Pieces)).
pub const PIECES_AT: usize = RECORDS_AT + (LOCKS + 1) * RECORD;
/// The segment's length; most of it is holes.
pub const LENGTH: usize = PIECES_AT + PIECES * size_of::<lockwright_record::pieces::Stack>();

/// Where a record is.
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
