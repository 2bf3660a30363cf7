//! The condition variable: no signal is lost, none is taken by somebody who came later, and who times out leaves the list.

use lockwright_locks::condvar::{Cond, Outcome, Sleeper};
use lockwright_locks::front::{self, Alone, barging::Barging};
use lockwright_model::checker::{Budget, Checker, Data, Loom, Shuttle};
use lockwright_model::machine::{self, Deadline, Machine, ModelPtr, ModelWord};
use lockwright_model::scenario::explore;
use lockwright_platform::{Ptr, RawLock, TryLock, Word};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

type Node<C, const SPINS: usize> = Sleeper<Machine<C, SPINS>>;

/// A mutex, a condvar, and the number of waiters that may go on.
struct Queue<C: Checker, const SPINS: usize> {
    mutex: Alone<Machine<C, SPINS>, Barging>,
    lock: ModelWord<C>,
    first: ModelPtr<C, Node<C, SPINS>>,
    last: ModelPtr<C, Node<C, SPINS>>,
    record: ModelWord<C>,
    data: C::Data,
    /// Under the mutex; the checker sees the mutex and `data`.
    permits: AtomicU32,
    waiting: AtomicU32,
}

impl<C: Checker, const SPINS: usize> Queue<C, SPINS> {
    fn new() -> Self {
        Self {
            mutex: Alone::new(),
            lock: Word::new(0),
            first: Ptr::new(null_mut()),
            last: Ptr::new(null_mut()),
            record: Word::new(15), // staying awake has always paid
            data: C::Data::new(),
            permits: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    fn cond(&self) -> Cond<'_, Machine<C, SPINS>> {
        Cond { lock: &self.lock, first: &self.first, last: &self.last, record: &self.record }
    }

    fn acquire(&self) {
        // SAFETY: a front lock has no node.
        unsafe { self.mutex.lock(null_mut()) };
        self.data.bump();
    }

    fn release(&self) {
        // SAFETY: the caller holds it.
        unsafe { self.mutex.unlock(null_mut()) };
    }

    /// Waits for a permit, as pthread_cond_timedwait in a loop; `false` if the time was up first.
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        // In the model, too, it stays for ever: a late wake may use the address.
        let node: &Node<C, SPINS> = Box::leak(Box::default());
        self.acquire();
        let mut in_time = true;
        while self.permits.load(Relaxed) == 0 && in_time {
            self.waiting.fetch_add(1, Relaxed);
            // SAFETY: one wait at a time, and it stays.
            unsafe { self.cond().enlist(node) };
            self.release();
            match self.cond().sleep(node, SPINS as u32, deadline) {
                Outcome::Moved => {
                    front::lock_moved(self.mutex.parts(), self.mutex.tuning());
                    self.data.bump();
                }
                Outcome::Signalled => self.acquire(),
                Outcome::TimedOut => {
                    in_time = false;
                    self.acquire();
                }
                Outcome::Cancelled => panic!("nobody cancels"),
            }
            self.waiting.fetch_sub(1, Relaxed);
        }
        let got = self.permits.load(Relaxed) > 0;
        if got {
            self.permits.fetch_sub(1, Relaxed);
        }
        self.release();
        got
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

fn model<C: Checker, const SPINS: usize>(waiters: u32, timed: u32, all: bool, holding: bool) {
    println!(
        "{}: condvar, {waiters} waiters, {timed} timed, {} {}, spins {SPINS}",
        C::NAME,
        if all { "broadcast" } else { "signal" },
        if holding { "with the mutex" } else { "without the mutex" },
    );
    let budget = Budget { preemptions: Some(2), seconds: 4, draws: 200 };
    let coverage = explore::<C>(budget, move || {
        machine::begin::<C>();
        {
            let queue = Arc::new(Queue::<C, SPINS>::new());
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
            assert!(!queue.cond().has_waiters(), "somebody left without leaving the list");
            assert_eq!(queue.waiting.load(Relaxed), 0);
            // SAFETY: a front lock has no node.
            assert!(
                unsafe { queue.mutex.try_lock(null_mut()) },
                "nobody holds it, and it is not free"
            );
            queue.release();
        }
        machine::end();
    });
    println!("    {coverage:?}");
}

fn all<C: Checker, const SPINS: usize>() {
    if std::env::var("LOCKWRIGHT_MODEL").is_ok_and(|only| !only.contains("condvar")) {
        return;
    }
    for holding in [false, true] {
        for broadcast in [false, true] {
            for (waiters, timed) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                model::<C, SPINS>(waiters, timed, broadcast, holding);
            }
        }
    }
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
