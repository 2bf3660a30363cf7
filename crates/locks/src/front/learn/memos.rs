//! What locks learn and keep in the machine's memos: how long they are held, whether choices of who is next are in vain, and whether heads
//! come late.
//!
//! # Holds
//!
//! How long a lock is held is measured at a sample of contended acquisitions.
//!
//! ```text
//!   holder   word 1 ─► 4, notes when ─ critical section ─ word is not 1: notes how long ─ word 4 ─► 0
//! ```
//!
//! The uncontended path reads no clock. A holder that came through the line, and is to be measured, makes the word 4. So its
//! unlock takes the slow path, and wakes nobody because of that (word.rs; nobody sleeps on a word that says 1). A thread that
//! holds the lock by its node is measured if its unlock looks at the mutex anyway (grant.rs).
//!
//! The results lie in the machine's memos: one for the lock, found by its address, and one for each of its sections, found by that
//! address and by the place where the section begins (the address of the call that locks). A section that isn't known yet counts as
//! long as the lock's others. If two share a memo, whoever notes something evicts the other's results. Times are converted to the fastest
//! cores, whose sections are shorter. A thread that moves to a core of another class meanwhile is not measured. All of this is a hint.
//!
//! # Back-off from choices
//!
//! A policy that mostly leaves the order as it is makes each chooser look at many waiters, and each look moves
//! cache lines between cores. So after 16 choices in vain, one after the other, the lock backs off from choices: for as long as the last one
//! took. After one more it backs off for twice as long, and so on, up to 256 times. A choice that moves somebody ends this, and so does the
//! arrival of a thread of another kind than those among which the policy chose in vain.
//!
//! ```text
//!   16 in vain ─► backs off 1 x ─► in vain ─► 2 x ─► ... ─► 256 x ─► ...       moved somebody, or another kind: no back-off
//! ```
//!
//! Fewer than 16 would take a policy that sorts by two classes (CAL) for one that has nothing to say: its order is often right already.
//! Without kinds, a back-off would hide a rare thread that matters: the one with a high priority, or a tag, or another lock. What a thread
//! only becomes while it waits (it has waited for long) doesn't count as a kind: then the policy's choice comes when the back-off ends, at most
//! 3.2 ms later.
//!
//! While a lock backs off, its waiters wait as fifo's do. The state lies in one of the machine's memos, as lengths of sections do, and
//! is a hint, too: a machine without memos never backs off.
//!
//! # Late heads
//!
//! On a busy machine a head that has been woken may wait for a CPU until another program's time slice ends. If its turn has come
//! meanwhile, all arrivals stop for it, and nobody has the lock for milliseconds. So in a crowd the first arrival that stops notes when it
//! stopped, and the head notes whether it came late. For a while after that, heads of this lock may be passed until they are awake
//! ([`is_late`]). Where only threads of the program itself keep the head from its CPU, and sections are short, the head comes soon after
//! they stop, and nobody passes it beyond the bound. (A section of 0.5 ms looks the same as a late head.)

use crate::front::line::View;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::hooks::{IN_EPOCH, Node};
use lockwright_platform::{Class, FULL_SPEED, MEMOS, Machine, Memo, Word};

/// The memo's owner: a hash of the lock's address and the section's number.
pub(crate) const OWNER: usize = 0;

/// In the lock's memo: since when it has been held, the low half of the clock's ns, with 1 in place of 0; 0: not being measured.
const SINCE: usize = 1;

/// In the lock's memo: the class of the core that took it.
const CLASS: usize = 2;

/// How long it is usually held, ns, on the fastest cores; 0: not known.
pub(crate) const USUAL: usize = 3;

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

/// In place of a section's number: the back-off of the lock.
const BACK_OFF: u32 = u32::MAX;

/// In the memo: choices in vain, one after the other.
const IN_VAIN: usize = 1;

/// In the memo: until when the lock backs off, the low half of the clock's ns.
const UNTIL: usize = 2;

/// In the memo: the [kinds](kind) of the threads among which those choices were made.
const KINDS: usize = 3;

/// After this many of them the lock backs off.
const ENOUGH: u32 = 16;

/// A back-off is at most this power of two times as long as the choice.
const MOST: u32 = 8;

/// A choice that took longer counts as this long, ns. (So a chooser that lost its CPU does no harm.)
const LONGEST_CHOICE_NS: u32 = 12_500;

/// The longest back-off, ns.
const LONGEST_BACK_OFF_NS: u32 = LONGEST_CHOICE_NS << MOST;

/// In place of a section's number: the lock's heads.
const HEADS: u32 = u32::MAX - 1;

/// In the memo: when arrivals stopped because it was the head's turn, in units of [`LATE_UNIT_NS`], the low 32 bits, with 1 in place of 0;
/// 0: they haven't.
const STOPPED: usize = 1;

/// In the memo: when a head came late, likewise; 0: none has.
const LATE: usize = 2;

/// The unit of these times, ns.
const LATE_UNIT_NS: u64 = 1 << 16;

/// A head for which arrivals have stopped for so many units (about 0.5 ms) is late.
const LATE_UNITS: u32 = 8;

/// Heads count as late for so many units (0.1 s) after one was late.
const STAYS_LATE_UNITS: u32 = 1600;

/// The clock, in units.
fn units<P: Machine>() -> u32 {
    ((P::now() / LATE_UNIT_NS) as u32).max(1)
}

/// Looks at the memo of the lock's heads, if there is one.
fn heads<P: Machine, R>(line: &View<'_, P>, look: impl FnOnce(&[P::Word; 8]) -> R) -> Option<R> {
    memo(line, HEADS, |memo, owner| (memo[OWNER].load(Relaxed) == owner).then(|| look(memo)))?
}

/// The caller, an arrival in a crowd, stops because it is the head's turn.
pub(crate) fn stops_for_head<P: Machine>(line: &View<'_, P>) {
    memo(line, HEADS, |memo, owner| {
        claim::<P>(memo, owner, &[STOPPED, LATE]);
        if memo[STOPPED].load(Relaxed) == 0 {
            memo[STOPPED].store(units::<P>(), Relaxed);
        }
    });
}

/// The caller, a head, has the lock. `slept`: it may have been late.
pub(crate) fn head_has_come<P: Machine>(line: &View<'_, P>, slept: bool) {
    heads(line, |memo| {
        let stopped = memo[STOPPED].load(Relaxed);
        if stopped != 0 {
            let now = units::<P>();
            memo[STOPPED].store(0, Relaxed);
            // Any longer, and it is a time that nobody has cleared.
            let is_late = (LATE_UNITS..STAYS_LATE_UNITS).contains(&now.wrapping_sub(stopped));
            if slept && is_late {
                memo[LATE].store(now, Relaxed);
            }
        }
    });
}

/// Was a head of this lock late, not long ago?
pub(crate) fn is_late<P: Machine>(line: &View<'_, P>) -> bool {
    let late = heads(line, |memo| memo[LATE].load(Relaxed)).unwrap_or(0);
    late != 0 && units::<P>().wrapping_sub(late) < STAYS_LATE_UNITS
}

/// Looks at the memo of a section, or of the lock ([`ALL`]), with the owner that it should have.
pub(crate) fn memo<P: Machine, R>(
    line: &View<'_, P>,
    site: u32,
    look: impl FnOnce(&[P::Word; 8], u32) -> R,
) -> Option<R> {
    let lock = line.parts.word.address().addr() as u64;
    let hash = (lock ^ u64::from(site) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = hash ^ hash >> 32;
    P::memo((hash >> 8) as usize % MEMOS, |Memo(memo)| look(memo, hash as u32 | 1))
}

/// How long the section is usually held on the fastest cores, by its memo, ns; 0: not known.
fn usual<P: Machine>(line: &View<'_, P>, site: u32) -> u32 {
    memo(line, site, |memo, owner| match memo[OWNER].load(Relaxed) {
        now if now == owner => memo[USUAL].load(Relaxed),
        _ => 0,
    })
    .unwrap_or(0)
}

/// How long the lock is usually held on the fastest cores, ns; 0: not known.
pub(crate) fn known_hold_ns<P: Machine>(line: &View<'_, P>) -> u32 {
    usual(line, ALL)
}

/// How long threads on cores of this class usually hold the lock in the caller's section, ns; a guess until it is known.
pub(crate) fn usual_hold_ns<P: Machine>(line: &View<'_, P>, class: Class) -> u32 {
    let known = |site| Some(usual(line, site)).filter(|&ns| ns != 0);
    let usual = known(line.parts.site).or_else(|| known(ALL)).unwrap_or(UNKNOWN_NS);
    (u64::from(usual) * u64::from(FULL_SPEED) / u64::from(P::speed(class).max(1))) as u32
}

/// Should a holder that has acquired the lock at `now` measure how long it holds the lock?
pub(crate) fn is_due<P: Machine>(line: &View<'_, P>, now: u64) -> bool {
    (now / 64).is_multiple_of(SAMPLE) || usual(line, line.parts.site) == 0
}

/// The caller has just acquired the lock, at `now`, and may measure how long it holds it. `surely`: it must.
pub(crate) fn may_measure_hold<P: Machine>(line: &View<'_, P>, now: u64, surely: bool) {
    let site = line.parts.site;
    if !surely && !is_due(line, now) {
        return;
    }
    memo(line, ALL, |memo, owner| {
        claim::<P>(memo, owner, &[USUAL]);
        memo[SITE].store(site, Relaxed);
        memo[CLASS].store(P::place().class.0.into(), Relaxed);
        memo[SINCE].store((now as u32).max(1), Relaxed);
        line.parts.word.divert();
    });
}

/// The holder is about to release the lock: notes how long it has held it, if that is being measured.
pub(crate) fn end_of_hold<P: Machine>(line: &View<'_, P>) {
    let measured = memo(line, ALL, |memo, owner| {
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
        memo(line, site, |memo, owner| {
            claim::<P>(memo, owner, &[USUAL]);
            learn::<P>(memo, hold);
        });
    }
}

/// Makes this owner the memo's owner. These of its words begin at 0.
pub(crate) fn claim<P: Machine>(memo: &[P::Word; 8], owner: u32, words: &[usize]) {
    if memo[OWNER].load(Relaxed) != owner {
        memo[OWNER].store(owner, Relaxed);
        words.iter().for_each(|&word| memo[word].store(0, Relaxed));
    }
}

/// Notes a hold, or another time whose usual length matters, ns.
pub(crate) fn learn<P: Machine>(memo: &[P::Word; 8], hold: u32) {
    let next = match memo[USUAL].load(Relaxed) {
        0 => hold,
        so_far => so_far - so_far / PART + hold / PART,
    };
    memo[USUAL].store(next.max(1), Relaxed);
}

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

/// Does the lock back off from choices?
pub(crate) fn backs_off<P: Machine>(line: &View<'_, P>) -> bool {
    let until = memo(line, BACK_OFF, |memo, owner| {
        // Hints, all of it.
        let rests = memo[IN_VAIN].load(Relaxed) >= ENOUGH && memo[OWNER].load(Relaxed) == owner;
        rests.then(|| memo[UNTIL].load(Relaxed))
    });
    let Some(until) = until.flatten() else { return false };
    // An end that is further away is long past: the low half of the clock's ns comes round every 4.3 s.
    (1..=LONGEST_BACK_OFF_NS).contains(&until.wrapping_sub(P::now() as u32))
}

/// A choice among threads of these kinds, which began at `begun`, has left the order as it was.
pub(crate) fn chose_in_vain<P: Machine>(line: &View<'_, P>, begun: u64, kinds: u32) {
    let now = P::now();
    let took = now.saturating_sub(begun).min(LONGEST_CHOICE_NS.into()) as u32;
    memo(line, BACK_OFF, |memo, owner| {
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
pub(crate) fn chose<P: Machine>(line: &View<'_, P>) {
    memo(line, BACK_OFF, |memo, owner| {
        if memo[OWNER].load(Relaxed) == owner && memo[IN_VAIN].load(Relaxed) != 0 {
            memo[IN_VAIN].store(0, Relaxed);
            memo[KINDS].store(0, Relaxed);
        }
    });
}

/// This thread is about to join the line: if choices were in vain among other kinds, that says nothing about this one.
pub(crate) fn meets<P: Machine>(line: &View<'_, P>, thread: &Node) {
    let is_new = memo(line, BACK_OFF, |memo, owner| {
        memo[IN_VAIN].load(Relaxed) >= ENOUGH
            && memo[KINDS].load(Relaxed) & kind(thread) == 0
            && memo[OWNER].load(Relaxed) == owner
    });
    if is_new == Some(true) {
        chose(line);
    }
}
