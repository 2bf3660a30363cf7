//! A process whose mutexes are explored: the runtime's own code (`lockwright_locks::posix`) in a random environment,
//! and glibc's code, which doesn't know about it.

use super::explorer::explorer;
use super::memory::{Explored, Process};
use crate::engine::engine;
use crate::lock::LockSpec;
use lockwright_locks::catalog::{CATALOG, FrontVisitor, WholeVisitor, visit_front, visit_whole};
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::front::{Rule, Seat, Tuning, Window};
use lockwright_locks::posix::queue_in_front;
use lockwright_locks::posix::{self, Environment, Front, Held, How, Me, Policy, Refused};
use lockwright_locks::spec::GLIBC;
use lockwright_platform::Ordering::{AcqRel, Relaxed};
use lockwright_platform::{InPlace, Platform, TryLock, Word};

/// A mutex of the process.
pub(super) type Mutex = posix::Mutex<Process>;

/// How its threads unlock.
pub(super) type Unlock = fn(&Mutex) -> Result<(), Refused>;

impl Environment for Process {
    type Platform = Explored;
    type Room = Option<Box<dyn InFront>>;

    fn thread() -> u32 {
        engine().me() + 1
    }

    /// Callers say which place they would choose.
    fn choose(_: &Mutex, caller: usize) -> u32 {
        caller as u32
    }

    fn with_held<R>(run: impl FnOnce(&Held<Explored>) -> R) -> R {
        let e = engine();
        let me = e.me() as usize;
        run(&explorer(e).held[me])
    }

    fn policy(place: u32) -> (Me, Policy<Self>) {
        let Policy { how, tuning } = explorer(engine()).table[place as usize];
        let window_ns = match tuning.window {
            Window::Fixed => tuning.window_ns,
            Window::Epoch => [0, 300, 3_000, 100_000_000][explorer(engine()).draw(0, 3) as usize],
        };
        (Me::of::<Self>(), Policy { how, tuning: Tuning { window_ns, ..tuning } })
    }

    fn generation() -> u32 {
        explorer(engine()).generation
    }

    /// Some waits are observed, as in the runtime.
    fn waits(mutex: &Mutex, _: usize) -> bool {
        let watched = explorer(engine()).draw(0, 3) == 0;
        if watched {
            posix::ask(mutex);
        }
        watched
    }

    fn has_waited(mutex: &Mutex, acquired: bool) {
        if acquired {
            posix::acquisitions(mutex);
            posix::ask(mutex);
        }
    }

    fn counts() -> bool {
        true
    }

    /// The mark by which acquisitions are counted stays for a while.
    fn keeps_marks() -> bool {
        explorer(engine()).draw(0, 3) != 0
    }
}

/// A textbook lock in front of a mutex.
pub(crate) trait InFront: Send + Sync {
    fn acquire(&self, mutex: &Mutex, tuning: &Tuning);
}

struct Textbook<L>(L);

impl<L: TryLock<Explored>> InFront for Textbook<L> {
    fn acquire(&self, mutex: &Mutex, tuning: &Tuning) {
        let mut node = L::Node::default();
        // SAFETY: new, and stays here until it returns.
        unsafe { queue_in_front(mutex, &self.0, tuning, &Seat::default(), &raw mut node) };
    }
}

/// The locks that serve a process, and its mutexes' kind.
#[derive(Clone, Debug)]
pub(super) struct ProcessLocks {
    /// The locks of the places from 1 on: at first, and after the swap.
    places: [Vec<LockSpec>; 2],
    /// The type in `__kind`.
    pub(super) kind: u32,
}

impl ProcessLocks {
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        let fronts: Vec<_> = CATALOG.iter().filter(|entry| entry.kind == Kind::Front).collect();
        let wholes: Vec<_> = CATALOG.iter().filter(|entry| entry.kind == Kind::Whole).collect();
        // A mutex has room for one textbook lock.
        let whole = wholes[rng.usize(0..wholes.len())];
        let count = rng.usize(2..4);
        let swaps = rng.bool();
        let mut draw = || {
            let id = match rng.u8(0..8) {
                0 => GLIBC,
                1 => whole.id,
                _ => fronts[rng.usize(0..fronts.len())].id,
            };
            LockSpec::parse(id).expect("it is in the catalogue").varied(rng)
        };
        let first: Vec<LockSpec> = (0..count).map(|_| draw()).collect();
        let then = if swaps { (0..count).map(|_| draw()).collect() } else { first.clone() };
        let kind = [0, 0, 0, posix::MARKED, posix::RECURSIVE, posix::ERRORCHECK, 3];
        Self { places: [first, then], kind: kind[rng.usize(0..kind.len())] }
    }

    /// How many places there are.
    pub(super) fn places(&self) -> u32 {
        self.places[0].len() as u32
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        let [first, then] = &self.places;
        let names = |specs: &[LockSpec]| {
            specs.iter().map(|spec| spec.name().to_owned()).collect::<Vec<_>>().join(" and ")
        };
        let kind = match self.kind & posix::TYPE {
            posix::RECURSIVE => "recursive",
            posix::ERRORCHECK => "errorcheck",
            _ => "plain",
        };
        let then = if first.iter().map(LockSpec::name).eq(then.iter().map(LockSpec::name)) {
            String::new()
        } else {
            format!(", later {}", names(then))
        };
        format!("a {kind} mutex on {}{then}", names(first))
    }

    /// The two tables, on the current machine.
    pub(super) fn tables(&self) -> [Vec<Policy<Process>>; 2] {
        self.places.each_ref().map(|specs| {
            let mut table: Vec<_> = specs.iter().map(policy).collect();
            table.insert(0, table[0]); // a mutex without a lock yet runs on the default
            table
        })
    }

    /// How often the head of a line may be overtaken, whichever lock serves which thread; `None`: no bound.
    pub(super) fn bypass(&self) -> Option<u32> {
        let all = self.places.iter().flatten();
        let is_front = |spec: &LockSpec| spec.entry().is_some_and(|e| e.kind == Kind::Front);
        all.map(|spec| is_front(spec).then(|| spec.bypass::<Explored>())?)
            .try_fold(0, |most, bound| Some(most.max(bound?)))
    }

    /// An unlocked mutex.
    pub(super) fn mutex(&self) -> Mutex {
        struct Find(&'static Entry, Option<Box<dyn InFront>>);
        impl WholeVisitor<Explored> for Find {
            fn visit<L: TryLock<Explored> + InPlace + 'static>(&mut self, entry: &'static Entry) {
                if std::ptr::eq(entry, self.0) {
                    self.1 = Some(Box::new(Textbook(L::new())));
                }
            }
        }
        let whole = self.places.iter().flatten().filter_map(LockSpec::entry);
        let whole = whole.into_iter().find(|entry| entry.kind == Kind::Whole);
        let room = whole.and_then(|entry| {
            let mut find = Find(entry, None);
            visit_whole::<Explored>(&mut find);
            find.1
        });
        Mutex::of_kind(self.kind, room)
    }
}

fn policy(spec: &LockSpec) -> Policy<Process> {
    struct Find<'a>(&'a LockSpec, &'static Entry, Option<Policy<Process>>);
    impl FrontVisitor<Explored> for Find<'_> {
        fn visit<R: Rule<Explored>>(
            &mut self,
            entry: &'static Entry,
            defaults: fn(Tuning) -> Tuning,
        ) {
            if std::ptr::eq(entry, self.1) {
                let tuning = self.0.tuned_for::<Explored>(defaults);
                self.2 = Some(Policy { how: How::Front(Front::of::<R>(defaults)), tuning });
            }
        }
    }
    let tuning = Tuning { window: Window::Epoch, ..Tuning::for_cpus(Explored::cpus()) };
    let Some(entry) = spec.entry() else { return Policy { how: How::Glibc, tuning } };
    let mut find = Find(spec, entry, None);
    visit_front::<Explored>(&mut find);
    let queue: fn(&Mutex, &Tuning, &Seat<Explored>) = |mutex, tuning, _| {
        mutex
            .room
            .as_ref()
            .expect("made for the textbook lock in the table")
            .acquire(mutex, tuning);
    };
    find.2.unwrap_or(Policy { how: How::Whole(queue), tuning })
}

/// Adds as a plain instruction does: it overwrites what others write meanwhile. The store is a swap, because on
/// existing machines a store doesn't come between two ordered atomic operations of others.
pub(super) fn recount(m: &Mutex, by: u32) {
    m.users.swap(m.users.load(Relaxed).wrapping_add(by), AcqRel);
}
