//! Mutexee: stay awake for as long as a sleep and a wake-up cost, and wake nobody while somebody is awake.
//!
//! Falsafi, Guerraoui, Picorel & Trigonakis, *Unlocking Energy*, USENIX ATC 2016, section 5. A futex call costs thousands
//! of cycles; a waiter that stays awake costs a core's power for as long as it waits. Both cost least if a few threads
//! hand the lock to each other awake, and the others sleep for long (rows M07, M10 to M16):
//!
//! ```text
//!   awake    arrival ─ takes a free lock ─ waits awake for `spin` ns, and promises to take care of the sleepers ─► word
//!   asleep   └ else the line: its head sleeps on the word; after `timeout` it is woken, and nobody overtakes it
//!   unlock   has somebody promised? free the word ─ else free it, and wake the head
//! ```
//!
//! *Spin mode and mutex mode.* If more than 30 % of contended hand-overs go to a thread that has slept, waiting awake does
//! not pay. Then waiters stay awake for only 1/32 of the time. In one of eight time slices they try again.
//!
//! Our deviations. The paper's unlock frees the lock, and watches for 384 cycles whether another thread takes it. Ours asks
//! beforehand ([`View::spin_and_promise`] says why). The paper chooses the mode once in N unlocks, by two counters. Ours is a counter of three bits,
//! which goes up at a sleeper's acquisition, and down at three in seven of the others. The authors' code (lockin, mutexee_in.h) draws
//! the line at 128 of 2048, which is `asleep=6`. In the paper, a waiter that has timed out spins until it has the lock: for as long as
//! that is held, and forever if the holder needs this CPU. Here it waits until it is head, stays awake for `spin`, then sleeps until
//! the next unlock. Sleepers are served by arrival. The paper pauses by `mfence`; here the platform decides how.
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. Between two headships at most `bypass` arrivals overtake the head.
//! 2. A head that has waited for `timeout` is woken, and from then on no arrival overtakes it. (A hint says so; timed lockers
//!    heed it for a bounded time, and glibc's code doesn't.)

use super::{Choose, Note, Observe, Rule, Taken, View};
use crate::entry::{Entry, Kind, Promise};
use crate::front::learn::saturation;
use crate::front::tuning::{self, ASLEEP_PERCENT, BYPASS_MAX, Tuning};
use lockwright_platform::Machine;

/// In spin mode a waiter stays awake for this long by default, ns. The paper says 8000 cycles, 2.9 us on its Xeon (M10). On our simulated
/// Xeon twice that gives the paper's gains over glibc; with 2.9 us too many sleep where 16 threads share 8 locks.
const SPIN_NS: u32 = 6_000;

/// A head that has waited for this long is woken, and is next, by default, ns. In the paper timeouts below 16 ms cost throughput, since a
/// waiter that has timed out spins (M16). Here 4 ms cost nothing (simulated: 0.9 to 1.1 times the throughput without a timeout).
const TIMEOUT_NS: u32 = 4_000_000;

/// In mutex mode waiters stay awake for the time of spin mode divided by this (M12: 256 cycles of 8000).
const MUTEX_MODE: u32 = 32;

/// One slice of time in this many is in spin mode, whatever has been learnt.
const TRY_EACH: u64 = 8;

/// The length of a slice, ns: enough for dozens of hand-overs.
const SLICE_NS: u64 = 1 << 16;

/// One hand-over in this many counts.
const SAMPLE: u64 = 4;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "mutexee",
    kind: Kind::Front,
    preset_of: None,
    idea: "a few waiters spin and pass the lock among themselves; meanwhile, unlock wakes nobody",
    source: "Falsafi, Guerraoui, Picorel & Trigonakis, Unlocking Energy, USENIX ATC 2016, section 5",
    order: "none among spinning waiters; sleepers by arrival",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool",
    wakes: "unlock wakes the first sleeper, unless a spinning waiter has promised to; the head of the line wakes itself after `timeout`",
    delay: "each sleeper, by those ahead of it and `bypass` overtakers for each of them, or until its `timeout`",
    advice: "to compare with the paper; in the simulator auto takes less energy an operation (docs/choosing.md)",
    options: &[
        tuning::SPIN.or(SPIN_NS),
        tuning::BYPASS.or(BYPASS_MAX),
        tuning::TIMEOUT.or(TIMEOUT_NS),
        tuning::ASLEEP.or(ASLEEP_PERCENT),
    ],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

/// How long a waiter stays awake now.
fn awake_ns<P: Machine>(lock: &View<'_, P>, now: u64) -> u32 {
    let is_mutex = saturation::is_asleep(lock) && !(now / SLICE_NS).is_multiple_of(TRY_EACH);
    lock.tuning.spin_ns / if is_mutex { MUTEX_MODE } else { 1 }
}

/// Notes a hand-over: to a waiter that has slept, or to one that was awake. The clock's low bits serve as a die.
fn note<P: Machine>(lock: &View<'_, P>, asked_ns: u64, slept: bool) {
    let (dice, limit) = (asked_ns / 64, u64::from(lock.tuning.asleep.clamp(1, 99)));
    // It rises if more than `limit` per cent have slept.
    let counts = match slept {
        true => dice / SAMPLE % limit < 100 - limit,
        false => dice / SAMPLE % (100 - limit) < limit,
    };
    if dice.is_multiple_of(SAMPLE) && counts {
        saturation::note_asleep(lock, if slept { 1 } else { -1 });
    }
}

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        let spin_ns = SPIN_NS.min(tuning.spin_ns); // 0 on one CPU
        Tuning { spin_ns, bypass: BYPASS_MAX, budget_ns: 0, timeout_ns: TIMEOUT_NS, ..tuning }
    }

    fn arrive(lock: &View<'_, P>, asked: &mut Note) -> Option<Taken> {
        let mut taken = lock.take();
        if taken.is_none() {
            asked.asked_ns = P::now();
            taken = lock.spin_and_promise(awake_ns(lock, asked.asked_ns));
            if taken.is_some() {
                note(lock, asked.asked_ns, false);
            }
        }
        taken
    }

    /// All but the head sleep.
    fn awake_ns(_: &View<'_, P>, _: &Note) -> u32 {
        0
    }

    fn spin_ns(lock: &View<'_, P>) -> u32 {
        if lock.is_turn() { lock.tuning.spin_ns } else { awake_ns(lock, P::now()) }
    }
}

impl<P: Machine> Choose<P> for Lock {}

impl<P: Machine> Observe<P> for Lock {
    fn acquired(lock: &View<'_, P>, asked: &Note, slept: bool) {
        note(lock, asked.asked_ns, slept);
    }
}
