//! Statistics of runs, and the conclusions that they allow.

use super::cores::Cores;
use super::measure::{Run, Setting, Subject};
use lockwright_numbers::{Spread, Times};

/// Median and extremes over the rounds.
pub(crate) fn spread(rounds: &[f64]) -> Spread {
    Spread::of(rounds).expect("each of a round or more is a number")
}

/// The figures in which locks are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Throughput,
    P99,
    P999,
    Longest,
    Cpu,
}

impl Figure {
    pub(super) const ALL: [Figure; 5] =
        [Figure::Throughput, Figure::P99, Figure::P999, Figure::Longest, Figure::Cpu];

    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Throughput => "throughput",
            Figure::P99 => "P99",
            Figure::P999 => "P99.9",
            Figure::Longest => "longest",
            Figure::Cpu => "CPU/op",
        }
    }

    /// Is more of it better?
    pub(super) fn is_gain(self) -> bool {
        self == Figure::Throughput
    }

    /// The smallest difference that matters: rare events vary more.
    fn margin(self) -> f64 {
        match self {
            Figure::Throughput | Figure::Cpu => 1.02,
            Figure::P99 | Figure::P999 | Figure::Longest => 1.1,
        }
    }

    fn of(self, run: &Run) -> f64 {
        match self {
            Figure::Throughput => run.rate,
            Figure::P99 => run.latency.quantile(0.99) as f64,
            Figure::P999 => run.latency.quantile(0.999) as f64,
            Figure::Longest => run.latency.max() as f64,
            Figure::Cpu => run.cpu_ns,
        }
    }
}

/// A figure of one lock relative to glibc's in the same round.
#[derive(Clone, Debug)]
pub(super) struct Ratio {
    pub(super) spread: Spread,
    rounds: Vec<f64>,
}

impl Ratio {
    pub(super) fn of(rounds: Vec<f64>) -> Ratio {
        Ratio { spread: spread(&rounds), rounds }
    }

    /// The conclusion that it allows.
    pub(super) fn verdict(&self, figure: Figure) -> Verdict {
        let rounds = self.rounds.len();
        // One round in nine may have been disturbed. If eight of nine agree, the odds that this is chance are 1 in 26.
        let agree = |sign: &dyn Fn(f64) -> bool| {
            self.rounds.iter().filter(|ratio| sign(**ratio)).count() >= rounds - rounds / 9
        };
        let (median, margin) = (self.spread.median, figure.margin());
        let (above, below) = match figure.is_gain() {
            true => (Verdict::Better, Verdict::Worse),
            false => (Verdict::Worse, Verdict::Better),
        };
        if rounds < ROUNDS {
            Verdict::Untold
        } else if median >= margin && agree(&|ratio| ratio > 1.0) {
            above
        } else if median <= 1.0 / margin && agree(&|ratio| ratio < 1.0) {
            below
        } else {
            Verdict::Even
        }
    }
}

/// The conclusion from a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Better,
    Worse,
    /// The rounds disagree, or the difference is too small to matter.
    Even,
    /// Fewer than [`ROUNDS`] rounds.
    Untold,
}

/// With fewer rounds, they would agree by chance too often.
pub(super) const ROUNDS: usize = 5;

/// The condition for "better" or "worse".
pub(super) const RULE: &str = "better or worse than glibc is what all rounds (of 9 and more: all but one in nine) agree on and whose median \
     differs by at least 2 % (throughput, CPU time) or 10 % (P99, P99.9, longest operation)";

/// One lock in one setting.
pub(super) struct Summary {
    pub(super) subject: Subject,
    /// Operations per second.
    pub(super) rate: Spread,
    /// The throughput of each round.
    pub(super) rates: Vec<f64>,
    pub(super) cpu_ns: Spread,
    /// The number of CPUs that the hogs used, all together.
    pub(super) hogs_cpus: Spread,
    /// The latencies of all rounds together.
    pub(super) latency: Times,
    /// For each of [`Figure::ALL`], the ratio to glibc.
    ratios: Vec<Ratio>,
}

impl Summary {
    pub(super) fn name(&self) -> String {
        self.subject.name()
    }

    /// A figure relative to glibc's in the same round.
    pub(super) fn ratio(&self, figure: Figure) -> &Ratio {
        &self.ratios[figure as usize]
    }

    pub(super) fn verdict(&self, figure: Figure) -> Verdict {
        self.ratio(figure).verdict(figure)
    }

    /// P99 relative to the objective.
    pub(super) fn of_slo(&self, slo_ns: u64) -> f64 {
        self.latency.quantile(0.99) as f64 / slo_ns.max(1) as f64
    }
}

/// One summary per lock. The first lock is the reference.
pub(super) fn summarise(subjects: &[Subject], runs: &[Vec<Run>]) -> Vec<Summary> {
    let summary = |(subject, own): (&Subject, &Vec<Run>)| {
        let mut latency = Times::default();
        own.iter().for_each(|run| latency.merge(&run.latency));
        let rates: Vec<f64> = own.iter().map(|run| run.rate).collect();
        let to_first = |figure: Figure| {
            let pairs = own.iter().zip(&runs[0]);
            // Times below a nanosecond count as one nanosecond.
            Ratio::of(
                pairs.map(|(own, b)| figure.of(own).max(1.0) / figure.of(b).max(1.0)).collect(),
            )
        };
        Summary {
            subject: subject.clone(),
            rate: spread(&rates),
            rates,
            cpu_ns: spread(&own.iter().map(|run| run.cpu_ns).collect::<Vec<_>>()),
            hogs_cpus: spread(&own.iter().map(|run| run.hogs.cpus()).collect::<Vec<_>>()),
            latency,
            ratios: Figure::ALL.map(to_first).into(),
        }
    };
    subjects.iter().zip(runs).map(summary).collect()
}

/// The results on one kind of cores.
pub(super) struct Panel {
    /// `None`: this machine's own cores.
    pub(super) cores: Option<Cores>,
    /// How often every lock ran, and how long each time.
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) groups: Vec<Group>,
}

/// All locks in one setting. The first is glibc's.
pub(super) struct Group {
    pub(super) setting: Setting,
    /// The objective of subjects that have one.
    pub(super) slo_ns: Option<u64>,
    pub(super) summaries: Vec<Summary>,
}

impl Panel {
    /// `real` or `emulated`.
    pub(super) fn origin(&self) -> &'static str {
        if self.cores.is_some() { "emulated" } else { "real" }
    }

    /// Were other processes computing all the time?
    pub(super) fn is_busy(&self) -> bool {
        self.groups.iter().any(|group| group.setting.hogs > 0)
    }

    /// A setting's name in this panel.
    pub(super) fn label(&self, setting: Setting) -> String {
        match self.cores {
            None => format!("{}, {}", setting.name(), setting.load()),
            Some(_) => format!("{}, a big core and a little one", setting.name()),
        }
    }

    /// Figures that are meaningful on these cores: emulation itself uses CPU time.
    pub(super) fn figures(&self) -> &'static [Figure] {
        if self.cores.is_some() { &FIGURES_EMULATED } else { &Figure::ALL }
    }
}

const FIGURES_EMULATED: [Figure; 4] =
    [Figure::Throughput, Figure::P99, Figure::P999, Figure::Longest];

/// `2 threads`.
pub(super) fn threads(count: u32) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// A warning if other programs used so much of the machine that the figures are unreliable.
pub(crate) fn disturbed(share: f64) -> Option<String> {
    (share > 0.1).then(|| {
        format!(
            "other programs used {:.0} % of the CPUs meanwhile: doubt the figures",
            share * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_rounds_that_agree_and_a_difference() {
        let verdict = |figure, ratios: &[f64]| Ratio::of(ratios.to_vec()).verdict(figure);
        let rate = |ratios: &[f64]| verdict(Figure::Throughput, ratios);
        assert_eq!(rate(&[1.2, 1.1, 1.3, 1.01, 1.2]), Verdict::Better);
        assert_eq!(rate(&[1.2, 1.1, 1.3, 0.99, 1.2]), Verdict::Even);
        assert_eq!(rate(&[1.01; 5]), Verdict::Even);
        assert_eq!(rate(&[0.9, 0.8, 0.7, 0.95, 0.9]), Verdict::Worse);
        assert_eq!(rate(&[2.0; 4]), Verdict::Untold);
        // Of nine rounds, one may differ, but not two.
        assert_eq!(rate(&[1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 0.5]), Verdict::Better);
        assert_eq!(rate(&[1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 0.9, 0.5]), Verdict::Even);
        // For times, less is better, and rare events must differ by more.
        assert_eq!(verdict(Figure::Cpu, &[0.95; 5]), Verdict::Better);
        assert_eq!(verdict(Figure::P999, &[0.95; 5]), Verdict::Even);
        assert_eq!(verdict(Figure::Longest, &[1.2; 5]), Verdict::Worse);
    }
}
