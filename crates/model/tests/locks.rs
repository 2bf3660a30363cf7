//! Every lock of the catalogue, with every way of acquiring it, under every checker.

use lockwright_locks::catalog::{Visitor, visit_all};
use lockwright_locks::entry::Entry;
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::Machine;
use lockwright_model::scenario::{
    Way, destruction, destruction_by_table, exclusion, exclusion_by_table, lock,
    only_known_models_are_asked_for, try_lock,
};
use lockwright_platform::TryLock;
use std::time::Duration;

struct All {
    budget: Budget,
    threads: usize,
}

impl<C: Checker, const SPINS: usize> Visitor<Machine<C, SPINS>> for All {
    fn visit<L: TryLock<Machine<C, SPINS>> + 'static>(&mut self, entry: &'static Entry) {
        let (budget, threads) = (self.budget, self.threads);
        let name = |what: &str| format!("{}, {threads} threads {what}, spins {SPINS}", entry.id);
        let all: Vec<Way<L, L::Node>> = vec![lock::<C, SPINS, L>; threads];
        let mut one_tries = all.clone();
        one_tries[0] = try_lock::<C, SPINS, L>;
        // Its waiters have places in the machine's table.
        if entry.id == "hapax" {
            exclusion_by_table::<C, SPINS, L>(&name("lock"), budget, all);
            exclusion_by_table::<C, SPINS, L>(&name("lock, one tries"), budget, one_tries);
            if threads == 2 {
                destruction_by_table::<C, SPINS, L>(&name("lock, the last destroys"), budget, 2);
            }
            return;
        }
        exclusion::<C, SPINS, L>(&name("lock"), budget, all, false);
        exclusion::<C, SPINS, L>(&name("lock, one tries"), budget, one_tries, false);
        if threads == 2 {
            destruction::<C, SPINS, L>(&name("lock, the last destroys"), budget, 2);
        }
    }
}

fn run<C: Checker, const SPINS: usize>(threads: usize, budget: Budget) {
    visit_all::<Machine<C, SPINS>>(&mut All { budget, threads });
}

const TWO: Budget = Budget { preemptions: 4, time: Duration::from_millis(600), draws: 300 };
const THREE: Budget = Budget { preemptions: 2, time: Duration::from_millis(450), draws: 300 };

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(|| run::<Shuttle, 0>(2, TWO));
}

#[test]
fn loom_2_threads_that_sleep_at_once() {
    run::<Loom, 0>(2, TWO);
}

#[test]
fn loom_2_threads_that_spin_once() {
    run::<Loom, 1>(2, TWO);
}

#[test]
fn loom_3_threads_that_sleep_at_once() {
    run::<Loom, 0>(3, THREE);
}

#[test]
fn loom_3_threads_that_spin_once() {
    run::<Loom, 1>(3, THREE);
}

#[test]
fn shuttle_4_threads_that_sleep_at_once() {
    run::<Shuttle, 0>(4, TWO);
}

#[test]
fn shuttle_4_threads_that_spin_once() {
    run::<Shuttle, 1>(4, TWO);
}
