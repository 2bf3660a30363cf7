//! Makes the segment, and counts in it.

use crate::control::MOST;
use crate::layout::{
    CLASSES, DEPTH, ENDING_NUL, GONE, HEAD, HEAD_LENGTH, Header, Histogram, KEYS_AT, LENGTH, LOCKS,
    MAGIC, MAPS, MAPS_AT, MEMORY_AT, MOVING, NOTHING, OTHERS, RECORD, Record, SCALE, SITES, STACKS,
    STACKS_AT, Site, Stack, UNKNOWN, UNUSED, VERSION, WAYS, WHOLE, record_at,
};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
pub use lockwright_record::Refused;
use lockwright_record::file::{self, Name};

/// The header's contents.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Now, ns of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// When the process began, clock ticks since the machine did; 0: not known.
    pub started: u64,
    /// The inode of its namespace of process ids; 0: not known.
    pub namespace: u64,
    /// This boot's id.
    pub boot: &'a [u8],
    /// The lock in use.
    pub lock: &'a [u8],
    /// The command line.
    pub command: &'a [u8],
}

/// In `blocked_since_ns`: the logarithm of as how many the waiter counts.
const LOGARITHM: u64 = 0b111;
const _: () = assert!(MOST.ilog2() as u64 <= LOGARITHM);

/// A wait that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// The lock's address.
    pub lock: u64,
    /// Where it was asked for; 0: not known.
    pub site: u64,
    /// The wait's stack ([`Segment::stack`]); 0: none, or nobody wants it.
    pub stack: u32,
    /// The thread.
    pub tid: u32,
    /// When it ended, ns of `CLOCK_MONOTONIC`.
    pub ended_ns: u64,
    /// How long it took, ns.
    pub ns: u64,
    /// As how many it counts.
    pub weight: u32,
    /// The class of the core on which it ended.
    pub class: u8,
    /// Did the thread sleep?
    pub asleep: bool,
    /// Did it get the lock?
    pub acquired: bool,
}

/// A release for which somebody waited, or the end of a hold that was timed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blame {
    /// Where it was released; 0: not known.
    pub site: u64,
    /// The thread.
    pub tid: u32,
}

/// The shared memory. Mapped forever; as cheap to copy as a pointer.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub(crate) base: *mut u8,
}

// SAFETY: everything behind it is atomic, or constant.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Adds, unless there is nothing to add: most lines of memory stay where they are.
fn add(to: &AtomicU64, count: u64) {
    if count != 0 {
        to.fetch_add(count, Relaxed); // a counter, whose order does not matter to a reader
    }
}

/// Raises a maximum; `true`: it was raised.
fn raise(to: &AtomicU64, value: u64) -> bool {
    to.load(Relaxed) < value && to.fetch_max(value, Relaxed) < value // as in `add`
}

impl Segment {
    /// Makes `DIR/PID-N.observe`, with the first N that is free.
    ///
    /// # Errors
    /// The system's, from making, growing or mapping the file; a folder that is a link, or another user's.
    pub fn create(dir: &[u8], about: &About<'_>) -> Result<Self, Refused> {
        let (base, pid, number) = file::create(dir, ENDING_NUL, LENGTH, MAPS_AT)?;
        let segment = Self { base };
        let mut header = Header {
            magic: AtomicU64::new(0),
            version: VERSION,
            pid,
            namespace: about.namespace,
            number: number.into(),
            length: LENGTH as u64,
            started: about.started,
            start_ns: AtomicU64::new(about.now_ns),
            last_ns: AtomicU64::new(about.now_ns),
            unplaced: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            stacks_lost: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            maps_length: AtomicU64::new(0),
            boot: [0; 40],
            lock: [0; 128],
            command: [0; 512],
        };
        file::fill(&mut header.boot, about.boot);
        file::fill(&mut header.lock, about.lock);
        file::fill(&mut header.command, about.command);
        // SAFETY: the mapping is that long, aligned to a page, and ours alone.
        unsafe { segment.base.cast::<Header>().write(header) };
        // ORDERING: Release, pairs with the reader, which looks for it first.
        segment.header().magic.store(MAGIC, Release);
        Ok(segment)
    }

    /// Its file's name, in the folder that it was made in; for the process `pid`, which made it.
    pub fn name(&self, pid: u32) -> Option<Name> {
        let header = self.header();
        (header.pid == pid).then(|| file::name(pid, header.number as u32, ENDING_NUL))
    }

    /// Where it is mapped.
    pub fn base(&self) -> *const u8 {
        self.base
    }

    /// What lies there.
    ///
    /// # Safety
    /// It is a `T`, within the bytes that are populated.
    pub(crate) unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: mapped forever, and the caller's promise.
        unsafe { &*self.base.add(offset).cast() }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: written by `create`.
        unsafe { self.at(0) }
    }

    pub(crate) fn keys(&self) -> &[AtomicU64; LOCKS] {
        // SAFETY: that many words; zeroes are free keys.
        unsafe { self.at(KEYS_AT) }
    }

    fn stacks(&self) -> &[Stack; STACKS] {
        // SAFETY: that many; zeroes are free places.
        unsafe { self.at(STACKS_AT) }
    }

    pub(crate) fn memory(&self, index: usize) -> &AtomicU32 {
        // SAFETY: LOCKS + 1 words.
        unsafe { self.at(MEMORY_AT + index.min(LOCKS) * 4) }
    }

    /// Writes what lies where in the process's memory: `fill` hands over pieces of text. Called by one thread at a time.
    pub fn map(&self, fill: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let length = &self.header().maps_length;
        if length.swap(0, Relaxed) == 0 {
            // SAFETY: within the mapping, and whole pages.
            let is_there = unsafe { file::populate(self.base.add(MAPS_AT), MAPS) }.is_ok();
            if !is_there {
                return;
            }
        }
        let mut end = 0;
        fill(&mut |piece| {
            if end + piece.len() <= MAPS {
                // SAFETY: within the bytes that are populated, and nobody else writes there.
                unsafe {
                    let to = self.base.add(MAPS_AT + end);
                    to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                }
                end += piece.len();
            }
        });
        // ORDERING: Release, pairs with the reader's Acquire: the text is there.
        length.store(end as u64, Release);
    }

    /// The places in which a key may stand.
    fn ways(key: u64) -> core::ops::Range<usize> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = hash as usize % (LOCKS / WAYS) * WAYS;
        first..first + WAYS
    }

    fn find(&self, key: u64) -> Option<usize> {
        Self::ways(key).find(|&at| self.keys()[at].load(Relaxed) == key) // keys are independent
    }

    /// The record of this index, with its memory; `None`: there is none.
    fn record(&self, index: usize) -> Option<&Record> {
        // Relaxed: the pages are there or not, for all threads.
        let is_there = match self.memory(index).load(Relaxed) {
            UNUSED => self.give(index, HEAD, 0, HEAD_LENGTH),
            NOTHING => false,
            _ => true,
        };
        if !is_there {
            self.header().lost.fetch_add(1, Relaxed); // a counter
            return None;
        }
        // SAFETY: its head is populated; zeroes are a record. What lies behind the head is looked at only through
        // `slower`, which makes sure.
        Some(unsafe { self.at(record_at(index)) })
    }

    /// Has the kernel give memory now.
    #[cold]
    fn give(&self, index: usize, state: u32, from: usize, to: usize) -> bool {
        // SAFETY: within the mapping, and whole pages.
        let at = unsafe { self.base.add(record_at(index) + from) };
        // SAFETY: as above.
        let is_there = unsafe { file::populate(at, to - from) }.is_ok();
        if is_there {
            self.memory(index).fetch_max(state, Relaxed); // as in `record`
        } else if from == 0 {
            self.memory(index).store(NOTHING, Relaxed);
        }
        is_there
    }

    /// The histogram of waits of this class; `None`: there is no memory.
    fn waits<'a>(&self, index: usize, record: &'a Record, class: usize) -> Option<&'a Histogram> {
        if class == 0 {
            return Some(&record.wait);
        }
        let is_there = self.memory(index).load(Relaxed) == WHOLE // as in `record`
            || self.give(index, WHOLE, HEAD_LENGTH, RECORD);
        is_there.then(|| &record.slower[class - 1])
    }

    /// The index of the record of a key, which gets one if it has none.
    fn record_of(&self, key: u64, now_ms: u64) -> usize {
        self.find(key).unwrap_or_else(|| self.place(key, now_ms))
    }

    #[cold]
    fn place(&self, key: u64, now_ms: u64) -> usize {
        for at in Self::ways(key) {
            // Relaxed: the record needs nothing but zeroes.
            match self.keys()[at].compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => return at,
                Err(seen) if seen == key => return at,
                Err(_) => {}
            }
        }
        // One that was destroyed makes room, or one that has been quiet for a second: memory may have been freed without `destroy`.
        let makes_room = |&at: &usize| {
            self.record(at).is_some_and(|record| {
                let last = record.last_ms.load(Relaxed);
                record.destroyed.load(Relaxed) != 0 || last.saturating_add(1000) < now_ms
            })
        };
        let Some(at) = Self::ways(key).find(makes_room) else {
            self.header().unplaced.fetch_add(1, Relaxed); // a counter
            return LOCKS;
        };
        if self.empty(at, now_ms, key) { at } else { LOCKS }
    }

    /// A lock is no more. What it counted stays where it is until somebody needs the room.
    pub fn retire(&self, lock: u64) {
        if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
            record.destroyed.store(1, Relaxed); // of the lock's own thread
            self.header().retired.fetch_add(1, Relaxed); // a counter
        }
    }

    /// Empties a record, whose place in the table gets another key; `false`: somebody else does.
    #[cold]
    fn empty(&self, at: usize, now_ms: u64, next: u64) -> bool {
        let key = self.keys()[at].load(Relaxed); // made sure of below
        let Some(record) = self.record(at) else { return false };
        // Relaxed, here and below: keys are independent, and counters are drained one by one.
        if matches!(key, 0 | MOVING)
            || self.keys()[at].compare_exchange(key, MOVING, Relaxed, Relaxed).is_err()
        {
            return false;
        }
        let site = match record.waiters[0].address.load(Relaxed) {
            0 => UNKNOWN,
            site => site,
        };
        // A place that makes room for a lock, and a lock that finds no place free, go to the last one.
        let to = match key {
            key if key & GONE != 0 => LOCKS,
            _ => self.find(site | GONE).unwrap_or_else(|| {
                let free = |&way: &usize| {
                    self.keys()[way].compare_exchange(0, site | GONE, Relaxed, Relaxed).is_ok()
                };
                Self::ways(site | GONE).find(free).unwrap_or(LOCKS)
            }),
        };
        match self.record(to) {
            Some(target) if to != at => {
                let is_whole = self.memory(at).load(Relaxed) == WHOLE; // as in `record`
                Self::drain(record, target, is_whole && self.waits(to, target, 1).is_some());
                target.last_ms.store(now_ms, Relaxed);
                if key & GONE == 0 {
                    target.locks.fetch_add(1, Relaxed);
                }
            }
            _ => {}
        }
        self.header().evicted.fetch_add(1, Relaxed);
        record.destroyed.store(0, Relaxed);
        record.tenants.fetch_add(1, Relaxed);
        self.keys()[at].store(next, Relaxed);
        true
    }

    /// Adds one record to another, and leaves zeroes. `slower`: both have the memory for waits on slower cores.
    pub(crate) fn drain(from: &Record, to: &Record, slower: bool) {
        let moved = |from: &AtomicU64, to: &AtomicU64| add(to, from.swap(0, Relaxed)); // see `empty`
        let raised = |from: &AtomicU64, to: &AtomicU64| raise(to, from.swap(0, Relaxed));
        for (from, to) in [
            (&from.arrived, &to.arrived),
            (&from.gave_up, &to.gave_up),
            (&from.holds, &to.holds),
            (&from.hold_ns, &to.hold_ns),
            (&from.blocked_ns, &to.blocked_ns),
            (&from.followed, &to.followed),
            (&from.owners, &to.owners),
            (&from.cores, &to.cores),
        ] {
            moved(from, to);
        }
        for no_more in [&from.blocked_since_ns, &from.last_owner, &from.last_ms] {
            no_more.store(0, Relaxed);
        }
        let hold_site = from.hold_max_site.swap(0, Relaxed);
        if raised(&from.hold_max_ns, &to.hold_max_ns) {
            to.hold_max_site.store(hold_site, Relaxed);
        }
        let wait_site = from.wait_max_site.swap(0, Relaxed);
        let wait_at = from.wait_max_at_ns.swap(0, Relaxed);
        if raised(&from.wait_max_ns, &to.wait_max_ns) {
            to.wait_max_site.store(wait_site, Relaxed);
            to.wait_max_at_ns.store(wait_at, Relaxed);
        }
        to.place.store(from.place.swap(0, Relaxed), Relaxed);
        to.locks.fetch_add(from.locks.swap(0, Relaxed), Relaxed);
        for (from, to) in from.classes.iter().zip(&to.classes) {
            moved(&from.awake, &to.awake);
            moved(&from.asleep, &to.asleep);
            moved(&from.wait_ns, &to.wait_ns);
            raised(&from.max_ns, &to.max_ns);
        }
        for (from, to) in [(&from.waiters, &to.waiters), (&from.holders, &to.holders)] {
            for site in from {
                let address = site.address.swap(0, Relaxed);
                if address == 0 {
                    continue;
                }
                let to = Self::site(to, address);
                moved(&site.count, &to.count);
                moved(&site.ns, &to.ns);
                let (tid, stack) = (site.max_tid.swap(0, Relaxed), site.stack.swap(0, Relaxed));
                if raised(&site.max_ns, &to.max_ns) {
                    to.max_tid.store(tid, Relaxed);
                    to.stack.store(stack, Relaxed);
                }
            }
        }
        let histogram = |from: &Histogram, to: &Histogram| {
            for (from, to) in from.buckets.iter().zip(&to.buckets) {
                if from.load(Relaxed) != 0 {
                    moved(from, to);
                }
            }
        };
        histogram(&from.hold, &to.hold);
        histogram(&from.wait, &to.wait);
        if slower {
            for (from, to) in from.slower.iter().zip(&to.slower) {
                histogram(from, to);
            }
        }
    }

    /// This place among a record's.
    fn site(sites: &[Site; SITES], address: u64) -> &Site {
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

    /// `stack` is walked only if it is kept.
    fn count_at(
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
            site.max_tid.store(blame.tid, Relaxed); // for people's eyes
        }
        if is_longest || site.stack.load(Relaxed) == 0 {
            let stack = stack();
            if stack != 0 {
                site.stack.store(stack, Relaxed); // as above
            }
        }
    }

    /// This many threads had to wait for a lock, whose place in the process's table of locks this is.
    pub fn arrived(&self, lock: u64, place: u32, now_ns: u64, count: u64) {
        let now_ms = now_ns / 1_000_000;
        let at = self.record_of(lock, now_ms);
        let Some(record) = self.record(at) else { return };
        if record.destroyed.load(Relaxed) != 0 && at < LOCKS {
            self.empty(at, now_ms, lock); // a new lock at an old one's address
        }
        add(&record.arrived, count);
        // Relaxed, all of it: hints, and mostly read.
        if record.last_ms.load(Relaxed) != now_ms {
            record.last_ms.store(now_ms, Relaxed);
        }
        if record.place.load(Relaxed) != place {
            record.place.store(place, Relaxed);
        }
        let last = &self.header().last_ns;
        if last.load(Relaxed) + 1_000_000 <= now_ns {
            last.store(now_ns, Relaxed);
        }
    }

    /// The same, of waits that have been over for a while. If the lock has lost its record meanwhile, they are forgotten.
    pub fn arrived_before(&self, lock: u64, count: u64) {
        if let Some(record) = self.find(lock).and_then(|at| self.record(at)) {
            add(&record.arrived, count);
        }
    }

    /// Would the stack of a wait at this place be kept, that took `ns`? Walking it takes as long as a short wait.
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
        let Some(record) = self.record(index) else { return };
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
            record.wait_max_site.store(wait.site, Relaxed); // for people's eyes
            record.wait_max_at_ns.store(wait.ended_ns, Relaxed); // as above
        }
        if let Some(waits) = self.waits(index, record, class) {
            add(&waits.buckets[SCALE.bucket(wait.ns)], weight);
        }
        let who = Blame { site: wait.site, tid: wait.tid };
        Self::count_at(&record.waiters, who, weight, wait.ns * weight, wait.ns, || wait.stack);
    }

    /// A thread that had to wait has the lock: is it another one than the last, on another CPU? `asks`: so the next one is to say.
    /// (Two acquisitions in a row are compared, one of many. So most leave the memory as it is.)
    pub fn follow(&self, lock: u64, tid: u32, cpu: u32, asks: bool) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let before = record.last_owner.load(Relaxed); // a hint
        if before != 0 {
            add(&record.followed, 1);
            add(&record.owners, u64::from(before as u32 != tid));
            add(&record.cores, u64::from((before >> 32) as u32 != cpu + 1));
        }
        let next = if asks { u64::from(cpu + 1) << 32 | u64::from(tid) } else { 0 };
        if before != next {
            record.last_owner.store(next, Relaxed);
        }
    }

    /// A hold that was timed has ended, ns; it counts as `weight`.
    pub fn held(&self, lock: u64, ns: u64, weight: u32, blame: Blame) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let weight = u64::from(weight);
        add(&record.holds, weight);
        add(&record.hold_ns, ns * weight);
        if raise(&record.hold_max_ns, ns) {
            record.hold_max_site.store(blame.site, Relaxed); // for people's eyes
        }
        add(&record.hold.buckets[SCALE.bucket(ns)], weight);
    }

    /// A thread has waited for a lock since `since_ns`, and either sleeps now, or counts as `weight` of its kind, a power of two:
    /// from now on the holder's release is of interest.
    pub fn blocks(&self, lock: u64, since_ns: u64, weight: u32) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        debug_assert!(weight.is_power_of_two() && weight <= MOST);
        let (now, since) = (record.blocked_since_ns.load(Relaxed), since_ns & !LOGARITHM); // a hint
        if now == 0 || now & !LOGARITHM == since {
            record.blocked_since_ns.store(since | u64::from(weight.ilog2()), Relaxed);
        }
    }

    /// A thread that has waited since `since_ns` waits no more: nobody answers to it.
    pub fn gives_up(&self, lock: u64, since_ns: u64) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        if record.blocked_since_ns.load(Relaxed) & !LOGARITHM == since_ns & !LOGARITHM {
            record.blocked_since_ns.store(0, Relaxed); // a hint
        }
    }

    /// A thread that had to wait got the lock at `now_ns`: it answers for what follows, if others wait.
    pub fn answers(&self, lock: u64, now_ns: u64, others: bool) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        let since = if others { now_ns & !LOGARITHM } else { 0 };
        if record.blocked_since_ns.load(Relaxed) != since {
            record.blocked_since_ns.store(since, Relaxed); // a hint
        }
    }

    /// A lock for which somebody waits has been released, at `now_ns`: the holder answers for the time since it acquired it, or
    /// since somebody began to wait. (Those who wait on make themselves known when they get it, or the next one does who falls
    /// asleep.)
    pub fn blocked(&self, lock: u64, now_ns: u64, blame: Blame, stack: impl FnOnce() -> u32) {
        let Some(record) = self.find(lock).and_then(|at| self.record(at)) else { return };
        if record.blocked_since_ns.load(Relaxed) == 0 {
            return;
        }
        let since = record.blocked_since_ns.swap(0, Relaxed); // a hint
        if since != 0 {
            let weight = 1 << (since & LOGARITHM);
            let ns = now_ns.saturating_sub(since & !LOGARITHM);
            add(&record.blocked_ns, ns * weight);
            Self::count_at(&record.holders, blame, weight, ns * weight, ns, stack);
        }
    }

    /// The same for a holder of whose releases one in several is looked at: it answers for its own hold.
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
        Self::count_at(&record.holders, blame, weight, ns * weight, ns, stack);
    }

    /// The index of a stack, + 1; 0: there is no room.
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
}

/// The hash of a stack; not 0.
pub fn stack_hash(frames: &[u64]) -> u64 {
    let step =
        |hash: u64, frame: &u64| (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    frames.iter().fold(0x51_7c_c1_b7, step) | 1
}
