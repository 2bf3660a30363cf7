//! Leaving the line from wherever one stands, without the lock: for a thread that is torn out of its wait
//! (`pthread_exit` in a signal handler), whose stack, and node, are about to end.
//!
//! Whoever is in the middle can't be unlinked by itself: those before and behind it may be joining, leaving or
//! being made head. So it puts a *stand-in* into its place, a node that outlives it, which says LEFT; a head that
//! comes to that steps over it. (After the abandoned nodes of Scott & Scherer, *Scalable Queue-Based Spin Locks with
//! Timeout*, PPoPP 2001, where the next in line cleans up.)
//!
//! ```text
//!   head ─► A ─► N ─► B ◄─ tail         N.gate := MOVING      a head that comes to N waits for the next step
//!   head ─► A ─► S ─► B ◄─ tail         S.gate  = COMING      one that comes to S waits for the last one
//!                                       has A begun to look who is behind it? Then wait until it has come to S
//!   head ─► A ─► S ─► B ◄─ tail         S.gate := LEFT        N may end
//! ```
//!
//! Invariants:
//! 1. Whoever writes a link of a waiter that it isn't has the side word's LEAVING, or is that waiter's joiner, once.
//! 2. While its gate says MOVING or COMING nobody passes a node, so that those before and behind it stay.
//! 3. A stand-in belongs to the head that steps over it, once that one has settled with the node behind it.
//! 4. A node ends when no head can have seen it behind another: a head says that it looks before it does ([pass]), and
//!    either that is seen, or the head sees the stand-in.

use super::line::{ASLEEP, OPEN, WAITING, Waiter, successor, tag};
use super::{Note, Parts, Tuning, mood, pass_on, side};
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Word};

/// Its owner is putting a stand-in into its place.
const MOVING: u32 = 3;
/// A stand-in.
const LEFT: u32 = 4;
/// A stand-in that is not to be passed yet.
const COMING: u32 = 5;

/// Where a thread that waits says where it is, for whoever takes it out of a wait that is torn
/// ([`leave_line`]).
pub trait Seat<P: Platform> {
    /// It is about to join the line. Torn between this and [`sits`](Self::sits), it leaves a node that nobody can pass.
    fn joins(&self);
    /// Its node in the line; null: it is in none.
    fn sits(&self, node: *const Waiter<P>);
    /// Is it [counted](super::View::count_in) among those beside the line?
    fn is_beside(&self, counted: bool);
}

/// Takes a waiter out of the line. Does not wait for the lock; afterwards the node may end.
///
/// # Safety
/// `node` is the calling thread's own, as a [`Seat`] has it, and its wait does not go on.
#[cold]
pub unsafe fn leave_line<P: Platform>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    node: *const Waiter<P>,
) {
    // SAFETY: the caller's promise: it is in the line.
    let node = unsafe { &*node };
    // ORDERING: Acquire, pairs with [left] and [unleave]: the links are as the last one to leave has left them.
    while parts.side.fetch_or(side::LEAVING, Acquire) & side::LEAVING != 0 {
        P::spin_until(parts.side, Relaxed, |now| now & side::LEAVING == 0);
    }
    // Relaxed: a head that comes later finds MOVING, and waits.
    // ORDERING: Acquire on failure, pairs with [open]: a head has made us head, and is through with our node.
    let moves = [WAITING, ASLEEP]
        .iter()
        .any(|&from| node.gate.compare_exchange(from, MOVING, Relaxed, Acquire).is_ok());
    if moves {
        replace(&parts, node, tuning.era);
    }
    // [left] ORDERING: Release, pairs with the Acquire above.
    parts.side.fetch_and(!side::LEAVING, Release);
    if moves {
        return;
    }
    node.pass(parts.mood, mood::WAITER);
    parts.mood.fetch_and(!mood::NAPPING, Relaxed); // a hint
    if let Some(next) = successor(&parts, node, tuning.era)
        // SAFETY: linked; nobody but us, the head, passes it.
        && let Some((gate, ASLEEP)) = unsafe { settle(&parts, node, next, tuning.era) }
    {
        // Nobody holds the lock for us, so it can't be moved to the word: it has to look.
        P::unpark(gate, 1);
    }
    pass_on::<P>(parts.word); // a wake there may have been meant for us
}

/// Puts a stand-in into the place of `node`, whose gate says MOVING, under LEAVING. Afterwards nobody looks at the node.
fn replace<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, era: usize) {
    const { assert!(size_of::<Waiter<P>>() + size_of::<P::Word>() <= P::LINE) }
    let me = from_ref(node).cast_mut();
    let stand_in: *mut Waiter<P> = P::take_line().cast();
    // SAFETY: a fresh line, large and aligned enough, and ours alone.
    let place = unsafe {
        let passes: *mut P::Word = stand_in.add(1).cast();
        passes.write(P::Word::new(0));
        stand_in.write(Waiter::new(COMING, Note::default(), &*passes));
        &*stand_in
    };
    let before = node.before.load(Relaxed); // by invariant 1
    place.before.store(before, Relaxed); // published below, as all of it
    // ORDERING: Release, pairs with the Acquire of the next [join]: the stand-in is fully made.
    if parts.tail.compare_exchange(tag(me, era), tag(stand_in, era), Release, Relaxed).is_err() {
        // ORDERING: Acquire, pairs with [link].
        let behind = P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null());
        place.next.store(behind, Relaxed);
        // SAFETY: in the line, and stays there by invariant 2.
        unsafe { (*behind).before.store(stand_in, Relaxed) }; // by invariant 1
    }
    // SAFETY: in the line, and stays there by invariant 2.
    let before = unsafe { &*before };
    // [stand-in] ORDERING: Release, pairs with the Acquires of `next`: the stand-in is fully made.
    before.next.store(stand_in, Release);
    // [replaced] ORDERING: AcqRel, pairs with [pass].
    parts.mood.fetch_sub(mood::WAITER, AcqRel);
    if before.is_passed() {
        // It has seen our node, or the stand-in; in a moment it comes to the latter.
        // ORDERING: Acquire, pairs with [open]: it is through with ours.
        P::spin_until(&place.gate, Acquire, |gate| gate == OPEN);
    }
    // [final] ORDERING: Release, pairs with the Acquires in `settle`: we are through with the nodes around it.
    place.gate.store(LEFT, Release);
}

/// Makes the first waiter behind `at` head that has not left: its gate, and what that said before. None: all of
/// them had left, and the line is empty.
///
/// # Safety
/// `at` is the line's head, which the caller is, and has [said](Waiter::pass) that it looks who is behind it: `next`.
pub(super) unsafe fn settle<P: Platform>(
    parts: &Parts<'_, P>,
    mut at: &Waiter<P>,
    mut next: *mut Waiter<P>,
    era: usize,
) -> Option<(*const P::Word, u32)> {
    let mut stepped_over: *mut Waiter<P> = null_mut();
    let settled = loop {
        // SAFETY: linked behind the head, which has said that it looks, so it is there until its gate is open.
        let waiter = unsafe { &*next };
        let gate = &raw const waiter.gate;
        // [open] ORDERING: AcqRel: Release pairs with the Acquires of gates: from here on only the address, unless it is
        // a stand-in. Acquire, pairs with [final].
        let mut before = waiter.gate.swap(OPEN, AcqRel);
        if before == MOVING {
            let moving = next;
            // ORDERING: Acquire, pairs with [stand-in].
            next = P::spin_until_ptr(&at.next, Acquire, |next| next != moving);
            continue;
        }
        if before == COMING {
            // ORDERING: Acquire, pairs with [final].
            before = P::spin_until(&waiter.gate, Acquire, |gate| gate == LEFT);
        }
        give::<P>(core::mem::replace(&mut stepped_over, null_mut()));
        if before != LEFT {
            break Some((gate, before));
        }
        (stepped_over, at) = (next, waiter);
        waiter.pass(parts.mood, 0);
        match successor(parts, waiter, era) {
            Some(behind) => next = behind,
            None => break None,
        }
    };
    give::<P>(stepped_over);
    settled
}

/// Gives a stand-in's memory back.
fn give<P: Platform>(stand_in: *mut Waiter<P>) {
    if !stand_in.is_null() {
        // SAFETY: by invariant 3.
        unsafe {
            stand_in.drop_in_place();
            stand_in.add(1).cast::<P::Word>().drop_in_place();
            P::give_line(stand_in.cast());
        }
    }
}
