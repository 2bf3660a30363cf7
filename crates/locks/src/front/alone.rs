//! A front lock outside a `pthread_mutex_t`: for the bench, the models and the simulator.

use super::line::Parts;
use super::rule::{Rule, View, acquire};
use super::seat::Seat;
use super::tuning::Tuning;
use super::waiter::Waiter;
use super::word::{FREE, Word0};
use super::{Left, hand_on, leave_or_hand_on, lock_until, release, unlock_alone, unlock_stale};
use core::marker::PhantomData;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Ptr, RawLock, Sections, TimedLock, TryLock, Word};

/// A lock's defaults, on top of its rule's: so the catalogue can have several locks with one rule.
pub trait Tune: 'static {
    /// Changes the rule's defaults.
    fn tune(tuning: Tuning) -> Tuning;
}

/// The rule's own defaults.
#[derive(Debug)]
pub struct AsIs;

impl Tune for AsIs {
    fn tune(tuning: Tuning) -> Tuning {
        tuning
    }
}

/// Word, counts word and line in one place, with the tuning that suits the machine.
#[repr(align(128))]
pub struct Alone<P: Machine, R, T = AsIs> {
    word: Word0<P>,
    counts: P::Word,
    hints: P::Word,
    tail: P::Ptr<Waiter<P>>,
    tuning: Tuning,
    rule: PhantomData<fn(R, T)>,
}

impl<P: Machine, R: Rule<P>, T: Tune> Alone<P, R, T> {
    /// An unlocked lock with a tuning of its own.
    pub fn tuned(tuning: Tuning) -> Self {
        Self {
            word: Word0::of(P::Word::new(FREE)),
            counts: P::Word::new(0),
            hints: P::Word::new(0),
            tail: P::Ptr::new(core::ptr::null_mut()),
            tuning,
            rule: PhantomData,
        }
    }

    /// Its memory, for a caller that never holds it by a node.
    pub fn parts(&self) -> Parts<'_, P> {
        let Self { word, counts, hints, tail, .. } = self;
        let (by, site) = (core::ptr::null(), P::site());
        Parts { word, counts, hints, by, thread: 0, kind: 0, site, tail, owner: None, seat: None }
    }

    /// Acquires, and notes in the caller's node how to unlock.
    #[inline]
    unsafe fn acquire(&self, by: *mut By<P>, tuning: &Tuning) {
        // Look at the line first: otherwise this arrival would overtake it.
        let node = if self.tail.load(Relaxed).is_null() && self.word.take(false) {
            core::ptr::null()
        } else {
            acquire::<P, R>(&Parts { by: by.cast(), ..self.parts() }, tuning)
        };
        // SAFETY: the caller's node, which is ours alone until `unlock`.
        unsafe { (*by).0 = node };
    }

    /// Acquires as a thread that may be torn out of its wait: it keeps notes in `seat`, for [`Seat::leave`].
    ///
    /// # Safety
    /// As [`RawLock::lock`]. If the caller doesn't return from here, it must leave.
    pub unsafe fn lock_seated(&self, by: *mut By<P>, seat: &Seat<P>) {
        let parts = Parts { by: by.cast(), seat: Some(seat), ..self.parts() };
        // SAFETY: the caller's node, which is ours alone until `unlock`.
        unsafe { (*by).0 = acquire::<P, R>(&parts, &self.tuning) };
    }

    /// Its tuning.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }
}

/// How a caller holds the lock: by this node of the line, or, if null, by the word.
pub struct By<P: Machine>(*const Waiter<P>);

impl<P: Machine> Default for By<P> {
    fn default() -> Self {
        Self(core::ptr::null())
    }
}

impl<P: Machine, R: Rule<P>, T: Tune> Sections<P> for Alone<P, R, T> {
    type Node = By<P>;

    fn new() -> Self {
        Self::tuned(T::tune(R::defaults(Tuning::for_cpus(P::cpus()))))
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Machine, R: Rule<P>, T: Tune> RawLock<P> for Alone<P, R, T> {
    #[inline]
    unsafe fn lock(&self, by: *mut By<P>) {
        // SAFETY: the caller's duty.
        unsafe { self.acquire(by, &self.tuning) };
    }

    /// This lock needs no other word behind it. A caller in an epoch passes its window.
    #[inline]
    unsafe fn lock_in_front(&self, by: *mut By<P>, window_ns: u32, _: impl Fn() -> bool) {
        // SAFETY: the caller's duty.
        unsafe { self.acquire(by, &self.tuning.within(window_ns)) };
    }

    #[inline]
    unsafe fn unlock(&self, by: *mut By<P>) {
        // SAFETY: the caller's duty: locked with this node. By a node of the line, if it has one.
        if let Some(node) = unsafe { (*by).0.as_ref() } {
            // SAFETY: the caller's duty: the lock was acquired by this node, so the caller holds it.
            if unsafe { hand_on(node) } {
                return;
            }
            let parts = self.parts();
            let view = View::new(&parts, &self.tuning);
            // SAFETY: the caller still holds the lock by this node.
            let left = unsafe { leave_or_hand_on(&view, node) };
            if left != Left::Passed {
                R::release(&view);
            }
            match left {
                Left::Passed => {}
                Left::Empty => unlock_alone(&view),
                Left::Stale => unlock_stale(&view),
                // SAFETY: the caller still holds the lock by this node.
                Left::Not => unsafe { release(&view, node) },
            }
        } else if !self.word.give() {
            let parts = self.parts();
            let view = View::new(&parts, &self.tuning);
            R::release(&view);
            view.release();
        }
    }
}

impl<P: Machine, R: Rule<P>, T: Tune> TryLock<P> for Alone<P, R, T> {
    unsafe fn try_lock(&self, by: *mut By<P>) -> bool {
        // SAFETY: the caller's node.
        unsafe { (*by).0 = core::ptr::null() };
        self.word.try_take()
    }
}

impl<P: Machine, R: Rule<P>, T: Tune> TimedLock<P> for Alone<P, R, T> {
    unsafe fn lock_until(&self, by: *mut By<P>, deadline: P::Deadline) -> bool {
        // SAFETY: the caller's node.
        unsafe { (*by).0 = core::ptr::null() };
        lock_until(&self.parts(), &self.tuning, deadline)
    }
}
