//! Compares the virtual machine with the real one: the same locks under the same loads, with one and two threads.
//!
//! ```text
//!  grid ─┬─► real: passes, each between two probes ─► which count ─┐
//!        └─► simulator, by the profile ────────────────────────────┴─► compare: rows ─► summary, bars
//! ```
//!
//! The profile was made from instructions, chains of lines and futex calls (`calibrate`), without any lock or critical
//! section. So all of this is held out.

mod compare;
mod grid;
mod real;

pub use compare::{Bar, Met, RealAndSimulated, Summary};

use crate::layout::Layout;
use crate::line::Pair;
use crate::stats::Sample;
use crate::together::on;
use crate::{Error, alone};
use grid::{LOADS, Load};
use lockwright_bench::{Machine, catch_interrupts, interrupted};
use lockwright_native::place;
use lockwright_numbers::quantile;
use lockwright_sim::batch::run_all;
use lockwright_sim::profile::{Cluster, Profile};
use lockwright_sim::{LockSpec, Placement, Run, workload};
use real::{Job, Pass, Speed};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One pass on the real machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Raw {
    /// The lock.
    pub lock: &'static str,
    /// The load, in words.
    pub load: String,
    /// How many threads.
    pub threads: u32,
    /// Time per operation over all threads, ns, as measured. (A row's figure for one thread is scaled to the profile's
    /// probe.)
    pub ns: f64,
    /// The probe before: a NOP with one thread, a line transfer with two; ns.
    pub before_ns: f64,
    /// The probe after.
    pub after_ns: f64,
    /// Does it count, and why not?
    pub verdict: PassVerdict,
}

/// Whether a pass counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassVerdict {
    /// It does.
    Counts,
    /// The kernel took a CPU away from one of its threads.
    Preempted,
    /// The probes before and after differ.
    Changed,
    /// They agree with each other, but not with the profile.
    NotTheProfiles,
}

impl PassVerdict {
    /// The verdict in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Preempted => "preempted",
            Self::Changed => "changed",
            Self::NotTheProfiles => "not-the-profiles",
        }
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct Validation {
    /// What could be compared.
    pub rows: Vec<RealAndSimulated>,
    /// The summary of the rows.
    pub summary: Summary,
    /// There is only one CPU, so nothing is compared with two threads.
    pub one_cpu: bool,
    /// Combinations without three passes that count.
    pub missing: usize,
    /// Every pass.
    pub raw: Vec<Raw>,
}

impl Validation {
    /// The requirements, and the results.
    pub fn bars(&self) -> [Bar; 4] {
        self.summary.bars(self.one_cpu)
    }

    /// Passes of that verdict.
    pub fn count(&self, verdict: PassVerdict) -> usize {
        self.raw.iter().filter(|raw| raw.verdict == verdict).count()
    }
}

/// How much to measure.
struct Effort {
    locks: Vec<&'static str>,
    loads: &'static [Load],
    /// How many passes should count.
    passes: usize,
    /// The time for all passes of one thread, and of two.
    time: [Duration; 2],
    seeds: u64,
}

/// A combination, and its passes that counted.
struct Combination {
    lock: &'static str,
    load: &'static Load,
    threads: u32,
    kept: Vec<f64>,
}

/// A figure needs at least this many passes.
const LEAST: usize = 3;
/// One thread's probe may differ from the profile's by this factor: a limit below the required accuracy would be
/// too strict.
const NEAR_ALONE: f64 = 1.10;
/// The same for two threads.
const NEAR_TWO: f64 = 1.25;

/// Measures and simulates; `step` is told how much is done, and of how much.
pub fn validate(
    profile: &Profile,
    quick: bool,
    step: &(dyn Fn(u64, u64) + Sync),
) -> Result<Validation, Error> {
    catch_interrupts();
    place::learn(); // as the preload does, for the locks that ask where they run
    let seconds = Duration::from_secs;
    let effort = match quick {
        true => Effort {
            locks: grid::SOME.to_vec(),
            loads: &LOADS[..3],
            passes: 3,
            time: [seconds(1), seconds(1)],
            seeds: 1,
        },
        false => Effort {
            locks: grid::all(),
            loads: &LOADS,
            passes: 15,
            time: [seconds(120), seconds(270)],
            seeds: 3,
        },
    };
    let layout = Layout::here()?;
    same_machine(profile, &layout, &Machine::here().cpu)?;
    let cpu = layout.core_of(0);
    let pair = layout.main_pair();
    let speed = on(cpu, || Speed::at(profile.class[0].ghz));
    let mut cells = Vec::new();
    for threads in 1..=if pair.is_some() { 2 } else { 1 } {
        for load in effort.loads {
            let of = |&lock| Combination { lock, load, threads, kept: Vec::new() };
            cells.extend(effort.locks.iter().map(of));
        }
    }
    let total = (cells.len() * (effort.passes + 1)) as u64;
    let done = AtomicU64::new(0);
    let advance = || step(done.fetch_add(1, Relaxed) + 1, total);

    let mut raw = Vec::new();
    let mut alone = Watch {
        is: 0.0,
        should: profile.class[0].nop_ns,
        near: NEAR_ALONE,
        scales: true,
        look: Box::new(|| on(cpu, alone::nop)),
    };
    let (of_one, of_two) = cells.split_at_mut(effort.locks.len() * effort.loads.len());
    let job = |load, time| Job { load, cpus: &[], time, speed, seed: 0 };
    alone.measure(of_one, &effort, effort.time[0], &mut raw, &advance, &|cell, seed| {
        Job { cpus: &[cpu], seed, ..job(cell.load, Duration::from_micros(500)) }.run(cell.lock)
    })?;
    if let Some((to, from)) = pair {
        let pair = Pair::new(to, from);
        let mut two = Watch {
            is: 0.0,
            should: profile.memory.latency_ns[0][0],
            near: NEAR_TWO,
            scales: false,
            look: Box::new(move || pair.transfer()),
        };
        two.measure(of_two, &effort, effort.time[1], &mut raw, &advance, &|cell, seed| {
            Job { cpus: &[to, from], seed, ..job(cell.load, Duration::from_millis(2)) }
                .run(cell.lock)
        })?;
    }
    cells.retain(|cell| cell.kept.len() >= LEAST);
    let missing = (total as usize / (effort.passes + 1)) - cells.len();
    let rows = simulate(profile, &mut cells, effort.seeds, &advance)?;
    let one_cpu = pair.is_none();
    Ok(Validation { summary: Summary::of(&rows), one_cpu, rows, missing, raw })
}

/// Refuses the profile of a machine with another processor or another number of CPUs.
fn same_machine(profile: &Profile, layout: &Layout, cpu: &str) -> Result<(), Error> {
    let threads = |class: &str| profile.class.iter().find(|c| c.name == class).map_or(1, |c| c.smt);
    let of = |cluster: &Cluster| (cluster.cores * threads(&cluster.class)) as usize;
    let its_cpus = profile.cluster.iter().map(of).sum();
    let cpus = layout.clusters.iter().flat_map(|cluster| &cluster.cores).map(Vec::len).sum();
    // `calibrate` begins the title with the processor's name.
    if profile.title.starts_with(&format!("{cpu}, ")) && its_cpus == cpus {
        return Ok(());
    }
    let (its, cpu) = (profile.title.clone(), cpu.to_owned());
    Err(Error::OtherMachine { its, its_cpus, cpu, cpus })
}

/// Is the machine as the profile says?
struct Watch<'a> {
    /// The last probe.
    is: f64,
    should: f64,
    near: f64,
    /// Everything in a pass slows down as the probe does, so its figure is scaled to the profile's probe.
    scales: bool,
    look: Box<dyn Fn() -> f64 + 'a>,
}

impl Watch<'_> {
    /// Runs passes of all cells in rotation, until each has enough that count or the time is up.
    fn measure(
        &mut self,
        cells: &mut [Combination],
        effort: &Effort,
        time: Duration,
        raw: &mut Vec<Raw>,
        advance: &impl Fn(),
        run: &dyn Fn(&Combination, u64) -> Option<Pass>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let mut order: Vec<_> = (0..cells.len()).collect();
        let mut random = fastrand::Rng::with_seed(1);
        self.is = (self.look)();
        let mut seed = 0;
        loop {
            order.retain(|&number| cells[number].kept.len() < effort.passes);
            if order.is_empty() {
                return Ok(());
            }
            random.shuffle(&mut order);
            for &number in &order {
                if interrupted() {
                    return Err(Error::Interrupted);
                }
                if start.elapsed() > time {
                    return Ok(());
                }
                let cell = &mut cells[number];
                seed += 1;
                let before = self.is;
                let pass = run(cell, seed).expect("a lock of the catalogue");
                self.is = (self.look)();
                let sample = Sample { before, value: pass.ns, after: self.is };
                let verdict = self.judge(&sample, pass.preempted);
                if verdict == PassVerdict::Counts {
                    let is = f64::midpoint(before, self.is);
                    cell.kept.push(pass.ns * if self.scales { self.should / is } else { 1.0 });
                    advance();
                }
                raw.push(Raw {
                    lock: cell.lock,
                    load: cell.load.words(),
                    threads: cell.threads,
                    ns: pass.ns,
                    before_ns: before,
                    after_ns: self.is,
                    verdict,
                });
            }
        }
    }

    fn judge(&self, sample: &Sample, preempted: bool) -> PassVerdict {
        let near =
            |probe: f64| probe / self.should <= self.near && self.should / probe <= self.near;
        match () {
            () if preempted => PassVerdict::Preempted,
            () if !sample.is_steady() => PassVerdict::Changed,
            () if !near(sample.before) || !near(sample.after) => PassVerdict::NotTheProfiles,
            () => PassVerdict::Counts,
        }
    }
}

/// The same on the virtual machine.
fn simulate(
    profile: &Profile,
    cells: &mut [Combination],
    seeds: u64,
    advance: &(impl Fn() + Sync),
) -> Result<Vec<RealAndSimulated>, Error> {
    let profile = Arc::new(profile.clone());
    let workload = workload::find("bench").expect("the simulator has it");
    let mut runs = Vec::new();
    for cell in &*cells {
        for seed in 1..=seeds {
            runs.push(Run {
                profile: Arc::clone(&profile),
                lock: LockSpec::parse(cell.lock).expect("a lock of the catalogue"),
                workload,
                params: cell.load.params(),
                threads: cell.threads,
                placement: Placement::Pinned,
                seed,
                warmup_ns: 100_000,
                duration_ns: if cell.threads == 1 { 500_000 } else { 2_000_000 },
                samples: false,
                timeline: None,
                transfers: false,
            });
        }
    }
    let outcomes = run_all(&runs, |number| {
        if (number as u64).is_multiple_of(seeds) {
            advance();
        }
    });
    if let Some(violation) = outcomes.iter().find_map(|outcome| outcome.violation.as_ref()) {
        return Err(Error::Violation(violation.to_string()));
    }
    let row = |(cell, outcomes): (&mut Combination, &[lockwright_sim::Outcome])| {
        cell.kept.sort_by(f64::total_cmp);
        let mut simulated: Vec<_> = outcomes.iter().map(|o| 1e9 / o.throughput).collect();
        simulated.sort_by(f64::total_cmp);
        let real = |share| quantile(&cell.kept, share).expect("enough passes");
        RealAndSimulated {
            lock: cell.lock.into(),
            load: cell.load.words(),
            threads: cell.threads,
            real_ns: real(0.5),
            spread_ns: (real(0.1), real(0.9)),
            simulated_ns: quantile(&simulated, 0.5).expect("one seed at least"),
            predicted: cell.load.is_predicted(cell.threads),
        }
    };
    Ok(cells.iter_mut().zip(outcomes.chunks(seeds as usize)).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::profile::builtin;

    #[test]
    fn a_profile_of_another_machine_is_refused() {
        let layout = Layout::here().unwrap();
        let mut profile = builtin("m1").unwrap();
        assert!(matches!(same_machine(&profile, &layout, "Chip"), Err(Error::OtherMachine { .. })));
        // The same processor, with as many CPUs as we have, and with one more.
        profile.title = "Chip, some CPUs, Linux 5.11".into();
        profile.class.truncate(1);
        profile.cluster.truncate(1);
        let cpus: usize = layout.clusters.iter().flat_map(|c| &c.cores).map(Vec::len).sum();
        profile.cluster[0].cores = cpus as u32;
        assert!(same_machine(&profile, &layout, "Chip").is_ok());
        assert!(same_machine(&profile, &layout, "Chi").is_err());
        profile.cluster[0].cores += 1;
        assert!(same_machine(&profile, &layout, "Chip").is_err());
    }
}
