//! Reordering: who stands by holds nothing, gets the lock in the end, and hides nobody's wake. The model machine has
//! big and little cores, and a thread that moves from one to the other while it waits.

use lockwright_locks::amp::standby::Waiting;
use lockwright_locks::front::asl::Asl;
use lockwright_locks::front::pb10::Pb10;
use lockwright_locks::front::{Alone, Arrival, Parts, Tuning};
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::Machine;
use lockwright_model::scenario::{Way, exclusion, lock, lock_until, try_lock};
use lockwright_platform::Platform;
use std::time::Duration;

/// A front lock with a tuning of its own.
trait Variant: Send + Sync + 'static {
    const NAME: &'static str;
    fn tune(tuning: Tuning) -> Tuning;
    fn lock_slow<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) {
        Asl::lock_slow(parts, tuning);
    }
}

struct Rule<V>(std::marker::PhantomData<fn(V)>);

impl<P: Platform, V: Variant> Arrival<P> for Rule<V> {
    fn defaults(tuning: Tuning) -> Tuning {
        V::tune(<Asl as Arrival<P>>::defaults(tuning))
    }
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        V::lock_slow(parts, tuning);
    }
}

/// Windows end while the lock is held: the machine's time is counted in changes of its words.
struct Short;
impl Variant for Short {
    const NAME: &'static str = "asl, short window";
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { window_ns: 2, waiting: Waiting::Awake, ..tuning }
    }
}

/// The blocking version.
struct Asleep;
impl Variant for Asleep {
    const NAME: &'static str = "asl, asleep";
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { window_ns: 6, waiting: Waiting::Asleep, ..tuning }
    }
}

/// More threads than CPUs: standby falls asleep by itself.
struct Crowded;
impl Variant for Crowded {
    const NAME: &'static str = "asl, 1 CPU";
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { cpus: 1, ..tuning }
    }
}

/// A little core's turn after every one of a big core's.
struct OneToOne;
impl Variant for OneToOne {
    const NAME: &'static str = "pb10, 1 to 1";
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { bypass: 1, waiting: Waiting::Awake, ..tuning }
    }
    fn lock_slow<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) {
        Pb10::lock_slow(parts, tuning);
    }
}

fn variant<C: Checker, const SPINS: usize, V: Variant>() {
    type Lock<C, const SPINS: usize, V> = Alone<Machine<C, SPINS>, Rule<V>>;
    let own: Way<Lock<C, SPINS, V>, ()> = lock::<C, SPINS, Lock<C, SPINS, V>>;
    let timed: Way<Lock<C, SPINS, V>, ()> = lock_until::<C, SPINS, Lock<C, SPINS, V>>;
    let tries: Way<Lock<C, SPINS, V>, ()> = try_lock::<C, SPINS, Lock<C, SPINS, V>>;
    let budget = Budget { preemptions: 2, time: Duration::from_millis(1500), draws: 300 };
    for (name, ways, time_passes) in [
        ("lock, lock", vec![own, own], false),
        ("lock, lock, lock", vec![own, own, own], false),
        ("try, lock, lock", vec![tries, own, own], false),
        ("timed, lock", vec![timed, own], true),
        ("timed, lock, lock", vec![timed, own, own], true),
    ] {
        let name = format!("{}, {name}, spins {SPINS}", V::NAME);
        exclusion::<C, SPINS, Lock<C, SPINS, V>>(&name, budget, ways, time_passes);
    }
}

fn all<C: Checker, const SPINS: usize>() {
    variant::<C, SPINS, Short>();
    variant::<C, SPINS, Asleep>();
    variant::<C, SPINS, Crowded>();
    variant::<C, SPINS, OneToOne>();
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
fn shuttle() {
    all::<Shuttle, 0>();
    all::<Shuttle, 1>();
}
