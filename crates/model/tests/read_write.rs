//! Every readers-writer lock of the catalogue: every way in, under every checker. For what only `rwlock` has (preferences,
//! timed waits, destruction by the last thread), see `rwlock.rs`.

use lockwright_locks::catalog::{ReadWriteVisitor, visit_read_write};
use lockwright_locks::entry::Entry;
use lockwright_locks::rw::Prefer;
use lockwright_locks::rw::biased::Biased;
use lockwright_locks::rw::rwlock::{Outcome, Parts, Waiter};
use lockwright_locks::rw::{ReadWrite, Tuning};
use lockwright_model::checker::{Budget, Checker, Data, Loom, Shuttle};
use lockwright_model::machine::{self, Machine};
use lockwright_model::scenario::{explore, is_asked_for, only_known_models_are_asked_for};
use lockwright_platform::{Platform, Word};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// What one thread does, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    TryRead,
    TryWrite,
    /// Twice: a bias that the first one sets serves the second.
    ReadAgain,
}
use Step::*;

/// Takes `step` under the lock; `true` if it got in.
fn take<M: lockwright_platform::Platform, L: ReadWrite<M>>(
    lock: &L,
    me: u32,
    step: Step,
    read: impl Fn(),
    write: impl Fn(),
) -> bool {
    match step {
        Read | ReadAgain => {
            for _ in 0..1 + u32::from(step == ReadAgain) {
                let pass = lock.read(me);
                read();
                lock.leave_read(pass);
            }
        }
        TryRead => {
            let Some(pass) = lock.try_read(me) else { return false };
            read();
            lock.leave_read(pass);
        }
        Write => {
            lock.write(me);
            write();
            lock.leave_write();
        }
        TryWrite => {
            if !lock.try_write(me) {
                return false;
            }
            write();
            lock.leave_write();
        }
    }
    true
}

/// Writers exclude everybody, nobody waits forever, and in the end the lock is free. `biased`: somebody has read before.
fn exclusion<C: Checker, const SPINS: usize, L: ReadWrite<Machine<C, SPINS>> + 'static>(
    id: &str,
    budget: Budget,
    biased: bool,
    steps: &[Step],
) {
    let before = if biased { ", after a read" } else { "" };
    let name = format!("{id}, {steps:?}{before}, spins {SPINS}");
    let steps = steps.to_vec();
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        machine::lay_table::<C>();
        {
            let tuning = Tuning { spin_ns: 1, policy: 2, ..Tuning::default() };
            let lock = Arc::new((L::new(&tuning), C::Data::new(), AtomicU32::new(0)));
            if biased {
                take(&lock.0, 9, Read, || (), || ());
            }
            let visit = |lock: &(L, C::Data, AtomicU32), me, step| {
                let (lock, data, wrote) = lock;
                let read = || {
                    data.get();
                };
                let write = || {
                    data.bump();
                    wrote.fetch_add(1, Relaxed); // out of the checker's sight
                };
                take(lock, me, step, read, write);
            };
            let handles = (2..).zip(&steps[1..]).map(|(me, &step)| {
                let lock = lock.clone();
                machine::spawn::<C>(move || visit(&lock, me, step))
            });
            let handles = handles.collect();
            visit(&lock, 1, steps[0]);
            machine::join::<C>(handles);
            assert_eq!(lock.1.get(), lock.2.load(Relaxed), "writes were lost");
            for step in [TryWrite, TryRead, TryWrite] {
                let is_free = take(&lock.0, 9, step, || (), || ());
                assert!(is_free, "nobody holds it, and it is not free");
            }
        }
        machine::end();
    });
}

struct All {
    budget: Budget,
    threads: usize,
}

impl<C: Checker, const SPINS: usize> ReadWriteVisitor<Machine<C, SPINS>> for All {
    fn visit<L: ReadWrite<Machine<C, SPINS>> + 'static>(&mut self, entry: &'static Entry) {
        let run = |biased, steps: &[Step]| {
            exclusion::<C, SPINS, L>(entry.id, self.budget, biased, steps);
        };
        match self.threads {
            2 => {
                for biased in [false, true] {
                    run(biased, &[Write, Write]);
                    run(biased, &[Read, Write]);
                    run(biased, &[ReadAgain, Write]);
                    run(biased, &[TryRead, Write]);
                    run(biased, &[Read, TryWrite]);
                    run(biased, &[TryWrite, Write]);
                }
            }
            3 => {
                run(false, &[Read, Write, Write]);
                run(true, &[Read, Read, Write]);
                run(true, &[Read, Write, TryWrite]);
                run(true, &[TryRead, TryWrite, Write]);
            }
            _ => {
                run(false, &[ReadAgain, Write, Read, Write]);
                run(true, &[Read, TryRead, Write, TryWrite]);
            }
        }
    }
}

fn run<C: Checker, const SPINS: usize>(threads: usize, budget: Budget) {
    visit_read_write::<Machine<C, SPINS>>(&mut All { budget, threads });
}

const TWO: Budget = Budget { preemptions: 3, time: Duration::from_millis(550), draws: 300 };
const THREE: Budget = Budget { preemptions: 2, time: Duration::from_millis(600), draws: 300 };

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(|| run::<Shuttle, 0>(4, TWO));
}

#[test]
fn loom_2_threads_that_sleep_at_once() {
    run::<Loom, 0>(2, TWO);
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

/// `programmed-rw`'s words, on which each thread spins for a time of its own.
struct Words<M: Platform>([M::Word; 4]);

impl<M: lockwright_platform::Machine> Words<M> {
    fn lock(&self) -> Biased<'_, M> {
        let [state, writers, owner, bias] = &self.0;
        let parts = Parts { state, writers, owner, prefer: Prefer::Readers as u32 };
        Biased { parts, bias, policy: 2, row: 0 }
    }

    fn read(&self) {
        let outcome = self.lock().read(|_| waiter(1, 0));
        assert_eq!(outcome, Outcome::Acquired);
    }

    fn write(&self, me: u32, spin_ns: u32) {
        let outcome = self.lock().write(me, |_| waiter(me, spin_ns));
        assert_eq!(outcome, Outcome::Acquired);
        self.lock().unlock(me);
    }
}

fn waiter<M: Platform>(me: u32, spin_ns: u32) -> Waiter<'static, M> {
    Waiter { me, spin_ns, deadline: None, counted: None }
}

/// A reader that leaves the table wakes the writer that sleeps, whatever another one does that looks.
#[test]
fn shuttle_a_reader_leaves_two_writers() {
    type C = Shuttle;
    let budget = Budget { draws: 300, ..THREE };
    explore::<C>("programmed-rw, a reader leaves two writers", budget, || {
        machine::begin::<C>();
        machine::lay_table::<C>();
        {
            let lock = Arc::new(Words::<Machine<C, 0>>([(); 4].map(|()| Word::new(0))));
            lock.read(); // the policy sends the next one to the table
            lock.lock().unlock(1);
            lock.read();
            let spawn = |run: fn(&Words<Machine<C, 0>>)| {
                let lock = lock.clone();
                machine::spawn::<C>(move || run(&lock))
            };
            let sleeps = spawn(|lock| lock.write(2, 0));
            let looks = spawn(|lock| lock.write(3, 16));
            let leaves = spawn(|lock| {
                // Both revoke: one sleeps, or is about to, and the other one looks.
                Machine::<C, 0>::spin_until(&lock.0[3], Relaxed, |bias| bias >> 2 == 2);
                lock.lock().unlock(1);
            });
            machine::join::<C>(vec![sleeps, looks, leaves]);
        }
        machine::end();
    });
}

/// A reader that looks at the bias before it shows itself.
mod planted {
    use super::*;
    use lockwright_locks::rw::phase_fair;
    use lockwright_platform::Ordering::Release;
    use lockwright_platform::{Platform, Word};

    /// As `per-cpu`, with one line; but a reader looks at the gate first, and counts itself in then.
    struct LooksFirst<P: Platform> {
        gate: P::Word,
        readers: P::Word,
        inner: phase_fair::Lock<P>,
    }

    impl<P: Platform> ReadWrite<P> for LooksFirst<P> {
        type Pass = bool;

        fn new(tuning: &Tuning) -> Self {
            let [gate, readers] = [(); 2].map(|()| P::Word::new(0));
            Self { gate, readers, inner: ReadWrite::<P>::new(tuning) }
        }

        fn nests(_: &Tuning) -> bool {
            false
        }

        fn read(&self, me: u32) -> bool {
            use lockwright_platform::Ordering::SeqCst;
            let open = self.gate.load(SeqCst) == 0;
            if open {
                self.readers.fetch_add(1, SeqCst);
            } else {
                self.inner.read(me);
            }
            open
        }

        fn try_read(&self, me: u32) -> Option<bool> {
            Some(self.read(me))
        }

        fn leave_read(&self, counted: bool) {
            if counted {
                self.readers.fetch_sub(1, Release);
            } else {
                self.inner.leave_read(());
            }
        }

        fn write(&self, me: u32) {
            use lockwright_platform::Ordering::SeqCst;
            self.inner.write(me);
            self.gate.store(1, SeqCst);
            P::spin_until(&self.readers, SeqCst, |readers| readers == 0);
        }

        fn try_write(&self, me: u32) -> bool {
            self.write(me);
            true
        }

        fn leave_write(&self) {
            self.gate.store(0, Release);
            self.inner.leave_write();
        }
    }

    #[test]
    fn a_reader_that_looks_before_it_counts_itself_is_found() {
        let steps = &[Read, Write];
        // It ends as soon as it has found it, on a slow machine, too.
        let patient = Budget { time: Duration::from_secs(60), ..TWO };
        let run =
            || exclusion::<Loom, 0, LooksFirst<Machine<Loom, 0>>>("planted", patient, false, steps);
        assert_eq!(std::panic::catch_unwind(run).is_err(), is_asked_for("planted"));
    }
}
