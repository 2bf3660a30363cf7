//! A `pthread_mutex_t` that begins without a lock, and gets one of two: the first thread that finds it
//! contended decides.

use lockwright_locks::catalog::{FrontVisitor, visit_front};
use lockwright_locks::entry::Entry;
use lockwright_locks::front::{Rule, Tuning, WAITED};
use lockwright_locks::posix::{self, Environment, Front, Held, How, Me, Mutex, Policy};
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::{self, Deadline, Machine};
use lockwright_model::scenario::{
    Section, Way, exclusion, lock, only_known_models_are_asked_for, try_lock,
};
use lockwright_platform::{Platform, RawLock, Sections, TryLock, held_sections};
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::time::Duration;

/// Odd threads would choose the first rule of the catalogue, even ones the `SECOND` after it. From [`PROGRAMMED`] on: the lock of that name,
/// with the policy in slot `SECOND - PROGRAMMED`.
struct Process<C, const SPINS: usize, const SECOND: usize>(PhantomData<fn(C)>);

const PROGRAMMED: usize = 100;

struct Rules<P: lockwright_platform::Machine>(Vec<(&'static str, Front<P>)>);
impl<P: lockwright_platform::Machine> FrontVisitor<P> for Rules<P> {
    fn visit<R: Rule<P>>(&mut self, entry: &'static Entry, defaults: fn(Tuning) -> Tuning) {
        if entry.preset_of.is_none() {
            self.0.push((entry.id, Front::of::<R>(defaults)));
        }
    }
}

impl<C: Checker, const SPINS: usize, const SECOND: usize> Environment
    for Process<C, SPINS, SECOND>
{
    type Platform = Machine<C, SPINS>;
    type Room = ();

    fn thread() -> u32 {
        machine::number::<C>() + 1
    }

    fn with_held<R>(run: impl FnOnce(&Held<Self::Platform>) -> R) -> R {
        thread_local! {
            // Zeroes are a thread that holds nothing. An execution's threads run on one of the system's.
            static HELD: RefCell<HashMap<u32, Box<[usize; 3]>>> = RefCell::default();
        }
        const { assert!(size_of::<Held<Self::Platform>>() == size_of::<[usize; 3]>()) };
        let at: *mut [usize; 3] =
            HELD.with_borrow_mut(|held| &raw mut **held.entry(Self::thread()).or_default());
        // SAFETY: this thread's alone, large and aligned enough, and never freed while it runs.
        run(unsafe { &*at.cast() })
    }

    fn choose(_: &Mutex<Self>, caller: usize) -> u32 {
        caller as u32
    }

    fn policy(place: u32) -> (Me, Policy<Self>) {
        let mut rules = Rules::<Machine<C, SPINS>>(Vec::new());
        visit_front(&mut rules);
        let (at, slot) = match place {
            2 if SECOND >= PROGRAMMED => {
                (rules.0.iter().position(|(id, _)| *id == "programmed"), SECOND - PROGRAMMED)
            }
            2 => (Some(SECOND), 0),
            _ => (Some(0), 0),
        };
        let (_, front) = rules.0[at.expect("it is in the catalogue")];
        let tuning = (front.defaults)(Tuning::for_cpus(2));
        let tuning = Tuning { policy: slot as u32, ..tuning };
        (Me::of::<Self>(), Policy { how: How::Front(front), tuning })
    }
}

type Lock<C, const SPINS: usize, const SECOND: usize> = Pthread<Process<C, SPINS, SECOND>>;

struct Pthread<E: Environment>(Mutex<E>);

impl<C: Checker, const SPINS: usize, const SECOND: usize> Sections<Machine<C, SPINS>>
    for Lock<C, SPINS, SECOND>
{
    type Node = ();

    fn new() -> Self {
        Self(Mutex::of_kind(0, ()))
    }

    held_sections!(Machine<C, SPINS>);
}

impl<C: Checker, const SPINS: usize, const SECOND: usize> RawLock<Machine<C, SPINS>>
    for Lock<C, SPINS, SECOND>
{
    unsafe fn lock(&self, _: *mut ()) {
        let caller = 1 + machine::number::<C>() as usize % 2;
        assert_eq!(posix::lock(&self.0, caller), Ok(()));
        assert_ne!(posix::holds(&self.0), Some(false));
    }

    unsafe fn unlock(&self, _: *mut ()) {
        assert_eq!(posix::unlock(&self.0), Ok(()));
    }
}

impl<C: Checker, const SPINS: usize, const SECOND: usize> TryLock<Machine<C, SPINS>>
    for Lock<C, SPINS, SECOND>
{
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        posix::try_lock(&self.0).is_ok()
    }
}

/// Until the tick.
unsafe fn timed<C: Checker, const SPINS: usize, const SECOND: usize>(
    lock: &Lock<C, SPINS, SECOND>,
    _: *mut (),
    section: Section<'_>,
) -> bool {
    let got = posix::lock_until(&lock.0, Some(Deadline::Soon)).is_ok();
    if got {
        section();
        assert_eq!(posix::unlock(&lock.0), Ok(()));
    }
    got
}

/// glibc's own code, from lock to unlock.
unsafe fn as_glibc<C: Checker, const SPINS: usize, const SECOND: usize>(
    lock: &Lock<C, SPINS, SECOND>,
    _: *mut (),
    section: Section<'_>,
) -> bool {
    let word = &lock.0.word;
    if !word.take(false) {
        while !word.mark() {
            word.sleep(None);
        }
    }
    section();
    if word.release_as_glibc() == WAITED {
        Machine::<C, SPINS>::unpark(word.address(), 1);
    }
    true
}

fn model<C: Checker, const SPINS: usize, const SECOND: usize>() {
    let budget = Budget { preemptions: 2, time: Duration::from_millis(550), draws: 200 };
    let own: Way<Lock<C, SPINS, SECOND>, ()> = lock::<C, SPINS, Lock<C, SPINS, SECOND>>;
    let tries: Way<Lock<C, SPINS, SECOND>, ()> = try_lock::<C, SPINS, Lock<C, SPINS, SECOND>>;
    let timed: Way<Lock<C, SPINS, SECOND>, ()> = timed::<C, SPINS, SECOND>;
    let glibc: Way<Lock<C, SPINS, SECOND>, ()> = as_glibc::<C, SPINS, SECOND>;
    for (name, ways, time_passes) in [
        ("lock, lock", vec![own, own], false),
        ("lock, lock, lock", vec![own, own, own], false),
        ("lock, lock, glibc", vec![own, own, glibc], false),
        ("try, lock, lock", vec![tries, own, own], false),
        ("lock, lock, timed", vec![own, own, timed], true),
    ] {
        let name = format!("posix, {name}, rules 0 and {SECOND}, spins {SPINS}");
        exclusion::<C, SPINS, Lock<C, SPINS, SECOND>>(&name, budget, ways, time_passes);
    }
}

fn all<C: Checker, const SPINS: usize>() {
    model::<C, SPINS, 1>();
    model::<C, SPINS, 2>();
    model::<C, SPINS, 3>();
    model::<C, SPINS, { PROGRAMMED + 2 }>();
    model::<C, SPINS, { PROGRAMMED + 3 }>();
}

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(all::<Shuttle, 0>);
}

#[test]
fn loom_threads_that_sleep_at_once() {
    all::<Loom, 0>();
}

#[test]
fn loom_threads_that_spin_once() {
    all::<Loom, 1>();
}

#[test]
fn shuttle_threads_that_sleep_at_once() {
    all::<Shuttle, 0>();
}

#[test]
fn shuttle_threads_that_spin_once() {
    all::<Shuttle, 1>();
}
