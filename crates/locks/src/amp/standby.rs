//! Standby: waiting beside a lock, for a while, without asking for it.
//!
//! The waiting rule of our front locks and of `asl-mcs-try`, after LibASL's algorithm 1 (PPoPP 2022): a competitor that can afford to be
//! overtaken looks at the lock now and then, at intervals that double (so that the lock's cache line stays with
//! the threads that use it). It asks for the lock when its window is over, or when it finds the lock free.
//!
//! ```text
//!   arrival ──┬───┬───────┬───────────────┬──────── ... ──┤ window over: ask
//!             look look    look            look
//!                           └ free, and still free a moment later: ask
//! ```
//!
//! Our deviations. A lock must be seen free twice on the second class of cores, three times on the third, and so on. So a
//! lock whose holder is back within 150 ns does not count as free, and a faster class finds a free lock first.
//! Intervals stop doubling at 20 us, so that a lock that falls idle does not stay idle for half a window. A thread
//! that finds itself on a big core asks at once. A thread that has found the lock taken for 0.1 ms sleeps
//! between two looks, until shortly before its window ends. If threads outnumber CPUs, it sleeps from the start
//! to the end.

use lockwright_platform::{Class, Platform, Word};

/// A thread that stands by asks for the lock after 100 ms at the latest, so nobody starves.
pub use super::feedback::WINDOW_MAX_NS;

/// The interval between the first look and the second, awake, ns.
const FIRST_NS: u32 = 100;
/// The longest interval, awake, ns.
const LONGEST_NS: u32 = 20_000;
/// The interval between two looks that both must find the lock free, ns: longer than a holder needs to come straight back.
const AGAIN_NS: u32 = 150;
/// The same for a thread that slept in between, ns: it has time to make sure that nobody comes back.
const AGAIN_ASLEEP_NS: u32 = 4_000;
/// A thread that has waited awake for this long, ns, at a lock that was never free, sleeps from
/// then on ...
const AWAKE_NS: u64 = 100_000;
/// ... but not in the last part of its window, ns: it might oversleep.
const OVERSLEPT_NS: u32 = 100_000;
/// The first interval, asleep, ns; a sleep costs about that much.
const FIRST_SLEEP_NS: u32 = 50_000;
/// The longest interval, asleep, ns.
const LONGEST_SLEEP_NS: u32 = 1_000_000;
/// If an interval takes this much longer than asked for, ns, the thread had no CPU.
const PREEMPTED_NS: u64 = 500_000;

/// How to wait between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Awake at first, and towards the end of the window; asleep if threads outnumber CPUs.
    #[default]
    Auto,
    /// Awake: the paper's non-blocking version.
    Awake,
    /// Asleep: the paper's blocking version.
    Asleep,
}

/// How many looks in a row must find a lock free before a thread of this class asks for it: one more for each class. Big cores
/// ask at once.
pub(crate) fn confirmed(class: Class) -> u8 {
    if class.is_big() { 0 } else { class.0.min(3) + 1 }
}

/// One look that finds the lock free is enough. Big cores ask at once.
pub(crate) fn at_once(class: Class) -> u8 {
    if class.is_big() { 0 } else { 1 }
}

/// Waits until `ask` says that the lock is ours, for at most `window_ns` (and never longer than
/// [`WINDOW_MAX_NS`]); returns whether it did.
///
/// `is_free` looks. `ask` is called when `looks_for` looks in a row have found the lock free; 0: no thread of this class stands
/// by. It may fail; then we stand by again. `is_crowded` says whether waiters and holder outnumber the CPUs; only [`Waiting::Auto`] asks.
pub(crate) fn stand_by<P: Platform>(
    window_ns: u32,
    waiting: Waiting,
    looks_for: impl Fn(Class) -> u8,
    is_free: impl Fn() -> bool,
    is_crowded: impl Fn() -> bool,
    mut ask: impl FnMut() -> bool,
) -> bool {
    let start = P::now();
    let window = u64::from(window_ns.min(WINDOW_MAX_NS));
    let mut preempted = false;
    let mut interval = FIRST_NS;
    let mut seen_free = 0;
    let mut waited = 0;
    while waited < window {
        let class = P::place().class;
        let looks = looks_for(class);
        if looks == 0 {
            return false; // moved to a faster core while it waited
        }
        let left = u32::try_from(window - waited).unwrap_or(WINDOW_MAX_NS);
        let asleep = match waiting {
            Waiting::Auto => {
                preempted || is_crowded() || (waited >= AWAKE_NS && left >= OVERSLEPT_NS)
            }
            Waiting::Awake => false,
            Waiting::Asleep => true,
        };
        let pause = match (seen_free, asleep) {
            (0, true) => interval.clamp(FIRST_SLEEP_NS, LONGEST_SLEEP_NS),
            (0, false) => interval.min(LONGEST_NS),
            (_, true) => AGAIN_ASLEEP_NS,
            (_, false) => AGAIN_NS,
        };
        let pause = pause.min(left);
        if asleep && seen_free == 0 {
            let nobody_wakes = P::Word::new(0);
            P::park(&nobody_wakes, 0, Some(P::after(pause)));
        } else {
            P::pause(pause);
        }
        let now = P::now().wrapping_sub(start);
        preempted |= now.saturating_sub(waited) > u64::from(pause) + PREEMPTED_NS;
        waited = now;
        if !is_free() {
            seen_free = 0;
            interval = interval.max(pause).saturating_mul(2).min(LONGEST_SLEEP_NS);
            continue;
        }
        seen_free += 1;
        if seen_free >= looks {
            if ask() {
                return true;
            }
            seen_free = 0;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{WINDOW_MAX_NS, Waiting, confirmed, stand_by};
    use crate::testing::{Threads, run_on};
    use core::cell::Cell;
    use lockwright_platform::Platform;

    /// Stands by at a lock; for each look, `script` says whether it is free (the last entry counts forever).
    /// Returns whether it got the lock, the number of looks, and how long it took.
    fn looks(class: u8, window_ns: u32, waiting: Waiting, script: &[bool]) -> (bool, usize, u64) {
        run_on(class);
        let (start, count) = (Threads::now(), Cell::new(0));
        let is_free = || {
            let look = count.replace(count.get() + 1);
            *script.get(look).unwrap_or(script.last().unwrap())
        };
        let got = stand_by::<Threads>(window_ns, waiting, confirmed, is_free, || false, || true);
        (got, count.get(), Threads::now() - start)
    }

    #[test]
    fn intervals_double_and_the_window_is_kept() {
        let (got, looks, took) = looks(1, 1_000_000, Waiting::Awake, &[false]);
        assert!(!got);
        assert_eq!(took, 1_000_000);
        // 100 ns to 12.8 us: 8 looks, 25.5 us; then every 20 us.
        assert!((8..=60).contains(&looks), "{looks}");
    }

    #[test]
    fn no_window_is_longer_than_100_ms() {
        for waiting in [Waiting::Awake, Waiting::Asleep, Waiting::Auto] {
            let (got, _, took) = looks(1, u32::MAX, waiting, &[false]);
            assert!(!got);
            assert_eq!(took, u64::from(WINDOW_MAX_NS));
        }
    }

    #[test]
    fn each_class_looks_once_more_than_the_one_before() {
        assert_eq!(looks(1, 1_000_000, Waiting::Awake, &[true]).1, 2);
        assert_eq!(looks(2, 1_000_000, Waiting::Awake, &[true]).1, 3);
        // Free, but taken again a moment later: it goes on standing by.
        let (got, count, _) =
            looks(1, 1_000_000, Waiting::Awake, &[true, false, true, false, true]);
        assert!(got);
        assert_eq!(count, 6);
    }

    #[test]
    fn who_comes_to_a_big_core_asks_at_once() {
        assert_eq!(looks(0, 1_000_000, Waiting::Awake, &[false]), (false, 0, 0));
        run_on(1);
        let (start, count) = (Threads::now(), Cell::new(0));
        let moves = || {
            count.set(count.get() + 1);
            run_on(if count.get() == 3 { 0 } else { 1 });
            false
        };
        assert!(!stand_by::<Threads>(
            1_000_000,
            Waiting::Awake,
            confirmed,
            moves,
            || false,
            || true
        ));
        assert_eq!(count.get(), 3);
        assert!(Threads::now() - start < 2_000);
    }

    #[test]
    fn asleep_it_looks_seldom() {
        let (got, looks, _) = looks(1, 10_000_000, Waiting::Asleep, &[false]);
        assert!(!got);
        assert!(looks <= 20, "{looks}");
    }

    #[test]
    fn who_waits_for_long_looks_seldom_and_is_awake_at_the_end() {
        let (got, looks, took) = looks(1, 10_000_000, Waiting::Auto, &[false]);
        assert!(!got);
        assert_eq!(took, 10_000_000);
        // Awake for the first and the last 0.1 ms: a dozen looks and five; in between some sleeps of up to 1 ms.
        assert!((20..=45).contains(&looks), "{looks}");
    }

    #[test]
    fn a_thread_that_was_too_late_stands_by_again() {
        run_on(1);
        let asked = Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        assert!(stand_by::<Threads>(1_000_000, Waiting::Awake, confirmed, || true, || false, ask));
        assert_eq!(asked.get(), 3);
    }
}
