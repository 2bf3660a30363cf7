//! Mutexee: stay awake for as long as a sleep and a wake-up cost, and wake nobody while somebody is awake.
//!
//! Falsafi, Guerraoui, Picorel & Trigonakis, *Unlocking Energy*, USENIX ATC 2016, section 5. A futex call costs thousands
//! of cycles, a waiter that stays awake costs a core's power for as long as it waits. Both are cheapest if few threads
//! hand the lock to each other awake, and the others sleep for long (rows M07, M10 to M16):
//!
//! ```text
//!   awake    arrival ─ takes a free lock ─ counted, waits awake for `spin` ns ─► word
//!   asleep   └ else the line: its head sleeps on the word, for `timeout` at most, then waits awake until it has the lock
//!   unlock   is anybody counted awake? free the word, and owe that thread a wake ─ else free it, and wake the head
//! ```
//!
//! *Spin mode and mutex mode.* If more than 30 % of contended hand-overs go to a thread that has slept, waiting awake does
//! not pay: waiters then stay awake for 1/32 of the time. For one millisecond of eight they try again.
//!
//! Our deviations. The paper's unlock frees the lock, and watches it for 384 cycles: has another thread taken it? POSIX does
//! not allow that, since the next holder may free the mutex. So waiters count themselves, and the one who finds that
//! it is owed a wake passes it on when it has the lock, or gives up. The paper takes its decision every so many unlocks by
//! two counters; ours are three bits, which go up at a sleeper's acquisition, and down at three in seven of the others. Sleepers are
//! served by arrival, and nobody overtakes one that has timed out. The paper waits by `mfence`; this platform by what suits it.
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. An unlock that wakes nobody, though the word says 2, leaves that wake to a thread that is counted awake (owed.rs).
//! 2. Between two headships at most `bypass` arrivals overtake the head.
//! 3. A head sleeps for 100 ms at most before it looks: it loses no more by a thread that died while it was counted.

use super::{Arrived, BYPASS_MAX, Note, Rule, Tuning, View, tuning};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Platform;

/// A waiter stays awake for this long in spin mode, by default, ns: 8000 cycles of the paper's 2.8 GHz Xeon (M10).
const SPIN_NS: u32 = 2_900;

/// A waiter that has waited for this long no longer sleeps, by default, ns (M16: shorter ones cost throughput).
const TIMEOUT_NS: u32 = 32_000_000;

/// In mutex mode waiters stay awake for this part of the time (M12: 256 cycles of 8000).
const MUTEX_MODE: u32 = 32;

/// Of as many slices of time as this one is in spin mode, whatever has been learnt.
const TRY_EACH: u64 = 8;

/// Such a slice, ns.
const SLICE_NS: u64 = 1 << 20;

/// In this many of [`OF`] hand-overs to a waiter that is awake the count goes down: it rises if more than 30 % sleep (M13).
const DOWN: u64 = 3;

/// See [`DOWN`].
const OF: u64 = 7;

/// A head looks at the lock after this long, whatever else, ns.
const LOOK_NS: u32 = 100_000_000;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "mutexee",
    kind: Kind::Front,
    preset_of: None,
    idea: "a few waiters stay awake and hand the lock to each other; unlock wakes nobody meanwhile",
    source: "Falsafi, Guerraoui, Picorel & Trigonakis, Unlocking Energy, USENIX ATC 2016, section 5",
    order: "none among those awake; sleepers by arrival",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beside the mutex; 128 bytes per waiter, from a pool",
    wakes: "unlock wakes the sleeper in front, unless a waiter is awake; a sleeper wakes by itself after `timeout`",
    delay: "a sleeper waits for those before it, and `bypass` overtakers for each of them, or until its `timeout`",
    advice: "where energy counts; sections up to some microseconds, and waits of milliseconds don't matter",
    options: &[
        tuning::SPIN.or(SPIN_NS),
        tuning::SPINNERS,
        tuning::BYPASS.or(BYPASS_MAX),
        tuning::TIMEOUT.or(TIMEOUT_NS),
    ],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

/// The tuning with as long a spin as its mode has.
fn in_mode<P: Platform>(lock: &View<'_, P>, now: u64) -> Tuning {
    let is_mutex = lock.is_asleep() && now / SLICE_NS % TRY_EACH != 0;
    let spin_ns = lock.tuning.spin_ns / if is_mutex { MUTEX_MODE } else { 1 };
    Tuning { spin_ns, ..*lock.tuning }
}

impl<P: Platform> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        let spin_ns = SPIN_NS.min(tuning.spin_ns); // 0 on one CPU
        Tuning { spin_ns, bypass: BYPASS_MAX, budget_ns: 0, timeout_ns: TIMEOUT_NS, ..tuning }
    }

    fn arrive(lock: &View<'_, P>) -> Arrived {
        let mut taken = lock.take();
        if taken.is_some() {
            return Arrived::or_joins(taken);
        }
        let start = P::now();
        let tuning = in_mode(lock, start);
        if tuning.spin_ns > 0 && lock.count_in(tuning.spinners) {
            taken = lock.with(&tuning).spin();
            lock.count_out();
        }
        if taken.is_some() && start / 64 % OF < DOWN {
            lock.note_asleep(-1); // the clock's low bits are as good as a dice
        }
        taken.map_or(Arrived::Joins(Note { asked_ns: start, ..Note::default() }), Arrived::Took)
    }

    /// Who is not in front sleeps.
    fn awake_ns(_: &View<'_, P>) -> u32 {
        0
    }

    fn spin(lock: &View<'_, P>, slept: bool, take: impl FnMut() -> bool) -> bool {
        let tuning = in_mode(lock, P::now());
        lock.with(&tuning).spin_as_head(slept, take)
    }

    /// Until it has timed out; then it does not sleep again.
    fn sleep_ns(lock: &View<'_, P>, note: &Note) -> Option<u32> {
        if lock.tuning.timeout_ns == 0 {
            return Some(LOOK_NS);
        }
        let waited = P::now().saturating_sub(note.asked_ns);
        let left = u64::from(lock.tuning.timeout_ns).saturating_sub(waited);
        if left == 0 {
            lock.begin_turn();
        }
        Some(left.min(LOOK_NS.into()) as u32)
    }

    fn acquired(lock: &View<'_, P>, _: &Note, slept: bool) {
        if slept {
            lock.note_asleep(1);
        }
    }

    fn release(lock: &View<'_, P>) -> bool {
        lock.leave_to_waiter()
    }
}
