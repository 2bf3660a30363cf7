//! A lock that lives in memory to which 8 bytes point, and that comes and goes with its users: see lockwright_locks::wide.

use lockwright_locks::spin::ticket::Ticket;
use lockwright_locks::wide::Wide;
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::Machine;
use lockwright_model::scenario::{
    Way, destruction, exclusion, lock, only_known_models_are_asked_for, try_lock,
};
use std::time::Duration;

type Lock<C> = Wide<Machine<C, 0>, Ticket<Machine<C, 0>>>;

fn run<C: Checker>(threads: usize, budget: Budget) {
    let name = |what: &str| format!("wide, {threads} threads {what}");
    let all: Vec<Way<Lock<C>, _>> = vec![lock::<C, 0, Lock<C>>; threads];
    let mut one_tries = all.clone();
    one_tries[0] = try_lock::<C, 0, Lock<C>>;
    exclusion::<C, 0, Lock<C>>(&name("lock"), budget, all, false);
    exclusion::<C, 0, Lock<C>>(&name("lock, one tries"), budget, one_tries, false);
    destruction::<C, 0, Lock<C>>(&name("lock, the last destroys"), budget, 2);
}

const TWO: Budget = Budget { preemptions: 4, time: Duration::from_millis(1400), draws: 300 };
const THREE: Budget = Budget { preemptions: 2, time: Duration::from_millis(900), draws: 300 };

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(|| run::<Shuttle>(2, TWO));
}

#[test]
fn loom_2_threads() {
    run::<Loom>(2, TWO);
}

#[test]
fn loom_3_threads() {
    run::<Loom>(3, THREE);
}

#[test]
fn shuttle_4_threads() {
    run::<Shuttle>(4, TWO);
}
