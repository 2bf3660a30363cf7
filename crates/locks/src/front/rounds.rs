//! Rounds: on more than two CPUs they decide whether a runner comes back so soon that handing the lock on doesn't pay.
//!
//! A head that finds the word free doesn't take it. It watches for some microseconds who does. The rounds of a single
//! thread tell how fast the lock is on a core that has its data. This is compared with the time of one section when the lock
//! moves from core to core:
//!
//! - *Granted locks* (grant.rs) know that time: the chain ends for a slice of each millisecond, and tells its head its pace.
//! - *Other locks* guess it, by how long the last section took after somebody was first seen in it. Sections differ by chance,
//!   so only a runner that is twice as fast counts.
//!
//! ```text
//!   chain    [cs]→[cs]→[cs]→[cs]│            pace: time / grants
//!   runner                      [cs]..[cs]..[cs]..[cs]
//!   head                         ^ watches            ^ takes it, and votes
//! ```
//!
//! It matters most at the *knee*, where threads just keep the lock busy. A chain of grants then completes several sections in
//! the time of one runner's round. A lock that counted as saturated there would lose half of its throughput.

use super::batch::is_in_slice;
use super::busy::{GRACE_MAX_NS, MOVED_NS, WATCH_NS, until, who};
use super::{View, mood, pace::Pace};
use lockwright_platform::Machine;

/// A runner that has not been back for this long is gone, ns.
pub(super) const GONE_NS: u64 = 1_000;

/// Where the pace is known, this many rounds of one thread tell how fast it is.
const ROUNDS: u64 = 3;

/// Other threads may take the lock this often meanwhile.
const OTHERS: u64 = 3;

/// A runner must be this many times as fast as a guess.
const FASTER: u64 = 2;

/// A pace has at most this many votes: a wake-up among a few grants must not decide.
const VOTES: u32 = 4;

/// Enough votes to decide at once.
pub(super) const ALL: i32 = (mood::STEPS / mood::STEP) as i32;

/// What a watcher has seen.
pub(super) struct Seen {
    /// Somebody took the word meanwhile.
    pub(super) came: bool,
    /// Steps towards saturated, or away from it.
    pub(super) votes: i32,
}

/// The word is free: watches who comes back. `last`: its last holder, 0 if that isn't known. `guess`: the time of a section on
/// a core that has just got the data, including the move, ns; used where no pace is known.
pub(super) fn watch<P: Machine>(lock: &View<'_, P>, mut last: u32, guess: Option<u64>) -> Seen {
    let (parts, pace) = (&lock.parts, lock.pace.filter(Pace::is_known));
    let moved = pace.map_or(guess.unwrap_or(0), |pace| pace.ns.into()).min(GRACE_MAX_NS);
    let (least, others, enough) = match pace {
        Some(_) => (GONE_NS, OTHERS, ROUNDS),
        None => (MOVED_NS, 0, u64::MAX),
    };
    let start = P::now();
    let (mut released, mut taken) = (start, 0);
    // Rounds of one thread, and how long the lock was free, and held, in them, ns.
    let (mut rounds, mut free, mut held) = (0, 0, 0);
    let is_enough = loop {
        let patience =
            (moved * (taken + 1)).saturating_sub(P::now().saturating_sub(start)).min(GRACE_MAX_NS);
        let Some(back) = until(parts, false, patience.max(least)) else { break rounds >= enough };
        taken += 1;
        let by = if pace.is_some() { who(parts) } else { parts.holder() };
        let Some(end) = until(parts, true, WATCH_NS) else { break rounds >= enough };
        if by == 0 || last == 0 || by == last {
            rounds += 1;
            free += back.saturating_sub(released);
            held += end.saturating_sub(back);
        }
        (last, released) = (if by == 0 { last } else { by }, end);
        if taken - rounds > others {
            break rounds >= enough;
        }
        if end.saturating_sub(start) > WATCH_NS {
            break rounds > 0;
        }
    };
    // Saturated if the runner is back sooner than a move takes, whatever the section; or if its rounds are short, allowing for
    // the cost of watching.
    let is_faster = match pace {
        Some(_) => free + held < rounds * (moved + MOVED_NS),
        None => (free + held) * FASTER < rounds * moved,
    };
    let votes = match (is_enough && (free < rounds * MOVED_NS || is_faster), pace) {
        (true, Some(pace)) => pace.grants.min(VOTES) as i32,
        (false, Some(_)) if rounds >= ROUNDS => -ALL,
        (false, Some(_)) => 0, // too few
        (true, None) if is_in_slice(start) => ALL,
        (true, None) => 1,
        (false, None) if lock.pace.is_some() => 0, // a chain will tell, if there are any
        (false, None) => -2,
    };
    Seen { came: taken != 0, votes }
}
