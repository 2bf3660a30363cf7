//! The run: repetitions of groups, each group all locks at one point, between two looks at the machine.

use crate::child::{self, Outcome};
use crate::compute;
use crate::measured::{Energy, Measured, Sample, Status};
use crate::plan::{self, Plan, Row};
use crate::point::Work;
use crate::progress::progress;
use crate::spec::Spec;
use crate::system::{self, Others};
use anyhow::{Result, bail};
use lockwright_energy::Watts;
use std::time::Duration;

/// A line transfer that grows or shrinks by more than this within a group: another regime of the hypervisor.
const REGIME: f64 = 1.6;
/// Repetitions of the memory points: they hardly vary.
const MEMORY_REPS: u32 = 3;

/// Runs the plan, with a progress bar on stderr unless `quiet`. `watts`: for joules that nothing measures.
pub(crate) fn run(plan: &Plan, quiet: bool, watts: Watts) -> Result<Measured> {
    system::catch_interrupts();
    let mut measured = Measured::new(compute::calibrate(), Energy::here(watts));
    let others = Others::since_now();
    let reps_of = |row: &Row| match row.point.work {
        Work::Memory { .. } => plan.reps.min(MEMORY_REPS),
        _ => plan.reps,
    };
    // All that is measured in a group: the locks, and what the point can reach at most.
    let group_of =
        |number: usize| [&plan.rows[number].subjects[..], &plan.ceilings[number]].concat();
    let steps: u64 = plan
        .rows
        .iter()
        .enumerate()
        .map(|(number, row)| u64::from(reps_of(row)) * group_of(number).len() as u64)
        .sum();
    let bar = progress(steps, quiet);
    let mut retries = vec![plan.reps.max(3); plan.rows.len()];
    // (row, subject) pairs that will not be asked again.
    let mut out = vec![vec![false; plan.subjects.len()]; plan.rows.len()];

    'all: for rep in 0..plan.reps {
        for (number, row) in plan.rows.iter().enumerate() {
            if rep >= reps_of(row) {
                continue;
            }
            let group = group_of(number);
            loop {
                let before = system::line_transfer_ns();
                let first = measured.samples.len();
                for turn in 0..group.len() {
                    let subject = group[(turn + rep as usize) % group.len()];
                    if system::interrupted() {
                        measured.samples.truncate(first);
                        measured.interrupted = true;
                        break 'all;
                    }
                    if out[number][subject] {
                        continue;
                    }
                    bar.set_message(format!(
                        "{}: {}",
                        row.point.label(),
                        plan.subjects[subject].name
                    ));
                    let sample = one(plan, &mut measured, number, subject, rep)?;
                    out[number][subject] = sample.status != Status::Ok;
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
                if retries[number] == 0 {
                    measured.given_up += 1;
                    break;
                }
                retries[number] -= 1;
            }
            bar.inc(group.len() as u64);
        }
    }
    bar.finish_and_clear();
    measured.others_cpus = others.and_then(|others| others.cpus());
    Ok(measured)
}

/// One measurement. An error if the lock let two threads in, or the worker did not run on it at all.
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
    };
    // Crowds of spinners need their time to leave.
    let limit = match point.work {
        _ if let Some(limit) = plan.limit_s => limit,
        Work::Memory { .. } => 60.0,
        // A standby competitor may wait for as long as its window, at the end too.
        _ => 20.0 + 4.0 * plan.time_s + 0.25 * f64::from(point.threads_used()),
    };
    let outcome = child::run(who, &spec, Duration::from_secs_f64(limit))?;
    let place = format!("'{}' at '{}'", who.name, plan.rows[row].point.label());
    let (status, answer) = match outcome {
        Outcome::Answered(answer, said) => {
            if let Err((why, hint)) = who.ran(&answer) {
                // What the library itself says of it is nearer to the cause.
                let why = said.lines().next().map_or(why.clone(), |said| format!("{why}: {said}"));
                bail!("{place} was not measured: {why}\nhint: {hint}");
            }
            if let Some(choice) = who.choice.as_ref().filter(|_| !said.is_empty()) {
                // It does not say a word unless it leaves undone what it was asked to do.
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
                    "{place} failed to exclude: its counter reads {}, it must read {}\n\
                     hint: no figure of a lock that fails means anything; leave it out, and report it",
                    answer.counted,
                    answer.expected
                );
            }
            (if answer.unsupported { Status::Unsupported } else { Status::Ok }, Some(*answer))
        }
        Outcome::Hung(threads) => {
            measured.notes.push(format!(
                "{place} hung: killed after {limit:.0} s (its threads, state and CPU time: {threads})"
            ));
            (Status::Hung, None)
        }
        Outcome::Failed(why) => {
            measured.notes.push(format!("{place} failed: {why}"));
            (Status::Failed, None)
        }
    };
    Ok(Sample { row, subject, rep, line_ns: (None, None), kept: true, status, answer })
}
