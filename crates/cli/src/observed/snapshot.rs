//! What a process has counted: its segment, read at one moment.

use crate::hints::{Failure, cause};
use lockwright_observe::layout::{
    ADDRESS_BITS, BUCKETS, CLASSES, GONE, Header, KEYS_AT, LENGTH, LOCKS, MAGIC, MAPS, MAPS_AT,
    MEMORY_AT, MOVING, NOTHING, OTHERS, RECORD, Record, SCALE, STACKS, STACKS_AT, Site, Stack,
    UNKNOWN, UNUSED, VERSION, WHOLE, record_at,
};
use lockwright_symbols::mappings_in;
use lockwright_symbols::{AddressSpace, Mapping};
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Of {
    /// A lock that is there, by its address.
    Lock(u64),
    /// Locks that are gone, by the return address of the call that waited for them first.
    Gone(u64),
    /// All those that found no room.
    Others,
}

/// A place in the program, by a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    Address(u64),
    Unknown,
    /// All those that found no room.
    Others,
}

impl At {
    fn new(address: u64) -> Self {
        match address {
            0 | UNKNOWN => Self::Unknown,
            OTHERS => Self::Others,
            address => Self::Address(address),
        }
    }
}

/// What happened at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: At,
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) max_tid: u32,
    /// One of its stacks, the innermost call first; empty: none was taken.
    pub(crate) stack: Vec<u64>,
}

/// Times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// The first bucket with a time.
    first: usize,
    /// From that one to the last with a time: most histograms have few of many.
    buckets: Vec<u64>,
}

impl Times {
    fn of(counts: impl Iterator<Item = (usize, u64)>) -> Self {
        let mut times = Self::default();
        for (at, count) in counts.filter(|(_, count)| *count > 0) {
            if times.buckets.is_empty() {
                times.first = at;
            }
            times.buckets.resize(at - times.first, 0);
            times.buckets.push(count);
        }
        times
    }

    fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..).zip(self.buckets.iter().copied())
    }

    fn at(&self, bucket: usize) -> u64 {
        bucket.checked_sub(self.first).and_then(|at| self.buckets.get(at).copied()).unwrap_or(0)
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The time that this part of them (0 to 1) does not exceed, ns; `None`: there are none.
    pub(crate) fn percentile(&self, part: f64) -> Option<u64> {
        let rank = ((self.count() as f64 * part).ceil() as u64).max(1);
        let mut sum = 0;
        let reaches = |&(_, count): &(usize, u64)| {
            sum += count;
            sum >= rank
        };
        self.counts().find(reaches).map(|(at, _)| SCALE.middle(at))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.clone_from(other);
        } else if !other.buckets.is_empty() {
            let (first, end) = (self.first.min(other.first), self.end().max(other.end()));
            *self = Self::of((first..end).map(|at| (at, self.at(at) + other.at(at))));
        }
    }

    /// Behind the last one.
    fn end(&self) -> usize {
        self.first + self.buckets.len()
    }

    /// How many do not exceed each of these bounds, ns, but the one before. A bucket counts where its middle lies.
    pub(crate) fn up_to(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len()];
        for (at, count) in self.counts() {
            if let Some(first) = bounds.iter().position(|&bound| SCALE.middle(at) <= bound) {
                counts[first] += count;
            }
        }
        counts
    }

    fn since(&self, before: &Self) -> Self {
        Self::of(self.counts().map(|(at, count)| (at, count.saturating_sub(before.at(at)))))
    }
}

/// Waits on cores of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) awake: u64,
    pub(crate) asleep: u64,
    pub(crate) ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) times: Times,
}

/// A lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) of: Of,
    pub(crate) tenants: u64,
    pub(crate) arrived: u64,
    /// It was destroyed.
    pub(crate) is_gone: bool,
    pub(crate) gave_up: u64,
    pub(crate) holds: u64,
    pub(crate) hold_ns: u64,
    pub(crate) hold_max_ns: u64,
    pub(crate) hold_max_at: At,
    /// For how long somebody waited, ns.
    pub(crate) blocked_ns: u64,
    pub(crate) wait_max_ns: u64,
    pub(crate) wait_max_at: At,
    pub(crate) followed: u64,
    pub(crate) owners: u64,
    pub(crate) cores: u64,
    /// Its place in the process's table of locks.
    pub(crate) place: u32,
    /// How many locks this stands for.
    pub(crate) locks: u32,
    pub(crate) classes: [Waits; CLASSES],
    pub(crate) waiters: Vec<Seen>,
    pub(crate) holders: Vec<Seen>,
    pub(crate) hold: Times,
}

impl Lock {
    /// How long threads waited, all of them together, ns.
    pub(crate) fn wait_ns(&self) -> u64 {
        self.classes.iter().map(|class| class.ns).sum()
    }

    pub(crate) fn asleep(&self) -> u64 {
        self.classes.iter().map(|class| class.asleep).sum()
    }

    /// The waits of all classes.
    pub(crate) fn wait(&self) -> Times {
        self.classes.iter().fold(Times::default(), |mut sum, class| {
            sum.add(&class.times);
            sum
        })
    }

    /// This one and another as one.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.arrived, other.arrived),
            (&mut self.gave_up, other.gave_up),
            (&mut self.holds, other.holds),
            (&mut self.hold_ns, other.hold_ns),
            (&mut self.blocked_ns, other.blocked_ns),
            (&mut self.followed, other.followed),
            (&mut self.owners, other.owners),
            (&mut self.cores, other.cores),
        ] {
            *sum += part;
        }
        self.locks += other.locks;
        if other.hold_max_ns > self.hold_max_ns {
            (self.hold_max_ns, self.hold_max_at) = (other.hold_max_ns, other.hold_max_at);
        }
        if other.wait_max_ns > self.wait_max_ns {
            (self.wait_max_ns, self.wait_max_at) = (other.wait_max_ns, other.wait_max_at);
        }
        for (sum, part) in self.classes.iter_mut().zip(&other.classes) {
            sum.awake += part.awake;
            sum.asleep += part.asleep;
            sum.ns += part.ns;
            sum.max_ns = sum.max_ns.max(part.max_ns);
            sum.times.add(&part.times);
        }
        let sites = |sum: &mut Vec<Seen>, parts: &[Seen]| {
            for part in parts {
                match sum.iter_mut().find(|site| site.at == part.at) {
                    Some(site) => {
                        site.count += part.count;
                        site.ns += part.ns;
                        if part.max_ns > site.max_ns {
                            (site.max_ns, site.max_tid) = (part.max_ns, part.max_tid);
                            site.stack.clone_from(&part.stack);
                        }
                    }
                    None => sum.push(part.clone()),
                }
            }
            sum.sort_by_key(|site| std::cmp::Reverse(site.ns));
        };
        sites(&mut self.waiters, &other.waiters);
        sites(&mut self.holders, &other.holders);
        self.hold.add(&other.hold);
    }

    /// What was counted since then. Maxima are those since counting began.
    fn since(&self, before: &Self) -> Self {
        let mut now = self.clone();
        if self.tenants != before.tenants {
            return now;
        }
        now.subtract(before);
        now
    }

    fn subtract(&mut self, before: &Self) {
        for (now, then) in [
            (&mut self.arrived, before.arrived),
            (&mut self.gave_up, before.gave_up),
            (&mut self.holds, before.holds),
            (&mut self.hold_ns, before.hold_ns),
            (&mut self.blocked_ns, before.blocked_ns),
            (&mut self.followed, before.followed),
            (&mut self.owners, before.owners),
            (&mut self.cores, before.cores),
        ] {
            *now = now.saturating_sub(then);
        }
        for (now, then) in self.classes.iter_mut().zip(&before.classes) {
            now.awake = now.awake.saturating_sub(then.awake);
            now.asleep = now.asleep.saturating_sub(then.asleep);
            now.ns = now.ns.saturating_sub(then.ns);
            now.times = now.times.since(&then.times);
        }
        let sites = |now: &mut Vec<Seen>, then: &[Seen]| {
            for site in now.iter_mut() {
                if let Some(then) = then.iter().find(|then| then.at == site.at) {
                    site.count = site.count.saturating_sub(then.count);
                    site.ns = site.ns.saturating_sub(then.ns);
                }
            }
            now.retain(|site| site.count > 0);
            now.sort_by_key(|site| std::cmp::Reverse(site.ns));
        };
        sites(&mut self.waiters, &before.waiters);
        sites(&mut self.holders, &before.holders);
        self.hold = self.hold.since(&before.hold);
    }
}

/// A segment at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) pid: u32,
    /// As LOCKWRIGHT_LOCK said it.
    pub(crate) lock: String,
    pub(crate) command: String,
    /// ns of `CLOCK_MONOTONIC`, both.
    pub(crate) start_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) unplaced: u64,
    pub(crate) evicted: u64,
    pub(crate) retired: u64,
    pub(crate) stacks_lost: u64,
    pub(crate) lost: u64,
    pub(crate) mappings: Vec<Mapping>,
    /// Those that somebody waited for.
    pub(crate) locks: Vec<Rc<Lock>>,
}

impl Snapshot {
    /// Reads a segment, of a process that runs or has ended.
    pub(crate) fn read(file: &File, path: &Path) -> Result<Self, Failure> {
        Reader::default().read(file, path)
    }

    /// What was counted since then.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        let known: BTreeMap<Of, &Rc<Lock>> =
            before.locks.iter().map(|lock| (lock.of, lock)).collect();
        let locks = self.locks.into_iter().filter_map(|lock| match known.get(&lock.of) {
            Some(then) if Rc::ptr_eq(then, &lock) => None,
            Some(then) => Some(Rc::new(lock.since(then))),
            None => Some(lock),
        });
        self.locks = locks.filter(|lock| lock.arrived > 0 || lock.wait_ns() > 0).collect();
        self
    }

    /// What lay where in the process, as it said itself.
    pub(crate) fn space(&self) -> AddressSpace {
        AddressSpace { pid: 0, mappings: self.mappings.clone(), threads: Vec::new() }
    }
}

/// Reads a segment again and again. It keeps what it has read of locks that have been quiet since.
#[derive(Default)]
pub(crate) struct Reader {
    /// By their places: the counts as they were, and the lock.
    known: BTreeMap<usize, (Box<[u8]>, Rc<Lock>)>,
}

impl Reader {
    /// As [`Snapshot::read`], of the same segment each time.
    pub(crate) fn read(&mut self, file: &File, path: &Path) -> Result<Snapshot, Failure> {
        let refuse = |why: &str| {
            Failure::new(format!("cannot read '{}': {why}", path.display()))
                .hint("lockwright profile -- PROGRAM writes and reads such a file")
        };
        let metadata = file.metadata().map_err(|error| refuse(&cause(&error)))?;
        // SAFETY: no preconditions.
        let user = unsafe { libc::geteuid() };
        if metadata.uid() != user && user != 0 {
            return Err(refuse("it belongs to another user"));
        }
        let mut head = vec![0; MAPS_AT];
        file.read_exact_at(&mut head, 0).map_err(|_| refuse("it is too short"))?;
        let head = Bytes(&head);
        if head.u64(offset_of!(Header, magic)) != MAGIC {
            return Err(refuse("it holds no counts of locks"));
        }
        if head.u32(offset_of!(Header, version)) != VERSION
            || head.u64(offset_of!(Header, length)) != LENGTH as u64
        {
            return Err(refuse("another version of lockwright wrote it"));
        }
        let mut maps = vec![0; (head.u64(offset_of!(Header, maps_length)) as usize).min(MAPS)];
        file.read_exact_at(&mut maps, MAPS_AT as u64).map_err(|_| refuse("it is too short"))?;
        let text = |offset: usize, length: usize| {
            let bytes = &head.0[offset..offset + length];
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(length);
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let mut locks: BTreeMap<Of, Rc<Lock>> = BTreeMap::new();
        let mut known = BTreeMap::new();
        let mut bytes = vec![0; RECORD];
        for index in 0..=LOCKS {
            let key = if index == LOCKS { MOVING } else { head.u64(KEYS_AT + index * 8) };
            let memory = head.u32(MEMORY_AT + index * 4);
            if key == 0 || key == MOVING && index < LOCKS || [UNUSED, NOTHING].contains(&memory) {
                continue;
            }
            let of = match key {
                _ if index == LOCKS => Of::Others,
                key if key & GONE != 0 => Of::Gone(key & (GONE - 1)),
                key => Of::Lock(key & ((1 << ADDRESS_BITS) - 1)),
            };
            // Most of it is times, and the waits on slower cores are seldom there. They stay what they are as long as the counts do.
            let (counts, all) = bytes.split_at_mut(offset_of!(Record, hold));
            let at = record_at(index) as u64;
            file.read_exact_at(counts, at).map_err(|_| refuse("it is too short"))?;
            let lock = match self.known.remove(&index) {
                Some((then, lock)) if *then == *counts && lock.of == of => (then, lock),
                _ => {
                    let times = match memory {
                        WHOLE => all,
                        _ => {
                            let (there, not) =
                                all.split_at_mut(offset_of!(Record, slower) - counts.len());
                            not.fill(0);
                            there
                        }
                    };
                    file.read_exact_at(times, at + counts.len() as u64)
                        .map_err(|_| refuse("it is too short"))?;
                    let then = counts.to_vec().into_boxed_slice();
                    (then, Rc::new(lock(of, Bytes(&bytes), &head)))
                }
            };
            let (counts, lock) = lock;
            known.insert(index, (counts, Rc::clone(&lock)));
            // Of two for one lock, which may be there by accident, the first one counts.
            if lock.arrived > 0 {
                locks.entry(of).or_insert(lock);
            }
        }
        self.known = known;
        Ok(Snapshot {
            pid: head.u32(offset_of!(Header, pid)),
            lock: text(offset_of!(Header, lock), 128),
            command: text(offset_of!(Header, command), 512),
            start_ns: head.u64(offset_of!(Header, start_ns)),
            last_ns: head.u64(offset_of!(Header, last_ns)),
            unplaced: head.u64(offset_of!(Header, unplaced)),
            evicted: head.u64(offset_of!(Header, evicted)),
            retired: head.u64(offset_of!(Header, retired)),
            stacks_lost: head.u64(offset_of!(Header, stacks_lost)),
            lost: head.u64(offset_of!(Header, lost)),
            mappings: mappings_in(&String::from_utf8_lossy(&maps)),
            locks: locks.into_values().collect(),
        })
    }
}

/// Little-endian numbers.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn times(&self, at: usize) -> Times {
        let bytes = &self.0[at..at + BUCKETS * 8];
        let bucket = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Times::of(bytes.chunks_exact(8).map(bucket).enumerate())
    }

    fn sites(&self, at: usize, head: &Bytes<'_>) -> Vec<Seen> {
        let site = |index: usize| {
            let at = at + index * size_of::<Site>();
            let address = self.u64(at + offset_of!(Site, address));
            let stack = self.u32(at + offset_of!(Site, stack)) as usize;
            (address != 0).then(|| Seen {
                at: At::new(address),
                count: self.u64(at + offset_of!(Site, count)),
                ns: self.u64(at + offset_of!(Site, ns)),
                max_ns: self.u64(at + offset_of!(Site, max_ns)),
                max_tid: self.u32(at + offset_of!(Site, max_tid)),
                stack: head.stack(stack),
            })
        };
        let mut sites: Vec<Seen> =
            (0..lockwright_observe::layout::SITES).filter_map(site).collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.ns));
        sites
    }

    /// A stack, by its index + 1; empty: there is none, or it is just being written.
    fn stack(&self, number: usize) -> Vec<u64> {
        if number == 0 || number > STACKS {
            return Vec::new();
        }
        let at = STACKS_AT + (number - 1) * size_of::<Stack>();
        let frames = at + offset_of!(Stack, frames)..at + size_of::<Stack>();
        let frames: Vec<u64> =
            frames.step_by(8).map(|at| self.u64(at)).take_while(|&frame| frame != 0).collect();
        let is_whole = lockwright_observe::stack_hash(&frames) == self.u64(at);
        if is_whole { frames } else { Vec::new() }
    }
}

fn lock(of: Of, record: Bytes<'_>, head: &Bytes<'_>) -> Lock {
    use lockwright_observe::layout::{Class, Histogram};
    let number = |offset| record.u64(offset);
    let class = |index: usize| {
        let at = offset_of!(Record, classes) + index * size_of::<Class>();
        let times = match index {
            0 => offset_of!(Record, wait),
            slower => offset_of!(Record, slower) + (slower - 1) * size_of::<Histogram>(),
        };
        Waits {
            awake: record.u64(at + offset_of!(Class, awake)),
            asleep: record.u64(at + offset_of!(Class, asleep)),
            ns: record.u64(at + offset_of!(Class, wait_ns)),
            max_ns: record.u64(at + offset_of!(Class, max_ns)),
            times: record.times(times),
        }
    };
    Lock {
        of,
        tenants: number(offset_of!(Record, tenants)),
        arrived: number(offset_of!(Record, arrived)),
        is_gone: number(offset_of!(Record, destroyed)) != 0,
        gave_up: number(offset_of!(Record, gave_up)),
        holds: number(offset_of!(Record, holds)),
        hold_ns: number(offset_of!(Record, hold_ns)),
        hold_max_ns: number(offset_of!(Record, hold_max_ns)),
        hold_max_at: At::new(number(offset_of!(Record, hold_max_site))),
        blocked_ns: number(offset_of!(Record, blocked_ns)),
        wait_max_ns: number(offset_of!(Record, wait_max_ns)),
        wait_max_at: At::new(number(offset_of!(Record, wait_max_site))),
        followed: number(offset_of!(Record, followed)),
        owners: number(offset_of!(Record, owners)),
        cores: number(offset_of!(Record, cores)),
        place: record.u32(offset_of!(Record, place)),
        locks: record.u32(offset_of!(Record, locks)).max(1),
        classes: std::array::from_fn(class),
        waiters: record.sites(offset_of!(Record, waiters), head),
        holders: record.sites(offset_of!(Record, holders), head),
        hold: record.times(offset_of!(Record, hold)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_and_go_apart_again() {
        let times = |all: &[u64]| {
            let mut buckets = vec![0; BUCKETS];
            all.iter().for_each(|&ns| buckets[SCALE.bucket(ns)] += 1);
            Times::of(buckets.into_iter().enumerate())
        };
        let (early, late) = (times(&[3, 5, 5]), times(&[1000, 1_000_000]));
        let mut all = early.clone();
        all.add(&late);
        assert_eq!(all, times(&[3, 5, 5, 1000, 1_000_000]));
        assert_eq!((all.since(&early), all.since(&late)), (late.clone(), early.clone()));
        assert_eq!((all.since(&all), all.count()), (Times::default(), 5));
        assert_eq!((all.percentile(0.2), all.percentile(0.6)), (Some(3), Some(5)));
        let longest = SCALE.middle(SCALE.bucket(1_000_000));
        assert_eq!(all.percentile(1.0), Some(longest));
        assert_eq!(Times::default().percentile(0.5), None);
        assert_eq!(all.up_to(&[4, 10, 2000]), [1, 2, 1]);
    }
}
