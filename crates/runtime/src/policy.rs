//! Which lock a mutex runs on: decided when it is first contended, and kept in five bits of its side word.
//!
//! 0 is "not decided yet"; 1 to 30 are places in a table that our constructor fills from LOCKWRIGHT_LOCK
//! (place 1) and LOCKWRIGHT_RULES; 31 is what runs before that: the front lock `auto`, as for two CPUs.

use crate::layout::{MARKED, Mutex};
use crate::{fork, leave, machine, rules, thread, whole};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_locks::amp::standby::{WINDOW_MAX_NS, Waiting};
use lockwright_locks::catalog::visit_front;
use lockwright_locks::entry::{Entry, FrontVisitor};
use lockwright_locks::front::{self, Parts, Rule, Seat, Tuning, View, Window, side};
use lockwright_native::Native;
use lockwright_platform::Word;

/// A front lock's rule, on this machine.
#[derive(Clone, Copy)]
pub(crate) struct Front {
    acquire: fn(Parts<'_, Native>, &Tuning, Option<&Seat<Native>>),
    release: fn(&View<'_, Native>),
    /// Its own defaults, on top of what suits the machine.
    pub(crate) defaults: fn(Tuning) -> Tuning,
}

impl Front {
    const fn of<R: Rule<Native>>() -> Self {
        Self { acquire: front::acquire::<Native, R>, release: R::release, defaults: R::defaults }
    }

    /// The front lock called `id`.
    pub(crate) fn find(id: &'static str) -> Option<Self> {
        struct Find(&'static str, Option<Front>);
        impl FrontVisitor<Native> for Find {
            fn visit<R: Rule<Native>>(&mut self, entry: &'static Entry) {
                if entry.id == self.0 {
                    self.1 = Some(Front::of::<R>());
                }
            }
        }
        let mut find = Find(id, None);
        visit_front::<Native>(&mut find);
        find.1
    }
}

/// What a mutex does with a thread that has to wait.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// A front lock.
    Front(Front),
    /// A textbook lock in front of word 0.
    Whole(whole::Acquire),
    /// glibc's own algorithm: swap in a 2, sleep.
    Glibc,
}

/// A lock and its tuning.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) how: How,
    tuning: Tuning,
}

impl Policy {
    pub(crate) const fn new(how: How, tuning: Tuning) -> Self {
        Self { how, tuning }
    }

    /// The tuning, in this process, for the calling thread.
    pub(crate) fn tuning(&self) -> Tuning {
        let window_ns = match self.tuning.window {
            Window::Epoch => thread::window_ns(),
            Window::Fixed => self.tuning.window_ns,
        };
        Tuning { era: fork::era(), window_ns, ..self.tuning.on(machine::cpus()) }
    }
}

/// Place 31.
static EARLY: Policy = Policy::new(
    How::Front(Front::of::<front::barging::Lock>()),
    Tuning {
        spin_ns: 5_000,
        spinners: 1,
        bypass: 63,
        batch_ns: 0,
        cpus: 2,
        herd: 8,
        window_ns: WINDOW_MAX_NS,
        window: Window::Fixed,
        waiting: Waiting::Auto,
        era: 0,
    },
);
const EARLY_PLACE: u32 = 31;
const DEFAULT_PLACE: u32 = 1;
/// Places that rules may use, 1 to 30.
pub(crate) const PLACES: usize = 31;

struct Table(UnsafeCell<[Policy; PLACES]>);
// SAFETY: written by the constructor, once, before READY; read after it.
unsafe impl Sync for Table {}
static TABLE: Table = Table(UnsafeCell::new([EARLY; PLACES]));
static READY: AtomicBool = AtomicBool::new(false);

/// Fills the table; place 1 is the default.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn publish(policies: &[Policy]) {
    // SAFETY: nobody reads before READY.
    let table = unsafe { &mut *TABLE.0.get() };
    for (place, policy) in table[1..].iter_mut().zip(policies) {
        *place = *policy;
    }
    // ORDERING: Release, pairs with the Acquire in `at`: the table is filled.
    READY.store(true, Release);
}

fn at(place: u32) -> &'static Policy {
    // ORDERING: Acquire, pairs with `publish`.
    if place == EARLY_PLACE || !READY.load(Acquire) {
        return &EARLY;
    }
    // SAFETY: READY: nobody writes any more. `place` is below 31: five bits, and not 31.
    let table = unsafe { &*TABLE.0.get() };
    &table[if place == 0 { DEFAULT_PLACE } else { place } as usize]
}

/// The lock that `mutex` runs on; not decided yet: the default.
pub(crate) fn of(mutex: &Mutex) -> &'static Policy {
    at(mutex.side.load(Relaxed) & side::LOCK) // five bits that go from 0 to their value once
}

/// Decides, if nobody has: `caller` is the address of the call that found the mutex contended.
fn decide(mutex: &Mutex, caller: usize) -> &'static Policy {
    let mut now = mutex.side.load(Relaxed);
    if now & side::LOCK != 0 {
        return at(now & side::LOCK);
    }
    // ORDERING: Acquire, pairs with `publish`.
    let place = if READY.load(Acquire) {
        rules::rule_for(core::ptr::from_ref(mutex).addr(), caller).unwrap_or(DEFAULT_PLACE)
    } else {
        EARLY_PLACE
    };
    loop {
        // Relaxed: the place is all there is to know.
        match mutex.side.compare_exchange(now, now | place, Relaxed, Relaxed) {
            Ok(_) => {
                let policy = at(place);
                if let How::Whole(_) = policy.how {
                    // From now on every arrival comes here, and queues. Relaxed: those that don't know yet overtake.
                    mutex.kind.fetch_or(MARKED, Relaxed);
                }
                return policy;
            }
            Err(seen) if seen & side::LOCK != 0 => return at(seen & side::LOCK),
            Err(seen) => now = seen,
        }
    }
}

/// Acquires word 0 by the mutex's lock.
#[cold]
#[inline(never)]
pub(crate) fn acquire(mutex: &Mutex, caller: usize) {
    machine::look_now_and_then();
    let policy = decide(mutex, caller);
    let tuning = policy.tuning();
    match policy.how {
        How::Front(front) => {
            leave::in_line(mutex, &tuning, |seat| {
                (front.acquire)(mutex.parts(), &tuning, Some(seat));
            });
        }
        // A textbook lock's queue does not survive a fork; its mutexes go on as glibc's.
        How::Whole(acquire) if tuning.era == 0 => {
            leave::held_back(mutex, &tuning, || acquire(mutex, &tuning));
        }
        How::Whole(_) | How::Glibc => {
            leave::on_word(mutex, || front::lock_as_glibc(mutex.parts()));
        }
    }
}

/// Releases word 0, which is not 1. Who needs the wake, and gets it, does not depend on the mutex's lock, which may
/// be decided at this very moment.
#[cold]
#[inline(never)]
pub(crate) fn release(mutex: &Mutex) {
    let policy = of(mutex);
    let (parts, tuning) = (mutex.parts(), policy.tuning());
    if let How::Front(front) = policy.how {
        (front.release)(&View::new(parts, &tuning));
    }
    front::unlock_slow(parts, &tuning);
}

/// Does every arrival at a marked mutex have to queue, whether or not its word is free?
pub(crate) fn must_queue(mutex: &Mutex) -> bool {
    matches!(of(mutex).how, How::Whole(_))
}
