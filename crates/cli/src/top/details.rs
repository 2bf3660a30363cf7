//! What is told of the selected lock, below the table: first who holds it and what to do, then the rest, as far as there is room.

use super::names::{fit, short};
use super::rule;
use super::view::Shown;
use crate::observed::brief;
use crate::observed::finding::{self, About};
use crate::observed::report::told;
use crate::output::{beside_within, shown, wrapped};
use crate::profile::words;
use lockwright_numbers::format::time;
use lockwright_observer::counts::observation::{Ranked, Site};
use lockwright_observer::counts::snapshot::LockKind;
use ratatui::text::Line;
use std::time::Instant;

/// Lines of which the places take no part.
const OTHERS: usize = 9;
/// A lock with less than this share of the waiting elsewhere is little.
const LITTLE: f64 = 0.25;
/// Number of stacks shown of each kind.
const STACKS: usize = 2;
/// Number of threads shown.
const THREADS: usize = 8;
/// Sentences are no longer than that: long lines are hard to read.
const SENTENCE: usize = 100;

/// The lines for a lock.
pub(super) fn places(
    process: &Shown,
    lock: &Ranked,
    (columns, lines): (usize, usize),
) -> Vec<Line<'static>> {
    let number = process.selected + 1;
    // That a thread waits when the interval ends is nothing special.
    let is_long = lock.unended_ns >= process.outcome.elapsed_ns;
    let unended_ns = if is_long { lock.unended_ns } else { 0 };
    let sentence = columns.min(SENTENCE);
    let bare = Ranked {
        name: lock.name.clone(),
        kind: lock.kind,
        locks: lock.locks,
        unended_ns,
        ..Ranked::default()
    };
    let head = told(number, &bare);
    // A lock that hardly anybody waits for in comparison would only mislead.
    let elsewhere = elsewhere(process);
    if !elsewhere.is_empty() && lock.waiting < LITTLE * finding::of(&process.outcome).waiting {
        return elsewhere.lines().map(|line| Line::from(fit(line, columns))).collect();
    }
    let mut text = elsewhere + &head;
    let most = (lines.saturating_sub(OTHERS) / 3).clamp(2, 8);
    for (verb, sites) in [("held by", &lock.holders), ("waited in", &lock.waiters)] {
        let sites = sites.iter().filter(|site| site.ns > 0);
        for (at, site) in
            sites.take(most).enumerate().filter(|(at, site)| *at == 0 || is_some(site))
        {
            let verb = if at == 0 { verb } else { "" };
            text += &format!("   {verb:9} {}\n", place(site, columns.saturating_sub(13)));
        }
    }
    if let Some(advice) = &lock.advice {
        text += &beside_within("   advice    ", &shown(&advice.text), sentence);
        if !advice.command.is_empty() {
            text += &format!("             {}\n", shown(&advice.command));
        }
    }
    if lock.kind == LockKind::Mutex {
        let mut rule = shown(&rule::shown(&process.rules, lock.place)).into_owned();
        if let Some(delegated) = process.delegated.of(lock.address) {
            rule += &format!("; {delegated}");
        }
        text += &beside_within("   rule      ", &rule, sentence);
    }
    // The report's other lines.
    let (holders, waiters) = (Vec::new(), Vec::new());
    let rest = told(number, &Ranked { holders, waiters, unended_ns, ..lock.clone() });
    text += rest.strip_prefix(&head).unwrap_or(&rest);
    for (at, thread) in lock.threads.iter().take(THREADS).enumerate() {
        let verb = if at == 0 { "threads" } else { "" };
        let who = thread.tid.map_or("others".to_owned(), |tid| tid.to_string());
        let (waited, blamed) = (time(thread.wait_ns as f64), time(thread.blamed_ns as f64));
        text += &format!("   {verb:9} {who} waited {waited}; others waited {blamed} for it\n");
    }
    text += &stack_lines(lock, columns);
    text.lines().map(|line| Line::from(fit(line, columns))).collect()
}

/// What threads wait for more than for any lock in the table, and what to do about that; empty: they don't.
fn elsewhere(process: &Shown) -> String {
    let finding = finding::of(&process.outcome);
    match finding.of {
        About::OwnLock | About::Condition if process.selected == 0 => {
            // First what to do: there may be no room for all.
            finding::text(&finding) + &brief::details(&process.outcome)
        }
        _ => String::new(),
    }
}

/// Is its share more than nothing, as it is shown?
fn is_some(site: &Site) -> bool {
    site.share >= 0.005
}

/// A place on one line: of a long name, the ends.
fn place(site: &Site, columns: usize) -> String {
    let share = format!("{:.0} % ", 100.0 * site.share);
    let place = if site.place.is_empty() { String::new() } else { format!(" ({})", site.place) };
    let rest = format!("{}: {}", shown(&place), words::times(site));
    let room = columns.saturating_sub(share.len() + rest.chars().count());
    format!("{share}{}{rest}", short(&shown(&site.function), room.max(16)))
}

/// Whole stacks of holders and waiters; empty: none was taken.
fn stack_lines(lock: &Ranked, columns: usize) -> String {
    let mut text = String::new();
    for (verb, sites) in [("held", &lock.holders), ("waits", &lock.waiters)] {
        for site in sites.iter().filter(|site| is_some(site) && !site.stack.is_empty()).take(STACKS)
        {
            let stack: Vec<_> = site.stack.iter().map(|frame| shown(frame)).collect();
            let line = format!("{:.0} %  {}", 100.0 * site.share, stack.join(" < "));
            text += &beside_within(&format!("   {verb:9} "), &line, columns.max(40));
        }
    }
    text
}

/// The lines while stacks are sampled, and after.
pub(super) fn stacks(lock: &Ranked, until: Instant, columns: usize) -> Vec<Line<'static>> {
    let left = until.saturating_duration_since(Instant::now());
    let heading = match left.is_zero() {
        true => format!("{}: stacks; f: back to places\n", shown(&lock.name)),
        false => format!("{}: samples stacks, {} s left\n", shown(&lock.name), left.as_secs() + 1),
    };
    let mut text = stack_lines(lock, columns);
    if text.is_empty() && left.is_zero() {
        text = "none: no thread waited, or the process can't copy its stack".to_owned();
    }
    (heading + &text).lines().map(|line| Line::from(line.to_owned())).collect()
}

/// What is said in place of a lock's details if no wait for a lock was counted.
pub(super) fn without_locks(process: &Shown) -> Vec<Line<'static>> {
    let outcome = &process.outcome;
    let text = match brief::details(outcome) {
        _ if outcome.elapsed_ns == 0 => "looking ...".to_owned(),
        details if !details.is_empty() => details,
        _ if !process.standing.is_empty() => {
            wrapped("no wait has ended in this interval: who waits is told above")
        }
        _ => {
            let last = time(outcome.elapsed_ns as f64);
            let others = match outcome.samples {
                0 => "; looking for locks that aren't pthread's ...",
                _ => "",
            };
            wrapped(&format!("no thread had to wait for a lock in the last {last}{others}"))
        }
    };
    text.lines().map(|line| Line::from(line.to_owned())).collect()
}
