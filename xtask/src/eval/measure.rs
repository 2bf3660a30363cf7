//! The runs of the paper's databases: those of this process, and those that were kept.

use super::drivers::{Database, NO_LIMIT_NS, Run, Runs, Subject};
use super::figures::{self, Point, Results};
use super::kept::{Circumstances, Parts, jobs};
use super::machine::Cores;
use crate::demo::stats::spread;
use crate::progress::progress;
use anyhow::Result;
use lockwright_shards::{Job, Session};
use std::sync::atomic::{AtomicBool, Ordering};

/// The lock whose epochs have SLOs.
const ASL: &str = "asl";

/// First runs of FIFO, whose median decides on the SLOs.
const LOOKS: usize = 3;

/// SLOs as multiples of FIFO's P99 on little cores; and no limit.
const FACTORS: [f64; 6] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0];
const FACTORS_QUICK: [f64; 2] = [0.0, 4.0];

/// What decides the measurements.
pub(super) struct DatabasePlan {
    pub(super) databases: Vec<Database>,
    pub(super) locks: Vec<String>,
    pub(super) machine: Cores,
    pub(super) threads: usize,
    pub(super) seconds: f64,
    pub(super) warmup: f64,
    pub(super) rounds: u32,
    pub(super) quick: bool,
}

/// What was measured, by this process or before.
pub(super) struct Measured {
    /// None of a database of which no round is whole.
    pub(super) results: Vec<Results>,
    pub(super) circumstances: Circumstances,
    /// Ctrl-C ended it: some rounds, or databases, are missing.
    pub(super) interrupted: bool,
}

impl DatabasePlan {
    /// All that decides the results, but for our sources.
    pub(super) fn inputs(&self) -> Vec<String> {
        let Self { databases, locks, machine, threads, seconds, warmup, rounds, quick } = self;
        let databases: Vec<&str> = databases.iter().map(|database| database.id).collect();
        let spec = &machine.spec;
        vec![
            format!("{databases:?} {locks:?} {spec:?}"),
            format!("{threads} {seconds} {warmup} {rounds} {quick}"),
        ]
    }

    /// The jobs of the database at this place: its first runs, then a round each.
    pub(super) fn jobs(&self, database: usize) -> Vec<Job> {
        let rounds = (1..=self.rounds).map(|round| format!("round {round}"));
        let parts = std::iter::once("first runs".to_owned()).chain(rounds);
        jobs(database, self.databases[database].id, parts).collect()
    }

    /// Is there anything to be measured here of the database at this place?
    pub(super) fn is_left(&self, database: usize, session: &Session) -> bool {
        self.jobs(database).iter().any(|job| session.does(job) && !session.knows(&job.key))
    }

    fn looks(&self) -> usize {
        if self.quick { 1 } else { LOOKS }
    }

    /// Runs that are to be made here.
    fn runs_left(&self, session: &Session) -> usize {
        let swept = self.locks.iter().filter(|lock| is_asl(lock)).count();
        let of_asl = if self.quick { FACTORS_QUICK.len() } else { FACTORS.len() };
        let a_round = self.locks.len() + swept * of_asl;
        let jobs = (0..self.databases.len()).flat_map(|database| {
            self.jobs(database)
                .into_iter()
                .zip(std::iter::once(self.looks()).chain(std::iter::repeat(a_round)))
        });
        jobs.filter(|(job, _)| session.does(job) && !session.knows(&job.key))
            .map(|(_, runs)| runs)
            .sum()
    }
}

fn is_asl(lock: &str) -> bool {
    lock.split(':').next() == Some(ASL)
}

/// What is run for one database: the plain locks, and asl at its SLOs once FIFO's own latency is known.
fn subjects(locks: &[String], base_ns: u64, quick: bool) -> Vec<Subject> {
    let factors: &[f64] = if quick { &FACTORS_QUICK } else { &FACTORS };
    let mut subjects: Vec<Subject> = Vec::new();
    for lock in locks {
        if !is_asl(lock) {
            subjects.push(Subject { lock: lock.clone(), slo_ns: None });
            continue;
        }
        let slos = factors.iter().map(|factor| match factor {
            0.0 => 0,
            _ => figures::round(base_ns as f64 * factor),
        });
        for slo_ns in slos.chain([NO_LIMIT_NS]) {
            subjects.push(Subject { lock: lock.clone(), slo_ns: Some(slo_ns) });
        }
    }
    let mut unique = Vec::new();
    for subject in subjects {
        if !unique.contains(&subject) {
            unique.push(subject);
        }
    }
    unique
}

/// Measures what is `session`'s and isn't known. `drivers` are the databases', in their order; one of which nothing is left
/// needs none.
pub(super) fn measure<D: Runs>(
    plan: &DatabasePlan,
    drivers: &[Option<D>],
    session: &Session,
    interrupted: &AtomicBool,
) -> Result<Measured> {
    let total = plan.runs_left(session) as u64;
    if total > 0 {
        let length = plan.seconds + plan.warmup;
        eprintln!(
            "measuring ({}): {total} runs of {length:.2} s, about {:.0} s in all",
            plan.machine.tag(),
            total as f64 * (length + 0.4)
        );
    }
    let bar = progress(total, "runs")?;
    let mut parts = Parts::new(session);
    let is_over = || interrupted.load(Ordering::Relaxed);
    let mut results = Vec::new();
    for (place, database) in plan.databases.iter().enumerate() {
        let driver = drivers[place].as_ref();
        let run = |subject: &Subject, round: u32| {
            let driver = driver.expect("what isn't known has a driver");
            bar.set_message(format!(
                "{}, {}, {}",
                database.name,
                subject.name(),
                if round == 0 { "first look".into() } else { format!("round {round}") }
            ));
            let run = match round {
                0 => driver.first_look(subject),
                _ => driver.run(subject, u64::from(round)),
            };
            let run = run.inspect_err(|_| bar.abandon())?;
            bar.inc(1);
            Ok::<_, anyhow::Error>(run)
        };
        let jobs = plan.jobs(place);
        let fifo = Subject { lock: "fifo".into(), slo_ns: None };
        let base_ns = parts.get(&jobs[0], || {
            let (mut looks, mut cpu) = (Vec::new(), 0.0);
            for _ in 0..plan.looks() {
                if is_over() {
                    return Ok(None);
                }
                let look = run(&fifo, 0)?;
                looks.push(look.classes[plan.machine.little()].latency.quantile(0.99) as f64);
                cpu += look.cpu_seconds;
            }
            Ok(Some((spread(&looks).median as u64, cpu)))
        })?;
        if let Some(base_ns) = base_ns {
            let subjects = subjects(&plan.locks, base_ns, plan.quick);
            let mut points: Vec<_> =
                subjects.into_iter().map(|subject| Point { subject, runs: Vec::new() }).collect();
            for (round, job) in (0..plan.rounds).zip(&jobs[1..]) {
                let made = parts.get(job, || one_round(&points, round, &is_over, run))?;
                // Whole rounds only: what is compared is of the same round.
                let Some(made) = made else { break };
                points.iter_mut().zip(made).for_each(|(point, run)| point.runs.push(run));
            }
            if !points[0].runs.is_empty() {
                results.push(Results {
                    database: *database,
                    points,
                    machine: plan.machine.clone(),
                });
            }
        }
        if is_over() {
            break;
        }
    }
    bar.finish_and_clear();
    session.sync()?;
    Ok(Measured { results, circumstances: parts.circumstances, interrupted: is_over() })
}

/// Every lock once, in an order that rotates from round to round: a run for each point, in the points' order, and the CPU
/// seconds of all.
fn one_round(
    points: &[Point],
    round: u32,
    is_over: &dyn Fn() -> bool,
    run: impl Fn(&Subject, u32) -> Result<Run>,
) -> Result<Option<(Vec<Run>, f64)>> {
    let mut made: Vec<Option<Run>> = vec![None; points.len()];
    for turn in 0..points.len() {
        if is_over() {
            return Ok(None);
        }
        let index = (turn + round as usize) % points.len();
        made[index] = Some(run(&points[index].subject, round + 1)?);
    }
    let made: Vec<Run> = made.into_iter().flatten().collect();
    let cpu = made.iter().map(|run| run.cpu_seconds).sum();
    Ok(Some((made, cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asl_is_run_at_each_slo_and_others_once() {
        let locks = ["fifo".to_owned(), "asl".into(), "asl-max".into(), "fifo".into()];
        let of = |quick| {
            let subjects = subjects(&locks, 1234, quick);
            subjects.iter().map(|s| (s.lock.clone(), s.slo_ns)).collect::<Vec<_>>()
        };
        let slos: Vec<_> = of(false).iter().filter_map(|(_, slo)| *slo).collect();
        assert_eq!(slos, [0, 620, 1200, 2500, 4900, 9900, NO_LIMIT_NS]);
        assert_eq!(of(false).len(), 2 + slos.len());
        assert_eq!(of(true).len(), 2 + 3);
    }
}
