//! RCL's two numbers for each lock, from a record of every critical section: the share of time that threads spend in
//! sections, and how many cache misses a section has.
//!
//! As in the paper's profiler (Lozi et al., *Remote Core Locking*, USENIX ATC 2012), a thread is in a section from the
//! moment when it asks for the lock, so the share is waiting and holding together. The whole is the running time of
//! all threads, each from its first operation on a lock to its last.

use super::counter::Event;
use super::delegate::delegate;
use super::misses::{InSections, Recorded};
use crate::epochs::Origin;
use crate::lock_trace;
use crate::output::{beside, plain, shown, table, wrapped};
use lockwright_calibrate::Delegation;
use lockwright_numbers::format::{count, digits, thousands, time};
use lockwright_stats::trace::Trace;
use serde::Serialize;
use std::collections::BTreeMap;

/// The sections of a program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sections {
    /// The lock in use, as given in `LOCKWRIGHT_LOCK`.
    pub(crate) lock: String,
    /// The emulated machine; `None`: a real one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) emulated: Option<String>,
    /// Running time of all threads, ns, without time in which they had no CPU.
    pub(crate) running_ns: u64,
    /// The share (0 to 1) of it in sections of any lock. A section inside another counts once.
    pub(crate) in_sections: f64,
    /// Recorded sections.
    pub(crate) sections: u64,
    /// Sections for which there was no room; they came last.
    pub(crate) dropped: u64,
    /// The event that was counted in sections.
    pub(crate) event: Event,
    /// Why it was not counted, or not everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unavailable: Option<String>,
    /// The locks, the highest share first.
    pub(crate) locks: Vec<LockSections>,
}

/// The sections of one lock.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LockSections {
    /// The variable, or where it is.
    pub(crate) name: String,
    /// Its process: a command line.
    pub(crate) process: String,
    /// Number of sections.
    pub(crate) sections: u64,
    /// The share (0 to 1) of the threads' running time in which they waited for it.
    pub(crate) waiting: f64,
    /// The share in which they held it.
    pub(crate) holding: f64,
    /// Both together: RCL's measure.
    pub(crate) in_sections: f64,
    /// The events in its sections; `None`: no section was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<InSections>,
    /// Their mean number in a section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events_per_section: Option<f64>,
    /// Whether delegation pays here; empty: nothing to say.
    pub(crate) delegate: String,
}

impl Sections {
    /// The sections of a record. `here` is what was measured on this machine; an emulated one is another.
    pub(crate) fn of(recorded: Recorded, here: Option<&Delegation>) -> Self {
        let Recorded { mut trace, holds, mut misses } = recorded;
        lock_trace::name(&mut trace);
        let events = misses.tell(&holds);
        let unavailable = misses.refused().map(str::to_owned);
        Self::with_events(&trace, &events, misses.event(), unavailable, here)
    }

    fn with_events(
        trace: &Trace,
        events: &BTreeMap<u32, InSections>,
        event: Event,
        unavailable: Option<String>,
        here: Option<&Delegation>,
    ) -> Self {
        let (meta, summary) = (&trace.meta, trace.summary());
        let running_ns = summary.running_ns();
        let part = |ns: u64| ns as f64 / running_ns.max(1) as f64;
        let here = here.filter(|_| meta.emulated.is_none());
        let all = trace.locks.iter().zip(&summary.locks).zip(0..);
        let mut locks: Vec<_> = all
            .map(|((info, lock), number)| {
                let (waiting, holding) = (part(lock.wait.total()), part(lock.hold.total()));
                let in_sections = waiting + holding;
                let events = events.get(&number).copied();
                let process = meta.processes.get(info.process as usize);
                LockSections {
                    name: lock_trace::place(info),
                    process: process.cloned().unwrap_or_default(),
                    sections: lock.acquisitions(),
                    waiting,
                    holding,
                    in_sections,
                    events,
                    events_per_section: events.and_then(|events| events.mean()),
                    delegate: delegate(in_sections, here).unwrap_or_default(),
                }
            })
            .collect();
        locks.sort_by(|one, other| other.in_sections.total_cmp(&one.in_sections));
        Self {
            lock: meta.lock.clone(),
            emulated: meta.emulated.clone(),
            running_ns,
            in_sections: part(summary.in_sections_ns),
            sections: trace.acquisitions(),
            dropped: meta.dropped,
            event,
            unavailable,
            locks,
        }
    }

    /// As text, with at most `most` locks.
    pub(crate) fn text(&self, most: usize) -> String {
        if self.sections == 0 {
            return "critical sections: none was recorded\n".to_owned();
        }
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut text = wrapped(&format!(
            "critical sections, {} recorded under {}: {} of the {} that all threads ran, from the request to the release; {}",
            thousands(self.sections),
            shown(&self.lock),
            percent(self.in_sections),
            time(self.running_ns as f64),
            Origin(self.emulated.as_deref()),
        ));
        let name = self.event.words();
        let mut drawn = table(&["lock", "sections", "waiting", "holding", "both", &name])
            .least(&["sections"])
            .all_by("--format json");
        for lock in self.locks.iter().take(most) {
            drawn.add_row([
                lock.name.clone(),
                thousands(lock.sections),
                percent(lock.waiting),
                percent(lock.holding),
                percent(lock.in_sections),
                lock.events_per_section.map_or("-".to_owned(), |mean| match self.event {
                    Event::CpuClock => time(mean),
                    Event::CacheMisses | Event::PageFaults => digits(mean),
                }),
            ]);
        }
        text += &format!("\n\n{}", plain(&drawn));
        if self.locks.len() > most {
            text += &format!("{} more: --top {}\n", self.locks.len() - most, self.locks.len());
        }
        text += &(wrapped(&format!("{name}: {}", self.how_counted())) + "\n");
        if self.dropped > 0 {
            let dropped = thousands(self.dropped);
            let line = format!("not recorded, at the end: {dropped} sections, for lack of room");
            text += &(wrapped(&line) + "\n");
        }
        for lock in self.locks.iter().take(most).filter(|lock| !lock.delegate.is_empty()) {
            text += &beside(&format!("{}: ", lock.name), &shown(&lock.delegate));
        }
        text
    }

    /// In how many sections the event was counted, and by how many samples; or why not.
    fn how_counted(&self) -> String {
        let events = || self.locks.iter().filter_map(|lock| lock.events);
        let watched: u64 = events().map(|events| events.sections).sum();
        let samples: u64 = events().map(|events| events.samples).sum();
        match (&self.unavailable, watched) {
            (Some(why), 0) => format!("not counted: {why}"),
            (None, 0) => "not counted: each section began within 20 ms of its thread".to_owned(),
            (why, _) => {
                let end =
                    why.as_ref().map_or_else(String::new, |why| format!("; then no more: {why}"));
                format!(
                    "the mean of a section, counted in {} of them, by {} samples{end}",
                    match watched == self.sections {
                        true => "all".to_owned(),
                        false => format!("{:.0} %", 100.0 * watched as f64 / self.sections as f64),
                    },
                    count(samples)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::WIDTH;
    use lockwright_stats::trace::{LockInfo, Meta, Step, TraceThread};

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
        Sections::with_events(&trace(), &events, Event::CacheMisses, why.map(str::to_owned), None)
    }

    #[test]
    fn shares_are_of_the_running_time_of_all_threads() {
        let made = sections(&[], None);
        let [first, second] = &made.locks[..] else { panic!("{made:?}") };
        assert_eq!((made.running_ns, made.in_sections), (400, 0.25), "the inner one counts once");
        assert_eq!((first.name.as_str(), first.sections), ("0xa0", 1));
        assert_eq!((first.waiting, first.holding, first.in_sections), (0.1, 0.15, 0.25));
        assert_eq!((second.sections, second.waiting, second.holding), (2, 0.0, 0.05));
        assert!(!first.delegate.is_empty() && second.delegate.is_empty(), "{made:?}");
    }

    #[test]
    fn what_was_not_counted_is_said() {
        let why = "the kernel lets us count none: sudo sysctl kernel.perf_event_paranoid=2";
        let says = |events: &[(u32, InSections)], why| {
            let text = sections(events, why).text(10);
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
            let made = Sections::with_events(trace, &none, Event::CacheMisses, None, Some(&here));
            made.locks[0].delegate.clone()
        };
        let mut trace = trace();
        assert!(says(&trace).starts_with("delegate this one"));
        trace.meta.emulated = Some("big:0,little:1x3".into());
        assert!(says(&trace).starts_with("on the RCL authors' machine"));
    }
}
