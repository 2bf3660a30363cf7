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
//!    behind it are WAITING, CHOOSING, ASLEEP or LEFT; the first of them that is not LEFT may be PROMOTED.
//! 2. Nobody sleeps at its gate behind a GRANTED node that doesn't know it ([`BEHIND`]). A waiter that falls asleep tells
//!    its predecessor by an atomic step on the predecessor's gate, and the same step tells the waiter if it need not sleep. A
//!    GRANTED holder that has been told wakes the sleeper, or leaves the line at once and makes the sleeper head, on word 0.
//! 3. Code that knows nothing of chains may release the lock and leave the chain behind: word 0 free, H GRANTED. The next
//!    waiter checks for that now and then, and before it sleeps (`is_first`). Then it competes for the word (PROMOTED). If
//!    the line has only dead nodes, the next thread that takes the word clears them away.
//! 4. A thread that sleeps on the word makes it 2, and the chain ends within LOOKS_EACH grants: unlock frees the word.

use super::learn::memos::is_late;
use super::line::{Parts, View, counts, hints};
use super::tuning::MOST_COUNTED;
use super::waiter::{ASLEEP, BEHIND, CHOOSING, GRANTED, LEFT, OPEN, PROMOTED, WAITING};
use super::waiter::{
    GRANT, Pace, SOMEBODY, TICK, Waiter, give_back, grants, is_sliced, sliced, state,
};
use super::word::{CHAINED, Word0};
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Ptr, Word};

/// After this many grants the holder looks at the mutex: does anybody sleep on the word? Do waiters outnumber the CPUs? (A look takes
/// about 1 % of the time of 31 grants. Looking less often would save some of that, but threads that were granted the lock are counted in
/// the line's length until the next look: with 63 here, a policy that parks by that length parked too many.)
pub(super) const LOOKS_EACH: u32 = 31;
const _: () =
    assert!((LOOKS_EACH + 1) * GRANT == TICK, "the field of grants is full, and not more");
const _: () = assert!(hints::MANY + LOOKS_EACH < MOST_COUNTED, "a holder can see a crowd");

/// How many waiters behind a node are woken at a time.
pub(super) const WAKES: usize = 16;

/// A waiter that chooses who follows it has done so after this time, or has lost its CPU, ns. (A holder may wait for it twice:
/// to grant it the lock, and again after its look at the mutex.)
const CHOICE_NS: u32 = 1_000;

/// A holder reads the clock at the first of this many grants, if the lock's rule cares.
const ASKS_EACH: u32 = 4;

/// A slice begins once in this time, ns. In a slice all heads leave their locks and watch, so a thread that needs several
/// locks in turn meets none that is being handed over.
const SLICES_NS: u64 = 1 << 20;

/// The length of a slice, ns.
const SLICE_NS: u64 = 1 << 14;

/// Heads that have waited for a slice come this much later, ns.
const LATER_NS: u64 = 1 << 15;

/// Is this a slice in which all heads leave their locks and watch?
pub(super) fn is_slice(now: u64) -> bool {
    now % SLICES_NS < SLICE_NS
}

/// Is this such a slice, or has one just ended?
pub(super) fn is_in_slice(now: u64) -> bool {
    now % SLICES_NS < SLICE_NS + LATER_NS
}

/// Is it, or may it be, better to leave the lock to the core that has it? Then it isn't granted to anybody. `now` reads the clock.
fn keeps_core<P: Machine>(line: &View<'_, P>, now: impl FnOnce() -> u64) -> bool {
    line.tuning.budget_ns != 0 && (line.is_saturated() || is_slice(now()))
}

/// Threads were granted the lock since a holder last looked at the mutex, by this gate, and are no longer in line: counts them out.
fn count_out_granted<P: Machine>(line: &View<'_, P>, gate: u32) {
    let count = grants(gate);
    if count > 0 {
        line.count_out_of_line(count);
    }
}

/// The caller has the lock, as head or by a grant: `gate` says which. It stays in the line if it may grant the lock later, and
/// `may_stay`; otherwise it leaves. `true`: it stays, and unlocks by its node. `choose`: the caller may put others behind itself.
pub(super) fn settle<P: Machine>(
    line: &View<'_, P>,
    node: &Waiter<P>,
    gate: u32,
    may_stay: bool,
    choose: impl FnOnce(),
) -> bool {
    let word = line.parts.word;
    debug_assert!(!word.is_free(), "only the holder comes here");
    let me = from_ref(node).cast_mut();
    if state(gate) == GRANTED {
        if gate & BEHIND == 0 || !line.is_crowded_now(1 + grants(gate)) && wake_behind(node) {
            return true;
        }
        count_out_granted(line, gate);
    } else {
        pass_the_dead(line, node);
        if may_stay && stay(line, node) {
            return true;
        }
    }
    line.note_length(node, 1);
    // Others may have joined by now. (Behind a node that was granted the lock, the next waiter may make itself head at any moment.)
    if state(gate) == OPEN {
        choose();
    }
    line.leave_to_runner(|| is_late(line));
    line.parts.seat.inspect(|seat| seat.leaves());
    if let Some(head) = line.open_next(me, node, Pace::default()) {
        line.move_to_word(head);
    }
    word.end_chain();
    false
}

/// The caller has the lock, as head: nodes before it, which had the lock, are in nobody's way any more.
pub(super) fn pass_the_dead<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) {
    if state(node.gate.load(Relaxed)) != PROMOTED {
        return;
    }
    let (first, me) = (node.first_of_the_dead(), from_ref(node).cast_mut());
    if first == me {
        return;
    }
    node.open(); // from now on nobody asks those before us
    // SAFETY: before us in the line.
    count_out_granted(line, unsafe { (*first).gate.load(Relaxed) });
    line.count_out_of_line(1); // `first` did not count itself out
    // SAFETY: they are before us, and had the lock; nobody but us, the holder, passes them.
    unsafe { give_back(first, me) };
}

/// The head has the lock. It stays in the line if the waiter behind it is awake, or can be woken in time, or if nobody is behind it
/// yet: whoever joins before it unlocks is granted the lock, and need not compete for the word.
fn stay<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) -> bool {
    let Parts { word, counts, by, owner, .. } = line.parts;
    // Only waiters that were counted are counted out after grants.
    if !line.tuning.grants() || by.is_null() || !node.is_counted() {
        return false;
    }
    // Threads that came during one long section may be a crowd that no look has seen yet. If all were woken, each would spin for a time
    // slice.
    if line.is_crowded_now(1) || keeps_core(line, P::now) {
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
    // Before the gate says GRANTED: a thread that reads that (Acquire), and sleeps, writes our id here. See `name_holder`.
    owner.inspect(|owner| owner.store(SOMEBODY, Relaxed));
    let granted = if line.tuning.budget_ns == 0 { GRANTED } else { sliced(P::now()) };
    // The exchange succeeds only without BEHIND.
    // [stay] ORDERING: Release, pairs with `ask_predecessor`: all that were chosen before us have gone.
    // SURVIVES: it takes a node that is used again, and explorations use each once.
    let stays = |from| node.gate.compare_exchange(from, granted, Release, Relaxed).is_ok();
    if !stays(OPEN) && !stays(PROMOTED) {
        return false;
    }
    if counts.load(Relaxed) & counts::BY_NODE == 0 {
        counts.fetch_or(counts::BY_NODE, Relaxed); // read by its thread, see `posix::holds`
    }
    word.begin_chain();
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

/// Unlock, by a holder that stayed in the line: grants the lock to the next waiter, if that waiter is awake and no look at
/// the mutex is due. `true`: another thread has the lock, and the mutex may be gone. `false`: the caller has to look at the
/// mutex, by [`leave_or_hand_on`].
///
/// # Safety
/// [`acquire`](super::acquire) returned this node to the calling thread, which hasn't unlocked since. Where code that knows nothing of
/// nodes may have unlocked, [`Waiter::is_held`] has said just now that the thread still seems to hold the lock by it.
#[inline]
pub unsafe fn hand_on<P: Machine>(node: &Waiter<P>) -> bool {
    let gate = node.gate.load(Relaxed); // others change only BEHIND
    debug_assert_eq!(state(gate), GRANTED, "only the holder comes here");
    let asks_the_clock = is_sliced(gate) && grants(gate) % ASKS_EACH == 1;
    let is_due = grants(gate) >= LOOKS_EACH || asks_the_clock && is_slice(P::now());
    let urged = P::urged();
    if is_due || !urged.is_null() && urged == node.of.load(Relaxed).cast_const() {
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

/// Grants the lock to a waiter that is awake, and counted. `Err`: it isn't; this is its gate.
#[inline]
fn grant<P: Machine>(waiter: &Waiter<P>, granted: u32) -> Result<u32, u32> {
    let answer = waiter.grant(granted);
    match answer {
        Err(gate) if state(gate) == CHOOSING => {
            // Relaxed: `Waiter::grant` checks the gate again.
            P::spin_for(&waiter.gate, Relaxed, CHOICE_NS, |gate| state(gate) != CHOOSING);
            waiter.grant(granted)
        }
        _ => answer,
    }
}

/// What became of a holder's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Another thread has the lock, and the mutex may be gone.
    Passed,
    /// The line is empty, the node has been given back, and the caller holds the lock by the word.
    Empty,
    /// The caller holds the lock by the node.
    Not,
    /// The node is in no line any more, or a joiner has lost its CPU: the caller releases the word.
    Stale,
}

/// As [`hand_on`], which has just answered `false`: leaves the line if nobody is behind the node. It costs one transfer of the
/// mutex's line, as MCS's unlock does, if nobody is behind the node, and another one of the node's line if somebody is joining.
///
/// # Safety
/// As [`hand_on`].
pub unsafe fn leave_or_hand_on<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) -> Left {
    let Parts { word, owner, .. } = line.parts;
    if !node.next(Relaxed).is_null() {
        // A look at the mutex is due, or the next waiter sleeps, or has just joined.
        // SAFETY: the caller's promise.
        return if unsafe { hand_on(node) } { Left::Passed } else { Left::Not };
    }
    if !Word0::<P>::may_be_by_node(word.now_to_write()) {
        return Left::Stale; // released by code that knows nothing of us, and taken again
    }
    if line.leave_empty(node) {
        // SAFETY: the line is empty, and the node was its last.
        unsafe { give_back(from_ref(node).cast_mut(), null_mut()) };
        owner.inspect(|owner| owner.store(0, Relaxed)); // glibc's code asserts it of a mutex that is free
        line.has_emptied();
        return Left::Empty;
    }
    match line.is_in_line(node) {
        false => Left::Stale,
        // SAFETY: the caller's promise; the node is still in the line.
        true if unsafe { hand_on(node) } => Left::Passed,
        true => Left::Not,
    }
}

/// As [`hand_on`], but with a look at the mutex. `false`: the line has a head, or is empty, and the caller must free the word.
pub(super) fn hand_on_or_leave<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) -> bool {
    let Parts { word, owner, .. } = line.parts;
    let (gate, first) = (node.gate.load(Relaxed), from_ref(node).cast_mut());
    if P::urged() == word.address() {
        P::has_looked(word.address()); // an urgent thread has made the word 2 before it said so
    }
    let mut next = line.successor(node);
    if next.is_none() {
        // SAFETY: the line is empty, and the node was its last.
        unsafe { give_back(first, null_mut()) };
        owner.inspect(|owner| owner.store(0, Relaxed)); // glibc's code asserts it of a mutex that is free
        line.has_emptied();
        return false;
    }
    let is_crowded = line.note_length(node, 1 + grants(gate));
    // For debuggers. (The holder that `name_holder` named may have left since.)
    let owned_by = |whom| {
        owner
            .filter(|owner| owner.load(Relaxed) != whom)
            .inspect(|owner| owner.store(whom, Relaxed));
    };
    owned_by(SOMEBODY);
    let (now, pace, granted) = match line.tuning.budget_ns {
        0 => (0, Pace::default(), GRANTED),
        _ => {
            let now = P::now();
            (now, Pace::of(gate, now), sliced(now))
        }
    };
    let grants = !is_crowded && !keeps_core(line, || now);
    let mut last = node;
    // Relaxed: if a thread makes it 2 after this, a later look serves it.
    while grants && word.now() == CHAINED {
        let Some(to) = next.take().or_else(|| line.successor(last)) else {
            // SAFETY: the line is empty.
            unsafe { give_back(first, null_mut()) };
            owned_by(0);
            line.has_emptied();
            return false;
        };
        // SAFETY: linked behind a node that is ours to pass.
        let waiter = unsafe { &*to };
        // As [grant].
        match grant(waiter, granted) {
            Ok(_) => {
                // SAFETY: they are before the new holder. Nobody else looks at them.
                unsafe { give_back(first, to) };
                return true;
            }
            Err(gate) if state(gate) == LEFT => last = waiter,
            Err(_) => break,
        }
    }
    owned_by(0); // glibc's code asserts it of a mutex that is free
    line.leave_to_runner(|| is_late(line));
    if let Some(head) = line.open_next(first, last, pace) {
        line.move_to_word(head);
    }
    false
}
