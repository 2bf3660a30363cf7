//! The text report of `profile --sample`.

use super::words::{FEW, NOISE, meanwhile, own, percent, sites};
use crate::observed::{often, report};
use crate::output::{beside, shown};
use lockwright_numbers::format::time;
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
    for lock in &outcome.own_locks {
        text += "\n";
        text += &own(lock, outcome.threads);
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
        text += &sites(&outcome.others);
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

fn one(number: usize, lock: &LockSeen) -> String {
    let file = lock.module.as_ref().map_or_else(String::new, |module| format!(" in {module}"));
    let article = if lock.kind.starts_with('e') { "an" } else { "a" };
    let mut text = beside(
        &format!("{number:2}  "),
        &shown(&format!("{}, {article} {}{file}", lock.name, lock.kind)),
    );
    let share = format!(
        "a thread waited in {} of the samples (+-{:.1}), {:.1} threads on average",
        percent(lock.share),
        lock.share_error * 100.0,
        lock.waiting
    );
    text += &beside("    ", &share);
    if let Some(holding) = lock.holding.as_ref().filter(|holding| holding.samples >= FEW) {
        text += &beside("    ", &format!("its holder {}", meanwhile(holding)));
    }
    text += match lock.has_owner {
        true => "    held meanwhile by\n",
        false => "    held by: no owner is recorded\n",
    };
    text += &sites(&lock.holders);
    text += "    waited in\n";
    text += &sites(&lock.waiters);
    text
}

fn notes(outcome: &SampledProfile) -> Vec<String> {
    let mut notes = Vec::new();
    if !outcome.locks.is_empty() {
        notes.push(
            "these are estimates: waits shorter than the sampling interval are seen by chance; +- is the error at \
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
        notes.push(format!("not watched: {}", report::running_unwatched(why)));
    }
    notes
}
