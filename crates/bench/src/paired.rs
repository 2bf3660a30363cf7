//! How much better is one of two things? They are measured alternately, one pair per round.
//!
//! A disturbance that lasts longer than a round affects both members of a pair, and leaves their ratio unchanged. From
//! the rounds' ratios (their logarithms) we compute the Hodges-Lehmann estimate, and the interval of Wilcoxon's
//! signed-rank test (Hollander, Wolfe, Chicken, *Nonparametric Statistical Methods*, section 3.3). The test only
//! requires noise to be symmetric: it raises ratios as much and as often as it lowers them. That is why the order
//! within rounds alternates. A single bad round hardly affects the results.

use lockwright_numbers::quantile;
use serde::Serialize;

/// How often an interval may miss the true ratio, if enough rounds were measured. A user who looks at a running
/// comparison ten times is then wrong once in a few hundred cases.
const DOUBT: f64 = 0.001;

/// The distance from the mean, in standard deviations, that a normal variable exceeds with that probability, counting
/// both tails.
const NORMAL: f64 = 3.290_53;

/// Up to this many rounds, the distribution of rank sums is computed exactly.
const EXACT: usize = 100;

/// Fewer rounds show nothing.
pub const FEWEST: usize = 8;

/// From this many rounds on, intervals miss as seldom as they should: 2 / 2^11 is less than a thousandth.
pub const ENOUGH: usize = 11;

/// A ratio and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The estimate.
    pub middle: f64,
    /// The upper end.
    pub high: f64,
    /// The number of rounds.
    pub rounds: usize,
    /// The minimum probability that the interval contains the ratio.
    pub confidence: f64,
}

impl Interval {
    /// The interval for the rounds' ratios; `None`: there are too few, or one of them is not a positive number.
    pub fn of(ratios: &[f64]) -> Option<Interval> {
        let rounds = ratios.len();
        if rounds < FEWEST || !ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mut means = Vec::with_capacity(rounds * (rounds + 1) / 2);
        for (at, one) in logs.iter().enumerate() {
            means.extend(logs[at..].iter().map(|other| (one + other) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        let (left_out, doubt) = left_out(rounds);
        let middle = quantile(&means, 0.5)?;
        Some(Interval {
            low: means[left_out].exp(),
            middle: middle.exp(),
            high: means[means.len() - 1 - left_out].exp(),
            rounds,
            confidence: 1.0 - doubt,
        })
    }

    /// The finding, if a difference of less than `margin` (0.05: five per cent) doesn't count.
    pub fn finding(&self, margin: f64) -> Finding {
        let (least, most) = (1.0 / (1.0 + margin), 1.0 + margin);
        if self.low > 1.0 && self.middle >= most {
            Finding::Better
        } else if self.high < 1.0 && self.middle <= least {
            Finding::Worse
        } else if self.low >= least && self.high <= most {
            Finding::Same
        } else {
            Finding::Unclear
        }
    }

    /// About how many rounds give a clear finding, if the middle and the noise stay as they are: an interval's width shrinks with the
    /// square root of the rounds. `None`: it is clear already.
    pub fn rounds_for(&self, margin: f64) -> Option<f64> {
        if self.finding(margin) != Finding::Unclear {
            return None;
        }
        let [low, middle, high, size] =
            [self.low, self.middle, self.high, 1.0 + margin].map(f64::ln);
        // How many times as wide as it may be is it?
        let wide = if middle >= size {
            (middle - low) / middle
        } else if middle <= -size {
            (high - middle) / -middle
        } else {
            // Both ends must come within the margin.
            ((high - middle) / (size - middle)).max((middle - low) / (size + middle))
        };
        Some(SAFELY * self.rounds as f64 * wide * wide)
    }
}

/// With as many rounds as the width asks for, every second comparison would end just outside.
const SAFELY: f64 = 1.5;

/// The conclusion from an [`Interval`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// The ratio is above 1, and by enough to count.
    Better,
    /// The ratio is below 1, and by enough to count.
    Worse,
    /// The difference is too small to count.
    Same,
    /// More rounds are needed.
    Unclear,
}

/// How many means the interval leaves out at each end, and how often it then misses.
///
/// Each round is above or below the true ratio with equal probability. The test uses the rank sum of the rounds above.
fn left_out(rounds: usize) -> (usize, f64) {
    if rounds > EXACT {
        // The sum is approximately normal: its mean, its deviation, and the point below which half a thousandth lies.
        let n = rounds as f64;
        let (mean, deviation) =
            (n * (n + 1.0) / 4.0, (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt());
        return ((mean - NORMAL * deviation - 0.5).floor() as usize, DOUBT);
    }
    // chances[s]: the probability that the rounds above have rank sum s.
    let mut chances = vec![1.0];
    for rank in 1..=rounds {
        let mut next = vec![0.0; chances.len() + rank];
        for (sum, chance) in chances.iter().enumerate() {
            next[sum] += chance / 2.0;
            next[sum + rank] += chance / 2.0;
        }
        chances = next;
    }
    let mut doubt = 2.0 * chances[0];
    for (sum, chance) in chances.iter().enumerate().skip(1) {
        if doubt + 2.0 * chance > DOUBT {
            return (sum - 1, doubt);
        }
        doubt += 2.0 * chance;
    }
    (0, doubt)
}

/// Should a running comparison be evaluated after this many rounds? Not after each one: frequent checks find
/// differences by chance.
pub fn is_look(round: usize) -> bool {
    let mut look = ENOUGH;
    while look < round {
        look += look / 4;
    }
    look == round
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniform in [0, 1): xorshift64*.
    struct Dice(u64);

    impl Dice {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// A run that takes `time` on a machine with a noisy neighbour: mostly a little longer, sometimes much longer.
        fn run(&mut self, time: f64) -> f64 {
            let burst = if self.next() < 0.15 { 0.8 * self.next() } else { 0.0 };
            time * (1.0 + 0.1 * self.next() + burst)
        }
    }

    #[test]
    fn ends_are_those_of_the_tables() {
        // Hollander and Wolfe, table A.4: of 5 rounds P(T+ <= 0) = 1/32; of 20 rounds P(T+ <= 21) = 0.0004.
        assert_eq!(left_out(5), (0, 2.0 / 32.0));
        let (left_out_of_20, doubt) = left_out(20);
        assert_eq!(left_out_of_20, 21);
        assert!((doubt - 2.0 * 0.000_425).abs() < 1e-6, "{doubt}");
        // For many rounds, it is close to the exact value, on the safe side.
        let (counted, guessed) = (left_out(EXACT).0, left_out(EXACT + 1).0);
        assert!(guessed > counted && guessed < counted + EXACT, "{counted}, {guessed}");
        assert_eq!(left_out(ENOUGH).0, 0);
        assert!(left_out(ENOUGH).1 <= DOUBT && left_out(ENOUGH - 1).1 > DOUBT);
    }

    #[test]
    fn intervals_hold_their_middle_and_few_rounds_say_nothing() {
        let ratios = [1.1, 1.2, 1.3, 1.4, 1.3, 1.2, 1.25, 9.0];
        assert_eq!(Interval::of(&ratios[..7]), None);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Interval::of(&[&ratios[..], &[wrong]].concat()), None);
        }
        let interval = Interval::of(&ratios).unwrap();
        assert!((interval.low - 1.1).abs() < 1e-9 && (interval.high - 9.0).abs() < 1e-9);
        assert!(interval.middle > 1.2 && interval.middle < 1.4, "{interval:?}");
        assert_eq!(interval.confidence, 1.0 - 2.0 / 256.0);
    }

    #[test]
    fn findings_need_both_certainty_and_size() {
        let finding = |low, middle, high| {
            Interval { low, middle, high, rounds: 20, confidence: 0.999 }.finding(0.05)
        };
        assert_eq!(finding(1.02, 1.10, 1.20), Finding::Better);
        assert_eq!(finding(0.80, 0.90, 0.98), Finding::Worse);
        assert_eq!(finding(0.98, 1.01, 1.03), Finding::Same);
        assert_eq!(finding(1.01, 1.02, 1.04), Finding::Same);
        assert_eq!(finding(1.01, 1.03, 1.09), Finding::Unclear);
        assert_eq!(finding(0.96, 1.08, 1.20), Finding::Unclear);
    }

    #[test]
    fn as_many_rounds_as_are_said_to_do_are_enough() {
        let mut dice = Dice(7);
        let mut rounds = |many: usize, other: f64| {
            let ratios: Vec<_> = (0..many).map(|_| dice.run(other) / dice.run(1.0)).collect();
            Interval::of(&ratios).unwrap()
        };
        for other in [1.15, 1.0, 0.87] {
            let (mut unclear, mut clear) = (0, 0);
            while unclear < 50 {
                let Some(enough) = rounds(14, other).rounds_for(0.05) else { continue };
                // Where the middle lies at the margin by chance, there is no sensible number.
                if enough > 500.0 {
                    continue;
                }
                unclear += 1;
                let longer = rounds(enough.ceil() as usize, other).finding(0.05);
                clear += u32::from(longer != Finding::Unclear);
            }
            assert!(clear >= 30, "{other}: {clear} of {unclear}");
        }
    }

    #[test]
    fn a_middle_near_the_margin_needs_countless_rounds() {
        let interval =
            |low, middle, high| Interval { low, middle, high, rounds: 20, confidence: 0.999 };
        assert_eq!(interval(1.02, 1.10, 1.20).rounds_for(0.05), None);
        // Half the width would do, so four times the rounds, and half as many again.
        let twice = interval(1.10_f64.powi(-1), 1.10, 1.10_f64.powi(3)).rounds_for(0.05).unwrap();
        assert!((twice - 120.0).abs() < 1e-6, "{twice}");
        assert!(interval(0.9, 1.0499, 1.2).rounds_for(0.05).unwrap() > 1e6);
    }

    #[test]
    fn looks_are_few() {
        let looks: Vec<_> = (1..=100).filter(|round| is_look(*round)).collect();
        assert_eq!(looks[..4], [11, 13, 16, 20]);
        assert!(looks.len() < 14, "{looks:?}");
        assert!((1..=10_000).filter(|round| is_look(*round)).count() < 40);
    }

    /// The finding of a comparison that stops by itself, or after 60 rounds.
    fn compared(dice: &mut Dice, one: f64, other: f64) -> Finding {
        let mut ratios = Vec::new();
        for round in 1..=60 {
            ratios.push(dice.run(other) / dice.run(one));
            if is_look(round) {
                let finding = Interval::of(&ratios).unwrap().finding(0.05);
                if finding != Finding::Unclear {
                    return finding;
                }
            }
        }
        Finding::Unclear
    }

    #[test]
    fn a_tenth_is_found_and_nothing_is_not() {
        let mut dice = Dice(1);
        let mut count = |other: f64| {
            let found: Vec<_> = (0..200).map(|_| compared(&mut dice, 1.0, other)).collect();
            let of = |wanted| found.iter().filter(|finding| **finding == wanted).count();
            [Finding::Better, Finding::Same, Finding::Worse, Finding::Unclear].map(of)
        };
        // Out of 200: better, no difference that counts, worse, hidden by noise.
        assert_eq!(count(1.10), [188, 0, 0, 12], "docs/compare.md has these");
        assert_eq!(count(1.00), [1, 106, 0, 93], "and these");
        assert_eq!(count(1.03), [19, 10, 0, 171], "and these");
    }
}
