//! PB10: one little core's turn for every ten of big cores.
//!
//! The static proportion that LibASL is compared with (*Asymmetry-aware Scalable Locking*, PPoPP 2022, section 4,
//! "SHFL-PB10": ShflLock with two "nodes", big and little). Threads on big cores stand in the line, in order. A thread
//! on a little core stands by beside it (amp/standby.rs) until its turn, and joins the line then. Turns are booked
//! ahead, one for each *round*. A round is the time in which `big` threads on big cores find the lock taken. One in 16
//! of these is counted, so that the count's cache line seldom moves; a round is a 16th of the time in which `big` are counted.
//!
//! ```text
//!   big     ─ is counted? ───────────────────────► line (fifo's) ─► head ─► word
//!   little  ─ books a turn ─ standby ─ its turn ───┘                         ▲
//!                               └ free ──────────────────────────────────────┘
//!
//!   rounds  │ b b b b b b b b b b │ b b b b b b b b b b │ b b b b b ...   each as long as rounds usually are
//!   turns   l1                    l2                    l3
//! ```
//!
//! Our deviations. ShflLock counts turns in its queue; here the clock says when ten are over, so holders count nothing. A thread
//! that stands by takes the lock if it finds it free, so a lock doesn't stay idle for the proportion's sake. With more waiters
//! than CPUs, the line is barging's, as asl's.
//!
//! The count, the usual length of a round and the next turn lie in one of the machine's memos (learn/memos.rs), and are hints. A machine without
//! memos has no turns: there it is fifo.
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. A thread that stands by holds nothing, and nobody waits for it.
//! 2. After 100 ms at the most, a thread on a little core is in the line.

use super::{Choose, Note, Observe, Rule, Taken, View, asl, barging, fifo};
use crate::amp::standby::{WINDOW_MAX_NS, confirmed};
use crate::entry::{Entry, Kind, Promise};
use crate::front::learn::memos::{OWNER, USUAL, claim, learn, memo};
use crate::front::tuning::{self, Tuning};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Word};

/// In place of a section's number: the turns at the lock.
const TURNS: u32 = u32::MAX - 1;

/// In the memo: how many threads on big cores have been counted.
const COUNT: usize = 1;
/// In the memo: since when, the low half of the clock's ns, with 1 in place of 0; 0: nobody has been counted.
const SINCE: usize = 2;
/// In the memo: when the next turn of a little core begins, as [`SINCE`].
const NEXT: usize = 4;

/// One thread on a big core in this many is counted.
const SAMPLE: u64 = 16;

/// If a count takes this many times as long as usual, threads on big cores no longer ask.
const STALE: u32 = 4;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "pb10",
    kind: Kind::Front,
    preset_of: None,
    idea: "proportional: little cores get one turn for every ten of big cores",
    source: "after SHFL-PB10 in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4",
    order: "arrival among threads in line; little cores join the line at their turn",
    promise: Promise::ArrivalOrBypass,
    stands_by: true,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool; 32 KiB per process for turns",
    wakes: "as asl",
    delay: "a thread on a little core, by the turns booked before its own, 100 ms at the most; then as fifo",
    advice: "to compare with asl; a fixed proportion suits only one load",
    options: &[
        tuning::BIG.or(tuning::BIG_TURNS),
        tuning::WAIT,
        tuning::SPIN,
        tuning::BYPASS.or(fifo::BYPASS),
    ],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        <fifo::Lock as Rule<P>>::defaults(tuning)
    }

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        let crowded = lock.is_crowded();
        if !crowded && let Some(taken) = fifo::Lock::arrive(lock, note) {
            return Some(taken);
        }
        if P::place().class.is_big() {
            count(lock);
            return if crowded { barging::Lock::arrive(lock, note) } else { None };
        }
        let ahead_ns = book(lock);
        if ahead_ns > 0
            && let Some(taken) = asl::stand_by_for(lock, ahead_ns, confirmed)
        {
            return Some(taken);
        }
        if lock.is_crowded() {
            barging::Lock::arrive(lock, note)
        } else {
            fifo::Lock::arrive(lock, note)
        }
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}

/// The caller, on a big core, found the lock taken.
fn count<P: Machine>(lock: &View<'_, P>) {
    let now = P::now();
    if !(now / 64).is_multiple_of(SAMPLE) {
        return;
    }
    let now = (now as u32).max(1);
    memo(lock, TURNS, |memo, owner| {
        claim::<P>(memo, owner, &[COUNT, SINCE, USUAL, NEXT]);
        let (since, count) = (memo[SINCE].load(Relaxed), memo[COUNT].load(Relaxed) + 1); // hints, all
        if since != 0 && count < lock.tuning.big {
            memo[COUNT].store(count, Relaxed);
            return;
        }
        if since != 0 {
            let took = (now.wrapping_sub(since) / SAMPLE as u32).min(WINDOW_MAX_NS);
            // The lock may have been idle in between.
            let most = match memo[USUAL].load(Relaxed) {
                0 => took,
                round => round.saturating_mul(2),
            };
            learn::<P>(memo, took.min(most));
        }
        memo[SINCE].store(now, Relaxed);
        memo[COUNT].store(0, Relaxed);
    });
}

/// Books a turn for the caller, on a little core; in how many ns is it? 0: now.
fn book<P: Machine>(lock: &View<'_, P>) -> u32 {
    let ahead = memo(lock, TURNS, |memo, owner| {
        let round = memo[USUAL].load(Relaxed); // hints, all
        if lock.tuning.big == 0 || round == 0 || memo[OWNER].load(Relaxed) != owner {
            return 0;
        }
        let now = P::now() as u32;
        if now.wrapping_sub(memo[SINCE].load(Relaxed)) / SAMPLE as u32 / STALE > round {
            return 0;
        }
        let ahead = match memo[NEXT].load(Relaxed).wrapping_sub(now) {
            ahead if ahead <= WINDOW_MAX_NS => ahead,
            _ => 0, // it is over
        };
        memo[NEXT].store(now.wrapping_add((ahead + round).min(WINDOW_MAX_NS)), Relaxed);
        ahead
    });
    ahead.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::FREE;
    use crate::front_tests::Memory;
    use crate::testing::Threads;
    use lockwright_platform::Platform;

    /// Does something with a lock that gives little cores one turn for each `big` of big cores.
    fn with(big: u32, then: impl FnOnce(&View<'_, Threads>)) {
        let memory = Memory::new(FREE, 0);
        then(&View::new(&memory.parts(), &Tuning { big, ..Tuning::for_cpus(2) }));
    }

    /// Threads on big cores ask, each 64 ns after the last, until `times` are counted.
    fn ask(lock: &View<'_, Threads>, times: u32) {
        for _ in 0..times * SAMPLE as u32 {
            Threads::pause(64);
            count(lock);
        }
    }

    #[test]
    fn turns_are_a_round_apart() {
        with(10, |lock| {
            ask(lock, 10);
            assert_eq!(book(lock), 0, "no count is over");
            ask(lock, 1);
            // 10 times 64 ns.
            assert_eq!([book(lock), book(lock), book(lock)], [0, 640, 1280]);
            Threads::pause(500);
            assert_eq!(book(lock), 1420);
        });
    }

    #[test]
    fn nobody_stands_by_where_big_cores_no_longer_ask() {
        with(10, |lock| {
            ask(lock, 11);
            Threads::pause(STALE * SAMPLE as u32 * 641);
            assert_eq!([book(lock), book(lock)], [0, 0]);
        });
        with(0, |lock| {
            ask(lock, 11);
            assert_eq!([book(lock), book(lock)], [0, 0]);
        });
    }

    #[test]
    fn an_idle_time_is_no_long_round() {
        with(10, |lock| {
            ask(lock, 11);
            Threads::pause(64 * 1_000_000);
            ask(lock, 10);
            // A count that takes more than twice as long as usual counts as that, and is an 8th of the average.
            assert_eq!([book(lock), book(lock)], [0, 640 - 80 + 160]);
        });
    }

    #[test]
    fn no_turn_is_further_ahead_than_100_ms() {
        with(1, |lock| {
            ask(lock, 1);
            Threads::pause(64_000_000 * SAMPLE as u32);
            ask(lock, 1);
            let turns = [book(lock), book(lock), book(lock), book(lock)];
            assert_eq!(turns, [0, 64_000_064, WINDOW_MAX_NS, WINDOW_MAX_NS]);
        });
    }
}
