//! RCL's two numbers for each lock, from a record of every critical section: the share of time that threads spend in
//! sections, and how many cache misses a section has.
//!
//! As in the paper's profiler (Lozi et al., *Remote Core Locking*, USENIX ATC 2012), a thread is in a section from the
//! moment when it asks for the lock, so the share is waiting and holding together. The whole is the running time of
//! all threads, each from its first operation on a lock to its last.

use super::counter::Event;
use super::misses::{InSections, Recorded};
use crate::traced;
use lockwright_stats::trace::Trace;
use serde::Serialize;
use std::collections::BTreeMap;

/// The sections of a program.
#[derive(Clone, Debug, Serialize)]
pub struct Sections {
    /// The lock in use, as given in `LOCKWRIGHT_LOCK`.
    pub lock: String,
    /// The emulated machine; `None`: a real one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Running time of all threads, ns, without time in which they had no CPU.
    pub running_ns: u64,
    /// The share (0 to 1) of it in sections of any lock. A section inside another counts once.
    pub in_sections: f64,
    /// Recorded sections.
    pub sections: u64,
    /// Sections for which there was no room; they came last.
    pub dropped: u64,
    /// The event that was counted in sections.
    pub event: Event,
    /// Why it was not counted, or not everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The locks, the highest share first.
    pub locks: Vec<LockSections>,
}

/// The sections of one lock.
#[derive(Clone, Debug, Serialize)]
pub struct LockSections {
    /// The variable, or where it is.
    pub name: String,
    /// Its process: a command line.
    pub process: String,
    /// Number of sections.
    pub sections: u64,
    /// The share (0 to 1) of the threads' running time in which they waited for it.
    pub waiting: f64,
    /// The share in which they held it.
    pub holding: f64,
    /// Both together: RCL's measure.
    pub in_sections: f64,
    /// The events in its sections; `None`: no section was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<InSections>,
    /// Their mean number in a section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_section: Option<f64>,
    /// Whether delegation pays here; empty: nothing to say. That depends on the machine, so who knows it fills this in.
    pub delegate: String,
}

impl Sections {
    /// The sections of a record.
    pub fn of(recorded: Recorded) -> Self {
        let Recorded { mut trace, holds, mut misses } = recorded;
        traced::name(&mut trace);
        let events = misses.tell(&holds);
        let unavailable = misses.refused().map(str::to_owned);
        Self::with_events(&trace, &events, misses.event(), unavailable)
    }

    /// The sections of a trace in which locks have names. `events` are those counted in each lock's sections, by its number;
    /// `unavailable`: why not everywhere.
    pub fn with_events(
        trace: &Trace,
        events: &BTreeMap<u32, InSections>,
        event: Event,
        unavailable: Option<String>,
    ) -> Self {
        let (meta, summary) = (&trace.meta, trace.summary());
        let running_ns = summary.running_ns();
        let part = |ns: u64| ns as f64 / running_ns.max(1) as f64;
        let all = trace.locks.iter().zip(&summary.locks).zip(0..);
        let mut locks: Vec<_> = all
            .map(|((info, lock), number)| {
                let (waiting, holding) = (part(lock.wait.total()), part(lock.hold.total()));
                let in_sections = waiting + holding;
                let events = events.get(&number).copied();
                let process = meta.processes.get(info.process as usize);
                LockSections {
                    name: traced::place(info),
                    process: process.cloned().unwrap_or_default(),
                    sections: lock.acquisitions(),
                    waiting,
                    holding,
                    in_sections,
                    events,
                    events_per_section: events.and_then(|events| events.mean()),
                    delegate: String::new(),
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
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn shares_are_of_the_running_time_of_all_threads() {
        let made = Sections::with_events(&trace(), &BTreeMap::new(), Event::CacheMisses, None);
        let [first, second] = &made.locks[..] else { panic!("{made:?}") };
        assert_eq!((made.running_ns, made.in_sections), (400, 0.25), "the inner one counts once");
        assert_eq!((first.name.as_str(), first.sections), ("0xa0", 1));
        assert_eq!((first.waiting, first.holding, first.in_sections), (0.1, 0.15, 0.25));
        assert_eq!((second.sections, second.waiting, second.holding), (2, 0.0, 0.05));
    }
}
