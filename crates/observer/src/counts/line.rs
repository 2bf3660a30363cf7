//! How many threads stand in a mutex's line now, by its own words: the counts know a wait only when it is over.

use super::snapshot::{Lock, LockKind, Of, Snapshot};
use super::window::within;
use lockwright_symbols::read_memory;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Fewer waits than this per thread in line have ended: then those in line have waited long.
const FEW: u64 = 10;
/// Where a mutex has its hints (`crates/locks/src/posix/mutex.rs`), and the first bit of the field of waiters there (`front/line.rs`).
const HINTS: usize = 12;
const WAITER: u32 = 23;

/// The lines of a process's mutexes when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<Of, u32>);

impl Lines {
    /// Looks again. Says of each of these locks how many threads were in its line both times, if any were.
    pub(super) fn look<'a>(
        &mut self,
        pid: libc::pid_t,
        locks: impl Iterator<Item = &'a Lock>,
    ) -> BTreeMap<Of, u32> {
        let is_mutex = |lock: &&Lock| lock.kind == LockKind::Mutex && !lock.is_gone;
        let length = |lock: &Lock| match lock.of {
            Of::Lock(address) => length(pid, address).filter(|length| *length > 0),
            Of::Gone(_) | Of::Others => None,
        };
        let now =
            locks.filter(is_mutex).filter_map(|lock| Some((lock.of, length(lock)?))).collect();
        let then = std::mem::replace(&mut self.0, now);
        let both = |(of, now): (&Of, &u32)| Some((*of, *then.get(of)?.min(now)));
        self.0.iter().filter_map(both).collect()
    }
}

/// `None`: it can't be read.
fn length(pid: libc::pid_t, address: u64) -> Option<u32> {
    let mut words = [0; HINTS + 4];
    let read = read_memory(pid, address, &mut words).ok()?;
    let word = |at: usize| u32::from_ne_bytes(words[at..at + 4].try_into().expect("four bytes"));
    let is_held = word(0) != 0;
    (read == words.len() && is_held).then(|| word(HINTS) >> WAITER)
}

/// Waits that took all of a period, one of many in a row, count in it. Others count as a whole when they have ended. So many threads were in
/// a lock's line at both ends of the period.
pub(super) fn close(seen: &mut Snapshot, (begun_ns, end_ns): (u64, u64), both: &BTreeMap<Of, u32>) {
    let period_ns = end_ns.saturating_sub(begun_ns);
    for lock in &mut seen.locks {
        let is_whole = lock.open_since_ns != 0 && lock.open_since_ns <= begun_ns;
        let in_line = both.get(&lock.of).map_or(0, |&line| unended_ns(lock, line, period_ns));
        let unended_ns = in_line.max(if is_whole { period_ns } else { 0 });
        if unended_ns > 0 {
            Rc::make_mut(lock).unended_ns = unended_ns;
        }
    }
}

/// How long threads that were in line at both ends of a period waited in it, ns, besides what these counts of the period have.
fn unended_ns(lock: &Lock, in_line: u32, period_ns: u64) -> u64 {
    let times = lock.wait();
    if times.count() >= FEW * u64::from(in_line) {
        return 0; // they may be others by now, whose waits count when they are over
    }
    (u64::from(in_line) * period_ns).saturating_sub(within(&times, period_ns) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{lock, snapshot};
    use super::*;
    use lockwright_locks::front::hints;

    #[test]
    fn the_field_of_waiters_is_the_locks_own() {
        assert_eq!([0, 1, 300].map(|waiters| hints::waiters(waiters << WAITER | 7)), [0, 1, 300]);
    }

    #[test]
    fn waits_that_took_all_of_a_period_count_in_it() {
        let closed = |begun_ns, lines| {
            let mut seen = snapshot(vec![Lock { open_since_ns: 1_000, ..lock(&[]) }]);
            close(&mut seen, (begun_ns, 1_400), &lines);
            seen.locks[0].unended_ns
        };
        assert_eq!(closed(900, BTreeMap::new()), 0);
        assert_eq!(closed(1_150, BTreeMap::new()), 250);
        assert_eq!(closed(1_150, [(Of::Lock(64), 3)].into()), 750);
    }

    #[test]
    fn who_is_in_line_for_long_waits_all_the_time() {
        let seven = |waits: &[u64]| unended_ns(&lock(waits), 7, 1000);
        assert_eq!((seven(&[]), seven(&[3, 3, 4])), (7000, 6990));
        assert_eq!(seven(&[9000]), 6000, "one of them has got the lock");
        assert_eq!(seven(&[100; 70]), 0, "they have come and gone");
        assert_eq!(seven(&[1000; 8]), 0);
    }

    #[test]
    fn a_line_is_that_of_both_looks() {
        // A held mutex, and hints.
        let mutex = |in_line: u32| [2, 0, 7, in_line << WAITER | 1, 0];
        let mut words = mutex(5);
        let counted = Lock { of: Of::Lock(words.as_ptr() as u64), ..lock(&[]) };
        let pid = std::process::id() as libc::pid_t;
        let mut lines = Lines::default();
        let mut look = || lines.look(pid, std::iter::once(&counted));
        assert_eq!(look(), BTreeMap::new());
        words.copy_from_slice(std::hint::black_box(&mutex(3)));
        std::hint::black_box(&words);
        assert_eq!(look(), [(counted.of, 3)].into());
        words[0] = 0;
        std::hint::black_box(&words);
        assert_eq!(look(), BTreeMap::new(), "it is free");
    }
}
