//! Papers' locks as policies: some of their figures' runs under the lock that is built in, and under the policy that we ship.

use crate::experiment::Experiment;
use crate::policies::{by_numa_in_rust, by_shipped, by_slo_order_in_rust};
use crate::{Context, Error, Key, Load, Measured, Plan, Progress, Results, Runs};
use crate::{cal, libasl, median, ratio};
use lockwright_sim::{LockSpec, Outcome, Placement, Run, profile, targets};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The locks: by what name the figures run them, our rule, and the policy.
const PAIRS: [(&str, &str, &str); 3] =
    [("asl-mcs", "asl", "slo-order"), (SHFL_PB10, PB10, "proportional"), ("cal", "cal", "cal")];
/// SHFL-PB10, whose waiters spin; so must ours.
const SHFL_PB10: &str = "shfllock-pb10";
const PB10: &str = "pb10";
const SPIN: &str = "spin=10ms";

/// Figures of databases: their operations take locks as the benchmarks do.
const DATABASES: [&str; 3] = ["libasl-9", "libasl-10", "cal-9"];

/// Points of a lock, at most, and spread evenly: the figures' curves are dense.
const MOST_POINTS: usize = 4;

/// A point lasts at least this long: with little contention, the P99s of 10 ms differ by a quarter from seed to seed.
const SHORTEST_MS: f64 = 100.0;

/// Notes runs, and makes none.
#[derive(Default)]
struct Noted(Mutex<Vec<Run>>);

impl Runs for Noted {
    fn outcomes(
        &self,
        runs: &[Run],
        _: bool,
        _: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Outcome>, Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(runs);
        Err(Error::Elsewhere)
    }
}

/// The runs that these figures need, as far as they don't depend on each other's outcomes.
fn runs_of(figures: &[Experiment]) -> Result<Vec<(&'static str, Run)>, Error> {
    let mut all = Vec::new();
    for figure in figures.iter().filter(|figure| !DATABASES.contains(&figure.id)) {
        let machine = targets::figure(figure.id).map(|target| target.machine);
        let Some(machine) = machine.and_then(|name| profile::builtin(&name)) else { continue };
        let noted = Noted::default();
        let context = Context { runs: &noted, ..Context::new(Arc::new(machine), 1) };
        match (figure.measure)(&context) {
            Ok(_) | Err(Error::Elsewhere) => {}
            Err(why) => return Err(why),
        }
        let runs = noted.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.extend(runs.into_iter().map(|run| (figure.id, run)));
    }
    Ok(all)
}

/// One load, under the lock that is built in, and under the policy.
struct Pairing {
    name: String,
    keys: [Key; 2],
}

/// The points at which the figures run a lock of [`PAIRS`], up to [`MOST_POINTS`].
fn plan_pair(
    plan: &mut Plan,
    runs: &[(&'static str, Run)],
    (run_as, built_in, policy): (&str, &str, &'static str),
) -> Vec<Pairing> {
    let mut seen = BTreeSet::new();
    let is_it = |run: &Run| run.lock.entry().is_some_and(|entry| entry.id == run_as);
    let all: Vec<_> =
        runs.iter().filter(|(_, run)| is_it(run) && seen.insert(run.identity())).collect();
    let mut points = Vec::new();
    for (figure, run) in all.iter().step_by(all.len().div_ceil(MOST_POINTS).max(1)) {
        let with = |name: &str| match built_in {
            PB10 => format!("{name}:{SPIN}"),
            _ => name.to_owned(),
        };
        let load = Load::again(run).lasting_at_least(SHORTEST_MS);
        let params: Vec<String> =
            run.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let name = format!("{built_in}, {figure}, {} threads, {}", run.threads, params.join(" "));
        let by_policy = by_shipped(&with("programmed"), policy);
        let keys = [load.clone().lock(&with(built_in)), load.under(by_policy)];
        points.push(Pairing { name, keys: keys.map(|load| plan.add(load)) });
    }
    points
}

/// A measurement of a point, one value for each seed.
type Measure<'a> = &'a dyn Fn(Key) -> Vec<f64>;

/// The ratio that is furthest from 1.
fn furthest(ratios: &[f64]) -> Option<f64> {
    let off = |ratio: &f64| ratio.ln().abs();
    ratios.iter().copied().max_by(|one, other| off(one).total_cmp(&off(other)))
}

fn judge(measured: &mut Measured, results: &Results, lock: &str, points: &[Pairing], seeds: usize) {
    let what: [(&str, Measure<'_>); 2] =
        [("throughput", &|key| results.throughput(key)), ("P99", &|key| results.p99(key))];
    for (what, of) in what {
        let mut all = Vec::new();
        for Pairing { name, keys: [built_in, policy] } in points {
            let ratios = ratio(&of(*policy), &of(*built_in));
            all.extend(median(&ratios).filter(|ratio| ratio.is_finite()));
            measured.also(format!("{what} {name}"), ratios);
        }
        // Each point's median over the seeds, then over the points: one value, the same for each seed.
        for (name, value) in [("median", median(&all)), ("worst", furthest(&all))] {
            let value = value.unwrap_or(f64::NAN);
            measured.row(format!("{lock}, {what}, {name}"), vec![value; seeds]);
        }
    }
}

/// Policies against the locks built in, and policies in eBPF against the same in Rust.
pub(crate) fn policies(context: &Context<'_>) -> Result<Measured, Error> {
    let mut runs = runs_of(libasl::EXPERIMENTS)?;
    runs.extend(runs_of(cal::EXPERIMENTS)?);
    let mut plan = Plan::new();
    let pairs: Vec<_> =
        PAIRS.iter().map(|&pair| (pair.1, plan_pair(&mut plan, &runs, pair))).collect();
    let on_m1 = Load::new("bench", "fifo").machine("m1").with("lines", 4.0).with("gap", 600.0);
    // Four cores on each of two sockets.
    let cpus = Placement::Cpus(vec![0, 1, 2, 3, 10, 11, 12, 13]);
    let on_two = Load::new("bench", "fifo").machine("xeon-8x10").placement(cpus).with("cs", 500.0);
    let mut both = |load: &Load, rust: LockSpec, ebpf: LockSpec| {
        [rust, ebpf].map(|lock| plan.add(load.clone().under(lock).lasting(2.0, 20.0)))
    };
    let in_both = [
        (
            "slo-order",
            both(&on_m1, by_slo_order_in_rust("programmed"), by_shipped("programmed", "slo-order")),
        ),
        ("numa", both(&on_two, by_numa_in_rust("programmed"), by_shipped("programmed", "numa"))),
    ];
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for (lock, points) in &pairs {
        judge(&mut measured, &results, lock, points, context.seeds as usize);
    }
    for (policy, [rust, ebpf]) in in_both {
        let ratio = ratio(&results.throughput(ebpf), &results.throughput(rust));
        measured.row(format!("{policy}, eBPF to Rust"), ratio);
    }
    Ok(measured)
}
