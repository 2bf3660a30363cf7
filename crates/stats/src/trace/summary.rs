//! A trace in a few figures.

use super::{Step, Trace};
use lockwright_numbers::Times;
use std::collections::HashSet;

/// A trace's totals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How long all threads computed, ns.
    pub compute_ns: u64,
    /// How long all threads slept, except for locks, ns.
    pub idle_ns: u64,
    /// How long all threads waited for locks, ns.
    pub wait_ns: u64,
    /// How long all threads waited for a lock or held one, ns. A section inside another counts once.
    pub in_sections_ns: u64,
    /// Each lock, in the trace's order.
    pub locks: Vec<LockSummary>,
}

/// What the threads did with one lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockSummary {
    /// How many threads acquired it.
    pub threads: u64,
    /// How long a thread computed between its last operation on any lock and its request for this one.
    pub gap: Times,
    /// How long it waited in the recording.
    pub wait: Times,
    /// How long it held the lock, including any sleep or wait for another lock meanwhile.
    pub hold: Times,
}

impl Summary {
    /// How long all threads ran, from each one's first operation to its last, ns: they computed, slept, or waited. Time in
    /// which they had no CPU is left out.
    pub fn running_ns(&self) -> u64 {
        self.compute_ns.saturating_add(self.idle_ns).saturating_add(self.wait_ns)
    }
}

impl LockSummary {
    /// How often it was acquired.
    pub fn acquisitions(&self) -> u64 {
        self.wait.count()
    }
}

/// Single times of one lock.
#[derive(Clone, Default)]
struct Recorded {
    threads: u64,
    gap: Vec<u64>,
    wait: Vec<u64>,
    hold: Vec<u64>,
}

impl From<Recorded> for LockSummary {
    fn from(Recorded { threads, gap, wait, hold }: Recorded) -> Self {
        let [gap, wait, hold] = [gap, wait, hold].map(Times::from_iter);
        Self { threads, gap, wait, hold }
    }
}

impl Trace {
    /// The totals.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let mut locks = vec![Recorded::default(); self.locks.len()];
        for thread in &self.threads {
            // The thread's own clock, and when it acquired what it holds.
            let mut now: u64 = 0;
            let mut gap: u64 = 0;
            let mut held = Vec::new();
            // When it last asked for a lock while it held none.
            let mut asked: u64 = 0;
            let mut touched = HashSet::new();
            for step in &thread.steps {
                match *step {
                    Step::Compute(ns) => {
                        summary.compute_ns = summary.compute_ns.saturating_add(ns);
                        now = now.saturating_add(ns);
                        gap = gap.saturating_add(ns);
                    }
                    Step::Idle(ns) => {
                        summary.idle_ns = summary.idle_ns.saturating_add(ns);
                        now = now.saturating_add(ns);
                    }
                    Step::Acquire { lock, wait_ns } => {
                        summary.wait_ns = summary.wait_ns.saturating_add(wait_ns);
                        if held.is_empty() {
                            asked = now;
                        }
                        now = now.saturating_add(wait_ns);
                        let known = &mut locks[lock as usize];
                        known.threads += u64::from(touched.insert(lock));
                        known.gap.push(gap);
                        known.wait.push(wait_ns);
                        held.push((lock, now));
                        gap = 0;
                    }
                    Step::Release(lock) => {
                        if let Some(at) = held.iter().position(|&(other, _)| other == lock) {
                            let (_, since) = held.swap_remove(at);
                            locks[lock as usize].hold.push(now - since);
                            if held.is_empty() {
                                summary.in_sections_ns =
                                    summary.in_sections_ns.saturating_add(now - asked);
                            }
                        }
                        gap = 0;
                    }
                }
            }
        }
        summary.locks = locks.into_iter().map(LockSummary::from).collect();
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{LockInfo, TraceThread};

    #[test]
    fn holds_are_those_that_others_see_and_gaps_are_computed() {
        let take = |lock, wait_ns| Step::Acquire { lock, wait_ns };
        let steps = vec![
            take(0, 3),
            Step::Compute(10),
            take(1, 7),
            Step::Compute(20),
            Step::Release(0),
            Step::Idle(5),
            Step::Release(1),
            Step::Compute(40),
            Step::Idle(2),
            Step::Compute(3),
            take(0, 1),
            Step::Release(0),
        ];
        let thread = TraceThread { steps, ..TraceThread::default() };
        let locks = vec![LockInfo::default(); 3];
        let trace = Trace { locks, threads: vec![thread.clone(), thread], ..Trace::default() };
        let summary = trace.summary();
        assert_eq!((summary.compute_ns, summary.idle_ns, summary.wait_ns), (146, 14, 22));
        // From the first request to the second release, and the last section: 3 + 10 + 7 + 20 + 5, and 1, twice.
        assert_eq!((summary.in_sections_ns, summary.running_ns()), (92, 182));
        let [first, second, third] = summary.locks.as_slice() else { panic!() };
        assert_eq!((first.acquisitions(), first.threads), (4, 2));
        assert_eq!((first.hold.quantile(1.0), first.hold.total()), (37, 74));
        assert_eq!((first.hold.quantile(0.5), first.hold.quantile(0.51)), (0, 37));
        assert_eq!((first.gap.quantile(1.0), first.gap.total()), (43, 86));
        assert_eq!(second.hold.quantile(1.0), 25);
        assert_eq!((second.gap.quantile(0.0), second.wait.quantile(0.9)), (10, 7));
        assert_eq!((third.acquisitions(), third.wait.quantile(0.99)), (0, 0));
    }
}
