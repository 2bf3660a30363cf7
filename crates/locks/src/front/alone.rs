//! A front lock outside of a `pthread_mutex_t`: for the bench, the models and the simulator.

use super::{FREE, HELD, Parts, Rule, Tuning, View, Waiter, acquire, lock_until, unlock_slow};
use core::marker::PhantomData;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, RawLock, Sections, TimedLock, TryLock, Word};

/// Word, side word and line in one place, with the tuning that suits the machine.
#[repr(align(128))]
pub struct Alone<P: Platform, R> {
    word: P::Word,
    side: P::Word,
    mood: P::Word,
    chain: P::Word,
    tail: P::Ptr<Waiter<P>>,
    tuning: Tuning,
    rule: PhantomData<fn(R)>,
}

impl<P: Platform, R: Rule<P>> Alone<P, R> {
    /// An unlocked lock with a tuning of its own.
    pub fn tuned(tuning: Tuning) -> Self {
        Self {
            word: P::Word::new(FREE),
            side: P::Word::new(0),
            mood: P::Word::new(0),
            chain: P::Word::new(0),
            tail: P::Ptr::new(core::ptr::null_mut()),
            tuning,
            rule: PhantomData,
        }
    }

    /// Its memory.
    pub fn parts(&self) -> Parts<'_, P> {
        let Self { word, side, mood, chain, tail, .. } = self;
        Parts { word, side, mood, chain: Some(chain), tail, owner: None }
    }

    /// Its tuning.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    #[inline]
    fn fast_lock(&self) -> bool {
        // The line first: an arrival that does not look at it would overtake it.
        let nobody_queues = self.tail.load(Relaxed).is_null();
        // ORDERING: Acquire, pairs with [release].
        nobody_queues && self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }
}

impl<P: Platform, R: Rule<P>> Sections<P> for Alone<P, R> {
    type Node = ();

    fn new() -> Self {
        Self::tuned(R::defaults(Tuning::for_cpus(P::cpus())))
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform, R: Rule<P>> RawLock<P> for Alone<P, R> {
    #[inline]
    unsafe fn lock(&self, _: *mut ()) {
        if !self.fast_lock() {
            acquire::<P, R>(self.parts(), &self.tuning, None);
        }
    }

    /// Here the lock stands in front of its own word; a caller in an epoch says how long its window is.
    #[inline]
    unsafe fn lock_in_front(&self, _: *mut (), window_ns: u32, _: impl Fn() -> bool) {
        if !self.fast_lock() {
            acquire::<P, R>(self.parts(), &self.tuning.within(window_ns), None);
        }
    }

    #[inline]
    unsafe fn unlock(&self, _: *mut ()) {
        // [release] ORDERING: Release, pairs with every Acquire that takes the word.
        if self.word.compare_exchange(HELD, FREE, Release, Relaxed).is_err() {
            R::release(&View::new(self.parts(), &self.tuning));
            unlock_slow(self.parts(), &self.tuning);
        }
    }
}

impl<P: Platform, R: Rule<P>> TryLock<P> for Alone<P, R> {
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        super::try_take::<P>(&self.word)
    }
}

impl<P: Platform, R: Rule<P>> TimedLock<P> for Alone<P, R> {
    unsafe fn lock_until(&self, _: *mut (), deadline: P::Deadline) -> bool {
        super::try_take::<P>(&self.word) || lock_until(self.parts(), &self.tuning, deadline)
    }
}
