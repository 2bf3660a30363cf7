//! Changes of the line that any rule may cause: waiters that are torn out of it, and rules that choose who is next.

use lockwright_locks::catalog::{FrontVisitor, visit_front};
use lockwright_locks::entry::Entry;
use lockwright_locks::front::{
    Alone, By, Choose, Note, Observe, Rule, Seat, Taken, Tuning, View, Waiters,
};
use lockwright_locks::torn::torn_wait;
use lockwright_model::checker::{Budget, Checker, Loom, Shuttle};
use lockwright_model::machine::{Machine, may_lose_lines, torn};
use lockwright_model::scenario::{
    Section, Way, exclusion, lock, lock_until, only_known_models_are_asked_for,
};
use lockwright_platform::RawLock;
use shuttle::rand::Rng;
use std::time::Duration;

type Lock<C, const SPINS: usize, R> = Alone<Machine<C, SPINS>, R>;
type Own<C, const SPINS: usize, R> = Way<Lock<C, SPINS, R>, By<Machine<C, SPINS>>>;

/// Joins the line and is torn out of it; if it is to fall asleep, once it has made sure that somebody would wake it.
unsafe fn torn_in_line<C, const SPINS: usize, R, const ASLEEP: bool>(
    lock: &Lock<C, SPINS, R>,
    _: *mut By<Machine<C, SPINS>>,
    _: Section<'_>,
) -> bool
where
    C: Checker,
    R: Rule<Machine<C, SPINS>>,
{
    torn_wait(&lock.parts(), lock.tuning(), ASLEEP, None);
    false
}

/// The most steps that a thread may take before it is torn out of its wait. A wait has fewer, as a rule.
const STEPS: u32 = 48;

/// Acquires, and is torn away before any of its steps. By its notes it leaves; if it has the lock, it has its section run first.
unsafe fn torn_anywhere<const SPINS: usize, R>(
    lock: &Lock<Shuttle, SPINS, R>,
    by: *mut By<Machine<Shuttle, SPINS>>,
    section: Section<'_>,
) -> bool
where
    R: Rule<Machine<Shuttle, SPINS>>,
{
    let seat = Seat::default();
    let (mut holds, mut had_node) = (false, false);
    let parts = lock.parts();
    let line = View::new(&parts, lock.tuning());
    let leave = || {
        had_node = seat.has_node();
        // SAFETY: the seat is this thread's, of its wait for this lock.
        holds = unsafe { seat.leave(&line) };
    };
    let at = shuttle::rand::thread_rng().gen_range(1..=STEPS);
    // SAFETY: our own node; if we are torn away, we leave.
    if !torn::<Shuttle>(at, leave, || unsafe { lock.lock_seated(by, &seat) }) {
        section();
        // SAFETY: acquired just now with this node.
        unsafe { lock.unlock(by) };
        return true;
    }
    if !had_node {
        // Torn away between taking its node and noting it; or while it gave back nodes, which no line had any more.
        may_lose_lines(4); // each thread's
    }
    if holds {
        section();
        line.release();
    }
    holds
}

fn model<C: Checker, const SPINS: usize, R: Rule<Machine<C, SPINS>>>(id: &str, budget: Budget) {
    let own: Own<C, SPINS, R> = lock::<C, SPINS, Lock<C, SPINS, R>>;
    let awake: Own<C, SPINS, R> = torn_in_line::<C, SPINS, R, false>;
    let asleep: Own<C, SPINS, R> = torn_in_line::<C, SPINS, R, true>;
    for (name, ways) in [
        ("lock, lock, torn awake", vec![own, own, awake]),
        ("lock, lock, torn asleep", vec![own, own, asleep]),
        ("lock, torn awake, torn asleep", vec![own, awake, asleep]),
    ] {
        let name = format!("{id}, {name}, spins {SPINS}");
        exclusion::<C, SPINS, Lock<C, SPINS, R>>(&name, budget, ways, false);
    }
}

/// A rule under which the last to join is the next head, as far as the bound allows.
struct Backwards;

impl<P: lockwright_platform::Machine> Rule<P> for Backwards {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: 1, budget_ns: 0, ..tuning }
    }

    fn arrive(_: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        None
    }
}

impl<P: lockwright_platform::Machine> Observe<P> for Backwards {}

impl<P: lockwright_platform::Machine> Choose<P> for Backwards {
    const AHEAD: usize = 4;

    fn next(_: &View<'_, P>, waiters: &mut Waiters<'_, P>) -> u32 {
        while waiters.look() {}
        1 << (waiters.notes().len() - 1)
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
            model::<C, SPINS, R>(entry.id, self.0);
        }
    }
}

/// The catalogue's rules that are not presets, and threads that are torn out of their waits before any step.
struct Anywhere(Budget);

impl<const SPINS: usize> FrontVisitor<Machine<Shuttle, SPINS>> for Anywhere {
    fn visit<R: Rule<Machine<Shuttle, SPINS>>>(
        &mut self,
        entry: &'static Entry,
        _: fn(Tuning) -> Tuning,
    ) {
        if entry.preset_of.is_none() {
            anywhere::<SPINS, R>(entry.id, self.0);
        }
    }
}

fn anywhere<const SPINS: usize, R: Rule<Machine<Shuttle, SPINS>>>(id: &str, budget: Budget) {
    let own: Own<Shuttle, SPINS, R> = lock::<Shuttle, SPINS, Lock<Shuttle, SPINS, R>>;
    let until: Own<Shuttle, SPINS, R> = lock_until::<Shuttle, SPINS, Lock<Shuttle, SPINS, R>>;
    let torn: Own<Shuttle, SPINS, R> = torn_anywhere::<SPINS, R>;
    for (name, ways, time_passes) in [
        ("lock, lock, torn anywhere", vec![own, own, torn], false),
        ("lock, 3 torn anywhere", vec![own, torn, torn, torn], false),
        ("lock, until, until, 2 torn anywhere", vec![own, until, until, torn, torn], true),
    ] {
        let name = format!("{id}, {name}, spins {SPINS}");
        exclusion::<Shuttle, SPINS, Lock<Shuttle, SPINS, R>>(&name, budget, ways, time_passes);
    }
}

/// The catalogue's rules that choose who is next, with enough threads for a choice: a holder, one that chooses, two to choose from, and
/// the last one, which stays where it is.
struct Choosers;

impl<C: Checker, const SPINS: usize> FrontVisitor<Machine<C, SPINS>> for Choosers {
    fn visit<R: Rule<Machine<C, SPINS>>>(
        &mut self,
        entry: &'static Entry,
        _: fn(Tuning) -> Tuning,
    ) {
        if entry.preset_of.is_none() && R::AHEAD > 0 {
            let own: Own<C, SPINS, R> = lock::<C, SPINS, Lock<C, SPINS, R>>;
            let budget = Budget { preemptions: 2, time: Duration::from_millis(1_000), draws: 300 };
            let name = format!("{}, 6 threads lock, spins {SPINS}", entry.id);
            exclusion::<C, SPINS, Lock<C, SPINS, R>>(&name, budget, vec![own; 6], false);
        }
    }
}

/// What all rules have in common is explored for a long time with one rule: the others differ only before and after it.
fn all<C: Checker, const SPINS: usize>() {
    let brief = Budget { preemptions: 2, time: Duration::from_millis(300), draws: 200 };
    let long = Budget { time: Duration::from_millis(800), ..brief };
    visit_front::<Machine<C, SPINS>>(&mut All(brief));
    model::<C, SPINS, Backwards>("backwards", long);
    for threads in [3, 4] {
        let own: Own<C, SPINS, Backwards> = lock::<C, SPINS, _>;
        let name = format!("backwards, {threads} threads lock, spins {SPINS}");
        exclusion::<C, SPINS, _>(&name, long, vec![own; threads], false);
    }
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

#[test]
fn shuttle_6_threads_have_a_choice() {
    visit_front::<Machine<Shuttle, 0>>(&mut Choosers);
    visit_front::<Machine<Shuttle, 1>>(&mut Choosers);
}

#[test]
fn shuttle_threads_are_torn_away_anywhere() {
    // For `cargo xtask weaken`, enough that chance has no say.
    let draws = if std::env::var_os("LOCKWRIGHT_SITE").is_some() { 600 } else { 60 };
    let budget = Budget { preemptions: 0, time: Duration::ZERO, draws };
    visit_front::<Machine<Shuttle, 0>>(&mut Anywhere(budget));
    visit_front::<Machine<Shuttle, 1>>(&mut Anywhere(budget));
    anywhere::<0, Backwards>("backwards", budget);
    anywhere::<1, Backwards>("backwards", budget);
}
