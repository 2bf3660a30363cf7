//! How long a lock is held: measured at few contended acquisitions.
//!
//! ```text
//!   holder   word 1 ─► 4, notes when ─ critical section ─ word is not 1: notes how long ─ word 4 ─► 0
//! ```
//!
//! The uncontended path reads no clock. A holder that came by the line, and whose turn it is to be measured, makes the word 4:
//! so its unlock comes by the slow path, and wakes nobody for that (promise.rs; nobody sleeps on a word that says 1). A holder by
//! its node is measured if its unlock looks at the mutex anyway (grant.rs).
//!
//! What is known lies in memos of the machine's: one of the lock, found by its address, and one of each of its sections, found by that and
//! by where the section begins (the address of the call that locks). A section that isn't known yet counts as long as the lock's others.
//! Two may share a memo: then they turn each other out, and what has been learnt is lost. It is kept as if measured on the fastest cores,
//! whose sections are shorter; a thread that changes to a core of another class meanwhile is not measured. All of it is a hint.

use super::{HELD, PROMISED, View};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Class, FULL_SPEED, MEMOS, Memo, Platform, Word};

/// Whose memo it is: from the lock's address, and the section's number.
const OWNER: usize = 0;
/// In the lock's memo: since when it has been held, the low half of the clock's ns, 1 in place of 0; 0: it is not measured.
const SINCE: usize = 1;
/// In the lock's memo: the class of the core that took it.
const CLASS: usize = 2;
/// How long it is usually held, ns, on the fastest cores; 0: not known.
const USUAL: usize = 3;
/// In the lock's memo: which section is measured.
const SITE: usize = 4;

/// In place of a section's number: all of the lock's.
const ALL: u32 = 0;

/// One acquisition by the word in this many is measured.
const SAMPLE: u64 = 16;

/// A measurement changes what is known by this part of the difference.
const PART: u32 = 8;

/// A longer hold counts as this long, ns. (So that it is one on the slowest cores, too, in 32 bits.)
const LONGEST_NS: u32 = 4_000_000;

/// What is not known counts as this long, ns.
const UNKNOWN_NS: u32 = 1_000;

impl<P: Platform> View<'_, P> {
    /// The memo of a section, or of the lock ([`ALL`]), and whose it would have to be.
    fn memo<R>(&self, site: u32, look: impl FnOnce(&[P::Word; 8], u32) -> R) -> Option<R> {
        let lock = core::ptr::from_ref(self.parts.word).addr() as u64;
        let hash = (lock ^ u64::from(site) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = hash ^ hash >> 32;
        P::memo((hash >> 8) as usize % MEMOS, |Memo(memo)| look(memo, hash as u32 | 1))
    }

    /// What a memo says, on the fastest cores, ns; 0: nothing.
    fn usual(&self, site: u32) -> u32 {
        self.memo(site, |memo, owner| match memo[OWNER].load(Relaxed) {
            now if now == owner => memo[USUAL].load(Relaxed),
            _ => 0,
        })
        .unwrap_or(0)
    }

    /// How long threads on cores of this class usually hold the lock in the section that is asked for, ns; a guess until it is known.
    pub fn usual_hold_ns(&self, class: Class) -> u32 {
        let known = |site| Some(self.usual(site)).filter(|&ns| ns != 0);
        let usual = known(self.parts.site).or_else(|| known(ALL)).unwrap_or(UNKNOWN_NS);
        (u64::from(usual) * u64::from(FULL_SPEED) / u64::from(P::speed(class).max(1))) as u32
    }

    /// The caller has just acquired it, at `now`: it may measure how long it holds it. `surely`: it does.
    pub fn may_measure_hold(&self, now: u64, surely: bool) {
        let site = self.parts.site;
        if !surely && !(now / 64).is_multiple_of(SAMPLE) && self.usual(site) != 0 {
            return;
        }
        self.memo(ALL, |memo, owner| {
            claim::<P>(memo, owner);
            memo[SITE].store(site, Relaxed);
            memo[CLASS].store(P::place().class.0.into(), Relaxed);
            memo[SINCE].store((now as u32).max(1), Relaxed);
            // STATE: (1, q, s) -> (4, q, s). Relaxed: we hold it, and our own unlock has to find it. It may say 2 or 3.
            let _ = self.parts.word.compare_exchange(HELD, PROMISED, Relaxed, Relaxed);
        });
    }

    /// The holder is about to release it: notes how long it has held it, if that is measured.
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
                claim::<P>(memo, owner);
                learn::<P>(memo, hold);
            });
        }
    }
}

/// The memo is this owner's from now on.
fn claim<P: Platform>(memo: &[P::Word; 8], owner: u32) {
    if memo[OWNER].load(Relaxed) != owner {
        memo[OWNER].store(owner, Relaxed);
        memo[USUAL].store(0, Relaxed);
    }
}

/// Notes a hold, ns.
fn learn<P: Platform>(memo: &[P::Word; 8], hold: u32) {
    let next = match memo[USUAL].load(Relaxed) {
        0 => hold,
        so_far => so_far - so_far / PART + hold / PART,
    };
    memo[USUAL].store(next.max(1), Relaxed);
}
