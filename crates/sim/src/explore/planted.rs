//! Explorations of planted faults, which must be found, and of locks outside the catalogue, which must pass.

use super::explorer::explorer;
use super::lock::front;
use super::memory::{Explored, Process};
use super::process::Mutex;
use super::{Exploration, Hit, Mutant, Mutation, Op, Search, Subject};
use crate::engine::engine;
use crate::lock::LockSpec;
use lockwright_locks::entry::{Entry, Promise};
use lockwright_locks::front::{
    Choose, Note, Observe, Rule, Taken, Tuning, View, WAITED, Waiters, counts, fifo,
};
use lockwright_locks::posix::{self, Environment, Refused, UNDECIDED};
use lockwright_platform::Ordering::{Relaxed, Release};
use lockwright_platform::{Platform, Word};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn search(subject: Subject, mutant: Option<Mutant>, schedules: u64) -> Option<Hit> {
    let search = Search {
        strategy: None,
        first: 0,
        schedules,
        time: Duration::MAX,
        jobs: 2,
        stop: || false,
    };
    search.run(&Exploration::new(subject, mutant)).1
}

/// How the runtime once unlocked: it decided before the release whether the mutex has a line. It assumed that if nobody
/// sleeps by then, and the mutex has no lock yet, nobody will. But a thread may choose the lock, join and fall asleep
/// in between.
fn unlock_that_looks_first(m: &Mutex) -> Result<(), Refused> {
    if m.kind.load(Relaxed) & posix::TYPE != 0 {
        return posix::unlock(m);
    }
    m.owner.store(0, Relaxed);
    if Process::give(m) {
        return Ok(());
    }
    let word = m.word.address();
    let has_line = m.counts.load(Relaxed) & counts::LOCK != UNDECIDED;
    let has_sleepers = explorer(engine()).asleep_on(word.addr()) > 0;
    if m.word.release_as_glibc() == WAITED && (has_line || has_sleepers) {
        Explored::unpark(word, 1);
    }
    Ok(())
}

#[test]
fn an_unlock_that_decides_too_early_whether_somebody_waits_is_found() {
    assert!(search(Subject::runtime(), None, 3_000).is_none());
    let hit = search(Subject::runtime_that_unlocks(unlock_that_looks_first), None, 20_000);
    let hit = hit.expect("a lost wake-up");
    assert_eq!(hit.finding.violation.check(), "lost wake-up", "{hit:#?}");
}

/// The last to join is the next head, as far as the bound allows.
struct Backwards;

static BACKWARDS: Entry = Entry {
    id: "backwards",
    order: "the last comes first",
    promise: Promise::Bypass,
    options: &[lockwright_locks::front::tuning::BYPASS.or(2)],
    ..fifo::ENTRY
};

/// How often a waiter was to be passed over, in all threads.
static PASSES: AtomicU32 = AtomicU32::new(0);

impl Rule<Explored> for Backwards {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: 2, budget_ns: 0, ..tuning }
    }

    fn arrive(_: &View<'_, Explored>, _: &mut Note) -> Option<Taken> {
        None
    }
}

impl Choose<Explored> for Backwards {
    const AHEAD: usize = 8;

    fn next(_: &View<'_, Explored>, waiters: &mut Waiters<'_, Explored>) -> u32 {
        while waiters.look() {}
        let last = waiters.notes().len() as u32 - 1; // at most 8
        PASSES.fetch_add(last, Relaxed);
        1 << last
    }
}

impl Observe<Explored> for Backwards {}

fn backwards() -> Subject {
    Subject::made(LockSpec::of(&BACKWARDS), |spec, threads| {
        front::<Backwards>(spec.tuned_for::<Explored>(Backwards::defaults), threads)
    })
}

#[test]
fn a_rule_that_chooses_its_successor_keeps_exclusion_waiters_and_bound() {
    let hit = search(backwards(), None, 15_000);
    assert!(hit.is_none(), "{hit:#?}");
    let passes = PASSES.load(Relaxed);
    assert!(passes > 100, "{passes}");
}

#[test]
fn a_line_that_does_not_count_whom_it_lets_past_is_found() {
    let sites = Exploration::new(backwards(), None).sites(1_000);
    let counts = sites.iter().filter(|s| s.op == Op::Store && s.place.file == "front/choice.rs");
    let found = counts.filter_map(|site| {
        let mutant = Mutant { site: site.place, mutation: Mutation::NoStore };
        search(backwards(), Some(mutant), 10_000)
    });
    let checks: Vec<_> = found.map(|hit| hit.finding.violation.check()).collect();
    assert!(checks.contains(&"bypass"), "{checks:?}");
}

/// The catalogue's rules hit these faults too seldom, so the sources mark them as surviving.
#[test]
fn a_waiter_that_does_not_know_whom_a_choice_put_before_it_is_found() {
    let sites = Exploration::new(backwards(), None).sites(1_000);
    let is_link = |site: &&super::Site| {
        site.place.file == "front/waiter.rs" && site.op == Op::Store && site.order == Release
    };
    let relaxed = Mutation::Order(Relaxed);
    let found = sites.iter().filter(is_link).filter_map(|site| {
        let mutant = Mutant { site: site.place, mutation: relaxed };
        search(backwards(), Some(mutant), 20_000)
    });
    let checks: Vec<_> = found.map(|hit| hit.finding.violation.check()).collect();
    // `before` and `next`.
    assert_eq!(checks, ["publication"; 2], "{checks:?}");
}
