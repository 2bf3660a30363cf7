//! A rest from choices in vain. A policy that mostly chooses nobody makes each chooser look at many waiters, and each look moves cache
//! lines between cores. So after 16 choices in vain, one after the other, the lock rests from choices: for as long as the last one took.
//! After one more it rests for twice as long, and so on, up to 64 times. A choice of somebody ends this.
//!
//! ```text
//!   16 in vain ─► rests 1 x ─► in vain ─► rests 2 x ─► ... ─► rests 64 x ─► ...        chose somebody ─► rests no more
//! ```
//!
//! Fewer than 16 would take a policy that sorts by two classes (CAL) for one that has nothing to say: its order is often right already.
//!
//! While a lock rests, its waiters wait as fifo's do. The state lies in one of the machine's memos, as lengths of sections do (hold.rs), and
//! is a hint, too: a machine without memos never rests.

use super::View;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// In place of a section's number: the rests of the lock.
const RESTS: u32 = u32::MAX;

/// In the memo: choices in vain, one after the other.
const IN_VAIN: usize = 1;
/// In the memo: until when the lock rests, the low half of the clock's ns.
const UNTIL: usize = 2;

/// This many in vain, and the lock rests.
const ENOUGH: u32 = 16;

/// A rest is at most this power of two times as long as the choice.
const MOST: u32 = 6;

/// A choice that took longer counts as this long, ns. (So a chooser that lost its CPU does no harm.)
const LONGEST_NS: u32 = 50_000;

/// The longest rest, ns.
const LONGEST_REST_NS: u32 = LONGEST_NS << MOST;

impl<P: Platform> View<'_, P> {
    /// Does the lock rest from choices?
    pub(crate) fn rests(&self) -> bool {
        let until = self.memo(RESTS, |memo, owner| {
            let in_vain = memo[IN_VAIN].load(Relaxed); // hints, all
            (in_vain >= ENOUGH && memo[super::hold::OWNER].load(Relaxed) == owner)
                .then(|| memo[UNTIL].load(Relaxed))
        });
        let Some(until) = until.flatten() else { return false };
        // An end that is further away is long past: the low half of the clock's ns comes round every 4.3 s.
        (1..=LONGEST_REST_NS).contains(&until.wrapping_sub(P::now() as u32))
    }

    /// A choice that began at `begun` was in vain: of nobody, or too late.
    pub(crate) fn chose_in_vain(&self, begun: u64) {
        let now = P::now();
        let took = now.saturating_sub(begun).min(LONGEST_NS.into()) as u32;
        self.memo(RESTS, |memo, owner| {
            super::hold::claim::<P>(memo, owner, &[IN_VAIN]);
            let in_vain = memo[IN_VAIN].load(Relaxed) + 1;
            if let Some(power) = in_vain.checked_sub(ENOUGH) {
                memo[UNTIL].store((now as u32).wrapping_add(took << power.min(MOST)), Relaxed);
            }
            memo[IN_VAIN].store(in_vain.min(ENOUGH + MOST), Relaxed);
        });
    }

    /// The policy has chosen somebody.
    pub(crate) fn chose(&self) {
        self.memo(RESTS, |memo, owner| {
            if memo[super::hold::OWNER].load(Relaxed) == owner && memo[IN_VAIN].load(Relaxed) != 0 {
                memo[IN_VAIN].store(0, Relaxed);
            }
        });
    }
}
