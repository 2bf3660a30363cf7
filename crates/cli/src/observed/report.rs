//! An outcome as text.

use super::beyond::{self, PLACES};
use super::columns::{self, COLUMNS};
use super::finding::{self, About, Finding};
use super::timeline::signs;
use super::watched::{Looks, are_watched, crowd, nobody, running_unwatched, unwatched};
use super::{conditions, often, threads};
use crate::output::{beside, plain, right, shown, table};
use crate::profile::words::{self, FEW, duration, meanwhile, times};
use lockwright_locks::spec::GLIBC;
use lockwright_numbers::format::{count, time};
use lockwright_observer::counts::counter::Event;
use lockwright_observer::counts::observation::{Observed, Percentiles, Ranked, Site};
use lockwright_observer::counts::observation::{Suspects, Total};
use lockwright_observer::counts::snapshot::{LockKind, Signals};
use lockwright_observer::findings::OwnLock;
use lockwright_observer::sampler::outcome::Folded;
use lockwright_text::wrapped;

/// Number of locks with details.
const TOLD: usize = 3;
/// Number of locks in the table, unless users ask for more.
pub(crate) const ROWS: usize = 10;
/// The same where none of them matters.
const FEW_ROWS: usize = 3;
/// A lock with less than this share of the waiting that a report begins with has no details, unless it is what it begins with.
const MUCH: f64 = 0.25;
/// Places with less than this share are left out, but the first.
const LEAST: f64 = 0.01;
/// A wait that is open at the end is ordinary contention if it has taken less, ns.
pub(super) const OPEN_NS: u64 = 10_000_000;

/// The reports on all processes in which threads waited.
pub(crate) fn all(outcomes: &[Observed], looks: &Looks, most: Option<usize>) -> String {
    let busy: Vec<_> = outcomes.iter().filter(|outcome| has_waits(outcome)).collect();
    let others = outcomes.iter().filter(|outcome| !has_waits(outcome));
    if busy.is_empty() {
        let events: Vec<String> = outcomes
            .iter()
            .map(|outcome| conditions::text(outcome, false))
            .filter(|text| !text.is_empty())
            .collect();
        let watched = match looks.some_wait {
            true => String::new(),
            false => wrapped(&are_watched(looks)) + "\n",
        };
        let (often, nobody) = (taken_often(others), wrapped(&nobody(looks)) + "\n");
        let parts = [often, nobody, events.concat(), watched + &wrapped(&unwatched(looks)) + "\n"];
        return parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    }
    let mut parts: Vec<String> = busy.iter().map(|outcome| self::text(outcome, most)).collect();
    parts.push(taken_often(others));
    let unseen = looks.running_unseen.as_deref().map(running_unwatched);
    for what in unseen.into_iter().chain(looks.is_crowded.then(crowd)) {
        parts.push(wrapped(&format!("not watched: {what}")) + "\n");
    }
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Locks that are taken often in processes in which nobody waits, each with its process.
fn taken_often<'a>(outcomes: impl IntoIterator<Item = &'a Observed>) -> String {
    let one = |outcome: &Observed| {
        let text = often::text(outcome.taken_often.as_ref()?, true);
        let first = || wrapped(&about(outcome)) + "\n" + &finding::text(&finding::of(outcome));
        (!text.is_empty()).then(|| first() + "\n" + &text)
    };
    outcomes.into_iter().filter_map(one).collect::<Vec<_>>().join("\n")
}

/// Did threads of this process wait for any lock?
pub(super) fn has_waits(outcome: &Observed) -> bool {
    !outcome.locks.is_empty()
        || finding::own_locks(outcome).next().is_some()
        || conditions::told(outcome).next().is_some()
}

/// Stacks with the time lost in them, us: outermost function first, below the lock, below `holders` or `waiters`.
pub(crate) fn folded(outcomes: &[Observed]) -> Folded {
    let mut folded = Folded::new();
    let locks = outcomes.iter().flat_map(|outcome| &outcome.locks);
    let locks = locks.map(|lock| (lock, &lock.holders[..]));
    // Whoever signals a condition variable has held what it stands for, but perhaps not all the time.
    let conditions = outcomes.iter().flat_map(conditions::locks).map(|one| (one, &[][..]));
    for (lock, holders) in locks.chain(conditions) {
        for (who, sites) in [("holders", holders), ("waiters", &lock.waiters)] {
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

/// What the title says if the figures are emulated.
pub(super) fn emulation(outcome: &Observed) -> String {
    outcome
        .emulated
        .as_ref()
        .map_or_else(String::new, |spec| format!(", emulated ({})", shown(spec)))
}

/// The process with its command; or the processes, with their program.
pub(super) fn who(outcome: &Observed) -> String {
    let Observed { pid, processes, command, .. } = outcome;
    let pids: Vec<String> = processes.iter().take(PIDS).map(u32::to_string).collect();
    match processes.len() {
        0 => format!("process {pid} ({})", shown(command)),
        many => {
            let program = command.split(' ').next().unwrap_or_default();
            let more = if many > PIDS { ", ..." } else { "" };
            format!("{many} processes of {} ({}{more})", shown(program), pids.join(", "))
        }
    }
}

/// Number of processes of a program that are told by id.
const PIDS: usize = 8;

/// The report on one process, with at most `most` locks in the table; `None`: those that matter.
fn text(outcome: &Observed, most: Option<usize>) -> String {
    let mut text = wrapped(&about(outcome)) + "\n";
    let finding = finding::of(outcome);
    text.push_str(&finding::text(&finding));
    let conditions = conditions::text(outcome, finding.of == About::Condition);
    let others: Vec<String> = [own(outcome, finding.of == About::OwnLock), conditions]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    let others = others.join("\n");
    let often = outcome.taken_often.as_ref();
    let often =
        often.map(|often| often::text(often, finding.of == About::Often)).unwrap_or_default();
    let is_elsewhere = finding::is_elsewhere(outcome);
    let mut parts: Vec<String> = Vec::new();
    if !outcome.locks.is_empty() {
        // Of a lock that threads only try to take, the table knows nothing.
        let is_tried = outcome.locks.iter().all(|lock| lock.wait_ns == 0 && lock.contended == 0);
        let mut locks = if is_tried { String::new() } else { table_of(outcome, &finding, most) };
        for (at, lock) in told_locks(outcome, &finding, most) {
            if !locks.is_empty() {
                locks.push('\n');
            }
            locks.push_str(&lock_told(outcome, (at, lock), finding.of == About::Lock(at)));
        }
        parts.push(locks);
    }
    // The lock that threads wait for most comes first.
    parts.insert(if is_elsewhere { 0 } else { parts.len() }, others);
    let at = if finding.of == About::Often { 0 } else { parts.len() };
    parts.insert(at, often);
    parts.extend([sharing(&outcome.false_sharing), uncounted(outcome)]);
    for part in parts.iter().filter(|part| !part.is_empty()) {
        text.push('\n');
        text.push_str(part);
    }
    text
}

/// The process, for how long, and under which lock.
pub(super) fn about(outcome: &Observed) -> String {
    let under = match outcome.lock.as_str() {
        // A process that has counted nothing doesn't say under which lock it ran.
        "" => String::new(),
        GLIBC => " on glibc's locks".to_owned(),
        lock => format!(" under {}", shown(lock)),
    };
    let time = time(outcome.elapsed_ns as f64 / outcome.processes.len().max(1) as f64);
    format!("{}, {time}{under}{}", who(outcome), emulation(outcome))
}

/// The locks that matter, or the first `most`; all others in one row.
fn table_of(outcome: &Observed, finding: &Finding, most: Option<usize>) -> String {
    let mut head = vec!["", "lock"];
    head.extend(COLUMNS.iter().map(|column| column.name));
    let mut drawn = table(&head).least(&["slept", "acquired"]).all_by("--format json");
    right(&mut drawn, 2..head.len());
    let row = |number: String, name: String, lock: &Ranked| {
        let figures = COLUMNS.iter().map(|column| column.shown(lock));
        [number, name].into_iter().chain(figures).collect::<Vec<_>>()
    };
    let (rows, folded) = rows(outcome, finding, most);
    for &(at, lock) in &rows {
        drawn.add_row(row((at + 1).to_string(), shown(&lock.name).into_owned(), lock));
    }
    if !folded.is_empty() {
        let more = match (rows.is_empty(), folded.len()) {
            (false, _) => "more",
            (true, 1) => "lock",
            (true, _) => "locks",
        };
        let is_cut = rows.len() >= most.unwrap_or(ROWS);
        let what = if is_cut { "--top" } else { "leave" };
        let name = format!("{} {more}: {what}", folded.len());
        drawn.add_row(row(String::new(), name, &columns::together(&folded)));
    }
    plain(&drawn)
}

/// The locks with a row of their own, each with its place in the list; and those that share one.
fn rows<'a>(
    outcome: &'a Observed,
    finding: &Finding,
    most: Option<usize>,
) -> (Vec<(usize, &'a Ranked)>, Vec<&'a Ranked>) {
    let all = || outcome.locks.iter().enumerate();
    let mut rows: Vec<(usize, &Ranked)> = match most {
        Some(most) => all().take(most).collect(),
        None if finding.of == About::Nothing => all().take(FEW_ROWS).collect(),
        None => all().filter(|one| is_worth_it(finding, *one)).take(ROWS).collect(),
    };
    let mut folded: Vec<&Ranked> = all()
        .filter(|(at, _)| rows.iter().all(|(row, _)| row != at))
        .map(|(_, lock)| lock)
        .collect();
    // A row of its own takes as much room.
    if let (1, false, None, Some(last)) = (folded.len(), rows.is_empty(), most, folded.last()) {
        let at = all().position(|(_, lock)| std::ptr::eq(lock, *last)).unwrap_or_default();
        rows.push((at, *last));
        rows.sort_by_key(|(at, _)| *at);
        folded.clear();
    }
    (rows, folded)
}

/// Is a lock worth a row? If the report begins with something else, it must come near that.
pub(super) fn is_worth_it(finding: &Finding, (at, lock): (usize, &Ranked)) -> bool {
    let is_its = |lock: &Ranked| {
        matches!(finding.of, About::Lock(_)) || lock.waiting >= MUCH * finding.waiting
    };
    finding.of == About::Lock(at) || finding::matters(lock) && is_its(lock)
}

/// The locks with details.
fn told_locks<'a>(
    outcome: &'a Observed,
    finding: &Finding,
    most: Option<usize>,
) -> Vec<(usize, &'a Ranked)> {
    let (rows, _) = rows(outcome, finding, most);
    let is_much = |lock: &Ranked| lock.waiting >= MUCH * finding.waiting || finding::is_stuck(lock);
    let is_told = |(at, lock): &(usize, &Ranked)| {
        most.is_some()
            || is_worth_it(finding, (*at, lock))
                && (finding.of == About::Lock(*at) || is_much(lock))
    };
    rows.into_iter().filter(is_told).take(TOLD).collect()
}

/// A lock with its advice, unless the report begins with that.
fn lock_told(outcome: &Observed, (at, lock): (usize, &Ranked), is_said: bool) -> String {
    let mut text = told(at + 1, lock);
    if lock.course.iter().any(|&ns| ns > 0) {
        let (signs, most) = signs(&lock.course, outcome.slice_ns, 40);
        text.push_str(&format!("   over time {signs}  peak {most:.2} threads\n"));
    }
    text.push_str(&threads::line(lock));
    if let (Some(total), Some(count)) = (&outcome.events, lock.events) {
        text.push_str(&events(total, count));
    }
    if let Some(advice) = lock.advice.as_ref().filter(|_| !is_said) {
        text.push_str(&beside("   advice    ", &shown(&advice.text)));
        if !advice.command.is_empty() {
            // On one line, so that users can copy it.
            text.push_str(&format!("             {}\n", shown(&advice.command)));
        }
    }
    text
}

/// Locks that share cache lines; empty: none do.
fn sharing(all: &[Suspects]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let names = first.locks.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => "; so do the locks of 1 more cache line".to_owned(),
        more => format!("; so do the locks of {more} more cache lines"),
    };
    let line = format!(
        "{names} share a cache line{more}: taking one slows down users of the others. Separate them: alignas(64)"
    );
    beside("false sharing? ", &line)
}

/// What was not counted.
fn uncounted(outcome: &Observed) -> String {
    let mut text = String::new();
    if let Some(Total { event, unavailable: Some(why), .. }) = &outcome.events {
        text.push_str(&(wrapped(&format!("{}: unavailable: {why}", event.name())) + "\n"));
    }
    text + &lost(outcome)
}

/// Locks that aren't pthread's. `is_said`: the report has begun with the first one's advice.
fn own(outcome: &Observed, is_said: bool) -> String {
    let one = |(at, lock): (usize, &OwnLock)| match is_said && at == 0 {
        true => words::own_without_advice(lock, outcome.threads),
        false => words::own(lock, outcome.threads),
    };
    finding::own_locks(outcome).take(TOLD).enumerate().map(one).collect::<Vec<_>>().join("\n")
}

/// The events in a lock's critical sections; empty: they can't be counted.
pub(super) fn events(total: &Total, events: u64) -> String {
    if total.unavailable.is_some() {
        return String::new();
    }
    let part = 100.0 * events as f64 / total.count.max(1) as f64;
    let events = match total.event {
        Event::CpuClock => time(events as f64),
        Event::CacheMisses | Event::PageFaults => count(events),
    };
    let line = format!(
        "{} in functions that hold it: {events}, {part:.0} % of the program's",
        total.event.name()
    );
    beside("   events    ", &line)
}

/// Details of one lock: its holders, where threads wait, and on which class of core.
pub(crate) fn told(number: usize, lock: &Ranked) -> String {
    let mut text = beside(&format!("{number}. "), &shown(&lock.name));
    if lock.locks > 1 {
        text.push_str(&format!("   {} locks\n", lock.locks));
    }
    match lock.kind {
        LockKind::Semaphore => text.push_str("   a semaphore used as a lock; it stays glibc's\n"),
        LockKind::ReadWrite => text.push_str("   a readers-writer lock\n"),
        LockKind::Spin => text.push_str("   a spin lock, which records no holder\n"),
        LockKind::Mutex | LockKind::Condition => {}
    }
    if lock.unended_ns >= OPEN_NS {
        let line = format!("still waited for at the end, for {}", time(lock.unended_ns as f64));
        text.push_str(&beside("   ", &line));
    }
    text.push_str(&places("   held by   ", &lock.holders, held(lock)));
    if let Some(holding) = lock.holding.as_ref().filter(|holding| holding.samples >= FEW) {
        let line = format!("{}, from {} samples", meanwhile(holding), count(holding.samples));
        text.push_str(&beside("   holders   ", &shown(&line)));
    }
    text.push_str(&places("   waited in ", &lock.waiters, times));
    if let Some(sides) = &lock.beyond.sides {
        text.push_str(&beyond::sides(sides));
    }
    text.push_str(&beyond::tries(lock));
    if lock.wait.count > 0 {
        text.push_str(&beside("   waits     ", &long_waits(&lock.wait)));
    }
    for (class, wait) in lock.wait_by_class.iter().filter(|_| lock.wait_by_class.len() > 1) {
        text.push_str(&beside(&format!("   class {class}   "), &of_class(wait)));
    }
    if let (Some(owners), Some(cores)) = (lock.owner_changes, lock.core_changes) {
        let line = format!(
            "{:.0} % to another thread, {:.0} % to another CPU",
            100.0 * owners,
            100.0 * cores
        );
        text.push_str(&beside("   hand-over ", &line));
    }
    text
}

/// What the figures of a lock's holders mean.
pub(super) fn held(lock: &Ranked) -> fn(&Site) -> String {
    match lock.kind {
        // Readers hold it together.
        LockKind::ReadWrite => words::left_last,
        _ => words::kept_waiting,
    }
}

/// Places of a lock, with who called them.
fn places(verb: &str, sites: &[Site], times: fn(&Site) -> String) -> String {
    let sites = sites.iter().take(PLACES).enumerate();
    let is_shown =
        |(number, site): &(usize, &Site)| site.ns > 0 && (*number == 0 || site.share >= LEAST);
    let line = |(_, site): (usize, &Site)| {
        let place =
            if site.place.is_empty() { String::new() } else { format!(" ({})", site.place) };
        let line = format!(
            "{:.0} % {}{place}{}: {}",
            100.0 * site.share,
            site.function,
            words::callers(&site.function, &site.stack),
            times(site),
        );
        beside(verb, &shown(&line))
    };
    sites.filter(is_shown).map(line).collect()
}

/// Waits on one class of cores.
pub(super) fn of_class(waits: &Percentiles) -> String {
    let [typical, nearly, longest] = [waits.p50_ns, waits.p99_ns, waits.max_ns].map(duration);
    format!("{} waits: P50 {typical}, P99 {nearly}, longest {longest}", count(waits.count))
}

/// In which waits the time went.
pub(super) fn long_waits(of: &Percentiles) -> String {
    let [half, tenth] = [of.half_over_ns, of.tenth_over_ns].map(duration);
    match of.count {
        1 => format!("one, {half}"),
        _ if half == tenth => format!("half of the time went into those of {half} and more"),
        _ => format!(
            "half of the time went into those of {half} and more, a tenth into {tenth} and more"
        ),
    }
}

/// What was not counted; empty if everything was.
pub(super) fn lost(outcome: &Observed) -> String {
    let lost = &outcome.lost;
    let mut text = String::new();
    for (number, what) in [
        (lost.unplaced, "waits found no room and count under \"other locks\""),
        (
            lost.evicted,
            "locks made room for others: their counts are under \"locks that are gone\"",
        ),
        (lost.stacks, "stacks found no room"),
        (lost.memory, "operations were not counted: there was no shared memory"),
    ] {
        if number > 0 {
            text.push_str(&(wrapped(&format!("{} {what}", count(number))) + "\n"));
        }
    }
    if outcome.signals.waits > 0 {
        let Signals { semaphores, waits, wait_ns } = outcome.signals;
        let line = format!(
            "not ranked: {} that are not locks, but signals between threads ({} waits, {})",
            if semaphores == 1 {
                "a semaphore".to_owned()
            } else {
                format!("{semaphores} semaphores")
            },
            count(waits),
            duration(wait_ns)
        );
        text.push_str(&(wrapped(&line) + "\n"));
    }
    if let Some(why) = &outcome.python_unread {
        text.push_str(&(wrapped(&format!("Python's functions are not named: {why}")) + "\n"));
    }
    text
}
