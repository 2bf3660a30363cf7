//! How fast a lock changes hands, and when a holder next reads the clock: what a GRANTED gate carries beside its state.
//!
//! ```text
//!   31           10 9      5   4    3   2   0
//!   │ tick         │ grants │ sliced │behind│ state │
//! ```
//!
//! Under rules that leave the lock to others now and then (batch.rs), a holder that looks at the mutex notes the time. From it the next
//! holder that looks knows how long the grants in between took.

use super::waiter::{GRANTED, grants};

/// In a GRANTED gate: the lock's rule leaves the lock to others for a slice of each millisecond (batch.rs).
const SLICED: u32 = 16;

/// In a GRANTED gate: one tick of the time at which the mutex was last looked at (22 bits, which wrap).
pub(super) const TICK: u32 = 1 << 10;

/// A pace counts fewer grants than this.
const PACE_GRANTS: u32 = 8;

/// A slower pace counts as this one, ns.
const PACE_MAX_NS: u32 = 1_000_000;

/// The length of a tick, ns.
const TICK_NS: u64 = 16;

/// A GRANTED gate written at `now`, for a lock whose rule leaves it to others now and then.
pub(super) fn sliced(now: u64) -> u32 {
    GRANTED | SLICED | ((now / TICK_NS) as u32).wrapping_mul(TICK)
}

/// How long recent grants took; told to the head that comes after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The time of one grant with its section, ns.
    pub ns: u32,
    /// The number of grants, less than [`PACE_GRANTS`]; 0: the pace isn't known.
    pub grants: u32,
}

impl Pace {
    /// Reads it from a [`sliced`] gate.
    pub(super) fn of(gate: u32, now: u64) -> Self {
        let ticks = (sliced(now) / TICK).wrapping_sub(gate / TICK) % (u32::MAX / TICK + 1);
        let grants = if is_sliced(gate) { grants(gate) } else { 0 };
        // Plus one: the section of the holder that looked at the mutex counts, too.
        let ns = ticks * TICK_NS as u32 / (grants + 1);
        Self { ns: ns.min(PACE_MAX_NS), grants: grants.min(PACE_GRANTS - 1) }
    }

    /// Is the pace known?
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

/// Is [`SLICED`] set in this gate?
pub(super) fn is_sliced(gate: u32) -> bool {
    gate & SLICED != 0
}
