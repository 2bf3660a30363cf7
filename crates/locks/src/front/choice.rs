//! The choice of who is next, for rules that have one.
//!
//! Who is first in line chooses who follows it, while it waits, so that it holds nobody up:
//!
//! ```text
//!   H (GRANTED) ─► S (WAITING) ─► a ─► b ─► c ◄─ tail     S looks at a and b (not at the last, which may be about to be followed)
//!                  S (CHOOSING) ─► b ─► a ─► c            nobody grants it the lock meanwhile: `grant` waits for a moment
//! ```
//!
//! A head that waits for the word does the same; it need not say so, since nobody makes it more than head.

use super::waiter::{BEHIND, CHOOSING, OPEN, WAITING, Waiter, state};
use super::{Note, Rule, View};
use core::ptr::from_ref;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Platform, Word};

/// Waiters that a rule may choose from, and the head's successor itself, at most.
const CHOICE: usize = 16;

/// The caller is first in line, or head: it chooses who follows it.
pub(super) fn choose_behind<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) {
    if node.has_passed_the_choice() {
        return;
    }
    let Some(choice) = Choice::of::<R>(lock, node) else { return };
    let is_head = state(node.gate.load(Relaxed)) == OPEN;
    if is_head || node.turn(WAITING, CHOOSING).is_ok() {
        // SAFETY: it is first, and says that it chooses, or is head.
        unsafe { choice.take_effect(node) };
        if !is_head {
            let _ = node.turn(CHOOSING, WAITING); // or it has been made head by now
        }
    }
}

/// As [`choose_behind`], by a waiter that may be torn out of its wait: out of this, it would leave a line that nobody can pass.
pub(super) fn choose_and_sit<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) {
    lock.seat.inspect(|seat| seat.joins());
    choose_behind::<P, R>(lock, node);
    lock.seat.inspect(|seat| seat.sits(node));
}

/// The waiters behind one, up to a rule's choice among them.
struct Choice<P: Platform> {
    waiters: [*mut Waiter<P>; CHOICE],
    chosen: usize,
}

impl<P: Platform> Choice<P> {
    /// Lets the rule choose among those behind `node`, which is the caller's, and first in line. None: the line is right as it is.
    fn of<R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) -> Option<Self> {
        let mut waiters = [core::ptr::null_mut::<Waiter<P>>(); CHOICE];
        let mut notes = [Note::default(); CHOICE];
        // ORDERING: Acquire, pairs with [link].
        let (mut count, mut at) = (0, node.next(Acquire));
        while count < CHOICE.min(1 + R::AHEAD) && !at.is_null() {
            // SAFETY: linked, and behind the caller, which stays; or readable, if the caller has been granted the lock meanwhile.
            let waiter = unsafe { &*at };
            // ORDERING: Acquire, pairs with [link].
            let behind = waiter.next(Acquire);
            if count > 0 && behind.is_null() {
                break; // the last may be about to be followed, and stays last
            }
            (waiters[count], notes[count]) = (at, waiter.note);
            count += 1;
            if waiter.passed.load(Relaxed) >= lock.tuning.bypass || R::is_enough(&notes[..count]) {
                break; // nobody goes past that one any more; or it will do
            }
            at = behind;
        }
        if count == 0 {
            return None;
        }
        let chosen = R::next(lock, &notes[..count]);
        (0 < chosen && chosen < count).then_some(Self { waiters, chosen })
    }

    /// Moves the chosen one to the front, behind `node`.
    ///
    /// # Safety
    /// `node` is the same, and still first. Nobody grants it the lock, or makes it head, until this is over; or it is head.
    unsafe fn take_effect(self, node: &Waiter<P>) {
        let Self { waiters, chosen } = self;
        // SAFETY: they are in the line, behind the caller, and nobody else changes their order.
        unsafe {
            let (first, last, next) = (&*waiters[0], &*waiters[chosen - 1], &*waiters[chosen]);
            // ORDERING: Acquire, pairs with [link].
            let behind = &*next.next(Acquire); // not null, seen before
            // All that is written comes before all that is asked: so their lines of memory are on their way at the same time.
            behind.set_before(last);
            first.set_before(next);
            next.set_before(node);
            last.set_next(from_ref(behind).cast_mut());
            for &waiter in &waiters[..chosen] {
                let passed = &(*waiter).passed;
                passed.store(passed.load(Relaxed) + 1, Relaxed); // a count, written here alone
            }
            next.set_next(waiters[0]);
            node.set_next(waiters[chosen]);
            let may_sleep = [behind, first, next].map(Waiter::may_sleep).contains(&true);
            if may_sleep {
                // Or one before it has left, and it has told another: so all of them wake those behind them before they stay (`stay`).
                for &waiter in &waiters[..=chosen] {
                    (*waiter).gate.fetch_or(BEHIND, Relaxed); // published by the word, to whom it matters
                }
                node.gate.fetch_or(BEHIND, Relaxed); // as above
            }
        }
    }
}

impl<P: Platform> Waiter<P> {
    /// It has been told who is before it now. May it sleep, and have told another that it does?
    fn may_sleep(&self) -> bool {
        // ORDERING: AcqRel. Acquire pairs with [turn], of one that fell asleep: it has told the one that was before it. Release with its
        // Acquire: one that falls asleep after this tells the one that is before it now.
        // SURVIVES: it matters where code that knows nothing of chains unlocks for one that was moved before a sleeper: five threads.
        // SURVIVES no-store: likewise.
        state(self.gate.fetch_or(0, AcqRel)) != WAITING
    }
}
