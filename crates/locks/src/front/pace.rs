//! How fast a lock changes hands, and when it has its next look at the clock: what a GRANTED gate carries beside its state.
//!
//! ```text
//!   31           10 9      5   4    3   2   0
//!   │ tick         │ grants │ sliced │behind│ state │
//! ```
//!
//! Under rules that leave the lock to others now and then (batch.rs), a holder that looks at the mutex notes when that was. The next one
//! that looks knows by it how long the grants in between have taken.

use super::waiter::{GRANTED, grants};

/// In a GRANTED gate: the lock's rule leaves the lock to others for a slice of each millisecond (batch.rs).
const SLICED: u32 = 16;

/// In a GRANTED gate: one tick of the clock, when that was (22 bits, which wrap).
pub(super) const TICK: u32 = 1 << 10;

/// A pace counts fewer grants than this.
const PACE_GRANTS: u32 = 8;

/// A slower pace is this one, ns.
const PACE_MAX_NS: u32 = 1_000_000;

/// Such a tick, ns.
const TICK_NS: u64 = 16;

/// A GRANTED gate, at `now`, of a lock whose rule leaves it to others now and then.
pub(super) fn sliced(now: u64) -> u32 {
    GRANTED | SLICED | ((now / TICK_NS) as u32).wrapping_mul(TICK)
}

/// How long grants took lately, as the head is told that comes after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// One, with its section, ns.
    pub ns: u32,
    /// How many there were, fewer than [`PACE_GRANTS`]; 0: it isn't known.
    pub grants: u32,
}

impl Pace {
    /// By a [`sliced`] gate.
    pub(super) fn of(gate: u32, now: u64) -> Self {
        let ticks = (sliced(now) / TICK).wrapping_sub(gate / TICK) % (u32::MAX / TICK + 1);
        let grants = if is_sliced(gate) { grants(gate) } else { 0 };
        // The first holder's section, too, after a look at the mutex.
        let ns = ticks * TICK_NS as u32 / (grants + 1);
        Self { ns: ns.min(PACE_MAX_NS), grants: grants.min(PACE_GRANTS - 1) }
    }

    /// Does it say anything?
    pub(super) fn is_known(&self) -> bool {
        self.grants > 0
    }

    pub(super) fn from_word(word: u32) -> Self {
        Self { ns: word / PACE_GRANTS, grants: word % PACE_GRANTS }
    }

    pub(super) fn to_word(self) -> u32 {
        self.ns * PACE_GRANTS + self.grants
    }
}

/// Does it say [`SLICED`]?
pub(super) fn is_sliced(gate: u32) -> bool {
    gate & SLICED != 0
}
