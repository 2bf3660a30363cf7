//! How busy does a runner keep the lock? On two CPUs that decides whether there is work for a second runner.
//!
//! ```text
//!   runner   [held][free][held][free][held] ...     rounds, up to 8, or 10 us
//!   watcher  ^ the word tells, `__owner` whether it is the same one
//! ```
//!
//! With two CPUs there is one runner beside the watcher. A second runner can at best fill the time in which the lock is
//! free. At each move it pays for the lock's data, and for all that the lock leads to. So if the runner holds the lock
//! for most of its time, it should run alone: LMDB's operations take twice the CPU time with two runners. Programs with
//! several locks need only one busy lock: a thread that waits there does not disturb the others.
//!
//! On more CPUs batch.rs asks what a move costs: there, runners take the lock from each other, and nobody's rounds can be seen.

use super::{FREE, Parts, View};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::Platform;

/// A runner that is not back after this long is not waited for, ns.
pub(super) const GRACE_MAX_NS: u64 = 2_000;

/// What a move to another core costs at least: the word, and a few lines of data, ns. (Watching a runner costs it about as much.)
pub(super) const MOVED_NS: u64 = 150;

/// A thread that has taken the word writes its id within this time, ns.
const OWNER_NS: u32 = 100;

/// How long a runner is watched, ns.
pub(super) const WATCH_NS: u64 = 5_000;

/// This many rounds show how busy the lock is kept; fewer than three do only if it is hardly ever free.
const ROUNDS: u64 = 8;

/// A busy lock is free for at most this many quarters of the time for which it is held ...
pub(super) const BUSY: u64 = 3;

/// ... and one that counts as saturated may go up to this: chance must not end a turn.
pub(super) const STILL_BUSY: u64 = 8;

/// How much longer it may have been free by chance when watching ends, ns.
const SLACK_NS: u64 = 500;

/// Is there at most one visible runner?
pub(super) fn few<P: Platform>(lock: &View<'_, P>) -> bool {
    lock.tuning.cpus <= 2 && lock.pace.is_none()
}

/// Waits awake, for `ns` at most, until the word is free, or until it is not; returns when that was.
pub(super) fn until<P: Platform>(parts: &Parts<'_, P>, is_free: bool, ns: u64) -> Option<u64> {
    let seen = P::spin_for(parts.word, Relaxed, ns as u32, |value| (value == FREE) == is_free);
    ((seen == FREE) == is_free).then(P::now)
}

/// Who has just taken the word; 0: it isn't known. The owner is written after the word.
pub(super) fn who<P: Platform>(parts: &Parts<'_, P>) -> u32 {
    if let Some(owner) = parts.owner {
        P::spin_for(owner, Relaxed, OWNER_NS, |owner| owner != 0);
    }
    parts.holder()
}

/// Watches a runner. Busy: the lock is free for at most `most` quarters of the time that it is held. None: its last holder does
/// not come back; perhaps the watcher has its CPU.
pub(super) fn is_busy<P: Platform>(parts: &Parts<'_, P>, most: u64) -> Option<bool> {
    let (mut free, mut held, mut holder, mut count) = (0, 0, 0, 0);
    let Some(mut released) = until(parts, true, 2 * WATCH_NS) else { return Some(true) };
    while count < ROUNDS && free + held < 2 * WATCH_NS && free <= held * most / 4 + SLACK_NS {
        let back = until(parts, false, GRACE_MAX_NS)?;
        let by = parts.holder();
        if by != 0 && holder != 0 && by != holder {
            return Some(false);
        }
        holder = if by == 0 { holder } else { by };
        free += back.saturating_sub(released);
        (released, count) = (until(parts, true, 2 * WATCH_NS)?, count + 1);
        held += released.saturating_sub(back);
    }
    let enough = if count < 3 { held / 8 } else { held * most / 4 };
    Some(free <= enough || free < count * MOVED_NS)
}
