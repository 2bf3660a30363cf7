//! The line of waiters in front of word 0: all changes to it, whatever the rule.
//!
//! Mellor-Crummey & Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*,
//! TOCS 1991. A waiter that acquired passes the headship on before `lock` returns (K42; Linux's qspinlock), or stays in the line
//! to pass on the lock itself (grant.rs). Nodes (waiter.rs) lie on nobody's stack, so thread exit needs no clean-up. When the
//! head sleeps, it sleeps on word 0 itself, where glibc's unlock finds it, too.

use super::choice::{choose_and_sit, chooses};
use super::chooser::Chooser;
use super::grant::{LOOKS_EACH, settle, wake_behind};
use super::leaving::Seat;
use super::pace::Pace;
use super::rule::{Arrived, Rule, View};
use super::waiter::{ASLEEP, BEHIND, ERAS, GRANTED, OPEN, PROMOTED, WAITING, Waiter};
use super::waiter::{give_back, grants, state};
use super::{FREE, HELD, Parts, Tuning, WAITED};
use super::{batch, mark, mood, pass_on, side, take_as};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Machine, Ptr, Stage, Word};

/// A waiter waits awake for this long, ns, before it checks whether it is first in a line to which nobody grants the lock any
/// more. The time doubles after each check.
pub(super) const LOOK_NS: u32 = 4_000;

pub(super) fn tag<P: Machine>(node: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    node.map_addr(|address| address | era)
}

/// The node behind a tagged pointer; null if the pointer is from before a fork (that thread doesn't exist here).
fn untag<P: Machine>(tagged: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    if tagged.addr() % ERAS == era {
        tagged.map_addr(|address| address / ERAS * ERAS)
    } else {
        core::ptr::null_mut()
    }
}

/// Is nobody in the line? As seen by a thread that holds nothing.
pub(super) fn is_empty<P: Machine>(parts: &Parts<'_, P>, era: usize) -> bool {
    let tail = parts.tail.load(Relaxed); // a hint: decides whether to queue, not whether to hold
    if tail.is_null() {
        return true;
    }
    if !untag(tail, era).is_null() {
        // Left behind by code that knows nothing of the line? Then the word is free, and the next thread that takes it clears
        // the line.
        return parts.word.load(Relaxed) == FREE && is_left_behind(parts, era);
    }
    // Left over from before a fork. Relaxed: there is nobody to synchronize with.
    let cleared =
        parts.tail.compare_exchange(tail, core::ptr::null_mut(), Relaxed, Relaxed).is_ok();
    if cleared {
        forget(parts);
    }
    cleared
}

/// Does the line consist only of nodes that had the lock, or left? The word is free, or the caller holds it without being in
/// the line.
pub(super) fn is_left_behind<P: Machine>(parts: &Parts<'_, P>, era: usize) -> bool {
    // ORDERING: Acquire, pairs with [join]: the node is fully made.
    let last = untag(parts.tail.load(Acquire), era);
    // SAFETY: a node, or memory that was one and stays readable.
    !last.is_null() && unsafe { (*last).had_the_lock() }
}

/// The caller has the word, and is not in the line. If all nodes in the line had the lock, or left, they belong to nobody:
/// gives them back.
pub(crate) fn meet_left_behind<P: Machine>(parts: &Parts<'_, P>, era: usize) {
    // ORDERING: Acquire, pairs with [join]: the node is fully made.
    let tail = parts.tail.load(Acquire);
    let last = untag(tail, era);
    // SAFETY: a node of the line, which stays there: we have the lock.
    if last.is_null() || !unsafe { (*last).had_the_lock() } {
        return;
    }
    // Relaxed: as in `successor`. If somebody has joined, that thread takes care of it.
    if parts.tail.compare_exchange(tail, core::ptr::null_mut(), Relaxed, Relaxed).is_ok() {
        // SAFETY: the line has no other nodes, and nobody can reach these any more.
        unsafe { give_back((*last).first_of_the_dead(), core::ptr::null_mut()) };
        forget(parts);
    }
}

/// Is this node, by which its thread seems to hold the lock, still in the line?
pub(super) fn is_in_line<P: Machine>(parts: &Parts<'_, P>, node: &Waiter<P>, era: usize) -> bool {
    node.is_still_in(parts, untag(parts.tail.load(Relaxed), era)) // only compared, never followed
}

/// By this mood, does the line's head nap, and leave the lock to others?
#[inline]
pub(crate) fn is_left<P: Machine>(mood: &P::Word) -> bool {
    mood.load(Relaxed) & mood::NAPPING != 0
}

/// The caller has taken the word: did it pass a head that naps? Such overtaking is not counted.
#[inline]
pub(crate) fn has_passed<P: Machine>(mood: &P::Word, side: &P::Word) -> bool {
    let passed = is_left::<P>(mood);
    if passed {
        P::reached(Stage::Passed);
        if side.load(Relaxed) & side::TURN != 0 {
            side.fetch_and(!side::TURN, Relaxed); // somebody came back for the lock
        }
    }
    passed
}

/// A forked child must not act on hints about its parent's line.
fn forget<P: Machine>(parts: &Parts<'_, P>) {
    parts.mood.fetch_and(!(mood::NAPPING | mood::LENGTH), Relaxed); // hints
}

/// Acquires by the rule `R`, for a thread that found the word taken, or somebody in line. Returns null if the caller holds the
/// lock by the word, or else the node by which it holds it and with which it unlocks ([`release`]).
#[cold]
pub fn acquire<P: Machine, R: Rule<P>>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    seat: Option<&dyn Seat<P>>,
) -> *const Waiter<P> {
    let mut lock = View { seat, hooks: R::hooks(tuning), ..View::new(parts, tuning) };
    let may_grant = R::grants(tuning) && !parts.by.is_null() && !lock.is_crowded();
    lock.pace = may_grant.then(Pace::default);
    let mut note = match R::arrive(&lock) {
        Arrived::Took(_) => return core::ptr::null(),
        Arrived::Joins(note) => note,
    };
    if note.asked_ns == 0 && tuning.budget_ns != 0 {
        note.asked_ns = P::now();
    }
    let described = R::describe(&lock, &mut note);
    lock.own = described.as_ref();
    let awake_ns = R::awake_ns(&lock, &note); // now, while the mutex's cache line is ours
    seat.inspect(|seat| seat.joins());
    let node = Waiter::<P>::take(&parts, note, lock.own);
    let behind = join(&parts, node, tuning);
    seat.inspect(|seat| seat.sits(node));
    let (mut gate, mut slept) = (OPEN, false);
    if behind {
        R::begins_to_wait(&lock, node);
        (gate, slept) = wait_in_line::<P, R>(&lock, node, awake_ns);
    }
    if state(gate) != GRANTED {
        if tuning.budget_ns != 0 || R::HOLDS_BACK {
            batch::has_woken(&parts);
        }
        P::reached(Stage::Head);
        if R::HOLDS_BACK {
            if slept {
                pass_on::<P>(parts.word); // maybe we were woken there, and others still sleep
            }
            R::hold_back(&lock, &node.note);
        }
        lock.pace = lock.pace.map(|_| node.pace());
        slept = wait_as_head::<P, R>(&lock, node, slept);
        gate = node.gate.load(Relaxed); // only BEHIND, and OPEN for PROMOTED, come from others: see `settle`
    }
    if R::AHEAD > 0 {
        P::reached(Stage::Chosen);
    }
    seat.inspect(|seat| seat.sits(core::ptr::null())); // a thread that dies after this dies while it holds the lock
    if state(gate) != GRANTED {
        batch::runs(&lock);
    }
    R::acquired(&lock, &node.note, slept);
    let stays = settle::<P, R>(&lock, node, gate);
    // Will the unlock look at the mutex anyway?
    if (!stays || grants(gate) >= LOOKS_EACH) && R::measures(&lock) {
        lock.may_measure_hold(P::now(), stays);
    }
    if stays { node } else { core::ptr::null() }
}

/// Joins the line; returns `true` if somebody is before it.
pub(crate) fn join<P: Machine>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) -> bool {
    let me = core::ptr::from_ref(node).cast_mut();
    // [join] ORDERING: AcqRel: Release publishes our node to the next [join]; Acquire, pairs with it:
    // our predecessor's node is fully made before we write its `next`.
    let tail = parts.tail.swap(tag(me, tuning.era), AcqRel);
    P::reached(Stage::Joined);
    let last = untag(tail, tuning.era);
    if last.is_null() && !tail.is_null() {
        forget(parts);
    }
    parts.mood.fetch_add(mood::WAITER, Relaxed); // a hint, and we have the mutex's cache line at the moment
    if last.is_null() {
        node.open(); // the one behind us may already have told us that it sleeps
        return false;
    }
    // SAFETY: that node can't leave before it has seen its `next`, which only we write.
    unsafe { (*last).link(me) };
    true
}

/// Waits until we are head, or have the lock. Only our own gate matters, and the gate of the waiter before us. Returns what our
/// gate says in the end, and whether we slept.
fn wait_in_line<P: Machine, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut left: u32,
) -> (u32, bool) {
    let (mut look, mut slept) = (left.min(LOOK_NS), false);
    let mut chooser = Chooser::of::<P, R>(lock, left);
    loop {
        if let Some(chooser) = chooser.as_mut().filter(|_| left > 0) {
            look = chooser.step::<P, R>(lock, node).min(left);
        }
        // ORDERING: Acquire, pairs with [turn]: the last holder's section is over, if we are GRANTED.
        let gate = P::spin_for(&node.gate, Acquire, look, |gate| state(gate) != WAITING);
        if state(gate) != WAITING {
            return (gate, slept);
        }
        let is_due;
        (left, is_due) =
            chooser.as_mut().map_or((left - look, true), |chooser| chooser.left(lock, node));
        look = left.min(2 * look.max(LOOK_NS / 2));
        if chooser.is_none() && left > 0 {
            chooser = Chooser::of::<P, R>(lock, left); // the lock may no longer rest
        }
        if left > 0 {
            // Released by code that knows nothing of us? This is a hint; if so, we compete for the word, as anybody may.
            if is_due && lock.is_open() && node.is_first() && node.turn(WAITING, PROMOTED).is_ok() {
                return (PROMOTED, slept);
            }
        } else if node.turn(WAITING, ASLEEP).is_ok() {
            if node.tell_before() {
                if node.turn(ASLEEP, PROMOTED).is_ok() {
                    return (PROMOTED, slept);
                }
            } else {
                slept = sleep_at_gate(lock, node) || slept;
                // Woken early, so that we are awake when our turn comes? Then wake those behind us, too.
                (left, look) = (lock.tuning.spin_ns, LOOK_NS.min(lock.tuning.spin_ns));
                if let Some(chooser) = &mut chooser {
                    chooser.begin::<P>(left);
                }
                if node.gate.load(Relaxed) == WAITING | BEHIND && !lock.is_crowded() {
                    wake_behind(node);
                }
            }
        }
    }
}

/// Sleeps until the gate no longer says ASLEEP; returns whether it slept. It also wakes at its `timeout`: it may be the head by
/// then, moved to the word (`move_to_word`).
fn sleep_at_gate<P: Machine>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let mut slept = false;
    loop {
        let gate = node.gate.load(Relaxed); // our caller looks again, with Acquire
        if state(gate) != ASLEEP {
            return slept;
        }
        slept = true;
        let left = lock.left_ns(&node.note).filter(|&ns| ns > 0);
        P::park(&node.gate, gate, left.map(P::after));
    }
}

/// The head competes for the word: first awake, then asleep on the word. Returns whether it slept, here or at its gate.
fn wait_as_head<P: Machine, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut slept: bool,
) -> bool {
    let View { parts, .. } = lock;
    debug_assert!(
        [OPEN, PROMOTED].contains(&state(node.gate.load(Relaxed))),
        "only the head competes"
    );
    // While somebody holds the lock, choosing delays nobody. (Behind a chain the next waiter may make itself head at any moment.)
    let may_choose = chooses::<P, R>(lock) && R::is_worth(lock, node);
    if may_choose && !lock.is_open() && state(node.gate.load(Relaxed)) == OPEN {
        choose_and_sit::<P, R>(lock, node);
    }
    // By invariant 1.
    let take = |slept| take_as::<P>(parts.word, if slept { WAITED } else { HELD });
    if lock.is_saturated() {
        if slept {
            pass_on::<P>(parts.word); // maybe we were woken there, and others still sleep
        }
        if batch::nap(lock, node.note.asked_ns, || take(slept)) {
            return slept;
        }
    }
    loop {
        R::begins_to_wait(lock, node); // if it has slept, another thread may have taken the lock since
        batch::has_woken(parts);
        let left = lock.left_ns(&node.note);
        if left == Some(0) {
            lock.begin_turn(); // if it sleeps, the next unlock wakes it, and nobody overtakes it until then
        }
        if R::spin(lock, slept, || take(slept)) || mark::<P>(parts.word) {
            return slept;
        }
        if state(node.gate.load(Relaxed)) == PROMOTED {
            node.tell_whose(parts);
        }
        P::park(parts.word, WAITED, left.filter(|&ns| ns > 0).map(P::after));
        slept = true;
    }
}

/// The waiter behind `node`, which the caller may pass. `None`: the line is empty now.
pub(super) fn successor<P: Machine>(
    parts: &Parts<'_, P>,
    node: &Waiter<P>,
    era: usize,
) -> Option<*mut Waiter<P>> {
    let me = core::ptr::from_ref(node).cast_mut();
    // ORDERING: Acquire, pairs with [link].
    let next = node.next(Acquire);
    if !next.is_null() {
        return Some(next);
    }
    // Relaxed: the next thread to join finds an empty line, and gets what we wrote by the word.
    let (mine, none) = (tag(me, era), core::ptr::null_mut());
    if parts.tail.compare_exchange(mine, none, Relaxed, Relaxed).is_ok() {
        if parts.mood.load(Relaxed) & mood::LENGTH != 0 {
            parts.mood.fetch_and(!mood::LENGTH, Relaxed); // corrects the count, though a thread that is joining may be missed
        }
        return None;
    }
    // Somebody has joined behind us and will link its node in a moment. ORDERING: Acquire, pairs with [link].
    P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null());
    Some(node.next(Relaxed))
}

/// The caller leaves the line: records whether it is crowded, and that its new head has not been overtaken yet.
pub(super) fn note_length<P: Machine>(lock: &View<'_, P>) -> bool {
    let Parts { side, mood, .. } = lock.parts;
    let left = mood.fetch_sub(mood::WAITER, Relaxed) / mood::WAITER; // a hint; the field is the word's highest
    let now = side.load(Relaxed);
    if now & side::BYPASSES != 0 {
        side.fetch_and(!side::BYPASSES, Relaxed); // the holder's, by invariant 5
    }
    // Threads beside the line wait, too.
    let waiters = left.saturating_sub(1) + lock.beside_in(now);
    let crowded = match (1..mood::MOST).contains(&left) {
        true => waiters >= lock.tuning.cpus.min(mood::MANY), // with the holder, more than the CPUs
        false => now & side::CROWDED != 0,
    };
    if crowded && now & side::CROWDED == 0 {
        side.fetch_or(side::CROWDED, Relaxed);
    } else if !crowded && now & side::CROWDED != 0 {
        side.fetch_and(!side::CROWDED, Relaxed);
    }
    crowded
}
