//! Summaries of points: each lock relative to the best one, by number of threads and machine.

use super::data::{Figures, Machine, Part, Point};
use super::grid::GLIBC;
use lockwright_locks::catalog;
use lockwright_locks::entry::Kind;
use lockwright_locks::front::auto;

/// The lock that the page is about.
pub(super) const AUTO: &str = auto::ENTRY.id;

/// Below this share of the best, a lock isn't a good choice.
pub(super) const GOOD: f64 = 0.9;

/// Waits, ns: `auto`'s budget of 10 ms including wake-ups, and a length that is fine for most programs.
pub(super) const LONG_NS: u64 = 12_000_000;
pub(super) const SHORT_NS: u64 = 1_000_000;

/// The number of threads relative to the number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Crowd {
    Fewer,
    Each,
    More,
}

impl Crowd {
    pub(super) const ALL: [Self; 3] = [Self::Fewer, Self::Each, Self::More];

    pub(super) fn of(machine: &Machine, threads: u32) -> Self {
        match threads.cmp(&machine.cpus()) {
            std::cmp::Ordering::Less => Self::Fewer,
            std::cmp::Ordering::Equal => Self::Each,
            std::cmp::Ordering::Greater => Self::More,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fewer => "fewer than CPUs",
            Self::Each => "one a CPU",
            Self::More => "more than CPUs",
        }
    }
}

/// Can it serve a program's mutexes: is it a front lock, or glibc's?
pub(super) fn is_for_programs(lock: &str) -> bool {
    lock == GLIBC || catalog::find(lock).is_some_and(|entry| entry.kind == Kind::Front)
}

impl Point {
    /// The lock with the highest throughput at this point, among those that let every thread in. If none does, of all.
    pub(super) fn best(&self) -> Option<(&str, &Figures)> {
        self.best_of(|_, figures| figures.starved == 0).or_else(|| self.best_of(|_, _| true))
    }

    /// The lock with the highest throughput among those that are `wanted`. In a tie, the first by name.
    pub(super) fn best_of(
        &self,
        wanted: impl Fn(&str, &Figures) -> bool,
    ) -> Option<(&str, &Figures)> {
        let own = self.of.iter().map(|(lock, figures)| (lock.as_str(), figures));
        let wanted = own.filter(|(lock, figures)| wanted(lock, figures));
        wanted.rev().max_by_key(|(_, figures)| figures.of_glibc)
    }

    /// A lock's throughput relative to the best.
    pub(super) fn to_best(&self, lock: &str) -> Option<f64> {
        let (_, best) = self.best()?;
        Some(self.of.get(lock)?.of_glibc as f64 / best.of_glibc.max(1) as f64)
    }

    /// A lock's figure relative to glibc's.
    fn to_glibc(&self, lock: &str, figure: fn(&Figures) -> u64) -> Option<f64> {
        let glibc = figure(self.of.get(GLIBC)?);
        (glibc > 0).then_some(figure(self.of.get(lock)?) as f64 / glibc as f64)
    }
}

/// Points that are evaluated together.
pub(super) struct Group<'a>(pub(super) Vec<&'a Point>);

impl<'a> Group<'a> {
    /// The points without epochs on the `wanted` machines and numbers of threads.
    pub(super) fn new(part: &'a Part, wanted: impl Fn(&Machine, Crowd) -> bool) -> Self {
        let mut all = Vec::new();
        for machine in &part.machines {
            let own = machine.points.iter().filter(|point| point.slo_us.is_none());
            all.extend(own.filter(|point| wanted(machine, Crowd::of(machine, point.threads))));
        }
        Self(all)
    }

    /// The geometric mean of a lock's throughput relative to the best; `None`: it failed at some point.
    pub(super) fn to_best(&self, lock: &str) -> Option<f64> {
        self.mean(|point| point.to_best(lock))
    }

    pub(super) fn worst(&self, lock: &str) -> Option<f64> {
        let all = self.0.iter().map(|point| point.to_best(lock).unwrap_or(0.0));
        all.min_by(f64::total_cmp)
    }

    /// The longest wait at any point.
    pub(super) fn longest(&self, lock: &str) -> Option<u64> {
        self.0.iter().filter_map(|point| Some(point.of.get(lock)?.longest_ns)).max()
    }

    /// The geometric mean of a figure relative to glibc's.
    pub(super) fn to_glibc(&self, lock: &str, figure: fn(&Figures) -> u64) -> Option<f64> {
        self.mean(|point| point.to_glibc(lock, figure))
    }

    fn mean(&self, of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
        // A lock that did nothing at a point counts as nearly zero, because the logarithm of zero doesn't exist.
        let logs = self.0.iter().map(|point| Some(of(point)?.max(1e-6).ln()));
        let logs = logs.collect::<Option<Vec<f64>>>()?;
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    /// The lock with the highest throughput among those that are `wanted`, and that throughput.
    pub(super) fn best(
        &self,
        locks: &'a [String],
        wanted: impl Fn(&str) -> bool,
    ) -> Option<(&'a str, f64)> {
        let wanted = locks.iter().map(String::as_str).filter(|lock| wanted(lock));
        let all = wanted.filter_map(|lock| Some((lock, self.to_best(lock)?)));
        // In a tie, the first.
        all.rev().max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// As `best`, among locks without a longer wait than this.
    pub(super) fn best_within(
        &self,
        locks: &'a [String],
        limit_ns: u64,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<(&'a str, f64)> {
        let is_short = |lock: &str| self.longest(lock).is_some_and(|ns| ns <= limit_ns);
        self.best(locks, |lock| wanted(lock) && is_short(lock))
    }
}

/// A lock keeps an epoch's SLO if the slowest class's P99 is at most the SLO times this factor. The factor allows for
/// the error of a sampled percentile.
pub(super) fn keeps(figures: &Figures, slo_us: u32) -> bool {
    figures.slow_p99_ns > 0 && figures.slow_p99_ns as f64 <= f64::from(slo_us) * 1000.0 * 1.05
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::part;
    use super::*;

    #[test]
    fn ratios_are_to_the_best_of_each_point() {
        let locks = [("glibc", [100, 400, 1], 9), ("a", [200, 100, 1], 50), ("b", [50, 200, 1], 2)];
        let part = part(&locks);
        let all = Group::new(&part, |_, _| true);
        assert_eq!(all.0.len(), 2, "epochs are apart");
        let is = |value: Option<f64>, expected: f64| {
            assert!((value.unwrap() - expected).abs() < 1e-9, "{value:?}, {expected} expected");
        };
        is(all.to_best("a"), 0.5); // 1 and 0.25
        is(all.worst("a"), 0.25);
        is(all.to_glibc("b", |figures| figures.of_glibc), 0.5);
        is(all.to_glibc("b", |figures| figures.cpu_ns), 1.0);
        assert_eq!(all.to_best("no such lock"), None);
        let best = |limit| all.best_within(&part.locks, limit, |_| true).unwrap().0;
        assert_eq!((best(9), best(8)), ("glibc", "b"));
        assert_eq!(all.best_within(&part.locks, 1, |_| true), None);
        let more = Group::new(&part, |_, crowd| crowd == Crowd::More);
        is(more.to_best("a"), 0.25);
        assert_eq!(more.best(&part.locks, |lock| lock != "glibc").unwrap().0, "b");
    }

    #[test]
    fn a_lock_that_starves_a_thread_is_not_the_best() {
        let part = part(&[("a", [100, 1, 1], 9), ("b", [400, 4, 1], 20_000_000)]);
        let point = &part.machines[0].points[0];
        assert_eq!(point.best().unwrap().0, "a");
        assert_eq!(point.to_best("b"), Some(4.0));
        let of = point.of.iter().filter(|(lock, _)| *lock == "b");
        let alone =
            Point { of: of.map(|(lock, own)| (lock.clone(), *own)).collect(), ..point.clone() };
        assert_eq!(alone.best().unwrap().0, "b", "all starve a thread");
    }

    #[test]
    fn an_slo_is_kept_by_those_who_end_in_time() {
        let figures = |p99: u64| Figures::from([1, 1, p99, 1, 1, 1, 1, 0]);
        assert!(keeps(&figures(52_000), 50));
        assert!(!keeps(&figures(53_000), 50));
        assert!(!keeps(&figures(0), 50), "none ended");
    }
}
