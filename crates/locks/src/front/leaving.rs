//! Takes a thread that was torn out of its wait out of the line, by what its seat has noted (seat.rs).

use super::choice::Choice;
use super::grant::{self, WAKES, pass_the_dead};
use super::line::View;
use super::near;
use super::seat::{Seat, Stage};
use super::waiter::{
    CHOOSING, ENDED, GRANTED, LEFT, OPEN, Pace, WAITING, Waiter, give_back, state,
};
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed};
use lockwright_platform::{Machine, Word};

impl<P: Machine> Seat<P> {
    /// The calling thread's wait doesn't go on: takes it out, from wherever it was torn away. `true`: it holds the lock, by no node, and
    /// must release it. Otherwise another thread does, or nobody. It doesn't wait for the lock.
    ///
    /// # Safety
    /// The seat is the calling thread's own, of a wait for this lock, and is not used any more.
    #[cold]
    pub unsafe fn leave(&self, line: &View<'_, P>) -> bool {
        if self.contends.get() {
            line.count_out();
        }
        // SAFETY: noted by `has_left`; nodes stay readable.
        if let Some(head) = unsafe { self.head.get().as_ref() } {
            // It has been moved to the word, or not yet.
            line.parts.word.owe_wake();
            P::unpark(&raw const head.gate, 1);
        }
        let stage = self.stage.get();
        let holds = matches!(stage, Stage::Holds | Stage::Leaves);
        // SAFETY: as above; our own.
        let Some(node) = (unsafe { self.node.get().as_ref() }) else {
            if !holds {
                line.parts.word.pass_on(); // a wake there may have been meant for us
            }
            return holds;
        };
        if stage == Stage::Joins && !joined(line, node) {
            // SAFETY: it is in no line and behind no door, so nobody knows it.
            unsafe { give_back(from_ref(node).cast_mut(), null_mut()) };
            line.parts.word.pass_on();
            return false;
        }
        // SAFETY: on our own stack, below the frames that are torn away.
        if let Some(choice) = unsafe { self.choice.get().cast::<Choice<P>>().as_ref() } {
            let now = state(node.gate.load(Relaxed)); // others make it only OPEN
            if [CHOOSING, OPEN].contains(&now) {
                // SAFETY: we may choose, since nobody has let others choose; and a choice that was made may be made again.
                unsafe { choice.take_effect(node) };
                let _ = node.turn(CHOOSING, WAITING);
            }
        }
        near::finish(line, node, self.door.get());
        if holds && state(node.gate.load(Relaxed)) != GRANTED {
            return retires(line, node, stage == Stage::Leaves);
        }
        // It may have been torn away between making a sleeper WAITING and waking it.
        // ORDERING: Acquire, pairs with [link].
        wake_all(node.next(Acquire));
        if line.leave(node, || near::end(line, node, false)) {
            return false;
        }
        !grant::hand_on_or_leave(line, node)
    }
}

/// Has this node of the calling thread joined the line? If so, completes that.
fn joined<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) -> bool {
    // In this order: those behind a door are moved into the line before they leave the door.
    if near::follows(line, node) {
        return true;
    }
    if !node.is_known() && !line.contains(node) {
        return false;
    }
    // ORDERING: Acquire, pairs with [predecessor].
    // SAFETY: it was in the line before us, and stays readable.
    let Some(before) = (unsafe { node.before(Acquire).as_ref() }) else {
        if state(node.gate.load(Relaxed)) == WAITING {
            node.open(); // nobody is before us
        }
        return true;
    };
    // Somebody may wait for this link. Not linked, nobody passes us the lock; so if our gate still says WAITING after we found no link, there
    // is none.
    // ORDERING: Acquire, pairs with [link].
    let is_linked = !before.next(Acquire).is_null();
    // ORDERING: Acquire, pairs with [turn].
    if !is_linked && state(node.gate.load(Acquire)) == WAITING {
        before.set_next(from_ref(node).cast_mut());
    }
    true
}

/// The calling thread has the lock, as head with this node: leaves the line, or has done so (`is_leaving`: maybe).
fn retires<P: Machine>(line: &View<'_, P>, node: &Waiter<P>, is_leaving: bool) -> bool {
    pass_the_dead(line, node);
    let me = from_ref(node).cast_mut();
    if is_leaving && let Some(until) = has_left(line, node) {
        // SAFETY: they are in no line any more, and nobody but us, who passed them, gives them back.
        unsafe { give_back(me, until) };
        return true;
    }
    line.note_length(node, 1);
    // Maybe it is open already, and asleep at its gate.
    if let Some((head, _)) = line.open_behind(me, node, Pace::default()) {
        P::unpark(&raw const head.gate, 1);
    }
    true
}

/// Has the calling thread, which has the lock and began to leave the line with this node, left an empty line, or one whose next head is
/// gone, too? Then the waiter up to which the nodes are the caller's; null: all.
fn has_left<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) -> Option<*mut Waiter<P>> {
    let mut last = node;
    loop {
        // ORDERING: Acquire, pairs with [link].
        // SAFETY: linked once, and still readable.
        let Some(next) = (unsafe { last.next(Acquire).as_ref() }) else {
            let is_empty = !line.ends_with(last) && line.behind(last).is_none();
            return is_empty.then_some(null_mut());
        };
        let found = Some(from_ref(next).cast_mut());
        // ORDERING: Acquire, pairs with [predecessor].
        if !core::ptr::eq(next.before(Acquire), last) {
            return found; // opened by us, it has left since, and is in another line
        }
        match state(next.gate.load(Relaxed)) {
            LEFT => last = next,
            ENDED => return found,
            _ => return None,
        }
    }
}

/// Wakes this waiter, and some behind it, whether they sleep or not.
fn wake_all<P: Machine>(mut next: *mut Waiter<P>) {
    for _ in 0..WAKES {
        // SAFETY: linked once, and still readable. If it is another thread's by now, that thread wakes in vain.
        let Some(waiter) = (unsafe { next.as_ref() }) else { return };
        P::unpark(&raw const waiter.gate, 1);
        next = waiter.next(Acquire); // ORDERING: Acquire, pairs with [link].
    }
}
