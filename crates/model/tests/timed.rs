//! The front locks with deadlines: who gives up leaves nothing behind, and takes no wake with it.

use lockwright_locks::front::{auto, barging, fifo};
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::Machine;
use lockwright_model::scenario::{Way, exclusion, lock, lock_until, try_lock};
use lockwright_platform::{TimedLock, TryLock};
use std::time::Duration;

fn mixed<C: Checker, const SPINS: usize, L>(id: &str, budget: Budget)
where
    L: TryLock<Machine<C, SPINS>> + TimedLock<Machine<C, SPINS>> + 'static,
{
    let lock: Way<L, L::Node> = lock::<C, SPINS, L>;
    let timed: Way<L, L::Node> = lock_until::<C, SPINS, L>;
    let tries: Way<L, L::Node> = try_lock::<C, SPINS, L>;
    for (name, ways) in [
        ("lock, timed", vec![lock, timed]),
        ("timed, timed", vec![timed, timed]),
        ("lock, lock, timed", vec![lock, lock, timed]),
        ("lock, timed, timed", vec![lock, timed, timed]),
        ("try, lock, timed", vec![tries, lock, timed]),
    ] {
        let preemptions = if ways.len() == 2 { 4 } else { 2 };
        let name = format!("{id}, {name}, spins {SPINS}");
        exclusion::<C, SPINS, L>(&name, Budget { preemptions, ..budget }, ways, true);
    }
}

fn all<C: Checker, const SPINS: usize>() {
    let budget = Budget { preemptions: 2, time: Duration::from_secs(2), draws: 300 };
    mixed::<C, SPINS, barging::Lock<Machine<C, SPINS>>>("barging", budget);
    mixed::<C, SPINS, fifo::Lock<Machine<C, SPINS>>>("fifo", budget);
    mixed::<C, SPINS, auto::Lock<Machine<C, SPINS>>>("auto", budget);
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
