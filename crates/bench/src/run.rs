//! The run: repetitions of groups, each group all locks at one point, between two looks at the machine.

use crate::child::{self, Outcome};
use crate::compute;
use crate::measured::{Measured, Sample, Status};
use crate::plan::{Plan, Row};
use crate::point::Work;
use crate::progress::progress;
use crate::spec::Spec;
use crate::system;
use anyhow::{Result, bail};
use std::time::Duration;

/// A line transfer that grows or shrinks by more than this within a group: another regime of the hypervisor.
const REGIME: f64 = 1.6;
/// Repetitions of the memory points: they hardly vary.
const MEMORY_REPS: u32 = 3;

/// Runs the plan, with a progress bar on stderr unless `quiet`.
pub(crate) fn run(plan: &Plan, quiet: bool) -> Result<Measured> {
    system::catch_interrupts();
    let mut measured = Measured {
        samples: Vec::new(),
        discarded: 0,
        given_up: 0,
        kept: 0,
        interrupted: false,
        turns_per_ns: compute::calibrate(),
        notes: Vec::new(),
    };
    let reps_of = |row: &Row| match row.point.work {
        Work::Memory { .. } => plan.reps.min(MEMORY_REPS),
        _ => plan.reps,
    };
    let steps: u64 =
        plan.rows.iter().map(|r| u64::from(reps_of(r)) * r.subjects.len() as u64).sum();
    let bar = progress(steps, quiet);
    let mut retries = vec![plan.reps.max(3); plan.rows.len()];
    // (row, subject) pairs that will not be asked again.
    let mut out = vec![vec![false; plan.subjects.len()]; plan.rows.len()];

    'all: for rep in 0..plan.reps {
        for (number, row) in plan.rows.iter().enumerate() {
            if rep >= reps_of(row) {
                continue;
            }
            loop {
                let before = system::line_transfer_ns();
                let first = measured.samples.len();
                for turn in 0..row.subjects.len() {
                    let subject = row.subjects[(turn + rep as usize) % row.subjects.len()];
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
            bar.inc(row.subjects.len() as u64);
        }
    }
    bar.finish_and_clear();
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
    let point = &plan.rows[row].point;
    let spec = Spec {
        lock: plan.subjects[subject].lock.clone(),
        point: point.clone(),
        time_s: plan.time_s,
        turns_per_ns: measured.turns_per_ns,
        seed: plan.seed.wrapping_add(u64::from(rep).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    };
    // Crowds of spinners need their time to leave.
    let limit = match point.work {
        Work::Memory { .. } => 60.0,
        // A standby competitor may wait for as long as its window, at the end too.
        _ => 20.0 + 4.0 * plan.time_s + 0.25 * f64::from(point.threads_used()),
    };
    let who = &plan.subjects[subject];
    let outcome = child::run(who, &spec, Duration::from_secs_f64(limit))?;
    let place = format!("'{}' at '{}'", who.name, point.label());
    let (status, answer) = match outcome {
        Outcome::Answered(answer) => {
            if !who.provided_by(&answer.provider) {
                bail!(
                    "{place} was not measured: pthread_mutex_lock came from '{}'\n\
                     hint: check that the library loads: LD_PRELOAD={} true",
                    answer.provider,
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
