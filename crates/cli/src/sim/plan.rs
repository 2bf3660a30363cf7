//! Reads and checks the command line of a study, and builds the grid of runs.

use super::replay::Recorded;
use super::words::{
    Chosen, MANY_THREADS, locks, machines, placement, thread_counts, time, unknown, workloads,
};
use crate::hints::{Failure, warn};
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::entry::Entry;
use lockwright_shards::Job;
use lockwright_sim::Run;
use lockwright_sim::load::Workload;
use lockwright_sim::profile::{Profile, ProfileError};
use lockwright_sim::sweep::{self, Knob, KnobError};
use lockwright_sim::{LockSpec, Placement};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of runs: nobody would wait for more.
const MANY_RUNS: usize = 1_000_000;
/// By default, only this much of a longer trace is replayed, ns.
const LONG_NS: u64 = 1_000_000_000;

/// The values of the command line.
pub(crate) struct Asked<'a> {
    pub(crate) locks: &'a [String],
    pub(crate) machines: &'a [String],
    pub(crate) workloads: &'a [String],
    /// A trace to replay instead of workloads, with its file's name.
    pub(crate) trace: Option<(&'a Recorded, String)>,
    pub(crate) threads: Option<&'a str>,
    pub(crate) placement: &'a str,
    pub(crate) seeds: Vec<u64>,
    /// `None`: the default for the workload.
    pub(crate) warmup: Option<&'a str>,
    pub(crate) duration: Option<&'a str>,
    pub(crate) sweeps: &'a [String],
    pub(crate) transfers: bool,
}

/// One sweep.
pub(crate) struct Sweep {
    pub(crate) key: String,
    pub(crate) knob: Knob,
    pub(crate) values: Vec<f64>,
    /// A description of the key.
    pub(crate) meaning: String,
}

/// The position of a row in the grid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct At {
    pub(crate) machine: usize,
    pub(crate) workload: usize,
    pub(crate) threads: u32,
    /// One value for each sweep.
    pub(crate) swept: Vec<f64>,
    pub(crate) lock: usize,
}

/// Everything that will run.
pub(crate) struct Plan {
    pub(crate) locks: Vec<LockSpec>,
    pub(crate) machines: Vec<Arc<Profile>>,
    /// The machines, as named on the command line.
    pub(crate) machine_words: Vec<String>,
    pub(crate) workloads: Vec<Chosen>,
    /// The file of the replayed trace, if any.
    pub(crate) trace: Option<String>,
    /// For each of the trace's threads: does it take a lock?
    pub(crate) locking: Vec<bool>,
    /// What the recorded program did.
    pub(crate) recorded: Option<String>,
    /// Does the number of threads vary?
    pub(crate) threads_vary: bool,
    pub(crate) placement: Placement,
    pub(crate) seeds: Vec<u64>,
    pub(crate) warmup_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) sweeps: Vec<Sweep>,
    /// The locks of each point are consecutive.
    pub(crate) rows: Vec<At>,
    /// Are transfers on the way from holder to holder counted?
    pub(crate) transfers: bool,
    /// One run for each seed of each row.
    pub(crate) runs: Vec<Run>,
}

impl Plan {
    pub(crate) fn new(asked: &Asked<'_>) -> Result<Self, Failure> {
        let locks = locks(asked.locks)?;
        let named = machines(asked.machines)?;
        let workloads = match &asked.trace {
            Some((recorded, _)) => vec![(recorded.workload, BTreeMap::new())],
            None => workloads(asked.workloads)?,
        };
        if let Some((what, _)) = workloads.iter().find(|(what, _)| what.holds)
            && let Some(lock) = locks.iter().find(|lock| lock.is_delegated())
        {
            return Err(Failure::new(format!(
                "'{}' runs sections that are handed to it; threads of {} lock here and unlock there",
                lock.name(),
                what.id
            ))
            .hint(format!("lockwright sim --workload rcl --lock {}", lock.name())));
        }
        let (machine_words, machines): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let placement = placement(asked.placement, &machines, &machine_words)?;
        let trace = asked.trace.as_ref();
        let duration_ns = match asked.duration {
            Some(text) => time("--duration", text)?,
            None => trace.map_or(20_000_000, |(recorded, _)| recorded.span_ns.min(LONG_NS)),
        };
        let warmup_ns = match asked.warmup {
            Some("0") => 0,
            Some(text) => time("--warmup", text)?,
            None => trace.map_or(2_000_000, |_| 0),
        };
        let mut plan = Plan {
            locks,
            machines,
            machine_words,
            workloads,
            trace: trace.map(|(_, file)| file.clone()),
            locking: trace.map_or(Vec::new(), |(recorded, _)| recorded.locking.clone()),
            recorded: trace.map(|(recorded, _)| recorded.rate.clone()),
            threads_vary: false,
            placement,
            seeds: asked.seeds.clone(),
            warmup_ns,
            duration_ns,
            sweeps: Vec::new(),
            rows: Vec::new(),
            transfers: asked.transfers,
            runs: Vec::new(),
        };
        for text in asked.sweeps {
            let sweep = plan.sweep(text)?;
            if plan.sweeps.iter().any(|other| other.key == sweep.key) {
                return Err(bad_sweep(text, "it is swept twice"));
            }
            plan.sweeps.push(sweep);
        }
        if asked.threads.is_some() && plan.sweeps.iter().any(|s| s.knob == Knob::Threads) {
            return Err(Failure::new("threads are both given and swept")
                .hint("--threads 1,2,4, or --sweep threads=1..8:8"));
        }
        let swept = plan.sweeps.iter().any(|sweep| sweep.knob == Knob::Threads);
        let own = trace.map(|(recorded, _)| {
            if recorded.threads > MANY_THREADS as usize && asked.threads.is_none() && !swept {
                warn(
                    format!(
                        "the trace has {} threads, a run at most {MANY_THREADS}: the first of them are replayed",
                        recorded.threads
                    ),
                    "--threads N replays the first N",
                );
            }
            recorded.threads.min(MANY_THREADS as usize).to_string()
        });
        plan.grid(asked.threads.or(own.as_deref()).unwrap_or("max"))?;
        Ok(plan)
    }

    /// One job for each run.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        // Runs can have equal identities, if their machines differ only in a figure. The number tells them apart.
        let key = |(number, run): (usize, &Run)| format!("{number}: {}", run.identity());
        Job::all(self.runs.iter().enumerate().map(key))
    }

    /// Everything that determines the results, including the contents of a trace's file.
    pub(crate) fn inputs(&self, trace: Option<Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
        let machines = self.machines.iter().map(|profile| format!("{profile:?}").into_bytes());
        let swept = self.sweeps.iter().map(|s| format!("{:?} {:?}", s.knob, s.values).into_bytes());
        let runs = self.runs.iter().map(|run| run.identity().into_bytes());
        trace.into_iter().chain(machines).chain(swept).chain(runs)
    }

    /// Builds all points, in this order: machines, workloads, threads, sweeps, locks, seeds.
    fn grid(&mut self, threads: &str) -> Result<(), Failure> {
        let of = |values: &Sweep| values.values.len();
        let swept = self.sweeps.iter().map(of).fold(1, usize::saturating_mul);
        let size = [self.machines.len(), self.workloads.len(), self.locks.len(), self.seeds.len()];
        let runs = size.into_iter().fold(swept, usize::saturating_mul);
        if runs > MANY_RUNS {
            return Err(Failure::new(format!("{runs} runs are more than {MANY_RUNS}"))
                .hint("fewer values in --sweep, or --seeds 1"));
        }
        let combinations = combinations(&self.sweeps);
        for (machine, profile) in self.machines.iter().enumerate() {
            let counts = thread_counts(threads, profile.cpus())?;
            self.threads_vary |= counts.len() > 1;
            for (workload, (what, params)) in self.workloads.iter().enumerate() {
                for &threads in &counts {
                    for swept in &combinations {
                        for (lock, spec) in self.locks.iter().enumerate() {
                            let mut run = Run {
                                profile: profile.clone(),
                                lock: spec.clone(),
                                workload: what,
                                params: params.clone(),
                                threads,
                                placement: self.placement.clone(),
                                seed: 0,
                                warmup_ns: self.warmup_ns,
                                duration_ns: self.duration_ns,
                                samples: false,
                                timeline: None,
                                transfers: self.transfers,
                            };
                            for (sweep, value) in self.sweeps.iter().zip(swept) {
                                run = with(&run, sweep, *value)?;
                            }
                            let threads = run.threads;
                            let swept = swept.clone();
                            self.rows.push(At { machine, workload, threads, swept, lock });
                            for &seed in &self.seeds {
                                self.runs.push(Run { seed, ..run.clone() });
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn sweep(&self, text: &str) -> Result<Sweep, Failure> {
        let (key, list) =
            text.split_once('=').ok_or_else(|| bad_sweep(text, "it is not KEY=VALUES"))?;
        let values = sweep::values(list).map_err(|why| bad_sweep(text, why))?;
        // `lockwright sim --calibrate` writes figures like this: memory.latency_ns[0][1].
        let key = key.replace('[', ".").replace(']', "");
        let (knob, meaning) = self.knob(&key)?;
        if let Knob::Param(key) = &knob
            && self.workloads.iter().any(|(_, params)| params.contains_key(key))
        {
            return Err(bad_sweep(text, format!("the workload already sets '{key}'")));
        }
        Ok(Sweep { key, knob, values, meaning })
    }

    /// What a key sets, and its description.
    fn knob(&self, key: &str) -> Result<(Knob, String), Failure> {
        if key == "threads" {
            return Ok((Knob::Threads, "threads".into()));
        }
        let option = key.strip_prefix("lock.");
        if option.is_none() && key.contains('.') {
            return self.figure(key);
        }
        let declares = |workload: &Workload| workload.params.iter().find(|spec| spec.key == key);
        let found: Vec<_> = self.workloads.iter().filter_map(|(what, _)| declares(what)).collect();
        if option.is_none() && !found.is_empty() {
            let lacks = self.workloads.iter().find(|(what, _)| declares(what).is_none());
            return match lacks {
                Some((what, _)) => Err(Failure::new(format!(
                    "cannot sweep '{key}': workload '{}' has no such option",
                    what.id
                ))
                .hint(format!("lockwright sim --workload {} --list", what.id))),
                None => Ok((Knob::Param(key.into()), found[0].meaning.into())),
            };
        }
        let option = option.unwrap_or(key);
        if let Some(spec) = self.locks.iter().find_map(|lock| lock.option(option)) {
            return Ok((Knob::LockOption(option.into()), spec.meaning.into()));
        }
        let having = |entry: &&&Entry| entry.options.iter().any(|spec| spec.key == option);
        let having: Vec<_> = CATALOG.iter().filter(having).map(|entry| entry.id).collect();
        if !having.is_empty() {
            let names: Vec<_> = self.locks.iter().map(LockSpec::name).collect();
            let lacks = if names.len() == 1 { "has no such option" } else { "have no such option" };
            return Err(Failure::new(format!(
                "cannot sweep '{key}': {} {lacks}",
                names.join(", ")
            ))
            .hint(format!("locks that have it: {}; lockwright list", having.join(", "))));
        }
        let params = self.workloads.iter().flat_map(|(what, _)| what.params).map(|spec| spec.key);
        let options = self.locks.iter().filter_map(LockSpec::entry).flat_map(|e| e.options);
        let known = params.chain(options.map(|spec| spec.key)).chain(["threads"]);
        Err(unknown(
            format!("cannot sweep '{key}': no option of workload or lock, and no machine's figure"),
            key,
            known,
            &format!("lockwright sim --workload {} --list", self.workloads[0].0.id),
        ))
    }

    fn figure(&self, path: &str) -> Result<(Knob, String), Failure> {
        for (profile, word) in self.machines.iter().zip(&self.machine_words) {
            // Only checks that the figure exists. The values are checked with the grid.
            let mut probe = Profile::clone(profile);
            if let Err(ProfileError::NoFigure(_)) = probe.set(path, 1.0) {
                let figures = profile.figures();
                let known = figures.iter().map(|(path, _)| path.as_str());
                if figures.iter().any(|(figure, _)| figure == path) {
                    return Err(Failure::new(format!("'{path}' is a matrix, not a figure"))
                        .hint(format!("one of its cells, by row and column: {path}.0.1")));
                }
                let message = format!("machine '{}' has no figure '{path}'", profile.name);
                let all = format!("lockwright sim --machine {word} --list");
                return Err(unknown(message, path, known, &all));
            }
        }
        Ok((Knob::Figure(path.into()), path.into()))
    }
}

fn with(run: &Run, sweep: &Sweep, value: f64) -> Result<Run, Failure> {
    let changed = run.with(&sweep.knob, value).map_err(|why| {
        let why = match why {
            KnobError::Lock(_) => {
                let Knob::LockOption(key) = &sweep.knob else { unreachable!("a lock's complaint") };
                let spec = run.lock.option(key);
                spec.map_or(why.to_string(), |s| format!("not within {} to {}", s.min, s.max))
            }
            KnobError::Machine(ProfileError::Value { why, .. }) => why,
            other => other.to_string(),
        };
        let failure = bad_sweep(&format!("{}={value}", sweep.key), why);
        let now = match &sweep.knob {
            Knob::Figure(path) => run.profile.figures().into_iter().find(|(one, _)| one == path),
            Knob::Param(key) => run
                .workload
                .params
                .iter()
                .find(|spec| spec.key == key)
                .map(|spec| (key.clone(), spec.default)),
            Knob::LockOption(key) => {
                run.lock.option(key).and_then(|spec| Some((key.clone(), spec.default?.into())))
            }
            Knob::Threads => None,
        };
        match now {
            Some((key, value)) => failure.hint(format!("for example --sweep {key}={value}")),
            None => failure,
        }
    })?;
    if changed.threads == 0 || changed.threads > MANY_THREADS {
        let why = format!("not within 1 to {MANY_THREADS}");
        return Err(bad_sweep(&format!("{}={value}", sweep.key), why));
    }
    Ok(changed)
}

/// All combinations of the sweeps' values; the last sweep varies fastest.
fn combinations(sweeps: &[Sweep]) -> Vec<Vec<f64>> {
    sweeps.iter().fold(vec![Vec::new()], |all, sweep| {
        let longer = |some: Vec<f64>| {
            let one = |value: &f64| [&some[..], &[*value]].concat();
            sweep.values.iter().map(one).collect::<Vec<_>>()
        };
        all.into_iter().flat_map(longer).collect()
    })
}

fn bad_sweep(text: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("bad --sweep '{text}': {why}"))
        .hint("for example --sweep threads=1,2,4,8, or --sweep gap=100..100k:7:log")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_grid_is_a_cross_product_in_the_order_of_the_command() {
        let (locks, machines) = (words(&["mcs,fifo:spin=0,bypass=2"]), words(&["m1"]));
        let (workloads, sweeps) =
            (words(&["sections:lines=2"]), words(&["gap=0,1k", "memory.occupancy=0.1,0.2"]));
        let asked = Asked {
            locks: &locks,
            machines: &machines,
            workloads: &workloads,
            trace: None,
            threads: Some("1,max"),
            placement: "pinned",
            seeds: vec![3, 4],
            warmup: Some("0"),
            duration: Some("1ms"),
            sweeps: &sweeps,
            transfers: false,
        };
        let plan = Plan::new(&asked).map_err(|failure| failure.to_string()).unwrap();
        assert_eq!(plan.rows.len(), 2 * 4 * 2);
        assert_eq!(plan.runs.len(), 2 * plan.rows.len());
        assert!(plan.threads_vary);
        let last = plan.runs.last().unwrap();
        assert_eq!((last.threads, last.seed, last.params["gap"]), (8, 4, 1000.0));
        assert_eq!((last.params["lines"], last.profile.memory.occupancy), (2.0, 0.2));
        assert_eq!(last.lock.name(), "fifo:spin=0,bypass=2");
        let at = At { machine: 0, workload: 0, threads: 1, swept: vec![0.0, 0.2], lock: 0 };
        assert_eq!(plan.rows[2], at);
        assert_eq!(
            crate::sim::replay(&plan, &plan.rows[2], &plan.runs[4]),
            "lockwright sim --machine m1 --lock mcs --workload sections:gap=0,lines=2 --threads 1 \
             --sweep memory.occupancy=0.2 --seed 3 --duration 1ms --warmup 0"
        );
        // Names of files and classes are arbitrary. The printed command must survive the shell.
        let mut plan = plan;
        plan.machine_words[0] = "sp 'a/my $m.toml".into();
        plan.trace = Some("a b.bin".into());
        plan.sweeps[1].knob = Knob::Figure("class.P core.nop_ns".into());
        let text = crate::sim::replay(&plan, &plan.rows[2], &plan.runs[4]);
        let words = shlex::split(&text).unwrap();
        assert_eq!(words[3], "sp 'a/my $m.toml", "{text}");
        assert_eq!(words[7], "a b.bin", "{text}");
        assert!(words.contains(&"class.P core.nop_ns=0.2".to_owned()), "{text}");
    }
}
