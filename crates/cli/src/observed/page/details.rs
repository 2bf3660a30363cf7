//! One lock's details.

use crate::observed::timeline::signs;
use crate::observed::{beyond, report};
use crate::output::shown;
use crate::profile::words::{FEW, NOISE, callers, meanwhile, times};
use lockwright_numbers::format::{count, time};
use lockwright_observer::counts::observation::{Observed, Ranked, Site, ThreadWaits};
use lockwright_observer::counts::snapshot::LockKind;
use lockwright_plot::page::{self, Key};
use maud::{Markup, html};

/// Number of places shown for each lock.
pub(super) const PLACES: usize = 5;
/// Number of threads shown for a lock.
const THREADS: usize = 8;
/// Number of signs that show how contention changes over time.
const SIGNS: usize = 40;

/// `is_said`: the page has begun with its advice. `is_drawn`: it is in the chart.
pub(super) fn lock(lock: &Ranked, outcome: &Observed, is_said: bool, is_drawn: bool) -> Markup {
    let advice = lock.advice.as_ref().filter(|_| !is_said);
    let line = |text: String| (!text.is_empty()).then(|| html! { (text) });
    let events = outcome.events.as_ref().zip(lock.events);
    let events = events.map(|(total, events)| report::events(total, events)).unwrap_or_default();
    let sides = lock.beyond.sides.as_ref();
    let sides = sides.and_then(|sides| value("who waits", &beyond::sides(sides)));
    let parts = [
        (
            "advice",
            advice.map(|advice| {
                html! {
                    div.sentence { (shown(&advice.text)) }
                    @if !advice.command.is_empty() { pre { (shown(&advice.command)) } }
                }
            }),
        ),
        ("held by", places(&lock.holders, report::held(lock))),
        ("waited in", places(&lock.waiters, times)),
        ("waits", (lock.wait.count > 0).then(|| html! { (report::long_waits(&lock.wait)) })),
        ("who waits", sides),
        ("tried", value("tried", &beyond::tries(lock))),
        ("holders", line(holders(lock))),
        ("hand-over", line(hand_over(lock))),
        ("by core", by_class(lock)),
        // The chart above shows it of the first locks.
        ("over time", if is_drawn { None } else { over_time(lock, outcome.slice_ns) }),
        ("events", value("events", &events)),
        ("threads", threads(lock)),
    ];
    let told = parts.into_iter().filter_map(|(term, meaning)| Some((term, meaning?)));
    html! {
        h3 { (shown(&lock.name)) @for what in about(lock) { span.more { ", " (what) } } }
        (page::terms(told))
    }
}

/// What it is, and whether a thread still waits.
fn about(lock: &Ranked) -> Vec<String> {
    let mut all = Vec::new();
    if lock.locks > 1 {
        all.push(format!("{} locks", lock.locks));
    }
    let kind = match lock.kind {
        LockKind::Semaphore => "a semaphore used as a lock; it stays glibc’s",
        LockKind::ReadWrite => "a readers-writer lock",
        LockKind::Spin => "a spin lock, which records no holder",
        LockKind::Mutex | LockKind::Condition => "",
    };
    if !kind.is_empty() {
        all.push(kind.to_owned());
    }
    if lock.unended_ns >= report::OPEN_NS {
        all.push(format!("still waited for at the end, for {}", time(lock.unended_ns as f64)));
    }
    all
}

/// File and line, in parentheses, after a space.
pub(super) fn place(site: &Site) -> String {
    match site.place.as_str() {
        "" => String::new(),
        place => format!(" ({})", shown(place)),
    }
}

fn places(sites: &[Site], times: fn(&Site) -> String) -> Option<Markup> {
    let is_told =
        |(number, site): &(usize, &Site)| site.ns > 0 && (*number == 0 || site.share >= NOISE);
    let sites: Vec<&Site> =
        sites.iter().enumerate().take(PLACES).filter(is_told).map(|(_, site)| site).collect();
    (!sites.is_empty()).then(|| {
        html! { @for site in sites {
            div {
                (format!("{:.0} % ", 100.0 * site.share)) code { (shown(&site.function)) }
                (place(site)) (shown(&callers(&site.function, &site.stack))) ": " (times(site))
            }
        } }
    })
}

fn holders(lock: &Ranked) -> String {
    let known = lock.holding.as_ref().filter(|holding| holding.samples >= FEW);
    known.map_or_else(String::new, |holding| {
        let samples = count(holding.samples);
        format!("{}, from {samples} samples", shown(&meanwhile(holding)))
    })
}

fn hand_over(lock: &Ranked) -> String {
    let (Some(owners), Some(cores)) = (lock.owner_changes, lock.core_changes) else {
        return String::new();
    };
    format!("{:.0} % to another thread, {:.0} % to another CPU", 100.0 * owners, 100.0 * cores)
}

/// Waits on each class of core, if there are several.
fn by_class(lock: &Ranked) -> Option<Markup> {
    (lock.wait_by_class.len() > 1).then(|| {
        html! { @for (class, wait) in &lock.wait_by_class {
            div { "class " (class) ": " (report::of_class(wait)) }
        } }
    })
}

fn over_time(lock: &Ranked, slice_ns: u64) -> Option<Markup> {
    lock.course.iter().any(|&ns| ns > 0).then(|| {
        let (signs, most) = signs(&lock.course, slice_ns, SIGNS);
        html! { span.signs { (signs) } " peak " (format!("{most:.2}")) " threads" }
    })
}

/// Which threads waited, and which kept others waiting.
fn threads(lock: &Ranked) -> Option<Markup> {
    let mut all: Vec<&ThreadWaits> = lock.threads.iter().collect();
    all.sort_by_key(|thread| std::cmp::Reverse(thread.wait_ns + thread.blamed_ns));
    let figure = |ns: u64| match ns {
        0 => Key::Figure("-".to_owned(), 0.0),
        _ => Key::Figure(time(ns as f64), ns as f64),
    };
    let row = |thread: &&ThreadWaits| {
        let name = match thread.tid {
            Some(tid) => format!("{tid} {}", shown(&thread.name)),
            None => "others".to_owned(),
        };
        let waits = Key::Figure(count(thread.waits), thread.waits as f64);
        vec![Key::Words(name), figure(thread.blamed_ns), figure(thread.wait_ns), waits]
    };
    let header = [
        ("thread", ""),
        ("kept others waiting", "how long others waited for it"),
        ("total wait", "how long it waited"),
        ("contended", "how often it had to wait"),
    ];
    (all.len() > 1).then(|| {
        html! {
            (page::sortable(&header, usize::MAX, all.iter().take(THREADS).map(row)))
            @if all.len() > THREADS {
                span.what { (all.len() - THREADS) " more threads: " code { "--format json" } }
            }
        }
    })
}

/// A line of the text report without its term, its indentation and its breaks.
fn value(term: &str, text: &str) -> Option<Markup> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let value = words.strip_prefix(term).unwrap_or(&words).trim();
    (!value.is_empty()).then(|| html! { (value) })
}

/// Paragraphs of the text report, each without its breaks: continuation lines are indented.
pub(super) fn lines(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match all.last_mut().filter(|_| line.starts_with(' ')) {
            Some(last) => *last += &format!(" {}", line.trim()),
            None => all.push(line.trim().to_owned()),
        }
    }
    all
}
