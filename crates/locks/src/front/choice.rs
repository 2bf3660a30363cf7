//! The choice of who is next, for rules that have one.

use super::waiter::{BEHIND, WAITING, Waiter, state};
use super::{Note, Rule, View};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Platform, Word};

/// Waiters that a rule may choose from, and the head's successor itself, at most.
const CHOICE: usize = 16;

/// Lets the rule choose among those behind `node`, a head that waits for the lock, and moves its choice to the front of the
/// line.
pub(super) fn choose<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) {
    let mut waiters = [core::ptr::null_mut::<Waiter<P>>(); CHOICE];
    let mut notes = [Note::default(); CHOICE];
    // ORDERING: Acquire, pairs with [link].
    let (mut count, mut at) = (0, node.next(Acquire));
    while count < CHOICE.min(1 + R::AHEAD) && !at.is_null() {
        // SAFETY: linked, and behind the head, which is the caller: it stays.
        let waiter = unsafe { &*at };
        // ORDERING: Acquire, pairs with [link].
        let behind = waiter.next(Acquire);
        if count > 0 && behind.is_null() {
            break; // the last may be about to be followed, and stays last
        }
        (waiters[count], notes[count]) = (at, waiter.note);
        count += 1;
        if waiter.passed.load(Relaxed) >= lock.tuning.bypass {
            break; // nobody goes past that one any more
        }
        at = behind;
    }
    if count == 0 {
        return;
    }
    let chosen = R::next(lock, &notes[..count]);
    if chosen == 0 || chosen >= count {
        return;
    }
    let (first, last, next) = (waiters[0], waiters[chosen - 1], waiters[chosen]);
    // SAFETY: as above; nobody else writes these links.
    unsafe {
        for &passed in &waiters[..chosen] {
            (*passed).passed.fetch_add(1, Relaxed); // a count
        }
        let behind = (*next).next(Relaxed); // not null, seen above with Acquire
        (*last).link(behind);
        (*next).link(first);
        node.link(next);
        // One that sleeps has told the one that was before it. One that falls asleep after this step tells the one that is before it now.
        // ORDERING: AcqRel. Acquire pairs with [turn], of one that fell asleep; Release with its Acquire, of one that is about to.
        let sleeps = |waiter: *mut Waiter<P>| state((*waiter).gate.fetch_or(0, AcqRel)) != WAITING;
        if [next, first, behind].map(sleeps).contains(&true) {
            // Or one before it has left, and it has told another: so all of them wake those behind them before they stay (`stay`).
            for &waiter in &waiters[..count] {
                (*waiter).gate.fetch_or(BEHIND, Relaxed); // published by the word, to whom it matters
            }
            node.gate.fetch_or(BEHIND, Relaxed); // as above
        }
    }
}
