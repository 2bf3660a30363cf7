//! What a single core does: clock rate, instructions, its own cache, memory.

use crate::chain::Chain;
use crate::stats::Sample;
use crate::together::on;
use lockwright_native::futex::{self, Clock};
use lockwright_native::pause::Pause;
use lockwright_numbers::median;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Instant;

/// A value on a separate cache line.
#[repr(align(128))]
struct Aligned<T>(T);

/// What [`round`] measures, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// One addition that needs the result of the one before: one cycle.
    Cycle,
    Nop,
    Load,
    Store,
    /// An addition, an exchange, and a compare-and-exchange of a word in the core's own cache, one after the other.
    Atomic,
    /// As `Atomic`, with a store to the word after each operation, as when a lock is taken and released.
    AtomicStore,
    /// Reading, modifying and writing a line in the core's own cache, one of many.
    Line,
    Pause,
    Clock,
    /// Reading a line that is in no cache.
    Cold,
}

impl Measure {
    pub(crate) const ALL: [Self; 10] = [
        Self::Cycle,
        Self::Nop,
        Self::Load,
        Self::Store,
        Self::Atomic,
        Self::AtomicStore,
        Self::Line,
        Self::Pause,
        Self::Clock,
        Self::Cold,
    ];
}

/// One sample of each on that CPU, in ns, between two measurements of the cycle time.
pub(crate) fn round(cpu: usize) -> Vec<Sample> {
    on(cpu, || {
        let chain = Chain::new(64);
        cycle();
        let mut before = cycle();
        let measure = |what: &Measure| {
            let value = measure(*what, &chain);
            let after = cycle();
            let sample = Sample { before, value, after };
            before = after;
            sample
        };
        Measure::ALL.iter().map(measure).collect()
    })
}

/// How long a pause takes with each instruction that this processor has, ns: the median of several runs. The watched
/// word doesn't change.
pub(crate) fn pauses(cpu: usize) -> Vec<(String, f64)> {
    const RUNS: usize = 31;
    on(cpu, || {
        let word = Aligned(AtomicU32::new(0));
        let address: *const u8 = black_box(&raw const word).cast();
        let here = Pause::ALL.into_iter().filter(|kind| kind.is_here());
        let turn = |kind: Pause| {
            // SAFETY: the processor has the instruction, and the address is that of a word of ours.
            let turn = |_| unsafe { kind.turn(address, &|| true) };
            let run = || per_turn(256, || (0..256).for_each(turn));
            let runs: Vec<f64> = (0..RUNS).map(|_| run()).collect();
            let ns = median(&runs).expect("several runs");
            (kind.name().to_owned(), (ns * 10.0).round() / 10.0)
        };
        here.map(turn).collect()
    })
}

/// The length of a cycle, ns.
pub(crate) fn cycle() -> f64 {
    per_turn(16_384, || adds(16_384))
}

/// One NOP, ns. It also gets slower if an invisible thread shares the core.
pub(crate) fn nop() -> f64 {
    per_turn(65_536, || nops(65_536))
}

fn measure(what: Measure, chain: &Chain) -> f64 {
    /// Turns of a loop, which take about 10 to 100 us.
    const N: u32 = 16_384;
    match what {
        Measure::Cycle => per_turn(4 * N, || adds(4 * N)),
        Measure::Nop => nop(),
        Measure::Load => {
            // Most of a lock's loads don't delay it: only a correctly predicted branch waits for their results.
            let cell = 0u32;
            let cell: *const u32 = black_box(&raw const cell);
            per_turn(N, || {
                for _ in 0..N {
                    // SAFETY: `cell` lives on.
                    black_box(unsafe { cell.read_volatile() });
                }
            })
        }
        Measure::Store => {
            let mut cell = 0u32;
            let cell: *mut u32 = black_box(&raw mut cell);
            per_turn(N, || {
                for turn in 0..N {
                    // SAFETY: `cell` lives on, and only this code uses it.
                    unsafe { cell.write_volatile(turn) };
                }
            })
        }
        Measure::Atomic => atomics(|_| {}),
        Measure::AtomicStore => atomics(|word| word.store(0, Release)),
        Measure::Line => {
            chain.add_to_each();
            per_turn(64 * 64, || (0..64).for_each(|_| chain.add_to_each()))
        }
        Measure::Pause => per_turn(1024, || (0..1024).for_each(|_| spin_loop())),
        Measure::Clock => per_turn(1024, || {
            for _ in 0..1024 {
                black_box(futex::now(Clock::Monotonic));
            }
        }),
        Measure::Cold => {
            chain.walk();
            chain.evict();
            let from_memory = chain.walk();
            from_memory - chain.walk()
        }
    }
}

/// Atomic operations on a word, three kinds in rotation, with `then` after each; the time of one operation, ns.
fn atomics(then: impl Fn(&AtomicU32)) -> f64 {
    const N: u32 = 16_384;
    let word = Aligned(AtomicU32::new(0));
    let word = black_box(&word.0);
    let mut seen = 0; // in a register, because a result in memory would be one more store
    let ns = per_turn(3 * N, || {
        for _ in 0..N {
            seen ^= word.fetch_add(1, AcqRel);
            then(word);
            seen ^= word.swap(0, AcqRel);
            then(word);
            seen ^= u32::from(word.compare_exchange(0, 0, AcqRel, Relaxed).is_ok());
            then(word);
        }
    });
    black_box(seen);
    ns
}

/// The length of one of `turns` turns, ns.
pub(crate) fn per_turn(turns: u32, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / f64::from(turns)
}

/// `n` additions (a multiple of 64), each of which needs the one before. They add a register, because additions of
/// constants may be free.
pub(crate) fn adds(n: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts in registers of its own.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 64", "add {x}, {y}", ".endr", "dec {n:e}", "jnz 2b",
            x = inout(reg) 1u64 => _, y = in(reg) black_box(3u64), n = inout(reg) n / 64 => _,
            options(nomem, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: counts in registers of its own.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 64", "add {x}, {x}, {y}", ".endr", "subs {n:w}, {n:w}, #1", "b.ne 2b",
            x = inout(reg) 1u64 => _, y = in(reg) black_box(3u64), n = inout(reg) n / 64 => _,
            options(nomem, nostack),
        );
    }
}

/// `n` NOPs (a multiple of 256).
fn nops(n: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts in a register of its own.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 256", "nop", ".endr", "dec {n:e}", "jnz 2b",
            n = inout(reg) n / 256 => _, options(nomem, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: counts in a register of its own.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 256", "nop", ".endr", "subs {n:w}, {n:w}, #1", "b.ne 2b",
            n = inout(reg) n / 256 => _, options(nomem, nostack),
        );
    }
}
