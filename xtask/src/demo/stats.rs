//! Figures from runs, and what may be said about them.

use super::measure::{Run, Setting};
use std::collections::BTreeMap;

/// A distribution of latencies: nanoseconds (upper bound of the bucket) and how many.
#[derive(Clone, Default)]
pub(crate) struct Latency(BTreeMap<u64, u64>);

impl Latency {
    pub(crate) fn add(&mut self, upto: u64, count: u64) {
        *self.0.entry(upto).or_default() += count;
    }

    pub(crate) fn merge(&mut self, other: &Latency) {
        for (&upto, &count) in &other.0 {
            self.add(upto, count);
        }
    }

    /// The latency that a share `q` of the operations do not exceed.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        self.cumulative().find(|(_, share)| *share >= q).map_or_else(|| self.max(), |(ns, _)| ns)
    }

    pub(crate) fn max(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(&ns, _)| ns)
    }

    /// Every latency and the share of the operations that do not exceed it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (u64, f64)> {
        let total = self.0.values().sum::<u64>().max(1) as f64;
        let mut done = 0;
        self.0.iter().map(move |(&ns, &count)| {
            done += count;
            (ns, done as f64 / total)
        })
    }
}

/// Median and extremes over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread { median: (low + high) / 2.0, min: values[0], max: values[values.len() - 1] }
    }
}

/// One lock in one setting.
pub(super) struct Summary {
    pub(super) lock: String,
    /// Operations per second.
    pub(super) rate: Spread,
    /// The same of every round.
    pub(super) rates: Vec<f64>,
    /// To glibc's operations per second of the same round.
    pub(super) ratio: Spread,
    pub(super) cpu_ns: Spread,
    /// Of all rounds.
    pub(super) latency: Latency,
}

/// One summary a lock; the first lock is the one compared with.
pub(super) fn summarise(locks: &[String], runs: &[Vec<Run>]) -> Vec<Summary> {
    let rates = |runs: &[Run]| runs.iter().map(|run| run.rate).collect::<Vec<_>>();
    let base = rates(&runs[0]);
    locks
        .iter()
        .zip(runs)
        .map(|(lock, runs)| {
            let mut latency = Latency::default();
            for run in runs {
                latency.merge(&run.latency);
            }
            Summary {
                lock: lock.clone(),
                rate: Spread::of(rates(runs)),
                rates: rates(runs),
                ratio: Spread::of(rates(runs).iter().zip(&base).map(|(own, b)| own / b).collect()),
                cpu_ns: Spread::of(runs.iter().map(|run| run.cpu_ns).collect()),
                latency,
            }
        })
        .collect()
}

/// What a comparison allows to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Faster,
    Slower,
    /// The rounds disagree, or the difference is too small to matter.
    Even,
    /// Fewer than [`ROUNDS`] rounds.
    Untold,
}

/// Fewer rounds than this, and chance alone would have them agree too often.
const ROUNDS: usize = 4;

/// All rounds must agree, and the median must differ by 2 %.
pub(super) const RULE: &str = "a lock counts as faster or slower when all rounds agree and the median differs by at least 2 %";

pub(super) fn verdict(summary: &Summary) -> Verdict {
    let ratio = summary.ratio;
    if summary.rates.len() < ROUNDS {
        Verdict::Untold
    } else if ratio.min > 1.0 && ratio.median >= 1.02 {
        Verdict::Faster
    } else if ratio.max < 1.0 && ratio.median <= 0.98 {
        Verdict::Slower
    } else {
        Verdict::Even
    }
}

/// One sentence over all settings, a lock.
pub(super) fn headline(summaries: &[(Setting, Vec<Summary>)]) -> String {
    let locks = summaries.first().map_or(0, |(_, locks)| locks.len());
    let mut sentences = Vec::new();
    for n in 1..locks {
        let of_lock = || summaries.iter().map(|(_, locks)| &locks[n]);
        let name = &summaries[0].1[n].lock;
        if of_lock().any(|summary| verdict(summary) == Verdict::Untold) {
            return format!(
                "Fewer than {ROUNDS} rounds were run: too few to say which lock is faster."
            );
        }
        let total = summaries.len();
        let count = |wanted| of_lock().filter(|summary| verdict(summary) == wanted).count();
        let (faster, slower) = (count(Verdict::Faster), count(Verdict::Slower));
        let ratios: Vec<f64> = of_lock().map(|summary| summary.ratio.median).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let outcome = match (faster, slower) {
            (f, 0) if f == total => format!("faster than glibc in all {total} settings"),
            (0, s) if s == total => format!("slower than glibc in all {total} settings"),
            (0, 0) => format!("not clearly faster or slower than glibc in any of {total} settings"),
            (f, s) => {
                let rest = match total - f - s {
                    0 => String::new(),
                    even => format!(", not clearly either in {even}"),
                };
                format!("faster than glibc in {f} of {total} settings, slower in {s}{rest}")
            }
        };
        sentences.push(format!("{name}: {outcome} ({low:.2} to {high:.2} times its throughput)."));
    }
    sentences.join("\n")
}

/// One sentence over one lock in one setting.
pub(super) fn sentence(setting: Setting, glibc: &Summary, summary: &Summary) -> String {
    let ratio = summary.ratio;
    let (name, threads, lock) = (setting.name(), threads(setting.threads), &summary.lock);
    let rounds = summary.rates.len();
    let verdict = match verdict(summary) {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Even => "no clear difference",
        Verdict::Untold => "too few rounds to tell",
    };
    format!(
        "{name}, {threads}: {lock} did {:.2} times glibc's operations per second \
         ({:.2} to {:.2} over {rounds} round{}): {verdict}. The slowest 1 % of its operations took {} \
         or more, with glibc's lock {}.",
        ratio.median,
        ratio.min,
        ratio.max,
        if rounds == 1 { "" } else { "s" },
        time(summary.latency.quantile(0.99)),
        time(glibc.latency.quantile(0.99)),
    )
}

/// `2 threads`.
pub(super) fn threads(count: u32) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// A warning if other programs took so much of the machine that the figures suffer.
pub(crate) fn disturbed(share: f64) -> Option<String> {
    (share > 0.1).then(|| {
        format!(
            "other programs used {:.0} % of the CPUs during the measurement: figures are disturbed",
            share * 100.0
        )
    })
}

/// `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds in the unit that suits them, at three digits.
pub(crate) fn time(ns: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let ns = ns as f64;
    match units.iter().find(|(unit, _)| ns >= *unit) {
        None => format!("{ns:.0} ns"),
        Some((unit, name)) => {
            let value = ns / unit;
            let digits = if value < 9.995 {
                2
            } else if value < 99.95 {
                1
            } else {
                0
            };
            format!("{value:.digits$} {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(ratios: &[f64]) -> Summary {
        let spread = Spread::of(ratios.to_vec());
        Summary {
            lock: "auto".into(),
            rate: spread,
            rates: ratios.to_vec(),
            ratio: spread,
            cpu_ns: spread,
            latency: Latency::default(),
        }
    }

    #[test]
    fn a_verdict_needs_rounds_that_agree_and_a_difference() {
        assert_eq!(verdict(&summary(&[1.2, 1.1, 1.3, 1.01, 1.2])), Verdict::Faster);
        assert_eq!(verdict(&summary(&[1.2, 1.1, 1.3, 0.99, 1.2])), Verdict::Even);
        assert_eq!(verdict(&summary(&[1.01; 5])), Verdict::Even);
        assert_eq!(verdict(&summary(&[0.9, 0.8, 0.7, 0.95])), Verdict::Slower);
        assert_eq!(verdict(&summary(&[2.0; 3])), Verdict::Untold);
    }

    #[test]
    fn a_headline_names_defeats_too() {
        let setting = Setting { database: "sqlite", threads: 2 };
        let pair = |ratio: f64| (setting, vec![summary(&[1.0; 5]), summary(&[ratio; 5])]);
        let all = headline(&[pair(1.5), pair(1.2)]);
        assert_eq!(
            all,
            "auto: faster than glibc in all 2 settings (1.20 to 1.50 times its throughput)."
        );
        let mixed = headline(&[pair(1.5), pair(0.5), pair(1.0)]);
        assert_eq!(
            mixed,
            "auto: faster than glibc in 1 of 3 settings, slower in 1, not clearly either in 1 \
             (0.50 to 1.50 times its throughput)."
        );
    }

    #[test]
    fn quantiles_are_of_the_merged_runs() {
        let mut latency = Latency::default();
        latency.add(100, 98);
        let mut other = Latency::default();
        other.add(100, 1);
        other.add(5000, 1);
        latency.merge(&other);
        assert_eq!((latency.quantile(0.5), latency.quantile(0.99)), (100, 100));
        assert_eq!((latency.quantile(0.995), latency.max()), (5000, 5000));
    }

    #[test]
    fn medians_and_extremes() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 2.5);
    }

    #[test]
    fn figures_are_legible() {
        assert_eq!(thousands(1_234_567.8), "1,234,568");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(
            [time(803), time(9_990), time(132_095), time(164_626_431), time(2_000_000_000)],
            ["803 ns", "9.99 µs", "132 µs", "165 ms", "2.00 s"]
        );
    }
}
