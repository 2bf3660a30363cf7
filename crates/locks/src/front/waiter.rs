//! A waiter's place in the line: a node, and what its gate says.
//!
//! ```text
//!   WAITING ◄─► ASLEEP      not first                        │ BEHIND: the one behind it sleeps, or is about to
//!      │  ▲
//!      ▼  │ ◄─► CHOOSING    first or second behind one that was granted the lock; changes who follows it (choice.rs)
//!      └────┬────┴─► OPEN        competes for the word: opened by the one before it, which has left
//!           ├──────► PROMOTED    competes for the word: by itself, since the one before it had the lock; then maybe OPEN
//!           ├──────► GRANTED     has the lock, and is still in the line (grant.rs)
//!           ├──────► LEFT        was torn out of its wait (leaving.rs)
//!           └ GRANTED ─► ENDED   its node has been given back
//! ```
//!
//! Nodes lie in memory that stays readable (`Platform::take_line`), so a late look at one that has ended does no harm. At worst it
//! sets BEHIND where nobody sleeps, which slows down one hand-over. A waiter that looks at the one before it, to act on what it sees,
//! then changes its own gate, from WAITING or ASLEEP. That succeeds only while the one before it is still there.

use super::choice::MOST_CHOOSERS;
use super::pace::{Pace, TICK};
use super::{BYPASS_MAX, CHAINED, Note, PROMISED, Parts, SOMEBODY, WAITED, description};
use core::ptr::from_ref;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Ordering, Ptr, Word, hooks};

/// The number of eras that a tagged address can tell apart; nodes are aligned to this.
pub(super) const ERAS: usize = 64;

/// Awake, and not head.
pub(crate) const WAITING: u32 = 0;
/// About to sleep at its gate, or asleep there.
pub(crate) const ASLEEP: u32 = 1;
/// Head: nobody is before it.
pub(super) const OPEN: u32 = 2;
/// Head: those before it are still in the line, and have had the lock.
pub(crate) const PROMOTED: u32 = 3;
/// It has the lock, or had it until the lock was released by code that knows nothing of the line.
pub(crate) const GRANTED: u32 = 4;
/// It is no longer a waiter; a thread that passes it gives its node back.
pub(super) const LEFT: u32 = 5;

/// A thread that has joined behind another links the two nodes within this time, or has lost its CPU, ns.
const LINK_NS: u64 = 1_000_000;

/// Awake, not head, and about to change who follows it: nobody grants it the lock meanwhile. It may be made head.
pub(super) const CHOOSING: u32 = 7;

/// In `passed`, a value between this and [`PASSED`]: the waiter before it chooses no more, and lets it choose who follows it. The
/// difference is the number of waiters, from this one on, that may choose.
const MAY: u32 = PASSED - 16;

/// In `passed`: it has let the one behind it choose.
const PASSED: u32 = u32::MAX;

/// It has left the line, and the node has no owner.
const ENDED: u32 = 6;

/// In a gate: the one behind sleeps, or is about to.
pub(super) const BEHIND: u32 = 8;

/// In a GRANTED gate: one grant since a holder last looked at the mutex (5 bits).
pub(super) const GRANT: u32 = 32;

/// The waiter's state, by its gate.
pub(crate) fn state(gate: u32) -> u32 {
    gate & (BEHIND - 1)
}

/// Grants since a holder last looked at the mutex.
pub(super) fn grants(gate: u32) -> u32 {
    gate % TICK / GRANT
}

/// One waiter's place in the line.
#[repr(align(64))]
pub struct Waiter<P: Machine> {
    pub(crate) gate: P::Word,
    /// How often a choice let others past it; or a value above [`MAY`], or [`PASSED`]. Written by threads that choose who follows them.
    pub(super) passed: P::Word,
    /// A [`Pace`], written before its gate is.
    pace: P::Word,
    /// The next waiter; null: none.
    pub(super) next: P::Ptr<Waiter<P>>,
    /// The waiter before it. Written by itself before it is linked, and by threads that choose a successor.
    pub(super) before: P::Ptr<Waiter<P>>,
    /// The lock that it waits for: the address of its word.
    pub(super) of: P::Ptr<P::Word>,
    /// The thread that waits, see [`Parts::by`](super::Parts::by).
    by: P::Ptr<()>,
    /// That thread's id.
    pub(super) thread: P::Word,
    pub(super) note: Note,
}

impl<P: Machine> Waiter<P> {
    /// A node, for a thread that waits for the lock in these parts.
    pub(crate) fn take<'a>(
        parts: &Parts<'_, P>,
        note: Note,
        own: Option<&hooks::Node>,
    ) -> &'a Self {
        const { assert!(size_of::<Self>() <= P::LINE) }
        const { assert!(BYPASS_MAX < MAY && MAY + MOST_CHOOSERS < PASSED) } // counts and permits share `passed`
        let line = P::take_line();
        let (new, none) = (P::Word::new, core::ptr::null_mut());
        let node: *mut Self = line.cast();
        // SAFETY: a fresh line, large and aligned enough, and ours alone. It stays readable.
        unsafe {
            node.write(Self {
                gate: new(WAITING),
                passed: new(0),
                pace: new(0),
                next: P::Ptr::new(none),
                before: P::Ptr::new(none),
                of: P::Ptr::new(from_ref(parts.word).cast_mut()),
                by: P::Ptr::new(parts.by.cast_mut()),
                thread: new(parts.thread),
                note,
            });
            if let Some(own) = own {
                description::write(node, own);
            }
            &*node
        }
    }

    /// The policy that must learn of a release by this node; 0: none.
    pub(crate) fn tells(&self) -> u8 {
        self.note.tells
    }

    /// How many waiters have been moved past it; 0 if it may choose by now.
    pub(super) fn passes(&self) -> u32 {
        match self.passed.load(Relaxed) {
            now if now <= MAY => now,
            _ => 0,
        }
    }

    /// How long the grants before it took, if it became head after some.
    pub(super) fn pace(&self) -> Pace {
        Pace::from_word(self.pace.load(Relaxed)) // a hint
    }

    /// Tells it that.
    pub(super) fn set_pace(&self, pace: Pace) {
        self.pace.store(pace.to_word(), Relaxed);
    }

    /// How many waiters, from this one on, may choose who follows them, as far as the waiter before it has said.
    pub(super) fn may_choose(&self) -> u32 {
        // ORDERING: Acquire, pairs with [pass]: every edit of the line before this is known.
        // SURVIVES: it takes six threads, and more schedules than are drawn.
        match self.passed.load(Acquire) {
            PASSED => 0,
            now => now.saturating_sub(MAY),
        }
    }

    /// Has it let the one behind it choose?
    pub(super) fn has_passed_the_choice(&self) -> bool {
        self.passed.load(Relaxed) == PASSED // its own
    }

    /// Called by the node's own thread. From now on the next waiter, and `count - 1` behind that one, may choose, and the caller no
    /// longer may. `false`: nobody is behind it.
    pub(super) fn pass_the_choice(&self, count: u32) -> bool {
        // ORDERING: Acquire, pairs with [link].
        let Some(next) = core::ptr::NonNull::new(self.next(Acquire)) else { return false };
        self.passed.store(PASSED, Relaxed); // its own
        // SAFETY: linked behind the caller, which stays.
        let theirs = unsafe { &next.as_ref().passed };
        let now = theirs.load(Relaxed); // the exchange checks it again
        if now != PASSED {
            // [pass] ORDERING: Release, pairs with the Acquire of `may_choose`. It fails if that one is first by now, and has passed the choice on.
            // SURVIVES: as there.
            // SURVIVES no-store: then that one chooses once it is first.
            let _ = theirs.compare_exchange(now, MAY + count, Release, Relaxed);
        }
        true
    }

    /// The waiter behind it; null: none, or none linked yet.
    pub(super) fn next(&self, order: Ordering) -> *mut Self {
        self.next.load(order)
    }

    /// Does `by` hold the lock with this word, by this node? No, if the node belongs to another thread by now.
    pub(crate) fn is_held(&self, word: &P::Word, by: *const ()) -> bool {
        self.is_by(by) && core::ptr::eq(self.of.load(Relaxed), word)
    }

    /// Does `by` hold some lock by this node?
    pub(crate) fn is_by(&self, by: *const ()) -> bool {
        // ORDERING: Acquire, pairs with [turn] and [stay]: if it is another thread's by now, we see whose.
        // SURVIVES: needs a node that is used again, and explorations use each once.
        state(self.gate.load(Acquire)) == GRANTED && core::ptr::eq(self.by.load(Relaxed), by)
    }

    /// Links `next` behind this node.
    pub(super) fn link(&self, next: *mut Self) {
        // SAFETY: in the line, or about to be, as this one.
        unsafe { (*next).set_before(self) };
        self.set_next(next);
    }

    /// Records which node is before it.
    pub(super) fn set_before(&self, before: &Self) {
        // [before] ORDERING: Release, pairs with the Acquires of `ask_before`: after a choice that node may be new to it.
        // SURVIVES: where no rule chooses, waiters know the node by [join].
        self.before.store(from_ref(before).cast_mut(), Release);
    }

    /// Records which node is behind it.
    pub(super) fn set_next(&self, next: *mut Self) {
        // [link] ORDERING: Release, pairs with the Acquires that read a `next`: a node's gate is initialized before it is linked.
        self.next.store(next, Release);
    }

    /// Its gate says GRANTED: is it still in the line that ends with `last`? The program may have reused the memory for another
    /// mutex without releasing this one. Then the caller holds the new mutex by the word. If in doubt the answer is no: releasing
    /// by the word is right, too.
    pub(super) fn is_still_in(&self, parts: &Parts<'_, P>, last: *mut Self) -> bool {
        if last.is_null() || ![CHAINED, WAITED, PROMISED].contains(&parts.word.load(Relaxed)) {
            return false;
        }
        let start = P::now();
        // Somebody has joined, and will link its node in a moment.
        while !core::ptr::eq(last, self) && self.next.load(Relaxed).is_null() {
            if P::now().saturating_sub(start) > LINK_NS {
                return false;
            }
            P::pause(LINK_NS as u32 / 100);
        }
        true
    }

    /// It is about to sleep on the word, behind one that is GRANTED the lock. Writes the holder into the mutex, so that one can debug
    /// a program that hangs. (Nobody can be granted the lock past it. Unlock writes 0 after this, or finds what this wrote.)
    pub(super) fn tell_whose(&self, parts: &Parts<'_, P>) {
        let Some(owner) = parts.owner else { return };
        if owner.load(Relaxed) == SOMEBODY {
            // SAFETY: in the line, before us: it stays until we are OPEN, and readable.
            let holder = unsafe { &*self.first_of_the_dead() };
            // Relaxed: read by debuggers.
            let _ = owner.compare_exchange(SOMEBODY, holder.thread.load(Relaxed), Relaxed, Relaxed);
        }
    }

    /// Changes the gate's state from `from` to `to`, and keeps BEHIND. `Ok`: the gate as it was. `Err`: the gate as it is.
    pub(crate) fn turn(&self, from: u32, to: u32) -> Result<u32, u32> {
        let mut now = from;
        loop {
            // [turn] ORDERING: Release pairs with the Acquires of gates: it publishes what the last holder wrote, if this
            // says GRANTED. Acquire, pairs with [tell]: a thread that leaves must not find an old gate behind it. Relaxed on
            // failure: the gate is looked at again.
            // SURVIVES: Acquire, on paper only: what is explored here never fails on an old gate.
            match self.gate.compare_exchange(now, (now & BEHIND) | to, AcqRel, Relaxed) {
                Err(other) if other != now && state(other) == from => now = other,
                result => return result,
            }
        }
    }

    /// Makes it head, if it has not left; returns its state before that.
    pub(super) fn open(&self) -> u32 {
        let mut now = WAITING;
        loop {
            match state(now) {
                LEFT | OPEN => return state(now),
                from => match self.turn(from, OPEN) {
                    Ok(_) => return from,
                    Err(other) => now = other,
                },
            }
        }
    }
}

/// Gives nodes back, from `first` up to, but without, `until`.
///
/// # Safety
/// Nobody can reach them through the line any more.
pub(super) unsafe fn give_back<P: Machine>(mut first: *mut Waiter<P>, until: *mut Waiter<P>) {
    while first != until {
        // SAFETY: the caller's promise. The nodes' other fields stay as they are, for late looks.
        unsafe {
            // ORDERING: Acquire, pairs with [link].
            let next = (*first).next(Acquire);
            // So a thread that no longer holds the lock by this node, and doesn't know that, finds out. (See `is_held`.)
            (*first).gate.store(ENDED, Relaxed);
            P::give_line(first.cast());
            first = next;
        }
    }
}
