//! Signals: which waiter gets one, and whether it needs a wake.

use super::{AMONG_OTHERS, AWAKE, Cond, Given, MOVED, SIGNALLED, Sleeper, WAIT};
use crate::front::{self, Parts};
use lockwright_platform::Ordering::{Relaxed, Release};
use lockwright_platform::{Machine, Ptr, Word};

impl<P: Machine> Cond<'_, P> {
    /// Wakes the waiter that came first.
    ///
    /// `held` is called while a waiter is in the list; it returns the waiter's mutex if the caller holds that.
    pub fn signal<'m>(&self, held: impl FnOnce() -> Option<Parts<'m, P>>) -> Given {
        let mut given = Given::default();
        if self.first.load(Relaxed).is_null() {
            // Waiters that joined before us in the program's own order (under the mutex) are visible.
            return given;
        }
        self.lock_list();
        let mut next = self.first.load(Relaxed);
        let held = if next.is_null() { None } else { held() };
        let woken = loop {
            if next.is_null() {
                break None;
            }
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*next };
            next = waiter.next.load(Relaxed); // under the list's lock
            let gate: *const P::Word = &raw const waiter.gate;
            match self.give(waiter, held, true, &mut given) {
                Claim::Cancelled => {} // the signal is for the next
                Claim::Awake => break None,
                Claim::Asleep => break Some(gate),
                Claim::Moved(word, moved) => {
                    P::requeue(gate, moved, word, 1);
                    break None;
                }
            }
        };
        self.unlock_list();
        if let Some(gate) = woken {
            P::unpark(gate, 1);
        }
        given
    }

    /// Wakes all waiters. `held` is as for [`signal`](Self::signal).
    pub fn broadcast<'m>(&self, held: impl FnOnce() -> Option<Parts<'m, P>>) -> Given {
        let mut given = Given::default();
        if self.first.load(Relaxed).is_null() {
            return given; // as in `signal`
        }
        self.lock_list();
        let mut next = self.first.load(Relaxed);
        let held = if next.is_null() { None } else { held() };
        let mut herd = 0;
        while !next.is_null() {
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*next };
            next = waiter.next.load(Relaxed); // under the list's lock
            let gate: *const P::Word = &raw const waiter.gate;
            match self.give(waiter, held, false, &mut given) {
                Claim::Cancelled | Claim::Awake => {}
                Claim::Asleep => {
                    // Move all of them to one address, so that one call wakes them all.
                    P::requeue(gate, SIGNALLED, self.lock, 1);
                    herd += 1;
                }
                Claim::Moved(word, moved) => {
                    P::requeue(gate, moved, word, 1);
                }
            }
        }
        let list_lock: *const P::Word = self.lock;
        self.unlock_list();
        if herd > 0 {
            P::unpark(list_lock, u32::MAX);
        }
        given
    }

    /// Does the list have waiters? (For `destroy`.)
    pub fn has_waiters(&self) -> bool {
        self.lock_list();
        let waiters = !self.first.load(Relaxed).is_null();
        self.unlock_list();
        waiters
    }

    /// Takes a waiter out of the list and gives it its signal. `only`: nobody else gets one now. A cancelled waiter stays
    /// in the list.
    fn give(
        &self,
        waiter: &Sleeper<P>,
        held: Option<Parts<'_, P>>,
        only: bool,
        given: &mut Given,
    ) -> Claim<P> {
        let listed = waiter.listed.load(Relaxed); // under the list's lock
        self.unlist(waiter); // this comes first, by invariant 2
        let among_others = only && !self.first.load(Relaxed).is_null(); // under the list's lock
        let since_ns = waiter.since_ns.load(Relaxed); // as above
        let claim = claim(waiter, held, if among_others { AMONG_OTHERS } else { 0 });
        if matches!(claim, Claim::Cancelled) {
            // It still has to leave the list by itself, so it exists, and its links are as they were.
            let me = core::ptr::from_ref(waiter).cast_mut();
            self.link(waiter, me, me);
            waiter.listed.store(listed, Relaxed);
        } else {
            given.add(since_ns);
            self.score(listed, matches!(claim, Claim::Awake));
        }
        claim
    }
}

/// The result of giving a waiter its signal.
enum Claim<P: Machine> {
    /// The waiter was cancelled first.
    Cancelled,
    /// It has the signal, and is awake.
    Awake,
    /// It has the signal, and needs a wake.
    Asleep,
    /// It has the signal, and must be moved to this word; its gate has this value.
    Moved(*const P::Word, u32),
}

/// Gives a waiter its signal. After that nothing may touch the waiter, by invariant 2.
fn claim<P: Machine>(waiter: &Sleeper<P>, held: Option<Parts<'_, P>>, among: u32) -> Claim<P> {
    // [claim] ORDERING: Release, pairs with the Acquire loads in `sleep`: we are done with the node.
    let give = |from, to| waiter.gate.compare_exchange(from, to, Release, Relaxed).is_ok();
    if give(AWAKE, SIGNALLED | among) {
        return Claim::Awake;
    }
    // From here on the gate is WAIT, or cancelled: AWAKE never comes back.
    match held {
        Some(parts) if front::adopt(&parts, || give(WAIT, MOVED | among)) => {
            Claim::Moved(parts.word.address(), MOVED | among)
        }
        None if give(WAIT, SIGNALLED | among) => Claim::Asleep,
        _ => Claim::Cancelled,
    }
}
