//! Counts in the segment.

use crate::counters::Segment;
use crate::counters::control::MOST;
use crate::counters::layout::{
    DEPTH, LOCKS, LockKind, OTHER_CONDITIONS, OTHER_LOCKS, OTHER_THREADS, OTHERS, PIECE,
    PIECE_KEYS_AT, PIECES, PIECES_AT, Record, SCALE, SITES, STACKS, Site, THREADS, TID_BITS,
    Thread, UNKNOWN, WAYS, is_owner, owner, owner_at,
};
use crate::header::CLASSES;
use crate::pieces::Pieces;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// In `blocked_since_ns`: the logarithm of the number of waiters that this one counts for.
pub const LOGARITHM: u64 = 0b1111;
const _: () = assert!(MOST.ilog2() as u64 <= LOGARITHM);

/// A wait that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// The lock's address.
    pub lock: u64,
    /// The return address of the call that requested the lock; 0: not known.
    pub site: u64,
    /// The wait's stack ([`Segment::stack`]); 0: none, or it isn't needed.
    pub stack: u32,
    /// The thread.
    pub tid: u32,
    /// When it ended, ns of `CLOCK_MONOTONIC`.
    pub ended_ns: u64,
    /// How long it took, ns.
    pub ns: u64,
    /// How many waits it counts for.
    pub weight: u32,
    /// The class of the core on which it ended.
    pub class: u8,
    /// Did the thread sleep?
    pub asleep: bool,
    /// Did it get the lock?
    pub acquired: bool,
    /// Does it count for its thread, too?
    pub by_thread: bool,
}

/// A release for which a thread waited, or the end of a timed hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blame {
    /// Where the lock was released; 0: not known.
    pub site: u64,
    /// The thread.
    pub tid: u32,
    /// Does it count for its thread, too?
    pub by_thread: bool,
}

/// Adds, unless there is nothing to add, so that most cache lines stay where they are.
pub(crate) fn add(to: &AtomicU64, count: u64) {
    if count != 0 {
        to.fetch_add(count, Relaxed); // a counter; its order doesn't matter to a reader
    }
}

/// Raises a maximum; `true` if it rose.
pub(crate) fn raise(to: &AtomicU64, value: u64) -> bool {
    to.load(Relaxed) < value && to.fetch_max(value, Relaxed) < value // as in `add`
}

impl Segment {
    /// The entry for this place among a record's sites.
    pub(crate) fn site(sites: &[Site; SITES], address: u64) -> &Site {
        let address = if address == 0 { UNKNOWN } else { address };
        let is_it = |site: &&Site| match site.address.load(Relaxed) {
            // Relaxed: the place needs nothing but zeroes.
            0 => match site.address.compare_exchange(0, address, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(seen) => seen == address,
            },
            seen => seen == address,
        };
        let (last, others) = (&sites[SITES - 1], &sites[..SITES - 1]);
        others.iter().find(is_it).unwrap_or_else(|| {
            if last.address.load(Relaxed) == 0 {
                last.address.store(OTHERS, Relaxed);
            }
            last
        })
    }

    /// The entry for this thread among a record's threads.
    pub(crate) fn thread(record: &Record, tid: u32) -> &Thread {
        const LAST: usize = THREADS - 1;
        let is_it = |known: &AtomicU32| match known.load(Relaxed) {
            // Relaxed, as in `site`.
            0 => match known.compare_exchange(0, tid, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(seen) => seen == tid,
            },
            seen => seen == tid,
        };
        let at = record.tids[..LAST].iter().position(is_it).unwrap_or_else(|| {
            if record.tids[LAST].load(Relaxed) == 0 {
                record.tids[LAST].store(OTHER_THREADS, Relaxed);
            }
            LAST
        });
        &record.threads[at]
    }

    /// Counts that others waited for this thread.
    fn blame_thread(record: &Record, blame: Blame, ns: u64) {
        if blame.by_thread {
            add(&Self::thread(record, blame.tid).blamed_ns, ns);
        }
    }

    /// `stack` is called only if its result is kept.
    pub(crate) fn count_at(
        sites: &[Site; SITES],
        blame: Blame,
        count: u64,
        ns: u64,
        longest_ns: u64,
        stack: impl FnOnce() -> u32,
    ) {
        let site = Self::site(sites, blame.site);
        add(&site.count, count);
        add(&site.ns, ns);
        let is_longest = raise(&site.max_ns, longest_ns);
        if is_longest {
            site.max_tid.store(blame.tid, Relaxed); // only shown to users
        }
        if is_longest || site.stack.load(Relaxed) == 0 {
            let stack = stack();
            if stack != 0 {
                site.stack.store(stack, Relaxed); // as above
            }
        }
    }

    /// Counts that `count` threads had to wait for a mutex. `place` is the index of the mutex's rule in the process's
    /// table of locks.
    pub fn arrived(&self, lock: u64, place: u32, now_ns: u64, count: u64) {
        self.arrived_at(lock, LockKind::Mutex, place, now_ns, count);
    }

    /// The same, for a lock of any kind. `place` is 0 if it isn't a mutex.
    pub fn arrived_at(&self, lock: u64, kind: LockKind, place: u32, now_ns: u64, count: u64) {
        let Some(record) = self.used(lock, kind, now_ns) else { return };
        add(&record.arrived, count);
        if record.place.load(Relaxed) != place {
            record.place.store(place, Relaxed); // a hint, and mostly read
        }
    }

    /// The record of a lock of this kind, in which something is counted at `now_ns`.
    pub(crate) fn used(&self, lock: u64, kind: LockKind, now_ns: u64) -> Option<&Record> {
        let now_ms = now_ns / 1_000_000;
        let mut at = self.record_of(lock, now_ms);
        if at == OTHER_LOCKS && kind == LockKind::Cond {
            at = OTHER_CONDITIONS;
        }
        let record = self.record(at)?;
        // The address now has another kind of lock: the memory was freed without destroying the first lock.
        let is_other = || record.kind.load(Relaxed) != kind as u32;
        let has_counts =
            || [&record.arrived, &record.failed_tries].iter().any(|count| count.load(Relaxed) != 0);
        let is_new = is_other() && has_counts();
        if at < LOCKS && (is_new || record.destroyed.load(Relaxed) != 0) {
            self.empty(at, now_ms, lock); // a new lock at an old one's address
        }
        // Relaxed, all of it: these are hints, and mostly read.
        if at != OTHER_LOCKS && is_other() {
            record.kind.store(kind as u32, Relaxed);
        }
        if record.last_ms.load(Relaxed) != now_ms {
            record.last_ms.store(now_ms, Relaxed);
        }
        let last = &self.header().common.last_ns;
        if last.load(Relaxed) + 1_000_000 <= now_ns {
            last.store(now_ns, Relaxed);
        }
        Some(record)
    }

    /// Counts waits that ended a while ago. If the lock has lost its record since, they are dropped.
    pub fn arrived_before(&self, lock: u64, count: u64) {
        if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
            add(&record.arrived, count);
        }
    }

    /// Would the stack of a wait of `ns` at this place be kept? Unwinding it takes as long as a short wait.
    pub fn wants_stack(&self, lock: u64, site: u64, ns: u64) -> bool {
        let record = self.find(lock).and_then(|at| self.record(at));
        record.is_some_and(|record| {
            let known = record.waiters.iter().find(|known| known.address.load(Relaxed) == site);
            known.is_none_or(|known| {
                known.stack.load(Relaxed) == 0 || known.max_ns.load(Relaxed) < ns // hints
            })
        })
    }

    /// A wait has ended.
    pub fn waited(&self, wait: &Wait) {
        let index = self.record_of(wait.lock, wait.ended_ns / 1_000_000);
        if let Some(record) = self.record(index) {
            self.waited_in(index, record, wait);
        }
    }

    /// As [`waited`](Self::waited), for the lock with this record.
    pub(crate) fn waited_in(&self, index: usize, record: &Record, wait: &Wait) {
        if !wait.acquired {
            add(&record.gave_up, 1);
        }
        let class = usize::from(wait.class).min(CLASSES - 1);
        let weight = u64::from(wait.weight);
        let of_class = &record.classes[class];
        add(if wait.asleep { &of_class.asleep } else { &of_class.awake }, weight);
        add(&of_class.wait_ns, wait.ns * weight);
        raise(&of_class.max_ns, wait.ns);
        if raise(&record.wait_max_ns, wait.ns) {
            record.wait_max_site.store(wait.site, Relaxed); // only shown to users
            record.wait_max_at_ns.store(wait.ended_ns, Relaxed); // as above
        }
        if let Some(waits) = self.waits(index, record, class) {
            add(&waits.buckets[SCALE.bucket(wait.ns)], weight);
        }
        if wait.by_thread {
            let thread = Self::thread(record, wait.tid);
            add(&thread.waits, weight);
            add(&thread.wait_ns, wait.ns * weight);
        }
        let who = Blame { site: wait.site, tid: wait.tid, by_thread: false };
        Self::count_at(&record.waiters, who, weight, wait.ns * weight, wait.ns, || wait.stack);
    }

    /// Did this lock's previous owner ask the next one to [follow](Self::follow)?
    #[inline]
    pub fn is_followed(&self, lock: u64) -> bool {
        is_owner(self.owners()[owner_at(lock)].load(Relaxed), lock) // a hint
    }

    /// A thread that had to wait has got the lock. Is it a different thread from the previous owner, or on a different
    /// CPU? With `asks`, the next owner is compared with this one. (So only some pairs of consecutive owners are
    /// compared.) Locks that share a place lose some answers.
    pub fn follow(&self, lock: u64, tid: u32, cpu: u32, asks: bool) {
        let place = &self.owners()[owner_at(lock)];
        let (before, now) = (place.load(Relaxed), owner(lock, tid, cpu)); // a hint
        if is_owner(before, lock) {
            place.store(0, Relaxed); // as above
            if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
                let changed = before ^ now;
                add(&record.followed, 1);
                add(&record.owners, u64::from(changed % (1 << TID_BITS) != 0));
                add(&record.cores, u64::from(changed >> TID_BITS != 0));
            }
        }
        if asks {
            place.store(now, Relaxed); // as above
        }
    }

    /// Threads have taken the lock this often since the last call, with and without a wait.
    pub fn acquired(&self, lock: u64, count: u64) {
        if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
            add(&record.acquired, count);
        }
    }

    /// A timed hold of `ns` has ended; it counts for `weight` holds.
    pub fn held(&self, lock: u64, ns: u64, weight: u32, blame: Blame) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let weight = u64::from(weight);
        add(&record.holds, weight);
        add(&record.hold_ns, ns * weight);
        if raise(&record.hold_max_ns, ns) {
            record.hold_max_site.store(blame.site, Relaxed); // only shown to users
        }
        add(&record.hold.buckets[SCALE.bucket(ns)], weight);
    }

    /// A thread has waited for a lock since `since_ns`. It either sleeps now, or counts for `weight` waiters, a power
    /// of two. From now on the holder's release is recorded. Anything noted before `begun_ns` is out of date.
    pub fn blocks(&self, lock: u64, since_ns: u64, weight: u32, begun_ns: u64) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        debug_assert!(weight.is_power_of_two() && weight <= MOST);
        let (now, since) = (record.blocked_since_ns.load(Relaxed), since_ns & !LOGARITHM); // a hint
        if now & !LOGARITHM == since || now <= begun_ns {
            record.blocked_since_ns.store(since | u64::from(weight.ilog2()), Relaxed);
        }
    }

    /// A thread that has waited since `since_ns` gives up, so no holder is blamed for it.
    pub fn gives_up(&self, lock: u64, since_ns: u64) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        if record.blocked_since_ns.load(Relaxed) & !LOGARITHM == since_ns & !LOGARITHM {
            record.blocked_since_ns.store(0, Relaxed); // a hint
        }
    }

    /// A thread that had to wait got the lock at `now_ns`. From then on it is to blame if others wait.
    pub fn answers(&self, lock: u64, now_ns: u64, others: bool) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let since = if others { now_ns & !LOGARITHM } else { 0 };
        if record.blocked_since_ns.load(Relaxed) != since {
            record.blocked_since_ns.store(since, Relaxed); // a hint
        }
        // Whoever had it before may yet say so. But this thread is not to blame.
        if record.unblamed_tries.load(Relaxed) != 0 {
            record.unblamed_tries.store(0, Relaxed); // a hint
        }
    }

    /// A lock with waiters was released at `now_ns`. The holder is to blame for the time since it acquired the lock, or
    /// since the first waiter arrived. (Remaining waiters are noted when they get the lock, or when the next one falls
    /// asleep.) Anything noted before `begun_ns` is out of date.
    pub fn blocked(
        &self,
        lock: u64,
        now_ns: u64,
        begun_ns: u64,
        blame: Blame,
        stack: impl FnOnce() -> u32,
    ) {
        let since = self.blocked_since(lock);
        self.blocked_from(lock, since, now_ns, begun_ns, blame, stack);
    }

    /// The first half of [`blocked`](Self::blocked), before the release. Returns the time since when a thread has
    /// waited. From now on the next holder is to blame.
    pub fn blocked_since(&self, lock: u64) -> u64 {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return 0 };
        match record.blocked_since_ns.load(Relaxed) {
            0 => 0,
            _ => record.blocked_since_ns.swap(0, Relaxed), // a hint
        }
    }

    /// The second half of [`blocked`](Self::blocked), after the release.
    pub fn blocked_from(
        &self,
        lock: u64,
        since: u64,
        now_ns: u64,
        begun_ns: u64,
        blame: Blame,
        stack: impl FnOnce() -> u32,
    ) {
        if since == 0 || since <= begun_ns {
            return;
        }
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let weight = 1 << (since & LOGARITHM);
        let ns = now_ns.saturating_sub(since & !LOGARITHM);
        // The waits that this one counts for all happened after a holder was last blamed. So together they can't have
        // lasted longer than that.
        let until = record.blocked_until_ns.swap(now_ns, Relaxed).max(begun_ns); // a hint
        let all = (ns * weight).min(now_ns.saturating_sub(until)).max(ns);
        add(&record.blocked_ns, all);
        Self::blame_thread(record, blame, all);
        Self::count_at(&record.holders, blame, weight, all, ns, stack);
    }

    /// Blames a holder when only one in N of its releases is examined: the holder is to blame for its own hold.
    pub fn blocked_by_hold(
        &self,
        lock: u64,
        ns: u64,
        weight: u32,
        blame: Blame,
        stack: impl FnOnce() -> u32,
    ) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let weight = u64::from(weight);
        add(&record.blocked_ns, ns * weight);
        Self::blame_thread(record, blame, ns * weight);
        Self::count_at(&record.holders, blame, weight, ns * weight, ns, stack);
    }

    /// The index of a stack, plus 1; 0: there is no space.
    pub fn stack(&self, frames: &[u64]) -> u32 {
        let frames = &frames[..frames.len().min(DEPTH)];
        let hash = stack_hash(frames);
        for step in 0..WAYS {
            let at = (hash as usize).wrapping_add(step) % STACKS;
            let stack = &self.stacks()[at];
            // Relaxed: a reader checks the hash.
            match stack.hash.compare_exchange(0, hash, Relaxed, Relaxed) {
                Ok(_) => {
                    for (place, frame) in stack.frames.iter().zip(frames) {
                        place.store(*frame, Relaxed);
                    }
                    return at as u32 + 1;
                }
                Err(seen) if seen == hash => return at as u32 + 1,
                Err(_) => {}
            }
        }
        self.header().stacks_lost.fetch_add(1, Relaxed); // a counter
        0
    }

    /// The number of a stack for the reader to unwind ([`Pieces::put`]); 0: there is no space.
    pub fn piece(&self, key: u64, registers: [u64; 3], fill: impl FnOnce(*mut u8) -> usize) -> u32 {
        // SAFETY: that many words; zeroes are free keys.
        let keys: &[AtomicU64; PIECES] = unsafe { self.at(PIECE_KEYS_AT) };
        // SAFETY: within the mapping, which lasts forever, and at a page's start.
        let pieces = unsafe { Pieces::new(keys, self.file.base.add(PIECES_AT)) };
        pieces.put(key, registers, fill).map_or(0, |number| number | PIECE)
    }
}

/// The hash of a stack; not 0.
pub fn stack_hash(frames: &[u64]) -> u64 {
    let step =
        |hash: u64, frame: &u64| (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    frames.iter().fold(0x51_7c_c1_b7, step) | 1
}
