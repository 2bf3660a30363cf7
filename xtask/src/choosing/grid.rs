//! The runs on virtual machines: every built-in machine, few threads to more threads than CPUs, short and long sections
//! and gaps, and epochs with an SLO on machines with unequal cores.

use super::data::{Figures, Machine, Part, Point};
use anyhow::{Result, bail};
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::front::programmed;
use lockwright_sim::batch::run_all;
use lockwright_sim::profile::{BUILTIN, Profile, builtin};
use lockwright_sim::{LockSpec, Outcome, Placement, Run, workload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The reference, which isn't in the catalogue.
pub(super) const GLIBC: &str = "glibc";

/// The seed of all runs.
const SEED: u64 = 1;

/// Lengths of sections and gaps, ns on the fastest class.
pub(super) const LENGTHS: [(u32, u32); 6] =
    [(100, 0), (100, 400), (100, 2000), (100, 10_000), (2000, 0), (2000, 10_000)];

/// Number of shared cache lines that a section modifies.
const LINES: f64 = 2.0;

/// NOPs between two epochs, and the epochs' SLOs.
const EPOCHS: [(u32, u32); 4] = [(600, 50), (600, 500), (6000, 50), (6000, 500)];

/// Measured time, and warm-up before it, ms. The measured time exceeds the budget for which a lock may stay on one
/// core.
const RUN_MS: u64 = 20;
const WARMUP_MS: u64 = 2;

/// The same for epochs, whose windows settle during the warm-up.
pub(super) const EPOCHS_RUN_MS: u64 = 100;
const EPOCHS_WARMUP_MS: u64 = 20;

/// With more threads, a run takes too long for what it shows.
const MANY: u32 = 128;

/// Without a policy to ask, a programmed lock is its base.
fn asks_nobody(lock: &&str) -> bool {
    *lock != programmed::ENTRY.id
}

/// From a few threads to more than CPUs.
fn threads(cpus: u32) -> Vec<u32> {
    let (few, half) = (4.min(cpus / 2), cpus / 2);
    let mut all = vec![few, cpus, 2 * cpus];
    all.extend((16..=32).contains(&half).then_some(half));
    all.extend((cpus <= 2).then_some(4 * cpus));
    all.retain(|threads| (2..=MANY).contains(threads));
    all.sort_unstable();
    all.dedup();
    all
}

/// A point and its runs, one per lock.
struct Planned {
    machine: usize,
    point: Point,
    runs: Vec<Run>,
}

/// Measures all points. `done` is called after each run, with the total number.
pub(super) fn measure(
    quick: bool,
    command: String,
    version: String,
    done: impl Fn(usize) + Sync,
) -> Result<Part> {
    let locks: Vec<&str> = [GLIBC]
        .into_iter()
        .chain(CATALOG.iter().map(|entry| entry.id))
        .filter(asks_nobody)
        .collect();
    let specs = locks.iter().map(|lock| LockSpec::parse(lock)).collect::<Result<Vec<_>, _>>()?;
    let names = BUILTIN.iter().map(|(name, _)| *name).take(if quick { 1 } else { BUILTIN.len() });
    let profiles: Vec<Arc<Profile>> = names.filter_map(builtin).map(Arc::new).collect();
    let plan = plan(&profiles, &specs, if quick { 20 } else { 1 })?;
    let runs: Vec<Run> = plan.iter().flat_map(|point| point.runs.iter().cloned()).collect();
    let total = runs.len();
    let outcomes = run_all(&runs, |_| done(total));

    let mut machines: Vec<Machine> = profiles.iter().map(|profile| machine(profile)).collect();
    let mut outcomes = outcomes.into_iter();
    for Planned { machine, mut point, runs } in plan {
        let of: Vec<Outcome> = outcomes.by_ref().take(runs.len()).collect();
        let glibc = of[0].throughput;
        if glibc <= 0.0 {
            bail!("glibc's lock did nothing on {} with {point:?}", machines[machine].name);
        }
        for (run, outcome) in runs.iter().zip(&of) {
            if let Some(violation) = &outcome.violation {
                let (lock, name) = (run.lock.name(), &machines[machine].name);
                bail!("{lock} breaks its promise on {name} with {point:?}: {violation}");
            }
            point.of.insert(run.lock.name().to_owned(), figures(outcome, run, glibc));
        }
        machines[machine].points.push(point);
    }
    Ok(Part {
        origin: "simulated".into(),
        version,
        command,
        seed: SEED,
        run_ms: RUN_MS as f64,
        rounds: 1,
        quick,
        locks: locks.into_iter().map(str::to_owned).collect(),
        machines,
    })
}

fn plan(profiles: &[Arc<Profile>], locks: &[LockSpec], shorter: u64) -> Result<Vec<Planned>> {
    let mut plan = Vec::new();
    for (machine, profile) in profiles.iter().enumerate() {
        let mut add = |point: Point, workload: &str, params: &[(&str, f64)], ms: [u64; 2]| {
            let Some(workload) = workload::find(workload) else {
                bail!("no workload '{workload}'\nhint: lockwright sim --list");
            };
            let run = |lock: &LockSpec| Run {
                profile: profile.clone(),
                lock: lock.clone(),
                workload,
                params: params.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
                threads: point.threads,
                placement: Placement::Pinned,
                seed: SEED,
                warmup_ns: ms[0] * 1_000_000 / shorter,
                duration_ns: ms[1] * 1_000_000 / shorter,
                samples: false,
                timeline: None,
                transfers: false,
            };
            // Textbook locks that don't use SLOs are left out here.
            let knows = |lock: &&LockSpec| {
                let of = |entry: &Entry| entry.kind == Kind::Front || entry.stands_by;
                point.slo_us.is_none() || lock.entry().is_none_or(of)
            };
            let runs = locks.iter().filter(knows).map(run).collect();
            plan.push(Planned { machine, runs, point });
            Ok(())
        };
        for threads in threads(profile.cpus()) {
            for (section, gap) in LENGTHS {
                let of = BTreeMap::new();
                let point = Point { threads, section_ns: Some(section), gap, slo_us: None, of };
                let params = [("lines", LINES), ("cs", section.into()), ("gap", gap.into())];
                add(point, "bench", &params, [WARMUP_MS, RUN_MS])?;
            }
        }
        for (gap, slo_us) in EPOCHS {
            if profile.class.len() > 1 {
                let (threads, of) = (profile.cpus(), BTreeMap::new());
                let point = Point { threads, section_ns: None, gap, slo_us: Some(slo_us), of };
                let params = [("gap", gap.into()), ("slo_us", slo_us.into())];
                add(point, "bench1", &params, [EPOCHS_WARMUP_MS, EPOCHS_RUN_MS])?;
            }
        }
    }
    Ok(plan)
}

fn machine(profile: &Profile) -> Machine {
    let cpus = |class: &str| {
        let clusters = profile.cluster.iter().filter(|cluster| cluster.class == class);
        let smt = profile.class_named(class).map_or(1, |class| class.smt);
        clusters.map(|cluster| cluster.cores * smt).sum()
    };
    let classes = profile.class.iter().map(|class| (class.name.clone(), cpus(&class.name)));
    Machine {
        name: profile.name.clone(),
        title: profile.title.clone(),
        classes: classes.collect(),
        points: Vec::new(),
    }
}

fn figures(outcome: &Outcome, run: &Run, glibc: f64) -> Figures {
    let operations = outcome.operations.max(1) as f64;
    let whole = |value: f64| value.round() as u64;
    let slowest = outcome.classes.iter().rfind(|class| class.ran());
    // A thread without any acquisition has waited for the whole run, and longer.
    let starved = outcome.threads.iter().filter(|thread| thread.acquisitions == 0).count();
    let longest = outcome.classes.iter().map(|class| class.wait.max_ns).max().unwrap_or(0);
    Figures {
        rate: whole(outcome.throughput),
        p99_ns: outcome.latency.p99_ns,
        slow_p99_ns: slowest.map_or(0, |class| class.latency.p99_ns),
        longest_ns: if starved > 0 { longest.max(run.duration_ns) } else { longest },
        cpu_ns: whole(outcome.cpu_seconds / operations * 1e9),
        energy_nj: whole(outcome.joules / operations * 1e9),
        of_glibc: whole(outcome.throughput / glibc * 1e6),
        starved: starved as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_few_to_more_than_the_cpus() {
        assert_eq!(threads(2), [2, 4, 8]);
        assert_eq!(threads(8), [4, 8, 16]);
        assert_eq!(threads(40), [4, 20, 40, 80]);
        assert_eq!(threads(128), [4, 128]);
    }

    #[test]
    fn a_starved_thread_has_waited_for_the_whole_run() {
        let profile = Arc::new(builtin("m1").unwrap());
        let specs = [GLIBC, "asl-mcs"].map(|lock| LockSpec::parse(lock).unwrap());
        let plan = plan(&[profile], &specs, 10).unwrap();
        let all = plan.iter().find(|planned| planned.point.threads == 8).unwrap();
        let of = |run: &Run| figures(&run.outcome(), run, 1e6);
        let (glibc, standing) = (of(&all.runs[0]), of(&all.runs[1]));
        // Little cores let big ones go first for 100 ms.
        assert!(standing.longest_ns >= all.runs[1].duration_ns, "{standing:?}");
        assert_eq!(standing.slow_p99_ns, 0);
        assert!(glibc.slow_p99_ns > 0 && glibc.cpu_ns > 0 && glibc.energy_nj > 0, "{glibc:?}");
    }
}
