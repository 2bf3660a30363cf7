//! An outcome as a self-contained HTML page without scripts.

use super::{beyond, conditions, often, report};
use crate::hints::Failure;
use crate::output::shown;
use crate::profile::{flame, words};
use crate::standing;
use lockwright_numbers::format::{count, si, time};
use lockwright_observer::counts::observation::{Observed, Ranked, Site};
use lockwright_observer::counts::snapshot::LockKind;
use lockwright_observer::findings::OwnLock;
use lockwright_observer::order::outcome::{self as order, Risk};
use lockwright_observer::standing::Standing;
use lockwright_plot::{Axis, Curves, Head, Look, Panel, Series, Style, page};
use maud::{Markup, html};

/// Number of locks that have their own section.
const TOLD: usize = 8;
/// Number of locks in the chart.
const DRAWN: usize = 6;
/// Number of places shown for each lock.
const PLACES: usize = 5;
/// Maximum number of points of a curve.
const DOTS: usize = 64;

/// The page for a program or a process, with at most `most` locks in the table.
pub(crate) fn page(
    title: &str,
    outcomes: &[Observed],
    looks: &report::Looks,
    standing: Option<&Standing>,
    orders: Option<&[order::Orders]>,
    most: usize,
) -> Result<String, Failure> {
    let busy: Vec<_> = outcomes.iter().filter(|outcome| report::has_waits(outcome)).collect();
    let processes: Vec<Markup> =
        busy.iter().map(|outcome| process(outcome, most)).collect::<Result<_, _>>()?;
    let body = html! {
        h1 { (shown(title)) }
        @if let Some(standing) = standing.filter(|now| !now.is_empty()) {
            pre { (standing::text(standing)) }
        }
        @if busy.is_empty() {
            p { (report::nobody(looks)) "." }
            @for outcome in outcomes { (taken_often(outcome)) }
            p.soft { (report::unwatched(looks)) "." }
        } @else if let Some(why) = &looks.running_unseen {
            p.soft { "not watched: " (report::running_unwatched(why)) "." }
        }
        @for process in processes { (process) }
        @for order in orders.unwrap_or_default() { (circles(order)) }
    };
    Ok(page::page(&shown(title), &body))
}

fn process(outcome: &Observed, most: usize) -> Result<Markup, Failure> {
    let folded = report::folded(std::slice::from_ref(outcome));
    let draw = || flame::draw_still("Holders and waiters", "µs", &folded);
    let flames = (!folded.is_empty()).then(draw).transpose().map_err(Failure::new)?;
    let advice = outcome.locks.first().and_then(|lock| lock.advice.as_ref());
    let elapsed = time(outcome.elapsed_ns as f64);
    Ok(html! {
        p.soft {
            code { (report::who(outcome)) } ", " (elapsed) " under " (shown(&outcome.lock))
            (report::emulation(outcome))
        }
        @if let Some(advice) = advice { p.advice.sentence { (shown(&advice.text)) } }
        @for lock in report::own_locks(outcome) { (own(lock)) }
        @for (one, wakes) in conditions::told(outcome) {
            pre { (conditions::one(one, wakes)) }
        }
        @if !outcome.locks.is_empty() { (table(outcome, most)) }
        (taken_often(outcome))
        @if let Some(svg) = over_time(outcome) { (page::figure(&svg, "")) }
        @for lock in outcome.locks.iter().take(most.min(TOLD)) { (told(lock)) }
        @for suspects in &outcome.false_sharing {
            p {
                "False sharing? " (shown(&suspects.locks.join(", "))) " share a cache line: a thread that takes one \
                slows down users of the other. " code { "alignas(64)" } " separates them."
            }
        }
        @if let Some(svg) = flames { h2 { "Stacks" } (page::figure(&svg, "")) }
    })
}

/// A lock that isn't one of pthread's.
fn own(lock: &OwnLock) -> Markup {
    let places = html! { @for site in lock.waiters.iter().take(PLACES) {
        (format!("{:.0} % ", 100.0 * site.share)) (shown(&words::place(site))) br;
    } };
    html! {
        h3 { (lock.name) ": " (format!("{:.1}", lock.waiting)) " threads waited on average" }
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

fn table(outcome: &Observed, most: usize) -> Markup {
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    let short = |ns: u64| time(ns as f64);
    let row = |lock: &Ranked| {
        page::TableRow::of([
            shown(&lock.name).into(),
            format!("{:.1} %", 100.0 * lock.blocked_ns as f64 / elapsed),
            format!("{:.2}", lock.wait_ns as f64 / elapsed),
            count(lock.contended),
            format!("{:.0} %", 100.0 * lock.slept as f64 / lock.contended.max(1) as f64),
            short(lock.wait.p50_ns),
            short(lock.wait.p99_ns),
            short(lock.wait.max_ns),
            if lock.hold.count == 0 { "-".to_owned() } else { short(lock.hold.p50_ns) },
        ])
    };
    let header = ["lock", "blocked", "waiting", "waits", "slept", "P50", "P99", "max", "hold P50"];
    html! {
        (page::table(header, 1, false, outcome.locks.iter().take(most).map(row)))
        p.soft {
            "Blocked: the share of time in which a thread waited for it. Waiting: how many threads did so on \
            average. P50 to max: waits. Hold: hold times of threads that had waited."
        }
    }
}

/// A chart of waiting time for the first locks.
fn over_time(outcome: &Observed) -> Option<String> {
    let with_course = |lock: &&Ranked| lock.course.iter().any(|&ns| ns > 0);
    let locks: Vec<_> = outcome.locks.iter().filter(with_course).take(DRAWN).collect();
    if locks.is_empty() || outcome.slice_ns == 0 {
        return None;
    }
    let slice = outcome.slice_ns as f64;
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
        Axis::linear("time since the start", time),
        Axis::linear("threads that waited, on average", si),
        locks.iter().enumerate().map(series).collect(),
    );
    let name = |(number, lock): (usize, &&Ranked)| {
        (shown(&lock.name).into(), Style::of(number, Look::Line))
    };
    let head = Head {
        title: "Contention over time".to_owned(),
        source: "a wait that is over counts where it was".to_owned(),
        key: locks.iter().enumerate().map(name).collect(),
    };
    Some(Curves::new(head, vec![panel]).svg())
}

fn told(lock: &Ranked) -> Markup {
    let sites = |sites: &[Site]| -> Option<Markup> {
        let sites: Vec<&Site> = sites.iter().take(PLACES).filter(|site| site.ns > 0).collect();
        let place = |site: &Site| match site.place.is_empty() {
            true => String::new(),
            false => format!(" ({})", shown(&site.place)),
        };
        (!sites.is_empty()).then(|| {
            html! { @for site in sites {
                (format!("{:.0} % ", 100.0 * site.share)) code { (shown(&site.function)) }
                (place(site)) ": " (words::times(site)) br;
            } }
        })
    };
    let holders = lock.holding.as_ref().filter(|holding| holding.samples >= words::FEW);
    let holders = holders.map(|holding| html! { (shown(&words::meanwhile(holding))) });
    let advice = lock.advice.as_ref().map(|advice| {
        html! {
            (shown(&advice.text))
            @if !advice.note.is_empty() { span.what { (shown(&advice.note)) } }
            @if !advice.command.is_empty() { pre { (shown(&advice.command)) } }
        }
    });
    let parts = [
        ("held by", sites(&lock.holders)),
        ("waited in", sites(&lock.waiters)),
        ("holders", holders),
        ("advice", advice),
    ];
    html! {
        h3 { (shown(&lock.name)) }
        @if let Some(more) = beyond::more(lock) { p.soft { (more) } }
        @if lock.kind == LockKind::Semaphore { p.soft { "a semaphore used as a lock; it stays glibc's" } }
        (page::terms(parts.into_iter().filter_map(|(term, meaning)| Some((term, meaning?)))))
    }
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
