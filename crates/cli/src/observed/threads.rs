//! Threads and locks: which threads wait for which lock, and for which threads others wait.

use crate::output::{plain, shown, table};
use lockwright_numbers::format::time;
use lockwright_observer::counts::observation::{Observed, Ranked};
use std::collections::BTreeMap;

/// Maximum number of threads in the table.
const ROWS: usize = 8;
/// Maximum number of locks in the table: as many as fit 80 columns.
const LOCKS: usize = 3;

/// A table of threads and the first locks; empty unless several threads are known.
pub(super) fn text(outcome: &Observed, most: usize) -> String {
    let locks: Vec<(usize, &Ranked)> = (1..)
        .zip(&outcome.locks)
        .take(most.min(LOCKS))
        .filter(|(_, lock)| !lock.threads.is_empty())
        .collect();
    let mut sums: BTreeMap<Option<u32>, (u64, u64, &str)> = BTreeMap::new();
    for thread in locks.iter().flat_map(|(_, lock)| &lock.threads) {
        let sum = sums.entry(thread.tid).or_insert((0, 0, &thread.name));
        sum.0 += thread.wait_ns;
        sum.1 += thread.blamed_ns;
    }
    if sums.len() < 2 {
        return String::new();
    }
    let mut rows: Vec<_> = sums.iter().collect();
    rows.sort_by_key(|(_, (waited, blamed, _))| std::cmp::Reverse(waited + blamed));
    let heads: Vec<String> = locks.iter().map(|(number, _)| format!("lock {number}")).collect();
    let heads = ["thread", ""].into_iter().chain(heads.iter().map(String::as_str));
    let mut drawn = table(&heads.collect::<Vec<_>>()).all_by("--format json");
    for (tid, (.., name)) in rows.iter().take(ROWS) {
        let cell = |lock: &Ranked| {
            let part = lock.threads.iter().find(|thread| thread.tid == **tid);
            part.map_or("-".to_owned(), |part| {
                format!("{} / {}", brief(part.wait_ns), brief(part.blamed_ns))
            })
        };
        let tid = tid.map_or("others".to_owned(), |tid| tid.to_string());
        let cells = locks.iter().map(|(_, lock)| cell(lock));
        drawn.add_row([tid, shown(name).into_owned()].into_iter().chain(cells));
    }
    let mut text =
        "\nthreads and locks: how long a thread waited / how long others waited for it\n"
            .to_owned();
    text.push_str(&plain(&drawn));
    if rows.len() > ROWS {
        text.push_str(&format!("{} more threads: --format json\n", rows.len() - ROWS));
    }
    text
}

fn brief(ns: u64) -> String {
    if ns == 0 { "-".to_owned() } else { time(ns as f64) }
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::lock;
    use super::*;
    use lockwright_observer::counts::observation::ThreadWaits;

    #[test]
    fn each_thread_has_a_row_and_each_lock_a_column() {
        let part = |tid, wait_ns, blamed_ns| {
            let name = String::new();
            ThreadWaits { tid: Some(tid), name, waits: 1, wait_ns, blamed_ns }
        };
        let with = |parts: &[&ThreadWaits]| {
            let threads = parts.iter().map(|&part| part.clone()).collect();
            Ranked { threads, ..lock(1, (1, 1, 1)) }
        };
        let both = part(1_234_567, 12_345_678, 23_456_789);
        let others = ThreadWaits { tid: None, ..part(0, 1_000_000, 0) };
        let mut first = with(&[&both, &others, &part(7, 2_000, 0)]);
        first.threads[0].name = "a-hoarder-of-15".to_owned();
        let locks = vec![first, with(&[&both, &part(7, 500, 0)]), with(&[&both])];
        let outcome = Observed { locks, ..Observed::default() };
        let text = text(&outcome, 5);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].contains("lock 1") && lines[0].contains("lock 3"), "{text}");
        assert!(lines[1].starts_with("1234567 a-hoarder-of-15"), "{text}");
        assert!(lines[1].ends_with("12.3 ms / 23.5 ms"), "{text}");
        assert!(lines[2].starts_with("others") && lines[2].contains("1.00 ms / -"), "{text}");
        assert!(lines[3].contains("2.00 µs / -") && lines[3].contains("500 ns / -"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let alone = Observed { locks: vec![with(&[&part(7, 500, 0)])], ..Observed::default() };
        assert_eq!(super::text(&alone, 5), "");
    }
}
