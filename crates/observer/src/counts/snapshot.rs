//! The counts of a process at one moment, read from its segment.

use super::beyond::Beyond;
use crate::stack::Piece;
use lockwright_contract::counters::layout::{OTHERS, UNKNOWN};
use lockwright_contract::header::CLASSES;
use lockwright_numbers::Times;
use lockwright_symbols::{AddressSpace, Mapping};
use serde::Serialize;
use std::rc::Rc;

/// What a record belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    /// An existing lock, by its address.
    Lock(u64),
    /// Destroyed locks, by the return address of the call that was the first to wait.
    Gone(u64),
    /// All locks without a record of their own.
    #[default]
    Others,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// Any lock of ours.
    #[default]
    Mutex,
    /// glibc's own semaphore; the thread that takes it also releases it.
    Semaphore,
    /// A readers-writer lock.
    #[serde(rename = "rwlock")]
    ReadWrite,
    /// A spin lock. Nobody knows who holds it.
    Spin,
    /// A condition variable, which is no lock.
    Condition,
}

/// Semaphores that are not locks: one thread releases what another thread took. They have no holder, so no thread is
/// blamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Signals {
    /// How many there are.
    pub semaphores: u64,
    /// How often threads waited for them.
    pub waits: u64,
    /// Total waiting time of all threads, ns.
    pub wait_ns: u64,
}

/// A place in the program, by a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// The call returns to this address.
    Address(u64),
    /// No address is known.
    Unknown,
    /// All places without a slot of their own.
    Others,
}

impl At {
    /// As a segment says it.
    pub fn new(address: u64) -> Self {
        match address {
            0 | UNKNOWN => Self::Unknown,
            OTHERS => Self::Others,
            address => Self::Address(address),
        }
    }
}

/// What happened at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The place.
    pub at: At,
    /// The number of waits.
    pub count: u64,
    /// Their total, ns.
    pub ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// The thread of the longest.
    pub max_tid: u32,
    /// One of its stacks, the innermost call first; empty: none was taken, or it has yet to be unwound.
    pub stack: Vec<u64>,
    /// The piece from which to unwind the stack.
    pub piece: Option<Rc<Piece>>,
}

/// One thread's waits for a lock, and others' waits for that thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// [`OTHER_THREADS`]: all threads without a slot of their own.
    pub tid: u32,
    /// How often it waited.
    pub waits: u64,
    /// How long it waited, ns.
    pub wait_ns: u64,
    /// How long others waited for it.
    pub blamed_ns: u64,
}

/// Waits on cores of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Waits without sleep.
    pub awake: u64,
    /// Waits that included a sleep.
    pub asleep: u64,
    /// Their total, ns.
    pub ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// Their distribution, ns.
    pub times: Times,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    /// What its record belongs to.
    pub of: Of,
    /// Mutex or semaphore.
    pub kind: LockKind,
    /// Is it a semaphore that isn't used as a lock, as far as we saw?
    pub is_signal: bool,
    /// Which of the locks that used this record it is.
    pub tenants: u64,
    /// Number of waits.
    pub arrived: u64,
    /// Was it destroyed?
    pub is_gone: bool,
    /// How many of the waits were given up.
    pub gave_up: u64,
    /// Number of timed holds.
    pub holds: u64,
    /// Their total, ns.
    pub hold_ns: u64,
    /// The longest, ns.
    pub hold_max_ns: u64,
    /// Where that was.
    pub hold_max_at: At,
    /// Time during which at least one thread waited, ns.
    pub blocked_ns: u64,
    /// The longest wait, ns.
    pub wait_max_ns: u64,
    /// Where that was.
    pub wait_max_at: At,
    /// Acquisitions from its first timed wait to its last; 0: not known.
    pub acquired: u64,
    /// Acquisitions after a wait for which `owners` and `cores` are known.
    pub followed: u64,
    /// How many of them changed the owner.
    pub owners: u64,
    /// How many of them moved the lock to another CPU.
    pub cores: u64,
    /// Its place in the process's table of locks.
    pub place: u32,
    /// The number of locks that it stands for.
    pub locks: u32,
    /// Its waits by class of core, the fastest first.
    pub classes: [Waits; CLASSES],
    /// Places that wait, sorted by time.
    pub waiters: Vec<Seen>,
    /// Places for which others wait, sorted by time.
    pub holders: Vec<Seen>,
    /// By thread; empty unless the level was `full`.
    pub threads: Vec<Part>,
    /// How long threads that had to wait held it, ns.
    pub hold: Times,
    /// Since when a thread has waited for it, ns of `CLOCK_MONOTONIC`; 0: none does.
    pub open_since_ns: u64,
    /// How long that had taken at the end, ns ([`Snapshot::close`]).
    pub unended_ns: u64,
    /// Are these the counts of a part of its life?
    pub is_part: bool,
    /// What only some locks have.
    pub beyond: Beyond<Seen>,
}

impl Lock {
    /// Did a thread wait for it, or try to take it in vain?
    pub(super) fn has_counts(&self) -> bool {
        self.open_since_ns != 0
            || self.arrived > 0
            || self.wait_ns() > 0
            || self.beyond.failed_tries > 0
    }

    /// Total waiting time of all threads, ns.
    pub fn wait_ns(&self) -> u64 {
        let classes = self.classes.iter().map(|class| class.ns);
        classes.fold(self.unended_ns, u64::saturating_add)
    }

    /// Time during which at least one thread waited, and a holder was to blame, ns.
    pub fn blocked_ns(&self) -> u64 {
        self.blocked_ns.saturating_add(self.unended_ns)
    }

    /// Its rank, the highest first. Waiting time, which covers all waits, comes before blame, which covers only some
    /// holders.
    pub fn rank(&self) -> (u64, u64) {
        (self.wait_ns(), self.blocked_ns())
    }

    /// Waits that included a sleep.
    pub fn asleep(&self) -> u64 {
        self.classes.iter().map(|class| class.asleep).fold(0, u64::saturating_add)
    }

    /// The waits on all classes of cores.
    pub fn wait(&self) -> Times {
        self.classes.iter().fold(Times::default(), |mut sum, class| {
            sum.merge(&class.times);
            sum
        })
    }

    /// Adds another lock's counts to this one's.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.arrived, other.arrived),
            (&mut self.gave_up, other.gave_up),
            (&mut self.holds, other.holds),
            (&mut self.hold_ns, other.hold_ns),
            (&mut self.blocked_ns, other.blocked_ns),
            (&mut self.acquired, other.acquired),
            (&mut self.followed, other.followed),
            (&mut self.owners, other.owners),
            (&mut self.cores, other.cores),
            (&mut self.unended_ns, other.unended_ns),
        ] {
            *sum = sum.saturating_add(part);
        }
        self.locks = self.locks.saturating_add(other.locks);
        if other.hold_max_ns > self.hold_max_ns {
            (self.hold_max_ns, self.hold_max_at) = (other.hold_max_ns, other.hold_max_at);
        }
        if other.wait_max_ns > self.wait_max_ns {
            (self.wait_max_ns, self.wait_max_at) = (other.wait_max_ns, other.wait_max_at);
        }
        for (sum, part) in self.classes.iter_mut().zip(&other.classes) {
            sum.awake = sum.awake.saturating_add(part.awake);
            sum.asleep = sum.asleep.saturating_add(part.asleep);
            sum.ns = sum.ns.saturating_add(part.ns);
            sum.max_ns = sum.max_ns.max(part.max_ns);
            sum.times.merge(&part.times);
        }
        let sites = |sum: &mut Vec<Seen>, parts: &[Seen]| {
            for part in parts {
                match sum.iter_mut().find(|site| site.at == part.at) {
                    Some(site) => {
                        site.count = site.count.saturating_add(part.count);
                        site.ns = site.ns.saturating_add(part.ns);
                        if part.max_ns > site.max_ns {
                            (site.max_ns, site.max_tid) = (part.max_ns, part.max_tid);
                            site.stack.clone_from(&part.stack);
                            site.piece.clone_from(&part.piece);
                        }
                    }
                    None => sum.push(part.clone()),
                }
            }
            sum.sort_by_key(|site| std::cmp::Reverse((site.ns, site.count)));
        };
        sites(&mut self.waiters, &other.waiters);
        sites(&mut self.holders, &other.holders);
        sites(&mut self.beyond.triers, &other.beyond.triers);
        sites(&mut self.beyond.tried_holders, &other.beyond.tried_holders);
        self.beyond.add(&other.beyond);
        for part in &other.threads {
            match self.threads.iter_mut().find(|known| known.tid == part.tid) {
                Some(known) => {
                    known.waits = known.waits.saturating_add(part.waits);
                    known.wait_ns = known.wait_ns.saturating_add(part.wait_ns);
                    known.blamed_ns = known.blamed_ns.saturating_add(part.blamed_ns);
                }
                None => self.threads.push(*part),
            }
        }
        self.hold.merge(&other.hold);
    }
}

/// A segment's contents at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The process's id, as it sees it itself.
    pub pid: u32,
    /// The value of LOCKWRIGHT_LOCK.
    pub lock: String,
    /// The emulated little cores; every figure is emulated then.
    pub emulated: Option<String>,
    /// Its command line.
    pub command: String,
    /// Both are ns of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it last counted.
    pub last_ns: u64,
    /// Waits for locks without a record.
    pub unplaced: u64,
    /// Locks whose records were reused for others.
    pub evicted: u64,
    /// Locks that were destroyed.
    pub retired: u64,
    /// Stacks for which there was no room.
    pub stacks_lost: u64,
    /// Operations for which there was no memory.
    pub lost: u64,
    /// What it had mapped.
    pub mappings: Vec<Mapping>,
    /// The locks that threads waited for.
    pub locks: Vec<Rc<Lock>>,
    /// The condition variables.
    pub conditions: Vec<Rc<Lock>>,
    /// Semaphores that are not used as locks.
    pub signals: Signals,
}

impl Snapshot {
    /// Waits that hadn't ended at `end_ns` count until then, from `begun_ns` on. Of those for one lock, the segment knows one.
    pub fn close(&mut self, begun_ns: u64, end_ns: u64) {
        for lock in self.locks.iter_mut().filter(|lock| lock.open_since_ns != 0) {
            let since = lock.open_since_ns.max(begun_ns);
            Rc::make_mut(lock).unended_ns = end_ns.saturating_sub(since);
        }
    }

    /// The process's memory map, as the process recorded it.
    pub fn space(&self) -> AddressSpace {
        AddressSpace { pid: 0, mappings: self.mappings.clone(), threads: Vec::new() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A lock with these waits, ns, all at one place.
    pub(in super::super) fn lock(waits: &[u64]) -> Lock {
        let times: Times = waits.iter().copied().collect();
        let (ns, max_ns) = (times.total(), times.max());
        let at = At::Address(16);
        let count = times.count();
        let site = Seen { at, count, ns, max_ns, max_tid: 1, stack: Vec::new(), piece: None };
        let mut classes: [Waits; CLASSES] = Default::default();
        classes[0] = Waits { awake: count, asleep: 0, ns, max_ns, times: times.clone() };
        Lock {
            of: Of::Lock(64),
            kind: LockKind::Mutex,
            is_signal: false,
            tenants: 1,
            arrived: count,
            is_gone: false,
            gave_up: 0,
            holds: count,
            hold_ns: ns,
            hold_max_ns: max_ns,
            hold_max_at: at,
            blocked_ns: ns,
            wait_max_ns: max_ns,
            wait_max_at: at,
            acquired: 0,
            is_part: false,
            followed: 0,
            owners: 0,
            cores: 0,
            place: 0,
            locks: 1,
            classes,
            waiters: vec![site],
            holders: Vec::new(),
            threads: Vec::new(),
            hold: times,
            open_since_ns: 0,
            unended_ns: 0,
            beyond: Beyond::default(),
        }
    }

    pub(in super::super) fn snapshot(locks: Vec<Lock>) -> Snapshot {
        Snapshot {
            pid: 1,
            lock: String::new(),
            emulated: None,
            command: String::new(),
            start_ns: 0,
            last_ns: 0,
            unplaced: 0,
            evicted: 0,
            retired: 0,
            stacks_lost: 0,
            lost: 0,
            mappings: Vec::new(),
            locks: locks.into_iter().map(Rc::new).collect(),
            conditions: Vec::new(),
            signals: Signals::default(),
        }
    }

    #[test]
    fn waits_that_are_open_count_until_the_end() {
        let open = Lock { open_since_ns: 1_000, ..lock(&[]) };
        let ended = lock(&[300]);
        assert!(open.has_counts() && open.rank() < ended.rank());
        let mut now = snapshot(vec![open, ended]);
        now.close(0, 1_400);
        assert_eq!(now.locks[0].rank(), (400, 400));
        assert_eq!(now.locks[1].rank(), (300, 300));
        now.close(1_150, 1_400);
        assert_eq!(now.locks[0].unended_ns, 250, "only the part that was watched");
        now.close(0, 900);
        assert_eq!(now.locks[0].unended_ns, 0);
    }
}
