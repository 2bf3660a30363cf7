//! What a process has counted: its segment, read at one moment.

use crate::stack::Piece;
use lockwright_numbers::Times;
use lockwright_observe::layout::{CLASSES, OTHERS, UNKNOWN};
use lockwright_symbols::{AddressSpace, Mapping};
use serde::Serialize;
use std::collections::BTreeMap;
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

/// What a lock is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Mutex,
    /// glibc's own; those who take it release it.
    Semaphore,
}

/// Semaphores that are no locks: some thread releases what another one has taken. Nobody holds them, so nobody is blamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Signals {
    pub(crate) semaphores: u64,
    pub(crate) waits: u64,
    /// How long threads waited for them, all together, ns.
    pub(crate) wait_ns: u64,
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
    pub(super) fn new(address: u64) -> Self {
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
    /// One of its stacks, the innermost call first; empty: none was taken, or it is still to be unwound.
    pub(crate) stack: Vec<u64>,
    /// What it is unwound from.
    pub(crate) piece: Option<Rc<Piece>>,
}

/// What a thread had to do with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// [`OTHER_THREADS`]: all those that found no room.
    pub(crate) tid: u32,
    pub(crate) waits: u64,
    pub(crate) wait_ns: u64,
    /// For how long others waited for it.
    pub(crate) blamed_ns: u64,
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
    pub(crate) kind: Kind,
    /// It is a semaphore, and no lock, as far as was seen.
    pub(crate) is_signal: bool,
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
    /// Of threads; empty unless the level was `full`.
    pub(crate) threads: Vec<Part>,
    pub(crate) hold: Times,
}

impl Lock {
    /// How long threads waited, all of them together, ns.
    pub(crate) fn wait_ns(&self) -> u64 {
        self.classes.iter().map(|class| class.ns).sum()
    }

    /// Where it stands among the others, the highest first: what is known of all waits goes before what is known of some holders.
    pub(crate) fn rank(&self) -> (u64, u64) {
        (self.wait_ns(), self.blocked_ns)
    }

    pub(crate) fn asleep(&self) -> u64 {
        self.classes.iter().map(|class| class.asleep).sum()
    }

    /// The waits of all classes.
    pub(crate) fn wait(&self) -> Times {
        self.classes.iter().fold(Times::default(), |mut sum, class| {
            sum.merge(&class.times);
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
            sum.times.merge(&part.times);
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
                            site.piece.clone_from(&part.piece);
                        }
                    }
                    None => sum.push(part.clone()),
                }
            }
            sum.sort_by_key(|site| std::cmp::Reverse(site.ns));
        };
        sites(&mut self.waiters, &other.waiters);
        sites(&mut self.holders, &other.holders);
        for part in &other.threads {
            match self.threads.iter_mut().find(|known| known.tid == part.tid) {
                Some(known) => {
                    known.waits += part.waits;
                    known.wait_ns += part.wait_ns;
                    known.blamed_ns += part.blamed_ns;
                }
                None => self.threads.push(*part),
            }
        }
        self.hold.merge(&other.hold);
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
        for now in &mut self.threads {
            if let Some(then) = before.threads.iter().find(|then| then.tid == now.tid) {
                now.waits = now.waits.saturating_sub(then.waits);
                now.wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
                now.blamed_ns = now.blamed_ns.saturating_sub(then.blamed_ns);
            }
        }
        self.threads.retain(|part| part.wait_ns > 0 || part.blamed_ns > 0);
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
    pub(crate) signals: Signals,
}

impl Snapshot {
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
        let Signals { waits, wait_ns, .. } = before.signals;
        self.signals.waits = self.signals.waits.saturating_sub(waits);
        self.signals.wait_ns = self.signals.wait_ns.saturating_sub(wait_ns);
        self
    }

    /// What lay where in the process, as it said itself.
    pub(crate) fn space(&self) -> AddressSpace {
        AddressSpace { pid: 0, mappings: self.mappings.clone(), threads: Vec::new() }
    }
}
