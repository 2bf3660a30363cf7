//! An outcome as text.

use super::beyond::{self, PLACES};
use super::timeline::signs;
use super::{conditions, often, threads};
use crate::output::{beside, plain, shown, table};
use crate::profile::words::{self, FEW, duration, meanwhile, times};
use lockwright_numbers::format::{count, time};
use lockwright_observer::counts::counter::Event;
use lockwright_observer::counts::observation::Advice;
use lockwright_observer::counts::observation::Total;
use lockwright_observer::counts::observation::{Observed, Percentiles, Ranked, Site};
use lockwright_observer::counts::snapshot::{LockKind, Signals};
use lockwright_observer::findings::OwnLock;
use lockwright_observer::sampler::family::MOST;
use lockwright_observer::sampler::outcome::Folded;
use lockwright_text::wrapped;

/// Number of locks with details.
const TOLD: usize = 5;
/// A wait that is open at the end is ordinary contention if it has taken less, ns.
pub(super) const OPEN_NS: u64 = 10_000_000;

/// Fewer threads than this, on average, are noise.
const NOISE: f64 = 0.01;

/// What a report that names no lock can't exclude.
pub(super) fn unwatched(looks: &Looks) -> String {
    let spins = "not watched: locks whose waiters only spin, and those of fibers and goroutines. Waits for locks of the program's own \
        (futexes), file locks (flock) and C++'s initialisation of static variables aren't told from waits for work";
    let mut text = match &looks.running_unseen {
        None => spins.to_owned(),
        Some(why) => format!("{spins}; and {}", running_unwatched(why)),
    };
    if looks.is_crowded {
        text += &format!("; and {}", crowd());
    }
    text
}

/// What isn't known where too many processes run.
pub(super) fn crowd() -> String {
    format!("processes beyond the first {MOST} that ran at a time, by samples")
}

/// What isn't known where the kernel samples no running threads.
pub(crate) fn running_unwatched(why: &str) -> String {
    format!(
        "locks that are taken too often without waiting, since the kernel samples no running threads for us ({why}): \
         it may if kernel.perf_event_paranoid is 2 or less, and no seccomp filter refuses perf_event_open"
    )
}

/// What looks at threads have told, besides the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    /// How often threads were looked at.
    pub(crate) count: u64,
    /// Threads have waited for long, and still do: the report begins with them.
    pub(crate) some_wait: bool,
    /// Why running threads couldn't be sampled.
    pub(crate) running_unseen: Option<String>,
    /// More processes ran at a time than are sampled.
    pub(crate) is_crowded: bool,
}

/// What is said if no wait was counted.
pub(crate) fn nobody(looks: &Looks) -> String {
    if looks.some_wait {
        return "no wait has ended in that time, so none is counted: who waits is told above"
            .to_owned();
    }
    let sampled = match looks.count {
        0 => "threads weren't looked at for waits of other kinds".to_owned(),
        many => format!(
            "in {} looks no thread slept for a lock of another kind that this command knows",
            count(many)
        ),
    };
    format!(
        "no thread had to wait for a mutex, a readers-writer lock, a spin lock or a semaphore that is a lock, and no trylock failed, as far as its \
         processes could count; a process that couldn't has said so on its standard error. Besides, {sampled}"
    )
}

/// The reports on all processes in which threads waited.
pub(crate) fn all(outcomes: &[Observed], looks: &Looks, most: usize) -> String {
    let busy: Vec<_> = outcomes.iter().filter(|outcome| has_waits(outcome)).collect();
    if busy.is_empty() {
        let events: Vec<String> =
            outcomes.iter().map(conditions::text).filter(|text| !text.is_empty()).collect();
        let often = taken_often(outcomes);
        let often = if often.is_empty() { often } else { format!("\n{often}\n") };
        return wrapped(&nobody(looks))
            + "\n"
            + &often
            + &wrapped(&unwatched(looks))
            + "\n"
            + &events.concat();
    }
    let mut text = String::new();
    for outcome in &busy {
        text.push_str(&self::text(outcome, most));
        text.push('\n');
    }
    let others = outcomes.iter().filter(|outcome| !has_waits(outcome));
    let often = taken_often(others);
    if !often.is_empty() {
        text.push_str(&often);
        text.push('\n');
    }
    if let Some(why) = &looks.running_unseen {
        text.push_str(&(wrapped(&format!("not watched: {}", running_unwatched(why))) + "\n\n"));
    }
    if looks.is_crowded {
        text.push_str(&(wrapped(&format!("not watched: {}", crowd())) + "\n\n"));
    }
    if busy.iter().all(|outcome| outcome.locks.is_empty()) {
        return text; // no table
    }
    text.push_str(&wrapped(
        "blocked: share of the time in which a thread waited and a holder was to blame (far too low where waits are \
         short); waiting: threads that waited, on average; P50 to max: waits; hold: hold times of threads that had waited.",
    ));
    text + "\n"
}

/// Locks that are taken often in processes in which nobody waits, each with its process.
fn taken_often<'a>(outcomes: impl IntoIterator<Item = &'a Observed>) -> String {
    let one = |outcome: &Observed| {
        let text = often::text(outcome.taken_often.as_ref()?);
        (!text.is_empty()).then(|| wrapped(&who(outcome)) + "\n" + &text)
    };
    outcomes.into_iter().filter_map(one).collect::<Vec<_>>().join("\n")
}

/// Did threads of this process wait for any lock?
pub(super) fn has_waits(outcome: &Observed) -> bool {
    !outcome.locks.is_empty()
        || own_locks(outcome).next().is_some()
        || conditions::told(outcome).next().is_some()
}

/// Its locks that aren't pthread's, without those that hardly anybody waits for.
pub(super) fn own_locks(outcome: &Observed) -> impl Iterator<Item = &OwnLock> {
    outcome.own_locks.iter().filter(|lock| lock.waiting >= NOISE)
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
        0 => format!("{pid} ({})", shown(command)),
        many => {
            let program = command.split(' ').next().unwrap_or_default();
            let more = if many > PIDS { ", ..." } else { "" };
            format!("{many} processes of {} ({}{more})", shown(program), pids.join(", "))
        }
    }
}

/// Number of processes of a program that are told by id.
const PIDS: usize = 8;

/// The report on one process, with at most `most` locks in the table.
fn text(outcome: &Observed, most: usize) -> String {
    let mut text = String::new();
    // A process that has counted nothing doesn't say under which lock it ran.
    let under = match outcome.lock.as_str() {
        "" => String::new(),
        lock => format!(" under {}", shown(lock)),
    };
    let about = format!(
        "{}: {}{under}{}",
        who(outcome),
        time(outcome.elapsed_ns as f64 / outcome.processes.len().max(1) as f64),
        emulation(outcome),
    );
    text.push_str(&(wrapped(&about) + "\n"));
    text.push('\n');
    let conditions = conditions::text(outcome);
    let often = outcome.taken_often.as_ref().map(often::text).unwrap_or_default();
    let others: Vec<String> =
        [own(outcome), conditions].into_iter().filter(|text| !text.is_empty()).collect();
    let others = others.join("\n");
    // The lock that threads wait for most comes first.
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    let counted = outcome.locks.first().map_or(0.0, |lock| lock.wait_ns as f64 / elapsed);
    let sampled = own_locks(outcome).next().map_or(0.0, |lock| lock.waiting);
    let is_first = sampled.max(conditions::waiting(outcome)) > counted;
    if outcome.locks.is_empty() {
        text.push_str(&others);
        if !often.is_empty() {
            text.push('\n');
            text.push_str(&often);
        }
        return text;
    }
    if is_first {
        text.push_str(&others);
        text.push('\n');
    }
    let mut drawn = table(&[
        "", "blocked", "waiting", "waits", "slept", "P50", "P99", "P99.9", "max", "hold P50",
    ])
    .least(&["hold P50", "P99.9", "slept", "max", "P50"])
    .all_by("--format json");
    for (number, lock) in outcome.locks.iter().take(most).enumerate() {
        // A quiet lock has few waits. Perhaps none of them was timed.
        let timed = |ns| if lock.wait.count == 0 { "-".to_owned() } else { duration(ns) };
        drawn.add_row([
            format!("{}", number + 1),
            format!("{:.1} %", 100.0 * lock.blocked_ns as f64 / elapsed),
            format!("{:.2}", lock.wait_ns as f64 / elapsed),
            count(lock.contended),
            format!("{:.0} %", 100.0 * lock.slept as f64 / lock.contended.max(1) as f64),
            timed(lock.wait.p50_ns),
            timed(lock.wait.p99_ns),
            timed(lock.wait.p999_ns),
            timed(lock.wait.max_ns),
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
        if let (Some(total), Some(count)) = (&outcome.events, lock.events) {
            text.push_str(&events(total, count));
        }
        if let Some(advice) = &lock.advice {
            if advice.in_sections >= 0.001 {
                text.push_str(&beside("   sections  ", &sections(advice)));
            }
            text.push_str(&beside("   advice    ", &shown(&advice.text)));
            if !advice.note.is_empty() {
                text.push_str(&beside("             ", &shown(&advice.note)));
            }
            if !advice.command.is_empty() {
                // On one line, so that users can copy it.
                text.push_str(&format!("             {}\n", shown(&advice.command)));
            }
        }
    }
    if outcome.locks.len() > most {
        let more = match outcome.locks.len() - most {
            1 => "1 more lock".to_owned(),
            more => format!("{more} more locks"),
        };
        text.push_str(&format!("\n{more}: --top {}\n", outcome.locks.len()));
    }
    if !is_first && !others.is_empty() {
        text.push('\n');
        text.push_str(&others);
    }
    if !often.is_empty() {
        text.push('\n');
        text.push_str(&often);
    }
    text.push_str(&threads::text(outcome, most));
    for suspects in outcome.false_sharing.iter().take(TOLD) {
        let line = format!(
            "{} share a cache line: taking one slows down users of the others. Separate them: alignas(64)",
            suspects.locks.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
        );
        text.push('\n');
        text.push_str(&beside("false sharing? ", &line));
    }
    if let Some(Total { event, unavailable: Some(why), .. }) = &outcome.events {
        text.push_str(&(wrapped(&format!("{}: unavailable: {why}", event.name())) + "\n"));
    }
    text.push_str(&lost(outcome));
    text
}

/// Locks that aren't pthread's.
fn own(outcome: &Observed) -> String {
    let all: Vec<String> =
        own_locks(outcome).take(TOLD).map(|lock| words::own(lock, outcome.threads)).collect();
    all.join("\n")
}

/// The share of time in a lock's critical sections.
pub(super) fn sections(advice: &Advice) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    format!(
        "at least {} of its threads' time: {} waiting, {} holding it after a wait. Other holds aren't timed, unless by --sections",
        percent(advice.in_sections),
        percent(advice.waiting),
        percent(advice.holding)
    )
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
    let mut places = |verb: &str, sites: &[Site]| {
        for site in sites.iter().take(PLACES).filter(|site| site.ns > 0) {
            let place =
                if site.place.is_empty() { String::new() } else { format!(" ({})", site.place) };
            let line = format!(
                "{:.0} % {}{}: {}",
                100.0 * site.share,
                shown(&site.function),
                shown(&place),
                times(site),
            );
            text.push_str(&beside(verb, &line));
        }
    };
    places("   held by   ", &lock.holders);
    places("   waited in ", &lock.waiters);
    if let Some(sides) = &lock.beyond.sides {
        text.push_str(&beyond::sides(sides));
    }
    text.push_str(&beyond::tries(lock));
    if let Some(holding) = lock.holding.as_ref().filter(|holding| holding.samples >= FEW) {
        let line = format!("{}, by {} samples", meanwhile(holding), count(holding.samples));
        text.push_str(&beside("   holders   ", &shown(&line)));
    }
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

pub(super) fn percentiles(of: &Percentiles) -> String {
    format!(
        "{} waits: P50 {}, P99 {}, P99.9 {}, max {}",
        count(of.count),
        duration(of.p50_ns),
        duration(of.p99_ns),
        duration(of.p999_ns),
        duration(of.max_ns)
    )
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
