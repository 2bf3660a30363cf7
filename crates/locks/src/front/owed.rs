//! A wake that unlock leaves to a waiter that is awake.
//!
//! A thread that an unlock has woken takes microseconds to come. If somebody waits awake, unlock need not wake anybody:
//! it leaves that wake to those who are counted beside the line (beside.rs). It may not look later whether one of them has
//! taken the lock, since the next holder may free the mutex. So the next one that is counted out, with the lock or without it,
//! pays what is owed:
//!
//! ```text
//!   holder   word 2 ─► 4      side |= OWED      word 4 ─► 0           fails if somebody has made it 2: then it wakes
//!   waiter                                      word 0 ─► 1      side -= 1, OWED was set      word 1 ─► 2
//!   or                           side -= 1, OWED was set      word 4 ─► 2, or wakes a sleeper if it is free
//! ```
//!
//! Invariants:
//! 1. OWED is set by a step that also reads the count. If that is not 0, somebody is yet to be counted out, finds OWED, and
//!    then looks at a word that was 4 before.
//! 2. Whoever sleeps on the word while it is 4 has made it 2. So a wake is left only if nobody has fallen asleep since.
//! 3. A thread that dies between the two steps of counting out leaves the count too high by one. Then one wake may get
//!    lost: OWED stays, and no other wake is left to anybody. So the head of a rule that leaves wakes looks now and then.

use super::{FREE, LEAVING, Parts, View, WAITED, side};
use lockwright_platform::Ordering::{Relaxed, Release};
use lockwright_platform::{Platform, Word};

impl<P: Platform> View<'_, P> {
    /// The holder of a word that says 2 frees it, and leaves the wake to a waiter that is counted beside the line. `false`:
    /// none is, or somebody has fallen asleep meanwhile, and nothing is freed.
    pub fn leave_to_waiter(&self) -> bool {
        let Parts { word, side, .. } = self.parts;
        let may = |now| {
            let overtaken = (now & side::BYPASSES) / side::BYPASS;
            let none = side::OWED | side::MOVEDS | side::BY_NODE | side::TURN;
            self.beside_in(now) > 0 && now & none == 0 && overtaken < self.tuning.bypass
        };
        // STATE: (2, q, s) -> (4, q, s). Relaxed: we hold it, and [owe] publishes it.
        if !may(side.load(Relaxed))
            || word.compare_exchange(WAITED, LEAVING, Relaxed, Relaxed).is_err()
        {
            return false;
        }
        // [owe] ORDERING: Release, pairs with the Acquire of `count_out`: who leaves after this finds LEAVING, or later.
        if may(side.fetch_or(side::OWED, Release)) {
            // ORDERING: Release, pairs with every Acquire that takes the word.
            // STATE: (4, q, s) -> (0, q, s). From here on nothing, by invariant 4 of front/mod.rs.
            if word.compare_exchange(LEAVING, FREE, Release, Relaxed).is_ok() {
                return true;
            }
        } else {
            side.fetch_and(!side::OWED, Relaxed); // nobody is left to see it
        }
        // STATE: (4, q, s) -> (2, q, s), or somebody has made it 2. Relaxed: we hold it.
        let _ = word.compare_exchange(LEAVING, WAITED, Relaxed, Relaxed);
        false
    }
}
