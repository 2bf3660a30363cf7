//! Real and simulated figures side by side, and a summary of their differences.

use lockwright_numbers::quantile;
use serde::Serialize;

/// One load under one lock: time per operation over all threads, ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RealAndSimulated {
    /// The lock.
    pub lock: String,
    /// The load, in words.
    pub load: String,
    /// How many threads.
    pub threads: u32,
    /// The median on the real machine.
    pub real_ns: f64,
    /// 10th and 90th percentile of that.
    pub spread_ns: (f64, f64),
    /// The median over the seeds on the virtual machine.
    pub simulated_ns: f64,
    /// Does the model predict it? It doesn't predict one thread without computation: an out-of-order core overlaps the
    /// end of a section with the beginning of the next, but the model adds instructions up.
    pub predicted: bool,
}

impl RealAndSimulated {
    /// The simulated figure divided by the real one.
    pub fn ratio(&self) -> f64 {
        self.simulated_ns / self.real_ns
    }

    /// The factor by which they differ, at least 1.
    fn factor(&self) -> f64 {
        self.ratio().max(1.0 / self.ratio())
    }

    /// Is it unclear which of the two is faster on the real machine?
    fn overlaps(&self, other: &Self) -> bool {
        self.spread_ns.0 <= other.spread_ns.1 && other.spread_ns.0 <= self.spread_ns.1
    }
}

/// One thread: how far from the real figure still counts as right.
pub(super) const WITHIN: f64 = 0.10;
/// One thread: the share that must be right.
pub(super) const SHARE: f64 = 1.0;
/// Two threads: the median difference, a factor.
pub(super) const MEDIAN: f64 = 1.4;
/// Two threads: 90 % of the differences.
pub(super) const P90: f64 = 2.0;
/// Share of pairs of locks whose order is right.
pub(super) const ORDER: f64 = 0.80;

/// How well the simulator did. Shares and factors are `None` if nothing was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// One thread: comparisons that the model predicts.
    pub alone: usize,
    /// One thread: the share within 10 % of the real figure.
    pub alone_within: Option<f64>,
    /// One thread: the median factor between the two.
    pub alone_median: Option<f64>,
    /// One thread: the largest factor.
    pub alone_max: Option<f64>,
    /// One thread: comparisons that the model doesn't predict; not judged.
    pub outside: usize,
    /// The share of them that is within 10 % all the same.
    pub outside_within: Option<f64>,
    /// Two threads: comparisons.
    pub two: usize,
    /// Two threads: the median factor.
    pub two_median: Option<f64>,
    /// Two threads: the 90th percentile of the factors.
    pub two_p90: Option<f64>,
    /// Two threads: pairs of locks under one load whose real figures clearly differ.
    pub pairs: usize,
    /// The share of them with the same order in the simulator.
    pub order: Option<f64>,
}

/// A requirement on the simulator, and the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is about, with the bar.
    pub what: String,
    /// The figure; `None`: nothing was compared.
    pub result: Option<f64>,
    /// Is it met?
    pub met: Met,
}

/// Whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It is.
    Yes,
    /// It isn't; or passes were made, but none could be compared.
    No,
    /// It needs two CPUs, and there is only one.
    NotMeasured,
}

impl Summary {
    /// The summary of these comparisons.
    pub fn of(rows: &[RealAndSimulated]) -> Self {
        let factors = |threads: u32| {
            let judged = rows.iter().filter(|row| row.threads == threads && row.predicted);
            let mut all: Vec<_> = judged.map(RealAndSimulated::factor).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (alone, two) = (factors(1), factors(2));
        let near = |row: &&RealAndSimulated| (row.ratio() - 1.0).abs() <= WITHIN;
        let of_one = |predicted| {
            let rows =
                rows.iter().filter(move |row| row.threads == 1 && row.predicted == predicted);
            (rows.clone().filter(near).count(), rows.count())
        };
        let ((within, _), (outside_within, outside)) = (of_one(true), of_one(false));
        let (right, pairs) = orders(rows);
        Self {
            alone: alone.len(),
            alone_within: share(within, alone.len()),
            alone_median: quantile(&alone, 0.5),
            alone_max: alone.last().copied(),
            outside,
            outside_within: share(outside_within, outside),
            two: two.len(),
            two_median: quantile(&two, 0.5),
            two_p90: quantile(&two, 0.9),
            pairs,
            order: share(right, pairs),
        }
    }

    /// The four bars; `one_cpu`: two threads could not be compared.
    pub fn bars(&self, one_cpu: bool) -> [Bar; 4] {
        let met = |met| if met { Met::Yes } else { Met::No };
        let most = |figure: Option<f64>, bar| met(figure.is_some_and(|figure| figure <= bar));
        let least = |figure: Option<f64>, bar| met(figure.is_some_and(|figure| figure >= bar));
        let two = |met| if one_cpu { Met::NotMeasured } else { met };
        let bar = |what: String, result, met| Bar { what, result, met };
        [
            bar(
                format!("1 thread, where predicted: share within 10 %, at least {SHARE:.1}"),
                self.alone_within,
                least(self.alone_within, SHARE),
            ),
            bar(
                format!("2 threads: median factor, at most {MEDIAN:.1}"),
                self.two_median,
                two(most(self.two_median, MEDIAN)),
            ),
            bar(
                format!("2 threads: 90 % of the factors, at most {P90:.1}"),
                self.two_p90,
                two(most(self.two_p90, P90)),
            ),
            bar(
                format!("2 threads: order of locks right, at least {ORDER:.1}"),
                self.order,
                two(least(self.order, ORDER)),
            ),
        ]
    }
}

fn share(some: usize, all: usize) -> Option<f64> {
    (all > 0).then(|| some as f64 / all as f64)
}

/// Pairs of locks under one load with two threads: those whose order is right, and all whose real figures clearly
/// differ.
fn orders(rows: &[RealAndSimulated]) -> (usize, usize) {
    let rows: Vec<_> = rows.iter().filter(|row| row.threads == 2).collect();
    let (mut right, mut all) = (0, 0);
    for (number, one) in rows.iter().enumerate() {
        for other in &rows[number + 1..] {
            if one.load == other.load && !one.overlaps(other) {
                all += 1;
                let real = one.real_ns < other.real_ns;
                right += usize::from(real == (one.simulated_ns < other.simulated_ns));
            }
        }
    }
    (right, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lock: &str, threads: u32, real: f64, simulated: f64) -> RealAndSimulated {
        RealAndSimulated {
            lock: lock.into(),
            load: "x".into(),
            threads,
            real_ns: real,
            spread_ns: (0.95 * real, 1.05 * real),
            simulated_ns: simulated,
            predicted: true,
        }
    }

    #[test]
    fn factors_count_both_ways() {
        let rows: Vec<_> =
            [0.5, 0.8, 1.0, 1.25, 3.0].iter().map(|r| row("a", 2, 100.0, r * 100.0)).collect();
        let summary = Summary::of(&rows);
        assert_eq!((summary.two, summary.two_median, summary.two_p90), (5, Some(1.25), Some(2.6)));
        assert_eq!((summary.alone, summary.alone_within), (0, None));
        // Nothing was compared with one thread, and no pair clearly differs.
        let met = |one_cpu| summary.bars(one_cpu).map(|bar| bar.met);
        assert_eq!(met(false), [Met::No, Met::Yes, Met::No, Met::No]);
        // With one CPU, two threads can't be compared. But one thread should have been.
        assert_eq!(met(true), [Met::No, Met::NotMeasured, Met::NotMeasured, Met::NotMeasured]);
    }

    #[test]
    fn one_thread_is_judged_by_the_share_within_ten_percent() {
        let rows: Vec<_> =
            [0.91, 1.09, 1.11, 0.89].iter().map(|r| row("a", 1, 10.0, r * 10.0)).collect();
        let summary = Summary::of(&rows);
        assert_eq!((summary.alone_within, summary.two_median), (Some(0.5), None));
        assert!((summary.alone_max.unwrap() - 1.0 / 0.89).abs() < 1e-9);
    }

    #[test]
    fn what_the_model_does_not_predict_is_counted_but_not_judged() {
        let mut rows =
            vec![row("a", 1, 10.0, 10.0), row("b", 1, 10.0, 7.6), row("c", 1, 10.0, 9.5)];
        rows[1].predicted = false;
        rows[2].predicted = false;
        let summary = Summary::of(&rows);
        assert_eq!((summary.alone, summary.alone_within), (1, Some(1.0)));
        assert_eq!((summary.outside, summary.outside_within), (2, Some(0.5)));
        assert_eq!((summary.alone_max, summary.bars(true)[0].met), (Some(1.0), Met::Yes));
    }

    #[test]
    fn only_pairs_that_are_apart_have_an_order() {
        let mut rows =
            vec![row("a", 2, 100.0, 200.0), row("b", 2, 150.0, 190.0), row("c", 2, 152.0, 500.0)];
        // a before b: wrong; a before c: right; b and c overlap.
        assert_eq!(orders(&rows), (1, 2));
        rows[2].load = "y".into();
        assert_eq!(orders(&rows), (0, 1), "other loads are no pair");
        rows[0].threads = 1;
        assert_eq!(orders(&rows), (0, 0));
    }

    #[test]
    fn a_perfect_simulator_meets_every_bar() {
        let rows: Vec<_> = (1..=4)
            .flat_map(|n| {
                [1, 2].map(|threads| row("a", threads, 50.0 * f64::from(n), 50.0 * f64::from(n)))
            })
            .collect();
        let summary = Summary::of(&rows);
        assert_eq!(summary.pairs, 6);
        let bars = summary.bars(false);
        assert!(bars.iter().all(|bar| bar.met == Met::Yes), "{summary:?}");
        assert_eq!(bars[0].what, "1 thread, where predicted: share within 10 %, at least 1.0");
    }
}
