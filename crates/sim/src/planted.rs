//! Locks with planted faults: the checks around a lock find them in any workload, also in one that touches no data.

use crate::check::Violation;
use crate::engine::Tid;
use crate::load::{Setup, Workload};
use crate::watched::Watched;
use crate::lock::{AnyLock, LockSpec};
use crate::platform::{Sim, SimWord};
use crate::{Outcome, Placement, Run, profile};
use lockwright_platform::Ordering::{self, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Word};
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

/// Naps for ever, once it has been taken.
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

/// Four threads that compute, and take and release the lock.
fn run(make: fn() -> Box<dyn AnyLock>) -> Outcome {
    let setup = move |setup: &mut Setup<'_>| {
        let lock = setup.lock();
        let watched = Watched::over::<Sim>(make(), setup.lock, 0, 4);
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
