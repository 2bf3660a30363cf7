//! Reads the file in which a process recorded the order of its locks.

use crate::bytes::Bytes;
use crate::stack::Piece;
use lockwright_contract::header::Foreign;
use lockwright_contract::order::{
    AGAIN, EDGES, EDGES_AT, Edge as Laid, GATES, GONE, HALF, HELD, Held as LaidHeld, KEYS_AT,
    KIND_SHIFT, LOCKS, LOCKS_AT, Lock, MAPS, MAPS_AT, OrderHeader, READ, READY, RWLOCK, SPIN,
    STACKS, STACKS_AT, THREAD, THREADS, THREADS_AT, Thread as LaidThread,
};
use lockwright_stats::Author;
use lockwright_symbols::{AddressSpace, mappings_in};
use lockwright_text::{Failure, cause};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file's contents, except the stacks.
pub(super) struct Noted {
    pub pid: u32,
    pub command: String,
    /// The value of LOCKWRIGHT_LOCK.
    pub lock: String,
    pub space: AddressSpace,
    pub edges: Vec<Edge>,
    /// The threads that ran at the end.
    pub threads: Vec<SeenThread>,
    /// The ids of the locks that are known to have been destroyed.
    pub gone: BTreeSet<u32>,
    pub lost: Lost,
    file: File,
}

/// What was not recorded.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lost {
    /// Threads for which there was no space.
    pub threads: u64,
    /// Acquisitions by threads that already held the maximum number of locks.
    pub held: u64,
    /// How often there was no space for a lock.
    pub locks: u64,
    /// How often there was no space for an order.
    pub edges: u64,
    /// Orders of destroyed locks that were overwritten.
    pub evicted: u64,
    pub stacks: u64,
}

/// A thread requested one lock while it held another.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub from: End,
    pub to: End,
    pub count: u64,
    /// The first thread's id in the kernel.
    pub tid: u32,
    /// The first two threads, as numbered in the file.
    pub threads: Vec<u32>,
    /// Were there more threads?
    pub more: bool,
    /// The other locks that were held each time.
    pub gates: BTreeSet<u32>,
}

/// One side of an edge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    pub id: u32,
    pub address: u64,
    pub kind: LockKind,
    pub reads: bool,
    /// Was it retaken after a wait for a condition variable?
    pub again: bool,
    /// A return address; 0: not known.
    pub site: u64,
    /// The number of the stack; 0: none.
    pub stack: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    #[default]
    Mutex,
    ReadersWriter,
    Spin,
}

/// What a thread held when it was last seen.
#[derive(Clone, Debug)]
pub(super) struct SeenThread {
    pub tid: u32,
    /// The lock that it waited for, and the call site; 0: none.
    pub waits_for: (u64, u64),
    /// Addresses and call sites.
    pub held: Vec<(u64, u64)>,
}

/// Reads a file. Its process may have ended.
pub(super) fn read(file: File, path: &Path) -> Result<Noted, Failure> {
    let refuse = |why: &str| Failure::new(format!("cannot read '{}': {why}", path.display()));
    let mut bytes = vec![0; STACKS_AT];
    file.read_exact_at(&mut bytes, 0).map_err(|error| refuse(&cause(&error)))?;
    let head = Bytes(&bytes);
    let author = Author::read::<OrderHeader>(&bytes).map_err(|foreign| match foreign {
        Foreign::Version(_) => refuse("another version of lockwright wrote it"),
        _ => refuse("no process recorded its lock order there"),
    })?;
    let maps = (head.u64(offset_of!(OrderHeader, maps_length)) as usize).min(MAPS);
    let maps = String::from_utf8_lossy(&bytes[MAPS_AT..MAPS_AT + maps]).into_owned();
    let has_tables = head.u32(offset_of!(OrderHeader, tables)) == READY;
    let edges = (0..EDGES).filter(|_| has_tables).filter_map(|at| {
        let edge = head.from(EDGES_AT + at * size_of::<Laid>());
        // If two edges were written at the same time, both count.
        Some(edge_of(&edge)).filter(|edge| edge.from.id != 0 && edge.to.id != u32::MAX)
    });
    let gone = (0..LOCKS).filter(|_| has_tables).filter_map(|at| {
        let lock = head.from(LOCKS_AT + at * size_of::<Lock>());
        let key = lock.u64(offset_of!(Lock, key));
        (key & GONE != 0 && key != u64::MAX).then(|| lock.u32(offset_of!(Lock, id)))
    });
    let threads = (0..THREADS).filter_map(|at| thread(&head.from(THREADS_AT + at * THREAD)));
    let count = |offset| head.u64(offset);
    Ok(Noted {
        pid: author.pid,
        command: author.command,
        lock: author.lock,
        space: AddressSpace { pid: 0, mappings: mappings_in(&maps), threads: Vec::new() },
        edges: edges.collect(),
        threads: threads.collect(),
        gone: gone.collect(),
        lost: Lost {
            threads: count(offset_of!(OrderHeader, threads_lost)),
            held: count(offset_of!(OrderHeader, held_lost)),
            locks: count(offset_of!(OrderHeader, locks_lost)),
            edges: count(offset_of!(OrderHeader, edges_lost)),
            evicted: count(offset_of!(OrderHeader, edges_evicted)),
            stacks: count(offset_of!(OrderHeader, stacks_lost)),
        },
        file,
    })
}

fn edge_of(edge: &Bytes<'_>) -> Edge {
    let key = edge.u64(offset_of!(Laid, key));
    let flags = edge.u32(offset_of!(Laid, flags));
    let end = |id: u64, half: u32, address, site, stack| End {
        id: id as u32,
        address: edge.u64(address),
        kind: match half >> KIND_SHIFT {
            RWLOCK => LockKind::ReadersWriter,
            SPIN => LockKind::Spin,
            _ => LockKind::Mutex,
        },
        reads: half & READ != 0,
        again: half & AGAIN != 0,
        site: edge.u64(site),
        stack: edge.u32(stack),
    };
    let numbers = |at: usize, all: usize| {
        (0..all).map(move |one| edge.u32(at + one * 4)).filter(|&number| number != 0)
    };
    Edge {
        from: end(
            key >> 32,
            flags & ((1 << HALF) - 1),
            offset_of!(Laid, from),
            offset_of!(Laid, from_site),
            offset_of!(Laid, from_stack),
        ),
        to: end(
            key,
            flags >> HALF,
            offset_of!(Laid, to),
            offset_of!(Laid, to_site),
            offset_of!(Laid, to_stack),
        ),
        count: edge.u64(offset_of!(Laid, count)),
        tid: edge.u32(offset_of!(Laid, tid)),
        threads: numbers(offset_of!(Laid, threads), 2).collect(),
        more: edge.u32(offset_of!(Laid, more)) != 0,
        gates: numbers(offset_of!(Laid, gates), GATES).collect(),
    }
}

fn thread(thread: &Bytes<'_>) -> Option<SeenThread> {
    let tid = thread.u32(offset_of!(LaidThread, tid));
    let held = (0..HELD).filter_map(|at| {
        let lock = thread.u64(offset_of!(LaidThread, held) + at * 8);
        let about = offset_of!(LaidThread, about) + at * size_of::<LaidHeld>();
        (lock != 0).then(|| (lock, thread.u64(about + offset_of!(LaidHeld, site))))
    });
    let waits_for = (
        thread.u64(offset_of!(LaidThread, waits_for)),
        thread.u64(offset_of!(LaidThread, waits_at)),
    );
    (tid != 0).then(|| SeenThread { tid, waits_for, held: held.collect() })
}

impl Noted {
    /// The stack with this number; `None`: it doesn't exist, or was being written.
    pub(super) fn stack(&self, number: u32) -> Option<Piece> {
        let at = (number as usize).checked_sub(1).filter(|&at| at < STACKS)?;
        let mut key = [0; 8];
        self.file.read_exact_at(&mut key, (KEYS_AT + at * 8) as u64).ok()?;
        Piece::read(&self.file, STACKS_AT, at, u64::from_le_bytes(key))
    }
}
