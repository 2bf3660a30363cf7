//! What the cores draw: from the processor's energy counter where Linux shows one, otherwise assumed.

use crate::layout::Class;
use crate::ledger::Ledger;
use crate::together::together;
use lockwright_energy::{Source, Watts};
use lockwright_sim::profile::Power;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::time::{Duration, Instant};

/// The processor's energy counter, or why figures are assumed. Sensors that update only occasionally are too slow for
/// this.
fn counter() -> Result<Source, String> {
    let source = Source::here(Watts::assumed());
    if source.is_counter() {
        return Ok(source);
    }
    let why = match source.notes() {
        [] => "no energy counter of the processor here".to_owned(),
        notes => notes.join("; "),
    };
    Err(format!(
        "{why}. A server core's, after the Xeon of MUTEXEE (Falsafi et al., Unlocking Energy, USENIX ATC 2016: 20 cores from \
         4 to 96 W, packages from 30 W)"
    ))
}

/// What all packages draw while `run` runs, W.
fn watts(counter: &Source, run: impl FnOnce()) -> f64 {
    let (start, running) = (Instant::now(), counter.start());
    run();
    running.stop(Duration::ZERO).unwrap_or(0.0) / start.elapsed().as_secs_f64()
}

/// What a core of the class that `cores` belong to draws in each state.
pub(crate) fn of_class(
    ledger: &mut Ledger,
    class: &Class,
    cores: &[usize],
    time: Duration,
) -> Power {
    let path = |state: &str| format!("class.{}.power.{state}", class.name);
    // With one thread per core the profile has no such figure.
    let sibling = match class.smt {
        1 => 1.0,
        _ => ledger.assumed(&path("sibling"), 0.1, "not measured: as the profile xeon-2x10"),
    };
    let counter = match counter() {
        Ok(counter) => counter,
        Err(why) => {
            let model = Watts::assumed();
            let mut assumed = |state: &str, watts| ledger.assumed(&path(state), watts, &why);
            return Power {
                active_w: assumed("active_w", model.active_w),
                spin_local_w: assumed("spin_local_w", model.active_w),
                spin_fence_w: assumed("spin_fence_w", 4.3),
                spin_global_w: assumed("spin_global_w", 4.4),
                idle_w: assumed("idle_w", model.idle_w),
                deep_w: assumed("deep_w", 0.05),
                sibling,
            };
        }
    };
    let word = AtomicU32::new(0);
    let idle = watts(&counter, || std::thread::sleep(time));
    let mut busy = |state: &str, how: &str, turn: &(dyn Fn() + Sync)| {
        let drawn = watts(&counter, || {
            together(cores, |_| {
                let start = Instant::now();
                while start.elapsed() < time {
                    (0..256).for_each(|_| turn());
                }
            });
        });
        let each = ((drawn - idle) / cores.len() as f64).max(0.0);
        let how = format!(
            "the processor's energy counter, {} cores {how}, less the idle machine",
            cores.len()
        );
        ledger.told(&path(state), each, &how)
    };
    let power = Power {
        active_w: busy("active_w", "computing", &|| {
            black_box((0..64u64).fold(1, |x: u64, n| x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n));
        }),
        spin_local_w: busy("spin_local_w", "spinning with pause instructions", &|| {
            black_box(word.load(Relaxed));
            spin_loop();
        }),
        spin_fence_w: busy("spin_fence_w", "spinning with memory barriers", &|| {
            black_box(word.load(Relaxed));
            fence(SeqCst);
        }),
        spin_global_w: busy("spin_global_w", "swapping one word", &|| {
            black_box(word.swap(1, AcqRel));
        }),
        idle_w: 0.0,
        deep_w: 0.0,
        sibling,
    };
    let part = "part of kernel.package_w: the counter tells no idle core apart";
    ledger.assumed(&path("idle_w"), 0.0, part);
    ledger.assumed(&path("deep_w"), 0.0, part);
    power
}

/// What the machine draws in addition to its cores.
pub(crate) fn of_package(ledger: &mut Ledger, time: Duration) -> f64 {
    match counter() {
        Ok(counter) => ledger.told(
            "kernel.package_w",
            watts(&counter, || std::thread::sleep(time)),
            "the processor's energy counter, the machine idle",
        ),
        Err(why) => ledger.assumed("kernel.package_w", Watts::assumed().package_w, &why),
    }
}
