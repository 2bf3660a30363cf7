//! Hand-over: who is next, and how it learns that.
//!
//! A holder may stay in the line, and grant the lock to the next waiter when it unlocks: by that waiter's own gate, as in
//! MCS, while word 0 stays held. Such a holder knows its own node, and unlocks by it. Neither it nor its successor
//! touches the mutex, for whose cache line arrivals compete. Consecutive grants form a *chain*:
//!
//! ```text
//!   word 0 = 3
//!   H (GRANTED) ─► S (WAITING, awake) ─► ... ◄─ tail      H has the lock, and H's thread knows that (posix/held.rs)
//!   H unlocks:  S.gate := GRANTED, H's node is given back;  after LOOKS_EACH grants it looks at the mutex first
//! ```
//!
//! Invariants:
//! 1. Of the nodes in the line that are GRANTED, at most one has the lock. Those before it do nothing any more. Those
//!    behind it are WAITING, ASLEEP or LEFT; the first of them that is not LEFT may be PROMOTED.
//! 2. Nobody sleeps at its gate behind a GRANTED node that doesn't know it ([`BEHIND`]). A waiter that falls asleep tells
//!    the one before it by an atomic step on that one's gate, and the same step tells the waiter if it need not sleep. A
//!    GRANTED holder that has been told wakes the sleeper, or leaves the line at once and makes the sleeper head, on word 0.
//! 3. Code that knows nothing of chains may release the lock and leave the chain behind: word 0 free, H GRANTED. The next
//!    waiter checks for that now and then, and before it sleeps (`is_first`). Then it competes for the word (PROMOTED). If
//!    the line has only dead nodes, the next thread that takes the word clears them away.
//! 4. A thread that sleeps on the word makes it 2, and the chain ends within LOOKS_EACH grants: unlock frees the word.

use super::SOMEBODY;
use super::choice::{choose_behind, chooses};
use super::line::{note_length, successor};
use super::pace::{Pace, is_sliced, sliced};
use super::waiter::{ASLEEP, BEHIND, CHOOSING, GRANTED, LEFT, OPEN, PROMOTED, WAITING};
use super::waiter::{GRANT, Waiter, give_back, grants, state};
use super::{CHAINED, FREE, HELD, Parts, Rule, View, batch, mood, owe_wake, side};
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Ptr, Word};

/// After this many grants the holder looks at the mutex: does anybody sleep on the word? Do waiters outnumber the CPUs?
pub(super) const LOOKS_EACH: u32 = 16;

/// How many waiters behind a node are woken at a time.
const WAKES: usize = 16;

/// A waiter that chooses who follows it has done so after this time, or has lost its CPU, ns. (A holder may wait for it twice:
/// to grant it the lock, and again after its look at the mutex.)
const CHOICE_NS: u32 = 1_000;

/// A holder reads the clock at the first of this many grants, if the lock's rule cares.
const ASKS_EACH: u32 = 4;

/// There is no chain any more: makes word 0 say so, unless somebody sleeps there.
fn end<P: Machine>(parts: &Parts<'_, P>) {
    if parts.word.load(Relaxed) == CHAINED {
        // STATE: (3, q, s) -> (1, q, s). Relaxed: we hold it. It may have become 2.
        let _ = parts.word.compare_exchange(CHAINED, HELD, Relaxed, Relaxed);
    }
}

/// The caller has the lock, as head or by a grant: `gate` says which. It stays in the line if it may grant the lock later;
/// otherwise it leaves. `true`: it stays, and unlocks by its node.
pub(super) fn settle<P: Machine, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    gate: u32,
) -> bool {
    let (parts, era) = (&lock.parts, lock.tuning.era);
    debug_assert!(parts.word.load(Relaxed) != FREE, "only the holder comes here");
    let me = from_ref(node).cast_mut();
    if state(gate) == GRANTED {
        if gate & BEHIND == 0 || !lock.is_crowded() && wake_behind(node) {
            return true;
        }
        forget_granted(parts, gate);
    } else {
        if state(gate) == PROMOTED {
            let first = node.first_of_the_dead();
            if first != me {
                // SAFETY: before us in the line.
                forget_granted(parts, unsafe { (*first).gate.load(Relaxed) });
                parts.mood.fetch_sub(mood::WAITER, Relaxed); // a hint: `first` did not count itself out
                // SAFETY: they are before us, and had the lock; nobody but us, the holder, passes them.
                unsafe { give_back(first, me) };
            }
        }
        if R::grants(lock.tuning) && stay(lock, node) {
            return true;
        }
    }
    note_length(lock);
    // Others may have joined by now. (Behind a node that was granted the lock, the next waiter may make itself head at any moment.)
    if chooses::<P, R>(lock) && state(gate) == OPEN && R::is_worth(lock, node) {
        choose_behind::<P, R>(lock, node);
    }
    batch::leave_to_runner(lock);
    if let Some(head) = open_next(parts, me, node, Pace::default(), era) {
        move_to_word(lock, head);
    }
    end(parts);
    false
}

/// The head has the lock. It stays in the line if the waiter behind it is awake, or can be woken in time.
fn stay<P: Machine>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let parts = &lock.parts;
    // Relaxed: at the unlock we look again.
    if parts.by.is_null() || node.next.load(Relaxed).is_null() || lock.is_crowded() {
        return false;
    }
    if batch::keeps_core(lock, P::now) {
        return false;
    }
    if node.gate.load(Relaxed) & BEHIND != 0 {
        // ORDERING: Acquire, pairs with [tell]: it is linked, and its gate says ASLEEP.
        // EXPLORED: needs an old `next`, and glibc's code to unlock. SURVIVES relaxed: where few schedules grant (`auto`).
        node.gate.fetch_and(!BEHIND, Acquire);
        if !wake_behind(node) {
            return false; // the next one stays asleep until it is head
        }
    }
    // Before the gate says GRANTED: a thread that reads that (Acquire), and sleeps, writes our id here. See `tell_whose`.
    parts.owner.inspect(|owner| owner.store(SOMEBODY, Relaxed));
    let granted = if lock.tuning.budget_ns == 0 { GRANTED } else { sliced(P::now()) };
    // The exchange succeeds only without BEHIND.
    // [stay] ORDERING: Release, pairs with `ask_before`: all that were chosen before us have gone.
    // SURVIVES: it takes a node that is used again, and explorations use each once.
    let stays = |from| node.gate.compare_exchange(from, granted, Release, Relaxed).is_ok();
    if !stays(OPEN) && !stays(PROMOTED) {
        return false;
    }
    let side = parts.side;
    if side.load(Relaxed) & side::BY_NODE == 0 {
        side.fetch_or(side::BY_NODE, Relaxed); // read by its thread, see `posix::holds`
    }
    // STATE: (1, q, s) -> (3, q, s), or it is 2. ORDERING: Release, pairs with the Acquire of `Held::is_surely_held`:
    // no dead node in the line appears to hold the lock.
    // SURVIVES: needs code that knows nothing of chains, and a signal, under the same mutex.
    // SURVIVES no-store: a chain that the word doesn't show ends like one that was left behind, by invariant 3.
    let _ = parts.word.compare_exchange(HELD, CHAINED, Release, Relaxed);
    true
}

/// Wakes the waiters that sleep behind `node`, so that they are awake when the lock reaches them. `false`: the next one won't be.
///
/// It wakes them all at once. A wake takes longer than many sections; one by one, each would hold up the line for that long.
pub(super) fn wake_behind<P: Machine>(node: &Waiter<P>) -> bool {
    let mut next_is_awake = None;
    // ORDERING: Acquire, here and below, pairs with [link].
    let mut next = node.next(Acquire);
    for _ in 0..WAKES {
        if next.is_null() {
            break;
        }
        // SAFETY: linked behind a node that is in the line, or was, and is readable.
        let waiter = unsafe { &*next };
        let now = if waiter.note.parks {
            state(waiter.gate.load(Relaxed)) // a hint, like all of this
        } else {
            match waiter.turn(ASLEEP, WAITING) {
                Ok(_) => {
                    P::unpark(&raw const waiter.gate, 1);
                    WAITING
                }
                Err(gate) => state(gate),
            }
        };
        if now != LEFT {
            next_is_awake = next_is_awake.or(Some([WAITING, CHOOSING].contains(&now)));
        }
        next = waiter.next(Acquire); // ORDERING: as above, pairs with [link].
    }
    next_is_awake == Some(true)
}

/// Makes the first waiter behind `node` that has not left the head, and gives back the nodes from `first` up to it. Returns
/// that waiter if it sleeps at its gate.
pub(super) fn open_next<'a, P: Machine>(
    parts: &Parts<'_, P>,
    first: *mut Waiter<P>,
    mut node: &'a Waiter<P>,
    pace: Pace,
    era: usize,
) -> Option<&'a Waiter<P>> {
    let (until, opened) = loop {
        let Some(next) = successor(parts, node, era) else {
            break (null_mut(), None);
        };
        // SAFETY: linked behind a node that is ours to pass.
        let waiter = unsafe { &*next };
        waiter.set_pace(pace);
        match waiter.open() {
            LEFT => node = waiter,
            was => {
                if was == PROMOTED {
                    batch::has_woken(parts); // it was head already, and has said so
                }
                break (next, (was == ASLEEP).then_some(waiter));
            }
        }
    };
    // SAFETY: the new head is behind them, or the line is empty.
    unsafe { give_back(first, until) };
    opened
}

/// Moves a head that sleeps at its gate to the word; the caller holds the lock.
///
/// A thread that has just acquired must not spend its critical section on a wake: our unlock will wake the head, or glibc's. A
/// head that isn't asleep yet sees OPEN.
fn move_to_word<P: Machine>(lock: &View<'_, P>, head: &Waiter<P>) {
    let (parts, gate) = (&lock.parts, &raw const head.gate);
    if lock.left_ns(&head.note) == Some(0) {
        return P::unpark(gate, 1); // it has waited for long enough: once it is awake, nobody overtakes it
    }
    // Meanwhile somebody may fall asleep behind it and set BEHIND, once.
    if P::requeue(gate, OPEN, parts.word, 1) == 0 {
        P::requeue(gate, OPEN | BEHIND, parts.word, 1);
    }
    owe_wake(parts);
}

/// The threads that were granted the lock since a holder last looked at the mutex are no longer in line: counts them out.
fn forget_granted<P: Machine>(parts: &Parts<'_, P>, gate: u32) {
    let count = grants(gate);
    if count > 0 {
        parts.mood.fetch_sub(mood::WAITER.wrapping_mul(count), Relaxed); // a hint
    }
}

/// Unlock, by a holder that stayed in the line: grants the lock to the next waiter, if that waiter is awake and no look at
/// the mutex is due. `true`: another thread has the lock, and the mutex may be gone.
#[inline]
pub(crate) fn hand_on<P: Machine>(node: &Waiter<P>) -> bool {
    let gate = node.gate.load(Relaxed); // others change only BEHIND
    debug_assert_eq!(state(gate), GRANTED, "only the holder comes here");
    let asks_the_clock = is_sliced(gate) && grants(gate) % ASKS_EACH == 1;
    if grants(gate) >= LOOKS_EACH || asks_the_clock && batch::is_slice(P::now()) {
        return false;
    }
    // ORDERING: Acquire, pairs with [link].
    let next = node.next(Acquire);
    if next.is_null() {
        return false;
    }
    let granted = (gate & !BEHIND) + GRANT;
    // [grant] STATE: (3, q, s) stays; its holder changes.
    // SAFETY: linked behind a node that we may pass.
    let passes = grant(unsafe { &*next }, granted).is_ok();
    if passes {
        // SAFETY: it is before the new holder. Nobody else looks at it.
        unsafe { give_back(from_ref(node).cast_mut(), next) };
    }
    passes
}

/// Grants the lock to a waiter that is awake. `Err`: it isn't; this is its gate.
#[inline]
fn grant<P: Machine>(waiter: &Waiter<P>, granted: u32) -> Result<u32, u32> {
    let answer = waiter.turn(WAITING, granted);
    match answer {
        Err(gate) if state(gate) == CHOOSING => {
            // Relaxed: `turn` checks the gate again.
            P::spin_for(&waiter.gate, Relaxed, CHOICE_NS, |gate| state(gate) != CHOOSING);
            waiter.turn(WAITING, granted)
        }
        _ => answer,
    }
}

/// As [`hand_on`], but with a look at the mutex. `false`: the line has a head, or is empty, and the caller must free the word.
pub(super) fn hand_on_or_leave<P: Machine>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let (parts, era) = (&lock.parts, lock.tuning.era);
    let (gate, first) = (node.gate.load(Relaxed), from_ref(node).cast_mut());
    forget_granted(parts, gate);
    // For debuggers. (The holder that `tell_whose` named may have left since.)
    let owned_by = |whom| {
        parts
            .owner
            .filter(|owner| owner.load(Relaxed) != whom)
            .inspect(|owner| owner.store(whom, Relaxed));
    };
    owned_by(SOMEBODY);
    let (now, pace, granted) = match lock.tuning.budget_ns {
        0 => (0, Pace::default(), GRANTED),
        _ => {
            let now = P::now();
            (now, Pace::of(gate, now), sliced(now))
        }
    };
    let grants = !note_length(lock) && !batch::keeps_core(lock, || now);
    let mut last = node;
    // Relaxed: if a thread makes it 2 after this, a later look serves it.
    while grants && parts.word.load(Relaxed) == CHAINED {
        let Some(next) = successor(parts, last, era) else {
            // SAFETY: the line is empty.
            unsafe { give_back(first, null_mut()) };
            owned_by(0);
            parts.side.fetch_and(!side::BY_NODE, Relaxed); // nobody holds the lock by a node
            return false;
        };
        // SAFETY: linked behind a node that is ours to pass.
        let waiter = unsafe { &*next };
        // As [grant].
        match grant(waiter, granted) {
            Ok(_) => {
                // SAFETY: they are before the new holder. Nobody else looks at them.
                unsafe { give_back(first, next) };
                return true;
            }
            Err(gate) if state(gate) == LEFT => last = waiter,
            Err(_) => break,
        }
    }
    owned_by(0); // glibc's code asserts it of a mutex that is free
    batch::leave_to_runner(lock);
    if let Some(head) = open_next(parts, first, last, pace, era) {
        move_to_word(lock, head);
    }
    false
}
