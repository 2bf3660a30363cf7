//! Time that is spent in slices of a run: what is known only when it is over goes back to where it was.

use std::collections::BTreeMap;

/// Maximum number of slices. Beyond that, pairs of slices are merged.
const MOST: usize = 256;

/// Slices of equal width from the beginning on. Times are ns since then.
#[derive(Clone, Debug)]
pub(super) struct Slices<K> {
    pub(super) width_ns: u64,
    /// The time spent in each slice, ns.
    all: Vec<BTreeMap<K, f64>>,
}

impl<K: Copy + Ord> Slices<K> {
    pub(super) fn new(width_ns: u64) -> Self {
        Self { width_ns, all: Vec::new() }
    }

    /// It is so late now.
    pub(super) fn reach(&mut self, now_ns: u64) {
        while now_ns.div_ceil(self.width_ns) > MOST as u64 {
            self.width_ns *= 2;
            let pairs = std::mem::take(&mut self.all);
            self.all = pairs.chunks(2).map(sum).collect();
        }
        let slices = now_ns.div_ceil(self.width_ns) as usize;
        self.all.resize_with(slices.max(self.all.len()), BTreeMap::new);
    }

    /// `ns` were spent evenly from `since_ns` to now, by at most `threads` threads; 0: not known. What lies before the beginning is dropped.
    /// What finds no room in its slice lies in an earlier one.
    pub(super) fn add(&mut self, key: K, (since_ns, now_ns): (f64, f64), ns: f64, threads: usize) {
        let width = self.width_ns as f64;
        // A wait that took no time took it at its end: counts that are written while we read them may say so.
        let length = now_ns - since_ns;
        let (mut left, pace) = if length > 0.0 { (0.0, ns / length) } else { (ns, 0.0) };
        for (at, slice) in self.all.iter_mut().enumerate().rev() {
            let begin = at as f64 * width;
            let end = (begin + width).min(now_ns);
            if end <= begin {
                continue;
            }
            left += pace * (end - since_ns.max(begin)).max(0.0);
            if left <= 0.0 {
                return;
            }
            let spent = slice.get(&key).copied().unwrap_or(0.0);
            let room = match threads {
                0 => left,
                threads => (threads as f64 * (end - begin) - spent).clamp(0.0, left),
            };
            if room > 0.0 {
                slice.insert(key, spent + room);
            }
            left -= room;
        }
    }

    /// Slices of equal width that end now, and their width.
    pub(super) fn until(&self, now_ns: u64) -> (Vec<BTreeMap<K, f64>>, f64) {
        let count = (now_ns / self.width_ns).max(1) as usize;
        let wide = now_ns as f64 / count as f64;
        let mut even = vec![BTreeMap::new(); count];
        let width = self.width_ns as f64;
        for (at, slice) in self.all.iter().enumerate() {
            let begin = at as f64 * width;
            let end = (begin + width).min(now_ns as f64);
            let first = ((begin / wide) as usize).min(count - 1);
            for (to, even) in even.iter_mut().enumerate().skip(first).take(2) {
                let (from, until) = (begin.max(to as f64 * wide), end.min((to + 1) as f64 * wide));
                let part = ((until - from) / (end - begin)).max(0.0);
                for (key, ns) in slice.iter().filter(|_| part > 0.0) {
                    *even.entry(*key).or_default() += ns * part;
                }
            }
        }
        (even, wide)
    }
}

fn sum<K: Copy + Ord>(slices: &[BTreeMap<K, f64>]) -> BTreeMap<K, f64> {
    let mut sum = BTreeMap::new();
    for (key, ns) in slices.iter().flatten() {
        *sum.entry(*key).or_default() += ns;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn course(slices: &[BTreeMap<u8, f64>]) -> Vec<f64> {
        slices.iter().map(|slice| slice.get(&7).copied().unwrap_or(0.0).round()).collect()
    }

    #[test]
    fn a_wait_of_several_slices_is_in_all_of_them() {
        let mut slices = Slices::new(100);
        slices.reach(500);
        slices.add(7, (150.0, 500.0), 4.0 * 350.0, 4);
        assert_eq!(course(&slices.all), [0.0, 200.0, 400.0, 400.0, 400.0]);
        // What the four threads waited for meanwhile, they did before.
        slices.add(7, (400.0, 500.0), 100.0, 4);
        assert_eq!(course(&slices.all), [0.0, 300.0, 400.0, 400.0, 400.0]);
        slices.add(7, (-300.0, 500.0), 800.0, 0);
        assert_eq!(course(&slices.all), [100.0, 400.0, 500.0, 500.0, 500.0], "from the beginning");
    }

    #[test]
    fn a_slice_that_has_only_begun_is_part_of_the_others() {
        let mut slices = Slices::new(100);
        slices.reach(250);
        slices.add(7, (0.0, 250.0), 250.0, 1);
        assert_eq!(course(&slices.all), [100.0, 100.0, 50.0]);
        let (even, wide) = slices.until(250);
        assert_eq!((course(&even), wide), (vec![125.0, 125.0], 125.0));
    }

    #[test]
    fn there_are_only_so_many_slices() {
        let mut slices = Slices::new(100);
        for now in (100..=51_200).step_by(100) {
            slices.reach(now);
            slices.add(7, (now as f64 - 100.0, now as f64), 100.0, 1);
        }
        assert_eq!((slices.width_ns, slices.all.len()), (200, MOST));
        assert!(course(&slices.all).iter().all(|&ns| ns == 200.0), "{slices:?}");
    }

    proptest! {
        /// Counts that somebody is writing, or that a process makes up.
        #[test]
        fn any_times_are_slices(
            adds in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0..3_usize), 1..20),
            shifts in prop::collection::vec((0..64_u32, 0..64_u32, 0..64_u32), 20),
        ) {
            let mut slices = Slices::new(100);
            for ((now, length, ns, threads), (a, b, c)) in adds.into_iter().zip(shifts) {
                let (now, length, ns) = (now >> a, length >> b, ns >> c);
                slices.reach(now);
                slices.add(7, (now as f64 - length as f64, now as f64), ns as f64, threads);
                slices.add(7, (now as f64, now as f64), ns as f64, threads);
                let all = slices.until(now).0;
                let told = all.iter().flat_map(BTreeMap::values);
                prop_assert!(told.copied().all(|ns| ns >= 0.0), "{slices:?}");
            }
        }

        /// Each of some threads waits, and has the lock, by turns. Looks are at any time.
        #[test]
        fn the_sum_stays_and_no_slice_has_more_than_its_threads(
            threads in prop::collection::vec(
                prop::collection::vec((0..400_u64, 0..400_u64), 1..20), 1..5
            ),
            apart in prop::collection::vec(50..300_u64, 40..60),
        ) {
            let mut slices = Slices::new(100);
            let mut waits = Vec::new();
            for thread in &threads {
                let mut now = 0;
                for (holds, wait) in thread {
                    now += holds + wait;
                    waits.push((now, *wait));
                }
            }
            let (mut now, mut sum) = (0, 0);
            for look in apart {
                let before = now;
                now += look;
                slices.reach(now);
                for (_, ns) in waits.iter().filter(|(end, _)| (before + 1..=now).contains(end)) {
                    let since = now - (*ns).max(look).min(now);
                    slices.add(7, (since as f64, now as f64), *ns as f64, threads.len());
                    sum += ns;
                }
            }
            let (even, wide) = slices.until(now);
            let told: Vec<f64> = even.iter().map(|slice| slice.get(&7).copied().unwrap_or(0.0)).collect();
            prop_assert!((told.iter().sum::<f64>() - sum as f64).abs() < 1.0, "{sum}: {told:?}");
            let most = threads.len() as f64 * wide;
            prop_assert!(told.iter().all(|&ns| ns <= most + 1e-6), "{most}: {told:?}");
        }
    }
}
