//! The text report of cycles.

use crate::output::{beside, shown};
use lockwright_observer::order::outcome::{Named, Nesting, Orders, Place, Risk};
use lockwright_text::wrapped;

/// Maximum number of cycles in the report.
const TOLD: usize = 10;
/// Functions with which every thread's stack begins. They are left out.
pub(crate) const STARTS: [&str; 3] = ["start_thread (", "__libc_start_call_main (", "clone3 ("];
/// Number of callers shown for each place.
const CALLERS: usize = 5;

/// The report on several processes, one after another.
pub(crate) fn all(outcomes: &[Orders]) -> String {
    if outcomes.is_empty() {
        return "no thread took a lock while it held another\n".to_owned();
    }
    outcomes.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn text(outcome: &Orders) -> String {
    let about = format!(
        "{} ({}): {} locks taken together, {} pairs in order",
        outcome.pid,
        shown(&outcome.command),
        outcome.locks,
        outcome.pairs,
    );
    let mut text = wrapped(&about) + "\n";
    for stuck in &outcome.stuck {
        let line = format!(
            "thread {} waits for {} at {}: thread {} holds it",
            stuck.thread,
            shown(&stuck.waits_for),
            shown(&stuck.at),
            stuck.held_by
        );
        text.push_str(&beside("deadlock: ", &line));
    }
    let count = |risk| outcome.circles.iter().filter(|circle| circle.risk == risk).count();
    let told = outcome.circles.iter().filter(|circle| circle.risk != Risk::Guarded);
    for (number, circle) in told.take(TOLD).enumerate() {
        text.push('\n');
        text.push_str(&self::told(number + 1, circle));
    }
    let hidden = (count(Risk::Deadlock) + count(Risk::OneThread)).saturating_sub(TOLD);
    if hidden > 0 {
        text.push_str(&format!("\n{hidden} more cycles: --format json\n"));
    }
    if count(Risk::Deadlock) + count(Risk::OneThread) == 0 {
        text.push_str("no cycle: threads that take locks in these orders can't deadlock\n");
    }
    for circle in outcome.circles.iter().filter(|circle| circle.risk == Risk::Guarded).take(TOLD) {
        let line = format!(
            "{} are taken in both orders, but {} is held each time, so they can't deadlock",
            list(&names(circle)),
            list(&circle.guards)
        );
        text.push_str(&beside("guarded: ", &line));
    }
    text + &lost(outcome)
}

fn names(circle: &Named) -> Vec<String> {
    circle.locks.iter().map(|lock| lock.name.clone()).collect()
}

/// `a, b and c`.
fn list(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| shown(name)).collect();
    match names.split_last() {
        Some((last, [])) => last.to_string(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// One cycle: a sentence, and where each lock is taken.
fn told(number: usize, circle: &Named) -> String {
    let takes = |(at, step): (usize, &Nesting)| {
        let (held, asked) = (shown(&step.held.lock), shown(&step.asked.lock));
        format!("T{} takes {held} and then {asked}", at + 1)
    };
    let all: Vec<_> = circle.steps.iter().enumerate().map(takes).collect();
    let may = match circle.risk {
        Risk::Deadlock => "they can deadlock",
        Risk::OneThread => {
            "one thread did all of this, which is safe; several threads doing it can deadlock"
        }
        Risk::Guarded => "guarded",
    };
    let sentence = format!("{}: {may}.", all.join(", "));
    let mut text = beside(&format!("{number}. "), &sentence);
    if circle.more > 0 {
        let line = format!("{} more cycles of other locks at the same places", circle.more);
        text.push_str(&beside("   ", &line));
    }
    for (at, step) in circle.steps.iter().enumerate() {
        let others = if step.has_more_threads { " and others" } else { "" };
        let times = if step.count == 1 { "once" } else { &format!("{} times", step.count) };
        text.push_str(&format!("   T{}, thread {}{others}, {times}:\n", at + 1, step.thread));
        text.push_str(&place("holds", &step.held));
        text.push_str(&place("asks for", &step.asked));
    }
    text
}

fn place(verb: &str, place: &Place) -> String {
    let at = match (place.reads, place.again) {
        (true, _) => " (to read), taken at",
        (_, true) => " again, after a condition wait; first taken at",
        _ => ", taken at",
    };
    let mut text = beside("      ", &format!("{verb} {}{at}", shown(&place.lock)));
    let only = std::slice::from_ref(&place.at);
    let frames = if place.stack.is_empty() { only } else { &place.stack };
    let is_start = |frame: &str| STARTS.iter().any(|start| frame.starts_with(start));
    for frame in frames.iter().take_while(|frame| !is_start(frame)).take(CALLERS) {
        text.push_str(&beside("         ", &shown(frame)));
    }
    text
}

/// What was not recorded; empty if everything was.
fn lost(outcome: &Orders) -> String {
    let lost = &outcome.lost;
    let mut text = String::new();
    for (count, what) in [
        (lost.threads, "threads were not followed: there was no room"),
        (lost.held, "acquisitions were not followed: their threads held 16 locks already"),
        (lost.locks, "times a lock found no room"),
        (lost.edges, "times an order found no room"),
        (lost.evicted, "orders of destroyed locks made room for others"),
        (lost.stacks, "stacks found no room"),
    ] {
        if count > 0 {
            text.push_str(&(wrapped(&format!("{count} {what}")) + "\n"));
        }
    }
    if outcome.is_cut {
        text.push_str("the search ended early: there may be more cycles\n");
    }
    text
}
