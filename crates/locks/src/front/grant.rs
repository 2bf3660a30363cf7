//! Hand-over: who is next, and how it learns that.
//!
//! A holder may stay in the line, and grant the lock to the next waiter when it unlocks: by that waiter's own gate, as MCS
//! does, while word 0 stays held. So long as grants follow each other, they are a *chain*. The mutex knows where it is:
//!
//! ```text
//!   word 0 = 3   chain = number of H, era
//!   H (GRANTED) ─► S (WAITING, awake) ─► ... ◄─ tail      H has the lock
//!   H unlocks:  chain := S, S.gate := GRANTED, H's node is given back
//! ```
//!
//! All that unlock needs is on the mutex's line and in H's node, so it may be any thread's. Each step is the holder's; only gates
//! are changed by others, too.
//!
//! Invariants:
//! 1. `chain` is written by the holder of the lock, and read by whoever releases it. If it names a node, that is GRANTED, and
//!    the first of the line; those behind it are WAITING, ASLEEP or LEFT, but for the first of them that is not LEFT, which may be PROMOTED.
//! 2. Nobody sleeps at its gate behind a GRANTED one that does not know ([`BEHIND`]): who falls asleep tells the one before it by a
//!    step on that one's gate, and learns by the same step if it need not. Who is GRANTED, and told, leaves the line at once, and
//!    makes the next one head, on word 0.
//! 3. A lock that is released by code that knows of no chain leaves it behind: word 0 free, H GRANTED. The next waiter sees
//!    that by itself, now and then and before it sleeps (`is_first`), and competes for the word (PROMOTED). Whoever has the lock
//!    then, and comes by here, gives the dead nodes back.
//! 4. Whoever sleeps on the word makes it 2, and that ends the chain: unlock frees the word.

use super::choice::choose;
use super::line::{note_length, successor};
use super::waiter::{ASLEEP, BEHIND, GRANTED, LEFT, OPEN, PROMOTED, WAITING};
use super::waiter::{ERAS, Waiter, give_back, in_chain, state};
use super::{CHAINED, FREE, HELD, Parts, Rule, View, batch, mood, owe_wake};
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{Relaxed, Release};
use lockwright_platform::{Platform, Word};

/// The chain's first node; null: there is none, or it is from before a fork. The caller holds the lock.
fn first_of<P: Platform>(parts: &Parts<'_, P>, era: usize) -> *mut Waiter<P> {
    // Relaxed: written under the lock.
    let at = parts.chain.map_or(0, |chain| chain.load(Relaxed));
    if at == 0 || at as usize % ERAS != era {
        null_mut()
    } else {
        P::line_at(at / ERAS as u32).cast()
    }
}

/// Somebody has the lock who is not in the line, and perhaps meets a chain that was left behind: then its unlock gives the dead
/// nodes back.
pub(crate) fn meet_left_behind<P: Platform>(parts: &Parts<'_, P>) {
    if parts.chain.is_some_and(|chain| chain.load(Relaxed) != 0) {
        // STATE: (1, q, s) -> (3, q, s). Relaxed: we hold it. It may be 2.
        let _ = parts.word.compare_exchange(HELD, CHAINED, Relaxed, Relaxed);
    }
}

/// There is no chain any more; word 0 says so, too, unless somebody sleeps there.
fn end<P: Platform>(parts: &Parts<'_, P>) {
    let Some(chain) = parts.chain else { return };
    if chain.load(Relaxed) != 0 {
        chain.store(0, Relaxed); // read under the lock
    }
    if parts.word.load(Relaxed) == CHAINED {
        // STATE: (3, q, s) -> (1, q, s). Relaxed: we hold it. It may have become 2.
        let _ = parts.word.compare_exchange(CHAINED, HELD, Relaxed, Relaxed);
    }
}

/// The head, or who was granted the lock, has it: `gate`. Stays in the line if that may end in a grant, or leaves it.
pub(super) fn settle<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>, gate: u32) {
    let (parts, era) = (&lock.parts, lock.tuning.era);
    // Whoever granted it the lock has written its number. With nobody behind it, it would stay for nothing.
    if gate == GRANTED && node.next.load(Relaxed) != 0 {
        return;
    }
    debug_assert!(parts.word.load(Relaxed) != FREE, "only the holder comes here");
    let me = from_ref(node).cast_mut();
    let mut first = first_of(parts, era);
    if first.is_null() {
        first = me;
    } else if first != me {
        parts.mood.fetch_sub(mood::WAITER, Relaxed); // a hint: that one has not left by itself
    }
    if R::GRANTS && stay(lock, node) {
        // SAFETY: they are before us, and had the lock; nobody but us, the holder, passes them.
        unsafe { give_back(first, me) };
        return;
    }
    note_length(lock);
    // (Behind one that was granted the lock the next may make itself head at any moment.)
    if R::AHEAD > 0 && state(gate) == OPEN {
        choose::<P, R>(lock, node);
    }
    if let Some(head) = open_next(parts, first, node, era) {
        move_to_word(parts, head);
    }
    end(parts);
}

/// The head has the lock, and stays in the line if the one behind it is awake.
fn stay<P: Platform>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let parts = &lock.parts;
    // Relaxed: at the unlock we look again.
    if parts.chain.is_none()
        || node.next.load(Relaxed) == 0
        || lock.is_crowded()
        || batch::may_stay(lock)
    {
        return false;
    }
    // It must be this very value, without BEHIND.
    // [stay] ORDERING: Release, pairs with `ask_before`: whoever was chosen before us has gone.
    // SURVIVES: it takes a node that is used again, and explorations use each once.
    let stays = |from| node.gate.compare_exchange(from, GRANTED, Release, Relaxed).is_ok();
    if !stays(OPEN) && !stays(PROMOTED) {
        return false;
    }
    // Relaxed: read under the lock.
    parts.chain.inspect(|chain| chain.store(node.in_chain(lock.tuning.era), Relaxed));
    // STATE: (1, q, s) -> (3, q, s). Relaxed: we hold it. It may be 2.
    let _ = parts.word.compare_exchange(HELD, CHAINED, Relaxed, Relaxed);
    true
}

/// Makes the first waiter behind `node` head that has not left, and gives the nodes from `first` on back. That waiter, if it is
/// asleep at its gate.
pub(super) fn open_next<'a, P: Platform>(
    parts: &Parts<'_, P>,
    first: *mut Waiter<P>,
    mut node: &'a Waiter<P>,
    era: usize,
) -> Option<&'a Waiter<P>> {
    let (until, opened) = loop {
        let Some(next) = successor(parts, node, era) else {
            break (null_mut(), None);
        };
        // SAFETY: linked behind a node that is ours to pass.
        let waiter = unsafe { &*next };
        match waiter.open() {
            LEFT => node = waiter,
            was => break (next, (was == ASLEEP).then_some(waiter)),
        }
    };
    // SAFETY: who is head now is behind them, or the line is empty.
    unsafe { give_back(first, until) };
    opened
}

/// Moves a head that sleeps at its gate to the word; the caller holds the lock.
///
/// An acquirer must not spend its critical section on waking: our unlock will, or glibc's. One that isn't asleep yet sees OPEN.
fn move_to_word<P: Platform>(parts: &Parts<'_, P>, head: &Waiter<P>) {
    let gate = &raw const head.gate;
    // Its gate may learn meanwhile that somebody sleeps behind it, once.
    if P::requeue(gate, OPEN, parts.word, 1) == 0 {
        P::requeue(gate, OPEN | BEHIND, parts.word, 1);
    }
    owe_wake(parts);
}

/// The holder unlocks a word that is not 1: grants the lock to the next in the chain, or ends that. `true`: it is another's, or
/// was nobody's: undefined, and harmless as with glibc.
pub(super) fn hand_on<P: Platform>(lock: &View<'_, P>) -> bool {
    let (parts, era) = (&lock.parts, lock.tuning.era);
    // Relaxed, here and below: who makes it 2 after this is served by the next unlock.
    let mut word = parts.word.load(Relaxed);
    let Some(chain) = parts.chain else { return word == FREE };
    let first = first_of(parts, era);
    if word == FREE || first.is_null() {
        if word != FREE && chain.load(Relaxed) != 0 {
            chain.store(0, Relaxed); // from before a fork
        }
        return word == FREE;
    }
    let grants = !note_length(lock) && !batch::may_stay(lock);
    // SAFETY: the chain's first node is in the line until the holder passes it, which is us.
    let mut node = unsafe { &*first };
    while grants && word == CHAINED {
        let Some(next) = successor(parts, node, era) else {
            // SAFETY: the line is empty.
            unsafe { give_back(first, null_mut()) };
            chain.store(0, Relaxed); // read under the lock
            return false;
        };
        // SAFETY: linked behind a node that is ours to pass.
        let waiter = unsafe { &*next };
        // Before the gate: from then on the mutex is another's. Relaxed: published by it. (Its line is ours at the moment.)
        chain.store(in_chain(node.next.load(Relaxed), era), Relaxed);
        // [grant] STATE: (3, q, s) stays; its holder changes.
        match waiter.turn(WAITING, GRANTED) {
            Ok(_) => {
                // SAFETY: they are before the holder. Nobody else looks at them.
                unsafe { give_back(first, next) };
                return true;
            }
            Err(gate) => {
                if state(gate) != LEFT {
                    break;
                }
                node = waiter;
                word = parts.word.load(Relaxed);
            }
        }
    }
    if let Some(head) = open_next(parts, first, node, era) {
        move_to_word(parts, head);
    }
    chain.store(0, Relaxed); // read under the lock
    false
}
