//! How busy does a runner keep the lock? On two CPUs that decides whether there is work for a second runner.
//!
//! ```text
//!   runner   [held][free][held][free][held] ...     rounds, up to 8, or 10 us
//!   watcher  ^ the word tells when, and `__owner` whether it is the same thread
//! ```
//!
//! With two CPUs there is one runner beside the watcher. A second runner could at best fill the time in which the lock is
//! free. Each move of the lock costs it the lock's data, and all the data that the lock leads to. So if the runner holds the
//! lock for most of its time, it should run alone: LMDB's operations take twice the CPU time with two runners. In programs with
//! several locks one busy lock is enough: a thread that waits there doesn't disturb the others.
//!
//! On more CPUs batch.rs asks what a move costs. There, runners take the lock from each other, and no single thread's rounds can
//! be seen.

use super::{FREE, Parts, View};
use lockwright_platform::Machine;
use lockwright_platform::Ordering::Relaxed;

/// Nobody waits for a runner that isn't back after this long, ns.
pub(super) const GRACE_MAX_NS: u64 = 2_000;

/// The least cost of a move to another core: the word, and a few cache lines of data, ns. (Watching costs the runner about as much.)
pub(super) const MOVED_NS: u64 = 150;

/// A thread that has taken the word writes its id within this time, ns.
const OWNER_NS: u32 = 100;

/// How long a runner is watched, ns.
pub(super) const WATCH_NS: u64 = 5_000;

/// This many rounds show how busy the lock is. Fewer than three are enough only if it is hardly ever free.
const ROUNDS: u64 = 8;

/// A busy lock is free for at most this many quarters of the time for which it is held ...
pub(super) const BUSY: u64 = 3;

/// ... and a lock that counts as saturated may go up to this: chance must not end a turn.
pub(super) const STILL_BUSY: u64 = 8;

/// The lock may have been free for this much longer by chance when watching ends, ns.
const SLACK_NS: u64 = 500;

/// Is there at most one visible runner?
pub(super) fn few<P: Machine>(lock: &View<'_, P>) -> bool {
    lock.tuning.cpus <= 2 && lock.pace.is_none()
}

/// Waits awake, for `ns` at most, until the word is free (or, without `is_free`, is held); returns when that was.
pub(super) fn until<P: Machine>(parts: &Parts<'_, P>, is_free: bool, ns: u64) -> Option<u64> {
    let seen = P::spin_for(parts.word, Relaxed, ns as u32, |value| (value == FREE) == is_free);
    ((seen == FREE) == is_free).then(P::now)
}

/// The thread that has just taken the word; 0: not known. The owner is written after the word.
pub(super) fn who<P: Machine>(parts: &Parts<'_, P>) -> u32 {
    if let Some(owner) = parts.owner {
        P::spin_for(owner, Relaxed, OWNER_NS, |owner| owner != 0);
    }
    parts.holder()
}

/// Watches a runner. Busy means: the lock is free for at most `most` quarters of the time for which it is held. `None`: its last
/// holder doesn't come back; perhaps the watcher occupies its CPU.
pub(super) fn is_busy<P: Machine>(parts: &Parts<'_, P>, most: u64) -> Option<bool> {
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
