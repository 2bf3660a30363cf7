//! The clock of epochs: the time-stamp counter where the kernel trusts it, `clock_gettime` elsewhere and until
//! the counter's rate is known.
//!
//! The rate comes from two readings of both clocks, at least 10 ms apart. The end of the first epoch takes the first reading
//! (or our constructor does, if a variable is about epochs), and the end of a later epoch takes the second. So nothing waits
//! for the rate. (CPUID gives a nominal rate on some machines, and none on most virtual ones; 64-bit ARM has a register.)
//!
//! While the machine is suspended the counter may go on, but the kernel's clock stops. If that happens between the
//! two readings, they are useless, and the second one counts as a new first one.

#[cfg(target_arch = "x86_64")]
use crate::access::{self, Access};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU64};
use lockwright_native::futex::{self, Clock};
#[cfg(target_arch = "x86_64")]
use lockwright_native::system_call;

/// Nanoseconds per tick, times 2^32; 0: not known, or the machine has no such counter.
static RATE: AtomicU64 = AtomicU64::new(0);
/// The first reading: the counter and the kernel's clock, ns; 0: not taken.
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);
static FIRST_NS: AtomicU64 = AtomicU64::new(0);
/// How long the machine had been suspended before the first reading, ns.
static FIRST_SUSPENDED_NS: AtomicU64 = AtomicU64::new(0);
/// [`UNKNOWN`] and so on.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Nobody has looked at the counter yet.
const UNKNOWN: u8 = 0;
/// It can't be used.
const NONE: u8 = 1;
/// Its rate will be known once time has passed.
const WAITING: u8 = 2;

/// The difference of two clocks, read one after the other, may change by this much by chance, ns.
const SUSPENDED_NS: u64 = 2_000_000;

/// The time between the two readings, ns. Their error is about 50 ns, so the rate is right to 5 in a million.
const BASELINE_NS: u64 = 10_000_000;

/// A point in time, in ticks of the counter or in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) at: u64,
    pub(crate) in_ticks: bool,
}

impl Instant {
    /// Now.
    #[inline(always)]
    pub(crate) fn now() -> Self {
        // The rate guards no other data: a thread that sees it may use it.
        if RATE.load(Relaxed) != 0 {
            Self { at: ticks(), in_ticks: true }
        } else {
            Self { at: futex::now(Clock::Monotonic), in_ticks: false }
        }
    }

    /// From `self` to now, ns; 0 if the counters of two CPUs disagree.
    #[inline(always)]
    pub(crate) fn elapsed_ns(self) -> u64 {
        if self.in_ticks {
            let ticks = ticks().saturating_sub(self.at);
            ((u128::from(ticks) * u128::from(RATE.load(Relaxed))) >> 32) as u64
        } else {
            self.elapsed_slowly()
        }
    }

    #[cold]
    fn elapsed_slowly(self) -> u64 {
        let now = futex::now(Clock::Monotonic);
        learn(now);
        now.saturating_sub(self.at)
    }
}

/// The time-stamp counter. Unfenced: a reading may pass earlier instructions by some cycles.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 has it; `is_usable` has made sure that it does not trap.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The generic timer. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn ticks() -> u64 {
    let now: u64;
    // SAFETY: reads a counter that Linux opens to programs.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack)) };
    now
}

/// Called by our constructor if the program may have epochs: takes the first reading.
pub(crate) fn prepare() {
    learn(futex::now(Clock::Monotonic));
}

/// Takes one step towards the rate.
fn learn(now_ns: u64) {
    match STATE.load(Relaxed) {
        // Relaxed, throughout. If two threads did this at once, a mixed pair of readings would be off by the
        // time between them. So only one of them writes.
        UNKNOWN if STATE.compare_exchange(UNKNOWN, NONE, Relaxed, Relaxed).is_ok() => {
            if let Some(rate) = known_rate() {
                RATE.store(rate, Relaxed);
            } else if is_usable() {
                first(both());
            }
        }
        WAITING if now_ns.saturating_sub(FIRST_NS.load(Relaxed)) >= BASELINE_NS => second(),
        _ => {}
    }
}

/// The first reading. STATE is the caller's.
fn first((ticks, ns): (u64, u64)) {
    FIRST_TICKS.store(ticks, Relaxed);
    FIRST_NS.store(ns, Relaxed);
    FIRST_SUSPENDED_NS.store(suspended_ns(), Relaxed);
    // ORDERING: Release, pairs with the Acquire in `second`.
    STATE.store(WAITING, Release);
}

#[cold]
fn second() {
    // ORDERING: Acquire, pairs with the Release in `first`: all first readings are visible. Only one thread goes on.
    if STATE.compare_exchange(WAITING, NONE, Acquire, Relaxed).is_err() {
        return;
    }
    let (ticks, ns) = both();
    if suspended_ns().abs_diff(FIRST_SUSPENDED_NS.load(Relaxed)) > SUSPENDED_NS {
        return first((ticks, ns));
    }
    let ticks = ticks.saturating_sub(FIRST_TICKS.load(Relaxed));
    let ns = ns.saturating_sub(FIRST_NS.load(Relaxed));
    let rate = (u128::from(ns) << 32).checked_div(u128::from(ticks)).unwrap_or(0);
    // From 100 MHz to 100 GHz: anything else isn't a counter that we know.
    let is_sane = ((1 << 32) / 100..=10 << 32).contains(&rate);
    if is_sane {
        RATE.store(rate as u64, Relaxed); // as in `now`
    }
    // STATE is NONE: nothing more to learn.
}

/// About how long the machine has been suspended since it booted, ns.
fn suspended_ns() -> u64 {
    // It counts what the monotonic clock leaves out.
    futex::read_ns(libc::CLOCK_BOOTTIME).saturating_sub(futex::now(Clock::Monotonic))
}

/// Both clocks at one moment: the least disturbed of five readings.
fn both() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before = ticks();
        let ns = futex::now(Clock::Monotonic);
        let width = ticks().saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, ns);
        }
    }
    (best.1, best.2)
}

/// The rate, where the machine tells it.
#[cfg(target_arch = "aarch64")]
fn known_rate() -> Option<u64> {
    let hertz: u64;
    // SAFETY: reads a register that Linux opens to programs.
    unsafe { core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack)) };
    (1_000_000_000_u64 << 32).checked_div(hertz & 0xffff_ffff)
}

/// This machine doesn't tell it, or not exactly enough.
#[cfg(target_arch = "x86_64")]
fn known_rate() -> Option<u64> {
    None
}

#[cfg(target_arch = "aarch64")]
fn is_usable() -> bool {
    false // its rate is known, or it has none
}

/// Does the counter tick evenly, on all CPUs alike, and may we read it?
#[cfg(target_arch = "x86_64")]
fn is_usable() -> bool {
    use core::arch::x86_64::__cpuid;
    const PR_GET_TSC: i32 = 25;
    const PR_TSC_ENABLE: i32 = 1;
    let is_invariant =
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0;
    let mut mode = 0_i32;
    access::asking(|access| {
        let asked = match access {
            // SAFETY: writes an int to our variable. (Not by libc's `prctl`: where we are preloaded, that name is ours.)
            Access::All => unsafe { system_call!(libc::SYS_prctl, PR_GET_TSC, &raw mut mode) },
            // The dynamic linker has read the counter already: it does not trap.
            Access::Files => -1,
            Access::None => return false,
        };
        is_invariant && (asked != 0 || mode == PR_TSC_ENABLE) && is_trusted()
    })
}

/// Does the kernel itself keep time by it? It watches the counters of all CPUs, and gives up on them if they drift apart.
#[cfg(target_arch = "x86_64")]
fn is_trusted() -> bool {
    let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let mut text = [0_u8; 64];
    match crate::files::read(path, &mut text) {
        Some(name) => {
            let name = name.trim_ascii();
            name == b"tsc" || name == b"kvm-clock" || name == b"hyperv_clocksource_tsc_page"
        }
        None => true, // no such file: a container without sysfs
    }
}

/// Held by tests: shared by those that measure with the clock, exclusively by the one that makes it forget its rate.
#[cfg(test)]
pub(crate) static TESTED: std::sync::RwLock<()> = std::sync::RwLock::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::PoisonError;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn it_agrees_with_the_kernels_clock_before_and_after_it_is_calibrated() {
        let _alone = TESTED.write().unwrap_or_else(PoisonError::into_inner);
        prepare();
        for _ in 0..3 {
            // The machine may stall between two readings, but not each time.
            let agrees = (0..20).any(|_| {
                let before = futex::now(Clock::Monotonic);
                let start = Instant::now();
                sleep(Duration::from_millis(12));
                let ours = start.elapsed_ns();
                let kernels = futex::now(Clock::Monotonic) - before;
                // 20 us: the kernel's clock may be slewed by 500 in a million (6 us) after the rate was taken.
                kernels.abs_diff(ours) < 20_000
            });
            assert!(agrees);
        }
        // As if the machine had been suspended meanwhile: the readings begin anew, and finish.
        if RATE.swap(0, Relaxed) != 0 {
            first((1, 1));
            FIRST_SUSPENDED_NS.store(suspended_ns() + 3_600_000_000_000, Relaxed);
            second();
            assert_eq!((STATE.load(Relaxed), RATE.load(Relaxed)), (WAITING, 0));
            // Any delay between two readings looks like a suspended machine: then they begin anew.
            let ends = (0..20).any(|_| {
                sleep(Duration::from_millis(12));
                second();
                RATE.load(Relaxed) != 0
            });
            assert!(ends);
        }
        // This machine, like any that we know, has a counter, or lacks it for a reason that stays.
        assert!(STATE.load(Relaxed) == NONE);
        assert_eq!(Instant::now().in_ticks, RATE.load(Relaxed) != 0);
    }
}
