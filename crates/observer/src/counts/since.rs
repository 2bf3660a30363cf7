//! The counts of a period: those at its end, without those at its beginning.

use super::snapshot::{At, Lock, Of, Seen, Signals, Snapshot};
use std::collections::BTreeMap;
use std::rc::Rc;

impl Snapshot {
    /// The counts since `before`.
    pub fn since(mut self, before: &Self) -> Self {
        self.locks = since(self.locks, &before.locks);
        self.conditions = since(self.conditions, &before.conditions);
        let Signals { waits, wait_ns, .. } = before.signals;
        self.signals.waits = self.signals.waits.saturating_sub(waits);
        self.signals.wait_ns = self.signals.wait_ns.saturating_sub(wait_ns);
        self
    }
}

/// What these locks did since `before`; those that did nothing are left out.
fn since(locks: Vec<Rc<Lock>>, before: &[Rc<Lock>]) -> Vec<Rc<Lock>> {
    let known: BTreeMap<Of, &Rc<Lock>> = before.iter().map(|lock| (lock.of, lock)).collect();
    let locks = locks.into_iter().filter_map(|lock| match known.get(&lock.of) {
        // A thread may have waited for it all the time.
        Some(then) if Rc::ptr_eq(then, &lock) && lock.open_since_ns == 0 => None,
        Some(then) => Some(Rc::new(lock.since(then))),
        None => Some(lock),
    });
    locks.filter(|lock| lock.has_counts()).collect()
}

impl Lock {
    /// The counts since `before`. A maximum that hasn't changed since is older: then the longest time is about that of the
    /// distribution's last bucket, and its place isn't known.
    fn since(&self, before: &Self) -> Self {
        let mut now = self.clone();
        if self.tenants != before.tenants {
            return now;
        }
        now.is_part = true;
        now.subtract(before);
        now
    }

    fn subtract(&mut self, before: &Self) {
        for (now, then) in [
            (&mut self.arrived, before.arrived),
            (&mut self.gave_up, before.gave_up),
            (&mut self.holds, before.holds),
            (&mut self.hold_ns, before.hold_ns),
            (&mut self.blocked_ns, before.blocked_ns),
            (&mut self.acquired, before.acquired),
            (&mut self.followed, before.followed),
            (&mut self.owners, before.owners),
            (&mut self.cores, before.cores),
        ] {
            *now = now.saturating_sub(then);
        }
        for (now, then) in self.classes.iter_mut().zip(&before.classes) {
            now.awake = now.awake.saturating_sub(then.awake);
            now.asleep = now.asleep.saturating_sub(then.asleep);
            now.ns = now.ns.saturating_sub(then.ns);
            now.times = now.times.since(&then.times);
            if now.max_ns == then.max_ns {
                now.max_ns = now.max_ns.min(now.times.max());
            }
        }
        self.hold = self.hold.since(&before.hold);
        if self.wait_max_ns == before.wait_max_ns {
            self.wait_max_ns = self.wait_max_ns.min(self.wait().max());
            self.wait_max_at = At::Unknown;
        }
        if self.hold_max_ns == before.hold_max_ns {
            self.hold_max_ns = self.hold_max_ns.min(self.hold.max());
            self.hold_max_at = At::Unknown;
        }
        let sites = |now: &mut Vec<Seen>, then: &[Seen], longest: u64| {
            for site in now.iter_mut() {
                if let Some(then) = then.iter().find(|then| then.at == site.at) {
                    site.count = site.count.saturating_sub(then.count);
                    site.ns = site.ns.saturating_sub(then.ns);
                    if site.max_ns == then.max_ns {
                        // At most that: a place has no distribution.
                        site.max_ns = site.max_ns.min(site.ns).min(longest);
                    }
                }
            }
            now.retain(|site| site.count > 0);
            now.sort_by_key(|site| std::cmp::Reverse((site.ns, site.count)));
        };
        sites(&mut self.waiters, &before.waiters, self.wait_max_ns);
        sites(&mut self.beyond.triers, &before.beyond.triers, u64::MAX);
        sites(&mut self.beyond.tried_holders, &before.beyond.tried_holders, u64::MAX);
        self.beyond.subtract(&before.beyond);
        // What others waited for it, not how long it held the lock.
        let longest = if self.wait().count() == 0 { u64::MAX } else { self.wait_max_ns };
        sites(&mut self.holders, &before.holders, longest);
        for now in &mut self.threads {
            if let Some(then) = before.threads.iter().find(|then| then.tid == now.tid) {
                now.waits = now.waits.saturating_sub(then.waits);
                now.wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
                now.blamed_ns = now.blamed_ns.saturating_sub(then.blamed_ns);
            }
        }
        self.threads.retain(|part| part.wait_ns > 0 || part.blamed_ns > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::lock;
    use super::*;

    #[test]
    fn the_longest_is_that_of_the_interval() {
        let before = lock(&[100, 9000]);
        let calm = lock(&[100, 200, 300, 9000]).since(&before);
        assert_eq!((calm.wait_max_ns, calm.hold_max_ns, calm.classes[0].max_ns), (300, 300, 300));
        assert_eq!((calm.waiters[0].max_ns, calm.waiters[0].ns), (300, 500));
        assert_eq!(calm.wait_max_at, At::Unknown);
        let rough = lock(&[100, 9000, 9500]).since(&before);
        assert_eq!((rough.wait_max_ns, rough.waiters[0].max_ns), (9500, 9500));
        assert_eq!(rough.wait_max_at, At::Address(16));
    }
}
