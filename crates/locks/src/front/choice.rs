//! The choice of who is next, for rules that have one.
//!
//! The first in line chooses who follows it while it waits, so it holds nobody up. Then it already lets that waiter choose, too, since
//! a choice takes longer than a short section:
//!
//! ```text
//!   H (GRANTED) ─► S (WAITING) ─► a ─► b ─► c ◄─ tail     S looks at a and b (not at the last: somebody may be joining behind it)
//!                  S (CHOOSING) ─► b ─► a ─► c            nobody grants it the lock meanwhile: `grant` waits for a moment
//! ```
//!
//! A head that waits for the word does the same. It need not say CHOOSING, since nobody grants a head the lock.
//!
//! Invariant: only a node's own thread changes the order behind the node. The threads behind it change nothing before that thread has let
//! them ([`Waiter::pass_the_choice`]), or has the lock. A thread that has let another choose changes nothing any more.

use super::line::LOOK_NS;
use super::waiter::{BEHIND, CHOOSING, OPEN, WAITING, Waiter, state};
use super::{Note, Rule, View};
use core::ptr::from_ref;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Platform, Word};

/// The most waiters that a choice looks at, including the next in line.
const CHOICE: usize = 16;

/// This many waiters at the front may choose who follows them.
pub(super) const CHOOSERS: u32 = 2;

/// How often they check whether they may, ns.
const FIRST_NS: u32 = 50;

/// What a waiter that is not head has done about those behind it.
pub(super) struct Chooser {
    /// 0: it has not chosen yet. N: it has chosen, and has let N - 1 waiters behind it choose.
    chose: u32,
    /// Until when it stays awake. Looking takes longer than the looks' nominal time, so the clock says how long it has waited.
    end: u64,
    /// When it looks at the mutex.
    due: u64,
}

impl Chooser {
    /// It stays awake for `left` ns. None: the rule does not choose.
    pub(super) fn of<P: Platform, R: Rule<P>>(left: u32) -> Option<Self> {
        let mut new = Self { chose: 0, end: 0, due: 0 };
        (R::AHEAD > 0).then(|| new.begin::<P>(left)).map(|()| new)
    }

    /// It stays awake for `left` ns from now on.
    pub(super) fn begin<P: Platform>(&mut self, left: u32) {
        let now = P::now();
        (self.end, self.due) = (now + u64::from(left), now + u64::from(LOOK_NS));
    }

    /// Chooses if it may, and then lets the next one choose; returns how long it may look at its gate alone, ns.
    pub(super) fn step<P: Platform, R: Rule<P>>(
        &mut self,
        lock: &View<'_, P>,
        node: &Waiter<P>,
    ) -> u32 {
        if self.chose >= CHOOSERS {
            return LOOK_NS;
        }
        let may = if node.is_first() { CHOOSERS } else { node.may_choose() };
        if may > 0 && self.chose == 0 && !R::is_worth(lock, &node.note) {
            self.chose = CHOOSERS; // it doesn't let others choose either
            return LOOK_NS;
        }
        if may > 0 && self.chose == 0 && choose_and_sit::<P, R>(lock, node) {
            self.chose = 1;
        }
        if self.chose > 0 && may > self.chose && node.pass_the_choice(may - 1) {
            self.chose = may;
        }
        FIRST_NS
    }

    /// How long it stays awake now, ns; and is a look at the mutex due?
    pub(super) fn left<P: Platform>(&mut self) -> (u32, bool) {
        let now = P::now();
        let is_due = now >= self.due;
        if is_due {
            self.due = now + u64::from(LOOK_NS);
        }
        (self.end.saturating_sub(now) as u32, is_due)
    }
}

/// The caller is head, or first in line, or second with permission: it chooses who follows it. `false`: it had nothing to choose from.
pub(super) fn choose_behind<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    if node.has_passed_the_choice() {
        return false;
    }
    let Some(choice) = Choice::of::<R>(lock, node) else { return false };
    let is_head = state(node.gate.load(Relaxed)) == OPEN;
    if choice.chosen > 0 && (is_head || node.turn(WAITING, CHOOSING).is_ok()) {
        // SAFETY: it may choose, and says that it does, or is head.
        unsafe { choice.take_effect(node) };
        if !is_head {
            let _ = node.turn(CHOOSING, WAITING); // or it has been made head by now
        }
    }
    true
}

/// As [`choose_behind`], by a waiter that may be torn out of its wait. In the middle of a choice that would lose a waiter behind it.
pub(super) fn choose_and_sit<P: Platform, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
) -> bool {
    lock.seat.inspect(|seat| seat.joins());
    let has_chosen = choose_behind::<P, R>(lock, node);
    lock.seat.inspect(|seat| seat.sits(node));
    has_chosen
}

/// The waiters behind one, up to a rule's choice among them.
struct Choice<P: Platform> {
    waiters: [*mut Waiter<P>; CHOICE],
    chosen: usize,
}

impl<P: Platform> Choice<P> {
    /// Lets the rule choose among the waiters behind `node`, which is the caller's, and may choose. None: there are too few.
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
                break; // somebody may be joining behind the last one, so it stays last
            }
            (waiters[count], notes[count]) = (at, waiter.note);
            count += 1;
            if waiter.passed.load(Relaxed) >= lock.tuning.bypass || R::is_enough(&notes[..count]) {
                break; // nobody may go past that one any more; or these are enough
            }
            at = behind;
        }
        if count < 2 {
            return None;
        }
        let chosen = R::next(lock, &notes[..count]);
        Some(Self { waiters, chosen: if chosen < count { chosen } else { 0 } })
    }

    /// Moves the chosen one to the front, behind `node`.
    ///
    /// # Safety
    /// `node` is the same, and may choose. Nobody grants it the lock until this is over (it may be made head); or it is head.
    unsafe fn take_effect(self, node: &Waiter<P>) {
        let Self { waiters, chosen } = self;
        // SAFETY: they are in the line, behind the caller, and nobody else changes their order.
        unsafe {
            let (first, last, next) = (&*waiters[0], &*waiters[chosen - 1], &*waiters[chosen]);
            // ORDERING: Acquire, pairs with [link].
            let behind = &*next.next(Acquire); // not null, seen before
            // First all the writes, then all the questions: so the cache lines travel at the same time.
            behind.set_before(last);
            first.set_before(next);
            next.set_before(node);
            last.set_next(from_ref(behind).cast_mut());
            for &waiter in &waiters[..chosen] {
                let passed = &(*waiter).passed;
                passed.store(passed.load(Relaxed) + 1, Relaxed); // a count; those before us no longer write it
            }
            next.set_next(waiters[0]);
            node.set_next(waiters[chosen]);
            let may_sleep = [behind, first, next].map(Waiter::may_sleep).contains(&true);
            if may_sleep {
                // The sleeper may have told a node that is no longer the one before it. So mark all of them: each then wakes those
                // behind it before it stays (`stay`).
                for &waiter in &waiters[..=chosen] {
                    (*waiter).gate.fetch_or(BEHIND, Relaxed); // the word publishes it, to the threads that need it
                }
                node.gate.fetch_or(BEHIND, Relaxed); // as above
            }
        }
    }
}

impl<P: Platform> Waiter<P> {
    /// Its `before` has just been changed. May it be asleep, and have told the node that was before it?
    fn may_sleep(&self) -> bool {
        // ORDERING: AcqRel. Acquire pairs with [turn], of a waiter that fell asleep: it has told the one that was before it. Release with its
        // Acquire: a waiter that falls asleep after this tells the one that is before it now.
        // SURVIVES: it matters only if code that knows nothing of chains unlocks for a waiter that was moved before a sleeper: five threads.
        // SURVIVES no-store: likewise.
        state(self.gate.fetch_or(0, AcqRel)) != WAITING
    }
}
