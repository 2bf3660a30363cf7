//! The readers-writer lock: every preference, every way in, under every checker.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use lockwright_locks::rw::Prefer;
use lockwright_locks::rw::rwlock::{Outcome, Parts, Waiter};
use lockwright_model::checker::{Budget, Checker, Data, Loom, Shuttle};
use lockwright_model::machine::{self, Deadline, Machine, ModelWord};
use lockwright_model::scenario::{explore, only_known_models_are_asked_for};
use lockwright_platform::{Platform, Word};

/// What one thread does, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    TryRead,
    TryWrite,
    TimedRead,
    TimedWrite,
    /// Reads, and reads again meanwhile.
    ReadTwice,
}
use Step::*;

const PREFERENCES: [Prefer; 4] =
    [Prefer::Readers, Prefer::Writers, Prefer::WritersStrictly, Prefer::Patient];

/// What threads prefer that meet on one lock while a switch is under way; each releases by the next one's preference.
const MIXED: [[Prefer; 3]; 3] = [
    [Prefer::Patient, Prefer::Readers, Prefer::WritersStrictly],
    [Prefer::WritersStrictly, Prefer::Patient, Prefer::Patient],
    [Prefer::Readers, Prefer::WritersStrictly, Prefer::Patient],
];

struct Words<C: Checker> {
    state: ModelWord<C>,
    writers: ModelWord<C>,
    owner: ModelWord<C>,
}

impl<C: Checker> Words<C> {
    fn new() -> Self {
        Self { state: Word::new(0), writers: Word::new(0), owner: Word::new(0) }
    }

    fn parts<const SPINS: usize>(&self, prefer: Prefer) -> Parts<'_, Machine<C, SPINS>> {
        let Self { state, writers, owner } = self;
        Parts { state, writers, owner, prefer: prefer as u32 }
    }
}

fn waiter<C: Checker, const SPINS: usize>(
    me: u32,
    deadline: Option<Deadline>,
) -> Waiter<'static, Machine<C, SPINS>> {
    Waiter { me, spin_ns: 1, deadline, counted: None }
}

/// Takes `step` under the lock; `true` if it got in.
fn take<C: Checker, const SPINS: usize>(
    lock: &Parts<'_, Machine<C, SPINS>>,
    me: u32,
    step: Step,
    read: impl Fn(),
    write: impl Fn(),
) -> bool {
    take_and_leave(lock, lock, me, step, read, write)
}

/// As [`take`], and releases by `leaves`.
fn take_and_leave<C: Checker, const SPINS: usize>(
    lock: &Parts<'_, Machine<C, SPINS>>,
    leaves: &Parts<'_, Machine<C, SPINS>>,
    me: u32,
    step: Step,
    read: impl Fn(),
    write: impl Fn(),
) -> bool {
    let patient = |_| waiter(me, None);
    let soon = |_| waiter(me, Some(Deadline::Soon));
    let (outcome, inside): (_, &dyn Fn()) = match step {
        Read | ReadTwice => (lock.read(patient), &read),
        TryRead => (lock.try_read(), &read),
        TimedRead => (lock.read(soon), &read),
        Write => (lock.write(me, patient), &write),
        TryWrite => (lock.try_write(me), &write),
        TimedWrite => (lock.write(me, soon), &write),
    };
    match outcome {
        Outcome::Acquired => {}
        Outcome::Busy if matches!(step, TryRead | TryWrite) => return false,
        Outcome::TimedOut if matches!(step, TimedRead | TimedWrite) => return false,
        wrong => panic!("{step:?} ended with {wrong:?}"),
    }
    inside();
    if step == ReadTwice {
        assert_eq!(lock.read(patient), Outcome::Acquired);
        inside();
        leaves.unlock();
    }
    leaves.unlock();
    true
}

/// Writers exclude everybody, nobody waits forever, and in the end the lock is free.
fn exclusion<C: Checker, const SPINS: usize>(budget: Budget, prefer: Prefer, steps: &[Step]) {
    exclusion_by::<C, SPINS>(budget, &[prefer], steps);
}

/// As [`exclusion`], with a preference for each thread.
fn exclusion_by<C: Checker, const SPINS: usize>(
    budget: Budget,
    prefers: &[Prefer],
    steps: &[Step],
) {
    let name = match prefers {
        [prefer] => format!("rwlock, {prefer:?} {steps:?}, spins {SPINS}"),
        _ => format!("rwlock, {prefers:?} {steps:?}, spins {SPINS}"),
    };
    let steps = steps.to_vec();
    let prefers = prefers.to_vec();
    let prefer = move |thread: u32| prefers[thread as usize % prefers.len()];
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        {
            let lock = Arc::new((Words::<C>::new(), C::Data::new(), AtomicU32::new(0)));
            let handles = (1..).zip(&steps).map(|(me, &step)| {
                let lock = lock.clone();
                let (takes, leaves) = (prefer(me), prefer(me + 1));
                machine::spawn::<C>(move || {
                    let (words, data, wrote) = &*lock;
                    let read = || {
                        data.get();
                    };
                    let write = || {
                        data.bump();
                        wrote.fetch_add(1, Relaxed); // out of the checker's sight
                    };
                    let (lock, leaves) = (words.parts(takes), words.parts(leaves));
                    take_and_leave::<C, SPINS>(&lock, &leaves, me, step, read, write);
                })
            });
            let handles = handles.collect();
            machine::tick::<C>();
            machine::join::<C>(handles);
            let (words, data, wrote) = &*lock;
            assert_eq!(data.get(), wrote.load(Relaxed), "writes were lost");
            for step in [TryWrite, TryRead] {
                let is_free = take::<C, SPINS>(&words.parts(prefer(9)), 9, step, || (), || ());
                assert!(is_free, "nobody holds it, and it is not free");
            }
        }
        machine::end();
    });
}

/// A lock that ends with the last thread that needs it.
struct Doomed<C: Checker>(UnsafeCell<ManuallyDrop<Words<C>>>);
// SAFETY: shared as a lock is; dropped by the writer that knows itself to be the last.
unsafe impl<C: Checker> Sync for Doomed<C> {}
// SAFETY: as above.
unsafe impl<C: Checker> Send for Doomed<C> {}

/// The last writer destroys the lock when its unlock has returned. By then the others have released, and must not touch it
/// any more.
fn destruction<C: Checker, const SPINS: usize>(budget: Budget, prefer: Prefer, steps: &[Step]) {
    let name = format!("rwlock, {prefer:?} {steps:?}, the last destroys, spins {SPINS}");
    let steps = steps.to_vec();
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        {
            let lock = Arc::new(Doomed::<C>(UnsafeCell::new(ManuallyDrop::new(Words::new()))));
            let left = Arc::new(AtomicU32::new(steps.len() as u32));
            let handles = (1..).zip(&steps).map(|(me, &step)| {
                let (lock, left) = (lock.clone(), left.clone());
                machine::spawn::<C>(move || {
                    let last = AtomicU32::new(0);
                    // A reader can't know whether it is the last: another one may not have left yet.
                    let read = || {
                        left.fetch_sub(1, Relaxed);
                    };
                    let write = || {
                        last.store(u32::from(left.fetch_sub(1, Relaxed) == 1), Relaxed);
                    };
                    {
                        // SAFETY: it exists until the last thread has left.
                        let words = unsafe { &*lock.0.get() };
                        take::<C, SPINS>(&words.parts(prefer), me, step, read, write);
                    }
                    if last.load(Relaxed) == 1 {
                        // SAFETY: nobody will ask for it. A thread that still uses it is wrong, and the checker notices.
                        unsafe { ManuallyDrop::drop(&mut *lock.0.get()) };
                    }
                })
            });
            let handles = handles.collect();
            machine::join::<C>(handles);
        }
        machine::end();
    });
}

/// A reader holds the lock until another one is in, too; between them a writer waits, and gives up. The second reader may
/// have gone to sleep because of that writer alone.
fn readers_behind_a_late_writer<C: Checker, const SPINS: usize>(budget: Budget, writer: Prefer) {
    let prefer = Prefer::WritersStrictly;
    let what = format!("readers meet when a writer gives up that has {writer:?}");
    let name = format!("rwlock, {prefer:?}, {what}, spins {SPINS}");
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        {
            let lock = Arc::new((Words::<C>::new(), ModelWord::<C>::new(0)));
            let patient = |_| waiter::<C, SPINS>(1, None);
            assert_eq!(lock.0.parts::<SPINS>(prefer).read(patient), Outcome::Acquired);
            let handles = [(2, TimedWrite), (3, Read)].map(|(me, step)| {
                let lock = lock.clone();
                machine::spawn::<C>(move || {
                    let is_in = || lock.1.store(1, Relaxed);
                    let prefer = if step == Read { prefer } else { writer };
                    take::<C, SPINS>(&lock.0.parts(prefer), me, step, is_in, || ());
                })
            });
            machine::tick::<C>();
            Machine::<C, SPINS>::spin_until(&lock.1, Relaxed, |is_in| is_in == 1);
            lock.0.parts::<SPINS>(prefer).unlock();
            machine::join::<C>(Vec::from(handles));
        }
        machine::end();
    });
}

/// A writer leaves to a waiting writer while a reader goes to sleep; another reader may then be faster than that writer,
/// and has to wake the first.
fn a_reader_passes_a_woken_writer<C: Checker, const SPINS: usize>(budget: Budget) {
    let prefer = Prefer::Readers;
    let name = format!("rwlock, {prefer:?}, a reader passes a woken writer, spins {SPINS}");
    explore::<C>(&name, budget, move || {
        machine::begin::<C>();
        {
            let lock = Arc::new((Words::<C>::new(), C::Data::new()));
            let patient = |_| waiter::<C, SPINS>(1, None);
            assert_eq!(lock.0.parts::<SPINS>(prefer).write(1, patient), Outcome::Acquired);
            let handles = [(2, Write), (3, Read), (4, Read)].map(|(me, step)| {
                let lock = lock.clone();
                machine::spawn::<C>(move || {
                    let (read, write) = (|| _ = lock.1.get(), || lock.1.bump());
                    take::<C, SPINS>(&lock.0.parts(prefer), me, step, read, write);
                })
            });
            lock.1.bump();
            lock.0.parts::<SPINS>(prefer).unlock();
            machine::join::<C>(Vec::from(handles));
        }
        machine::end();
    });
}

// Without a bound two threads take minutes; each printed line says whether it was explored to its bound.
const TWO: Budget = Budget { preemptions: 3, time: Duration::from_millis(650), draws: 2000 };
const FOUR: Budget = Budget { preemptions: 1, time: Duration::from_millis(1200), draws: 2000 };
const THREE: Budget = Budget { preemptions: 2, time: Duration::from_millis(450), draws: 2000 };

fn two_threads<const SPINS: usize>() {
    for prefer in PREFERENCES {
        for steps in [
            [Write, Write],
            [Read, Write],
            [TryRead, Write],
            [TryWrite, Read],
            [TimedWrite, Write],
            [TimedWrite, Read],
            [TimedRead, Write],
        ] {
            exclusion::<Loom, SPINS>(TWO, prefer, &steps);
        }
        for steps in [[Write, Write], [Read, Write]] {
            destruction::<Loom, SPINS>(TWO, prefer, &steps);
        }
        if prefer != Prefer::WritersStrictly {
            exclusion::<Loom, SPINS>(TWO, prefer, &[ReadTwice, Write]);
        }
    }
}

fn three_threads<const SPINS: usize>() {
    for writer in [Prefer::WritersStrictly, Prefer::Readers] {
        readers_behind_a_late_writer::<Loom, SPINS>(THREE, writer);
    }
    for prefers in &MIXED {
        for steps in [[Read, Read, Write], [Read, Write, TimedWrite], [TimedRead, Write, Write]] {
            exclusion_by::<Loom, SPINS>(THREE, prefers, &steps);
        }
    }
    for steps in [[ReadTwice, Read, Write], [ReadTwice, Write, TimedWrite]] {
        exclusion::<Loom, SPINS>(THREE, Prefer::Patient, &steps);
    }
    a_reader_passes_a_woken_writer::<Loom, SPINS>(FOUR);
    for prefer in PREFERENCES {
        for steps in [
            [Write, Write, Write],
            [Read, Write, Write],
            [Read, Read, Write],
            [Read, Read, TimedWrite],
            [Read, Write, TimedWrite],
            [Write, Read, TimedRead],
        ] {
            exclusion::<Loom, SPINS>(THREE, prefer, &steps);
        }
        for steps in [[Write, Write, Write], [Read, Read, Write]] {
            destruction::<Loom, SPINS>(THREE, prefer, &steps);
        }
    }
}

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(two_threads::<0>);
}

#[test]
fn loom_2_threads_that_sleep_at_once() {
    two_threads::<0>();
}

#[test]
fn loom_2_threads_that_spin_once() {
    two_threads::<1>();
}

#[test]
fn loom_3_threads_that_sleep_at_once() {
    three_threads::<0>();
}

#[test]
fn loom_3_threads_that_spin_once() {
    three_threads::<1>();
}

#[test]
fn shuttle_5_threads_that_sleep_at_once() {
    for prefer in PREFERENCES {
        exclusion::<Shuttle, 0>(TWO, prefer, &[Read, Write, Read, Write, TimedWrite]);
    }
    exclusion::<Shuttle, 0>(TWO, Prefer::Patient, &[ReadTwice, Write, ReadTwice, Write, TimedRead]);
    for prefers in &MIXED {
        exclusion_by::<Shuttle, 0>(TWO, prefers, &[Read, Write, TimedRead, Write, TimedWrite]);
    }
}

#[test]
fn shuttle_5_threads_that_spin_once() {
    for prefer in PREFERENCES {
        exclusion::<Shuttle, 1>(TWO, prefer, &[Read, TimedRead, TryRead, Write, TryWrite]);
    }
}

#[test]
fn shuttle_the_last_destroys_and_a_reader_passes() {
    for prefer in PREFERENCES {
        destruction::<Shuttle, 0>(TWO, prefer, &[Read, Read, Write, Write]);
    }
    a_reader_passes_a_woken_writer::<Shuttle, 0>(TWO);
}

#[test]
fn the_writer_is_told_of_its_own_deadlock() {
    exclusion_of_oneself::<Loom>();
}

fn exclusion_of_oneself<C: Checker>() {
    for prefer in PREFERENCES {
        let name = format!("rwlock, {prefer:?}, the writer asks again");
        explore::<C>(&name, TWO, move || {
            machine::begin::<C>();
            {
                let words = Words::<C>::new();
                let lock = words.parts::<0>(prefer);
                assert_eq!(lock.write(7, |_| waiter(7, None)), Outcome::Acquired);
                assert_eq!(lock.write(7, |_| waiter(7, None)), Outcome::Deadlock);
                assert_eq!(lock.read(|_| waiter(7, None)), Outcome::Deadlock);
                assert_eq!(lock.try_write(7), Outcome::Busy);
                assert_eq!(lock.try_read(), Outcome::Busy);
                lock.unlock();
                assert_eq!(lock.try_write(7), Outcome::Acquired);
                lock.unlock();
            }
            machine::end();
        });
    }
}
