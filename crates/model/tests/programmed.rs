//! Locks that policies program, under policies that mean no good: whatever they answer, no section overlaps another, and nobody is lost.
//! What each slot's policy answers stands in the machine.

use lockwright_locks::front::{Alone, By, Tune, Tuning, programmed};
use lockwright_locks::torn::torn_wait;
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::{ADVERSARIES, Machine};
use lockwright_model::scenario::{
    Section, Way, exclusion, lock, lock_until, only_known_models_are_asked_for,
};
use std::time::Duration;

/// Programmed by the policy in this slot.
struct Slot<const N: u32>;

impl<const N: u32> Tune for Slot<N> {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { policy: N, bypass: 2, ..tuning }
    }
}

/// A lock that such a policy programs.
type Lock<C, const SPINS: usize, T> = Alone<Machine<C, SPINS>, programmed::Lock, T>;
type Own<C, const SPINS: usize, R> = Way<Lock<C, SPINS, R>, By<Machine<C, SPINS>>>;

unsafe fn torn<C, const SPINS: usize, R>(
    lock: &Lock<C, SPINS, R>,
    _: *mut By<Machine<C, SPINS>>,
    _: Section<'_>,
) -> bool
where
    C: Checker,
    R: Tune,
{
    torn_wait(&lock.parts(), lock.tuning(), true, None);
    false
}

fn model<C: Checker, const SPINS: usize, const N: u32>(most: usize) {
    let budget = Budget { preemptions: 2, time: Duration::from_millis(130), draws: 60 };
    let own: Own<C, SPINS, Slot<N>> = lock::<C, SPINS, Lock<C, SPINS, Slot<N>>>;
    let timed: Own<C, SPINS, Slot<N>> = lock_until::<C, SPINS, Lock<C, SPINS, Slot<N>>>;
    let torn: Own<C, SPINS, Slot<N>> = torn::<C, SPINS, Slot<N>>;
    for (what, ways, time_passes) in [
        ("lock", vec![own; most], false),
        ("lock, lock, timed", vec![own, own, timed], true),
        ("lock, lock, torn", vec![own, own, torn], false),
    ] {
        let answers = ADVERSARIES[N as usize];
        let name = format!("programmed, answers {answers}, {what}, spins {SPINS}");
        exclusion::<C, SPINS, Lock<C, SPINS, Slot<N>>>(&name, budget, ways, time_passes);
    }
}

fn all<C: Checker, const SPINS: usize>(most: usize) {
    model::<C, SPINS, 1>(most);
    model::<C, SPINS, 2>(most);
    model::<C, SPINS, 3>(most);
}

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(|| all::<Shuttle, 0>(6));
}

#[test]
fn loom_threads_that_sleep_at_once() {
    all::<Loom, 0>(3);
}

#[test]
fn loom_threads_that_spin_once() {
    all::<Loom, 1>(3);
}

#[test]
fn shuttle_6_threads_have_a_choice() {
    all::<Shuttle, 0>(6);
    all::<Shuttle, 1>(6);
}
