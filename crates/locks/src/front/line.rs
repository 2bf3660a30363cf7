//! The line of waiters in front of word 0: every edit of it, whatever the rule.
//!
//! Mellor-Crummey & Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*,
//! TOCS 1991. A waiter that acquired hands the headship on before `lock` returns (K42; Linux' qspinlock), or stays in the line
//! to hand the lock itself on (grant.rs). Nodes (waiter.rs) belong to nobody's stack, so thread exit needs no clean-up. The head,
//! when it sleeps, sleeps on word 0 itself, where glibc's unlock finds it, too.

use super::choice::{Chooser, choose_and_sit};
use super::grant::{LOOKS_EACH, settle, wake_behind};
use super::leaving::Seat;
use super::pace::Pace;
use super::rule::{Arrived, Rule, View};
use super::waiter::{ASLEEP, BEHIND, ERAS, GRANTED, OPEN, PROMOTED, WAITING, Waiter};
use super::waiter::{give_back, grants, state};
use super::{FREE, HELD, Parts, Tuning, WAITED};
use super::{batch, mark, mood, pass_on, side, take_as};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Platform, Ptr, Stage, Word};

/// How long a waiter waits awake before it checks whether it is first in a line that nobody grants the lock to any
/// more, ns; then twice as long.
pub(super) const LOOK_NS: u32 = 4_000;

pub(super) fn tag<P: Platform>(node: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    node.map_addr(|address| address | era)
}

/// The node that a tagged pointer means; null if it is from before a fork (that thread does not exist).
fn untag<P: Platform>(tagged: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    if tagged.addr() % ERAS == era {
        tagged.map_addr(|address| address / ERAS * ERAS)
    } else {
        core::ptr::null_mut()
    }
}

/// Is nobody in the line? As seen by a thread that holds nothing.
pub(super) fn is_empty<P: Platform>(parts: &Parts<'_, P>, era: usize) -> bool {
    let tail = parts.tail.load(Relaxed); // a hint: decides whether to queue, not whether to hold
    if tail.is_null() {
        return true;
    }
    if !untag(tail, era).is_null() {
        // Left behind by code that knows nothing of the line? Then the word is free, and its next taker clears it away.
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

/// Does the line consist of nodes that had the lock, or left? The word is free, or held by the caller, which is not in the line.
pub(super) fn is_left_behind<P: Platform>(parts: &Parts<'_, P>, era: usize) -> bool {
    // ORDERING: Acquire, pairs with [join]: the node is fully made.
    let last = untag(parts.tail.load(Acquire), era);
    // SAFETY: a node, or what was one, and readable.
    !last.is_null() && unsafe { (*last).had_the_lock() }
}

/// The caller has the word, and is not in the line: nodes in it that had the lock, or left, belong to nobody.
pub(crate) fn meet_left_behind<P: Platform>(parts: &Parts<'_, P>, era: usize) {
    // ORDERING: Acquire, pairs with [join]: the node is fully made.
    let tail = parts.tail.load(Acquire);
    let last = untag(tail, era);
    // SAFETY: a node of the line, which stays there: we have the lock.
    if last.is_null() || !unsafe { (*last).had_the_lock() } {
        return;
    }
    // Relaxed: as in `successor`. If somebody has joined, that one sees to it.
    if parts.tail.compare_exchange(tail, core::ptr::null_mut(), Relaxed, Relaxed).is_ok() {
        // SAFETY: no others are in the line, and nobody comes to them any more.
        unsafe { give_back((*last).first_of_the_dead(), core::ptr::null_mut()) };
        forget(parts);
    }
}

/// Is a node, by which its thread seems to hold the lock, still in the line?
pub(super) fn is_in_line<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, era: usize) -> bool {
    node.is_still_in(parts, untag(parts.tail.load(Relaxed), era)) // compared alone
}

/// Does the head of a line with this mood nap, and leave the lock to others?
#[inline]
pub(crate) fn is_left<P: Platform>(mood: &P::Word) -> bool {
    mood.load(Relaxed) & mood::NAPPING != 0
}

/// The caller has taken the word: past a head that naps? That is not counted.
#[inline]
pub(crate) fn has_passed<P: Platform>(mood: &P::Word, side: &P::Word) -> bool {
    let passed = is_left::<P>(mood);
    if passed {
        P::reached(Stage::Passed);
        if side.load(Relaxed) & side::TURN != 0 {
            side.fetch_and(!side::TURN, Relaxed); // somebody comes back
        }
    }
    passed
}

/// What the parent's line left behind must not bind a forked child.
fn forget<P: Platform>(parts: &Parts<'_, P>) {
    parts.mood.fetch_and(!(mood::NAPPING | mood::LENGTH), Relaxed); // hints
}

/// Acquires by the rule `R`, for a thread that found the word taken, or somebody in line. By the word: null; or by a node, with
/// which it unlocks ([`release`]).
#[cold]
pub fn acquire<P: Platform, R: Rule<P>>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    seat: Option<&dyn Seat<P>>,
) -> *const Waiter<P> {
    let mut lock = View { seat, ..View::new(parts, tuning) };
    let may_grant = R::grants(tuning) && !parts.by.is_null() && !lock.is_crowded();
    lock.pace = may_grant.then(Pace::default);
    let mut note = match R::arrive(&lock) {
        Arrived::Took(_) => return core::ptr::null(),
        Arrived::Joins(note) => note,
    };
    if note.asked_ns == 0 && tuning.budget_ns != 0 {
        note.asked_ns = P::now();
    }
    let awake_ns = R::awake_ns(&lock); // now, while the mutex's line is ours
    seat.inspect(|seat| seat.joins());
    let node = Waiter::<P>::take(&parts, note);
    let behind = join(&parts, node, tuning);
    seat.inspect(|seat| seat.sits(node));
    let (mut gate, mut slept) = (OPEN, false);
    if behind {
        (gate, slept) = wait_in_line::<P, R>(&lock, node, awake_ns);
    }
    if state(gate) != GRANTED {
        if tuning.budget_ns != 0 || R::HOLDS_BACK {
            batch::has_woken(&parts);
        }
        P::reached(Stage::Head);
        if R::HOLDS_BACK {
            if slept {
                pass_on::<P>(parts.word); // woken there, maybe, where others sleep
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
    seat.inspect(|seat| seat.sits(core::ptr::null())); // a thread that dies from here on dies with the lock held
    if state(gate) != GRANTED {
        batch::runs(&lock);
    }
    R::acquired(&lock, &node.note, slept);
    let stays = settle::<P, R>(&lock, node, gate);
    // Is there going to be a look at the mutex when it is released?
    if R::MEASURES && (!stays || grants(gate) >= LOOKS_EACH) {
        lock.may_measure_hold(P::now(), stays);
    }
    if stays { node } else { core::ptr::null() }
}

/// Joins the line; `true`: behind somebody.
pub(crate) fn join<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) -> bool {
    let me = core::ptr::from_ref(node).cast_mut();
    // [join] ORDERING: AcqRel: Release publishes our node to the next [join]; Acquire, pairs with it:
    // our predecessor's node is fully made before we write its `next`.
    let tail = parts.tail.swap(tag(me, tuning.era), AcqRel);
    P::reached(Stage::Joined);
    let last = untag(tail, tuning.era);
    if last.is_null() && !tail.is_null() {
        forget(parts);
    }
    parts.mood.fetch_add(mood::WAITER, Relaxed); // a hint, and the mutex's line is ours at the moment
    if last.is_null() {
        node.open(); // the one behind us may already have told us that it sleeps
        return false;
    }
    // SAFETY: it can't leave before it has seen its `next`, which only we write.
    unsafe { (*last).link(me) };
    true
}

/// Not head yet: only our own gate matters, and that of the waiter before us. Returns what our gate says then, and
/// whether we slept.
fn wait_in_line<P: Platform, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut left: u32,
) -> (u32, bool) {
    let (mut look, mut slept) = (left.min(LOOK_NS), false);
    let mut chooser = Chooser::of::<P, R>(left);
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
        (left, is_due) = chooser.as_mut().map_or((left - look, true), Chooser::left::<P>);
        look = left.min(2 * look.max(LOOK_NS / 2));
        if left > 0 {
            // Released by code that knows nothing of us? A hint: then we compete for the word, as everybody may.
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
                // Woken early, to be awake when its time comes? Then wake the one behind it, too.
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

/// Sleeps until the gate says something else; returns whether it slept. It wakes at its `timeout`, too: it may have been moved to the word
/// (`move_to_word`), and is head.
fn sleep_at_gate<P: Platform>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let mut slept = false;
    loop {
        let gate = node.gate.load(Relaxed); // looked at again, with Acquire
        if state(gate) != ASLEEP {
            return slept;
        }
        slept = true;
        let left = lock.left_ns(&node.note).filter(|&ns| ns > 0);
        P::park(&node.gate, gate, left.map(P::after));
    }
}

/// Head: competes for the word, awake first, then asleep on the word. `true`: it slept, here or at its gate.
fn wait_as_head<P: Platform, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut slept: bool,
) -> bool {
    let View { parts, .. } = lock;
    debug_assert!(
        [OPEN, PROMOTED].contains(&state(node.gate.load(Relaxed))),
        "only the head competes"
    );
    // While the lock is held that costs nobody anything. (Behind a chain the next may make itself head at any moment.)
    let may_choose = R::AHEAD > 0 && R::is_worth(lock, &node.note);
    if may_choose && !lock.is_open() && state(node.gate.load(Relaxed)) == OPEN {
        choose_and_sit::<P, R>(lock, node);
    }
    // By invariant 1.
    let take = |slept| take_as::<P>(parts.word, if slept { WAITED } else { HELD });
    if lock.is_saturated() {
        if slept {
            pass_on::<P>(parts.word); // woken there, maybe, where others sleep
        }
        if batch::nap(lock, node.note.asked_ns, || take(slept)) {
            return slept;
        }
    }
    loop {
        batch::has_woken(parts);
        let left = lock.left_ns(&node.note);
        if left == Some(0) {
            lock.begin_turn(); // should it sleep, the next unlock wakes it, and nobody overtakes it until then
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

/// Who is behind `node`, which is the caller's to pass; none: the line is empty now.
pub(super) fn successor<P: Platform>(
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
    // Relaxed: the next to join finds nobody, and what we wrote reaches it by the word.
    let (mine, none) = (tag(me, era), core::ptr::null_mut());
    if parts.tail.compare_exchange(mine, none, Relaxed, Relaxed).is_ok() {
        if parts.mood.load(Relaxed) & mood::LENGTH != 0 {
            parts.mood.fetch_and(!mood::LENGTH, Relaxed); // it heals; a thread that is about to join may not be counted
        }
        return None;
    }
    // Somebody joined behind us and will link in a moment. ORDERING: Acquire, pairs with [link].
    P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null());
    Some(node.next(Relaxed))
}

/// Records whether the line that the caller leaves is crowded, and that its new head has not been overtaken yet.
pub(super) fn note_length<P: Platform>(lock: &View<'_, P>) -> bool {
    let Parts { side, mood, .. } = lock.parts;
    let left = mood.fetch_sub(mood::WAITER, Relaxed) / mood::WAITER; // a hint; the field is the word's highest
    let now = side.load(Relaxed);
    if now & side::BYPASSES != 0 {
        side.fetch_and(!side::BYPASSES, Relaxed); // the holder's, by invariant 5
    }
    // Those beside the line wait too.
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
