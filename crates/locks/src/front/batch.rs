//! Saturation: is it worth handing the lock to another core? And where it is not: for how long does it stay?
//!
//! A waiter that takes the lock as soon as it is free makes the lock, and all data that it protects, travel
//! between cores. If the last holder would have been back within less time than that, nothing is gained: its
//! own core has the data. So waiters learn: now and then, and always while they suspect it, a waiter that
//! finds the word free looks again after a moment. Taken again by its last holder: one step towards *saturated*. Still
//! free, or taken by somebody else: a step back. (The second look is the standby rule of LibASL, "free seen twice";
//! leaving the lock to the core that has the data is what NUMA locks do between sockets: Radovic & Hagersten, HPCA 2003.)
//!
//! ```text
//!   holder   [cs]..[cs]..[cs]..[cs]..        [cs]........[cs].......
//!   waiter        ^  ^ taken again: +2          ^   ^ still free: -3, take
//! ```
//!
//! The line's head leaves a saturated lock to its *runner*, who comes back for it, until its turn has come. What a turn may
//! cost is a **wait budget**, in time: of `n` waiters the first waits for an `n`-th of it, so that the last waits for all of
//! it. Long turns are few moves of the data, and they keep long waits rare: a runner who has had 1000 operations in
//! its turn waits in one of 1000. Meanwhile the head looks now and then whether the runner is gone.
//!
//! ```text
//!   runner   [cs][cs][cs] ... [cs]│ joins the line's end
//!   head     naps  ^look    ^look │ its turn: [cs][cs][cs] ...
//! ```
//!
//! Everything here is a hint: who holds the lock is decided by word 0 alone.

use super::{FREE, Parts, Tuning, View, mood};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Stage, Word};

/// The wait budget by default, ns.
pub(super) const BUDGET_NS: u32 = 10_000_000;

/// What a hand-over to another core costs at least: word, and a few lines of data.
const GRACE_NS: u64 = 150;

/// What it costs to hand over the word alone, at least.
const TRANSFER_NS: u64 = 50;

/// The longer the critical sections, the more data they touch: the second look comes after this share of
/// what the waiter has waited, if that is longer ...
const GRACE_SHARE: u64 = 8;

/// ... but not later than this.
const GRACE_MAX_NS: u64 = 2_000;

/// One free word in so many is watched, while nothing is suspected, once something is, and in doubt.
const PROBE_EACH: [u64; 3] = [32, 8, 2];

/// A head that was overtaken so often while it was on its way suspects that somebody comes back for the lock.
const OVERTAKEN: u32 = 64;

/// After one turn in so many the lock goes from core to core for a while, to see whether that pays by now.
const TRY_EACH: u64 = 8;

/// A runner who has not been back for so long is gone, ns.
const GONE_NS: u32 = 1_000;

/// A head that naps looks at the lock after so long, ns, then after twice as long ...
const FIRST_LOOK_NS: u32 = 50_000;

/// ... up to this: a lock that falls idle is not left idle for longer.
const LONGEST_LOOK_NS: u32 = 200_000;

/// Should waiters leave the lock to those who come back for it?
pub(super) fn is_saturated<P: Platform>(parts: &Parts<'_, P>, tuning: &Tuning) -> bool {
    tuning.budget_ns != 0 && parts.mood.load(Relaxed) & mood::SATURATED != 0
}

/// Waits awake until `take` has taken the word; `false` if that took too long. `is_head`: of the line; else beside it.
pub(super) fn spin<P: Platform>(
    lock: &View<'_, P>,
    is_head: bool,
    mut take: impl FnMut() -> bool,
) -> bool {
    let View { parts, tuning, .. } = lock;
    let now = parts.mood.load(Relaxed);
    let suspicion = match now & mood::STEPS {
        0 => 0,
        steps if steps < mood::IDLE_AT => 1,
        _ => 2,
    };
    let start = P::now();
    // The clock's low bits are as good as a dice.
    let probe = tuning.budget_ns != 0
        && now & mood::SATURATED == 0
        && start / 64 % PROBE_EACH[suspicion] == 0;
    let mut got = false;
    let mut watch = || {
        let (mut holder, mut since) = (0, start);
        lock.spin_for(|value| {
            if value == FREE {
                got = !is_back(parts, holder, P::now() - since) && take();
            } else if parts.holder() != holder {
                (holder, since) = (parts.holder(), P::now());
            }
            value == FREE
        });
    };
    match (probe, is_head) {
        (true, true) => leave(parts, watch),
        (true, false) => watch(),
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

/// The word is free: does its last holder come back so soon that a move does not pay? Notes the answer; `false`: the word
/// is still free. `holder`: who that was, 0 if it isn't known; `waited`: since it acquired, at most, ns.
fn is_back<P: Platform>(parts: &Parts<'_, P>, holder: u32, waited: u64) -> bool {
    let grace = (waited / GRACE_SHARE).clamp(GRACE_NS, GRACE_MAX_NS);
    let moved = waited + TRANSFER_NS;
    let free = P::now();
    let limit = moved.clamp(GRACE_NS, GRACE_MAX_NS);
    if P::spin_for(parts.word, Relaxed, limit as u32, |value| value != FREE) == FREE {
        note(parts, true);
        return false;
    }
    let back = P::now() - free;
    let by_another = holder != 0 && ![0, holder].contains(&parts.holder());
    let sooner = || {
        let left = moved.saturating_sub(back).min(GRACE_MAX_NS);
        P::spin_for(parts.word, Relaxed, left as u32, |value| value == FREE) == FREE
    };
    note(parts, by_another || back > grace && !sooner());
    true
}

/// Head of a saturated lock: leaves it to its runner until its turn has come, asking nobody to wake it, or `take`s it when
/// the runner does not come back. `asked_ns`: when it asked; 0 if it did not look.
pub(super) fn nap<P: Platform>(
    lock: &View<'_, P>,
    asked_ns: u64,
    take: impl FnOnce() -> bool,
) -> bool {
    let (parts, budget) = (&lock.parts, u64::from(lock.tuning.budget_ns));
    let start = P::now();
    let waiters = parts.mood.load(Relaxed) / mood::WAITER; // a hint
    let mut turn = budget / u64::from(waiters.clamp(1, mood::MOST));
    if asked_ns != 0 {
        turn = turn.min((asked_ns + budget).saturating_sub(start));
    }
    let gone = leave(parts, || {
        let mut look = FIRST_LOOK_NS;
        loop {
            let left = turn.saturating_sub(P::now().wrapping_sub(start));
            if left == 0 {
                return false;
            }
            lock.sleep_aside(u64::from(look).min(left) as u32);
            look = (2 * look).min(LONGEST_LOOK_NS);
            if is_gone(parts) {
                return true;
            }
        }
    });
    if P::now() / 64 % TRY_EACH == 0 {
        doubt(parts);
    }
    gone && take()
}

/// The line's head leaves the lock to others for as long as `looks` takes.
fn leave<P: Platform, R>(parts: &Parts<'_, P>, looks: impl FnOnce() -> R) -> R {
    parts.mood.fetch_or(mood::NAPPING, Relaxed); // a hint, to arrivals
    P::reached(Stage::Naps);
    let answer = looks();
    parts.mood.fetch_and(!mood::NAPPING, Relaxed);
    P::reached(Stage::Head);
    answer
}

/// The line's head has the lock, late or not.
pub(super) fn acquired<P: Platform>(lock: &View<'_, P>) {
    resumed(&lock.parts);
    if lock.tuning.budget_ns != 0 && lock.overtaken() >= OVERTAKEN.min(lock.tuning.bypass) {
        note(&lock.parts, false);
    }
}

/// Waits awake for `ns` at most; `done` sees each new value of the word. Notes whether its holder seems to have lost its CPU:
/// then others need not wait awake for it.
pub(super) fn watch<P: Platform>(
    parts: &Parts<'_, P>,
    ns: u32,
    mut done: impl FnMut(u32) -> bool,
) {
    let (holder, mut over, mut free) = (parts.holder(), false, false);
    P::spin_for(parts.word, Relaxed, ns, |value| {
        free |= value == FREE;
        over = done(value);
        over
    });
    if ns != 0 && !over && !free && parts.holder() == holder {
        parts.mood.fetch_or(mood::STALLED, Relaxed); // a hint
    }
}

/// The caller has the lock: whoever held it was not stalled for ever.
pub(super) fn resumed<P: Platform>(parts: &Parts<'_, P>) {
    if parts.mood.load(Relaxed) & mood::STALLED != 0 {
        parts.mood.fetch_and(!mood::STALLED, Relaxed); // a hint
    }
}

/// Does the runner of a saturated lock not come back? Looks at it for one section and what follows.
fn is_gone<P: Platform>(parts: &Parts<'_, P>) -> bool {
    let until = |free: bool, ns| {
        P::spin_for(parts.word, Relaxed, ns, |value| (value == FREE) == free);
        P::now()
    };
    let released = until(true, GONE_NS);
    let back = until(false, GONE_NS);
    if parts.word.load(Relaxed) == FREE {
        note(parts, true);
        return true;
    }
    let hold = until(true, GONE_NS) - back;
    // Time in which another core could have had it. How much more than `hold` that would take, data and all, is not known.
    if back - released > GRACE_NS + 2 * hold {
        doubt(parts);
    }
    false
}

/// A saturated lock is no longer taken for one, but for one that probably is.
fn doubt<P: Platform>(parts: &Parts<'_, P>) {
    let now = parts.mood.load(Relaxed);
    let next = now & !(mood::STEPS | mood::SATURATED) | (mood::SATURATED_AT - 2 * mood::STEP);
    let _ = parts.mood.compare_exchange(now, next, Relaxed, Relaxed); // a hint, as in `note`
}

/// Moves two steps towards saturated, or three away from it.
fn note<P: Platform>(parts: &Parts<'_, P>, idle: bool) {
    let now = parts.mood.load(Relaxed);
    let steps = now & mood::STEPS;
    let steps = if idle {
        steps.saturating_sub(3 * mood::STEP)
    } else {
        (steps + 2 * mood::STEP).min(mood::STEPS)
    };
    let mut next = now & !mood::STEPS | steps;
    if steps >= mood::SATURATED_AT {
        next |= mood::SATURATED;
    } else if steps < mood::IDLE_AT {
        next &= !mood::SATURATED;
    }
    if next != now {
        // If somebody else notes something at the same time, theirs will do.
        let _ = parts.mood.compare_exchange(now, next, Relaxed, Relaxed);
    }
}
