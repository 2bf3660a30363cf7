//! An outcome as text.

use super::course::signs;
use super::outcome::{Outcome, Percentiles, Ranked, Site};
use crate::output::{beside, plain, shown, table};
use crate::profile::outcome::Folded;
use lockwright_bench::{si, time, wrapped};

/// Locks that are told about one by one.
const TOLD: usize = 5;
/// Places of each.
const PLACES: usize = 3;

/// The report on several processes: those in which somebody waited, one after another.
pub(crate) fn all(outcomes: &[Outcome], most: usize) -> String {
    let busy: Vec<_> = outcomes.iter().filter(|outcome| !outcome.locks.is_empty()).collect();
    if busy.is_empty() {
        return "no thread had to wait for a lock\n".to_owned();
    }
    let mut text = String::new();
    for outcome in &busy {
        text.push_str(&self::text(outcome, most));
        text.push('\n');
    }
    text.push_str(&wrapped(
        "blocked: the part of the time in which somebody waited for it; waiting: how many threads did so on average; \
         P50 to max: waits; hold: of threads that had to wait before.",
    ));
    text + "\n"
}

/// Stacks with the time that was lost in them, us: outermost first, below the lock, below `holders` or `waiters`.
pub(crate) fn folded(outcomes: &[Outcome]) -> Folded {
    let mut folded = Folded::new();
    for lock in outcomes.iter().flat_map(|outcome| &outcome.locks) {
        for (who, sites) in [("holders", &lock.holders), ("waiters", &lock.waiters)] {
            for site in sites.iter().filter(|site| site.ns >= 1000) {
                let mut frames = vec![who.to_owned(), lock.name.clone()];
                match site.stack.is_empty() {
                    true => frames.push(site.function.clone()),
                    false => frames.extend(site.stack.iter().rev().cloned()),
                }
                folded.push((frames, site.ns / 1000));
            }
        }
    }
    folded
}

/// The report on one, for people: `most` locks in the table.
fn text(outcome: &Outcome, most: usize) -> String {
    let mut text = String::new();
    let about = format!(
        "{} ({}): {} under {}",
        outcome.pid,
        shown(&outcome.command),
        time(outcome.elapsed_ns as f64),
        shown(&outcome.lock),
    );
    text.push_str(&(wrapped(&about) + "\n"));
    text.push('\n');
    let mut drawn = table(&[
        "", "blocked", "waiting", "waits", "slept", "P50", "P99", "P99.9", "max", "hold P50",
    ]);
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    for (number, lock) in outcome.locks.iter().take(most).enumerate() {
        drawn.add_row([
            format!("{}", number + 1),
            format!("{:.1} %", 100.0 * lock.blocked_ns as f64 / elapsed),
            format!("{:.2}", lock.wait_ns as f64 / elapsed),
            si(lock.contended as f64),
            format!("{:.0} %", 100.0 * lock.slept as f64 / lock.contended.max(1) as f64),
            duration(lock.wait.p50_ns),
            duration(lock.wait.p99_ns),
            duration(lock.wait.p999_ns),
            duration(lock.wait.max_ns),
            match lock.hold.count {
                0 => "-".to_owned(),
                _ => duration(lock.hold.p50_ns),
            },
        ]);
    }
    text.push_str(&plain(&drawn));
    for (number, lock) in outcome.locks.iter().take(most.min(TOLD)).enumerate() {
        text.push('\n');
        text.push_str(&told(number + 1, lock));
        if lock.course.iter().any(|&ns| ns > 0) {
            let (signs, most) = signs(&lock.course, outcome.slice_ns, 40);
            text.push_str(&format!("   over time {signs}  up to {most:.2} waiting\n"));
        }
        if let Some(advice) = &lock.advice {
            text.push_str(&beside("   advice    ", &shown(&advice.text)));
            if !advice.note.is_empty() {
                text.push_str(&beside("             ", &shown(&advice.note)));
            }
            if !advice.command.is_empty() {
                // As it is: to be copied.
                text.push_str(&format!("             {}\n", shown(&advice.command)));
            }
        }
    }
    if outcome.locks.len() > most {
        text.push_str(&format!(
            "\n{} more locks: --top {}\n",
            outcome.locks.len() - most,
            outcome.locks.len()
        ));
    }
    for suspects in outcome.false_sharing.iter().take(TOLD) {
        let line = format!(
            "{} lie in one line of the caches: who takes one slows those at the other. Set them \
             apart: alignas(64)",
            suspects.locks.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
        );
        text.push('\n');
        text.push_str(&beside("false sharing? ", &line));
    }
    text.push_str(&lost(outcome));
    text
}

fn duration(ns: u64) -> String {
    time(ns as f64)
}

/// One lock: who holds it, who waits where, by class of core.
pub(crate) fn told(number: usize, lock: &Ranked) -> String {
    let mut text = beside(&format!("{number}. "), &shown(&lock.name));
    if lock.locks > 1 {
        text.push_str(&format!("   {} locks\n", lock.locks));
    }
    let mut places = |verb: &str, sites: &[Site]| {
        for site in sites.iter().take(PLACES).filter(|site| site.ns > 0) {
            let place =
                if site.place.is_empty() { String::new() } else { format!(" ({})", site.place) };
            let line = format!(
                "{:.0} % {}{}: {} times, longest {}",
                100.0 * site.share,
                shown(&site.function),
                shown(&place),
                si(site.count as f64),
                duration(site.max_ns),
            );
            text.push_str(&beside(verb, &line));
        }
    };
    places("   held by   ", &lock.holders);
    places("   waited in ", &lock.waiters);
    for (class, wait) in lock.wait_by_class.iter().filter(|_| lock.wait_by_class.len() > 1) {
        text.push_str(&beside(&format!("   class {class}   "), &percentiles(wait)));
    }
    if let (Some(owners), Some(cores)) = (lock.owner_changes, lock.core_changes) {
        let line = format!(
            "it went to another thread in {:.0} % of acquisitions, to another CPU in {:.0} %",
            100.0 * owners,
            100.0 * cores
        );
        text.push_str(&beside("   hand-over ", &line));
    }
    text
}

fn percentiles(of: &Percentiles) -> String {
    format!(
        "{} waits: P50 {}, P99 {}, P99.9 {}, max {}",
        si(of.count as f64),
        duration(of.p50_ns),
        duration(of.p99_ns),
        duration(of.p999_ns),
        duration(of.max_ns)
    )
}

/// What was not counted; empty: nothing.
fn lost(outcome: &Outcome) -> String {
    let lost = &outcome.lost;
    let mut text = String::new();
    for (count, what) in [
        (lost.unplaced, "waits found no room, and count for \"other locks\""),
        (
            lost.evicted,
            "locks made room for others: what they counted is under \"locks that are gone\"",
        ),
        (lost.stacks, "stacks found no room"),
        (lost.memory, "operations were not counted: there was no shared memory"),
    ] {
        if count > 0 {
            text.push_str(&(wrapped(&format!("{} {what}", si(count as f64))) + "\n"));
        }
    }
    text
}
