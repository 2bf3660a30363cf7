//! Every delegated lock of the catalogue, under every checker: each section runs once, on whichever thread, and sees those before it.

use lockwright_locks::catalog::{DelegatedVisitor, visit_delegated};
use lockwright_locks::delegation::cc_synch::CcSynch;
use lockwright_locks::delegation::dsm_synch::DsmSynch;
use lockwright_locks::delegation::dynamic::{self, Dynamic};
use lockwright_locks::delegation::server::SectionServer;
use lockwright_locks::delegation::waiting::Spins;
use lockwright_locks::entry::Entry;
use lockwright_locks::spin::ttas::Ttas;
use lockwright_model::checker::{Budget, Checker, Data, Loom, Shuttle};
use lockwright_model::machine::{self, Machine};
use lockwright_model::scenario::{self, Way, explore, lock, only_known_models_are_asked_for};
use lockwright_platform::{Delegated, Ordering, Platform, RawLock, Sections, TryLock, Word};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const TWO: Budget = Budget { preemptions: 3, time: Duration::from_millis(900), draws: 300 };
const MORE: Budget = Budget { preemptions: 2, time: Duration::from_millis(700), draws: 300 };

/// How many sections ran on a thread other than the one that asked, in all.
static CARRIED: AtomicU32 = AtomicU32::new(0);

struct Shared<C: Checker, L> {
    lock: L,
    data: C::Data,
    /// Sections, and clients that are through, counted out of the checker's sight.
    ran: AtomicU32,
    through: AtomicU32,
    /// Not 0: servers end.
    stop: <Machine<C, 0> as Platform>::Word,
}

/// `clients` threads have one section run each, which increments a counter; servers serve meanwhile.
fn sections<C: Checker, L: Delegated<Machine<C, 0>> + 'static>(
    name: &str,
    budget: Budget,
    clients: u32,
) {
    explore::<C>(name, budget, move || {
        machine::begin::<C>();
        {
            let shared = Arc::new(Shared::<C, L> {
                lock: L::new(),
                data: C::Data::new(),
                ran: AtomicU32::new(0),
                through: AtomicU32::new(0),
                stop: Word::new(0),
            });
            let servers = (0..L::SERVERS * L::POOL).map(|_| {
                let shared = shared.clone();
                machine::spawn::<C>(move || shared.lock.serve(&shared.stop))
            });
            let mut handles: Vec<_> = servers.collect();
            let ask = move |shared: &Shared<C, L>, number: u32| {
                let (mut node, asker) = (L::Node::default(), C::thread());
                shared.lock.vary(number);
                let section = || {
                    shared.data.bump();
                    shared.ran.fetch_add(1, Relaxed);
                    CARRIED.fetch_add(u32::from(C::thread() != asker), Relaxed);
                };
                // SAFETY: the node outlives the section.
                unsafe { shared.lock.with(&mut node, section) };
                if shared.through.fetch_add(1, Relaxed) == clients - 1 {
                    shared.stop.store(1, Ordering::Relaxed); // whatever was asked for is over
                }
            };
            let others = (1..clients).map(|number| {
                let shared = shared.clone();
                machine::spawn::<C>(move || ask(&shared, number))
            });
            handles.extend(others);
            ask(&shared, 0);
            machine::join::<C>(handles);
            assert_eq!(shared.ran.load(Relaxed), clients, "each section runs once");
            assert_eq!(shared.data.get(), clients, "increments were lost");
        }
        machine::end();
    });
}

struct All {
    budget: Budget,
    clients: u32,
}

impl<C: Checker> DelegatedVisitor<Machine<C, 0>> for All {
    fn visit<L: Delegated<Machine<C, 0>> + 'static>(&mut self, entry: &'static Entry) {
        // Loom has no more threads.
        let clients = self.clients.min(4_u32.saturating_sub(L::SERVERS * L::POOL).max(2));
        sections::<C, L>(&format!("{}, {clients} clients", entry.id), self.budget, clients);
    }
}

fn all<C: Checker>(clients: u32, budget: Budget) {
    visit_delegated::<Machine<C, 0>>(&mut All { budget, clients });
    // A combiner that leaves the rest to the next one after each section.
    type Dsm<C> = DsmSynch<Machine<C, 0>, Spins, 1>;
    sections::<C, Dsm<C>>(&format!("dsm-synch, {clients} clients, by turns"), budget, clients);
    type Cc<C> = CcSynch<Machine<C, 0>, Spins, 1>;
    sections::<C, Cc<C>>(&format!("cc-synch, {clients} clients, by turns"), budget, clients);
}

/// A lock that goes from server to server and back home, while threads ask for it.
fn moves<C: Checker>(budget: Budget) {
    type Lock<C> = dynamic::Lock<Machine<C, 0>>;
    struct Moving<C: Checker> {
        lock: Lock<C>,
        server: SectionServer<Machine<C, 0>, Lock<C>>,
        data: C::Data,
        through: AtomicU32,
        stop: <Machine<C, 0> as Platform>::Word,
    }
    explore::<C>("dynamic, moved between a server and home", budget, move || {
        machine::begin::<C>();
        {
            let shared = Arc::new(Moving::<C> {
                lock: Sections::new(),
                server: SectionServer::new(),
                data: C::Data::new(),
                through: AtomicU32::new(0),
                stop: Word::new(0),
            });
            let serving = shared.clone();
            let serve = move || serving.server.serve::<Spins>(&serving.stop, false);
            let mut handles = vec![machine::spawn::<C>(serve)];
            let ask = |shared: &Moving<C>, served_first: bool| {
                for served in [served_first, !served_first] {
                    match served {
                        // SAFETY: both end together.
                        true => unsafe { shared.lock.serve_by(&raw const shared.server, true) },
                        false => shared.lock.combine(served_first),
                    }
                    // SAFETY: this lock has no nodes.
                    unsafe { shared.lock.with(&mut (), || shared.data.bump()) };
                }
                if shared.through.fetch_add(1, Relaxed) == 1 {
                    shared.stop.store(1, Ordering::Relaxed); // whatever was asked for is over
                }
            };
            let other = shared.clone();
            handles.push(machine::spawn::<C>(move || ask(&other, true)));
            ask(&shared, false);
            machine::join::<C>(handles);
            shared.server.unseen(&raw const shared.lock);
            assert_eq!(shared.data.get(), 4, "increments were lost");
        }
        machine::end();
    });
}

#[test]
fn loom_a_lock_moves() {
    moves::<Loom>(MORE);
}

#[test]
fn shuttle_a_lock_moves() {
    moves::<Shuttle>(MORE);
}

/// A program's mutex: its memory ends when its last user knows that. And a section may hand it on to the thread that asked.
struct Theirs<P: Platform> {
    lock: Ttas<P>,
    /// Out of the checker's sight, as the next one.
    has_ended: AtomicU32,
    is_handed_on: AtomicU32,
}

impl<P: Platform> Sections<P> for Theirs<P> {
    type Node = ();
    fn new() -> Self {
        Self { lock: Ttas::new(), has_ended: AtomicU32::new(0), is_handed_on: AtomicU32::new(0) }
    }
    lockwright_platform::held_sections!(P);
}

impl<P: Platform> Theirs<P> {
    fn is_there(&self) {
        assert_eq!(self.has_ended.load(Relaxed), 0, "used beyond its end");
    }
}

impl<P: Platform> RawLock<P> for Theirs<P> {
    const MAY_END: bool = true;

    fn is_handed_on(&self) -> bool {
        self.is_handed_on.swap(0, Relaxed) != 0
    }

    unsafe fn lock(&self, _: *mut ()) {
        self.is_there();
        // SAFETY: it has no nodes.
        unsafe { self.lock.lock(&mut ()) };
    }

    unsafe fn unlock(&self, _: *mut ()) {
        self.is_there();
        // SAFETY: the caller's promise.
        unsafe { self.lock.unlock(&mut ()) };
    }
}

impl<P: Platform> TryLock<P> for Theirs<P> {
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        self.is_there();
        // SAFETY: it has no nodes.
        unsafe { self.lock.try_lock(&mut ()) }
    }
}

/// The last of `users` ends the mutex as soon as its section is over. `hands_on`: each second section hands the mutex on to its thread, which
/// unlocks it.
fn ends<C: Checker>(budget: Budget, users: u32, hands_on: bool) {
    struct Object<C: Checker> {
        lock: Dynamic<Machine<C, 0>, Theirs<Machine<C, 0>>>,
        data: C::Data,
        left: AtomicU32,
    }
    let name = format!("dynamic, over a mutex that ends, {users} users, handed on: {hands_on}");
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        {
            let object = Arc::new(Object::<C> {
                lock: Sections::new(),
                data: C::Data::new(),
                left: AtomicU32::new(users),
            });
            object.lock.combine(true);
            let uses = move |object: &Object<C>, number: u32| {
                let below = object.lock.lock();
                let keeps = hands_on && number.is_multiple_of(2);
                let section = || {
                    object.data.bump();
                    below.is_handed_on.store(u32::from(keeps), Relaxed);
                    object.left.fetch_sub(u32::from(!keeps), Relaxed) == 1
                };
                // SAFETY: this lock has no nodes.
                let mut is_last = unsafe { object.lock.with(&mut (), section) };
                if keeps {
                    object.data.bump();
                    is_last = object.left.fetch_sub(1, Relaxed) == 1;
                    // SAFETY: ours, as the section said.
                    unsafe { below.unlock(&mut ()) };
                }
                if is_last {
                    below.has_ended.store(1, Relaxed);
                }
            };
            let others = (1..users).map(|number| {
                let object = object.clone();
                machine::spawn::<C>(move || uses(&object, number))
            });
            let handles: Vec<_> = others.collect();
            uses(&object, 0);
            machine::join::<C>(handles);
            let kept = if hands_on { users.div_ceil(2) } else { 0 };
            assert_eq!(object.data.get(), users + kept, "increments were lost");
        }
        machine::end();
    });
}

#[test]
fn loom_a_mutex_ends_with_its_last_user() {
    ends::<Loom>(TWO, 2, false);
    ends::<Loom>(MORE, 3, false);
}

#[test]
fn loom_a_section_hands_the_mutex_on() {
    ends::<Loom>(TWO, 2, true);
    ends::<Loom>(MORE, 3, true);
}

#[test]
fn shuttle_a_mutex_ends_or_is_handed_on() {
    for hands_on in [false, true] {
        ends::<Shuttle>(TWO, 3, hands_on);
        ends::<Shuttle>(TWO, 4, hands_on);
    }
}

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(|| all::<Shuttle>(2, TWO));
}

#[test]
fn loom_2_clients() {
    all::<Loom>(2, TWO);
}

#[test]
fn loom_3_clients() {
    all::<Loom>(3, MORE);
}

#[test]
fn shuttle_4_clients_and_others_run_their_sections() {
    all::<Shuttle>(4, TWO);
    if scenario::is_asked_for("combiner") {
        assert_ne!(CARRIED.load(Relaxed), 0, "no section was run by another thread");
    }
}

/// Checks the scenario itself: it notices a lock that excludes nobody.
#[test]
fn a_lock_that_excludes_nobody_is_noticed() {
    struct Open;
    impl<P: Platform> Sections<P> for Open {
        type Node = ();
        fn new() -> Self {
            Self
        }
        unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
            section()
        }
    }
    let way: Way<Open, ()> = lock::<Loom, 0, Open>;
    let run = || {
        scenario::sections::<Loom, 0, Open>("open, 2 threads", TWO, vec![way; 2], false, way);
    };
    let cause = catch_unwind(run).err();
    let cause = cause.as_ref().and_then(|cause| cause.downcast_ref::<String>());
    let is_noticed = cause.is_some_and(|cause| cause.contains("Causality violation"));
    assert_eq!(is_noticed, scenario::is_asked_for("open"));
}
