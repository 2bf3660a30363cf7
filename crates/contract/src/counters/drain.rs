//! Moves the counts of one record to another.

use crate::counters::Segment;
use crate::counters::count::{add, raise};
use crate::counters::layout::{Histogram, Record};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

impl Segment {
    /// Adds one record to another, and leaves zeroes behind. `slower`: both have the memory for waits on slower cores.
    pub(crate) fn drain(from: &Record, to: &Record, slower: bool) {
        let moved = |from: &AtomicU64, to: &AtomicU64| add(to, from.swap(0, Relaxed)); // see `empty`
        let raised = |from: &AtomicU64, to: &AtomicU64| raise(to, from.swap(0, Relaxed));
        for (from, to) in [
            (&from.arrived, &to.arrived),
            (&from.gave_up, &to.gave_up),
            (&from.holds, &to.holds),
            (&from.hold_ns, &to.hold_ns),
            (&from.blocked_ns, &to.blocked_ns),
            (&from.acquired, &to.acquired),
            (&from.followed, &to.followed),
            (&from.owners, &to.owners),
            (&from.cores, &to.cores),
            (&from.releases, &to.releases),
            (&from.signals, &to.signals),
            (&from.wakes.signals, &to.wakes.signals),
            (&from.wakes.broadcasts, &to.wakes.broadcasts),
            (&from.wakes.woken, &to.wakes.woken),
            (&from.wakes.got_on, &to.wakes.got_on),
            (&from.wakes.wasted, &to.wakes.wasted),
            (&from.wakes.by_waiters, &to.wakes.by_waiters),
            (&from.failed_tries, &to.failed_tries),
        ] {
            moved(from, to);
        }
        from.waiter.store(0, Relaxed);
        let no_more =
            [&from.blocked_since_ns, &from.blocked_until_ns, &from.last_ms, &from.unblamed_tries];
        for no_more in no_more {
            no_more.store(0, Relaxed);
        }
        to.prefer.store(from.prefer.swap(0, Relaxed), Relaxed);
        to.wakes.mutex.store(from.wakes.mutex.swap(0, Relaxed), Relaxed);
        for (from, to) in [(&from.readers, &to.readers), (&from.writers, &to.writers)] {
            moved(&from.waits, &to.waits);
            moved(&from.wait_ns, &to.wait_ns);
            raised(&from.max_ns, &to.max_ns);
            moved(&from.behind_readers, &to.behind_readers);
            moved(&from.behind_writer, &to.behind_writer);
        }
        let hold_site = from.hold_max_site.swap(0, Relaxed);
        if raised(&from.hold_max_ns, &to.hold_max_ns) {
            to.hold_max_site.store(hold_site, Relaxed);
        }
        let wait_site = from.wait_max_site.swap(0, Relaxed);
        let wait_at = from.wait_max_at_ns.swap(0, Relaxed);
        if raised(&from.wait_max_ns, &to.wait_max_ns) {
            to.wait_max_site.store(wait_site, Relaxed);
            to.wait_max_at_ns.store(wait_at, Relaxed);
        }
        to.place.store(from.place.swap(0, Relaxed), Relaxed);
        to.locks.fetch_add(from.locks.swap(0, Relaxed), Relaxed);
        for (from, to) in from.classes.iter().zip(&to.classes) {
            moved(&from.awake, &to.awake);
            moved(&from.asleep, &to.asleep);
            moved(&from.wait_ns, &to.wait_ns);
            raised(&from.max_ns, &to.max_ns);
        }
        for (from, to) in [
            (&from.waiters, &to.waiters),
            (&from.holders, &to.holders),
            (&from.triers, &to.triers),
            (&from.tried_holders, &to.tried_holders),
        ] {
            for site in from {
                let address = site.address.swap(0, Relaxed);
                if address == 0 {
                    continue;
                }
                let to = Self::site(to, address);
                moved(&site.count, &to.count);
                moved(&site.ns, &to.ns);
                let (tid, stack) = (site.max_tid.swap(0, Relaxed), site.stack.swap(0, Relaxed));
                if raised(&site.max_ns, &to.max_ns) {
                    to.max_tid.store(tid, Relaxed);
                    to.stack.store(stack, Relaxed);
                } else if to.stack.load(Relaxed) == 0 && stack != 0 {
                    to.stack.store(stack, Relaxed); // that of failed tries, which have no times
                }
            }
        }
        for (tid, from_thread) in from.tids.iter().zip(&from.threads) {
            let tid = tid.swap(0, Relaxed);
            if tid != 0 {
                let to = Self::thread(to, tid);
                moved(&from_thread.waits, &to.waits);
                moved(&from_thread.wait_ns, &to.wait_ns);
                moved(&from_thread.blamed_ns, &to.blamed_ns);
            }
        }
        let histogram = |from: &Histogram, to: &Histogram| {
            for (from, to) in from.buckets.iter().zip(&to.buckets) {
                if from.load(Relaxed) != 0 {
                    moved(from, to);
                }
            }
        };
        histogram(&from.hold, &to.hold);
        histogram(&from.wait, &to.wait);
        if slower {
            for (from, to) in from.slower.iter().zip(&to.slower) {
                histogram(from, to);
            }
        }
    }
}
