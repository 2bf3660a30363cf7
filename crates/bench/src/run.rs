//! The run: repetitions of groups. A group is all locks at one point, between two checks of the machine.

use crate::child::{self, OF_MACHINE, Outcome};
use crate::compute;
use crate::hogs::Hogs;
use crate::measured::{Energy, Measured, Sample, Status};
use crate::plan::{self, Plan, Row};
use crate::point::Work;
use crate::progress::progress;
use crate::spec::Spec;
use crate::subject::Subject;
use crate::system::{self, Machine, Others};
use anyhow::{Result, anyhow, bail};
use indicatif::ProgressBar;
use lockwright_energy::Watts;
use lockwright_shards::{Job, Session};
use lockwright_text::cause;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// If the line transfer grows or shrinks within a group by more than this factor, the hypervisor changed its regime.
const REGIME: f64 = 1.6;
/// Repetitions of the memory points, which hardly vary.
const MEMORY_REPS: u32 = 3;

/// One round of a point: all locks, one after the other. Sharding and storage work in these units.
#[derive(Debug, Serialize, Deserialize)]
struct PointRound {
    measured: Measured,
    machine: Machine,
}

/// The measurements, and the first machine that made them.
pub(crate) struct Done {
    pub(crate) measured: Measured,
    /// The machine of the first group, if another process measured it.
    pub(crate) machine: Option<Machine>,
}

impl Plan {
    fn reps_of(&self, row: &Row) -> u32 {
        match row.point.work {
            Work::Memory { .. } => self.reps.min(MEMORY_REPS),
            _ => self.reps,
        }
    }

    /// All subjects of a group: the locks, and those that show the point's maximum rate.
    fn group_of(&self, row: usize) -> Vec<usize> {
        [&self.rows[row].subjects[..], &self.ceilings[row]].concat()
    }

    /// The groups, in the order in which one process measures them: rows and rounds, each with its job. All rounds of a
    /// point belong together, because locks must be compared on one machine.
    fn groups(&self) -> Vec<(usize, u32, Job)> {
        let rounds = (0..self.reps).flat_map(|rep| (0..self.rows.len()).map(move |row| (row, rep)));
        let job = |(row, rep): (usize, u32)| {
            let label = self.rows[row].point.label();
            (row, rep, Job { number: row, key: format!("{row}: {label}, round {}", rep + 1) })
        };
        rounds.filter(|(row, rep)| *rep < self.reps_of(&self.rows[*row])).map(job).collect()
    }

    /// Everything that determines the measurements, including the contents of libraries.
    ///
    /// # Errors
    /// A library can't be read.
    pub(crate) fn inputs(&self) -> Result<Vec<Vec<u8>>> {
        let mut libraries: Vec<&Path> = Vec::new();
        let mut all = Vec::new();
        for Subject { name, choice, preload, .. } in &self.subjects {
            // Identify libraries by number: paths differ from machine to machine.
            let library = preload.as_deref().map(|path| {
                let known = libraries.iter().position(|library| *library == path);
                known.unwrap_or_else(|| {
                    libraries.push(path);
                    libraries.len() - 1
                })
            });
            all.push(format!("{name} {choice:?} {library:?}").into_bytes());
        }
        for path in libraries {
            let content = fs::read(path).map_err(|why| {
                let path = path.display();
                anyhow!("cannot read '{path}': {}\nhint: ls -l '{path}'", cause(&why))
            });
            all.push(content?);
        }
        let rows = self.rows.iter().map(|row| format!("{row:?}"));
        let numbers = format!(
            "{} {} {:?} {} {:?}",
            self.reps, self.time_s, self.limit_s, self.seed, self.ceilings
        );
        let machine = OF_MACHINE.map(|name| format!("{name} {:?}", std::env::var_os(name)));
        all.extend(rows.chain([numbers]).chain(machine).map(String::into_bytes));
        Ok(all)
    }
}

/// Checks that the merged shards have all results that the report needs.
pub(crate) fn complete(plan: &Plan, session: &Session) -> Result<()> {
    let jobs: Vec<Job> = plan.groups().into_iter().map(|(_, _, job)| job).collect();
    Ok(session.complete(&jobs)?)
}

/// Runs this session's part of the plan, with a progress bar on stderr unless `quiet`. `watts` is for energy that
/// nothing measures.
pub(crate) fn run(plan: &Plan, session: &Session, quiet: bool, watts: Watts) -> Result<Done> {
    system::catch_interrupts();
    let groups = plan.groups();
    // For merged groups, the first group's calibration is used.
    let turns = if session.is_merged() { 0.0 } else { compute::calibrate() };
    let mut measured = Measured::new(turns, Energy::here(watts));
    let others = Others::since_now();
    let others_cpus = || others.as_ref().and_then(Others::cpus);
    let (mut machine, mut is_any_made) = (None, false);
    let left = |job: &Job| session.does(job) && !session.knows(&job.key);
    let steps =
        groups.iter().filter(|(_, _, job)| left(job)).map(|(row, _, _)| plan.group_of(*row).len());
    let bar = progress(steps.sum::<usize>() as u64, "runs", quiet);
    let mut retries = vec![plan.reps.max(3); plan.rows.len()];
    // (row, subject) pairs that are not measured again.
    let mut out = vec![vec![false; plan.subjects.len()]; plan.rows.len()];

    for (row, rep, job) in groups {
        let group = match session.known::<PointRound>(&job.key)? {
            Some(PointRound { measured: known, machine: its }) => {
                if measured.samples.is_empty() {
                    (measured.turns_per_ns, measured.energy) =
                        (known.turns_per_ns, known.energy.clone());
                    machine = Some(its);
                }
                known
            }
            None if !session.does(&job) => continue,
            None => {
                let empty = Measured::new(measured.turns_per_ns, measured.energy.clone());
                let Some(mut made) =
                    one_group(plan, empty, (row, rep), &mut retries[row], &mut out[row], &bar)?
                else {
                    measured.interrupted = true;
                    break;
                };
                if session.keeps() {
                    made.others_cpus = others_cpus(); // until now
                    let group = PointRound { measured: made, machine: Machine::here() };
                    session.keep(&job.key, &group)?;
                    made = Measured { others_cpus: None, ..group.measured };
                }
                is_any_made = true;
                made
            }
        };
        for sample in &group.samples {
            out[row][sample.subject] |= sample.status != Status::Ok;
        }
        measured.add(group);
    }
    bar.finish_and_clear();
    session.sync()?;
    if is_any_made {
        measured.saw(others_cpus());
    }
    Ok(Done { measured, machine })
}

/// Measures all locks at one point once, and again if the machine changed in between. `None`: Ctrl-C.
fn one_group(
    plan: &Plan,
    mut measured: Measured,
    (row, rep): (usize, u32),
    retries: &mut u32,
    out: &mut [bool],
    bar: &ProgressBar,
) -> Result<Option<Measured>> {
    let group = plan.group_of(row);
    loop {
        let before = system::line_transfer_ns();
        let first = measured.samples.len();
        for turn in 0..group.len() {
            let subject = group[(turn + rep as usize) % group.len()];
            if system::interrupted() {
                return Ok(None);
            }
            if out[subject] {
                continue;
            }
            let (label, name) = (plan.rows[row].point.label(), &plan.subjects[subject].name);
            bar.set_message(format!("{label}: {name}"));
            let sample = one(plan, &mut measured, row, subject, rep)?;
            out[subject] = sample.status != Status::Ok;
            measured.samples.push(sample);
        }
        let after = system::line_transfer_ns();
        let same = match (before, after) {
            (Some(b), Some(a)) => a / b <= REGIME && b / a <= REGIME,
            _ => true,
        };
        for sample in &mut measured.samples[first..] {
            sample.line_ns = (before, after);
            sample.kept = same;
        }
        if same {
            measured.kept += 1;
            break;
        }
        measured.discarded += 1;
        if *retries == 0 {
            measured.given_up += 1;
            break;
        }
        *retries -= 1;
    }
    bar.inc(group.len() as u64);
    Ok(Some(measured))
}

/// One measurement. An error if the lock let two threads in, or if the worker didn't run this lock.
fn one(
    plan: &Plan,
    measured: &mut Measured,
    row: usize,
    subject: usize,
    rep: u32,
) -> Result<Sample> {
    let who = &plan.subjects[subject];
    let point = plan::point_of(who, &plan.rows[row].point);
    let spec = Spec {
        lock: who.lock.clone(),
        point: point.clone(),
        time_s: plan.time_s,
        turns_per_ns: measured.turns_per_ns,
        seed: plan.seed.wrapping_add(u64::from(rep).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        watts: measured.energy.watts.clone(),
        fastest_first: who.alone.is_some(),
        alone: true,
    };
    // Many spinning threads need time to leave.
    let limit = match point.work {
        _ if let Some(limit) = plan.limit_s => limit,
        Work::Memory { .. } => 60.0,
        // A standby competitor may wait for its whole window, even at the end.
        _ => 20.0 + 4.0 * plan.time_s + 0.25 * f64::from(point.threads_used() + point.hogs),
    };
    let place = format!("'{}' at '{}'", who.name, plan.rows[row].point.label());
    let alone =
        |why: anyhow::Error| anyhow!("{place} was not measured: {why:#}\nhint: fewer --hogs");
    let hogs = Hogs::start(point.hogs, &["bench", "--hog"]).map_err(alone)?;
    let outcome = child::run(who, &spec, Duration::from_secs_f64(limit))?;
    let used = hogs.end().map_err(alone)?;
    let hogs_cpus = (point.hogs > 0).then(|| used.cpus());
    let (status, answer) = match outcome {
        Outcome::Answered(answer, said) => {
            if let Err((why, hint)) = who.ran(&answer) {
                // The library's own message is closer to the cause.
                let why = said.lines().next().map_or(why.clone(), |said| format!("{why}: {said}"));
                bail!("{place} was not measured: {why}\nhint: {hint}");
            }
            if let Some(choice) = who.choice.as_ref().filter(|_| !said.is_empty()) {
                // The library prints nothing unless it couldn't do what it was asked.
                let said = said.lines().next().unwrap_or_default();
                let emulate = point.emulate.as_ref().map(|e| format!("LOCKWRIGHT_EMULATE={e} "));
                bail!(
                    "{place} was not measured: {said}\nhint: see it alone: {}LOCKWRIGHT_LOCK={choice} LD_PRELOAD={} true",
                    emulate.unwrap_or_default(),
                    who.preload.as_deref().unwrap_or("".as_ref()).display()
                );
            }
            if answer.counted != answer.expected {
                bail!(
                    "{place} broke mutual exclusion: its counter is {}, but must be {}\n\
                     hint: figures of a broken lock mean nothing; leave it out, and report it",
                    answer.counted,
                    answer.expected
                );
            }
            (if answer.unsupported { Status::Unsupported } else { Status::Ok }, Some(*answer))
        }
        Outcome::Hung(after, threads) => {
            measured.notes.push(format!(
                "{place} hung: killed after {after:.0} s (its threads, state and CPU time: {threads})"
            ));
            (Status::Hung, None)
        }
        Outcome::Failed(why) => {
            measured.notes.push(format!("{place} failed: {why}"));
            (Status::Failed, None)
        }
    };
    Ok(Sample { row, subject, rep, line_ns: (None, None), kept: true, status, hogs_cpus, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_with_another_content_is_another_plan_and_with_another_path_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = |name: &str, content: &str| {
            let library = dir.path().join(name);
            fs::write(&library, content).unwrap();
            let subjects = vec![Subject::parse("fifo", Ok(&library)).unwrap()];
            let (rows, ceilings) = (Vec::new(), Vec::new());
            let (reps, time_s, limit_s, seed) = (1, 0.1, None, 1);
            let plan = Plan { subjects, rows, ceilings, reps, time_s, limit_s, seed };
            plan.inputs().unwrap()
        };
        let one = inputs("one.so", "one");
        assert_eq!(inputs("other.so", "one"), one);
        assert_ne!(inputs("one.so", "two"), one);
    }
}
