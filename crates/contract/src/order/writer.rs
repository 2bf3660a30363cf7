//! Makes the file, and writes to it.

use super::{
    BUSY, EDGES, EDGES_AT, Edge, GONE, HALF, KEYS_AT, LENGTH, LOCKS, LOCKS_AT, Lock, MAPS, MAPS_AT,
    NOTHING, OrderHeader, READ, READY, SETS, STACKS, STACKS_AT, THREAD, THREADS, THREADS_AT,
    Thread, UNUSED,
};
use crate::file::{self, Mapped, Refused};
use crate::hash::{MOVING, ways};
use crate::header::{About, PAGE};
use crate::pieces::Pieces;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_native::futex;

/// How often a thread checks whether another one has made what both need.
pub const PATIENCE: usize = 1000;

/// A lock that was asked for while another was held.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The id of the held lock, and its half of [`Edge::flags`].
    pub from: (u32, u32),
    /// The same for the lock that was asked for.
    pub to: (u32, u32),
    /// The ids of all other locks that were held for writing; 0: none, or one whose id isn't known.
    pub others: &'a [u32],
    /// The thread's number.
    pub thread: u32,
}

/// The file. Mapped forever; as cheap to copy as a pointer.
pub type Order = Mapped<OrderHeader>;

fn count(one: &AtomicU64) {
    one.fetch_add(1, Relaxed); // a counter
}

impl Mapped<OrderHeader> {
    /// Makes `DIR/PID-N.order`, with the first free N.
    ///
    /// # Errors
    /// As [`Writer::create`](crate::Writer::create).
    pub fn create(dir: &[u8], about: &About<'_>) -> Result<Self, Refused> {
        Self::make(dir, about, LENGTH, MAPS_AT, |_| {})
    }

    fn populate(&self, bytes: Range<usize>) -> bool {
        let (start, end) = (bytes.start / PAGE * PAGE, bytes.end.next_multiple_of(PAGE));
        // SAFETY: whole pages within the mapping.
        unsafe { file::populate(self.base.add(start), end - start) }.is_ok()
    }

    /// A place for a thread with this kernel id; `is_alive` says whether another thread still runs. `None`: there is no
    /// room.
    pub fn thread(&self, tid: u32, is_alive: impl Fn(u32) -> bool) -> Option<&'static Thread> {
        let header = self.header();
        let number = header.threads.fetch_add(1, Relaxed); // a number by itself
        let is_ours = |thread: &Thread| {
            let owner = thread.tid.load(Relaxed); // a number by itself
            (owner == 0 || owner == tid || (number as usize >= THREADS && !is_alive(owner)))
                // ORDERING: Acquire, pairs with nothing: what a dead thread wrote is visible by now, or never will be.
                && thread.tid.compare_exchange(owner, tid, Acquire, Relaxed).is_ok()
        };
        let mut places = (0..THREADS).map(|way| self.thread_at((number as usize + way) % THREADS));
        let found = places.find(|thread| is_ours(thread));
        let Some(thread) = found else {
            count(&header.threads_lost);
            return None;
        };
        thread.number.store(number.wrapping_add(1), Relaxed); // only the thread itself writes these
        thread.waits_for.store(0, Relaxed);
        thread.held.iter().for_each(|held| held.store(0, Relaxed));
        Some(thread)
    }

    fn thread_at(&self, at: usize) -> &'static Thread {
        // SAFETY: `at` is below THREADS, and those pages are populated from the start.
        unsafe { self.place(THREADS_AT + at * THREAD) }
    }

    /// A thread other than its holder releases a lock. (POSIX forbids that for mutexes, but programs do it.)
    #[cold]
    pub fn release_for_another(&self, lock: u64) {
        let taken = (self.header().threads.load(Relaxed) as usize).min(THREADS); // as many as there may be
        let held = |thread: &'static Thread| thread.held.iter().zip(&thread.about);
        for (held, about) in (0..taken).flat_map(|at| held(self.thread_at(at))) {
            // Of several readers we don't know which it was.
            if held.load(Relaxed) == lock && about.flags.load(Relaxed) & READ == 0 {
                let _ = held.compare_exchange(lock, 0, Relaxed, Relaxed); // it may have been released meanwhile
                return;
            }
        }
    }

    /// Are there tables? If nobody has needed them yet, they are made now.
    pub fn has_tables(&self) -> bool {
        let state = &self.header().tables;
        // Making them takes about 100 us. A signal handler that interrupts this would wait forever, so the wait is
        // bounded.
        for _ in 0..PATIENCE {
            // ORDERING: Acquire, pairs with the Release below.
            match state.load(Acquire) {
                READY => return true,
                // ORDERING: Acquire, pairs with nothing that was written.
                UNUSED if state.compare_exchange(UNUSED, BUSY, Acquire, Relaxed).is_ok() => {
                    let is_there = self.populate(LOCKS_AT..STACKS_AT);
                    // ORDERING: Release, pairs with the Acquire above: the pages are there.
                    state.store(if is_there { READY } else { NOTHING }, Release);
                    return is_there;
                }
                UNUSED | BUSY => futex::yield_cpu(),
                _ => return false,
            }
        }
        false
    }

    fn lock_at(&self, at: usize) -> &'static Lock {
        // SAFETY: the table exists, and `at` is within it.
        unsafe { self.place(LOCKS_AT + at * size_of::<Lock>()) }
    }

    fn edge_at(&self, at: usize) -> &'static Edge {
        // SAFETY: as above.
        unsafe { self.place(EDGES_AT + at * size_of::<Edge>()) }
    }

    fn find(&self, address: u64) -> Option<&'static Lock> {
        // ORDERING: Acquire, pairs with the Release in `lock`: its id is there.
        ways(address, LOCKS).map(|at| self.lock_at(at)).find(|l| l.key.load(Acquire) == address)
    }

    /// The id of the lock at this address. 0: there is no room. The [tables](Self::has_tables) must exist.
    pub fn lock(&self, address: u64) -> u32 {
        if let Some(lock) = self.find(address) {
            return lock.id.load(Relaxed);
        }
        let claim = |is_free: fn(u64) -> bool| {
            ways(address, LOCKS).map(|at| self.lock_at(at)).find(|lock| {
                let key = lock.key.load(Relaxed);
                // ORDERING: Acquire, pairs with nothing that matters: the id is written anew.
                is_free(key) && lock.key.compare_exchange(key, MOVING, Acquire, Relaxed).is_ok()
            })
        };
        let free = claim(|key| key == 0).or_else(|| claim(|key| key & GONE != 0 && key != MOVING));
        let Some(lock) = free else {
            count(&self.header().locks_lost);
            return 0;
        };
        let id = self.header().locks.fetch_add(1, Relaxed).wrapping_add(1); // a number by itself
        lock.id.store(id, Relaxed); // published below
        // ORDERING: Release, pairs with the Acquire in `find`.
        lock.key.store(address, Release);
        id
    }

    /// The lock at this address was destroyed: from now on a lock there is a new one.
    pub fn retire(&self, address: u64) {
        // ORDERING: Acquire, pairs with the Release in `has_tables`.
        if self.header().tables.load(Acquire) == READY
            && let Some(lock) = self.find(address)
        {
            // Relaxed: another thread may already have given the place away.
            let _ = lock.key.compare_exchange(address, address | GONE, Relaxed, Relaxed);
        }
    }

    /// Has the lock with this id at this address been destroyed?
    fn is_gone(&self, address: u64, id: u32) -> bool {
        self.find(address).is_none_or(|lock| lock.id.load(Relaxed) != id)
    }

    /// Counts that a thread asks for a lock while it holds another. If that is new, or was never seen with so few other
    /// locks held, returns an edge to fill in and then to [publish](Edge::publish) with this key.
    pub fn pass(&self, pair: &Pair<'_>) -> Option<(&'static Edge, u64)> {
        let key = u64::from(pair.from.0) << 32 | u64::from(pair.to.0);
        let flags = pair.from.1 | pair.to.1 << HALF;
        let mut same = None;
        let mut sets = 0;
        for edge in ways(key, EDGES).map(|at| self.edge_at(at)) {
            // ORDERING: Acquire, pairs with the Release in `publish`.
            if edge.key.load(Acquire) != key || edge.flags.load(Relaxed) != flags {
                continue;
            }
            let is_held = |gate: &AtomicU32| {
                let gate = gate.load(Relaxed); // it may become 0 at any moment, which is also right
                gate == 0 || pair.others.contains(&gate)
            };
            if edge.gates.iter().all(is_held) {
                edge.passed(pair.thread);
                return None;
            }
            sets += 1;
            same = Some(edge);
        }
        if let Some(edge) = same.filter(|_| sets >= SETS) {
            // There are too many sets of gates for one pair: their intersection counts.
            for gate in &edge.gates {
                if !pair.others.contains(&gate.load(Relaxed)) {
                    gate.store(0, Relaxed); // by itself
                }
            }
            edge.passed(pair.thread);
            return None;
        }
        let claim = |edge: &&'static Edge, old: u64| {
            // ORDERING: Acquire, pairs with the Release in `publish`: its last owner has written everything.
            edge.key.compare_exchange(old, MOVING, Acquire, Relaxed).is_ok()
        };
        let places = || ways(key, EDGES).map(|at| self.edge_at(at));
        let is_over = |edge: &&'static Edge, old: u64| {
            let (from, to) = (edge.from.load(Relaxed), edge.to.load(Relaxed)); // checked by `claim`
            self.is_gone(from, (old >> 32) as u32) || self.is_gone(to, old as u32)
        };
        let free = places().find(|edge| claim(edge, 0));
        let edge = free.or_else(|| {
            let edge = places().find(|edge| {
                let old = edge.key.load(Relaxed);
                old != MOVING && is_over(edge, old) && claim(edge, old)
            });
            edge.inspect(|_| count(&self.header().edges_evicted))
        });
        let Some(edge) = edge else {
            count(&self.header().edges_lost);
            return None;
        };
        // All of this is published with the key.
        edge.count.store(1, Relaxed);
        edge.flags.store(flags, Relaxed);
        edge.threads[0].store(pair.thread, Relaxed);
        edge.threads[1].store(0, Relaxed);
        edge.more.store(0, Relaxed);
        let known = pair.others.iter().copied().filter(|&gate| gate != 0);
        for (gate, id) in edge.gates.iter().zip(known.chain(core::iter::repeat(0))) {
            gate.store(id, Relaxed);
        }
        Some((edge, key))
    }

    /// The stack with this key ([`Pieces::put`]). 0: there is no room for it.
    pub fn stack(&self, key: u64, registers: [u64; 3], fill: impl FnOnce(*mut u8) -> usize) -> u32 {
        self.pieces().put(key, registers, fill).unwrap_or_else(|| {
            count(&self.header().stacks_lost);
            0
        })
    }

    fn pieces(&self) -> Pieces<'static> {
        // SAFETY: within the mapping, aligned, and populated from the start.
        let keys: &[AtomicU64; STACKS] = unsafe { self.place(KEYS_AT) };
        // SAFETY: within the mapping, which lasts forever, and at a page's start.
        unsafe { Pieces::new(keys, self.base.add(STACKS_AT)) }
    }

    /// Notes that locks taken here are held while others are taken.
    pub fn nests(&self, stack: u32) {
        if let Some(stack) = self.pieces().get(stack) {
            stack.nests.store(1, Relaxed); // a hint
        }
    }

    /// Are locks that were taken here held while others are taken?
    pub fn does_nest(&self, stack: u32) -> bool {
        self.pieces().get(stack).is_some_and(|stack| stack.nests.load(Relaxed) != 0) // a hint
    }

    /// Replaces the map of the process's memory by what `fill` passes on, as far as there is room. Only one thread at a
    /// time may do that.
    pub fn map(&self, fill: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        // SAFETY: whole pages of the mapping, for nothing else.
        unsafe { file::write_text(&self.header().maps_length, self.base.add(MAPS_AT), MAPS, fill) };
    }
}

impl Edge {
    /// From now on the edge counts, under this key.
    pub fn publish(&self, key: u64) {
        // ORDERING: Release, pairs with the Acquires in `Order::pass`.
        self.key.store(key, Release);
    }

    /// Counts that this thread did it again.
    fn passed(&self, thread: u32) {
        count(&self.count);
        for known in &self.threads {
            let one = known.load(Relaxed); // a number by itself
            if one == thread
                || one == 0 && known.compare_exchange(0, thread, Relaxed, Relaxed).is_ok()
            {
                return;
            }
        }
        if self.more.load(Relaxed) == 0 {
            self.more.store(1, Relaxed); // a hint
        }
    }
}
