//! An outcome as a page: no network, no script.

use super::outcome::{Outcome, Ranked, Site};
use super::snapshot::Kind;
use crate::chart::{Axis, Curve, Heading, Panel, Range, curves};
use crate::hints::Failure;
use crate::html::{CSS, escape};
use crate::observed::report;
use crate::order::outcome::{self as order, Risk};
use crate::output::shown;
use crate::profile::flame;
use lockwright_numbers::format::{si, time};
use std::fmt::Write as _;

/// Locks with a section of their own.
const TOLD: usize = 8;
/// Locks in the chart.
const DRAWN: usize = 6;
/// Places of each lock.
const PLACES: usize = 5;
/// Dots of a curve at most.
const DOTS: usize = 64;

/// The page on a program, or on a process: `most` locks in the table.
pub(crate) fn page(
    title: &str,
    outcomes: &[Outcome],
    orders: Option<&[order::Outcome]>,
    most: usize,
) -> Result<String, Failure> {
    let busy: Vec<_> = outcomes.iter().filter(|outcome| !outcome.locks.is_empty()).collect();
    let mut body = format!("<h1>{}</h1>\n", foreign(title));
    if busy.is_empty() {
        body.push_str("<p>No thread had to wait for a lock.</p>\n");
    }
    for outcome in busy {
        process(&mut body, outcome, most)?;
    }
    for order in orders.unwrap_or_default() {
        circles(&mut body, order);
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{CSS}{OWN}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        foreign(title)
    ))
}

/// What these pages have beyond the others.
const OWN: &str = "h3 { font-size: 17px; margin: 28px 0 4px; overflow-wrap: anywhere; }
td:nth-child(2), th:nth-child(2) { text-align: left; }
li, dd { overflow-wrap: anywhere; }
pre { margin: 2px 0 10px; overflow-x: auto; font-size: 13px; line-height: 1.45; }
pre.command { padding: 6px 10px; background: var(--chip); color: var(--on-chip); border-radius: 6px; }
dl { grid-template-columns: 110px minmax(0, 1fr); }
.advice::first-letter { text-transform: uppercase; }
figure.scroll svg { min-width: 680px; }
@media (max-width: 560px) { dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 8px; } }
";

/// inferno writes a script even where it should not.
fn without_script(svg: &str) -> String {
    match (svg.find("<script"), svg.split_once("</script>")) {
        (Some(start), Some((_, rest))) => format!("{}{rest}", &svg[..start]),
        _ => svg.to_owned(),
    }
}

/// Somebody else's text.
fn foreign(text: &str) -> String {
    escape(&shown(text))
}

fn process(body: &mut String, outcome: &Outcome, most: usize) -> Result<(), Failure> {
    let _ = writeln!(
        body,
        "<p class=\"soft\"><code>{}</code>, process {}, {} under {}</p>",
        foreign(&outcome.command),
        outcome.pid,
        time(outcome.elapsed_ns as f64),
        foreign(&outcome.lock)
    );
    if let Some(advice) = outcome.locks.first().and_then(|lock| lock.advice.as_ref()) {
        let _ = writeln!(body, "<p class=\"advice\">{}</p>", foreign(&advice.text));
    }
    table(body, outcome, most);
    if let Some(svg) = over_time(outcome)? {
        let _ = writeln!(body, "<figure class=\"scroll\">{svg}</figure>");
    }
    for lock in outcome.locks.iter().take(most.min(TOLD)) {
        told(body, lock);
    }
    for suspects in &outcome.false_sharing {
        let _ = writeln!(
            body,
            "<p>False sharing? {} lie in one line of the caches: who takes one slows those at the \
             other. <code>alignas(64)</code> sets them apart.</p>",
            foreign(&suspects.locks.join(", "))
        );
    }
    let folded = report::folded(std::slice::from_ref(outcome));
    if !folded.is_empty() {
        let mut svg = Vec::new();
        flame::draw_still("Holders and waiters", "us", &folded, &mut svg).map_err(Failure::new)?;
        let svg = String::from_utf8_lossy(&svg);
        // What comes before belongs to a file of its own.
        let svg = svg.find("<svg").map_or("", |at| &svg[at..]);
        let svg = without_script(svg);
        let _ = writeln!(body, "<h2>Stacks</h2>\n<figure class=\"scroll\">{svg}</figure>");
    }
    Ok(())
}

fn table(body: &mut String, outcome: &Outcome, most: usize) {
    body.push_str("<div class=\"scroll\"><table>\n<tr>");
    for head in
        ["", "lock", "blocked", "waiting", "waits", "slept", "P50", "P99", "max", "hold P50"]
    {
        let _ = write!(body, "<th>{head}</th>");
    }
    body.push_str("</tr>\n");
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    for (number, lock) in outcome.locks.iter().take(most).enumerate() {
        let short = |ns: u64| time(ns as f64);
        let cells = [
            format!("{}", number + 1),
            foreign(&lock.name),
            format!("{:.1} %", 100.0 * lock.blocked_ns as f64 / elapsed),
            format!("{:.2}", lock.wait_ns as f64 / elapsed),
            si(lock.contended as f64),
            format!("{:.0} %", 100.0 * lock.slept as f64 / lock.contended.max(1) as f64),
            short(lock.wait.p50_ns),
            short(lock.wait.p99_ns),
            short(lock.wait.max_ns),
            if lock.hold.count == 0 { "-".to_owned() } else { short(lock.hold.p50_ns) },
        ];
        body.push_str("<tr>");
        for cell in cells {
            let _ = write!(body, "<td>{cell}</td>");
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n<p class=\"soft\">Blocked: the part of the time in which somebody waited for it. \
         Waiting: how many threads did so on average. P50 to max: waits. Hold: of threads that had to wait before.</p>\n");
}

/// The first locks' courses.
fn over_time(outcome: &Outcome) -> Result<Option<String>, Failure> {
    let with_course = |lock: &&Ranked| lock.course.iter().any(|&ns| ns > 0);
    let locks: Vec<_> = outcome.locks.iter().filter(with_course).take(DRAWN).collect();
    if locks.is_empty() || outcome.slice_ns == 0 {
        return Ok(None);
    }
    let slice = outcome.slice_ns as f64;
    let curve = |(key, lock): (usize, &&Ranked)| {
        let width = lock.course.len().div_ceil(DOTS);
        let dots = lock.course.chunks(width).enumerate().map(|(at, slices)| {
            let waiting = slices.iter().sum::<u64>() as f64 / (slices.len() as f64 * slice);
            let middle = (at as f64 + 0.5) * width as f64 * slice;
            (middle, Range { middle: waiting, low: waiting, high: waiting })
        });
        Curve { key, dashed: false, dots: dots.collect() }
    };
    let panel = Panel {
        title: "threads that waited, on average".to_owned(),
        x: Axis { name: "time since the start".to_owned(), log: false, is_time: true },
        y: Axis { name: "threads".to_owned(), log: false, is_time: false },
        curves: locks.iter().enumerate().map(curve).collect(),
    };
    let short = |lock: &&Ranked| -> String {
        let name = shown(&lock.name);
        match name.char_indices().nth(18) {
            Some((at, _)) => format!("{}...", &name[..at]),
            None => name.into(),
        }
    };
    let key: Vec<String> = locks.iter().map(short).collect();
    let source = "a wait counts when it ends";
    let heading = Heading { title: "Contention over time", source };
    curves(&heading, &key, &[panel]).map(Some).map_err(Failure::new)
}

fn told(body: &mut String, lock: &Ranked) {
    let _ = writeln!(body, "<h3>{}</h3>", foreign(&lock.name));
    if lock.kind == Kind::Semaphore {
        body.push_str("<p class=\"soft\">a semaphore used as a lock; it stays glibc's</p>\n");
    }
    body.push_str("<dl>\n");
    for (verb, sites) in [("held by", &lock.holders), ("waited in", &lock.waiters)] {
        let sites: Vec<&Site> = sites.iter().take(PLACES).filter(|site| site.ns > 0).collect();
        if !sites.is_empty() {
            let _ = writeln!(body, "<dt>{verb}</dt><dd>");
            for site in sites {
                let place = match site.place.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", foreign(&site.place)),
                };
                let _ = writeln!(
                    body,
                    "{:.0} % <code>{}</code>{place}: {}<br>",
                    100.0 * site.share,
                    foreign(&site.function),
                    report::times(site)
                );
            }
            body.push_str("</dd>\n");
        }
    }
    if let Some(advice) = &lock.advice {
        let _ = writeln!(body, "<dt>advice</dt><dd>{}", foreign(&advice.text));
        if !advice.note.is_empty() {
            let _ = writeln!(body, "<span class=\"what\">{}</span>", foreign(&advice.note));
        }
        if !advice.command.is_empty() {
            let _ = writeln!(body, "<pre class=\"command\">{}</pre>", foreign(&advice.command));
        }
        body.push_str("</dd>\n");
    }
    body.push_str("</dl>\n");
}

fn circles(body: &mut String, order: &order::Outcome) {
    let _ = writeln!(
        body,
        "<h2>Order of locks</h2>\n<p class=\"soft\"><code>{}</code>, process {}: {} locks taken together, {} pairs in order</p>",
        foreign(&order.command),
        order.pid,
        order.locks,
        order.pairs
    );
    for stuck in &order.stuck {
        let _ = writeln!(
            body,
            "<p class=\"advice\">Thread {} waits for {} at {}: thread {} holds it.</p>",
            stuck.thread,
            foreign(&stuck.waits_for),
            foreign(&stuck.at),
            stuck.held_by
        );
    }
    if order.circles.is_empty() {
        body.push_str("<p>No circle: in these orders no thread blocks another forever.</p>\n");
    }
    for circle in &order.circles {
        let names: Vec<_> = circle.locks.iter().map(|lock| foreign(&lock.name)).collect();
        let may = match circle.risk {
            Risk::Deadlock => "can deadlock",
            Risk::OneThread => "could deadlock, if several threads did what one did",
            Risk::Guarded => "are taken in both orders, and guarded",
        };
        let _ = writeln!(body, "<h3>{} {may}</h3>", names.join(", "));
        if !circle.guards.is_empty() {
            let _ =
                writeln!(body, "<p>Held each time: {}.</p>", foreign(&circle.guards.join(", ")));
        }
        body.push_str("<ul>\n");
        for step in &circle.steps {
            let others = if step.has_more_threads { " and others" } else { "" };
            let _ = writeln!(body, "<li>thread {}{others} holds", step.thread);
            for (verb, place) in [("", &step.held), ("and asks for ", &step.asked)] {
                let stack: Vec<_> = place.stack.iter().map(|frame| foreign(frame)).collect();
                let _ = writeln!(
                    body,
                    "{verb}<code>{}</code><pre>{}</pre>",
                    foreign(&place.lock),
                    stack.join("\n")
                );
            }
            body.push_str("</li>\n");
        }
        body.push_str("</ul>\n");
    }
}
