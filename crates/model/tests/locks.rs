//! Every lock of the catalogue, in every way of acquiring it, under every checker.

use lockwright_locks::catalog::{Entry, Visitor, visit_all};
use lockwright_model::checker::{Budget, Checker, Coverage, Loom, Shuttle};
use lockwright_model::machine::Machine;
use lockwright_model::scenario::{Way, destruction, exclusion, lock, try_lock};
use lockwright_platform::TryLock;

/// Which locks: all, or the one that `cargo xtask weaken` asks for.
fn wanted(id: &str) -> bool {
    std::env::var("LOCKWRIGHT_MODEL").map_or(true, |only| only.split(',').any(|one| one == id))
}

struct All<'a> {
    budget: Budget,
    run: &'a str,
    spins: usize,
    threads: usize,
}

impl All<'_> {
    fn note(&self, id: &str, what: &str, coverage: impl FnOnce() -> Coverage) {
        let start = std::time::Instant::now();
        println!("{}: {id}, {} threads {what}, spins {}", self.run, self.threads, self.spins);
        let coverage = coverage();
        println!("    {coverage:?} in {:.1} s", start.elapsed().as_secs_f32());
    }
}

impl<C: Checker, const SPINS: usize> Visitor<Machine<C, SPINS>> for All<'_> {
    fn visit<L: TryLock<Machine<C, SPINS>> + 'static>(&mut self, entry: &'static Entry) {
        if !wanted(entry.id) {
            return;
        }
        let budget = self.budget;
        let all: Vec<Way<L, L::Node>> = vec![lock::<C, SPINS, L>; self.threads];
        let mut one_tries = all.clone();
        one_tries[0] = try_lock::<C, SPINS, L>;
        self.note(entry.id, "lock", || exclusion::<C, SPINS, L>(budget, all, false));
        self.note(entry.id, "lock, one tries", || {
            exclusion::<C, SPINS, L>(budget, one_tries, false)
        });
        if self.threads == 2 {
            self.note(entry.id, "lock, the last destroys", || {
                destruction::<C, SPINS, L>(budget, 2)
            });
        }
    }
}

fn run<C: Checker, const SPINS: usize>(threads: usize, budget: Budget) {
    visit_all::<Machine<C, SPINS>>(&mut All { budget, run: C::NAME, spins: SPINS, threads });
}

const TWO: Budget = Budget { preemptions: Some(4), seconds: 10, draws: 300 };
const THREE: Budget = Budget { preemptions: Some(2), seconds: 5, draws: 300 };

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
fn shuttle_4_threads() {
    run::<Shuttle, 0>(4, TWO);
    run::<Shuttle, 1>(4, TWO);
}
