//! Reordering: a thread that stands by holds nothing, gets the lock in the end, and hides nobody's wake. The model machine
//! has big and little cores, and a thread that moves from one to the other while it waits.

use lockwright_locks::amp::standby::Waiting;
use lockwright_locks::front::{Alone, By, Rule, Tune, Tuning, asl};
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::Machine;
use lockwright_model::scenario::{
    Way, exclusion, lock, lock_until, only_known_models_are_asked_for, try_lock,
};
use std::time::Duration;

/// A front lock with a tuning of its own.
trait Variant: Tune {
    const NAME: &'static str;
}

/// Windows end while the lock is held: the machine counts time in changes of its words.
struct Short;
impl Variant for Short {
    const NAME: &'static str = "asl, short window";
}
impl Tune for Short {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { window_ns: 2, waiting: Waiting::Awake, ..tuning }
    }
}

/// The blocking version.
struct Asleep;
impl Variant for Asleep {
    const NAME: &'static str = "asl, asleep";
}
impl Tune for Asleep {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { window_ns: 6, waiting: Waiting::Asleep, ..tuning }
    }
}

/// More threads than CPUs: standby falls asleep by itself.
struct Crowded;
impl Variant for Crowded {
    const NAME: &'static str = "asl, 1 CPU";
}
impl Tune for Crowded {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { cpus: 1, ..tuning }
    }
}

fn variant<C: Checker, const SPINS: usize, R: Rule<Machine<C, SPINS>>, V: Variant>() {
    type Lock<C, const SPINS: usize, R, V> = Alone<Machine<C, SPINS>, R, V>;
    type Own<C, const SPINS: usize, R, V> = Way<Lock<C, SPINS, R, V>, By<Machine<C, SPINS>>>;
    let own: Own<C, SPINS, R, V> = lock::<C, SPINS, Lock<C, SPINS, R, V>>;
    let timed: Own<C, SPINS, R, V> = lock_until::<C, SPINS, Lock<C, SPINS, R, V>>;
    let tries: Own<C, SPINS, R, V> = try_lock::<C, SPINS, Lock<C, SPINS, R, V>>;
    let budget = Budget { preemptions: 2, time: Duration::from_millis(650), draws: 300 };
    for (name, ways, time_passes) in [
        ("lock, lock", vec![own, own], false),
        ("lock, lock, lock", vec![own, own, own], false),
        ("try, lock, lock", vec![tries, own, own], false),
        ("timed, lock", vec![timed, own], true),
        ("timed, lock, lock", vec![timed, own, own], true),
    ] {
        let name = format!("{}, {name}, spins {SPINS}", V::NAME);
        exclusion::<C, SPINS, Lock<C, SPINS, R, V>>(&name, budget, ways, time_passes);
    }
}

fn all<C: Checker, const SPINS: usize>() {
    variant::<C, SPINS, asl::Lock, Short>();
    variant::<C, SPINS, asl::Lock, Asleep>();
    variant::<C, SPINS, asl::Lock, Crowded>();
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
