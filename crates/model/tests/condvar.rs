//! The condition variable: no signal is lost, nobody who came later takes one, and a waiter that times out leaves the list.

use lockwright_locks::catalog::{FrontVisitor, visit_front};
use lockwright_locks::condvar::{Cond, Outcome, Sleeper};
use lockwright_locks::entry::Entry;
use lockwright_locks::front::{self, Alone, By, Rule, Tuning, barging};
use lockwright_model::checker::{Budget, Checker, Data, Loom, Shuttle};
use lockwright_model::machine::{self, Deadline, Machine, ModelPtr, ModelWord};
use lockwright_model::scenario::{explore, only_known_models_are_asked_for};
use lockwright_platform::{Ptr, RawLock, Sections, TryLock, Word};
use std::cell::Cell;
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

type Node<C, const SPINS: usize> = Sleeper<Machine<C, SPINS>>;

/// How the mutex's holder holds it; only the holder reads and writes this.
struct Holder<P: lockwright_platform::Machine>(UnsafeCell<By<P>>);
// SAFETY: only the mutex's holder looks at it.
unsafe impl<P: lockwright_platform::Machine> Send for Holder<P> {}
// SAFETY: as above.
unsafe impl<P: lockwright_platform::Machine> Sync for Holder<P> {}

/// A mutex, a condvar, and the number of waiters that may go on.
struct Queue<C: Checker, const SPINS: usize, A = barging::Lock> {
    mutex: Alone<Machine<C, SPINS>, A>,
    /// How its holder has it.
    by: Holder<Machine<C, SPINS>>,
    lock: ModelWord<C>,
    first: ModelPtr<C, Node<C, SPINS>>,
    last: ModelPtr<C, Node<C, SPINS>>,
    list_era: ModelWord<C>,
    record: ModelWord<C>,
    era: u32,
    data: C::Data,
    /// Under the mutex; the checker sees the mutex and `data`.
    permits: AtomicU32,
    waiting: AtomicU32,
}

impl<C: Checker, const SPINS: usize, A: Rule<Machine<C, SPINS>>> Queue<C, SPINS, A> {
    fn new() -> Self {
        Self {
            mutex: Alone::new(),
            by: Holder(UnsafeCell::default()),
            lock: Word::new(0),
            first: Ptr::new(null_mut()),
            last: Ptr::new(null_mut()),
            list_era: Word::new(0),
            record: Word::new(15), // staying awake has always paid
            era: 0,
            data: C::Data::new(),
            permits: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    fn cond(&self) -> Cond<'_, Machine<C, SPINS>> {
        self.cond_as(1)
    }

    /// The condvar as a thread with this id sees it. Ids matter to threads that leave.
    fn cond_as(&self, me: u32) -> Cond<'_, Machine<C, SPINS>> {
        let Self { lock, first, last, list_era, record, era, .. } = self;
        Cond { lock, first, last, list_era, record, me, era: *era }
    }

    /// Memory as a forked child gets it: one of the parent's threads is listed, another holds the list's lock, and
    /// further ones may sleep on that lock.
    fn forked() -> Self {
        let mut queue = Self::new();
        let held = Cell::new(0);
        // SAFETY: the memory stays; its words end, as its thread did.
        unsafe {
            let memory: *mut Node<C, SPINS> = Box::into_raw(Box::default());
            queue.cond().enlist(&*memory);
            queue.cond().enlist_if(&Node::default(), |_| {
                held.set(queue.lock.load(Relaxed));
                false
            });
            memory.drop_in_place();
        }
        queue.lock.store(held.get() | 1, Relaxed);
        queue.era = 1;
        queue
    }

    fn acquire(&self) {
        let mut by = By::default();
        // SAFETY: our own. The mutex's holder has the cell.
        unsafe {
            self.mutex.lock(&raw mut by);
            *self.by.0.get() = by;
        }
        self.data.bump();
    }

    fn release(&self) {
        // SAFETY: the caller holds it, as the cell says.
        unsafe {
            let mut by = self.by.0.get().replace(By::default());
            self.mutex.unlock(&raw mut by);
        }
    }

    /// Waits for a permit, as pthread_cond_timedwait does in a loop; `false` if the time was up first.
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        // Its memory stays, because a late wake may use the address; its words end when the wait is over.
        let memory: *mut Node<C, SPINS> = Box::into_raw(Box::default());
        // SAFETY: made here, and only shared.
        let node = unsafe { &*memory };
        self.acquire();
        let mut in_time = true;
        while self.permits.load(Relaxed) == 0 && in_time {
            self.waiting.fetch_add(1, Relaxed);
            // SAFETY: one wait at a time, and it stays.
            unsafe { self.cond().enlist(node) };
            self.release();
            match self.cond().sleep(node, SPINS as u32, deadline) {
                Outcome::Moved => {
                    front::lock_moved(&self.mutex.parts(), self.mutex.tuning());
                    self.data.bump();
                }
                Outcome::Signalled => self.acquire(),
                Outcome::TimedOut => {
                    in_time = false;
                    self.acquire();
                }
                Outcome::Cancelled => panic!("nobody tore it out"),
            }
            self.waiting.fetch_sub(1, Relaxed);
        }
        let got = self.permits.load(Relaxed) > 0;
        if got {
            self.permits.fetch_sub(1, Relaxed);
        }
        self.release();
        // SAFETY: nobody but a late wake, by address, may use it: that is what we want to know.
        unsafe { memory.drop_in_place() };
        got
    }

    /// A waiter that is in the list before its thread runs.
    fn enlisted(&self) -> &'static Node<C, SPINS> {
        // It stays forever, as in `wait`.
        let node: &'static Node<C, SPINS> = Box::leak(Box::default());
        self.acquire();
        // SAFETY: a new node, which stays.
        unsafe { self.cond().enlist(node) };
        self.release();
        node
    }

    /// The rest of a wait: until it is over, and the mutex is ours again.
    fn sleep_and_lock(&self, node: &Node<C, SPINS>, deadline: Option<Deadline>) -> Outcome {
        let outcome = self.cond().sleep(node, SPINS as u32, deadline);
        if outcome == Outcome::Moved {
            front::lock_moved(&self.mutex.parts(), self.mutex.tuning());
            self.data.bump();
        } else {
            self.acquire();
        }
        outcome
    }

    /// Signals or broadcasts; the caller holds the mutex, and may say so.
    fn tell(&self, all: bool, holding: bool) {
        let held = || holding.then(|| self.mutex.parts());
        if all {
            self.cond().broadcast(held);
        } else {
            self.cond().signal(held);
        }
    }

    fn lock_and_tell(&self, all: bool, holding: bool) {
        self.acquire();
        if holding {
            self.tell(all, true);
        }
        self.release();
        if !holding {
            self.tell(all, false);
        }
    }

    /// Checks that everybody has left.
    fn assert_idle(&self) {
        assert!(!self.cond().has_waiters(), "somebody left without leaving the list");
        let mut by = By::default();
        // SAFETY: our own node, and then by the word.
        let is_free = unsafe { self.mutex.try_lock(&raw mut by) };
        assert!(is_free, "nobody holds it, and it is not free");
        self.release();
    }

    /// Gives `permits`, and tells: all, or as many; with the mutex or after it.
    fn give(&self, permits: u32, all: bool, holding: bool) {
        self.acquire();
        self.permits.fetch_add(permits, Relaxed);
        let held = || holding.then(|| self.mutex.parts());
        if !holding {
            self.release();
        }
        if all {
            self.cond().broadcast(held);
        } else {
            for _ in 0..permits {
                self.cond().signal(held);
            }
        }
        if holding {
            self.release();
        }
    }
}

const BUDGET: Budget = Budget { preemptions: 3, time: Duration::from_millis(650), draws: 200 };

fn model<C: Checker, const SPINS: usize, A: Rule<Machine<C, SPINS>>>(
    id: &str,
    waiters: u32,
    timed: u32,
    all: bool,
    holding: bool,
) {
    model_for::<C, SPINS, A>(BUDGET, id, waiters, timed, all, holding);
}

fn model_for<C: Checker, const SPINS: usize, A: Rule<Machine<C, SPINS>>>(
    budget: Budget,
    id: &str,
    waiters: u32,
    timed: u32,
    all: bool,
    holding: bool,
) {
    let name = format!(
        "condvar, {id}, {waiters} waiters, {timed} timed, {} {}, spins {SPINS}",
        if all { "broadcast" } else { "signal" },
        if holding { "with the mutex" } else { "without the mutex" },
    );
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        {
            let queue = Arc::new(Queue::<C, SPINS, A>::new());
            let handles = (0..waiters).map(|index| {
                let queue = queue.clone();
                let deadline = (index < timed).then_some(Deadline::Soon);
                machine::spawn::<C>(move || {
                    let got = queue.wait(deadline);
                    assert!(got || deadline.is_some(), "woken, and no permit");
                })
            });
            let handles = handles.collect();
            // One permit for each that waits without a deadline would hide a signal that a timed one took with it.
            queue.give(waiters, all, holding);
            if timed > 0 {
                machine::tick::<C>();
            }
            machine::join::<C>(handles);
            assert_eq!(queue.waiting.load(Relaxed), 0);
            queue.assert_idle();
        }
        machine::end();
    });
}

/// In a child of a fork: its threads wait and signal where the parent's threads had listed and locked.
fn forked<C: Checker, const SPINS: usize>(all: bool) {
    let told = if all { "broadcast" } else { "signals" };
    let name = format!("condvar, 2 waiters after a fork, {told}, spins {SPINS}");
    explore::<C>(&name, BUDGET, move || {
        machine::begin::<C>();
        {
            let queue = Arc::new(Queue::<C, SPINS>::forked());
            let handles = [(); 2].map(|()| {
                let queue = queue.clone();
                machine::spawn::<C>(move || assert!(queue.wait(None), "woken, and no permit"))
            });
            queue.give(2, all, false);
            machine::join::<C>(Vec::from(handles));
            queue.assert_idle();
        }
        machine::end();
    });
}

/// `first`, and a thread that waits after it, are in the list before anybody runs. The first is torn out of its wait, before
/// it would sleep or when it is about to, at any moment with respect to one signal. Either it was signalled and passes the
/// signal on, or the other one gets the signal.
fn left<C: Checker, const SPINS: usize>(holding: bool, about_to_sleep: bool) {
    let held = if holding { "with the mutex" } else { "without the mutex" };
    let when = if about_to_sleep { "late" } else { "early" };
    let name = format!("condvar, 2 waiters, the first leaves {when}, signal {held}, spins {SPINS}");
    explore::<C>(&name, BUDGET, move || {
        machine::begin::<C>();
        {
            let queue = Arc::new(Queue::<C, SPINS>::new());
            let [first, second] = [queue.enlisted(), queue.enlisted()];
            let leaver = queue.clone();
            let leaves = move || {
                if about_to_sleep {
                    first.shut();
                }
                match leaver.cond_as(2).leave(first, || None) {
                    Outcome::Moved => {
                        front::lock_moved(&leaver.mutex.parts(), leaver.mutex.tuning());
                        leaver.data.bump();
                    }
                    _ => leaver.acquire(),
                }
                leaver.release();
            };
            let waiter = queue.clone();
            let waits = move || {
                assert_ne!(waiter.sleep_and_lock(second, None), Outcome::Cancelled);
                waiter.release();
            };
            let handles = vec![machine::spawn::<C>(leaves), machine::spawn::<C>(waits)];
            queue.lock_and_tell(false, holding);
            machine::join::<C>(handles);
            queue.assert_idle();
        }
        machine::end();
    });
}

/// A holder's broadcast moves waiters to the mutex. The first one's deadline passes at any moment, even when it already
/// sleeps on the mutex. A moved waiter says that it was woken, deadline or not, and the wake-up meant for it is not lost.
fn moved_in_vain<C: Checker, const SPINS: usize>(all: bool) {
    let told = if all { "broadcast" } else { "signals" };
    let name = format!("condvar, 2 waiters, one moved and late, {told}, spins {SPINS}");
    explore::<C>(&name, BUDGET, move || {
        machine::begin::<C>();
        {
            let queue = Arc::new(Queue::<C, SPINS>::new());
            let [first, second] = [queue.enlisted(), queue.enlisted()];
            let told = Arc::new(AtomicU32::new(0)); // under the mutex
            let handles =
                [(first, Some(Deadline::Soon)), (second, None)].map(|(node, deadline)| {
                    let (queue, told) = (queue.clone(), told.clone());
                    machine::spawn::<C>(move || {
                        let outcome = queue.sleep_and_lock(node, deadline);
                        if outcome == Outcome::TimedOut {
                            assert!(deadline.is_some(), "timed out without a deadline");
                        } else {
                            assert_eq!(told.load(Relaxed), 1, "{outcome:?} before the signal");
                        }
                        queue.release();
                    })
                });
            queue.acquire();
            told.store(1, Relaxed);
            for _ in 0..if all { 1 } else { 2 } {
                queue.tell(all, true);
            }
            assert!(!queue.cond().has_waiters(), "told all, and somebody was not");
            machine::tick::<C>();
            queue.release();
            machine::join::<C>(Vec::from(handles));
            queue.assert_idle();
        }
        machine::end();
    });
}

/// Two threads join the list at the same time, ordered only by the list's lock: both are in it afterwards.
fn joined<C: Checker, const SPINS: usize>() {
    let name = format!("condvar, 2 join at once, spins {SPINS}");
    explore::<C>(&name, BUDGET, move || {
        machine::begin::<C>();
        {
            let queue = Arc::new(Queue::<C, SPINS>::new());
            let join = |queue: &Queue<C, SPINS>| {
                let node: &'static Node<C, SPINS> = Box::leak(Box::default());
                // SAFETY: a new node, which stays.
                unsafe { queue.cond().enlist(node) };
            };
            let other = queue.clone();
            let handle = machine::spawn::<C>(move || join(&other));
            join(&queue);
            machine::join::<C>(vec![handle]);
            for _ in 0..2 {
                assert!(queue.cond().has_waiters(), "somebody who joined is not in the list");
                queue.tell(false, false);
            }
            queue.assert_idle();
        }
        machine::end();
    });
}

/// The catalogue's rules that are not presets, each for a short time.
struct Others {
    broadcast: bool,
    holding: bool,
}

impl<C: Checker, const SPINS: usize> FrontVisitor<Machine<C, SPINS>> for Others {
    fn visit<R: Rule<Machine<C, SPINS>>>(
        &mut self,
        entry: &'static Entry,
        _: fn(Tuning) -> Tuning,
    ) {
        if entry.preset_of.is_none() {
            let budget = Budget { time: Duration::from_millis(300), ..BUDGET };
            model_for::<C, SPINS, R>(budget, entry.id, 2, 0, self.broadcast, self.holding);
        }
    }
}

fn all<C: Checker, const SPINS: usize>() {
    joined::<C, SPINS>();
    for all in [false, true] {
        forked::<C, SPINS>(all);
    }
    for holding in [false, true] {
        left::<C, SPINS>(holding, false);
        left::<C, SPINS>(holding, true);
    }
    for broadcast in [false, true] {
        moved_in_vain::<C, SPINS>(broadcast);
    }
    for holding in [false, true] {
        for broadcast in [false, true] {
            for (waiters, timed) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                model::<C, SPINS, barging::Lock>("barging", waiters, timed, broadcast, holding);
            }
            // Waiters that come back for a mutex that reorders them, or holds them back.
            visit_front::<Machine<C, SPINS>>(&mut Others { broadcast, holding });
        }
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
