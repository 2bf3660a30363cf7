//! Saturation: is it worth handing the lock to another core?
//!
//! A waiter that takes the lock as soon as it is free makes the lock, and all data that it protects, travel
//! between cores. If the last holder would have been back within less time than that, nothing is gained: its
//! own core has the data. So waiters learn: now and then, and always while they suspect it, a waiter that
//! finds the word free looks again after a moment. Taken again by then: one step towards *saturated*. Still
//! free: a step back. (The second look is the standby rule of LibASL, "free seen twice"; leaving the lock to
//! the core that has the data is what NUMA locks do between sockets: Radovic & Hagersten, HPCA 2003.)
//!
//! ```text
//!   holder   [cs]..[cs]..[cs]..[cs]..        [cs]........[cs].......
//!   waiter        ^  ^ taken again: +2          ^   ^ still free: -3, take
//! ```
//!
//! Everything here is a hint: who holds the lock is decided by word 0 alone.

use super::{FREE, Parts, Tuning, View, mood};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// What a hand-over to another core costs at least: word, and a few lines of data.
const GRACE_NS: u64 = 150;

/// The longer the critical sections, the more data they touch: the second look comes after this share of
/// what the waiter has waited, if that is longer ...
const GRACE_SHARE: u64 = 8;

/// ... but not later than this.
const GRACE_MAX_NS: u64 = 2_000;

/// One free word in so many is looked at twice, while nothing is suspected, and once something is.
const PROBE_EACH: [u64; 2] = [32, 8];

/// A lock found held after a nap counts once in so many times.
const HELD_EACH: u64 = 4;

/// Should waiters leave the lock to those who come back for it?
pub(super) fn is_saturated<P: Platform>(parts: &Parts<'_, P>, tuning: &Tuning) -> bool {
    tuning.batch_ns != 0 && parts.mood.load(Relaxed) & mood::SATURATED != 0
}

/// Waits awake until `take` has taken the word; `false` if that took too long.
pub(super) fn spin<P: Platform>(lock: &View<'_, P>, mut take: impl FnMut() -> bool) -> bool {
    let View { parts, tuning, .. } = lock;
    let now = parts.mood.load(Relaxed);
    let steps = now & mood::STEPS;
    let start = P::now();
    // The clock's low bits are as good as a dice.
    let mut probe = tuning.batch_ns != 0
        && now & mood::SATURATED == 0
        && start / 64 % PROBE_EACH[usize::from(steps != 0)] == 0;
    let mut got = false;
    lock.spin_for(|value| {
        if value == FREE {
            got = (!probe || is_idle(parts, P::now() - start)) && take();
            probe = false;
        }
        got
    });
    got
}

/// Is the word, just seen free, still free after a moment? Notes the answer. `waited`: so far, ns.
fn is_idle<P: Platform>(parts: &Parts<'_, P>, waited: u64) -> bool {
    let grace = (waited / GRACE_SHARE).clamp(GRACE_NS, GRACE_MAX_NS);
    if parts.word.load(Relaxed) != FREE {
        return false;
    }
    P::pause(grace as u32);
    let idle = parts.word.load(Relaxed) == FREE;
    note(parts, idle);
    idle
}

/// The head of a saturated lock has slept and looks again: takes it if it stays free; and a lock that is held
/// then is some evidence, too.
pub(super) fn take_after_nap<P: Platform>(lock: &View<'_, P>, take: impl FnOnce() -> bool) -> bool {
    if lock.is_open() {
        return is_idle(&lock.parts, 0) && take();
    }
    if P::now() / 64 % HELD_EACH == 0 {
        note(&lock.parts, false);
    }
    false
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
