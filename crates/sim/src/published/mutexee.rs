//! mutexee-textbook: MUTEXEE as published. Only simulated machines have it.
//!
//! Falsafi, Guerraoui, Picorel & Trigonakis, *Unlocking Energy*, USENIX ATC 2016, section 5.1 and Figure 6, with the authors' code
//! (lockin, mutexee_in.h) where the text is silent. Its unlock frees the lock, watches whether somebody takes it, and only
//! then looks at the word again to wake a sleeper. POSIX lets the next owner destroy the mutex in that time. So
//! programs get our rule `mutexee`, which asks beforehand.
//!
//! ```text
//!   word    0 ◄─────────► HELD          lock takes a free word; else spins for SPIN, then sleeps
//!           ▲               │           a sleeper that finds it held: HELD + SLEEPERS
//!    and    │               ▼
//!    wake   └── SLEEPERS ◄─ HELD + SLEEPERS
//!                  │ for WATCH: taken again? then the new holder takes care of the sleepers
//!   tally   of contended hand-overs, how many went to threads that had slept, and the mode
//! ```
//!
//! *Spin mode and mutex mode.* If more than 30 % of a period's hand-overs go to sleepers, waiters and unlockers hardly spin. After
//! some periods in mutex mode one is in spin mode, because in mutex mode nearly all waiters sleep.
//! *Timeouts.* A waiter that has slept for `timeout` spins until it has the lock.
//!
//! State: (word). lock: (free) -> (held). unlock: (HELD) -> (0), or (HELD + SLEEPERS) -> (SLEEPERS) -> (0), and wake one.
//!
//! 1. HELD is set exactly while a thread holds the lock.
//! 2. A thread sleeps only on HELD + SLEEPERS. Whoever clears SLEEPERS wakes one, and a thread that wakes sets it
//!    again unless it has timed out.
//! 3. Only the holder writes the tally.
//!
//! The paper's constants, in cycles of its Xeon at 2.8 GHz: 8000 and 256 cycles of spinning in lock, 384 and 128 of watching in
//! unlock, 30 %. Chosen here: 256 hand-overs to a period, and one period in eight to try.

use lockwright_locks::entry::{Entry, Kind, OptionSpec, Promise};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, RawLock, Sections, TryLock, Woken, Word};

const SPIN: OptionSpec = OptionSpec {
    key: "spin",
    meaning: "ns that a waiter spins in spin mode before it sleeps",
    min: 0,
    max: 10_000_000,
    default: Some(SPIN_NS),
};

const WATCH: OptionSpec = OptionSpec {
    key: "watch",
    meaning: "ns for which unlock waits in user space, in spin mode, for somebody to take the lock (0: it wakes a sleeper at once)",
    min: 0,
    max: 1_000_000,
    default: Some(WATCH_NS),
};

const TIMEOUT: OptionSpec = OptionSpec {
    key: "timeout",
    meaning: "ns after which a sleeper wakes, and spins until it has the lock (0: never)",
    min: 0,
    max: 1_000_000_000,
    default: Some(0),
};

/// What the simulator's list says.
pub(super) static ENTRY: Entry = Entry {
    id: "mutexee-textbook",
    kind: Kind::Whole,
    preset_of: None,
    idea: "MUTEXEE as published: unlock frees the lock, and wakes a sleeper if nobody takes it in 0.14 µs",
    source: "Falsafi, Guerraoui, Picorel & Trigonakis, Unlocking Energy, USENIX ATC 2016, section 5.1; lockin, mutexee_in.h",
    order: "none",
    promise: Promise::Nothing,
    stands_by: false,
    space: "8 B per lock, 0 B per waiter",
    wakes: "a waiter sleeps after 2.9 µs (0.09 µs in mutex mode); unlock wakes one unless somebody takes the lock",
    delay: "a sleeper, without bound, or until its `timeout`",
    advice: "only simulated, to compare with the paper: it touches the mutex after it is free",
    options: &[SPIN, WATCH, TIMEOUT],
};

const HELD: u32 = 1;
const SLEEPERS: u32 = 2;

/// How long a waiter spins in spin mode, ns: 8000 cycles.
const SPIN_NS: u32 = 2857;
/// How long unlock watches in spin mode, ns: 384 cycles.
const WATCH_NS: u32 = 137;
/// The same in mutex mode: 256 cycles, and 128.
const MUTEX_MODE_NS: [u32; 2] = [91, 46];
/// Contended hand-overs in a period.
const PERIOD: u32 = 256;
/// Above this share of sleepers, per cent, the next period is in mutex mode.
const ASLEEP_PERCENT: u32 = 30;
/// One period in this many is in spin mode.
const TRY_EACH: u32 = 8;

/// What the tally says. In a word: 9 bits of hand-overs, 9 bits of those to sleepers, 4 bits of periods, and the mode.
#[derive(Clone, Copy)]
struct HandOvers(u32);

impl HandOvers {
    fn mode(self) -> usize {
        (self.0 >> 31) as usize
    }

    /// One more hand-over.
    fn and(self, slept: bool) -> Self {
        let (all, asleep) = ((self.0 & 511) + 1, (self.0 >> 9 & 511) + u32::from(slept));
        if all < PERIOD {
            return Self(self.0 & !0x3ffff | asleep << 9 | all);
        }
        let periods = ((self.0 >> 18 & 15) + 1) % TRY_EACH;
        let is_mutex =
            if self.mode() == 1 { periods != 0 } else { asleep * 100 > ASLEEP_PERCENT * all };
        Self(u32::from(is_mutex) << 31 | periods << 18)
    }
}

/// MUTEXEE.
pub(super) struct Mutexee<P: Platform> {
    /// HELD and SLEEPERS. Written by threads that take the lock, by those that go to sleep, and by the holder.
    word: P::Word,
    /// Written by the holder.
    tally: P::Word,
    /// In spin mode.
    spin_ns: u32,
    /// In spin mode.
    watch_ns: u32,
    /// 0: a sleeper sleeps until it is woken.
    timeout_ns: u32,
}

impl<P: Platform> Mutexee<P> {
    /// An unlocked lock with these options.
    pub(super) fn by(value: impl Fn(&str) -> Option<u32>) -> Self {
        let of = |option: OptionSpec| value(option.key).unwrap_or_default();
        Self { spin_ns: of(SPIN), watch_ns: of(WATCH), timeout_ns: of(TIMEOUT), ..Self::new() }
    }

    fn tally(&self) -> HandOvers {
        // Relaxed: a hint to all but the holder, who has seen its last writer's section.
        HandOvers(self.tally.load(Relaxed))
    }

    /// Takes the word if it seems to be free.
    fn takes(&self, seen: u32) -> bool {
        // STATE: (free) -> (held), or unchanged: somebody was faster.
        // ORDERING: Acquire, pairs with [leave]: the last holder's critical section is over.
        seen & HELD == 0 && self.word.fetch_or(HELD, Acquire) & HELD == 0
    }

    #[cold]
    fn lock_slow(&self) {
        let mut taken = false;
        let spin_ns = [self.spin_ns, MUTEX_MODE_NS[0]][self.tally().mode()];
        P::spin_for(&self.word, Relaxed, spin_ns, |seen| {
            taken = self.takes(seen);
            taken
        });
        if !taken {
            self.sleep();
        }
        // Relaxed: only holders write it.
        self.tally.store(self.tally().and(!taken).0, Relaxed);
    }

    /// Sleeps until it has the lock.
    fn sleep(&self) {
        let deadline = (self.timeout_ns > 0).then(|| P::after(self.timeout_ns));
        // STATE: (free) -> (HELD + SLEEPERS): held; or (held) -> (HELD + SLEEPERS).
        // ORDERING: Acquire, pairs with [leave]: the last holder's critical section is over.
        while self.word.swap(HELD | SLEEPERS, Acquire) & HELD != 0 {
            if P::park(&self.word, HELD | SLEEPERS, deadline) == Woken::TimedOut {
                // Relaxed: the exchange in `takes` decides.
                while !self.takes(P::spin_until(&self.word, Relaxed, |seen| seen & HELD == 0)) {}
                return;
            }
        }
    }

    /// There are, or were, sleepers.
    #[cold]
    fn unlock_slow(&self) {
        let watch_ns = [self.watch_ns, MUTEX_MODE_NS[1].min(self.watch_ns)][self.tally().mode()];
        // STATE: (HELD + SLEEPERS) -> (SLEEPERS).
        // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
        self.word.fetch_and(!HELD, Release);
        let seen = P::spin_for(&self.word, Relaxed, watch_ns, |seen| seen & HELD != 0);
        // STATE: (SLEEPERS) -> (0): somebody is woken. If it was taken meanwhile, its holder will wake somebody.
        // Relaxed: what the next holder needs was published by [leave], whose release sequence this exchange continues.
        if seen & HELD == 0 && self.word.compare_exchange(SLEEPERS, 0, Relaxed, Relaxed).is_ok() {
            P::unpark(&raw const self.word, 1);
        }
    }
}

impl<P: Platform> Sections<P> for Mutexee<P> {
    type Node = ();

    fn new() -> Self {
        let [word, tally] = [(); 2].map(|()| P::Word::new(0));
        Self { word, tally, spin_ns: SPIN_NS, watch_ns: WATCH_NS, timeout_ns: 0 }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Mutexee<P> {
    unsafe fn lock(&self, _node: *mut ()) {
        // STATE: (0) -> (HELD).
        // ORDERING: Acquire, pairs with [leave]: the last holder's critical section is over.
        if self.word.compare_exchange(0, HELD, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
    }

    unsafe fn unlock(&self, _node: *mut ()) {
        // STATE: (HELD) -> (0).
        // ORDERING: Release [leave]: the critical section comes before whatever the next holder does. Relaxed on failure:
        // SLEEPERS is there, and stays.
        if self.word.compare_exchange(HELD, 0, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }
}

impl<P: Platform> TryLock<P> for Mutexee<P> {
    unsafe fn try_lock(&self, _node: *mut ()) -> bool {
        // Relaxed: the exchange in `takes` decides.
        self.takes(self.word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_the_share_of_sleepers_and_is_tried_again() {
        let period = |tally: HandOvers, asleep: u32| {
            (0..PERIOD).fold(tally, |tally, n| tally.and(n < asleep))
        };
        let limit = PERIOD * ASLEEP_PERCENT / 100;
        assert_eq!(period(HandOvers(0), limit).mode(), 0);
        let mut tally = period(HandOvers(0), limit + 1);
        let modes: Vec<usize> = (0..TRY_EACH)
            .map(|_| {
                tally = period(tally, PERIOD);
                tally.mode()
            })
            .collect();
        assert_eq!(modes.iter().filter(|mode| **mode == 0).count(), 1, "{modes:?}");
    }
}
