//! What a report begins with: how much waiting costs, for which lock, and what to do. The table and the caveats come after it.

use super::{conditions, often, starved};
use crate::output::{beside, shown};
use crate::profile::words;
use lockwright_observer::counts::observation::{Observed, Ranked, Rule};
use lockwright_observer::findings::OwnLock;

/// Fewer threads than this, on average, are noise.
const NOISE: f64 = 0.01;

/// Samples and counts of one lock differ by less than this factor.
const SAME: f64 = 2.0;

/// A smaller share of the threads' time is little.
const SMALL: f64 = 0.05;

/// The first thing to know about a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Finding {
    /// What was found, as a sentence.
    pub(crate) fact: String,
    /// What to do; empty: nothing.
    pub(crate) advice: String,
    /// A command for that; empty: none.
    pub(crate) command: String,
    /// What it is about.
    pub(crate) of: About,
    /// How many threads wait for that on average, or take their CPU's time for it.
    pub(crate) waiting: f64,
}

/// What a report begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum About {
    /// No lock is worth it.
    #[default]
    Nothing,
    /// The lock at this place in the list.
    Lock(usize),
    /// The first lock that isn't pthread's.
    OwnLock,
    /// The first condition variable.
    Condition,
    /// Locks that are taken too often.
    Often,
}

/// Its locks that aren't pthread's, without those that hardly anybody waits for.
pub(super) fn own_locks(outcome: &Observed) -> impl Iterator<Item = &OwnLock> {
    outcome.own_locks.iter().filter(|lock| lock.waiting >= NOISE)
}

/// Is it worth a word? If not, users should leave it.
pub(crate) fn matters(lock: &Ranked) -> bool {
    lock.advice.as_ref().is_none_or(|advice| advice.rule != Rule::Little)
}

/// Does a thread get it too late or not at all, however little all threads wait for it?
pub(crate) fn is_stuck(lock: &Ranked) -> bool {
    let rule = lock.advice.as_ref().map(|advice| advice.rule);
    matches!(rule, Some(Rule::WritersStarve | Rule::TriedInVain | Rule::Unended | Rule::Inverted))
}

/// Do threads wait longer for a lock that isn't counted, or for a condition variable that acts as a lock, than for any that is?
pub(crate) fn is_elsewhere(outcome: &Observed) -> bool {
    let counted = outcome.locks.first().map_or(0.0, |lock| lock.waiting);
    let sampled = own_locks(outcome).next().map_or(0.0, |lock| lock.waiting);
    sampled.max(conditions::waiting(outcome)) > counted
}

/// What comes first.
pub(crate) fn of(outcome: &Observed) -> Finding {
    let own = own_locks(outcome).next();
    let condition = conditions::told(outcome).next();
    let first = outcome.locks.iter().position(matters);
    let is_often = outcome.taken_often.as_ref().filter(|often| !often.sites.is_empty());
    let sampled = own.map_or(0.0, |lock| lock.waiting);
    if first.is_none() || is_elsewhere(outcome) {
        match (own, condition) {
            // A runtime's lock may be made of a mutex and a condition variable: its name says more.
            (Some(lock), _) if SAME * sampled >= conditions::waiting(outcome) => {
                let fact =
                    format!("Threads wait most for {}.", words::own_brief(lock, outcome.threads));
                let advice = lock.advice.clone();
                let (of, waiting) = (About::OwnLock, sampled);
                return Finding { fact, advice, of, waiting, ..Finding::default() };
            }
            (_, Some((one, wakes))) => {
                let fact = format!("Threads wait most for {}.", conditions::finding(one, wakes));
                let advice = conditions::advice(one, wakes);
                let (of, waiting) = (About::Condition, conditions::waiting(outcome));
                return Finding { fact, advice, of, waiting, ..Finding::default() };
            }
            _ => {}
        }
    }
    // What they wait is a part of their time, too.
    let waited =
        |at: usize| outcome.locks[at].advice.as_ref().map_or(1.0, |made| made.waiting_share);
    match (first, is_often) {
        (Some(at), often) if often.is_none_or(|often| often.told() <= waited(at)) => {
            about_lock(outcome, at)
        }
        (_, Some(often)) => Finding {
            fact: format!("{}.", often::head(often)),
            advice: often::advice(often),
            of: About::Often,
            waiting: often.told(),
            ..Finding::default()
        },
        (_, None) => Finding {
            fact: format!("No lock matters here: leave them. {}", amount(outcome)),
            ..Finding::default()
        },
    }
}

/// How long threads waited for all locks together.
fn amount(outcome: &Observed) -> String {
    let waiting: f64 = advised(outcome).map(|(_, waiting)| waiting).sum();
    let together = words::duration(outcome.locks.iter().map(|lock| lock.wait_ns).sum());
    match advised(outcome).next() {
        None => format!("Threads waited {together} for locks, all together."),
        Some(_) => format!(
            "Threads spent {}{} of their time waiting for locks ({together} together).",
            if (0.001..SMALL).contains(&waiting) { "only " } else { "" },
            words::part(waiting)
        ),
    }
}

fn advised(outcome: &Observed) -> impl Iterator<Item = (&Ranked, f64)> {
    outcome.locks.iter().filter_map(|lock| Some((lock, lock.advice.as_ref()?.waiting_share)))
}

fn about_lock(outcome: &Observed, at: usize) -> Finding {
    let lock = &outcome.locks[at];
    let all: u64 = outcome.locks.iter().map(|lock| lock.wait_ns).sum();
    let whose = match outcome.locks.len() {
        1 => format!("The lock is {}.", lock.name),
        _ => {
            let share = lock.wait_ns as f64 / all.max(1) as f64;
            format!("{} of that is for {}.", sentence_part(share), lock.name)
        }
    };
    let advice = lock.advice.as_ref();
    let fact = match lock.advice.as_ref().map(|advice| advice.rule) {
        Some(Rule::TriedInVain) => {
            format!("Threads try to take {} again and again, in vain.", lock.name)
        }
        Some(Rule::WritersStarve) => {
            let found = starved::brief(lock).unwrap_or_default();
            format!("A writer starves at {found}.")
        }
        _ => format!("{} {whose}", amount(outcome)),
    };
    Finding {
        fact,
        advice: advice.map(|advice| advice.text.clone()).unwrap_or_default(),
        command: advice.map(|advice| advice.command.clone()).unwrap_or_default(),
        of: About::Lock(at),
        waiting: outcome.locks.iter().map(|lock| lock.waiting).sum(),
    }
}

/// A share at the beginning of a sentence.
fn sentence_part(share: f64) -> String {
    match share {
        share if share >= 0.985 => "Nearly all".to_owned(),
        share if share < 0.001 => "Hardly any".to_owned(),
        _ => words::part(share),
    }
}

/// As text.
pub(crate) fn text(finding: &Finding) -> String {
    let does = match finding.advice.as_str() {
        "" => String::new(),
        advice => format!(" What to do: {advice}."),
    };
    let mut text = beside("", &shown(&format!("{}{does}", finding.fact)));
    if !finding.command.is_empty() {
        // On one line, so that users can copy it.
        text += &format!("  {}\n", shown(&finding.command));
    }
    text
}
