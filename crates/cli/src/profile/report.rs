//! The text report of `profile --sample`.

use crate::output::{beside, shown};
use lockwright_numbers::format::time;
use lockwright_observer::sampler::outcome::{LockSeen, SampledProfile, WaitSite};
use lockwright_observer::sampler::sample::End;
use lockwright_text::wrapped;

/// Maximum number of locks and sites in the report; JSON has all.
const LOCKS: usize = 10;
const SITES: usize = 4;
/// Number of callers shown for a function.
const CALLERS: usize = 3;
/// Shares below this are noise, and are left out if there are others.
const NOISE: f64 = 0.005;

pub(crate) fn text(outcome: &SampledProfile) -> String {
    let mut text = paragraph(&head(outcome));
    if outcome.locks.is_empty() {
        text += &paragraph(&nothing(outcome));
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
    if outcome.other_waiting >= NOISE {
        text += "\n";
        text += &paragraph(&format!(
            "Not for locks (condition variables, semaphores, thread joins): {:.1} threads waited on average",
            outcome.other_waiting
        ));
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
    text += match lock.has_owner {
        true => "    held meanwhile by\n",
        false => "    held by: no owner is recorded\n",
    };
    text += &sites(&lock.holders);
    text += "    waited in\n";
    text += &sites(&lock.waiters);
    text
}

fn sites(all: &[WaitSite]) -> String {
    let mut text = String::new();
    let is_shown = |(number, site): &(usize, &WaitSite)| {
        *number == 0 || (*number < SITES && site.share >= NOISE)
    };
    for (_, site) in all.iter().enumerate().filter(is_shown) {
        text += &beside(&format!("    {:>7}  ", percent(site.share)), &shown(&words(site)));
    }
    text
}

/// `update (server.c:42), running, called by work < main`
fn words(site: &WaitSite) -> String {
    let Some(function) = &site.function else {
        return site.state.unwrap_or("unknown").to_owned();
    };
    let short = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let place = match (&site.file, site.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", short(file)),
        _ => String::new(),
    };
    let state = site.state.map_or_else(String::new, |state| format!(", {state}"));
    let mut callers = site.callers.iter().take(CALLERS).cloned().collect::<Vec<_>>().join(" < ");
    if !callers.is_empty() {
        callers.insert_str(0, ", called by ");
    }
    format!("{function}{place}{state}{callers}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
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
    }
    notes
}
