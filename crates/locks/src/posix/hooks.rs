//! Policies that are asked at every acquisition and release: hooks `lock_acquire`, `lock_acquired` and `lock_release`.
//!
//! A mutex gets MARKED in its kind when it is first contended under such a policy. From then on each operation on it comes by the slow
//! functions, and asks. So a mutex without such a policy, or that was never contended, runs no other instruction than before. A thread
//! that locked before the mark may unlock after it: then a release is told that no acquisition preceded. When the policy is gone, the next
//! `lock` that finds the mutex free takes the mark away.

use super::mutex::{ERRORCHECK, Environment, How, MARKED, Mutex, Policy, RECURSIVE, TYPE, waiters};
use crate::front::{Tuning, View};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::hooks::{Context, Hook, Node, THREADS, WAITERS};
use lockwright_platform::{Machine, Programmable, Word};

/// The hooks that are asked at every operation.
const EACH: u32 = Hook::LockAcquire.bit() | Hook::LockAcquired.bit() | Hook::LockRelease.bit();

/// A policy's slot; 0: there is none.
#[derive(Clone, Copy)]
pub(super) struct Slot(u32);

/// What the mark on a mutex means now: this policy may have hooks. `None`: every arrival queues, since a textbook lock stands in front. The
/// mark stays when the mutex's lock changes.
pub(super) fn meaning<E: Environment>(mutex: &Mutex<E>) -> Option<Slot> {
    let (_, policy) = mutex.policy();
    match policy.how {
        How::Whole(_) => None,
        How::Front(_) => Some(Slot(policy.tuning.policy)),
        How::Glibc => Some(Slot(0)),
    }
}

/// As [`meaning`], for operations that don't queue.
pub(super) fn slot<E: Environment>(mutex: &Mutex<E>) -> Slot {
    meaning(mutex).unwrap_or(Slot(0))
}

/// The mutex of this kind runs on a lock with this tuning: marks it, if its policy wants to know of each operation.
pub(super) fn mark<E: Environment>(mutex: &Mutex<E>, kind: u32, tuning: &Tuning) {
    if kind & MARKED == 0 && E::Platform::hooks(tuning.policy) & EACH != 0 {
        mutex.kind.fetch_or(MARKED, Relaxed); // a thread that doesn't see it yet is not told
    }
}

/// The calling thread has taken a marked mutex whose policy has this slot: nobody wants to know any more. If a textbook lock comes in front
/// of it just now, the mutex loses that mark, too, and gets it again when it is next contended; until then arrivals overtake.
pub(super) fn unmark<E: Environment>(mutex: &Mutex<E>, slot: Slot) {
    if !E::keeps_marks() && E::Platform::hooks(slot.0) & EACH == 0 {
        mutex.kind.fetch_and(!MARKED, Relaxed); // as in `mark`
    }
}

/// The calling thread has this marked mutex. (Not inlined, here and below: what a hook is told takes stack, which most mutexes do without.)
#[cold]
#[inline(never)]
pub(super) fn has_acquired<E: Environment>(mutex: &Mutex<E>, kind: u32) {
    slot(mutex).acquired(mutex, kind);
}

/// The calling thread is about to release this marked mutex.
#[cold]
#[inline(never)]
pub(super) fn is_releasing<E: Environment>(mutex: &Mutex<E>, kind: u32) {
    slot(mutex).releases(mutex, kind);
}

impl Slot {
    /// The policy that a lock with this tuning runs on.
    pub(super) fn of(tuning: &Tuning) -> Self {
        Self(tuning.policy)
    }

    /// Asks, if the policy has this hook. `lock`: the mutex's address. `count`: how many threads wait; only if the policy reads that,
    /// since a holder may no longer have the mutex's cache line.
    #[inline(always)]
    fn ask<P: Machine>(
        self,
        hook: Hook,
        lock: usize,
        kind: u32,
        count: impl FnOnce() -> u32,
    ) -> u64 {
        let hooks = if self.0 == 0 { 0 } else { P::hooks(self.0) };
        if hooks & hook.bit() == 0 { 0 } else { self.ask_it::<P>(hooks, hook, lock, kind, count) }
    }

    /// As [`ask`](Self::ask), of a policy with these hooks.
    #[cold]
    #[inline(never)]
    fn ask_it<P: Machine>(
        self,
        hooks: u32,
        hook: Hook,
        lock: usize,
        kind: u32,
        count: impl FnOnce() -> u32,
    ) -> u64 {
        let kind = kind & TYPE;
        let context = Context {
            lock_id: lock as u64,
            lock_kind: if [RECURSIVE, ERRORCHECK].contains(&kind) { kind } else { 0 },
            nwaiters: if hooks & WAITERS != 0 { count() } else { 0 },
            own: if hooks & THREADS != 0 { P::describe() } else { Node::default() },
            ..Context::default()
        };
        P::ask(self.0, hook, &context)
    }

    fn ask_of<E: Environment>(self, hook: Hook, mutex: &Mutex<E>, kind: u32) -> u64 {
        let lock = core::ptr::from_ref(mutex).addr();
        self.ask::<E::Platform>(hook, lock, kind, || waiters(mutex))
    }

    /// A thread asks for the mutex: it takes a free one past the line, if the policy lets it.
    pub(super) fn takes_past<E: Environment>(self, mutex: &Mutex<E>, kind: u32) -> bool {
        if self.ask_of(Hook::LockAcquire, mutex, kind) != 1 {
            return false;
        }
        let (me, Policy { tuning, .. }) = mutex.policy();
        View::new(&mutex.parts_of(kind, me), &tuning).take().is_some() // within `bypass`
    }

    /// The calling thread has the mutex.
    pub(super) fn acquired<E: Environment>(self, mutex: &Mutex<E>, kind: u32) {
        self.ask_of(Hook::LockAcquired, mutex, kind);
    }

    /// The calling thread is about to release the mutex.
    pub(super) fn releases<E: Environment>(self, mutex: &Mutex<E>, kind: u32) {
        self.ask_of(Hook::LockRelease, mutex, kind);
    }
}

/// The calling thread is about to release the mutex at this address, which it holds by a node; the policy in this slot wants to know.
#[cold]
pub(super) fn releases_by_node<P: Machine>(lock: usize, slot: u8) {
    P::unboost(); // whatever policy there is by now
    Slot(slot.into()).ask::<P>(Hook::LockRelease, lock, 0, || 0);
}
