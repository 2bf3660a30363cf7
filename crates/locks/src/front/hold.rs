//! How long a lock is held: measured at a sample of contended acquisitions.
//!
//! ```text
//!   holder   word 1 ─► 4, notes when ─ critical section ─ word is not 1: notes how long ─ word 4 ─► 0
//! ```
//!
//! The uncontended path reads no clock. A holder that came through the line, and is to be measured, makes the word 4. So its
//! unlock takes the slow path, and wakes nobody because of that (promise.rs; nobody sleeps on a word that says 1). A thread that
//! holds the lock by its node is measured if its unlock looks at the mutex anyway (grant.rs).
//!
//! The results lie in the machine's memos: one for the lock, found by its address, and one for each of its sections, found by that
//! address and by the place where the section begins (the address of the call that locks). A section that isn't known yet counts as
//! long as the lock's others. If two share a memo, each evicts the other's results. Times are converted to the fastest cores, whose
//! sections are shorter. A thread that moves to a core of another class meanwhile is not measured. All of this is a hint.

use super::{HELD, PROMISED, View};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Class, FULL_SPEED, MEMOS, Machine, Memo, Word};

/// The memo's owner: a hash of the lock's address and the section's number.
pub(super) const OWNER: usize = 0;
/// In the lock's memo: since when it has been held, the low half of the clock's ns, with 1 in place of 0; 0: not being measured.
const SINCE: usize = 1;
/// In the lock's memo: the class of the core that took it.
const CLASS: usize = 2;
/// How long it is usually held, ns, on the fastest cores; 0: not known.
pub(super) const USUAL: usize = 3;
/// In the lock's memo: the section that is being measured.
const SITE: usize = 4;

/// In place of a section's number: all sections of the lock.
const ALL: u32 = 0;

/// One acquisition by the word in this many is measured.
const SAMPLE: u64 = 16;

/// A measurement changes the average by the difference divided by this.
const PART: u32 = 8;

/// A longer hold counts as this long, ns. (So it fits 32 bits when converted to the slowest cores, too.)
const LONGEST_NS: u32 = 4_000_000;

/// A hold that isn't known yet counts as this long, ns.
const UNKNOWN_NS: u32 = 1_000;

impl<P: Machine> View<'_, P> {
    /// Looks at the memo of a section, or of the lock ([`ALL`]), with the owner that it should have.
    pub(super) fn memo<R>(
        &self,
        site: u32,
        look: impl FnOnce(&[P::Word; 8], u32) -> R,
    ) -> Option<R> {
        let lock = core::ptr::from_ref(self.parts.word).addr() as u64;
        let hash = (lock ^ u64::from(site) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = hash ^ hash >> 32;
        P::memo((hash >> 8) as usize % MEMOS, |Memo(memo)| look(memo, hash as u32 | 1))
    }

    /// How long the section is usually held on the fastest cores, by its memo, ns; 0: not known.
    fn usual(&self, site: u32) -> u32 {
        self.memo(site, |memo, owner| match memo[OWNER].load(Relaxed) {
            now if now == owner => memo[USUAL].load(Relaxed),
            _ => 0,
        })
        .unwrap_or(0)
    }

    /// How long the lock is usually held on the fastest cores, ns; 0: not known.
    pub(super) fn known_hold_ns(&self) -> u32 {
        self.usual(ALL)
    }

    /// How long threads on cores of this class usually hold the lock in the caller's section, ns; a guess until it is known.
    pub fn usual_hold_ns(&self, class: Class) -> u32 {
        let known = |site| Some(self.usual(site)).filter(|&ns| ns != 0);
        let usual = known(self.parts.site).or_else(|| known(ALL)).unwrap_or(UNKNOWN_NS);
        (u64::from(usual) * u64::from(FULL_SPEED) / u64::from(P::speed(class).max(1))) as u32
    }

    /// The caller has just acquired the lock, at `now`, and may measure how long it holds it. `surely`: it must.
    pub fn may_measure_hold(&self, now: u64, surely: bool) {
        let site = self.parts.site;
        if !surely && !(now / 64).is_multiple_of(SAMPLE) && self.usual(site) != 0 {
            return;
        }
        self.memo(ALL, |memo, owner| {
            claim::<P>(memo, owner, &[USUAL]);
            memo[SITE].store(site, Relaxed);
            memo[CLASS].store(P::place().class.0.into(), Relaxed);
            memo[SINCE].store((now as u32).max(1), Relaxed);
            // STATE: (1, q, s) -> (4, q, s). Relaxed: we hold it, and only our own unlock has to see it. The word may also be 2 or 3.
            let _ = self.parts.word.compare_exchange(HELD, PROMISED, Relaxed, Relaxed);
        });
    }

    /// The holder is about to release the lock: notes how long it has held it, if that is being measured.
    pub fn end_of_hold(&self) {
        let measured = self.memo(ALL, |memo, owner| {
            let since = memo[SINCE].load(Relaxed);
            if since == 0 || memo[OWNER].load(Relaxed) != owner {
                return None;
            }
            memo[SINCE].store(0, Relaxed);
            let class = P::place().class;
            if memo[CLASS].load(Relaxed) != class.0.into() {
                return None;
            }
            let hold = (P::now() as u32).wrapping_sub(since).min(LONGEST_NS);
            let hold = u64::from(hold) * u64::from(P::speed(class)) / u64::from(FULL_SPEED);
            learn::<P>(memo, hold as u32);
            Some((memo[SITE].load(Relaxed), hold as u32))
        });
        if let Some((site, hold)) = measured.flatten().filter(|&(site, _)| site != ALL) {
            self.memo(site, |memo, owner| {
                claim::<P>(memo, owner, &[USUAL]);
                learn::<P>(memo, hold);
            });
        }
    }
}

/// Makes this owner the memo's owner. These of its words begin at 0.
pub(super) fn claim<P: Machine>(memo: &[P::Word; 8], owner: u32, words: &[usize]) {
    if memo[OWNER].load(Relaxed) != owner {
        memo[OWNER].store(owner, Relaxed);
        words.iter().for_each(|&word| memo[word].store(0, Relaxed));
    }
}

/// Notes a hold, or another time whose usual length matters, ns.
pub(super) fn learn<P: Machine>(memo: &[P::Word; 8], hold: u32) {
    let next = match memo[USUAL].load(Relaxed) {
        0 => hold,
        so_far => so_far - so_far / PART + hold / PART,
    };
    memo[USUAL].store(next.max(1), Relaxed);
}
