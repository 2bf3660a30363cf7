//! How a workload makes its locks, its data and its threads.

use super::world::{Data, RunWorld, SharedLine};
use super::{DataId, LockId, Me, ParamSpec};
use crate::engine::Engine;
use crate::lock::LockSpec;
use crate::watched::Watched;
use lockwright_locks::amp::feedback::WINDOW_MAX_NS;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// A workload: its description, and how it is set up. Each one's file exports its own as `ENTRY`.
pub struct Workload {
    /// The name on the command line.
    pub id: &'static str,
    /// One line: what its threads do.
    pub idea: &'static str,
    /// Where it comes from: paper and figure.
    pub source: &'static str,
    /// Its options.
    pub params: &'static [ParamSpec],
    /// Do its threads acquire here and release there? Then no delegated lock can serve them.
    pub holds: bool,
    /// Makes locks, data and threads.
    pub setup: &'static (dyn Fn(&mut Setup<'_>) + Sync),
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A run during its setup.
pub struct Setup<'a> {
    /// The current machine. Not a reference, because locks look at the machine themselves when they
    /// are created.
    pub(crate) engine: *mut Engine,
    pub(crate) world: &'a Rc<RunWorld>,
    pub(crate) lock: &'a LockSpec,
    pub(crate) params: &'a BTreeMap<String, f64>,
    pub(crate) specs: &'static [ParamSpec],
    /// On which CPU each thread runs; `None`: the scheduler decides.
    pub(crate) cpus: Vec<Option<u32>>,
    pub(crate) started: u32,
    /// Threads that run the sections of others: the first CPUs are theirs.
    pub(crate) servers: u32,
    /// Locks whose server is another one's.
    pub(crate) beside: Vec<LockId>,
}

impl Setup<'_> {
    /// A lock of the run's kind.
    pub fn lock(&mut self) -> LockId {
        let mut locks = self.world.locks.borrow_mut();
        let number = u32::try_from(locks.len()).expect("few");
        let lock = Rc::new(Watched::new(self.lock, number, self.world.threads as usize));
        locks.push(lock.clone());
        drop(locks);
        assert!(lock.servers() == 0 || self.started == 0, "locks are made before threads");
        self.servers += lock.servers();
        LockId(number)
    }

    /// Does the run's lock only run sections that are handed to it?
    pub fn is_delegated(&self) -> bool {
        self.lock.is_delegated()
    }

    /// A lock of the run's kind, served by the server of `with`, if that has one. `has_server`: it brings another one, to which locks may
    /// move.
    pub fn lock_beside(&mut self, with: LockId, has_server: bool) -> LockId {
        let before = self.servers;
        let lock = self.lock();
        if !has_server {
            self.servers = before;
            self.beside.push(lock);
        }
        let locks = self.world.locks.borrow();
        locks[lock.0 as usize].share(&locks[with.0 as usize]);
        lock
    }

    /// Makes the threads that serve locks: after all others, whose numbers count from 0.
    pub(crate) fn serve(&mut self) {
        let locks: Vec<_> = self.world.locks.borrow().clone();
        let own = |(number, _): &(usize, _)| !self.beside.iter().any(|id| id.0 as usize == *number);
        let each = |(_, lock): (usize, &Rc<Watched>)| vec![lock.clone(); lock.servers() as usize];
        let servers = locks.iter().enumerate().filter(own).flat_map(each);
        for (number, lock) in servers.enumerate() {
            let cpu = self.cpus.get(number).copied().flatten();
            for thread in 0..lock.pool() {
                let (lock, name) = (lock.clone(), format!("server {number}.{thread}"));
                let serve = Box::new(move || lock.serve());
                // SAFETY: the machine outlives its setup, and there is no other reference to it meanwhile.
                unsafe { (*self.engine).spawn(name, cpu, serve) };
            }
        }
    }

    /// The CPU of a client: those of servers are left out, unless there are no others.
    fn cpu_of(&self, number: u32) -> Option<u32> {
        let own = self.cpus.get(self.servers as usize..).filter(|own| !own.is_empty());
        let own = own.unwrap_or(&self.cpus);
        own.get(number as usize % own.len().max(1)).copied().flatten()
    }

    /// `lines` lines of shared data, which are in no cache yet.
    pub fn data(&mut self, lines: u32) -> DataId {
        let mut data = self.world.data.borrow_mut();
        let line = |_| SharedLine { owner: None, copies: 0, stamp: None, updates: 0 };
        data.push(Data { lines: (0..lines).map(line).collect(), expected: 0 });
        DataId(u32::try_from(data.len() - 1).expect("few"))
    }

    /// The value of an option of this workload.
    ///
    /// # Panics
    /// If the workload does not declare the option.
    pub fn param(&self, key: &str) -> f64 {
        let given = self.params.get(key).copied();
        let default = || self.specs.iter().find(|spec| spec.key == key).map(|spec| spec.default);
        given.or_else(default).unwrap_or_else(|| panic!("the workload declares no option '{key}'"))
    }

    /// As [`param`](Self::param), rounded to a whole number.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked ranges")]
    pub fn count(&self, key: &str) -> u32 {
        self.param(key).round() as u32
    }

    /// Threads that ask for the locks: those of the run, less the servers of its locks, but one at least.
    pub fn thread_count(&self) -> u32 {
        match self.servers {
            0 => self.world.threads,
            servers => self.world.threads.saturating_sub(servers).max(1),
        }
    }

    /// Makes all threads; all do the same.
    pub fn threads(&mut self, body: impl Fn(&Me) + Clone + 'static) {
        while self.started < self.thread_count() {
            self.thread(body.clone());
        }
    }

    /// Makes the next thread.
    pub fn thread(&mut self, body: impl FnOnce(&Me) + 'static) {
        let (number, world) = (self.started, self.world.clone());
        self.started += 1;
        self.world.clients.set(self.started);
        let seed = self.world.seed ^ u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pinned = self.cpu_of(number);
        let run = move || {
            let rng = RefCell::new(fastrand::Rng::with_seed(seed));
            let me = Me {
                number,
                world,
                rng,
                epochs: RefCell::default(),
                window: Cell::new(WINDOW_MAX_NS),
            };
            body(&me);
            me.ends();
        };
        // SAFETY: the machine outlives its setup, and there is no other reference to it meanwhile.
        unsafe { (*self.engine).spawn(format!("thread {number}"), pinned, Box::new(run)) };
    }
}
