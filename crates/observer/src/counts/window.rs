//! How much of the waits lies within a period of time.
//!
//! A wait is counted when it ends, and may have begun long before the period. So the sum of a period's waits can be more time than its
//! threads had.

use super::snapshot::Lock;
use lockwright_numbers::Times;

/// The time of these waits, ns: of one that is longer than the period, as much as the period could have.
pub fn within(times: &Times, period_ns: u64) -> f64 {
    times.counts().map(|(ns, count)| ns.min(period_ns) as f64 * count as f64).sum()
}

/// How long threads waited for a lock within the period in which these counts were made, ns, as far as that can be known.
pub fn waited_ns(lock: &Lock, period_ns: u64) -> f64 {
    let ended = (lock.wait_ns() - lock.unended_ns) as f64;
    let times = lock.wait();
    let within = match times.max() > period_ns {
        // The histogram knows lengths only to the width of its buckets.
        true => within(&times, period_ns).min(ended),
        false if times.count() == 0 => ended.min(period_ns as f64), // none was timed
        false => ended,
    };
    within + lock.unended_ns as f64
}

/// How many threads waited for a lock in the period, on average. There were at most `threads`; 0: not known.
pub fn waiting(lock: &Lock, period_ns: u64, threads: usize) -> f64 {
    let average = waited_ns(lock, period_ns) / period_ns.max(1) as f64;
    if threads == 0 { average } else { average.min(threads as f64) }
}

/// How long a wait was on average, ns; 0: none has ended.
pub fn mean_ns(lock: &Lock) -> u64 {
    let ended = lock.wait_ns() - lock.unended_ns;
    // Those that end in a period aren't those that begin in it.
    match lock.wait().count() {
        count if lock.is_part && count > 0 => ended / count,
        _ => ended / lock.arrived.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::lock;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_wait_counts_for_as_much_as_lies_within_the_period() {
        let long = lock(&[3 * SECOND, 2 * SECOND, SECOND / 2]);
        assert_eq!(waiting(&long, 10 * SECOND, 0), 0.55);
        assert_eq!(waiting(&long, SECOND, 0), 2.5);
        assert_eq!(mean_ns(&long), (5 * SECOND + SECOND / 2) / 3);
        let open = Lock { unended_ns: SECOND, ..lock(&[SECOND / 2]) };
        assert_eq!((waiting(&open, SECOND, 0), mean_ns(&open)), (1.5, SECOND / 2));
    }

    #[test]
    fn no_more_threads_wait_than_there_are() {
        let many = lock(&[3 * SECOND; 9]);
        assert_eq!(waiting(&many, SECOND, 8), 8.0);
        assert_eq!(waiting(&many, SECOND, 12), 9.0);
        let sampled = lock(&[SECOND / 2; 17]);
        assert_eq!(waiting(&sampled, SECOND, 8), 8.0, "a sampled wait stands for several");
        assert_eq!(waiting(&lock(&[]), 0, 8), 0.0);
    }
}
