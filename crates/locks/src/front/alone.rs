//! A front lock outside of a `pthread_mutex_t`: for the bench, the models and the simulator.

use super::{FREE, HELD, Parts, Tuning, Waiter, is_free, lock_until, try_take, unlock_slow};
use core::marker::PhantomData;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Probe, Ptr, RawLock, TimedLock, TryLock, Word};

/// How a front lock treats a thread that found the word taken, or the line not empty.
pub trait Arrival<P: Platform>: Send + Sync {
    /// The lock's own defaults, on top of what suits the machine.
    fn defaults(tuning: Tuning) -> Tuning {
        tuning
    }

    /// Acquires, by whatever rule and wait.
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning);
}

/// A front lock's type says how it treats arrivals: what the runtime needs to know of it.
pub trait Front<P: Platform> {
    /// The rule.
    type Rule: Arrival<P> + 'static;
}

impl<P: Platform, A: Arrival<P> + 'static> Front<P> for Alone<P, A> {
    type Rule = A;
}

/// Word, side word and line in one place, with the tuning that suits the machine.
#[repr(align(128))]
pub struct Alone<P: Platform, A> {
    word: P::Word,
    side: P::Word,
    mood: P::Word,
    tail: P::Ptr<Waiter<P>>,
    head: P::Ptr<Waiter<P>>,
    tuning: Tuning,
    arrival: PhantomData<fn(A)>,
}

impl<P: Platform, A: Arrival<P>> Alone<P, A> {
    /// An unlocked lock with a tuning of its own.
    pub fn tuned(tuning: Tuning) -> Self {
        Self {
            word: P::Word::new(FREE),
            side: P::Word::new(0),
            mood: P::Word::new(0),
            tail: P::Ptr::new(core::ptr::null_mut()),
            head: P::Ptr::new(core::ptr::null_mut()),
            tuning,
            arrival: PhantomData,
        }
    }

    /// Its memory.
    pub fn parts(&self) -> Parts<'_, P> {
        let Self { word, side, mood, tail, head, .. } = self;
        Parts { word, side, mood, tail, head }
    }

    /// Its tuning.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }
}

impl<P: Platform, A: Arrival<P>> RawLock<P> for Alone<P, A> {
    type Node = ();

    fn new() -> Self {
        Self::tuned(A::defaults(Tuning::for_cpus(P::cpus())))
    }

    #[inline]
    unsafe fn lock(&self, _: *mut ()) {
        // The line first: an arrival that does not look at it would overtake it.
        let nobody_queues = self.tail.load(Relaxed).is_null();
        // ORDERING: Acquire, pairs with [release].
        if nobody_queues && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
            return;
        }
        A::lock_slow(self.parts(), &self.tuning);
    }

    /// Here the lock stands in front of its own word; a caller in an epoch says how long its window is.
    #[inline]
    unsafe fn lock_in_front(&self, _: *mut (), window_ns: u32, _: impl Fn() -> bool) {
        let nobody_queues = self.tail.load(Relaxed).is_null();
        // ORDERING: Acquire, pairs with [release].
        if nobody_queues && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
            return;
        }
        A::lock_slow(self.parts(), &self.tuning.within(window_ns));
    }

    #[inline]
    unsafe fn unlock(&self, _: *mut ()) {
        // [release] ORDERING: Release, pairs with every Acquire that takes the word.
        if self.word.compare_exchange(HELD, FREE, Release, Relaxed).is_err() {
            unlock_slow(self.parts(), &self.tuning, true);
        }
    }
}

impl<P: Platform, A: Arrival<P>> TryLock<P> for Alone<P, A> {
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        try_take::<P>(&self.word)
    }
}

impl<P: Platform, A: Arrival<P>> TimedLock<P> for Alone<P, A> {
    unsafe fn lock_until(&self, _: *mut (), deadline: P::Deadline) -> bool {
        try_take::<P>(&self.word) || lock_until(self.parts(), &self.tuning, deadline)
    }
}

impl<P: Platform, A: Arrival<P>> Probe<P> for Alone<P, A> {
    fn is_free(&self) -> bool {
        is_free(&self.parts())
    }
}
