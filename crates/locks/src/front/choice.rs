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
//! Invariant: only a node's own thread changes the order behind the node. The threads behind it choose nothing before that thread has let
//! them ([`Waiter::pass_the_choice`]), or has the lock. A thread that has let another choose changes nothing any more. A leader puts its
//! followers behind itself at any time (near.rs), so a choice ends before nodes that may lead.

use super::line::View;
use super::waiter::{BEHIND, CHOOSING, GRANTED, More, Note, OPEN, WAITING, Waiter, state};
use core::iter;
use core::ptr::{from_ref, null, null_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed};
use lockwright_platform::{Machine, Word, hooks};

/// The most waiters that a choice looks at, including the next in line.
const CHOICE: usize = 16;

/// The caller is head, or first in line, or near the front with permission: it chooses by `pick`, among `most` waiters at most, who follows it.
/// `None`: it had nothing to choose from. `Some(false)`: `pick` chose nobody.
#[inline(never)] // its lists take much of the program's stack
pub(super) fn choose_behind<P: Machine>(
    line: &View<'_, P>,
    node: &Waiter<P>,
    most: usize,
    pick: impl FnOnce(&mut Waiters<'_, P>) -> Option<u32>,
) -> Option<bool> {
    if node.has_passed_the_choice() {
        return None;
    }
    let mut choice = picked(line, node, most, pick)?;
    let is_head = state(node.gate.load(Relaxed)) == OPEN;
    if choice.count > 0 {
        // SAFETY: in the line, behind the caller, which alone changes their order.
        // ORDERING: Acquire, pairs with [link].
        choice.behind = unsafe { (*choice.before[choice.count - 1]).next(Acquire) }; // not null, seen before
        line.parts.seat.inspect(|seat| seat.chooses((&raw const choice).cast()));
        if is_head || node.turn(WAITING, CHOOSING).is_ok() {
            // SAFETY: it may choose, and says that it does, or is head.
            unsafe { choice.take_effect(node) };
            if !is_head {
                let _ = node.turn(CHOOSING, WAITING); // or it has been made head by now
            }
        }
        line.parts.seat.inspect(|seat| seat.chooses(null()));
    }
    Some(choice.any)
}

/// What `pick` chooses among the waiters behind `node`. Not inlined: the notes of the waiters take much of the program's stack.
#[inline(never)]
fn picked<P: Machine>(
    line: &View<'_, P>,
    node: &Waiter<P>,
    most: usize,
    pick: impl FnOnce(&mut Waiters<'_, P>) -> Option<u32>,
) -> Option<Choice<P>> {
    let mut waiters = Waiters::behind(node, most, line.tuning.bypass);
    let chosen = pick(&mut waiters)?;
    Some(Choice::put_first(&waiters.nodes, waiters.within_bounds(chosen)))
}

/// Waiters that a rule may choose from: the next in line, and some behind it. At first it knows none; it gets to know them by
/// [`look`](Self::look), since each look may move a cache line.
pub struct Waiters<'a, P: Machine> {
    chooser: &'a Waiter<P>,
    nodes: [*mut Waiter<P>; CHOICE],
    notes: [Note; CHOICE],
    count: usize,
    most: usize,
    /// The one behind those; null: there is no more to see.
    at: *mut Waiter<P>,
    bypass: u32,
}

impl<'a, P: Machine> Waiters<'a, P> {
    /// The waiters behind the caller, which may choose: at most `most`. None of them is known yet.
    fn behind(chooser: &'a Waiter<P>, most: usize, bypass: u32) -> Self {
        let nodes = [null_mut::<Waiter<P>>(); CHOICE];
        // ORDERING: Acquire, pairs with [link].
        let at = chooser.next(Acquire);
        let notes = [Note::default(); CHOICE];
        Self { chooser, nodes, notes, count: 0, most: most.min(CHOICE), at, bypass }
    }

    /// Gets to know one more. `false`: there is no more to choose from.
    pub fn look(&mut self) -> bool {
        if self.at.is_null() || self.count == self.most {
            return false;
        }
        // SAFETY: linked, and behind the caller, which stays; or readable, if the caller has been granted the lock meanwhile.
        let waiter = unsafe { &*self.at };
        if waiter.note.more == More::Cluster {
            return false; // it joined under a rule that stays near, so it may put others behind itself (near.rs)
        }
        // ORDERING: Acquire, pairs with [link].
        let behind = waiter.next(Acquire);
        if self.count > 0 && behind.is_null() {
            return false; // somebody may be joining behind the last one, so it stays last
        }
        (self.nodes[self.count], self.notes[self.count]) = (self.at, waiter.note);
        self.count += 1;
        // Nobody may go past one that has been passed over so often.
        let is_last = waiter.passed.load(Relaxed) >= self.bypass;
        self.at = if is_last { null_mut() } else { behind };
        true
    }

    /// The notes of those that are known, in order.
    pub fn notes(&self) -> &[Note] {
        &self.notes[..self.count]
    }

    /// The one that chooses.
    pub(super) fn chooser(&self) -> &'a Waiter<P> {
        self.chooser
    }

    /// These of the known waiters, as places in a set, but for those that would pass another one too often.
    fn within_bounds(&self, chosen: u32) -> u32 {
        let (mut kept, mut room) = (0, u32::MAX);
        for place in 0..self.count {
            if chosen & 1 << place != 0 && room > 0 {
                kept |= 1 << place;
                room -= u32::from(room != u32::MAX);
            } else {
                // SAFETY: as in `look`.
                let passed = unsafe { (*self.nodes[place]).passed.load(Relaxed) };
                room = room.min(self.bypass.saturating_sub(passed));
            }
        }
        kept
    }

    /// Has the one that chooses got the lock meanwhile? Then its choice comes too late.
    pub(super) fn is_late(&self) -> bool {
        state(self.chooser.gate.load(Relaxed)) == GRANTED // a hint
    }

    /// How many waiters have been moved past the known waiter at this place.
    pub(super) fn passes(&self, place: usize) -> u32 {
        // SAFETY: as in `look`.
        unsafe { (*self.nodes[place]).passes() }
    }

    /// What policies learn about the known waiter at this place, at `now`.
    pub(super) fn describe(&self, place: usize, now: u64) -> hooks::Node {
        // SAFETY: as in `look`.
        unsafe { (*self.nodes[place]).described(now) }
    }
}

/// The waiters behind one, up to the last that a rule chose, and their new order.
pub(super) struct Choice<P: Machine> {
    before: [*mut Waiter<P>; CHOICE],
    after: [*mut Waiter<P>; CHOICE],
    /// The one behind them.
    behind: *mut Waiter<P>,
    /// How many that are; 0: the order stays.
    count: usize,
    /// Did the rule choose anybody?
    any: bool,
    /// By how many each of `after` was passed.
    passed_by: [u32; CHOICE],
}

impl<P: Machine> Choice<P> {
    /// These waiters with the chosen ones first.
    fn put_first(before: &[*mut Waiter<P>; CHOICE], chosen: u32) -> Self {
        let is_chosen = |place: &usize| chosen & 1 << place != 0;
        let places = 0..(u32::BITS - chosen.leading_zeros()) as usize;
        let moves = (chosen.trailing_ones() as usize) < places.len();
        let any = chosen != 0;
        let mut new = Self {
            before: *before,
            after: *before,
            behind: null_mut(),
            count: 0,
            any,
            passed_by: [0; CHOICE],
        };
        if moves {
            let (first, then) = (
                places.clone().filter(is_chosen),
                places.clone().filter(|place| !is_chosen(place)),
            );
            for (to, place) in first.chain(then).enumerate() {
                new.after[to] = before[place];
                let behind = if is_chosen(&place) { 0 } else { chosen >> place };
                new.passed_by[to] = behind.count_ones();
            }
            new.count = places.len();
        }
        new
    }

    /// Puts them in their new order behind `node`. Twice, or half and then whole, has the same effect, if nobody changes the order in between.
    ///
    /// # Safety
    /// `node` is the same, and may choose. Nobody grants it the lock until this is over (it may be made head); or it is head.
    pub(super) unsafe fn take_effect(&self, node: &Waiter<P>) {
        let Self { count, passed_by, behind, .. } = self; // not copied: the program's stack may be small
        let behind = *behind;
        let (before, after, count) = (&self.before[..*count], &self.after[..*count], *count);
        let me = from_ref(node).cast_mut();
        // SAFETY: they are in the line, behind the caller, and nobody else changes their order.
        unsafe {
            let follows = |order: &[*mut Waiter<P>], waiter| {
                let at = order.iter().position(|&one| one == waiter);
                at.map_or(order[count - 1], |at| if at == 0 { me } else { order[at - 1] })
            };
            let has_moved =
                |waiter: &*mut Waiter<P>| follows(before, *waiter) != follows(after, *waiter);
            let moved = after.iter().copied().chain(iter::once(behind)).filter(has_moved);
            // First all the writes, then all the questions: so the cache lines travel at the same time.
            for waiter in moved.clone() {
                (*waiter).set_predecessor(follows(after, waiter));
            }
            for (&waiter, by) in
                after.iter().zip(passed_by.iter().copied()).filter(|(_, by)| *by > 0)
            {
                let passed = &(*waiter).passed;
                passed.store(passed.load(Relaxed) + by, Relaxed); // a count; those before us no longer write it
            }
            // From the last to the first: a thread that follows the links meanwhile misses some, and reaches the end.
            for (at, &waiter) in after.iter().enumerate().rev() {
                let next = after.get(at + 1).copied().unwrap_or(behind);
                if has_moved(&next) {
                    (*waiter).set_next(next);
                }
            }
            if has_moved(&after[0]) {
                node.set_next(after[0]);
            }
            if cfg!(debug_assertions) {
                check_line(node, after, behind);
            }
            let may_sleep = moved.fold(false, |any, waiter| any | (*waiter).may_sleep());
            if may_sleep {
                // The sleeper may have told a node that is no longer the one before it. So mark all of them: each then wakes those
                // behind it before it stays (`stay`).
                for &waiter in after {
                    (*waiter).gate.fetch_or(BEHIND, Relaxed); // the word publishes it, to the threads that need it
                }
                node.gate.fetch_or(BEHIND, Relaxed); // as above
            }
        }
    }
}

/// Panics unless exactly these waiters are between `node` and `behind`, in this order.
fn check_line<P: Machine>(node: &Waiter<P>, order: &[*mut Waiter<P>], behind: *mut Waiter<P>) {
    let mut at = node.next(Relaxed);
    for &expected in order {
        assert_eq!(at, expected, "a choice lost a waiter");
        // SAFETY: in the line, behind the caller, which alone changes the order there.
        at = unsafe { (*at).next(Relaxed) };
    }
    assert_eq!(at, behind, "a choice lost the rest of the line");
}
