//! Critical sections as text, and whether to delegate them.

use super::delegate::delegate;
use crate::epochs::Origin;
use crate::output::{beside, plain, shown, table, wrapped};
use lockwright_calibrate::Delegation;
use lockwright_numbers::format::{count, digits, thousands, time};
use lockwright_observer::counts::counter::Event;
use lockwright_observer::counts::sections::Sections;

/// With a word on delegation for each lock. `here` is what was measured on this machine; an emulated one is another.
pub(crate) fn advised(mut all: Sections, here: Option<&Delegation>) -> Sections {
    let here = here.filter(|_| all.emulated.is_none());
    for lock in &mut all.locks {
        lock.delegate = delegate(lock.in_sections, here).unwrap_or_default();
    }
    all
}

/// As text, with at most `most` locks.
pub(crate) fn text(all: &Sections, most: usize) -> String {
    if all.sections == 0 {
        return "critical sections: none was recorded\n".to_owned();
    }
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut text = wrapped(&format!(
        "critical sections, {} recorded under {}: {} of the {} that all threads ran, from the request to the release; {}",
        thousands(all.sections),
        shown(&all.lock),
        percent(all.in_sections),
        time(all.running_ns as f64),
        Origin(all.emulated.as_deref()),
    ));
    let name = all.event.words();
    let mut drawn = table(&["lock", "sections", "waiting", "holding", "both", &name])
        .least(&["sections"])
        .all_by("--format json");
    for lock in all.locks.iter().take(most) {
        drawn.add_row([
            lock.name.clone(),
            thousands(lock.sections),
            percent(lock.waiting),
            percent(lock.holding),
            percent(lock.in_sections),
            lock.events_per_section.map_or("-".to_owned(), |mean| match all.event {
                Event::CpuClock => time(mean),
                Event::CacheMisses | Event::PageFaults => digits(mean),
            }),
        ]);
    }
    text += &format!("\n\n{}", plain(&drawn));
    if all.locks.len() > most {
        text += &format!("{} more: --top {}\n", all.locks.len() - most, all.locks.len());
    }
    text += &(wrapped(&format!("{name}: {}", how_counted(all))) + "\n");
    if all.dropped > 0 {
        let dropped = thousands(all.dropped);
        let line = format!("not recorded, at the end: {dropped} sections, for lack of room");
        text += &(wrapped(&line) + "\n");
    }
    for lock in all.locks.iter().take(most).filter(|lock| !lock.delegate.is_empty()) {
        text += &beside(&format!("{}: ", lock.name), &shown(&lock.delegate));
    }
    text
}

/// In how many sections the event was counted, and by how many samples; or why not.
fn how_counted(all: &Sections) -> String {
    let events = || all.locks.iter().filter_map(|lock| lock.events);
    let watched: u64 = events().map(|events| events.sections).sum();
    let samples: u64 = events().map(|events| events.samples).sum();
    match (&all.unavailable, watched) {
        (Some(why), 0) => format!("not counted: {why}"),
        (None, 0) => "not counted: each section began within 20 ms of its thread".to_owned(),
        (why, _) => {
            let end = why.as_ref().map_or_else(String::new, |why| format!("; then no more: {why}"));
            format!(
                "the mean of a section, counted in {} of them, by {} samples{end}",
                match watched == all.sections {
                    true => "all".to_owned(),
                    false => format!("{:.0} %", 100.0 * watched as f64 / all.sections as f64),
                },
                count(samples)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::WIDTH;
    use lockwright_observer::counts::misses::InSections;
    use lockwright_stats::trace::{LockInfo, Meta, Step, Trace, TraceThread};
    use std::collections::BTreeMap;

    /// Two threads, 200 ns each: one waits 40 ns for lock 0 and holds it for 60, and holds lock 1 for 20 of these.
    fn trace() -> Trace {
        let take = |lock, wait_ns| Step::Acquire { lock, wait_ns };
        let (first, second) = (
            vec![
                take(0, 40),
                Step::Compute(40),
                take(1, 0),
                Step::Compute(20),
                Step::Release(1),
                Step::Release(0),
                Step::Compute(100),
            ],
            vec![take(1, 0), Step::Release(1), Step::Idle(200)],
        );
        let thread = |steps| TraceThread { steps, ..TraceThread::default() };
        let info = |address| LockInfo { address, ..LockInfo::default() };
        let meta =
            Meta { processes: vec!["./server".into()], lock: "auto".into(), ..Meta::default() };
        let threads = vec![thread(first), thread(second)];
        Trace { meta, locks: vec![info(0xa0), info(0xb0)], threads }
    }

    fn sections(events: &[(u32, InSections)], why: Option<&str>) -> Sections {
        let events = events.iter().copied().collect();
        let why = why.map(str::to_owned);
        advised(Sections::with_events(&trace(), &events, Event::CacheMisses, why), None)
    }

    #[test]
    fn one_of_two_locks_is_worth_delegating() {
        let made = sections(&[], None);
        let [first, second] = &made.locks[..] else { panic!("{made:?}") };
        assert!(!first.delegate.is_empty() && second.delegate.is_empty(), "{made:?}");
    }

    #[test]
    fn what_was_not_counted_is_said() {
        let why = "the kernel lets us count none: sudo sysctl kernel.perf_event_paranoid=2";
        let says = |events: &[(u32, InSections)], why| {
            let text = text(&sections(events, why), 10);
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            text
        };
        let text = says(&[], Some(why));
        assert!(
            text.contains("\ncache misses: not counted: the kernel lets us count none"),
            "{text}"
        );
        let some = InSections { sections: 1, events: 5, samples: 2 };
        let text = says(&[(1, some)], None);
        assert!(
            text.contains(
                "\ncache misses: the mean of a section, counted in 33 % of them, by 2 samples"
            ),
            "{text}"
        );
        let row = text.lines().find(|line| line.starts_with("0xb0")).unwrap();
        assert!(row.ends_with("5.00"), "{text}");
        let row = text.lines().find(|line| line.starts_with("0xa0")).unwrap();
        assert!(row.ends_with('-'), "{text}");
    }

    #[test]
    fn an_emulated_machine_is_not_this_one() {
        let here =
            Delegation { threads: 2, lines: 1, up_to: 0.9, over_glibc: Some(0.1), over_all: None };
        let says = |trace: &Trace| {
            let none = BTreeMap::new();
            let made = Sections::with_events(trace, &none, Event::CacheMisses, None);
            advised(made, Some(&here)).locks[0].delegate.clone()
        };
        let mut trace = trace();
        assert!(says(&trace).starts_with("delegate this one"));
        trace.meta.emulated = Some("big:0,little:1x3".into());
        assert!(says(&trace).starts_with("on the RCL authors' machine"));
    }
}
