//! A rest from choices in vain. A policy that mostly leaves the order as it is makes each chooser look at many waiters, and each look moves
//! cache lines between cores. So after 16 choices in vain, one after the other, the lock rests from choices: for as long as the last one
//! took. After one more it rests for twice as long, and so on, up to 256 times. A choice that moves somebody ends this, and so does the
//! arrival of a thread of another kind than those among which the policy chose in vain.
//!
//! ```text
//!   16 in vain ─► rests 1 x ─► in vain ─► rests 2 x ─► ... ─► rests 256 x ─► ...       moved somebody, or another kind: rests no more
//! ```
//!
//! Fewer than 16 would take a policy that sorts by two classes (CAL) for one that has nothing to say: its order is often right already.
//! Without kinds, a rest would hide a rare thread that matters: the one with a high priority, or a tag, or another lock. What a thread
//! only becomes while it waits (it has waited for long) doesn't count as a kind: then the policy's choice comes when the rest ends, at most
//! 3.2 ms later.
//!
//! While a lock rests, its waiters wait as fifo's do. The state lies in one of the machine's memos, as lengths of sections do (hold.rs), and
//! is a hint, too: a machine without memos never rests.

use super::View;
use super::hold::{OWNER, claim};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::hooks::{IN_EPOCH, Node};
use lockwright_platform::{Machine, Word};

/// In place of a section's number: the rests of the lock.
const RESTS: u32 = u32::MAX;

/// In the memo: choices in vain, one after the other.
const IN_VAIN: usize = 1;
/// In the memo: until when the lock rests, the low half of the clock's ns.
const UNTIL: usize = 2;
/// In the memo: the [kinds](kind) of the threads among which those choices were made.
const KINDS: usize = 3;

/// After this many of them the lock rests.
const ENOUGH: u32 = 16;

/// A rest is at most this power of two times as long as the choice.
const MOST: u32 = 8;

/// A choice that took longer counts as this long, ns. (So a chooser that lost its CPU does no harm.)
const LONGEST_NS: u32 = 12_500;

/// The longest rest, ns.
const LONGEST_REST_NS: u32 = LONGEST_NS << MOST;

/// What kind of thread that is, as one of 32 bits: by all that a policy may prefer it for, and that doesn't change while it waits. Two
/// kinds may have the same bit.
pub(crate) fn kind(thread: &Node) -> u32 {
    let holds = thread.held_locks > 0;
    let parts = [
        thread.tag,
        thread.slo_ns,
        u64::from(thread.prio as u32) << 32 | u64::from(thread.numa),
        u64::from(thread.core_class) << 2
            | u64::from(thread.flags & IN_EPOCH != 0) << 1
            | u64::from(holds),
    ];
    let mix =
        |hash: u64, part: &u64| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    1 << (parts.iter().fold(0, mix) >> 59)
}

impl<P: Machine> View<'_, P> {
    /// Does the lock rest from choices?
    pub(crate) fn rests(&self) -> bool {
        let until = self.memo(RESTS, |memo, owner| {
            // Hints, all of it.
            let rests = memo[IN_VAIN].load(Relaxed) >= ENOUGH && memo[OWNER].load(Relaxed) == owner;
            rests.then(|| memo[UNTIL].load(Relaxed))
        });
        let Some(until) = until.flatten() else { return false };
        // An end that is further away is long past: the low half of the clock's ns comes round every 4.3 s.
        (1..=LONGEST_REST_NS).contains(&until.wrapping_sub(P::now() as u32))
    }

    /// A choice among threads of these kinds, which began at `begun`, has left the order as it was.
    pub(crate) fn chose_in_vain(&self, begun: u64, kinds: u32) {
        let now = P::now();
        let took = now.saturating_sub(begun).min(LONGEST_NS.into()) as u32;
        self.memo(RESTS, |memo, owner| {
            claim::<P>(memo, owner, &[IN_VAIN, KINDS]);
            let in_vain = memo[IN_VAIN].load(Relaxed) + 1;
            if let Some(power) = in_vain.checked_sub(ENOUGH) {
                memo[UNTIL].store((now as u32).wrapping_add(took << power.min(MOST)), Relaxed);
            }
            memo[IN_VAIN].store(in_vain.min(ENOUGH + MOST), Relaxed);
            memo[KINDS].store(memo[KINDS].load(Relaxed) | kinds, Relaxed);
        });
    }

    /// A choice has moved somebody.
    pub(crate) fn chose(&self) {
        self.memo(RESTS, |memo, owner| {
            if memo[OWNER].load(Relaxed) == owner && memo[IN_VAIN].load(Relaxed) != 0 {
                memo[IN_VAIN].store(0, Relaxed);
                memo[KINDS].store(0, Relaxed);
            }
        });
    }

    /// This thread is about to join the line: if choices were in vain among other kinds, that says nothing about this one.
    pub(crate) fn meets(&self, thread: &Node) {
        let is_new = self.memo(RESTS, |memo, owner| {
            memo[IN_VAIN].load(Relaxed) >= ENOUGH
                && memo[KINDS].load(Relaxed) & kind(thread) == 0
                && memo[OWNER].load(Relaxed) == owner
        });
        if is_new == Some(true) {
            self.chose();
        }
    }
}
