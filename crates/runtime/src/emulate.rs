//! Emulated little cores: threads compute longer while they run on CPUs that LOCKWRIGHT_EMULATE slows.
//!
//! A thread computes from the end of one lock operation to the start of the next. At that start we know how
//! long it has computed, `w`, and let it spin for `(factor - 1) * w` more: before it acquires a lock, and before
//! it releases one. So a critical section is slowed while the lock is held. Waiting is never slowed.
//!
//! ```text
//!   start ──computes: w──► stop ──spins: (f-1) w──► lock operation, which may wait ──► start
//! ```
//!
//! * An interval below 20 us is measured by the time-stamp counter. A longer one may contain a sleep, a blocking call
//!   or another thread's turn, so it is measured by the thread's CPU clock, minus what has been accounted for since that
//!   clock was last read. The clock is read after each long interval or wait, and when 200 us are accounted for.
//!   Short waits count as awake; if some of them were sleeps, the error stays below 200 us.
//! * Our own cost is measured once, at the start, and subtracted from the spin. A lock operation's own
//!   instructions are slowed like the program's.
//! * An interval has the speed of the CPU on which it began. If the thread moves while it spins, it does the rest
//!   at the new CPU's speed. Time in which it doesn't run doesn't count.
//! * On a CPU of full speed nothing is stamped or slowed.
//!
//! When emulation is off, as it normally is, it costs the plain mutex nothing: see `fast`.

use crate::env::{say, variable};
use crate::fork::{self, When};
use crate::thread;
use crate::watch::{self, Hooks, Rehearsal, Who};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_native::futex::{self, Clock};
use lockwright_native::place::{self, CPUS};
use lockwright_native::topology::{Factor, SpecProblem, Topology};

/// One thread's account. Zeroed is right for a new thread.
#[repr(C)]
struct Account {
    /// Time stamp since which it has been computing, or has been in a lock operation. 0: not on a slowed CPU.
    since: Cell<u64>,
    /// Last reading of its CPU clock, ns.
    clock: Cell<u64>,
    /// Ticks accounted for since that reading.
    known: Cell<u64>,
    /// Ticks that it has yet to spin; negative: ticks that it has already spent in our code.
    owed: Cell<i64>,
    /// How many lock operations it is in: a condition variable's wait contains two of a mutex.
    depth: Cell<u32>,
    /// The factor of the CPU on which it began to compute, in thousandths.
    factor: Cell<u32>,
}

/// Each CPU's factor, in thousandths; 0: full speed, nothing is stamped.
static FACTORS: [AtomicU32; CPUS] = [const { AtomicU32::new(0) }; CPUS];
static TICKS_PER_MS: AtomicU64 = AtomicU64::new(1_000_000);
/// Ticks that an empty interval seems to take.
static EMPTY: AtomicU64 = AtomicU64::new(0);
/// Ticks of a lock operation that finds the lock free: they count as computing, like the program's own.
static OPERATION: AtomicU64 = AtomicU64::new(0);
/// Ticks that our own code takes each time, before and after the spin.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);

struct Text(UnsafeCell<([u8; 256], usize)>);
// SAFETY: written by `enable`, once, before it is on; read after that.
unsafe impl Sync for Text {}
static TEXT: Text = Text(UnsafeCell::new(([0; 256], 0)));

/// What is emulated, as the user wrote it (its first 256 bytes); `None`: nothing.
pub(crate) fn spec() -> Option<&'static [u8]> {
    if !watch::is_by(Who::Emulation) {
        return None;
    }
    // SAFETY: it is on: nobody writes any more.
    let (text, len) = unsafe { &*TEXT.0.get() };
    Some(&text[..*len])
}

/// The time-stamp counter, read after everything that comes before and before everything that comes after. Otherwise
/// the processor would overlap our bookkeeping with the program's work, and its cost could not be measured.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 has these.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// The generic timer, likewise. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn ticks() -> u64 {
    let now: u64;
    // SAFETY: reads a counter that Linux opens to programs.
    unsafe { core::arch::asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) now, options(nostack)) };
    now
}

/// The thread's own CPU time, ns.
fn cpu_clock() -> u64 {
    futex::read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The factor of the CPU that runs us, in thousandths; 0: full speed.
fn factor_here() -> u32 {
    FACTORS.get(place::cpu() as usize).map_or(0, |factor| factor.load(Relaxed)) // never changes once it is on
}

fn account() -> &'static Account {
    // SAFETY: the calling thread's own memory, which exists as long as the thread runs; zeroes are an account.
    unsafe { (*thread::this()).paced.account() }
}

fn us(count: u64) -> u64 {
    TICKS_PER_MS.load(Relaxed) * count / 1000 // measured once
}

/// Intervals and waits of this length or more are measured by the CPU clock.
const LONG_US: u64 = 20;
/// The CPU clock is read at the latest when this much has been accounted for.
const KNOWN_US: u64 = 200;
/// A spinning thread that sees this much pass at once did not run.
const GAP_US: u64 = 2;

/// The calling thread stops computing: a lock operation begins. Spins for as long as its slower CPU would still compute.
#[cold]
#[inline(never)]
fn stop() {
    let account = account();
    let depth = account.depth.get();
    account.depth.set(depth + 1);
    let since = account.since.get();
    if depth > 0 || since == 0 {
        return;
    }
    let now = ticks();
    let empty = EMPTY.load(Relaxed); // measured once
    let interval = now.saturating_sub(since).saturating_sub(empty);
    let computed = if interval < us(LONG_US) {
        account.known.set(account.known.get() + interval + empty);
        interval
    } else {
        read_clock(account).min(interval)
    };
    let factor = account.factor.get();
    let own = (computed + OPERATION.load(Relaxed)).saturating_mul(u64::from(factor) - 1000) / 1000;
    let overhead = OVERHEAD.load(Relaxed) as i64;
    // A debt is not forgotten. But a thread that has computed nothing for a long time gets no credit of milliseconds.
    let owed = (account.owed.get() + own as i64 - overhead).max(-(us(LONG_US) as i64));
    if owed <= 0 {
        account.owed.set(owed);
        account.since.set(now);
        return;
    }
    spin(account, now, owed, factor);
}

/// The calling thread computes again: a lock operation has ended.
#[cold]
#[inline(never)]
fn start() {
    let account = account();
    let depth = account.depth.get().saturating_sub(1);
    account.depth.set(depth);
    if depth > 0 {
        return;
    }
    let factor = factor_here();
    if factor == 0 {
        account.since.set(0);
        return;
    }
    account.factor.set(factor);
    let since = account.since.get();
    let now = ticks();
    let waited = now.saturating_sub(since);
    let known = account.known.get() + waited;
    if since == 0 || waited >= us(LONG_US) || known >= us(KNOWN_US) {
        read_clock(account);
        account.since.set(ticks());
    } else {
        account.known.set(known);
        account.since.set(now);
    }
}

/// Reads the CPU clock; the ticks that the thread ran since the last reading beyond those accounted for.
fn read_clock(account: &Account) -> u64 {
    let now = cpu_clock();
    let ran = now.saturating_sub(account.clock.get());
    // By microseconds first: nanoseconds of days would overflow.
    let per_ms = TICKS_PER_MS.load(Relaxed); // measured once
    let ran = (ran / 1000).saturating_mul(per_ms) / 1000 + ran % 1000 * per_ms / 1_000_000;
    let unknown = ran.saturating_sub(account.known.get());
    account.clock.set(now);
    account.known.set(0);
    unknown
}

/// Runs, from `last` on, for `left` ticks of a CPU that is slowed by `factor`.
fn spin(account: &Account, mut last: u64, mut left: i64, mut factor: u32) {
    let (mut ran, gap) = (0, us(GAP_US));
    while left > 0 {
        let now = ticks();
        let step = now.saturating_sub(last);
        last = now;
        if step < gap {
            ran += step;
            left -= step as i64;
            continue;
        }
        let here = factor_here().max(1000);
        if here != factor {
            left = left.saturating_mul(i64::from(here)) / i64::from(factor);
            factor = here;
        }
    }
    account.known.set(account.known.get() + ran);
    account.owed.set(left);
    account.since.set(last);
}

/// In the child of a fork: the CPU clock of its only thread starts anew.
fn forget_clock() {
    let account = account();
    account.clock.set(0);
    account.known.set(0);
}

/// Reads LOCKWRIGHT_EMULATE, which changes the CPUs' classes; `false`: nothing is emulated. `rehearse` performs the given
/// number of pairs of operations on a mutex of its own.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(topology: &mut Topology, rehearse: fn(u32, Rehearsal)) -> bool {
    let Some(text) = variable(c"LOCKWRIGHT_EMULATE") else { return false };
    let spec = core::str::from_utf8(text).unwrap_or("");
    match topology.set_emulated(spec) {
        Ok(factors) => {
            topology.slow_down(&factors);
            // SAFETY: our caller's promise.
            unsafe { enable(topology, &factors, text, rehearse) };
            true
        }
        Err(error) => {
            let why: &[u8] = match error.problem {
                SpecProblem::UnknownCpu(_) => b"': this machine has no such cpu",
                SpecProblem::CpuMissing(_) => b"': a cpu is online and in no class",
                SpecProblem::BadFactor => b"': a factor is a number from 1 to 100, as in x3.75",
                SpecProblem::BigIsSlowed => b"': big cores keep their speed",
                _ => b"': not as in big:0,little:1x3.75",
            };
            let piece = error.piece.as_bytes();
            say(&[b"bad LOCKWRIGHT_EMULATE, at '", piece, why, b"; nothing is emulated\n"]);
            false
        }
    }
}

/// What to do at each operation.
static HOOKS: Hooks = Hooks {
    before: |_| {
        stop();
        None
    },
    after: |_, _| start(),
};

/// Slows the CPUs of `topology`'s classes by their factors; `text` is what the user wrote.
///
/// # Safety
/// Called once, by the constructor.
unsafe fn enable(
    topology: &Topology,
    factors: &[Factor],
    text: &[u8],
    rehearse: fn(u32, Rehearsal),
) {
    calibrate(rehearse);
    for (number, cpu) in topology.online() {
        let factor = factors.get(usize::from(cpu.class.0)).copied().unwrap_or(Factor::ONE);
        let thousandths = if factor == Factor::ONE { 0 } else { factor.thousandths() };
        if let Some(slot) = FACTORS.get(number) {
            slot.store(thousandths, Relaxed); // published by `watch::begin`
        }
    }
    // SAFETY: called once, and nobody reads it before emulation is on.
    let (kept, len) = unsafe { &mut *TEXT.0.get() };
    *len = text.len().min(kept.len());
    kept[..*len].copy_from_slice(&text[..*len]);
    fork::tell_child(When::Seen, forget_clock);
    watch::begin(Who::Emulation, Some(&HOOKS));
    start_here();
}

/// The calling thread computes from here on, as if a lock operation had ended.
fn start_here() {
    let account = account();
    account.since.set(0);
    account.owed.set(0);
    account.depth.set(1);
    start();
}

/// Measures the counter's frequency and what our own code costs. Takes about 3 ms.
fn calibrate(rehearse: fn(u32, Rehearsal)) {
    const BATCHES: u32 = 32;
    const BATCH: u32 = 128;
    let (start_ns, start_ticks) = (futex::now(Clock::Monotonic), ticks());
    // Stamped, at full speed.
    for factor in &FACTORS {
        factor.store(1000, Relaxed); // nobody else looks before emulation is on
    }
    start_here();
    let account = account();
    let (mut free, mut plain, mut stamped, mut empty) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    let time = |run: &dyn Fn()| {
        let from = ticks();
        run();
        ticks().saturating_sub(from)
    };
    for _ in 0..BATCHES {
        free = free.min(time(&|| rehearse(BATCH, Rehearsal::Several)));
        plain = plain.min(time(&|| rehearse(BATCH, Rehearsal::Plain)));
        account.known.set(0);
        rehearse(BATCH, Rehearsal::Stamped(&HOOKS)); // adds its intervals and its waits
        stamped = stamped.min(account.known.get());
        let mut intervals = 0;
        for _ in 0..BATCH {
            account.known.set(0);
            stop(); // adds the interval
            intervals += account.known.get();
            start();
        }
        empty = empty.min(intervals);
    }
    // Two operations in each.
    OPERATION.store(free / u64::from(2 * BATCH), Relaxed); // published by `watch::begin`
    OVERHEAD.store(stamped.saturating_sub(plain) / u64::from(2 * BATCH), Relaxed);
    EMPTY.store(empty / u64::from(BATCH), Relaxed);
    loop {
        let ns = futex::now(Clock::Monotonic).saturating_sub(start_ns);
        if ns >= 2_000_000 {
            let ticks = ticks().saturating_sub(start_ticks);
            TICKS_PER_MS.store((ticks.saturating_mul(1_000_000) / ns).max(1000), Relaxed);
            break;
        }
    }
    account.known.set(0);
}
