//! What a waiter learns from the waiters before it: whether it is first, who holds the lock, and that it sleeps.

use super::waiter::{BEHIND, GRANTED, LEFT, Waiter, state};
use core::ptr::from_ref;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Machine, Ptr, Word};

/// A waiter looks for the holder among this many before it.
const FARTHEST: u32 = 64;

impl<P: Machine> Waiter<P> {
    /// The id of the thread that holds the lock with this word by a node before this one; 0: none, or too far away. A hint: lines move on,
    /// and nodes are used again.
    pub(super) fn holder_before(&self, word: &P::Word) -> u32 {
        let mut at = self;
        for _ in 0..FARTHEST {
            // ORDERING: Acquire, pairs with [before].
            // SURVIVES: the answer is a hint, and few schedules ask this.
            let before = at.before.load(Acquire);
            // SAFETY: it was in a line, and is still readable.
            let Some(before) = (unsafe { before.as_ref() }) else { return 0 };
            if !core::ptr::eq(before.of.load(Relaxed), word) {
                return 0;
            }
            // Relaxed: as above.
            if state(before.gate.load(Relaxed)) == GRANTED {
                return before.thread.load(Relaxed);
            }
            at = before;
        }
        0
    }

    /// The first of the nodes, up to this one, that are in the line and wait for nothing: they had the lock, or left behind a node
    /// that had it.
    pub(super) fn first_of_the_dead(&self) -> *mut Self {
        let mut first = from_ref(self).cast_mut();
        loop {
            // SAFETY: in the line, as this one; or it has ended, and is still readable.
            // Relaxed: the caller has already looked with Acquire.
            let (now, before) =
                unsafe { ((*first).gate.load(Relaxed), (*first).before.load(Relaxed)) };
            if state(now) == GRANTED || before.is_null() {
                return first;
            }
            // SAFETY: as above.
            match state(unsafe { (*before).gate.load(Relaxed) }) {
                LEFT | GRANTED => first = before,
                _ => return first,
            }
        }
    }

    /// Has the one before it got the lock, now or earlier? Then this one is first.
    pub(super) fn is_first(&self) -> bool {
        // ORDERING: Acquire, pairs with [turn] and [stay]: a choice that came before them is visible.
        // SURVIVES: as in `had_the_lock`, or needs a node that is used again, and explorations use each once.
        self.ask_before(|gate| gate.load(Acquire))
    }

    /// Has it had the lock, and is it still in the line? If it has left, the question goes to those before it.
    pub(super) fn had_the_lock(&self) -> bool {
        // ORDERING: Acquire, as above: if it has left, its `before` is visible.
        // SURVIVES: few schedules read a link that old, of one torn out of a line that glibc's code left behind.
        match state(self.gate.load(Acquire)) {
            LEFT => self.is_first(),
            now => now == GRANTED,
        }
    }

    /// Tells the one before it that it sleeps (its own gate says so already). `true`: it need not sleep, since it is first.
    pub(crate) fn tell_before(&self) -> bool {
        // [tell] ORDERING: AcqRel: Release pairs with [turn], of a waiter that leaves: it sees that we are ASLEEP. Acquire, as above.
        // SURVIVES: as above, both.
        self.ask_before(|gate| gate.fetch_or(BEHIND, AcqRel))
    }

    fn ask_before(&self, ask: impl Fn(&P::Word) -> u32) -> bool {
        // ORDERING: Acquire, pairs with [before]. SURVIVES: as [before].
        let mut before = self.before.load(Acquire);
        while !before.is_null() {
            // SAFETY: it is in the line as long as our own gate does not change, and after that it is still readable.
            let waiter = unsafe { &*before };
            match state(ask(&waiter.gate)) {
                // ORDERING: Acquire, pairs with [before]. SURVIVES: as [before].
                LEFT => before = waiter.before.load(Acquire),
                // Meanwhile a choice may have put somebody else before us, or before one that left. So we check again.
                now => return now == GRANTED && self.is_behind(waiter),
            }
        }
        false // the one before us has ended, and our gate has changed
    }

    /// Does `first`, whose gate the caller has read with Acquire, still come right before this one, not counting nodes that left?
    fn is_behind(&self, first: &Self) -> bool {
        // Relaxed, all: a holder's choices were written before its gate said GRANTED, and a thread that chooses later isn't before us.
        let mut before = self.before.load(Relaxed);
        while !before.is_null() && !core::ptr::eq(before, first) {
            // SAFETY: as in `ask_before`.
            let waiter = unsafe { &*before };
            if state(waiter.gate.load(Relaxed)) != LEFT {
                return false;
            }
            before = waiter.before.load(Relaxed);
        }
        !before.is_null()
    }
}
