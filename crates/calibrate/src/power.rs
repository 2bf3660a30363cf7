//! What the cores draw: by the processor's energy counter where Linux shows one, else assumed.

use crate::layout::Class;
use crate::ledger::Ledger;
use crate::together::together;
use lockwright_sim::profile::Power;
use std::fs;
use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::time::{Duration, Instant};

/// Why figures are assumed.
const NO_COUNTER: &str = "no energy counter here (/sys/class/powercap): a server core's, after the Xeon of MUTEXEE (Falsafi et al., \
    Unlocking Energy, USENIX ATC 2016: 20 cores from 4 to 96 W, packages from 30 W)";

/// The energy counters of all packages.
#[derive(Debug)]
struct Counters(Vec<(PathBuf, u64)>);

impl Counters {
    /// `None`: there is none, or we may not read it.
    fn open() -> Option<Self> {
        let zones = fs::read_dir("/sys/class/powercap").ok()?.filter_map(Result::ok);
        let packages = zones.map(|zone| zone.path()).filter(|path| {
            fs::read_to_string(path.join("name")).is_ok_and(|name| name.starts_with("package"))
        });
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let counter = |path: PathBuf| {
            number(path.join("energy_uj"))?;
            let most = number(path.join("max_energy_range_uj"))?;
            Some((path.join("energy_uj"), most))
        };
        let counters: Vec<_> = packages.filter_map(counter).collect();
        (!counters.is_empty()).then_some(Self(counters))
    }

    fn read(&self) -> Vec<u64> {
        let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
        self.0.iter().map(|(path, _)| number(path).unwrap_or(0)).collect()
    }

    /// What all packages draw while `run` runs, W.
    fn watts(&self, run: impl FnOnce()) -> f64 {
        let (start, before) = (Instant::now(), self.read());
        run();
        let seconds = start.elapsed().as_secs_f64();
        let used = |((_, most), (before, after)): (&(PathBuf, u64), (u64, u64))| {
            (if after >= before { after - before } else { after + most - before }) as f64
        };
        let pairs = before.into_iter().zip(self.read());
        self.0.iter().zip(pairs).map(used).sum::<f64>() / 1e6 / seconds
    }
}

/// What a core of the class that `cores` belong to draws in each state.
pub(crate) fn of_class(
    ledger: &mut Ledger,
    class: &Class,
    cores: &[usize],
    time: Duration,
) -> Power {
    let path = |state: &str| format!("class.{}.power.{state}", class.name);
    // With one thread a core the profile has no such figure.
    let sibling = match class.smt {
        1 => 1.0,
        _ => ledger.assumed(&path("sibling"), 0.1, "not measured: as the profile xeon-2x10"),
    };
    let Some(counters) = Counters::open() else {
        let mut assumed = |state: &str, watts| ledger.assumed(&path(state), watts, NO_COUNTER);
        return Power {
            active_w: assumed("active_w", 4.6),
            spin_local_w: assumed("spin_local_w", 4.6),
            spin_fence_w: assumed("spin_fence_w", 4.3),
            spin_global_w: assumed("spin_global_w", 4.4),
            idle_w: assumed("idle_w", 0.2),
            deep_w: assumed("deep_w", 0.05),
            sibling,
        };
    };
    let word = AtomicU32::new(0);
    let idle = counters.watts(|| std::thread::sleep(time));
    let mut busy = |state: &str, how: &str, turn: &(dyn Fn() + Sync)| {
        let watts = counters.watts(|| {
            together(cores, |_| {
                let start = Instant::now();
                while start.elapsed() < time {
                    (0..256).for_each(|_| turn());
                }
            });
        });
        let each = ((watts - idle) / cores.len() as f64).max(0.0);
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
    match Counters::open() {
        Some(counters) => {
            let watts = counters.watts(|| std::thread::sleep(time));
            ledger.told(
                "kernel.package_w",
                watts,
                "the processor's energy counter, the machine idle",
            )
        }
        None => ledger.assumed("kernel.package_w", 15.0, NO_COUNTER),
    }
}
