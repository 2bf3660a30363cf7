//! An outcome as a self-contained HTML page: the finding, the table of locks, their details, and what isn't known. It
//! has what the text report has. Its scripts sort and zoom; without them it shows as much.

mod details;

use super::columns::{COLUMNS, Column};
use super::finding::About;
use super::{conditions, finding, often, report, sections, watched};
use crate::hints::Failure;
use crate::output::shown;
use crate::profile::flame::{self, TIMES};
use crate::profile::words;
use crate::standing;
use details::PLACES;
use lockwright_numbers::format::{si, time};
use lockwright_observer::counts::observation::Total;
use lockwright_observer::counts::observation::{Observed, Ranked};
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
/// Maximum number of points of a curve.
const DOTS: usize = 64;

/// What was found besides the counts.
#[derive(Clone, Copy)]
pub(crate) struct Besides<'a> {
    /// What looks at threads have told.
    pub(crate) looks: &'a watched::Looks,
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
        @if busy.is_empty() { p.sentence { (watched::nobody(looks)) "." } }
        @for process in processes { (process) }
        @for outcome in others {
            @if !busy.is_empty() && is_often(outcome) { h2 { (report::who(outcome)) } }
            (taken_often(outcome, false))
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
fn caveats(busy: &[&Observed], looks: &watched::Looks) -> Vec<Markup> {
    let mut all = Vec::new();
    if busy.is_empty() {
        all.extend((!looks.some_wait).then(|| watched::are_watched(looks)));
        all.push(watched::unwatched(looks));
    } else {
        let unseen = looks.running_unseen.as_deref().map(watched::running_unwatched);
        let crowd = looks.is_crowded.then(watched::crowd);
        all.extend(unseen.into_iter().chain(crowd).map(|what| format!("Not watched: {what}")));
    }
    for outcome in busy {
        if let Some(Total { event, unavailable: Some(why), .. }) = &outcome.events {
            all.push(format!("{}: unavailable: {why}", event.name()));
        }
        all.extend(details::lines(&report::lost(outcome)));
    }
    all.iter().map(|line| html! { div.sentence { (line) "." } }).collect()
}

/// One process, or one program's. A page of several names each.
fn process(outcome: &Observed, several: bool, most: usize) -> Result<Markup, Failure> {
    let folded = report::folded(std::slice::from_ref(outcome));
    let flames = flame::framed(TIMES, &folded).map_err(Failure::new)?;
    let finding = finding::of(outcome);
    // As in the text, but more of them.
    let (mut worth, mut places, mut little) = (Vec::new(), Vec::new(), Vec::new());
    for (at, lock) in outcome.locks.iter().take(most).enumerate() {
        if report::is_worth_it(&finding, (at, lock)) {
            worth.push(lock);
            places.push(at);
        } else {
            little.push(lock);
        }
    }
    Ok(html! {
        @if several { h2 { (report::who(outcome)) } }
        p.advice { (shown(&finding.fact)) }
        @if !finding.advice.is_empty() {
            p { "What to do: " (shown(&finding.advice)) "." }
            @if !finding.command.is_empty() { pre { (shown(&finding.command)) } }
        }
        p.soft { (report::about(outcome)) }
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
        @for (at, lock) in worth.iter().take(TOLD).enumerate() {
            (details::lock(lock, outcome, finding.of == About::Lock(places[at]), at < DRAWN))
        }
        @for lock in finding::own_locks(outcome) { (own(lock, outcome.threads)) }
        @for (one, wakes) in conditions::told(outcome) {
            pre { (conditions::one(one, wakes)) }
        }
        (more_conditions(outcome))
        (taken_often(outcome, finding.of == About::Often))
        (false_sharing(outcome))
        @if !folded.is_empty() {
            h2 { "Stacks" }
            p.soft { "A click on a box zooms in. A box is as wide as its time is long; above it are the functions that it called." }
            (flames)
        }
    })
}

/// Locks that may slow each other down.
fn false_sharing(outcome: &Observed) -> Markup {
    let all = &outcome.false_sharing;
    html! { @if !all.is_empty() {
        h3 { "False sharing?" }
        p {
            "These locks share a cache line: a thread that takes one slows down users of the others. "
            code { "alignas(64)" } " separates them."
        }
        ul {
            @for suspects in all.iter().take(PLACES) { li { (shown(&suspects.locks.join(", "))) } }
            @if all.len() > PLACES { li { (all.len() - PLACES) " more lines: " code { "--format json" } } }
        }
    } }
}

fn hardly(locks: usize, are_more: bool) -> String {
    let more = if are_more { " more" } else { "" };
    match locks {
        1 => format!("1{more} lock, that threads hardly wait for"),
        many => format!("{many}{more} locks, that threads hardly wait for"),
    }
}

fn table(locks: &[&Ranked]) -> Markup {
    let row = |lock: &&Ranked| {
        let figure = |column: &Column| match (column.figure)(lock) {
            Some(figure) => Key::Figure(column.shown(lock), figure),
            None => Key::Unknown,
        };
        let name = Key::Words(shown(&lock.name).into());
        [name].into_iter().chain(COLUMNS.iter().map(figure)).collect::<Vec<_>>()
    };
    let heads = COLUMNS.iter().map(|column| (column.name, column.meaning));
    let heads: Vec<_> = [("lock", "")].into_iter().chain(heads).collect();
    let sorted = heads.iter().position(|(name, _)| *name == "total wait").unwrap_or_default();
    page::sortable(&heads, sorted, locks.iter().map(row))
}

fn meanings() -> Markup {
    html! {
        details {
            summary { "What the columns mean" }
            (page::terms(COLUMNS.iter().map(|column| (column.name, html! { (column.meaning) }))))
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
/// `is_said`: the page has begun with what to do.
fn taken_often(outcome: &Observed, is_said: bool) -> Markup {
    let told = outcome.taken_often.as_ref().filter(|often| !often.sites.is_empty());
    html! { @if let Some(often) = told {
        h3 { "Taken often" }
        p { (often::head(often)) "." }
        ul { @for site in often.sites.iter().take(PLACES) { li { (shown(&often::site(site))) } } }
        @if let Some(why) = &often.uncounted { p.soft { "How often isn't known: " (why) "." } }
        @if !is_said { p.advice.sentence { (often::advice(often)) } }
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
    let slices = locks.iter().map(|lock| lock.course.len()).max().unwrap_or(0);
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
        Axis::linear("time since the start", time).within(0.0, slices as f64 * slice),
        Axis::linear("threads that waited, on average", si),
        locks.iter().enumerate().map(series).collect(),
    );
    let name = |(number, lock): (usize, &&Ranked)| {
        (shown(&lock.name).into(), Style::of(number, Look::Line))
    };
    let head = Head {
        title: "Contention over time".to_owned(),
        source: String::new(),
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

#[cfg(test)]
mod tests {
    use super::super::advice::tests::lock;
    use super::*;
    use lockwright_observer::counts::observation::{Advice, Percentiles, Rule, Site, ThreadWaits};

    fn advised(name: &str, wait_ns: u64, rule: Rule) -> Ranked {
        let advice = Advice {
            rule,
            lost: 0.3,
            waiting_share: 0.3,
            holding: 0.0,
            in_sections: 0.3,
            text: format!("shorten {name}'s section"),
            note: String::new(),
            command: "lockwright profile".into(),
        };
        Ranked {
            name: name.into(),
            advice: Some(advice),
            mean_ns: wait_ns / 1000,
            ..lock(wait_ns, (10, wait_ns, wait_ns / 10))
        }
    }

    fn observed(locks: Vec<Ranked>) -> Observed {
        let elapsed_ns = 4_000_000_000;
        Observed {
            elapsed_ns,
            slice_ns: 1_000_000_000,
            locks,
            lock: "fifo".into(),
            ..Observed::default()
        }
    }

    fn drawn(outcomes: &[Observed]) -> String {
        let looks = watched::Looks::default();
        let besides = Besides { looks: &looks, standing: None, orders: None, sections: None };
        page("locks of a program", outcomes, besides, 10).unwrap()
    }

    #[test]
    fn it_begins_with_the_finding_and_folds_locks_that_hardly_matter() {
        let little = |name| advised(name, 1_000_000, Rule::Little);
        let all =
            vec![advised("table", 2_000_000_000, Rule::LongSections), little("b"), little("c")];
        let page = drawn(&[observed(all)]);
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no '{part}' in {page}"));
        let parts = [
            "Threads spent 90 % of their time waiting for locks (2.00 s together). Nearly all of that is for table.",
            "What to do: shorten table&#39;s section",
            "<td class=\"words\">table</td>",
            "<details><summary>2 more locks, that threads hardly wait for</summary>",
            "<td class=\"words\">b</td>",
            "<h3>table</h3>",
            "Waiters",
        ];
        let parts = parts.map(|part| part.replace("&#39;", "'"));
        // The graph of waiters isn't there: nobody was seen to wait.
        let found: Vec<usize> = parts[..6].iter().map(|part| at(part)).collect();
        assert!(found.is_sorted(), "{found:?}");
        assert!(page.contains("Holders: the code") && !page.contains(&parts[6]), "{page}");
        assert!(!page.contains("<h3>b</h3>"), "{page}");
        // 10 waits in 2 s.
        let table = &page[at("<td class=\"words\">table</td>")..];
        for cell in [">1.00 k<", ">2.00 s<", ">2.00 ms<", ">0 %<"] {
            assert!(table[..600].contains(cell), "no {cell} in {table}");
        }
        let quiet = drawn(&[observed(vec![little("b")])]);
        assert!(quiet.contains("No lock matters here: leave them. "), "{quiet}");
        assert!(
            quiet.contains("<details open><summary>1 lock, that threads hardly wait for"),
            "{quiet}"
        );
    }

    #[test]
    fn details_have_what_the_text_has() {
        let mut lock = advised("table", 2_000_000_000, Rule::LongSections);
        let times = |max_ns| Percentiles {
            count: 7,
            p50_ns: 1000,
            p99_ns: 2000,
            max_ns,
            ..Percentiles::default()
        };
        lock.wait_by_class = vec![(0, times(4000)), (1, times(9000))];
        (lock.owner_changes, lock.core_changes) = (Some(0.25), Some(0.5));
        (lock.course, lock.locks, lock.unended_ns) = (vec![0, 2_000_000_000], 3, 700_000_000);
        let waiter = Site {
            function: "look".into(),
            stack: ["look (a.c:7)", "serve (a.c:9)", "start_thread (pthread_create.c:442)"]
                .map(str::to_owned)
                .to_vec(),
            ..lock.holders[0].clone()
        };
        lock.waiters = vec![waiter];
        let thread = |tid, wait_ns, blamed_ns| ThreadWaits {
            tid: Some(tid),
            name: format!("worker-{tid}"),
            waits: 5,
            wait_ns,
            blamed_ns,
        };
        lock.threads = vec![thread(11, 5_000, 0), thread(12, 0, 70_000_000)];
        let mut outcome = observed(vec![lock]);
        outcome.lost.stacks = 17;
        let page = drawn(&[outcome]);
        for part in [
            ", 3 locks",
            "still waited for at the end, for 700 ms",
            "called by serve: ",
            "25 % to another thread, 50 % to another CPU",
            "class 1: 7 waits: P50 1.00 µs, P99 2.00 µs, longest 9.00 µs<",
            "12 worker-12",
            "70.0 ms",
            "Waiters: the code that waited",
            "17 stacks found no room.",
            "lockwright profile",
        ] {
            assert!(page.contains(part), "no '{part}' in {page}");
        }
        let [late, early] = ["12 worker-12", "11 worker-11"].map(|name| page.find(name));
        assert!(late < early, "who keeps others waiting comes first: {page}");
    }
}
