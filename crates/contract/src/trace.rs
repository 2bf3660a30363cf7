//! The file in which a process records its lock operations: layout and writer. Version 3.
//!
//! ```text
//!   byte 0       one TraceHeader: who wrote it
//!   OBJECTS_AT   the objects that were loaded: where each begins and ends, u64 both, and its path, which ends in NUL
//!   CHUNKS_AT    TraceHeader::chunks x Chunk: each is one thread's; holes until used
//! ```
//!
//! A thread takes the next free chunk when it has none, or when its own is full. Its chunks, in the file's order, hold
//! its records in order. Threads share only the count of chunks taken. A record counts once `used` says so. So the file
//! can be read while the process runs, and is complete after `kill -9`.

use crate::file::{self, Mapped, Refused};
use crate::header::{About, Header, Layout, PAGE};
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Where the list of loaded objects begins.
pub const OBJECTS_AT: usize = PAGE;
/// Bytes of that list: room for about 200 objects.
pub const OBJECTS: usize = 4 * PAGE;
/// Where the chunks begin.
pub const CHUNKS_AT: usize = OBJECTS_AT + OBJECTS;
/// Bytes of a chunk.
pub const CHUNK: usize = 4 * PAGE;
/// Records of a chunk.
pub const RECORDS: usize = (CHUNK - 32) / size_of::<Record>();
/// Chunks of the smallest file, which has room for a few threads.
const CHUNKS_MIN: u64 = 16;
/// Chunks of the largest file, 16 GiB.
const CHUNKS_MAX: u64 = 1 << 20;

/// How the file begins. What isn't atomic is constant once the file is complete.
#[repr(C)]
#[derive(Debug)]
pub struct TraceHeader {
    /// Who writes it.
    pub common: Header,
    /// How many chunks the file has room for.
    pub chunks: u32,
    /// The number of CPUs that the process may keep busy.
    pub cpus: u32,
    /// How many chunks are taken; it may be too large.
    pub taken: AtomicU32,
    /// How many threads have taken one.
    pub threads: AtomicU32,
    /// Acquisitions of threads without a chunk that were not recorded.
    pub dropped: AtomicU64,
    /// What recording itself adds to the time between two operations, ns.
    pub gap_ns: AtomicU32,
    /// How long an operation without a wait takes, as recorded, ns.
    pub operation_ns: AtomicU32,
    /// 1: there is no room on the disk.
    pub is_disk_full: AtomicU32,
    /// Bytes of the list of loaded objects that are written.
    pub objects: AtomicU32,
}

// SAFETY: `repr(C)`, a header first, integers all, and the assertion below.
unsafe impl Layout for TraceHeader {
    const MAGIC: u64 = u64::from_le_bytes(*b"lwlocks\0");
    const VERSION: u32 = 3;
    const ENDING: &'static str = ".locks";
    const LENGTH: Option<usize> = None;
}

/// Some of a thread's records.
#[repr(C)]
#[derive(Debug)]
pub struct Chunk {
    /// The thread's number + 1, in the order of first chunks; 0: nobody's.
    pub thread: AtomicU32,
    /// The class of the core on which the thread took it.
    pub class: AtomicU32,
    /// How many records are complete.
    pub used: AtomicU32,
    /// The thread's id, as the process sees it; 0: not known.
    pub tid: AtomicU32,
    /// Acquisitions of the thread that were not recorded, after this chunk, its last.
    pub dropped: AtomicU64,
    /// Nothing yet.
    pub reserved_too: u64,
    /// The records.
    pub records: [Record; RECORDS],
}

/// One operation of the thread; times are ns of `CLOCK_MONOTONIC`.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// The lock's address, and in the highest byte [`What`].
    pub what: AtomicU64,
    /// When the program asked. [`What::Away`]: for how long the thread slept, ns.
    pub from_ns: AtomicU64,
    /// When the program went on. [`What::Away`]: how long it was kept from running otherwise, ns.
    pub to_ns: AtomicU64,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The lock was acquired.
    Acquired = 1,
    /// It was acquired again by a waiter of a condition variable, for which the thread waited until `from_ns`.
    Woken = 2,
    /// It was released.
    Released = 3,
    /// A thread waited for it until its time was up.
    GaveUp = 4,
    /// No operation: since the last one the thread did not run for this long.
    Away = 5,
}

impl What {
    /// The operation with this number; `None`: there is none.
    pub fn of(number: u8) -> Option<Self> {
        [Self::Acquired, Self::Woken, Self::Released, Self::GaveUp, Self::Away]
            .into_iter()
            .find(|&what| what as u8 == number)
    }
}

const KIND_SHIFT: u32 = 56;

impl Record {
    /// The lock's address, and what happened to it; `None`: no record.
    pub fn what(&self) -> Option<(What, u64)> {
        let word = self.what.load(Relaxed); // `used` says that it has been written
        What::of((word >> KIND_SHIFT) as u8).map(|what| (what, word & ((1 << KIND_SHIFT) - 1)))
    }
}

impl Chunk {
    /// How many records it has room for.
    #[inline]
    pub fn room(&self) -> usize {
        RECORDS.saturating_sub(self.used.load(Relaxed) as usize) // the owner's
    }

    /// Adds a record, if there is room. Only the owner calls this.
    #[inline]
    pub fn push(&self, what: What, lock: usize, from_ns: u64, to_ns: u64) {
        let used = self.used.load(Relaxed); // the owner's
        let Some(record) = self.records.get(used as usize) else { return };
        let word = lock as u64 & ((1 << KIND_SHIFT) - 1) | (what as u64) << KIND_SHIFT;
        record.what.store(word, Relaxed); // published below
        record.from_ns.store(from_ns, Relaxed);
        record.to_ns.store(to_ns, Relaxed);
        // ORDERING: Release, pairs with the reader, which takes only what `used` counts.
        self.used.store(used + 1, Release);
    }

    /// Forgets its records. Only the owner calls this.
    pub fn clear(&self) {
        self.used.store(0, Relaxed); // the owner's
    }

    /// Counts an acquisition that is not recorded.
    #[cold]
    pub fn drop_one(&self) {
        self.dropped.fetch_add(1, Relaxed); // a counter
    }
}

/// A trace that is being recorded. Mapped forever; as cheap to copy as a pointer.
pub type Tracer = Mapped<TraceHeader>;

impl Mapped<TraceHeader> {
    /// Makes `DIR/PID-N.locks`, with the first free N, and with room for at least this many records.
    ///
    /// # Errors
    /// As [`Writer::create`](crate::Writer::create).
    pub fn create(dir: &[u8], about: &About<'_>, records: u64, cpus: u32) -> Result<Self, Refused> {
        let chunks = records.div_ceil(RECORDS as u64).clamp(CHUNKS_MIN, CHUNKS_MAX) as u32;
        let length = CHUNKS_AT + chunks as usize * CHUNK;
        Self::make(dir, about, length, CHUNKS_AT, |header| {
            header.chunks = chunks;
            header.cpus = cpus;
        })
    }

    /// Lists a loaded object, if there is room: its memory, and its file's path. Only one thread calls this.
    pub fn list(&self, memory: Range<usize>, path: &[u8]) {
        let objects = &self.header().objects;
        let mut at = objects.load(Relaxed) as usize; // its own
        let (start, end) = ((memory.start as u64).to_le_bytes(), (memory.end as u64).to_le_bytes());
        let pieces = [&start[..], &end, path, b"\0"];
        if OBJECTS - at < pieces.iter().map(|piece| piece.len()).sum() {
            return;
        }
        for piece in pieces {
            // SAFETY: within the mapping, whose pages for the list are populated; nobody reads beyond `objects`.
            unsafe {
                let to = self.base.add(OBJECTS_AT + at);
                core::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
            }
            at += piece.len();
        }
        // ORDERING: Release, pairs with the reader, which takes only what it counts.
        objects.store(at as u32, Release);
    }

    /// A fresh chunk for the thread with this id, which runs on a core of this class; `last`: its last one, if it had one.
    /// `None`: there is no room.
    pub fn chunk(&self, last: Option<&Chunk>, tid: u32, class: u8) -> Option<&'static Chunk> {
        let header = self.header();
        // Checked first, so that the count can't overflow. Relaxed: the only information is whose chunk it is.
        if header.taken.load(Relaxed) >= header.chunks {
            return None;
        }
        let number = header.taken.fetch_add(1, Relaxed);
        if number >= header.chunks {
            return None;
        }
        // SAFETY: within the mapping, here and below; aligned to a page.
        let at = unsafe { self.base.add(CHUNKS_AT + number as usize * CHUNK) };
        // SAFETY: as above.
        if unsafe { file::populate(at, CHUNK) }.is_err() {
            header.is_disk_full.store(1, Relaxed); // for the reader's eyes
            header.taken.store(header.chunks, Relaxed); // so nobody tries again
            return None;
        }
        // SAFETY: zeroes are an empty chunk; mapped forever.
        let chunk: &'static Chunk = unsafe { &*at.cast() };
        chunk.class.store(class.into(), Relaxed); // published by the first record
        chunk.tid.store(tid, Relaxed); // as above
        let thread = match last {
            Some(last) => last.thread.load(Relaxed),          // its own
            None => header.threads.fetch_add(1, Relaxed) + 1, // a number by itself
        };
        // ORDERING: Release, pairs with [used]: the chunk has an owner.
        chunk.thread.store(thread, Release);
        Some(chunk)
    }

    /// Counts an acquisition of a thread without a chunk.
    #[cold]
    pub fn drop_one(&self) {
        self.header().dropped.fetch_add(1, Relaxed); // a counter
    }
}

/// The objects that the process has listed: their memory and their paths.
pub fn objects<'a>(
    header: &TraceHeader,
    list: &'a [u8; OBJECTS],
) -> impl Iterator<Item = (Range<u64>, &'a [u8])> {
    // ORDERING: Acquire, pairs with the Release in `Tracer::list`: this much is complete.
    let len = header.objects.load(Acquire) as usize;
    let mut rest = &list[..len.min(OBJECTS)];
    core::iter::from_fn(move || {
        let (start, after) = rest.split_first_chunk()?;
        let (end, after) = after.split_first_chunk()?;
        let len = after.iter().position(|&byte| byte == 0)?;
        rest = &after[len + 1..];
        Some((u64::from_le_bytes(*start)..u64::from_le_bytes(*end), &after[..len]))
    })
}

/// The chunk's complete records, and its owner's number; `None`: it has no owner.
pub fn complete(chunk: &Chunk) -> Option<(u32, &[Record])> {
    // [used] ORDERING: Acquire, pairs with the Release in `Tracer::chunk`.
    let thread = chunk.thread.load(Acquire).checked_sub(1)?;
    // ORDERING: Acquire, pairs with the Release in `Chunk::push`: this many are complete.
    let used = chunk.used.load(Acquire) as usize;
    Some((thread, &chunk.records[..used.min(RECORDS)]))
}

const _: () = {
    assert!(size_of::<TraceHeader>() <= PAGE);
    assert!(size_of::<Chunk>() <= CHUNK && size_of::<Chunk>() + size_of::<Record>() > CHUNK);
    assert!(core::mem::offset_of!(Chunk, records) == 32);
};
