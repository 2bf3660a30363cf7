//! What `lockwright explore` reports about schedules and mutants.

pub(crate) mod shared;

use crate::hints::Failure;
use crate::output;
use crate::shards;
use lockwright_numbers::format::{self, time};
use lockwright_shards::{Job, Session};
use lockwright_sim::explore::{
    Exploration, Hit, Mutant, Search, Site, Subject, Tally, why_it_survives,
};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Number of schedules for finding a lock's sites.
const DISCOVERY: u64 = 2_000;

/// Number of schedules for one mutant, by default.
const MUTANT: u64 = 30_000;

/// The sites that the lock's schedules reach.
pub(crate) fn sites(lock: &Subject) -> Vec<Site> {
    Exploration::new(lock.clone(), None).sites(DISCOVERY)
}

/// The command that replays the schedule of a finding.
pub(crate) fn replay(lock: &Subject, hit: &Hit, mutant: Option<Mutant>) -> String {
    let (lock, strategy, seed) = (lock.name(), hit.strategy.name(), hit.seed);
    let mutant = mutant.map_or(String::new(), |mutant| format!(" --mutant {mutant}"));
    format!(
        "lockwright explore {lock} --strategy {strategy} --seed {seed} --schedules 1 --story{mutant}"
    )
}

/// `1 schedule`, `2 schedules`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[allow(clippy::cast_precision_loss, reason = "counts of schedules")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// What was explored, and what was found.
pub(crate) fn report(lock: &Subject, tally: &Tally, hit: Option<&Hit>, story: bool) -> String {
    let mut text = format!(
        "{}: explored {} ({:.0} % of them different, {:.0} operations and {:.0} switches each) in {}, {}: {}",
        lock.name(),
        counted(tally.schedules, "schedule"),
        100.0 * ratio(tally.different, tally.counted),
        ratio(tally.steps, tally.schedules),
        ratio(tally.switches, tally.schedules),
        time(tally.seconds * 1e9),
        format::rate(rate(tally) as f64),
        if hit.is_some() { "1 finding" } else { "0 findings" },
    );
    text = output::wrapped(&text) + "\n";
    if let Some(Hit { finding, .. }) = hit {
        if story {
            for line in &finding.story {
                let _ = writeln!(text, "{}", output::wrapped(&format!("  {line}")));
            }
        }
        let what = format!("{}: {}", finding.violation.check(), finding.violation);
        let _ = writeln!(text, "{}", output::wrapped(&what));
        let _ = writeln!(text, "in a schedule of {}", output::wrapped(&finding.setting));
    }
    text
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
#[allow(clippy::cast_precision_loss, reason = "counts of schedules")]
fn rate(tally: &Tally) -> u64 {
    (tally.schedules as f64 / tally.seconds.max(1e-6)) as u64
}

pub(crate) fn as_json(
    lock: &Subject,
    tally: &Tally,
    hit: Option<&Hit>,
    replay: Option<String>,
) -> Value {
    let finding = hit.map(|Hit { strategy, seed, finding }| {
        json!({
            "check": finding.violation.check(), "message": finding.violation.to_string(),
            "setting": finding.setting, "strategy": strategy.name(), "seed": seed,
            "story": finding.story, "replay": replay,
        })
    });
    json!({
        "lock": lock.name(), "schedules": tally.schedules, "steps": tally.steps,
        "switches": tally.switches, "different": tally.different, "counted": tally.counted,
        "seconds": tally.seconds, "schedules_per_second": rate(tally), "finding": finding,
    })
}

/// A mutant, and whether it was found.
struct Fate {
    site: Site,
    mutant: Mutant,
    tally: Tally,
    hit: Option<Hit>,
    why: Option<String>,
}

impl Fate {
    /// A fault of the hand-over that was not found, without a known reason.
    fn is_missed(&self) -> bool {
        self.hit.is_none() && self.why.is_none() && self.site.hands_over(self.mutant.mutation)
    }

    fn result(&self) -> String {
        match (&self.hit, &self.why) {
            (Some(hit), _) => format!("found: {}", hit.finding.violation.check()),
            (None, Some(why)) => format!("survives: {why}"),
            (None, None) if self.is_missed() => "SURVIVES, and nothing says why".to_owned(),
            (None, None) => "survives".to_owned(),
        }
    }

    fn as_json(&self, lock: &Subject) -> Value {
        json!({
            "mutant": self.mutant.to_string(), "operation": self.site.op.name(),
            "hand_over": self.site.hands_over(self.mutant.mutation), "found": self.hit.is_some(),
            "check": self.hit.as_ref().map(|hit| hit.finding.violation.check()),
            "schedules": self.tally.schedules, "ms": self.tally.seconds * 1e3, "why": self.why,
            "replay": self.hit.as_ref().map(|hit| replay(lock, hit, Some(self.mutant))),
        })
    }
}

/// Number of schedules for each mutant.
pub(crate) fn per_mutant(schedules: Option<u64>) -> u64 {
    schedules.unwrap_or(MUTANT)
}

/// Every mutant of these locks, each with its job.
pub(crate) fn all_mutants(locks: &[Subject]) -> Vec<Vec<(Job, Site, Mutant)>> {
    let mut number = 0;
    let mut of = |lock: &Subject| {
        let mutants = sites(lock)
            .into_iter()
            .flat_map(|site| site.mutants().into_iter().map(move |mutant| (site, mutant)));
        let job = |(site, mutant): (Site, Mutant)| {
            let job = Job { number, key: format!("{}: {mutant}", lock.name()) };
            number += 1;
            (job, site, mutant)
        };
        mutants.map(job).collect()
    };
    locks.iter().map(&mut of).collect()
}

/// The results for a lock's mutants.
pub(crate) enum Fates {
    /// The results for all; `true` if each fault of the hand-over was found, or is known to do no harm.
    All(bool, Value),
    /// Results of one shard only.
    Part,
    /// Ctrl-C arrived.
    Interrupted,
}

/// Explores the lock's mutants that belong to this session.
pub(crate) fn mutants(
    lock: &Subject,
    all: &[(Job, Site, Mutant)],
    search: Search,
    session: &Session,
    quiet: bool,
) -> Result<Fates, Failure> {
    // Each mutant uses one thread, because its time is reported.
    let alone = Search { jobs: 1, time: Duration::MAX, ..search };
    let jobs: Vec<Job> = all.iter().map(|(job, _, _)| job.clone()).collect();
    let done = AtomicUsize::new(0);
    let results = session.results(&jobs, |left, keep| {
        done.store(jobs.len() - left.len(), Relaxed);
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let look = || {
            while let Some(&place) = left.get(next.fetch_add(1, Relaxed)) {
                let exploration = Exploration::new(lock.clone(), Some(all[place].2));
                let result = alone.run(&exploration);
                if (search.stop)() {
                    return; // it didn't run all its schedules
                }
                if let Err(error) = keep(place, result) {
                    next.store(left.len(), Relaxed);
                    *failed.lock().expect("nobody panics with it") = Some(error);
                    return;
                }
                done.fetch_add(1, Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..search.jobs {
                scope.spawn(look);
            }
            look();
        });
        match failed.into_inner().expect("nobody panicked with it") {
            Some(error) => Err(error),
            None if (search.stop)() => Err(lockwright_shards::Error::interrupted()),
            None => Ok(()),
        }
    });
    let results = match results {
        Err(error) if error.is_interrupted() => {
            let (name, done, all) = (lock.name(), done.load(Relaxed), all.len());
            output::say(&match session.resume() {
                Some(command) => format!(
                    "interrupted: {name}: {done} of {all} faults done and kept\nhint: {command}\n"
                ),
                None => {
                    format!("interrupted: {name}: {done} of {all} faults tried, so no verdict\n")
                }
            });
            return Ok(Fates::Interrupted);
        }
        results => results.map_err(shards::failure)?,
    };
    let Some(results) = results else { return Ok(Fates::Part) };
    let fate = |((_, site, mutant), (tally, hit)): (&(Job, Site, Mutant), (Tally, Option<Hit>))| {
        let why = why_it_survives(lock.name(), site, mutant.mutation);
        let why = why.filter(|_| hit.is_none());
        Fate { site: *site, mutant: *mutant, tally, hit, why }
    };
    let fates: Vec<Fate> = all.iter().zip(results).map(fate).collect();
    if !quiet {
        print(lock, &fates)?;
    }
    let list: Vec<Value> = fates.iter().map(|fate| fate.as_json(lock)).collect();
    let missed = fates.iter().filter(|fate| fate.is_missed()).count();
    let json = json!({ "lock": lock.name(), "missed": missed, "mutants": list });
    Ok(Fates::All(missed == 0, json))
}

fn print(lock: &Subject, fates: &[Fate]) -> Result<(), Failure> {
    let row = |mutation: &str, schedules: &str, time: &str, result: &str| {
        output::beside(&format!("  {mutation:<17}{schedules:>9}{time:>9}  "), result)
    };
    let mut text = format!("{}\n", lock.name());
    text += &row("mutation", "schedules", "time", "result");
    let mut last = String::new();
    for fate in fates {
        let Mutant { site, mutation } = fate.mutant;
        let heading = format!("{site} {}\n", fate.site.op.name());
        if heading != last {
            text += &heading;
            last = heading;
        }
        let (schedules, took) = (fate.tally.schedules.to_string(), time(fate.tally.seconds * 1e9));
        text += &row(&mutation.to_string(), &schedules, &took, &fate.result());
    }
    output::print(&text)?;
    output::print(&summary(fates))
}

fn summary(fates: &[Fate]) -> String {
    let hands_over = |fate: &&Fate| fate.site.hands_over(fate.mutant.mutation);
    let found = |fate: &&Fate| fate.hit.is_some();
    let line = |what: &str, why: &str, fates: Vec<&Fate>| {
        let all = fates.len();
        let slowest = fates.iter().copied().filter(found).map(|fate| fate.tally.seconds);
        let slowest = slowest.fold(0.0, f64::max);
        let found = fates.iter().copied().filter(found).count();
        let missed = fates.iter().filter(|fate| fate.is_missed()).count();
        let rest = match all - found - missed {
            0 => String::new(),
            1 => format!("; 1 survives and does not count: {why}"),
            harmless => format!("; {harmless} survive and do not count: {why}"),
        };
        let line = format!(
            "{what}: {found} of {all} found, the slowest after {}; {missed} missed{rest}",
            time(slowest * 1e9)
        );
        output::wrapped(&line) + "\n"
    };
    let (of_hand_over, others) = fates.iter().partition(hands_over);
    line("faults of the hand-over", "the table says why", of_hand_over)
        + &line("other faults", "a lock may keep its promises despite such a fault", others)
        + "\n"
}
