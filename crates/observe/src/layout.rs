//! What lies where in the segment. Version 1. Little-endian machines of 64 bits only, as ours are.

use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_record::histogram::Scale;

/// The first eight bytes of a complete segment; written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lwobserv");
/// Counts changes of this layout.
pub const VERSION: u32 = 1;
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
/// Classes of cores that are told apart; slower ones count as the last.
pub const CLASSES: usize = 4;
/// Different stacks.
pub const STACKS: usize = 2048;
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

/// In a key: this many bits are an address.
pub const ADDRESS_BITS: u32 = 56;
/// In a key: locks that are gone, by the place that waited for them first.
pub const GONE: u64 = 1 << ADDRESS_BITS;
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
    /// Index of one of its stacks, + 1; 0: none.
    pub stack: AtomicU32,
    /// The thread of the longest.
    pub max_tid: AtomicU32,
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
    /// The mutex's place in the process's table of locks.
    pub place: AtomicU32,
    /// Locks whose records were added here, in the record of a place.
    pub locks: AtomicU32,
    /// By class of core, the fastest first.
    pub classes: [Class; CLASSES],
    /// Who waits.
    pub waiters: [Site; SITES],
    /// For whom.
    pub holders: [Site; SITES],
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
/// Where the map of the process's memory begins: lines of `/proc/PID/maps`, those of files, of the heap and of the stack.
pub const MAPS_AT: usize = (MEMORY_AT + (LOCKS + 1) * 4).next_multiple_of(PAGE);
/// The bytes that it may have.
pub const MAPS: usize = 32 * PAGE;
/// Where the records begin.
pub const RECORDS_AT: usize = MAPS_AT + MAPS;
/// From one record to the next: whole pages.
pub const RECORD: usize = size_of::<Record>().next_multiple_of(PAGE);
/// The bytes of a record that are there when its memory is [`HEAD`]: whole pages.
pub const HEAD_LENGTH: usize = core::mem::offset_of!(Record, slower).next_multiple_of(PAGE);
/// The segment's length; most of it is holes.
pub const LENGTH: usize = RECORDS_AT + (LOCKS + 1) * RECORD;

/// Where a record lies.
pub const fn record_at(index: usize) -> usize {
    RECORDS_AT + index * RECORD
}

const _: () = {
    assert!(size_of::<Header>() <= PAGE);
    assert!(size_of::<Stack>() == 128);
    assert!(LOCKS.is_multiple_of(WAYS) && STACKS.is_power_of_two());
    assert!(HEAD_LENGTH == 2 * PAGE && RECORD == 4 * PAGE);
    assert!(cfg!(target_endian = "little"));
};
