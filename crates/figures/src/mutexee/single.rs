//! Figures 8 to 11: one lock that everybody wants.

use super::common::{BASELINES, CROWD, LOCKS, MUTEXEE, OURS, largest, load, smallest, tpp};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Measured, Plan, Results, median, ratio};
use lockwright_sim::{Outcome, Quantiles};
use std::collections::BTreeMap;

/// Lengths of critical sections, cycles; the paper's are 0 to 16 000 in steps of 500.
const CYCLES: [f64; 7] = [0.0, 1000.0, 2000.0, 4000.0, 8000.0, 12_000.0, 16_000.0];
/// Threads of Figure 11's row that is judged by its sign, and that row's locks.
const SIGN: u32 = 40;
const SIGN_OF: [&str; 2] = ["glibc", "ticket"];

/// Three locks over the length of the critical section.
struct Pair {
    results: Results,
    mutexee: Vec<Key>,
    ours: Vec<Key>,
    glibc: Vec<Key>,
}

impl Pair {
    fn run(context: &Context<'_>) -> Result<Self, Error> {
        let mut plan = Plan::new();
        let mut keys = |lock| {
            // With the longest sections, only an interrupt makes a runner lose a lock to a sleeper: once in tens of ms.
            let ms = |cs| if cs < 16_000.0 { 100.0 } else { 500.0 };
            let load = |cs| load(lock, CROWD, cs, 1.0).lasting(2.0, ms(cs));
            CYCLES.map(|cs| plan.add(load(cs))).to_vec()
        };
        let (mutexee, ours, glibc) = (keys(MUTEXEE), keys(OURS), keys("glibc"));
        Ok(Self { results: plan.run(context)?, mutexee, ours, glibc })
    }

    /// A figure of MUTEXEE divided by that of MUTEX, as a row of this name; and ours beside it.
    fn row(&self, name: &str, cs: f64, what: impl Fn(&Outcome) -> f64, into: &mut Measured) {
        let at = CYCLES.iter().position(|one| one.total_cmp(&cs).is_eq());
        let at = at.expect("a row asks for a length that was run");
        let of = |keys: &[Key]| self.results.of(keys[at], &what);
        into.row(format!("{name} cs={cs}"), ratio(&of(&self.mutexee), &of(&self.glibc)));
        into.also(format!("our {name} cs={cs}"), ratio(&of(&self.ours), &of(&self.glibc)));
    }

    fn plot(&self, name: &str, label: &str, what: impl Fn(&Outcome) -> f64) -> Plot {
        let all = [(MUTEXEE, &self.mutexee), (OURS, &self.ours), ("glibc", &self.glibc)];
        let series = all.map(|(lock, keys)| {
            let point =
                |(&cs, &key): (&f64, &Key)| Some((cs, median(&self.results.of(key, &what))?));
            Series::new(lock, Kind::Line, CYCLES.iter().zip(keys).filter_map(point).collect())
        });
        Plot {
            name: name.to_owned(),
            title: format!("{name}: one lock, {CROWD} threads"),
            x: Axis::linear("cycles in the critical section"),
            left: Axis::linear(label),
            right: None,
            series: series.into_iter().filter(|series| !series.points.is_empty()).collect(),
        }
    }
}

/// MUTEXEE relative to MUTEX.
pub(super) fn figure_8(context: &Context<'_>) -> Result<Measured, Error> {
    let pair = Pair::run(context)?;
    let mut measured = Measured::new();
    for cs in [1000.0, 2000.0, 4000.0, 16_000.0] {
        pair.row("mutexee/glibc", cs, |outcome| outcome.throughput, &mut measured);
        pair.row("tpp mutexee/glibc", cs, |outcome| outcome.tpp, &mut measured);
    }
    let ([spin, glibc], watch) = ablated(context)?;
    measured.row("mutexee:500 cycles/glibc", ratio(&spin[0], &glibc[0]));
    measured.row("power mutexee:no watch/glibc", ratio(&watch[1], &glibc[1]));
    measured.plots = vec![
        pair.plot("mutexee-8-throughput", "acquisitions a microsecond", |o| o.throughput / 1e6),
        pair.plot("mutexee-8-tpp", "TPP, thousand acquisitions a joule", |o| o.tpp / 1e3),
    ];
    Ok(measured)
}

/// Throughput and power: of MUTEXEE that spins for 500 cycles, of MUTEX; and of MUTEXEE whose unlock doesn't wait in user space.
#[allow(clippy::type_complexity, reason = "two values for each of three locks")]
fn ablated(context: &Context<'_>) -> Result<([[Vec<f64>; 2]; 2], [Vec<f64>; 2]), Error> {
    let mut plan = Plan::new();
    let mut key = |lock: &str| plan.add(load(lock, CROWD, 2000.0, 1.0).lasting(2.0, 20.0));
    let keys = [format!("{MUTEXEE}:spin=179"), "glibc".into(), format!("{MUTEXEE}:watch=0")];
    let keys = keys.map(|lock| key(&lock));
    let results = plan.run(context)?;
    let of = |key| [results.throughput(key), results.of(key, |outcome| outcome.watts)];
    let [spin, glibc, watch] = keys.map(of);
    Ok(([spin, glibc], watch))
}

/// How long acquisitions take; the machine has one class of cores.
fn wait(outcome: &Outcome) -> Quantiles {
    outcome.class(0).wait
}

#[allow(clippy::cast_precision_loss, reason = "a time far below 2^52 ns")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// The tail of waiting.
pub(super) fn figure_9(context: &Context<'_>) -> Result<Measured, Error> {
    let pair = Pair::run(context)?;
    let p95 = |outcome: &Outcome| us(wait(outcome).p95_ns);
    let p9999 = |outcome: &Outcome| us(wait(outcome).p9999_ns);
    let mut measured = Measured::new();
    for cs in [1000.0, 4000.0] {
        pair.row("p95 mutexee/glibc", cs, p95, &mut measured);
    }
    for cs in [1000.0, 4000.0, 16_000.0] {
        pair.row("p99.99 mutexee/glibc", cs, p9999, &mut measured);
    }
    measured.plots = vec![
        pair.plot("mutexee-9-p95", "P95 of waiting, µs", p95),
        pair.plot("mutexee-9-p99.99", "P99.99 of waiting, µs", p9999),
    ];
    Ok(measured)
}

/// What a bound on sleeping costs MUTEXEE.
pub(super) fn figure_10(context: &Context<'_>) -> Result<Measured, Error> {
    const THREADS: [u32; 6] = [10, 20, 30, 40, 50, 60];
    /// The timeouts of 4 and 32 ms are only compared with these.
    const COMPARED: usize = 1;
    let mut plan = Plan::new();
    let mut at = |lock: &str, timeout: u32, threads: u32, ms| {
        let lock = format!("{lock}:timeout={timeout}");
        plan.add(load(&lock, threads, 2000.0, 1.0).lasting(2.0, ms))
    };
    // A run spans several timeouts.
    let mut bounds = |lock| {
        let [free, us8] = [0, 8192].map(|timeout| THREADS.map(|n| at(lock, timeout, n, 20.0)));
        let [ms4, ms32] = [(4_000_000, 100.0), (32_000_000, 200.0)]
            .map(|(timeout, ms)| at(lock, timeout, THREADS[COMPARED], ms));
        (free, us8, ms4, ms32)
    };
    let (published, ours) = (bounds(MUTEXEE), bounds(OURS));
    let results = plan.run(context)?;
    let throughput = |key| results.throughput(key);
    let energy = |key| tpp(&results, key);
    let costs = |unbounded: [Key; 6], bounded: [Key; 6], of: &dyn Fn(Key) -> Vec<f64>| {
        let pairs = unbounded.iter().zip(bounded);
        pairs.map(|(&free, bound)| ratio(&of(free), &of(bound))).collect::<Vec<_>>()
    };
    let rows = |(free, us8, ms4, ms32): ([Key; 6], [Key; 6], Key, Key)| {
        let compared = |key| ratio(&throughput(free[COMPARED]), &throughput(key));
        [
            ("mutexee/mutexee:8us", largest(&costs(free, us8, &throughput))),
            ("tpp mutexee/mutexee:8us", largest(&costs(free, us8, &energy))),
            ("mutexee/mutexee:4ms", compared(ms4)),
            ("mutexee/mutexee:32ms", compared(ms32)),
        ]
    };
    let mut measured = Measured::new();
    for (name, values) in rows(published) {
        measured.row(name, values);
    }
    for (name, values) in rows(ours) {
        measured.also(format!("our {name}"), values);
    }
    Ok(measured)
}

/// Locks over the number of threads.
struct Crowds {
    results: Results,
    threads: &'static [u32],
    keys: BTreeMap<(&'static str, u32), Key>,
}

impl Crowds {
    fn run(
        context: &Context<'_>,
        locks: &[&'static str],
        threads: &'static [u32],
    ) -> Result<Self, Error> {
        let mut plan = Plan::new();
        let mut keys = BTreeMap::new();
        for &lock in locks {
            for &threads in threads {
                // With more threads than CPUs, the run must span several time slices.
                let ms = if threads > super::common::CPUS { 12.0 } else { 5.0 };
                let load = load(lock, threads, 1000.0, 1.0).lasting(1.0, ms);
                let is_sign = threads == SIGN && SIGN_OF.contains(&lock);
                let load = if is_sign { load.often() } else { load };
                keys.insert((lock, threads), plan.add(load));
            }
        }
        Ok(Self { results: plan.run(context)?, threads, keys })
    }

    fn key(&self, lock: &str, threads: u32) -> Key {
        self.keys[&(lock, threads)]
    }

    fn throughput(&self, lock: &str, threads: u32) -> Vec<f64> {
        self.results.throughput(self.key(lock, threads))
    }

    fn tpp(&self, lock: &str, threads: u32) -> Vec<f64> {
        tpp(&self.results, self.key(lock, threads))
    }

    fn plot(&self, part: &str, label: &str, of: &dyn Fn(&str, u32) -> Vec<f64>) -> Plot {
        let series = LOCKS.iter().chain([&OURS]).map(|lock| {
            let point = |&threads: &u32| Some((f64::from(threads), median(&of(lock, threads))?));
            Series::new(*lock, Kind::Line, self.threads.iter().filter_map(point).collect())
        });
        Plot {
            name: format!("mutexee-11-{part}"),
            title: format!("mutexee-11: {part}, one lock, critical sections of 1000 cycles"),
            x: Axis::linear("threads"),
            left: Axis::linear(label),
            right: None,
            series: series.filter(|series| !series.points.is_empty()).collect(),
        }
    }
}

/// The row that a machine is fitted to.
fn fitted(crowds: &Crowds) -> Measured {
    let of = |lock| crowds.throughput(lock, 40);
    let mut measured = Measured::new();
    measured.row("glibc/ticket 40", ratio(&of("glibc"), &of("ticket")));
    measured
}

/// Only that row.
pub(super) fn rows_of_11(context: &Context<'_>) -> Result<Measured, Error> {
    Ok(fitted(&Crowds::run(context, &["glibc", "ticket"], &[40])?))
}

/// From one thread to more than the machine has hardware threads.
pub(super) fn figure_11(context: &Context<'_>) -> Result<Measured, Error> {
    const ALL: [&str; 7] = ["glibc", "tas", "ttas", "ticket", "mcs", MUTEXEE, OURS];
    let crowds = Crowds::run(context, &ALL, &[1, 5, 10, 20, 30, 40, 60])?;
    let throughput = |lock: &str, threads| crowds.throughput(lock, threads);
    let tpp = |lock: &str, threads| crowds.tpp(lock, threads);
    let watts =
        |lock: &str, threads| crowds.results.of(crowds.key(lock, threads), |outcome| outcome.watts);
    let mut measured = fitted(&crowds);
    measured.row("tpp glibc/ticket 40", ratio(&tpp("glibc", 40), &tpp("ticket", 40)));
    measured.row("power glibc/ticket 40", ratio(&watts("glibc", 40), &watts("ticket", 40)));
    let others = ["glibc", "tas", "ttas", "ticket"];
    let best = largest(&others.map(|lock| throughput(lock, 40)));
    measured.row("mcs/best other 40", ratio(&throughput("mcs", 40), &best));
    let best = largest(&others.map(|lock| tpp(lock, 40)));
    measured.row("tpp mcs/best other 40", ratio(&tpp("mcs", 40), &best));
    let worst = smallest(&["ttas", "ticket", "mcs"].map(|lock| throughput(lock, 40)));
    measured.row("tas/worst other spinlock 40", ratio(&throughput("tas", 40), &worst));
    for lock in ["ticket", "mcs"] {
        let crowded = ratio(&throughput(lock, 60), &throughput(lock, 40));
        measured.row(format!("{lock} 60/40"), crowded);
    }
    measured.row("ticket/tas 60", ratio(&throughput("ticket", 60), &throughput("tas", 60)));
    let best = largest(&BASELINES.map(|lock| tpp(lock, 60)));
    let crowded = |lock| ratio(&throughput(lock, 60), &throughput(lock, 20));
    measured.row("mutexee 60/20", crowded(MUTEXEE));
    measured.row("tpp mutexee/best other 60", ratio(&tpp(MUTEXEE, 60), &best));
    measured.also("our mutexee 60/20", crowded(OURS));
    measured.also("our tpp mutexee/best other 60", ratio(&tpp(OURS, 60), &best));
    let scaled = |values: Vec<f64>, scale: f64| values.into_iter().map(|one| one / scale).collect();
    measured.plots = vec![
        crowds.plot("throughput", "million acquisitions a second", &|lock, threads| {
            scaled(throughput(lock, threads), 1e6)
        }),
        crowds.plot("tpp", "TPP, thousand acquisitions a joule", &|lock, threads| {
            scaled(tpp(lock, threads), 1e3)
        }),
    ];
    Ok(measured)
}
