//! An outcome as a self-contained HTML page: the finding, the table of locks, their details, and what isn't known. It
//! has what the text report has. Its scripts sort and zoom; without them it shows as much.

mod details;

use super::{conditions, often, report, sections};
use crate::hints::Failure;
use crate::output::shown;
use crate::profile::flame::{self, TIMES};
use crate::profile::words;
use crate::standing;
use lockwright_numbers::format::{count, si, time};
use lockwright_observer::counts::observation::Total;
use lockwright_observer::counts::observation::{Observed, Ranked, Rule};
use lockwright_observer::counts::sections::Sections;
use lockwright_observer::findings::OwnLock;
use lockwright_observer::order::outcome::{self as order, Risk};
use lockwright_observer::standing::Standing;
use lockwright_plot::page::{self, Key};
use lockwright_plot::{Axis, Curves, Head, Look, Panel, Series, Style};
use maud::{Markup, html};

/// Number of locks that have their own section.
const TOLD: usize = 8;
/// Number of locks in the chart.
const DRAWN: usize = 6;
/// Number of places shown for each lock.
const PLACES: usize = 5;
/// Maximum number of points of a curve.
const DOTS: usize = 64;

/// What was found besides the counts.
#[derive(Clone, Copy)]
pub(crate) struct Besides<'a> {
    /// What looks at threads have told.
    pub(crate) looks: &'a report::Looks,
    /// Who waits at this moment, or did at the end.
    pub(crate) standing: Option<&'a Standing>,
    /// In which orders threads take locks.
    pub(crate) orders: Option<&'a [order::Orders]>,
    /// All critical sections.
    pub(crate) sections: Option<&'a Sections>,
}

/// The page for a program or a process, with at most `most` locks in the table.
pub(crate) fn page(
    title: &str,
    outcomes: &[Observed],
    besides: Besides<'_>,
    most: usize,
) -> Result<String, Failure> {
    let Besides { looks, standing, orders, sections } = besides;
    let busy: Vec<_> = outcomes.iter().filter(|outcome| report::has_waits(outcome)).collect();
    let several = busy.len() > 1;
    let processes: Vec<Markup> =
        busy.iter().map(|outcome| process(outcome, several, most)).collect::<Result<_, _>>()?;
    let others = outcomes.iter().filter(|outcome| !report::has_waits(outcome));
    let caveats: Vec<Markup> = caveats(&busy, looks);
    let body = html! {
        h1 { (shown(title)) }
        @if let Some(standing) = standing.filter(|now| !now.is_empty()) {
            pre { (standing::text(standing)) }
        }
        @if busy.is_empty() { p.advice.sentence { (report::nobody(looks)) "." } }
        @for process in processes { (process) }
        @for outcome in others {
            @if !busy.is_empty() && is_often(outcome) { h2 { (report::who(outcome)) } }
            (taken_often(outcome))
            @if busy.is_empty() { (more_conditions(outcome)) }
        }
        @if let Some(sections) = sections {
            h2 { "Critical sections" }
            pre { (sections::text(sections, most)) }
        }
        @for order in orders.unwrap_or_default() { (circles(order)) }
        @if !caveats.is_empty() { h2 { "What isn’t known" } (page::list(caveats)) }
    };
    Ok(page::page(&shown(title), &body))
}

/// What was not counted, watched or attributed.
fn caveats(busy: &[&Observed], looks: &report::Looks) -> Vec<Markup> {
    let mut all = Vec::new();
    if busy.is_empty() {
        all.push(report::unwatched(looks));
    } else {
        let unseen = looks.running_unseen.as_deref().map(report::running_unwatched);
        let crowd = looks.is_crowded.then(report::crowd);
        all.extend(unseen.into_iter().chain(crowd).map(|what| format!("Not watched: {what}")));
    }
    for outcome in busy {
        if let Some(Total { event, unavailable: Some(why), .. }) = &outcome.events {
            all.push(format!("{}: unavailable: {why}", event.name()));
        }
        all.extend(details::lines(&report::lost(outcome)));
    }
    all.iter().map(|line| html! { span.sentence { (line) "." } }).collect()
}

/// One process, or one program's. A page of several names each.
fn process(outcome: &Observed, several: bool, most: usize) -> Result<Markup, Failure> {
    let folded = report::folded(std::slice::from_ref(outcome));
    let flames = flame::framed(TIMES, &folded).map_err(Failure::new)?;
    let (worth, little): (Vec<&Ranked>, Vec<&Ranked>) =
        outcome.locks.iter().take(most).partition(|lock| is_worth_it(lock));
    let advice = worth.first().and_then(|lock| lock.advice.as_ref());
    let elapsed = time(outcome.elapsed_ns as f64 / outcome.processes.len().max(1) as f64);
    let under = match outcome.lock.as_str() {
        "" => String::new(), // it has counted nothing
        lock => format!(" under {}", shown(lock)),
    };
    Ok(html! {
        @if several { h2 { (report::who(outcome)) } }
        p.advice.sentence { (finding(outcome, &worth)) }
        @if let Some(advice) = advice { p.sentence { (shown(&advice.text)) "." } }
        p.soft {
            @if !several { code { (report::who(outcome)) } ", " }
            (elapsed) (under) (report::emulation(outcome))
        }
        @if !worth.is_empty() { (table(&worth)) }
        @if !little.is_empty() {
            details open[worth.is_empty()] {
                summary { (hardly(little.len(), !worth.is_empty())) }
                (table(&little))
            }
        }
        @if outcome.locks.len() > most {
            p.soft { (outcome.locks.len() - most) " more: " code { "--top " (outcome.locks.len()) } }
        }
        @if !outcome.locks.is_empty() { (meanings()) }
        @if let Some(svg) = over_time(&worth, outcome.slice_ns) { (page::figure(&svg, "")) }
        @for lock in worth.iter().take(TOLD) { (details::lock(lock, outcome)) }
        @for lock in report::own_locks(outcome) { (own(lock, outcome.threads)) }
        @for (one, wakes) in conditions::told(outcome) {
            pre { (conditions::one(one, wakes, outcome.elapsed_ns)) }
        }
        (more_conditions(outcome))
        (taken_often(outcome))
        @for suspects in &outcome.false_sharing {
            p {
                "False sharing? " (shown(&suspects.locks.join(", "))) " share a cache line: a thread that takes one \
                slows down users of the other. " code { "alignas(64)" } " separates them."
            }
        }
        @if !folded.is_empty() {
            h2 { "Stacks" }
            p.soft { "A click on a box zooms in. A box is as wide as its time is long; above it are the functions that it called." }
            (flames)
        }
    })
}

/// Do threads wait for it so much that it deserves attention?
fn is_worth_it(lock: &Ranked) -> bool {
    lock.advice.as_ref().is_none_or(|advice| advice.rule != Rule::Little)
}

fn hardly(locks: usize, are_more: bool) -> String {
    let more = if are_more { " more" } else { "" };
    match locks {
        1 => format!("1{more} lock, that threads hardly wait for"),
        many => format!("{many}{more} locks, that threads hardly wait for"),
    }
}

/// What matters most, in a sentence.
fn finding(outcome: &Observed, worth: &[&Ranked]) -> Markup {
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    let counted = worth.first().map_or(0.0, |lock| lock.wait_ns as f64 / elapsed);
    let own = report::own_locks(outcome).next();
    let sampled = own.map_or(0.0, |lock| lock.waiting);
    let conditions = conditions::waiting(outcome);
    if let Some(own) = own.filter(|_| sampled >= conditions.max(counted)) {
        return html! { (shown(&words::own_brief(own, outcome.threads))) "." };
    }
    if conditions > counted {
        let lock = conditions::locks(outcome).max_by_key(|one| one.wait_ns);
        return html! {
            @if let Some(lock) = lock {
                "Threads waited " (time(lock.wait_ns as f64)) " in all for " code { (shown(&lock.name)) }
                ", a condition variable that acts as a lock."
            }
        };
    }
    let Some(lock) = worth.first() else {
        let Some(lock) = outcome.locks.first() else { return html! { (nothing_else(outcome)) } };
        return html! {
            "Threads hardly waited for locks: " (time(lock.wait_ns as f64)) " in all for "
            code { (shown(&lock.name)) } @if outcome.locks.len() > 1 { ", the most for any" } "."
        };
    };
    let holder = lock.holders.first().filter(|site| site.ns > 0);
    html! {
        "Threads waited " (time(lock.wait_ns as f64)) " in all for " code { (shown(&lock.name)) }
        @if let Some(site) = holder {
            ", " (format!("{:.0} %", 100.0 * site.share)) " of it for " code { (shown(&site.function)) }
            (details::place(site))
        }
        "."
    }
}

/// What is found if threads wait for nothing that is a lock.
fn nothing_else(outcome: &Observed) -> &'static str {
    match conditions::told(outcome).next() {
        Some(_) => "A condition variable wakes threads in vain.",
        None => "Threads waited for no lock.",
    }
}

fn table(locks: &[&Ranked]) -> Markup {
    let times = |ns: u64| Key::Figure(time(ns as f64), ns as f64);
    let row = |lock: &&Ranked| {
        let Ranked { contended, wait_ns, wait, .. } = **lock;
        // A quiet lock has few waits. Perhaps none of them was timed.
        let timed = |ns| if wait.count == 0 { Key::Unknown } else { times(ns) };
        let part = lock.slept as f64 / contended.max(1) as f64;
        vec![
            Key::Words(shown(&lock.name).into()),
            Key::Figure(count(contended), contended as f64),
            times(wait_ns),
            if contended == 0 { Key::Unknown } else { times(wait_ns / contended) },
            timed(wait.max_ns),
            Key::Figure(format!("{:.0} %", 100.0 * part), part),
            timed(wait.p50_ns),
            timed(wait.p99_ns),
            timed(wait.p999_ns),
        ]
    };
    page::sortable(&COLUMNS, 2, locks.iter().map(row))
}

/// The table's columns, with their meanings.
const COLUMNS: [(&str, &str); 9] = [
    ("lock", ""),
    ("contended", "how often a thread found it taken and had to wait"),
    ("total wait", "how long all threads together waited"),
    ("mean", "total wait by contended"),
    ("longest", "the longest wait"),
    ("slept", "the share of waits that included a sleep"),
    ("P50", "half of the time waited was in waits at most this long"),
    ("P99", "99 % of the time waited was in waits at most this long"),
    ("P99.9", "99.9 % of the time waited was in waits at most this long"),
];

fn meanings() -> Markup {
    html! {
        details {
            summary { "What the columns mean" }
            (page::terms(COLUMNS.iter().skip(1).map(|(name, meaning)| (*name, html! { (meaning) }))))
        }
    }
}

/// A lock that isn't one of pthread's.
fn own(lock: &OwnLock, threads: usize) -> Markup {
    let places = html! { @for site in lock.waiters.iter().take(PLACES) {
        (format!("{:.0} % ", 100.0 * site.share)) (shown(&words::place(site))) br;
    } };
    html! {
        h3 { (shown(&words::own_brief(lock, threads))) }
        (page::terms([("waited in", places), ("advice", html! { (shown(&lock.advice)) })]))
    }
}

/// Locks that are taken too often without waiting.
fn taken_often(outcome: &Observed) -> Markup {
    let told = outcome.taken_often.as_ref().filter(|often| !often.sites.is_empty());
    html! { @if let Some(often) = told {
        h3 { "Taken often" }
        p { (often::head(often)) "." }
        ul { @for site in often.sites.iter().take(PLACES) { li { (shown(&often::site(site))) } } }
        @if let Some(why) = &often.uncounted { p.soft { "How often isn't known: " (why) "." } }
        p.advice.sentence { (often::advice(often)) }
    } }
}

/// Is a lock taken too often?
fn is_often(outcome: &Observed) -> bool {
    outcome.taken_often.as_ref().is_some_and(|often| !often.sites.is_empty())
}

/// Condition variables that are no locks, and wake nobody in vain.
fn more_conditions(outcome: &Observed) -> Markup {
    html! { @if let Some(line) = conditions::others(outcome) { p.soft.sentence { (line) "." } } }
}

/// A chart of waiting time for the first locks.
fn over_time(locks: &[&Ranked], slice_ns: u64) -> Option<String> {
    let with_course = |lock: &&&Ranked| lock.course.iter().any(|&ns| ns > 0);
    let locks: Vec<&Ranked> = locks.iter().filter(with_course).take(DRAWN).copied().collect();
    if locks.is_empty() || slice_ns == 0 {
        return None;
    }
    let slice = slice_ns as f64;
    let series = |(number, lock): (usize, &&Ranked)| {
        let width = lock.course.len().div_ceil(DOTS);
        let dots = lock.course.chunks(width).enumerate().map(|(at, slices)| {
            let waiting = slices.iter().sum::<u64>() as f64 / (slices.len() as f64 * slice);
            ((at as f64 + 0.5) * width as f64 * slice, waiting)
        });
        Series::exact(Style::of(number, Look::Line), dots)
    };
    let panel = Panel::new(
        "",
        Axis::linear("time since the start", time).round(),
        Axis::linear("threads that waited, on average", si),
        locks.iter().enumerate().map(series).collect(),
    );
    let name = |(number, lock): (usize, &&Ranked)| {
        (shown(&lock.name).into(), Style::of(number, Look::Line))
    };
    let head = Head {
        title: "Contention over time".to_owned(),
        source: "a wait counts when it ends".to_owned(),
        key: locks.iter().enumerate().map(name).collect(),
    };
    Some(Curves::new(head, vec![panel]).svg())
}

fn circles(order: &order::Orders) -> Markup {
    let may = |risk: &Risk| match risk {
        Risk::Deadlock => "can deadlock",
        Risk::OneThread => "could deadlock, if several threads did what one did",
        Risk::Guarded => "are taken in both orders, and guarded",
    };
    let stack =
        |frames: &[String]| frames.iter().map(|frame| shown(frame)).collect::<Vec<_>>().join("\n");
    html! {
        h2 { "Order of locks" }
        p.soft {
            code { (shown(&order.command)) } ", process " (order.pid) ": " (order.locks) " locks taken together, "
            (order.pairs) " pairs in order"
        }
        @for stuck in &order.stuck {
            p.advice {
                "Thread " (stuck.thread) " waits for " (shown(&stuck.waits_for)) " at " (shown(&stuck.at)) ": thread "
                (stuck.held_by) " holds it."
            }
        }
        @if order.circles.is_empty() { p { "No cycle: threads that take locks in these orders can't deadlock." } }
        @for circle in &order.circles {
            @let names: Vec<_> = circle.locks.iter().map(|lock| shown(&lock.name)).collect();
            h3 { (names.join(", ")) " " (may(&circle.risk)) }
            @if !circle.guards.is_empty() { p { "Held each time: " (shown(&circle.guards.join(", "))) "." } }
            ul { @for step in &circle.steps { li {
                "thread " (step.thread) @if step.has_more_threads { " and others" } " holds "
                @for (verb, place) in [("", &step.held), ("and asks for ", &step.asked)] {
                    (verb) code { (shown(&place.lock)) } pre { (stack(&place.stack)) }
                }
            } } }
        }
    }
}
