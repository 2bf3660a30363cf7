//! Estimates that agree with what is known.

use super::snapshot::Lock;

impl Lock {
    /// Its counts, as far as its estimates agree with what is known: one wait in several is timed, and stands for those of its thread, whatever
    /// lock they were for. A lock that had fewer waits, all of them awake, can't have lost more than its share. And no wait is longer than
    /// the longest.
    pub(super) fn settled(&self) -> Self {
        let mut lock = self.clone();
        if self.is_part {
            return lock; // what ends in a period has begun before
        }
        let waits = self.classes.iter().flat_map(|class| [class.awake, class.asleep]);
        let timed = waits.fold(0, u64::saturating_add);
        if self.arrived > 0 && timed > self.arrived {
            let part =
                |all: u64| (u128::from(all) * u128::from(self.arrived) / u128::from(timed)) as u64;
            // A wait with a sleep stands only for itself: of those, the time is known.
            let time = |ns: u64| if self.asleep() == 0 { part(ns) } else { ns };
            for class in &mut lock.classes {
                class.ns = time(class.ns);
            }
            for site in &mut lock.waiters {
                (site.count, site.ns) = (part(site.count).max(1), time(site.ns));
            }
            for thread in &mut lock.threads {
                (thread.waits, thread.wait_ns) = (part(thread.waits), time(thread.wait_ns));
            }
        }
        let most = self.arrived.saturating_mul(self.wait_max_ns);
        if self.arrived > 0 && self.wait_max_ns > 0 {
            let mut left = most;
            for class in &mut lock.classes {
                class.ns = class.ns.min(left);
                left -= class.ns;
            }
        }
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::lock;

    #[test]
    fn a_timed_wait_stands_for_no_more_than_there_were() {
        // One of 16 waits was timed, but this lock had two.
        let mut rare = lock(&[1_000; 16]);
        rare.arrived = 2;
        let settled = rare.settled();
        assert_eq!((settled.wait_ns(), settled.waiters[0].count), (2_000, 2));
        // Of waits with a sleep, the time is known, but no wait is longer than the longest.
        (rare.classes[0].awake, rare.classes[0].asleep) = (15, 1);
        assert_eq!(rare.settled().wait_ns(), 2 * rare.wait_max_ns);
        rare.is_part = true;
        assert_eq!(rare.settled().wait_ns(), rare.wait_ns(), "others began before");
    }
}
