//! Leaving the line from anywhere in it: for a thread that is torn out of its wait (`pthread_exit` in a signal handler).
//!
//! Its node outlives its stack. So the node says LEFT, and a thread that reaches it steps over it and gives it back
//! (after the abandoned nodes of Scott & Scherer, *Scalable Queue-Based Spin Locks with Timeout*, PPoPP 2001, where the
//! next in line cleans up). A waiter behind such a node, before it sleeps, asks the node before that one instead.

use super::grant::{hand_on_or_leave, open_next};
use super::pace::Pace;
use super::waiter::{ASLEEP, BEHIND, GRANTED, LEFT, OPEN, WAITING, Waiter, state};
use super::{
    FREE, HELD, Parts, Tuning, View, meet_left_behind, mood, pass_on, take_as, unlock_slow,
};
use core::ptr::from_ref;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Word};

/// Where a waiting thread records its place, so that it can leave the line if it is torn out of its wait ([`leave_line`]).
pub trait Seat<P: Machine> {
    /// It is about to join the line, or to change its order. If it is torn away between this and [`sits`](Self::sits), it leaves a node
    /// that nobody can pass, or loses one that it was moving.
    fn joins(&self);
    /// Its node in the line; null: it is in no line.
    fn sits(&self, node: *const Waiter<P>);
    /// Is it [counted](super::View::count_in) among those beside the line?
    fn is_beside(&self, counted: bool);
}

/// Takes a waiter out of the line. It doesn't wait for the lock; if it has just been granted the lock, it releases it.
///
/// # Safety
/// `node` is the calling thread's own, as a [`Seat`] has it, and its wait does not go on.
#[cold]
pub unsafe fn leave_line<P: Machine>(parts: Parts<'_, P>, tuning: &Tuning, node: *const Waiter<P>) {
    // SAFETY: the caller's promise: the node is in the line.
    let node = unsafe { &*node };
    loop {
        // ORDERING: Acquire, pairs with [turn]: the last holder's section is over, if we are GRANTED.
        // EXPLORED: needs a waiter that is granted the lock when it is torn, and locks again.
        let now = state(node.gate.load(Acquire));
        if now == GRANTED {
            if !hand_on_or_leave(&View::new(parts, tuning), node) {
                unlock_slow(parts, tuning);
            }
            return;
        }
        if now == OPEN {
            break;
        }
        // Read this now: after the turn the node may be another thread's.
        // ORDERING: Acquire, pairs with [link].
        let next = node.next(Acquire);
        if let Ok(gate) = node.turn(now, LEFT) {
            parts.mood.fetch_sub(mood::WAITER, Relaxed); // hints, both
            parts.mood.fetch_and(!mood::NAPPING, Relaxed);
            if gate & BEHIND != 0 {
                // ORDERING: as above, pairs with [link].
                wake(if next.is_null() { node.next(Acquire) } else { next });
            }
            pass_on::<P>(parts.word); // a wake there may have been meant for us
            // Did glibc's code leave the line behind, with nobody in it to notice? Then we clear it away.
            if parts.word.load(Relaxed) == FREE && take_as::<P>(parts.word, HELD) {
                meet_left_behind(&parts, tuning.era);
                // ORDERING: Release, pairs with every Acquire that takes the word.
                // SURVIVES: we did nothing; as an RMW it carries on what the last holder has released.
                if parts.word.compare_exchange(HELD, FREE, Release, Relaxed).is_err() {
                    unlock_slow(parts, tuning);
                }
            }
            return;
        }
    }
    parts.mood.fetch_sub(mood::WAITER, Relaxed); // as above
    parts.mood.fetch_and(!mood::NAPPING, Relaxed);
    if let Some(head) =
        open_next(&parts, from_ref(node).cast_mut(), node, Pace::default(), tuning.era)
    {
        // We don't hold the lock, so we can't move the new head to the word: it has to wake and look.
        P::unpark(&raw const head.gate, 1);
    }
    pass_on::<P>(parts.word); // as above
}

/// Wakes the waiter that sleeps behind one that has left, so that it tells the one before that instead.
fn wake<P: Machine>(mut next: *mut Waiter<P>) {
    while !next.is_null() {
        // SAFETY: linked once, and still readable. If it is another thread's by now, that thread wakes in vain.
        let waiter = unsafe { &*next };
        if waiter.turn(ASLEEP, WAITING).is_ok() {
            return P::unpark(&raw const waiter.gate, 1);
        }
        if state(waiter.gate.load(Relaxed)) != LEFT {
            return;
        }
        // ORDERING: Acquire, pairs with [link].
        next = waiter.next(Acquire);
    }
}
