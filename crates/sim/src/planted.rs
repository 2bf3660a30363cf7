//! Locks with planted faults. The checks around a lock find them in any workload, even in one that touches no data.

use crate::any_lock::AnyLock;
use crate::check::Violation;
use crate::engine::Tid;
use crate::load::{Setup, Workload};
use crate::lock::LockSpec;
use crate::memory::{Sim, SimWord};
use crate::watched::Watched;
use crate::{Outcome, Placement, Run, profile};
use lockwright_locks::entry::{Entry, Promise};
use lockwright_locks::front::{fifo, tuning};
use lockwright_platform::Ordering::{self, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Stage, Stages, Word};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Test-and-set, with these orderings.
struct Tas {
    word: SimWord,
    take: Ordering,
    give: Ordering,
}

impl AnyLock for Tas {
    fn lock(&self, _: Tid, _: u32) {
        while self.word.swap(1, self.take) == 1 {
            Sim::spin_until(&self.word, Relaxed, |value| value == 0);
        }
    }
    fn try_lock(&self, _: Tid) -> bool {
        self.word.swap(1, self.take) == 0
    }
    fn unlock(&self, _: Tid) {
        self.word.store(0, self.give);
    }
}

/// Naps forever once it has been taken.
struct Naps(SimWord);

impl AnyLock for Naps {
    fn lock(&self, _: Tid, _: u32) {
        while self.0.swap(1, Acquire) == 1 {
            Sim::park(&self.0, 1, Some(Sim::after(1_000_000)));
        }
    }
    fn try_lock(&self, _: Tid) -> bool {
        false
    }
    fn unlock(&self, _: Tid) {}
}

/// Test-and-set again, in a lock that claims to have a line: every waiter is its head, and all of them overtake.
struct Overtakes(SimWord);

impl AnyLock for Overtakes {
    fn lock(&self, _: Tid, _: u32) {
        if self.0.swap(1, Acquire) == 0 {
            return;
        }
        Sim::reached(Stage::Joined);
        Sim::reached(Stage::Head);
        while self.0.swap(1, Acquire) == 1 {
            Sim::spin_until(&self.0, Relaxed, |value| value == 0);
        }
    }
    fn try_lock(&self, _: Tid) -> bool {
        false
    }
    fn unlock(&self, _: Tid) {
        self.0.store(0, Release);
    }
}

/// Four threads that compute, and take and release the lock.
fn run(make: fn() -> Box<dyn AnyLock>) -> Outcome {
    run_as(make, LockSpec::parse("tas").unwrap())
}

/// The same with a lock that promises what `spec` says.
fn run_as(make: fn() -> Box<dyn AnyLock>, spec: LockSpec) -> Outcome {
    let setup = move |setup: &mut Setup<'_>| {
        let lock = setup.lock();
        let watched = Watched::over::<Sim>(make(), &spec, 0, 4);
        setup.world.locks.borrow_mut()[0] = Rc::new(watched);
        setup.threads(move |me| {
            while me.goes_on() {
                me.operation(|| me.locked(lock, || me.compute(50.0)));
                me.compute(200.0);
            }
        });
    };
    let workload = Box::leak(Box::new(Workload {
        id: "planted",
        idea: "no data",
        source: "this test",
        params: &[],
        holds: false,
        setup: Box::leak(Box::new(setup)),
    }));
    let run = Run {
        profile: Arc::new(profile::builtin("m1").unwrap()),
        lock: LockSpec::parse("tas").unwrap(),
        workload,
        params: BTreeMap::new(),
        threads: 4,
        placement: Placement::Pinned,
        seed: 1,
        warmup_ns: 0,
        duration_ns: 200_000,
        samples: false,
        timeline: None,
        transfers: false,
    };
    run.outcome()
}

#[test]
fn a_hand_over_without_release_or_acquire_is_found_where_no_data_are_touched() {
    let of = |lock: fn() -> Box<dyn AnyLock>| run(lock).violation;
    let good = of(|| Box::new(Tas { word: SimWord::new(0), take: Acquire, give: Release }));
    assert_eq!(good, None);
    for bad in [
        of(|| Box::new(Tas { word: SimWord::new(0), take: Acquire, give: Relaxed })),
        of(|| Box::new(Tas { word: SimWord::new(0), take: Relaxed, give: Release })),
    ] {
        assert!(matches!(bad, Some(Violation::HandOver { lock: 0, .. })), "{bad:?}");
    }
}

#[test]
fn a_lock_that_nobody_gets_any_more_is_found_soon_after_the_end() {
    match run(|| Box::new(Naps(SimWord::new(0)))).violation {
        Some(Violation::Stuck { at_ns, .. }) => assert!(at_ns < 2_100_000_000, "{at_ns}"),
        other => panic!("{other:?}"),
    }
}

/// A lock outside the catalogue, with the entry of one from it.
static IN_ORDER: Entry = Entry { id: "planted", promise: Promise::Arrival, ..fifo::ENTRY };
static BOUNDED: Entry = Entry {
    id: "planted",
    promise: Promise::Bypass,
    options: &[tuning::BYPASS.or(3)],
    ..fifo::ENTRY
};
static FREE_FOR_ALL: Entry = Entry { id: "planted", promise: Promise::Nothing, ..fifo::ENTRY };

#[test]
fn a_lock_that_does_not_keep_what_its_entry_promises_is_found_whatever_its_name() {
    let make = || -> Box<dyn AnyLock> { Box::new(Overtakes(SimWord::new(0))) };
    let of = |entry| run_as(make, LockSpec::of(entry)).violation;
    let order = of(&IN_ORDER);
    assert!(matches!(order, Some(Violation::Order { lock: 0, .. })), "{order:?}");
    let bypass = of(&BOUNDED);
    assert!(matches!(bypass, Some(Violation::Bypass { bound: 3, times: 4, .. })), "{bypass:?}");
    assert_eq!(of(&FREE_FOR_ALL), None);
}
