//! The file in which a process notes the order in which its threads take locks: layout and writer. Version 2.
//!
//! ```text
//!   byte 0       one OrderHeader: who wrote it
//!   THREADS_AT   THREADS x Thread: what each holds, and waits for
//!   KEYS_AT      STACKS x key of a stack, a hash table
//!   MAPS_AT      lines of /proc/PID/maps: those of files, of the heap and of the stack
//!   LOCKS_AT     LOCKS x Lock: those that were taken together with others, a hash table by address
//!   EDGES_AT     EDGES x Edge: which was taken while which was held, a hash table
//!   STACKS_AT    STACKS x Stack: pieces of stacks, as they were, for the reader to unwind
//! ```
//!
//! All of it is mapped shared, and an entry counts once its key says so. So the file can be read while the process
//! runs, and is complete after `kill -9`. Whatever finds no room is counted.

mod writer;

pub use crate::pieces::{PIECE, Stack};
pub use writer::{Order, PATIENCE, Pair};

use crate::header::{Header, Layout, PAGE};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The number of threads that are followed at a time.
pub const THREADS: usize = 512;
/// How many locks a thread may hold at a time; more are not followed.
pub const HELD: usize = 16;
/// The number of locks that are distinguished.
pub const LOCKS: usize = 8192;
/// The number of pairs of locks, with different sets of other locks held.
pub const EDGES: usize = 8192;
/// The number of gate locks that an edge has room for; more are left out.
pub const GATES: usize = 8;
/// Different sets of gate locks that one pair of locks may have.
const SETS: usize = 8;
/// Pieces of stacks.
pub const STACKS: usize = 1024;
/// In a lock's key: the lock was destroyed.
pub const GONE: u64 = 1 << 63;

/// How the file begins.
#[repr(C)]
#[derive(Debug)]
pub struct OrderHeader {
    /// Who writes it.
    pub common: Header,
    /// Threads so far.
    pub threads: AtomicU32,
    /// Locks so far that were taken together with others.
    pub locks: AtomicU32,
    /// The state of the memory of locks and edges: [`UNUSED`] and so on.
    pub tables: AtomicU32,
    /// Nothing yet.
    pub reserved: u32,
    /// Bytes of the map at [`MAPS_AT`]; 0: there is none, or it is being written.
    pub maps_length: AtomicU64,
    /// Threads that found no room: they are not followed.
    pub threads_lost: AtomicU64,
    /// Acquisitions of threads that hold [`HELD`] locks.
    pub held_lost: AtomicU64,
    /// How often a lock found no room.
    pub locks_lost: AtomicU64,
    /// How often an edge found no room.
    pub edges_lost: AtomicU64,
    /// Edges of destroyed locks that made room for others.
    pub edges_evicted: AtomicU64,
    /// Stacks that found no room.
    pub stacks_lost: AtomicU64,
}

// SAFETY: `repr(C)`, a header first, integers all, and the assertion below.
unsafe impl Layout for OrderHeader {
    const MAGIC: u64 = u64::from_le_bytes(*b"lworder\0");
    const VERSION: u32 = 2;
    const ENDING: &'static str = ".order";
    const LENGTH: Option<usize> = Some(LENGTH);
}

/// Tables: nobody has needed them yet.
pub const UNUSED: u32 = 0;
/// Tables: a thread is making them.
const BUSY: u32 = 1;
/// Tables: they exist.
pub const READY: u32 = 2;
/// Tables: there is no memory for them.
const NOTHING: u32 = 3;

/// A thread. Only the thread itself writes here, except when another one releases a lock in its place.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// Its kernel id; 0: free.
    pub tid: AtomicU32,
    /// Its number, from 1: unlike ids, numbers aren't reused.
    pub number: AtomicU32,
    /// The lock that it waits for; 0: none.
    pub waits_for: AtomicU64,
    /// Where it waits: a return address.
    pub waits_at: AtomicU64,
    /// The locks that it holds; 0: none in this place.
    pub held: [AtomicU64; HELD],
    /// Details of each of these.
    pub about: [Held; HELD],
}

/// A lock that a thread holds.
#[repr(C)]
#[derive(Debug)]
pub struct Held {
    /// Where it took the lock: a return address; 0: not known.
    pub site: AtomicU64,
    /// Index of its stack, + 1; 0: none.
    pub stack: AtomicU32,
    /// The lock's id; 0: not looked up yet.
    pub id: AtomicU32,
    /// How often it holds the lock, minus one.
    pub again: AtomicU32,
    /// [`READ`], and the lock's kind.
    pub flags: AtomicU32,
}

/// A lock.
#[repr(C)]
#[derive(Debug)]
pub struct Lock {
    /// Its address, with [`GONE`]; 0: this place is free.
    pub key: AtomicU64,
    /// Its number, from 1. A new lock at the address of a destroyed one has a new number.
    pub id: AtomicU32,
    /// Nothing yet.
    pub reserved: u32,
}

/// One lock was taken while another was held.
#[repr(C)]
#[derive(Debug)]
pub struct Edge {
    /// Both ids, that of the held lock in the upper half; 0: this place is free.
    pub key: AtomicU64,
    /// How often.
    pub count: AtomicU64,
    /// The address of the held lock.
    pub from: AtomicU64,
    /// Where it was taken: a return address; 0: not known.
    pub from_site: AtomicU64,
    /// The address of the lock that was asked for.
    pub to: AtomicU64,
    /// Where it was asked for: a return address; 0: not known.
    pub to_site: AtomicU64,
    /// Index of the stack where the held lock was taken, + 1; 0: none.
    pub from_stack: AtomicU32,
    /// The same for the lock that was asked for.
    pub to_stack: AtomicU32,
    /// The lower half is about the held lock, the upper half about the one asked for: [`READ`], kinds, [`AGAIN`].
    pub flags: AtomicU32,
    /// The first thread's kernel id.
    pub tid: AtomicU32,
    /// The numbers of the first two threads that did it; 0: there was none, or no second one.
    pub threads: [AtomicU32; 2],
    /// Not 0: more threads did it.
    pub more: AtomicU32,
    /// Ids of the other locks that were held every time; 0: none.
    pub gates: [AtomicU32; GATES],
    /// Nothing yet.
    pub reserved: [u32; 5],
}

/// In an edge's half and in [`Held::flags`]: taken for reading.
pub const READ: u32 = 1;
/// In an edge's half: taken again, by a waiter of a condition variable.
pub const AGAIN: u32 = 2;
/// In an edge's half and in [`Held::flags`]: the lock's kind begins at this bit.
pub const KIND_SHIFT: u32 = 4;
/// Kind: a mutex.
pub const MUTEX: u32 = 0;
/// Kind: a readers-writer lock.
pub const RWLOCK: u32 = 1;
/// Kind: a spin lock.
pub const SPIN: u32 = 2;
/// Bits of a half.
pub const HALF: u32 = 16;

/// Where the threads begin.
pub const THREADS_AT: usize = PAGE;
/// The distance from one thread to the next.
pub const THREAD: usize = size_of::<Thread>().next_multiple_of(64);
/// Where the keys of the stacks begin. They are kept apart so that a search doesn't read the pieces.
pub const KEYS_AT: usize = THREADS_AT + THREADS * THREAD;
/// Where the map begins. Everything before it is populated from the start.
pub const MAPS_AT: usize = (KEYS_AT + STACKS * 8).next_multiple_of(PAGE);
/// The most bytes that the map may have.
pub const MAPS: usize = 32 * PAGE;
/// Where the locks begin.
pub const LOCKS_AT: usize = MAPS_AT + MAPS;
/// Where the edges begin.
pub const EDGES_AT: usize = LOCKS_AT + LOCKS * size_of::<Lock>();
/// Where the stacks begin.
pub const STACKS_AT: usize = EDGES_AT + EDGES * size_of::<Edge>();
/// The file's length; most of it is holes.
pub const LENGTH: usize = STACKS_AT + STACKS * size_of::<Stack>();

const _: () = {
    assert!(size_of::<OrderHeader>() <= PAGE);
    assert!(size_of::<Edge>() == 128 && size_of::<Stack>() == 2 * PAGE);
    assert!(LOCKS_AT.is_multiple_of(PAGE) && STACKS_AT.is_multiple_of(PAGE));
};
