//! Locks whose hand-overs take a known number of transfers, and what is counted for them.

use super::{HandOverPath, Paths, Transfer};
use crate::any_lock::AnyLock;
use crate::engine::Tid;
use crate::load::{Setup, Workload};
use crate::lock::LockSpec;
use crate::memory::{Sim, SimWord};
use crate::watched::Watched;
use crate::{Outcome, Placement, Run, profile, workload};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Word};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

#[repr(align(128))]
struct OnItsLine(SimWord);

impl OnItsLine {
    fn all(number: u32) -> Vec<Self> {
        (0..number).map(|_| Self(SimWord::new(0))).collect()
    }
}

fn change(lines: &[OnItsLine]) {
    for line in lines {
        line.0.fetch_add(1, Relaxed);
    }
}

/// Goes round, thread by thread. Every line that it touches was last changed by another thread.
struct Baton {
    /// A word for each thread: how often it has had its turn.
    turns: Vec<OnItsLine>,
    /// The releaser changes these before it passes the lock on, and those afterwards.
    before: Vec<OnItsLine>,
    after: Vec<OnItsLine>,
    /// The next holder changes these before its section begins.
    last: Vec<OnItsLine>,
    /// Turns had, by thread; in nobody's memory.
    had: Vec<std::cell::Cell<u32>>,
}

impl Baton {
    fn new(threads: u32, [before, after, last]: [u32; 3]) -> Self {
        let turns = OnItsLine::all(threads);
        turns[0].0.store(1, Relaxed);
        Self {
            turns,
            before: OnItsLine::all(before),
            after: OnItsLine::all(after),
            last: OnItsLine::all(last),
            had: (0..threads).map(|_| 0.into()).collect(),
        }
    }
}

impl AnyLock for Baton {
    fn lock(&self, thread: Tid, _: u32) {
        let turn = self.had[thread as usize].get() + 1;
        Sim::spin_until(&self.turns[thread as usize].0, Acquire, |value| value == turn);
        self.had[thread as usize].set(turn);
        change(&self.last);
    }
    fn try_lock(&self, _: Tid) -> bool {
        false
    }
    fn unlock(&self, thread: Tid) {
        change(&self.before);
        let next = (thread as usize + 1) % self.turns.len();
        self.turns[next].0.store(self.had[next].get() + 1, Release);
        change(&self.after);
    }
}

const THREADS: u32 = 3;

fn run(machine: &str, workload: &'static Workload, lock: &str, threads: u32) -> Run {
    Run {
        profile: Arc::new(profile::builtin(machine).unwrap()),
        lock: LockSpec::parse(lock).unwrap(),
        workload,
        params: BTreeMap::from([("gap".to_owned(), 0.0)]),
        threads,
        placement: Placement::Pinned,
        seed: 1,
        warmup_ns: 20_000,
        duration_ns: 200_000,
        samples: false,
        timeline: None,
        transfers: true,
    }
}

fn of_baton(machine: &str, lines: [u32; 3]) -> HandOverPath {
    let setup = move |setup: &mut Setup<'_>| {
        let lock = setup.lock();
        let baton = Box::new(Baton::new(THREADS, lines));
        let spec = LockSpec::parse("tas").unwrap();
        let watched = Watched::over::<Sim>(baton, &spec, 0, THREADS as usize);
        setup.world.locks.borrow_mut()[0] = Rc::new(watched);
        setup.threads(move |me| {
            while me.goes_on() {
                me.operation(|| me.locked(lock, || me.compute(1000.0)));
            }
        });
    };
    let workload = Box::leak(Box::new(Workload {
        id: "baton",
        idea: "a lock that goes round",
        source: "this test",
        params: &[],
        holds: false,
        setup: Box::leak(Box::new(setup)),
    }));
    let outcome = run(machine, workload, "tas", THREADS).outcome();
    assert_eq!(outcome.violation, None);
    outcome.path.unwrap()
}

#[test]
fn each_transfer_on_the_way_counts_once_and_none_after_it() {
    for machine in ["m1", "xeon-2x10", "opteron-4x12"] {
        for lines in [[0, 0, 0], [3, 0, 0], [0, 2, 0], [0, 0, 4], [2, 5, 1]] {
            let [before, _, last] = lines;
            let path = of_baton(machine, lines);
            // The turn's word: the releaser takes its line, the next holder fetches a copy.
            let number = u64::from(2 + before + last);
            assert!(path.hand_overs > 50, "{machine} {lines:?}: {path:?}");
            assert_eq!((path.p50, path.p99, path.max), (number, number, number), "{lines:?}");
            assert_eq!(path.transfers, number as f64, "{path:?}");
            assert_eq!(path.releaser.all(), f64::from(1 + before), "{path:?}");
            assert_eq!((path.next.copies, path.next.takes), (1.0, f64::from(last)), "{path:?}");
            assert_eq!((path.free, path.passed_over), (0, 0), "{path:?}");
            assert!(path.mean_ns > 0.0 && path.p50_ns > 0, "{path:?}");
        }
    }
}

fn bench() -> &'static Workload {
    workload::find("bench").unwrap()
}

/// Two on a saturated lock: the releaser takes the line of the successor's gate, and the successor fetches a copy.
#[test]
fn mcs_has_two() {
    let path = run("m1", bench(), "mcs", 4).outcome().path.unwrap();
    assert_eq!((path.p50, path.p99, path.max, path.passed_over), (2, 2, 2, 0), "{path:?}");
    assert_eq!((path.releaser.takes, path.next.copies, path.transfers), (1.0, 1.0, 2.0));
    assert!(path.hand_overs > 500, "{path:?}");
}

#[test]
fn without_waiters_there_is_no_hand_over() {
    let outcome = run("m1", bench(), "mcs", 1).outcome();
    let path = outcome.path.unwrap();
    assert_eq!((path.hand_overs, path.transfers, path.passed_over), (0, 0.0, 0));
    assert!(path.free > 100 && path.free <= outcome.acquisitions, "{path:?}");
}

#[test]
fn the_same_seed_gives_the_same_figures_and_watching_changes_no_other_figure() {
    let all = |outcome: &Outcome| format!("{outcome:?}");
    for lock in ["mcs", "ttas", "fifo", "asl", "glibc"] {
        let watched = run("m1", bench(), lock, 8);
        let mut one = watched.outcome();
        assert_eq!(all(&one), all(&watched.outcome()), "{lock}");
        assert!(one.path.take().is_some(), "{lock}");
        let plain = Run { transfers: false, ..watched }.outcome();
        assert_eq!(all(&one), all(&plain), "{lock}");
    }
}

/// All in the measured time.
fn paths() -> Paths {
    Paths::new((0, u64::MAX))
}

#[test]
fn a_waiter_depends_on_what_it_reads_and_on_its_wake_up() {
    let mut paths = paths();
    // Line 7 is written, then line 8. The waiter reads line 7 only.
    paths.released(0, 1, 1000, &[2, 3]);
    paths.transfer(1, 7, Transfer::Upgrade);
    paths.transfer(1, 8, Transfer::Take);
    paths.transfer(2, 7, Transfer::Copy);
    paths.transfer(3, 8, Transfer::Copy);
    paths.acquired(0, 2, 2, 5000);
    let path = paths.outcome();
    assert_eq!((path.hand_overs, path.transfers, path.mean_ns), (1, 2.0, 4.0));
    assert_eq!((path.releaser.upgrades, path.next.copies), (1.0, 1.0));
    // A later write to a line that the releaser still has.
    paths.released(0, 1, 0, &[2]);
    paths.transfer(1, 7, Transfer::Take);
    paths.transfer(1, 8, Transfer::Copy);
    paths.writes(1, 7);
    paths.transfer(2, 7, Transfer::Copy);
    paths.acquired(0, 2, 2, 0);
    assert_eq!(paths.outcome().max, 3);
    // It is woken after line 8.
    paths.released(0, 1, 0, &[2]);
    paths.transfer(1, 7, Transfer::Take);
    paths.transfer(1, 8, Transfer::Take);
    paths.wakes(1, 2);
    paths.transfer(1, 9, Transfer::Take);
    paths.returned(0, 1);
    paths.transfer(1, 7, Transfer::Take);
    paths.transfer(2, 10, Transfer::Copy);
    paths.transfer(2, 11, Transfer::Take);
    paths.acquired(0, 2, 2, 0);
    assert_eq!(paths.outcome().max, 4);
    assert_eq!(paths.outcome().hand_overs, 3);
}

#[test]
fn releases_without_a_hand_over_are_counted_apart() {
    let mut paths = paths();
    paths.released(0, 1, 0, &[]);
    paths.acquired(0, 2, 2, 0);
    paths.released(0, 2, 0, &[1]);
    paths.acquired(0, 3, 3, 0); // it came later
    paths.released(0, 3, 0, &[1]);
    paths.acquired(0, 3, 3, 0);
    paths.acquired(0, 4, 4, 0); // nobody has released
    let path = paths.outcome();
    assert_eq!((path.hand_overs, path.free, path.passed_over), (0, 1, 2));
}

#[test]
fn a_section_that_another_thread_runs_needs_only_that_threads_transfers() {
    let mut paths = paths();
    paths.released(0, 9, 0, &[2]);
    paths.transfer(9, 7, Transfer::Copy);
    paths.transfer(2, 8, Transfer::Copy);
    paths.acquired(0, 2, 9, 0);
    let path = paths.outcome();
    assert_eq!((path.releaser.copies, path.next.all()), (1.0, 0.0));
}
