//! Which threads wait for a lock, and for which threads others wait.

use super::observation::ThreadWaits;
use super::snapshot::Part;
use lockwright_contract::counters::layout::OTHER_THREADS;

/// A lock's threads, without names. Those that lost or cost the most time come first.
pub(crate) fn of(parts: &[Part]) -> Vec<ThreadWaits> {
    let thread = |part: &Part| ThreadWaits {
        tid: (part.tid != OTHER_THREADS).then_some(part.tid),
        name: String::new(),
        waits: part.waits,
        wait_ns: part.wait_ns,
        blamed_ns: part.blamed_ns,
    };
    let mut threads: Vec<ThreadWaits> = parts.iter().map(thread).collect();
    threads
        .sort_by_key(|thread| std::cmp::Reverse(thread.wait_ns.saturating_add(thread.blamed_ns)));
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_lost_or_cost_most_come_first() {
        let part = |tid, wait_ns, blamed_ns| Part { tid, waits: 1, wait_ns, blamed_ns };
        let threads = of(&[part(7, 2_000, 0), part(OTHER_THREADS, 9_000, 0), part(8, 1, 10_000)]);
        let tids: Vec<_> = threads.iter().map(|thread| thread.tid).collect();
        assert_eq!(tids, [Some(8), None, Some(7)]);
    }
}
