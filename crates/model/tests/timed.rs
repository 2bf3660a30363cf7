//! The front locks with deadlines: a thread that gives up leaves nothing behind, and takes no wake with it.

use lockwright_locks::catalog::{FrontVisitor, front_rules, visit_front};
use lockwright_locks::entry::Entry;
use lockwright_locks::front::{
    self, Alone, By, Choose, Note, Observe, Rule, Taken, Tuning, View, barging, counts,
};
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::{self, Machine};
use lockwright_model::scenario::{
    self, Section, Way, exclusion, explore, lock, lock_until, only_known_models_are_asked_for,
    try_lock,
};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, RawLock, Sections, TimedLock, TryLock, Word};
use std::sync::Arc;
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

/// A way to run a section under a front lock.
type Own<C, const SPINS: usize, A> = Way<Alone<Machine<C, SPINS>, A>, By<Machine<C, SPINS>>>;

/// Acquires by glibc's own algorithm.
unsafe fn as_glibc<C, const SPINS: usize, A>(
    lock: &Alone<Machine<C, SPINS>, A>,
    node: *mut By<Machine<C, SPINS>>,
    section: Section<'_>,
) -> bool
where
    C: Checker,
    A: Rule<Machine<C, SPINS>>,
{
    front::lock_as_glibc(&lock.parts(), 0);
    section();
    // SAFETY: held, by the word, as a fresh node says.
    unsafe { lock.unlock(node) };
    true
}

/// Sleepers on the word that have no deadline: a wake that they miss is missed for good.
fn foreign<C: Checker, const SPINS: usize, A>(id: &str, budget: Budget)
where
    A: Rule<Machine<C, SPINS>>,
{
    let own: Own<C, SPINS, A> = lock::<C, SPINS, _>;
    let glibc: Own<C, SPINS, A> = as_glibc::<C, SPINS, A>;
    for (name, ways) in [
        ("lock, glibc", vec![own, glibc]),
        ("glibc, glibc", vec![glibc, glibc]),
        ("lock, lock, glibc", vec![own, own, glibc]),
    ] {
        let name = format!("{id}, {name}, spins {SPINS}");
        exclusion::<C, SPINS, _>(&name, budget, ways, false);
    }
}

/// glibc's code unlocks what ours has locked, without telling us: a head of the line must not sleep through it.
fn glibc_unlocks<C: Checker, const SPINS: usize, A>(id: &str, budget: Budget)
where
    A: Rule<Machine<C, SPINS>>,
{
    let name = format!("{id}, glibc unlocks, spins {SPINS}");
    explore::<C>(&name, budget, || {
        machine::begin::<C>();
        {
            let lock = Arc::new(Alone::<Machine<C, SPINS>, A>::new());
            let parts = lock.parts();
            let mut node = By::default();
            // SAFETY: a node of our own.
            unsafe { lock.lock(&raw mut node) };
            let other = lock.clone();
            let handle = machine::spawn::<C>(move || {
                // SAFETY: as above.
                unsafe {
                    let mut node = By::default();
                    other.lock(&raw mut node);
                    other.unlock(&raw mut node);
                }
            });
            if parts.word.release_as_glibc() == front::WAITED {
                Machine::<C, SPINS>::unpark(parts.word.address(), 1);
            }
            machine::join::<C>(vec![handle]);
        }
        machine::end();
    });
}

/// The head holds back as long as somebody waits beside the line, however long that is.
struct Patient;

impl<P: lockwright_platform::Machine> Rule<P> for Patient {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { budget_ns: 0, ..tuning }
    }

    fn arrive(_: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        None
    }
}

impl<P: lockwright_platform::Machine> Observe<P> for Patient {}

impl<P: lockwright_platform::Machine> Choose<P> for Patient {
    const HOLDS_BACK: bool = true;

    fn hold_back(lock: &View<'_, P>, _: &Note) {
        while lock.contenders() > 0 {
            lock.sleep_aside(1);
        }
    }
}

/// As [`as_glibc`], counted beside the line meanwhile.
unsafe fn beside<C: Checker, const SPINS: usize>(
    lock: &Alone<Machine<C, SPINS>, Patient>,
    node: *mut By<Machine<C, SPINS>>,
    section: Section<'_>,
) -> bool {
    let parts = lock.parts();
    let view = View::new(&parts, lock.tuning());
    view.count_in(u32::MAX);
    // SAFETY: the caller's promise.
    unsafe { as_glibc(lock, node, section) };
    view.count_out();
    true
}

/// A woken waiter that holds back for a sleeper on the word must not withhold the sleeper's wake.
fn woken_heads_hold_back<C: Checker, const SPINS: usize>(budget: Budget) {
    let own: Own<C, SPINS, Patient> = lock::<C, SPINS, _>;
    let name = format!("patient, lock, lock, lock, beside, spins {SPINS}");
    let ways = vec![own, own, own, beside::<C, SPINS>];
    exclusion::<C, SPINS, _>(&name, budget, ways, false);
}

/// Sleeps on the word before it joins the line.
unsafe fn dozes<C: Checker, const SPINS: usize>(
    lock: &Alone<Machine<C, SPINS>, barging::Lock>,
    node: *mut By<Machine<C, SPINS>>,
    section: Section<'_>,
) -> bool {
    let parts = lock.parts();
    parts.counts.fetch_or(counts::CROWDED, Relaxed); // a hint: threads outnumber the CPUs
    if barging::doze(&View::new(&parts, lock.tuning()), 2, 1_000).is_none() {
        // SAFETY: the caller's promise.
        return unsafe { scenario::lock::<C, SPINS, _>(lock, node, section) };
    }
    section();
    // SAFETY: held, by the word, as a fresh node says.
    unsafe { lock.unlock(node) };
    true
}

/// No wake is lost between dozers, the line's head, and threads that sleep on the word for another reason.
fn dozers<C: Checker, const SPINS: usize>(budget: Budget) {
    let own: Own<C, SPINS, barging::Lock> = lock::<C, SPINS, _>;
    let glibc: Own<C, SPINS, barging::Lock> = as_glibc::<C, SPINS, _>;
    for (name, ways) in [
        ("lock, lock, dozes", vec![own, own, dozes]),
        ("lock, dozes, dozes", vec![own, dozes, dozes]),
        ("lock, glibc, dozes", vec![own, glibc, dozes]),
        ("lock, lock, dozes, dozes", vec![own, own, dozes, dozes]),
    ] {
        let name = format!("barging, {name}, spins {SPINS}");
        exclusion::<C, SPINS, _>(&name, budget, ways, false);
    }
}

/// The catalogue's rules that are not presets.
struct All(Budget);

impl<C: Checker, const SPINS: usize> FrontVisitor<Machine<C, SPINS>> for All {
    fn visit<R: Rule<Machine<C, SPINS>>>(
        &mut self,
        entry: &'static Entry,
        _: fn(Tuning) -> Tuning,
    ) {
        if entry.preset_of.is_none() {
            foreign::<C, SPINS, R>(entry.id, self.0);
            glibc_unlocks::<C, SPINS, R>(entry.id, self.0);
            mixed::<C, SPINS, Alone<_, R>>(entry.id, self.0);
        }
    }
}

fn all<C: Checker, const SPINS: usize>() {
    let budget = Budget { preemptions: 2, time: Duration::from_millis(800), draws: 200 };
    visit_front::<Machine<C, SPINS>>(&mut All(budget));
    let budget = Budget { time: Duration::from_millis(400), draws: 2_000, ..budget };
    woken_heads_hold_back::<C, SPINS>(budget);
    dozers::<C, SPINS>(budget);
}

#[test]
fn what_is_asked_for_is_there() {
    let known = only_known_models_are_asked_for(all::<Shuttle, 0>);
    // Whoever asks for a lock gets all its models, so none goes by another word. The rule of this file is nobody's.
    let rules: Vec<_> = front_rules().map(|entry| entry.id).chain(["patient"]).collect();
    assert!(known.iter().all(|word| rules.contains(&word.as_str())), "{known:?}");
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
