//! Condition variables: which of them is a lock in disguise, and which broadcasts in vain. Waits for work are no contention.

use crate::output::{beside, shown};
use crate::profile::words::{called, duration, times};
use lockwright_numbers::format::count;
use lockwright_observer::counts::beyond::Wakes;
use lockwright_observer::counts::observation::{Observed, Ranked, Site};
use lockwright_text::wrapped;

/// Fewer calls that wake say nothing.
const CALLS: u64 = 10;
/// Fewer woken threads aren't worth a word.
const WOKEN: u64 = 50;
/// Fewer wake-ups in vain per second aren't, either.
const WASTED: f64 = 20.0;
/// Nor is one for which fewer threads wait on average.
const LITTLE: f64 = 0.05;
/// Maximum number of condition variables with details.
const TOLD: usize = 3;
/// Number of places shown for each.
const PLACES: usize = 3;

/// Condition variables that are told with details, the one with the most waiting first.
pub(super) fn told(outcome: &Observed) -> impl Iterator<Item = (&Ranked, &Wakes)> {
    let with_wakes =
        outcome.conditions.iter().filter_map(|one| Some((one, one.beyond.wakes.as_ref()?)));
    // A few wake-ups cost nothing that anybody would notice.
    let per_second = |wakes: &Wakes| wakes.wasted as f64 * 1e9 / outcome.elapsed_ns.max(1) as f64;
    let is_herd = move |one: &Ranked, wakes: &Wakes| {
        is_wasteful(wakes) && per_second(wakes) >= WASTED && one.waiting >= LITTLE
    };
    with_wakes.filter(move |(one, wakes)| acts_as_lock(wakes) || is_herd(one, wakes))
}

/// Do threads signal it that have waited for it, as a lock's holders do? Who signals a queue seldom waits for work.
pub(super) fn acts_as_lock(wakes: &Wakes) -> bool {
    let calls = wakes.signals + wakes.broadcasts;
    calls >= CALLS && 10 * wakes.by_waiters >= 8 * calls && !lets_several_on(wakes)
}

/// Do calls let more than one thread on at a time, as a barrier does? Of a lock, one at most gets on; but counts of a process that ends, or
/// that is read while it runs, may lack a few calls.
fn lets_several_on(wakes: &Wakes) -> bool {
    let by_broadcasts = wakes.woken.saturating_sub(wakes.signals);
    by_broadcasts > wakes.broadcasts
        && 2 * wakes.got_on > wakes.woken
        && 10 * wakes.got_on > 11 * (wakes.signals + wakes.broadcasts)
}

/// Did broadcasts wake threads most of which only waited again? A thread that a signal wakes may do its work before it leaves the mutex, so that
/// its next wait says nothing.
fn is_wasteful(wakes: &Wakes) -> bool {
    wakes.broadcasts > wakes.signals && wakes.woken >= WOKEN && 2 * wakes.wasted >= wakes.woken
}

/// What to do about it, in one line.
pub(super) fn advice(condition: &Ranked, wakes: &Wakes) -> String {
    let part = in_vain(wakes);
    // Who wakes the next one has held what the condition variable stands for.
    let holder = condition.holders.first().map_or_else(|| "its sections".to_owned(), called);
    match (acts_as_lock(wakes), is_wasteful(wakes)) {
        (true, true) => format!(
            "do less in {holder} with this lock, and make it a mutex: a mutex and a condition variable are slower, and {part} of the wake-ups are \
             in vain"
        ),
        (true, false) => format!(
            "do less in {holder} with this lock, and make it a mutex: a mutex and a condition variable are slower"
        ),
        _ => {
            format!(
                "signal one waiter instead of broadcasting to all: {part} of the wake-ups were in vain"
            )
        }
    }
}

/// What a report begins with.
pub(super) fn finding(condition: &Ranked, wakes: &Wakes) -> String {
    let Ranked { name, waiting, .. } = condition;
    match acts_as_lock(wakes) {
        true => format!(
            "{name}, a condition variable that acts as a lock: {waiting:.1} threads waited on average"
        ),
        false => format!(
            "{name}, a condition variable that woke {} threads, {} of them in vain",
            count(wakes.woken),
            in_vain(wakes)
        ),
    }
}

/// What was found about one of them, in one line.
pub(super) fn brief(condition: &Ranked, wakes: &Wakes) -> String {
    let is_lock = format!("acts as a lock: {:.1} threads waited", condition.waiting);
    let part = in_vain(wakes);
    let found = match (acts_as_lock(wakes), is_wasteful(wakes)) {
        (true, true) => format!("{is_lock}; {part} woken in vain"),
        (true, false) => is_lock,
        _ => format!("woke {} threads, {part} of them in vain", count(wakes.woken)),
    };
    format!("condition {} {found}", condition.name)
}

/// The share of wake-ups that were of no use.
fn in_vain(wakes: &Wakes) -> String {
    format!("{:.0} %", 100.0 * wakes.wasted as f64 / wakes.woken.max(1) as f64)
}

/// One of them.
pub(super) fn one(condition: &Ranked, wakes: &Wakes) -> String {
    without_advice(condition, wakes) + &beside("   advice    ", &advice(condition, wakes))
}

/// The same, for a report that has begun with the advice.
fn without_advice(condition: &Ranked, wakes: &Wakes) -> String {
    let what = if acts_as_lock(wakes) {
        "a condition variable that acts as a lock"
    } else {
        "a condition variable"
    };
    let waiting = condition.waiting;
    let head = format!("{}, {what}: {waiting:.1} threads waited on average", condition.name);
    let mut text = beside("*  ", &shown(&head));
    let mut places = |verb: &str, sites: &[Site]| {
        for site in sites.iter().take(PLACES).filter(|site| site.count > 0) {
            let place = match site.place.as_str() {
                "" => site.function.clone(),
                place => format!("{} ({place})", site.function),
            };
            let line = format!("{:.0} % of the time: {place}, {}", 100.0 * site.share, times(site));
            text += &beside(verb, &shown(&line));
        }
    };
    places("   waited in ", &condition.waiters);
    places("   woken by  ", &condition.holders);
    let line = format!(
        "{} by {} signals and {} broadcasts: {} threads went on, {} waited again at once",
        count(wakes.woken),
        count(wakes.signals),
        count(wakes.broadcasts),
        count(wakes.got_on),
        count(wakes.wasted)
    );
    text + &beside("   wake-ups  ", &line)
}

/// All of them: those with details, and the others in a line; empty: no thread waited for one.
/// `is_said`: the report has begun with the first one's advice.
pub(super) fn text(outcome: &Observed, is_said: bool) -> String {
    let mut all: Vec<String> = told(outcome)
        .take(TOLD)
        .enumerate()
        .map(|(at, (one_of, wakes))| match is_said && at == 0 {
            true => without_advice(one_of, wakes),
            false => one(one_of, wakes),
        })
        .collect();
    all.extend(others(outcome).map(|line| wrapped(&line) + "\n"));
    all.join("\n")
}

/// Those that act as locks.
pub(super) fn locks(outcome: &Observed) -> impl Iterator<Item = &Ranked> {
    told(outcome).filter(|(_, wakes)| acts_as_lock(wakes)).map(|(one, _)| one)
}

/// Those without details, in one line; `None`: there are none.
pub(super) fn others(outcome: &Observed) -> Option<String> {
    let named: Vec<u64> = told(outcome).take(TOLD).map(|(one, _)| one.address).collect();
    let others: Vec<&Ranked> =
        outcome.conditions.iter().filter(|one| !named.contains(&one.address)).collect();
    (!others.is_empty()).then(|| {
        format!(
            "not ranked: {}, for events and not for locks ({} waits, {})",
            match others.len() {
                1 => "a condition variable".to_owned(),
                many => format!("{many} condition variables"),
            },
            count(others.iter().map(|one| one.contended).sum()),
            duration(others.iter().map(|one| one.wait_ns).sum())
        )
    })
}

/// How many threads waited on average for the first one that acts as a lock; 0: none does.
pub(super) fn waiting(outcome: &Observed) -> f64 {
    locks(outcome).map(|one| one.waiting).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wakes(signals: u64, broadcasts: u64, by_waiters: u64, got_on: u64, wasted: u64) -> Wakes {
        let woken = got_on + wasted;
        Wakes { signals, broadcasts, by_waiters, woken, got_on, wasted, ..Wakes::default() }
    }

    #[test]
    fn a_lock_in_disguise_is_told_from_a_queue() {
        let fair = wakes(0, 1000, 990, 400, 600);
        assert!(acts_as_lock(&fair) && is_wasteful(&fair));
        assert!(advice(&Ranked::default(), &fair).contains("60 % of the wake-ups are in vain"));
        let queue = wakes(1000, 0, 0, 990, 10);
        assert!(!acts_as_lock(&queue) && !is_wasteful(&queue));
        let herd = wakes(0, 100, 0, 100, 700);
        assert!(!acts_as_lock(&herd) && is_wasteful(&herd));
        assert!(
            advice(&Ranked::default(), &herd).starts_with("signal one waiter")
                && advice(&Ranked::default(), &herd).contains("88 %")
        );
        assert!(!acts_as_lock(&wakes(3, 0, 3, 3, 0)) && !is_wasteful(&wakes(0, 3, 0, 1, 9)));
        // A lock for three threads: its broadcasts wake two now and then, of whom one gets on.
        assert!(acts_as_lock(&wakes(0, 1000, 1000, 990, 500)));
        // Its process ended between a wake-up and the count of the call that woke.
        assert!(acts_as_lock(&wakes(0, 501, 500, 502, 456)));
    }

    #[test]
    fn a_barrier_is_no_lock() {
        // Four threads, of whom the last one wakes three.
        let barrier = wakes(0, 200, 198, 590, 10);
        assert!(!acts_as_lock(&barrier) && !is_wasteful(&barrier));
    }

    /// Its consumer works before it leaves the mutex.
    #[test]
    fn threads_that_signals_woke_were_not_woken_in_vain() {
        let queue = wakes(400, 0, 0, 0, 400);
        assert!(!acts_as_lock(&queue) && !is_wasteful(&queue));
        assert!(!is_wasteful(&wakes(400, 10, 0, 10, 400)));
    }
}
