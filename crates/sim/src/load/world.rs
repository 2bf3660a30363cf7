//! What all threads of a run share: locks, data, and the collected figures.

use crate::check::Violation;
use crate::engine::{Ps, Tid};
use crate::order::Stamp;
use crate::outcome::Collect;
use crate::watched::Watched;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

pub(super) struct SharedLine {
    pub(super) owner: Option<u32>,
    /// Bit mask of the other CPUs with a copy, by number modulo 64.
    pub(super) copies: u64,
    pub(super) stamp: Option<Stamp>,
    pub(super) updates: u64,
}

pub(super) struct Data {
    pub(super) lines: Vec<SharedLine>,
    pub(super) expected: u64,
}

/// What all threads of a run share.
pub(crate) struct RunWorld {
    pub(crate) locks: RefCell<Vec<Rc<Watched>>>,
    pub(super) data: RefCell<Vec<Data>>,
    pub(crate) collect: RefCell<Collect>,
    pub(super) from: Ps,
    pub(super) end: Ps,
    pub(super) seed: u64,
    pub(super) threads: u32,
    /// Threads that ask for locks, and how many of them have ended.
    pub(crate) clients: Cell<u32>,
    pub(super) ended: Cell<u32>,
    /// How much longer each section takes, ns: a planted fault of the lock.
    pub(crate) slower_ns: Cell<f64>,
}

impl RunWorld {
    pub(crate) fn new(threads: u32, seed: u64, from: Ps, end: Ps, collect: Collect) -> Rc<Self> {
        let (locks, data) = (RefCell::default(), RefCell::default());
        let (clients, ended, slower_ns) = (Cell::default(), Cell::default(), Cell::default());
        let collect = RefCell::new(collect);
        Rc::new(Self { locks, data, collect, from, end, seed, threads, clients, ended, slower_ns })
    }

    /// A cycle of threads, each waiting for a lock that the next one holds: what each waits for. `None` if there is
    /// no cycle.
    pub(crate) fn circle(&self, name: impl Fn(Tid) -> String) -> Option<Vec<String>> {
        let locks = self.locks.borrow();
        let waits = locks.iter().enumerate().flat_map(|(number, lock)| {
            let holder = lock.holder();
            let of = move |waiter| holder.map(|holder| (waiter, (number, holder)));
            lock.waiting().into_iter().filter_map(of)
        });
        let waits: FxHashMap<Tid, (usize, Tid)> = waits.collect();
        for &first in waits.keys().collect::<BTreeSet<_>>() {
            let (mut path, mut at) = (Vec::new(), first);
            while let Some(&(lock, holder)) = waits.get(&at)
                && path.len() <= waits.len()
            {
                let (one, next) = (name(at), name(holder));
                path.push(format!("{one} waits for lock {lock}, which {next} holds"));
                if holder == first {
                    return Some(path);
                }
                at = holder;
            }
        }
        None
    }

    /// Conservation: every touch of every line has counted.
    pub(crate) fn lost(&self) -> Option<Violation> {
        let data = self.data.borrow();
        let expected: u64 = data.iter().map(|data| data.expected).sum();
        let updates: u64 = data.iter().flat_map(|data| &data.lines).map(|line| line.updates).sum();
        (updates != expected).then(|| Violation::Lost { expected, missing: expected - updates })
    }
}
