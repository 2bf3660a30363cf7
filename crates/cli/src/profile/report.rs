//! The text report of `profile --sample`.

use super::words::{
    FEW, NOISE, meanwhile, own, own_brief, own_without_advice, percent, place_of, sites,
};
use crate::observed::{often, slow, watched};
use crate::output::{beside, shown};
use lockwright_numbers::format::{count, time};
use lockwright_observer::findings::WaitSite;
use lockwright_observer::sampler::outcome::{LockSeen, SampledProfile};
use lockwright_observer::sampler::sample::End;
use lockwright_observer::whose::Whose;
use lockwright_text::wrapped;

/// Maximum number of locks in the report; JSON has all.
const LOCKS: usize = 10;

pub(crate) fn text(outcome: &SampledProfile) -> String {
    let mut text = paragraph(&head(outcome));
    if outcome.locks.is_empty() && outcome.own_locks.is_empty() {
        text += &paragraph(&nothing(outcome));
    }
    let own_first = outcome
        .own_locks
        .first()
        .filter(|own| outcome.locks.first().is_none_or(|lock| lock.waiting < own.waiting));
    text += &match (own_first, outcome.locks.first()) {
        (Some(own), _) => finding(&own_brief(own, outcome.threads), &own.advice),
        (None, Some(lock)) => finding(&lock_brief(lock), &advice(lock)),
        (None, None) => String::new(),
    };
    for (at, lock) in outcome.own_locks.iter().enumerate() {
        text += "\n";
        text += &match own_first.is_some() && at == 0 {
            true => own_without_advice(lock, outcome.threads),
            false => own(lock, outcome.threads),
        };
    }
    for (number, lock) in outcome.locks.iter().take(LOCKS).enumerate() {
        text += "\n";
        text += &one(number + 1, lock);
    }
    if outcome.locks.len() > LOCKS {
        let more = match outcome.locks.len() - LOCKS {
            1 => "1 more lock".to_owned(),
            more => format!("{more} more locks"),
        };
        text += &format!("\n{more}: --format json\n");
    }
    let often = often::text(&outcome.taken_often, false);
    if !often.is_empty() {
        text += &format!("\n{often}");
    }
    if outcome.other_waiting >= NOISE {
        text += "\n";
        let what = match outcome.under_lockwright {
            _ if outcome.locks_unknown.is_some() => "For locks or for anything else",
            true => "For condition variables, semaphores, thread joins, or locks of lockwright's",
            false => {
                "Not for locks, as far as samples tell (condition variables, semaphores, thread joins)"
            }
        };
        text +=
            &paragraph(&format!("{what}: {:.1} threads waited on average", outcome.other_waiting));
        text += &sites("   waited in ", &outcome.others);
    }
    let notes = notes(outcome);
    if !notes.is_empty() {
        text += "\n";
    }
    for note in notes {
        text += &beside("note: ", &note);
    }
    text
}

fn paragraph(text: &str) -> String {
    wrapped(&shown(text)) + "\n"
}

fn head(outcome: &SampledProfile) -> String {
    let SampledProfile { pid, program, threads, samples, seconds, .. } = outcome;
    let end = match outcome.end {
        Some(End::ProcessEnded) => "; then it ended",
        Some(End::Interrupted) => "; then you interrupted it",
        _ => "",
    };
    let threads = counted(*threads as u64, "thread");
    let samples = counted(*samples, "sample");
    format!("process {pid} ({program}), up to {threads}: {samples} in {}{end}", time(seconds * 1e9))
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn nothing(outcome: &SampledProfile) -> String {
    match outcome.samples {
        0 => "Nothing was seen.".into(),
        _ if outcome.is_go => Whose::Go.unseen(),
        _ if let Some(unlike) = outcome.locks_unknown => {
            format!(
                "No lock is named: the locks of {} can't be told from its other waits.",
                unlike.words()
            )
        }
        _ if outcome.under_lockwright => {
            "In no sample a thread slept for a lock that lockwright doesn't serve.".into()
        }
        samples => {
            // The rule of three: the upper end of the 95 % confidence interval for zero observations.
            let most = (300.0 / samples as f64).min(100.0);
            format!(
                "No thread waited for a lock in any sample: with 95 % confidence, waits took less than {most:.2} % \
                 of the time."
            )
        }
    }
}

/// What the report begins with.
fn finding(what: &str, advice: &str) -> String {
    let fact = format!("Threads wait most for {what}. What to do: {advice}.");
    format!("\n{}", beside("", &shown(&fact)))
}

fn lock_brief(lock: &LockSeen) -> String {
    format!("{}: {:.1} threads waited on average", lock.name, lock.waiting)
}

/// By what its holders did; else by where they were.
fn advice(lock: &LockSeen) -> String {
    let function = |site: &WaitSite| site.function.clone();
    let holder = lock.holders.iter().find_map(|site| Some((function(site)?, place_of(site)?)));
    let (name, place) = holder.unzip();
    let by_cause =
        lock.holding.as_ref().and_then(|holding| slow::of(holding, name.as_deref(), place.clone()));
    match (by_cause, place) {
        (Some((_, text)), _) => text,
        (None, Some(place)) => {
            format!("do less in {place} while it has the lock, or take it less often")
        }
        (None, None) => {
            let waiter = lock.waiters.iter().find_map(place_of);
            format!("take it less often in {}", waiter.as_deref().unwrap_or("those functions"))
        }
    }
}

fn one(number: usize, lock: &LockSeen) -> String {
    let file = lock.module.as_ref().map_or_else(String::new, |module| format!(" in {module}"));
    let article = if lock.kind.starts_with('e') { "an" } else { "a" };
    let mut text = beside(
        &format!("{number}. "),
        &shown(&format!("{}, {article} {}{file}", lock.name, lock.kind)),
    );
    let share = format!(
        "{:.2} threads on average; in {} of the samples (± {:.0}) at least one thread waited",
        lock.waiting,
        percent(lock.share),
        lock.share_error * 100.0
    );
    text += &beside("   waiting   ", &share);
    text += &match lock.has_owner {
        true => sites("   held by   ", &lock.holders),
        false => "   held by   no owner is recorded\n".to_owned(),
    };
    if let Some(holding) = lock.holding.as_ref().filter(|holding| holding.samples >= FEW) {
        let line = format!("{}, from {} samples", meanwhile(holding), count(holding.samples));
        text += &beside("   holders   ", &shown(&line));
    }
    text + &sites("   waited in ", &lock.waiters)
}

fn notes(outcome: &SampledProfile) -> Vec<String> {
    let mut notes = Vec::new();
    if !outcome.locks.is_empty() {
        notes.push(
            "these are estimates: waits shorter than the sampling interval are seen by chance; ± is the error at \
             95 % confidence"
                .into(),
        );
    }
    let is_known = outcome.locks_unknown.is_none();
    if outcome.other_waiting >= NOISE && !outcome.under_lockwright && is_known {
        notes.push(
            "whether a condition variable acts as a lock, only counts tell: lockwright profile -- PROGRAM"
                .into(),
        );
    }
    if outcome.under_lockwright {
        notes.push(format!(
            "it runs under lockwright, whose waiters mostly sleep outside the mutex, where sampling can't see them: \
             lockwright profile -p {}",
            outcome.pid
        ));
    }
    if let Some(why) = &outcome.running_unseen {
        notes.push(format!(
            "can't see where holders run ({why}): sudo sysctl kernel.perf_event_paranoid=2"
        ));
        notes.push(format!("not watched: {}", watched::running_unwatched(why)));
    }
    notes
}
