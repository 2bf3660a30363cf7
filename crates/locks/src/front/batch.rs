//! Saturation: is it worth handing the lock to another core? And if not, how long does it stay?
//!
//! A waiter that takes the lock as soon as it is free makes the lock, and all data that it protects, travel between
//! cores. If the last holder would come back and finish its next section sooner than that, the hand-over gains nothing:
//! the last holder's core has the data already. So waiters learn. Now and then a waiter that finds the word free doesn't take
//! it. For some microseconds it watches who comes back (`__owner` tells), and how fast (rounds.rs). If that is faster than a
//! hand-over, the lock moves a step towards *saturated*; otherwise a step back, or more. (NUMA locks likewise leave the lock
//! to the socket that has the data: Radovic & Hagersten, HPCA 2003.) On two CPUs waiters ask how busy the holder keeps the
//! lock (busy.rs).
//!
//! ```text
//!   holder   [cs]..[cs]..[cs]..[cs]..        [cs]................[cs].....
//!   waiter        ^ watches: short rounds        ^ watches: nobody; takes it
//! ```
//!
//! The line's head leaves a saturated lock to its *runner*, the thread that keeps coming back for it, until the head's own
//! turn has come. A **wait budget**, in time, limits what turns may cost. The waiters' turns share three quarters of it
//! equally; the rest is for standby (slo.rs) and for starting turns. Long turns move the data seldom, and make waits rare: a
//! runner with 1000 operations in its turn waits in one of the 1000. Meanwhile the head checks now and then whether the
//! runner is gone. On two CPUs the head sets TURN when its turn has come, and the runner gives way at once: it joins the
//! line. The next head is often asleep, and waking it may take longer than a hundred sections. Until it is awake, the lock is
//! left to its runner, too.
//!
//! ```text
//!   runner   [cs][cs][cs] ... [cs]│ joins the line's end
//!   head     naps  ^look    ^look │ its turn: [cs][cs][cs] ...
//! ```
//!
//! The budget bounds naps only. A wait also contains the wake-ups of the waiters before it, and the time that the wait would
//! take at an unsaturated lock.
//!
//! Everything here is a hint: word 0 alone decides who holds the lock.

use super::busy::{BUSY, MOVED_NS, STILL_BUSY, few, is_busy, until};
use super::rounds::{self, ALL, GONE_NS};
use super::{FREE, Parts, Tuning, View, mood, side};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Stage, Word};

/// The wait budget by default, ns.
pub(super) const BUDGET_NS: u32 = 10_000_000;

/// The time from its predecessor's acquisition until a waiter learns that it is head, plus the time from a release until it can
/// have acquired, ns.
const HEADSHIP_NS: u64 = 200;

/// A slice begins once in this time, ns. In a slice all heads leave their locks and watch, so a thread that needs several
/// locks in turn meets none that is being handed over.
const SLICES_NS: u64 = 1 << 20;

/// The length of a slice, ns.
const SLICE_NS: u64 = 1 << 14;

/// Heads that have waited for a slice come this much later, ns.
const LATER_NS: u64 = 1 << 15;

/// A head that was overtaken this often while it woke up suspects that somebody keeps coming back for the lock.
const OVERTAKEN: u32 = 16;

/// A slower core's turn is a fast core's turn divided by this, because a slower core does less in it.
const SLOW_SHARE: u64 = 3;

/// After one turn in this many the lock goes from core to core for a while, to see whether that pays now.
const TRY_EACH: u64 = 32;

/// The same for locks that are granted, where measuring is cheap: once in this time, ns.
const TRIES_NS: u64 = 1 << 26;

/// A head that naps looks at the lock after this long, ns, then after twice as long ...
const FIRST_LOOK_NS: u32 = 20_000;

/// ... up to this: a lock that falls idle does not stay idle for longer.
const LONGEST_LOOK_NS: u32 = 200_000;

/// Should waiters leave the lock to threads that come back for it?
pub(super) fn is_saturated<P: Machine>(parts: &Parts<'_, P>, tuning: &Tuning) -> bool {
    tuning.budget_ns != 0 && parts.mood.load(Relaxed) & mood::SATURATED != 0
}

/// Is it, or may it be, better to leave the lock to the core that has it? Then it isn't granted to anybody.
pub(super) fn keeps_core<P: Machine>(lock: &View<'_, P>, now: impl FnOnce() -> u64) -> bool {
    lock.tuning.budget_ns != 0 && (is_saturated(&lock.parts, lock.tuning) || is_slice(now()))
}

/// Is this a slice in which all heads leave their locks and watch?
pub(super) fn is_slice(now: u64) -> bool {
    now % SLICES_NS < SLICE_NS
}

/// Is this such a slice, or has one just ended?
pub(super) fn is_in_slice(now: u64) -> bool {
    now % SLICES_NS < SLICE_NS + LATER_NS
}

/// Waits awake until `take` has taken the word; `false` if that took too long. `head`: `Some` if the line's head calls, with
/// whether it has slept; `None` if a thread beside the line calls.
pub(super) fn spin<P: Machine>(
    lock: &View<'_, P>,
    head: Option<bool>,
    mut take: impl FnMut() -> bool,
) -> bool {
    let View { parts, tuning, .. } = lock;
    let now = parts.mood.load(Relaxed);
    let start = P::now();
    // Somebody kept coming back while it woke up.
    let overtaken = head == Some(true) && lock.overtaken() >= OVERTAKEN;
    let watches = tuning.budget_ns != 0
        && now & mood::SATURATED == 0
        && match now & mood::STEPS {
            // Granted: a head that comes after some grants knows their pace. With nobody else in line there are no grants to measure.
            _ if let Some(pace) = lock.pace
                && (pace.is_known() || now / mood::WAITER > 1) =>
            {
                pace.is_known()
            }
            _ if overtaken && !few(lock) => true,
            0 => is_in_slice(start) || start / 64 % if few(lock) { 64 } else { 32 } == 0,
            // The clock's low bits serve as a die.
            steps if steps < mood::IDLE_AT => start / 64 % 8 == 0,
            _ => start / 64 % 2 == 0,
        };
    let mut got = false;
    let mut watch = || {
        let (mut holder, mut since) = (parts.holder(), start);
        let mut held = few(lock) && lock.is_crowded() && head == Some(true);
        lock.spin_for(|value| {
            if value == FREE {
                held = false;
                let late = if head.is_some() { HEADSHIP_NS } else { 0 };
                let guess = (!overtaken).then(|| P::now().saturating_sub(since) + late);
                got = !is_back(lock, holder, guess) && take();
            } else if parts.holder() != holder {
                (holder, since) = (parts.holder(), P::now());
            }
            value == FREE
        });
        if held && parts.holder() == holder {
            note(parts, 1); // it looked at a random moment, perhaps on the runner's CPU, and the lock was held
        }
    };
    match (watches, head) {
        (true, Some(_)) => leave(parts, watch),
        (true, None) => watch(),
        (false, _) => {}
    }
    if !got {
        lock.spin_for(|value| {
            got = value == FREE && take();
            got
        });
    }
    got
}

/// The word is free: does its last holder come back soon? Notes the answer. `false`: nobody came, and the word is still free.
/// `last`, `guess`: see [`rounds::watch`].
fn is_back<P: Machine>(lock: &View<'_, P>, last: u32, guess: Option<u64>) -> bool {
    if few(lock) {
        let busy = is_busy(&lock.parts, BUSY);
        if let Some(busy) = busy {
            note(&lock.parts, if busy { 1 } else { -1 });
        }
        return busy.is_some();
    }
    let seen = rounds::watch(lock, last, guess);
    note(&lock.parts, seen.votes);
    seen.came
}

/// The head of a saturated lock leaves it to its runner until the head's turn has come, and asks nobody for a wake. It `take`s
/// the lock early if the runner doesn't come back. `asked_ns`: when it asked; 0 if it didn't read the clock.
pub(super) fn nap<P: Machine>(
    lock: &View<'_, P>,
    asked_ns: u64,
    take: impl FnOnce() -> bool,
) -> bool {
    let (parts, budget) = (&lock.parts, u64::from(lock.tuning.budget_ns));
    let start = P::now();
    let waiters = parts.mood.load(Relaxed) / mood::WAITER; // a hint, like all of these
    let mut turn = budget / 4 * 3 / u64::from(waiters.clamp(1, mood::MOST));
    if few(lock) {
        turn = turn.min(budget / 2); // with one waiter, turns are rare enough even so, and the longest wait gets shorter
    }
    if parts.mood.load(Relaxed) & mood::SLOW != 0 {
        turn /= SLOW_SHARE;
    }
    if asked_ns != 0 {
        turn = turn.min((asked_ns + budget).saturating_sub(start));
    }
    let gone = leave(parts, || {
        end_turn(lock);
        let mut look = FIRST_LOOK_NS;
        loop {
            let left = turn.saturating_sub(P::now().saturating_sub(start));
            if left == 0 {
                return false;
            }
            let first = look == FIRST_LOOK_NS;
            lock.sleep_aside(u64::from(look).min(left) as u32);
            look = (2 * look).min(LONGEST_LOOK_NS);
            if is_gone(lock, first) {
                return true;
            }
        }
    });
    let tries = match lock.pace {
        Some(_) => start / TRIES_NS != P::now() / TRIES_NS,
        None => P::now() / 64 % TRY_EACH == 0,
    };
    if tries {
        doubt(parts);
    } else if !gone && lock.pace.is_some() {
        note(parts, 1);
    }
    if !gone && few(lock) {
        parts.side.fetch_or(side::TURN, Relaxed); // nobody overtakes it until it has the lock: a hint
    }
    gone && take()
}

/// Ends the head's turn: it has the lock, or begins to nap.
fn end_turn<P: Machine>(lock: &View<'_, P>) {
    if lock.is_turn() {
        lock.parts.side.fetch_and(!side::TURN, Relaxed); // a hint
    }
}

/// The caller has the lock, and leaves the line. If the lock is saturated, this begins its turn.
pub(super) fn runs<P: Machine>(lock: &View<'_, P>) {
    end_turn(lock);
    let now = lock.parts.mood.load(Relaxed);
    if now & (mood::SATURATED | mood::SLOW) != 0 {
        let slow = !P::place().class.is_big();
        if slow != (now & mood::SLOW != 0) {
            let (set, clear) = if slow { (mood::SLOW, 0) } else { (0, mood::SLOW) };
            // A hint. If others change the word meanwhile, their change stays.
            let _ = lock.parts.mood.compare_exchange(now, now & !clear | set, Relaxed, Relaxed);
        }
    }
}

/// The caller has the lock, and is about to make another waiter head. That one may be asleep, and waking up may take longer than
/// many sections. Until it is awake a saturated lock is left to its runner, as while the head naps.
pub(super) fn leave_to_runner<P: Machine>(lock: &View<'_, P>) {
    if lock.is_saturated() {
        lock.parts.mood.fetch_or(mood::NAPPING, Relaxed); // a hint: `has_woken` takes it back
    }
}

/// The head is awake: from now on nobody may pass it uncounted.
pub(super) fn has_woken<P: Machine>(parts: &Parts<'_, P>) {
    if parts.mood.load(Relaxed) & mood::NAPPING != 0 {
        parts.mood.fetch_and(!mood::NAPPING, Relaxed); // (glibc's code may have set it, too, see `mood`)
    }
}

/// The line's head leaves the lock to others while `looks` runs.
fn leave<P: Machine, R>(parts: &Parts<'_, P>, looks: impl FnOnce() -> R) -> R {
    P::reached(Stage::Naps);
    parts.mood.fetch_or(mood::NAPPING, Relaxed); // a hint, to arrivals
    let answer = looks();
    parts.mood.fetch_and(!mood::NAPPING, Relaxed);
    P::reached(Stage::Head);
    answer
}

/// Waits awake for at most `ns`; `done` sees each new value of the word. Notes whether the holder seems to have lost
/// its CPU: if so, others need not wait awake for it.
pub(super) fn watch<P: Machine>(parts: &Parts<'_, P>, ns: u32, mut done: impl FnMut(u32) -> bool) {
    let (holder, mut over, mut free) = (parts.holder(), false, false);
    P::spin_for(parts.word, Relaxed, ns, |value| {
        free |= value == FREE;
        over = done(value);
        over
    });
    let stalled = parts.mood.load(Relaxed) & mood::STALLED != 0;
    // Hints, both.
    if over && stalled && ns != 0 {
        parts.mood.fetch_and(!mood::STALLED, Relaxed);
    } else if ns != 0 && !over && !free && !stalled && parts.holder() == holder {
        parts.mood.fetch_or(mood::STALLED, Relaxed);
    }
}

/// Is the runner of a saturated lock gone, at least for now? `first`: the first look of this nap.
fn is_gone<P: Machine>(lock: &View<'_, P>, first: bool) -> bool {
    let (parts, grants) = (&lock.parts, lock.pace.is_some());
    if few(lock) {
        // The next thread that takes the lock clears this: a hint.
        let used = parts.side.fetch_or(side::TURN, Relaxed) & side::TURN == 0;
        let gone = (first || !used) && !is_busy(parts, STILL_BUSY).unwrap_or(used);
        if gone {
            note(parts, -1);
        }
        return gone;
    }
    let until = |is_free| until(parts, is_free, GONE_NS).unwrap_or_else(P::now);
    let (released, back) = (until(true), until(false));
    if parts.word.load(Relaxed) == FREE {
        note(parts, if grants { -1 } else { -2 });
        return true;
    }
    let hold = until(true).saturating_sub(back);
    if !grants && back.saturating_sub(released) > 2 * MOVED_NS + hold / 4 {
        doubt(parts);
        return true;
    }
    false
}

/// From now on a saturated lock counts only as probably saturated.
fn doubt<P: Machine>(parts: &Parts<'_, P>) {
    let now = parts.mood.load(Relaxed);
    let next = now & !(mood::STEPS | mood::SATURATED) | (mood::SATURATED_AT - mood::STEP);
    let _ = parts.mood.compare_exchange(now, next, Relaxed, Relaxed); // a hint, as in `note`
}

/// Moves `by` steps towards saturated, or away from it.
pub(super) fn note<P: Machine>(parts: &Parts<'_, P>, by: i32) {
    let now = parts.mood.load(Relaxed);
    let so_far = ((now & mood::STEPS) / mood::STEP) as i32;
    let steps = (so_far + by).clamp(0, ALL) as u32 * mood::STEP;
    let mut next = now & !mood::STEPS | steps;
    if steps >= mood::SATURATED_AT {
        next |= mood::SATURATED;
    } else if steps < mood::IDLE_AT {
        next &= !mood::SATURATED;
    }
    if next != now {
        // If another thread notes something at the same time, its note wins.
        let _ = parts.mood.compare_exchange(now, next, Relaxed, Relaxed);
    }
}
