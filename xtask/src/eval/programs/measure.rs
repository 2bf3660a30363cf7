//! The runs of programs: those of this process, and those that were kept.

use super::bench::{self, Bench, Program, ProgramSample};
use super::figures::Results;
use super::{GLIBC, energy, scratch};
use crate::answer::No;
use crate::eval::kept::{Circumstances, Kept, Parts, jobs};
use crate::progress::progress;
use anyhow::{Context, Result};
use lockwright_energy::Source;
use lockwright_shards::{Job, Session};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What decides the measurements.
pub(super) struct ProgramsPlan {
    pub(super) programs: Vec<&'static Program>,
    /// The first is glibc.
    pub(super) locks: Vec<String>,
    pub(super) seconds: u32,
    pub(super) rounds: u32,
    pub(super) quick: bool,
}

/// What was measured, by this process or before.
pub(super) struct ProgramRuns {
    /// None of a program of which no round is whole.
    pub(super) results: Vec<Results>,
    /// Programs that can't be had here, and those that failed: name and why.
    pub(super) skipped: Vec<(&'static str, String)>,
    pub(super) failed: Vec<(&'static str, String)>,
    pub(super) circumstances: Circumstances,
    /// Ctrl-C ended it: some rounds, or programs, are missing.
    pub(super) interrupted: bool,
    /// What measured joules, or why nothing did.
    pub(super) energy: String,
}

/// What a part gave, or why the program failed. A failure is a result: it isn't tried again until it succeeds.
type Outcome<R> = std::result::Result<R, String>;

/// What is known from the first run, which isn't counted.
#[derive(Serialize, Deserialize)]
struct First {
    /// Operations per second.
    rate: f64,
    /// What a batch program wrote.
    output: Option<u64>,
    /// What measures joules here, or why nothing does.
    energy: String,
}

impl ProgramsPlan {
    /// All that decides the results, but for our sources.
    pub(super) fn inputs(&self) -> Vec<String> {
        let Self { programs, locks, seconds, rounds, quick } = self;
        let programs: Vec<&str> = programs.iter().map(|program| program.id).collect();
        vec![format!("{programs:?} {locks:?} {seconds} {rounds} {quick}")]
    }

    /// The jobs of the program at this place: its first run, then a round each.
    fn jobs(&self, program: usize) -> Vec<Job> {
        let rounds = (1..=self.rounds).map(|round| format!("round {round}"));
        let parts = std::iter::once("first run".to_owned()).chain(rounds);
        jobs(program, self.programs[program].id, parts).collect()
    }

    /// Those of them that are done, or are to be done: none follows a failure.
    ///
    /// # Errors
    /// What is kept is no result.
    pub(super) fn needed(&self, program: usize, session: &Session) -> Result<Vec<Job>> {
        let mut needed = Vec::new();
        for job in self.jobs(program) {
            let known = session.known::<Kept<Outcome<IgnoredAny>>>(&job.key)?;
            needed.push(job);
            if known.is_some_and(|kept| kept.result.is_err()) {
                break;
            }
        }
        Ok(needed)
    }

    fn left(&self, program: usize, session: &Session) -> Result<usize> {
        let needed = self.needed(program, session)?;
        Ok(needed.iter().filter(|job| session.does(job) && !session.knows(&job.key)).count())
    }

    /// Is there anything to be measured here of the program at this place?
    pub(super) fn is_left(&self, program: usize, session: &Session) -> Result<bool> {
        Ok(self.left(program, session)? > 0)
    }
}

/// Measures what is `session`'s and isn't known, but for programs that are `skipped`.
pub(super) fn measure(
    plan: &ProgramsPlan,
    library: &Path,
    skipped: Vec<(&'static str, String)>,
    session: &Session,
    interrupted: &AtomicBool,
) -> Result<ProgramRuns> {
    let is_skipped = |program: &Program| skipped.iter().any(|(skipped, _)| *skipped == program.id);
    let mut total = 0;
    for (place, program) in plan.programs.iter().enumerate() {
        if !is_skipped(program) && plan.is_left(place, session)? {
            // The first run is made in each process: it makes the inputs.
            let rounds = plan.left(place, session)?.min(plan.rounds as usize);
            total += 1 + (plan.locks.len() * rounds) as u64;
        }
    }
    if total > 0 {
        eprintln!(
            "measuring (real): {total} runs of about {} s, about {:.0} min in all",
            plan.seconds,
            (total as f64 * (f64::from(plan.seconds) + 0.7) / 60.0).ceil()
        );
    }
    let bar = progress(total, "runs")?;
    let is_over = || interrupted.load(Ordering::Relaxed);
    let scratch = scratch()?;
    let (source, said) = energy();
    let mut parts = Parts::new(session);
    let (mut results, mut failed, mut measured_by) = (Vec::new(), Vec::new(), None);
    for (place, program) in plan.programs.iter().enumerate().filter(|(_, one)| !is_skipped(one)) {
        let shared = scratch.path().join(program.id);
        fs::create_dir_all(&shared)?;
        let mut runner = Runner {
            program,
            library,
            seconds: plan.seconds,
            rate: None,
            shared: &shared,
            energy: source.as_ref(),
            dir: scratch.path().join("run"),
            output: None,
            is_warm: false,
        };
        let mut tell = |lock: &str, round: u32| {
            bar.set_message(format!("{}, {lock}, round {round}", program.id));
            bar.inc(1);
        };
        let outcome = rounds(plan, place, &mut runner, &mut parts, &said, &is_over, &mut tell)?;
        if let Some((outcome, energy)) = outcome {
            measured_by = measured_by.or(energy);
            match outcome {
                Ok(runs) if runs[0].is_empty() => {}
                Ok(runs) => results.push(Results { program, locks: plan.locks.clone(), runs }),
                Err(why) => {
                    bar.suspend(|| eprintln!("failed: {}: {why}", program.id));
                    failed.push((program.id, why));
                }
            }
        }
        fs::remove_dir_all(&shared)?;
        if is_over() {
            break;
        }
    }
    bar.finish_and_clear();
    session.sync()?;
    Ok(ProgramRuns {
        results,
        skipped,
        failed,
        circumstances: parts.circumstances,
        interrupted: is_over(),
        energy: measured_by.unwrap_or(said),
    })
}

/// Runs of each lock, one a round, or why the program failed; and what measured joules, if the first run came to its end.
type Rounds = (Outcome<Vec<Vec<ProgramSample>>>, Option<String>);

/// The rounds of a program. Whole rounds only: what is compared is of the same round. `None`: it is another shard's.
fn rounds(
    plan: &ProgramsPlan,
    place: usize,
    runner: &mut Runner,
    parts: &mut Parts,
    energy: &str,
    is_over: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str, u32),
) -> Result<Option<Rounds>> {
    let jobs = plan.jobs(place);
    let locks = &plan.locks;
    let first: Option<Outcome<First>> = parts.get(&jobs[0], || {
        if is_over() {
            return Ok(None);
        }
        spent(|| {
            tell(GLIBC, 0);
            runner.warm()?;
            let (rate, output) = (runner.rate.unwrap_or_default(), runner.output);
            Ok(First { rate, output, energy: energy.to_owned() })
        })
    })?;
    let first = match first {
        None => return Ok(None),
        Some(Err(why)) => return Ok(Some((Err(why), None))),
        Some(Ok(first)) => first,
    };
    // Rounds of another process are comparable with those of this one: the same work.
    (runner.rate, runner.output) = (Some(first.rate), first.output);
    let mut runs = vec![Vec::new(); locks.len()];
    for (round, job) in (0..plan.rounds as usize).zip(&jobs[1..]) {
        let made: Option<Outcome<Vec<ProgramSample>>> = parts.get(job, || {
            let mut made = vec![None; locks.len()];
            let outcome = spent(|| {
                if !runner.is_warm && !is_over() {
                    tell(GLIBC, 0);
                    runner.warm()?;
                }
                for turn in 0..locks.len() {
                    if is_over() {
                        return Ok(Vec::new());
                    }
                    let index = (turn + round) % locks.len();
                    tell(&locks[index], round as u32 + 1);
                    made[index] = Some(runner.run(&locks[index])?);
                }
                Ok(made.into_iter().flatten().collect())
            })?;
            Ok(outcome.filter(|(made, _)| !matches!(made, Ok(made) if made.is_empty())))
        })?;
        match made {
            None => break,
            Some(Err(why)) => return Ok(Some((Err(why), Some(first.energy)))),
            Some(Ok(made)) => runs.iter_mut().zip(made).for_each(|(runs, own)| runs.push(own)),
        }
    }
    Ok(Some((Ok(runs), Some(first.energy))))
}

/// What `run` gives, or why it failed, and the CPU seconds of the programs that it ran.
fn spent<R>(run: impl FnOnce() -> Result<R>) -> Result<Option<(Outcome<R>, f64)>> {
    let before = bench::cpu_seconds("self", bench::CHILDREN)?;
    let outcome = run().map_err(|error| crate::answer::describe(&error, None));
    Ok(Some((outcome, bench::cpu_seconds("self", bench::CHILDREN)? - before)))
}

/// All that a program's runs have in common.
struct Runner<'a> {
    program: &'static Program,
    library: &'a Path,
    seconds: u32,
    /// Operations per second of the first look.
    rate: Option<f64>,
    shared: &'a Path,
    energy: Option<&'a Source>,
    /// Made anew for each run.
    dir: PathBuf,
    /// What a batch program wrote first.
    output: Option<u64>,
    /// Were its inputs made, and its caches warmed?
    is_warm: bool,
}

impl Runner<'_> {
    /// Makes the inputs and warms the caches; it isn't counted.
    fn warm(&mut self) -> Result<()> {
        let rate = self.run(GLIBC)?.rate;
        self.rate.get_or_insert(rate);
        self.is_warm = true;
        Ok(())
    }

    fn run(&mut self, lock: &str) -> Result<ProgramSample> {
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)?;
        }
        fs::create_dir(&self.dir)?;
        let bench = Bench {
            lock: (lock != GLIBC).then_some(lock),
            library: self.library,
            seconds: self.seconds,
            rate: self.rate,
            dir: &self.dir,
            shared: self.shared,
            energy: self.energy,
        };
        let sample = (self.program.run)(&bench).with_context(|| format!("under {lock}"))?;
        if self.output.is_some() && self.output != sample.output {
            return Err(No(format!("under {lock}: it wrote something else than before")).into());
        }
        self.output = sample.output;
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Tail;
    use super::*;
    use crate::eval::tests::Folder;

    // Runs until Ctrl-C; no test of another thread counts here.
    thread_local!(static LEFT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    static OVER: AtomicBool = AtomicBool::new(false);

    fn fake(bench: &Bench) -> Result<ProgramSample> {
        LEFT.set(LEFT.get() - 1);
        OVER.store(LEFT.get() == 0, Ordering::Relaxed);
        let rate = if bench.lock.is_some() { 200.0 } else { 100.0 };
        Ok(ProgramSample {
            rate,
            cpu_ns: 10.5,
            joules: None,
            tails: Tail::Whole(1e9),
            output: Some(1),
        })
    }

    fn failing(bench: &Bench) -> Result<ProgramSample> {
        let is_first = bench.rate.is_none();
        anyhow::ensure!(is_first, "it crashed");
        fake(bench)
    }

    fn program(id: &'static str, run: fn(&Bench) -> Result<ProgramSample>) -> &'static Program {
        Box::leak(Box::new(Program { id, name: id, packages: &[], workload: "", run }))
    }

    #[test]
    fn what_was_measured_and_what_failed_is_kept() {
        let plan = ProgramsPlan {
            programs: vec![program("good", fake), program("bad", failing)],
            locks: vec![GLIBC.into(), "auto".into()],
            seconds: 1,
            rounds: 3,
            quick: false,
        };
        let folder = Folder::new();
        let measure = |session: &Session, runs: u32| {
            LEFT.set(runs);
            OVER.store(false, Ordering::Relaxed);
            let measured = super::measure(&plan, Path::new(""), Vec::new(), session, &OVER);
            let measured = measured.unwrap();
            let rounds: Vec<_> = measured.results.iter().map(|one| one.runs[1].len()).collect();
            (rounds, measured.failed, measured.interrupted, LEFT.get())
        };
        let inputs = plan.inputs();
        let open = |shard: &str| folder.open("eval programs --output report", shard, &inputs);
        // The first run, a round, and half of another.
        let interrupted = measure(&open("1/2"), 4);
        assert_eq!((interrupted.0, interrupted.2), (vec![1], true));
        // Inputs are made again, and what is left is two rounds.
        assert_eq!(measure(&open("1/2"), 9), (vec![3], Vec::new(), false, 9 - 5));
        assert!(!plan.is_left(0, &open("1/2")).unwrap());
        let failed = vec![("bad", "under glibc: it crashed".to_owned())];
        assert_eq!(measure(&open("2/2"), 9), (Vec::new(), failed.clone(), false, 9 - 1));

        // It failed, and isn't tried again until it succeeds.
        assert_eq!(plan.needed(1, &open("2/2")).unwrap().len(), 2);
        let merged = folder.merge(&inputs);
        let needed = (0..2).map(|place| plan.needed(place, &merged).unwrap());
        merged.complete(&needed.collect::<Vec<_>>().concat()).unwrap();
        assert_eq!(measure(&merged, 9), (vec![3], failed, false, 9));
    }
}
