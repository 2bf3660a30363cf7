//! The results of single measurements, and ratios between locks.

use crate::plan::Plan;
use crate::spec::Answer;
use crate::subject::Role;
use lockwright_energy::{Source, SourceKind, Watts};
use lockwright_numbers::Spread;
use serde::{Deserialize, Serialize};

/// How one measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Measured.
    Ok,
    /// The lock has no such operation.
    Unsupported,
    /// Killed at its time limit.
    Hung,
    /// The worker died.
    Failed,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// The row of the grid.
    pub row: usize,
    /// The lock.
    pub subject: usize,
    /// The repetition.
    pub rep: u32,
    /// One-way line transfer before and after the group, in nanoseconds.
    pub line_ns: (Option<f64>, Option<f64>),
    /// Was the regime the same before and after?
    pub kept: bool,
    /// How it ended.
    pub status: Status,
    /// The number of CPUs that hogs used meanwhile, all together; `None`: there were none.
    pub hogs_cpus: Option<f64>,
    /// The worker's answer.
    pub answer: Option<Answer>,
}

/// The source of energy figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Energy {
    /// The kind of source.
    pub source: SourceKind,
    /// Details: the files read, or the assumed watts.
    pub what: String,
    /// Why there is no better source.
    pub notes: Vec<String>,
    /// The model's watts, used if nothing measures energy.
    pub watts: Watts,
}

impl Energy {
    /// The best source on this machine.
    pub(crate) fn here(watts: Watts) -> Self {
        let source = Source::here(watts.clone());
        Self {
            source: source.kind(),
            what: source.what().into(),
            notes: source.notes().to_vec(),
            watts,
        }
    }
}

/// All measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Every measurement, including the discarded ones.
    pub samples: Vec<Sample>,
    /// Groups discarded because the regime changed.
    pub discarded: u32,
    /// Groups whose regime changed in every attempt. They have fewer repetitions than requested.
    pub given_up: u32,
    /// Groups kept.
    pub kept: u32,
    /// Was it interrupted by Ctrl-C?
    pub interrupted: bool,
    /// Number of CPUs, of those that we may use, that other programs used during the run; `None`: the kernel doesn't
    /// say.
    pub others_cpus: Option<f64>,
    /// Turns of the compute loop per nanosecond.
    pub turns_per_ns: f64,
    /// The source of energy figures.
    pub energy: Energy,
    /// Messages for the user: what failed and why.
    pub notes: Vec<String>,
}

impl Measured {
    /// No measurements yet.
    pub(crate) fn new(turns_per_ns: f64, energy: Energy) -> Self {
        Self {
            samples: Vec::new(),
            discarded: 0,
            given_up: 0,
            kept: 0,
            interrupted: false,
            others_cpus: None,
            turns_per_ns,
            energy,
            notes: Vec::new(),
        }
    }

    /// Adds more measurements.
    pub(crate) fn add(&mut self, more: Measured) {
        self.samples.extend(more.samples);
        self.discarded += more.discarded;
        self.given_up += more.given_up;
        self.kept += more.kept;
        self.notes.extend(more.notes);
        self.saw(more.others_cpus);
    }

    /// Records how many CPUs others used in a part of the run. The worst part counts.
    pub(crate) fn saw(&mut self, others_cpus: Option<f64>) {
        self.others_cpus = match (self.others_cpus, others_cpus) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
    }
}

/// The kept samples of one row and subject that have an answer.
pub(crate) fn kept(
    measured: &Measured,
    row: usize,
    subject: usize,
) -> impl Iterator<Item = (u32, &Answer)> {
    measured
        .samples
        .iter()
        .filter(move |s| s.row == row && s.subject == subject && s.kept && s.status == Status::Ok)
        .filter_map(|s| Some((s.rep, s.answer.as_ref()?)))
}

/// The number of CPUs that hogs used during these samples.
pub(crate) fn hogs_cpus<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Spread> {
    Spread::of(&samples.filter_map(|sample| sample.hogs_cpus).collect::<Vec<_>>())
}

/// The ratio of `figure` between `subject` and `other`, within the same group.
pub(crate) fn paired(
    measured: &Measured,
    row: usize,
    subject: usize,
    other: usize,
    figure: impl Fn(&Answer) -> Option<f64>,
) -> Option<Spread> {
    let values: Vec<f64> = kept(measured, row, subject)
        .filter_map(|(rep, ours)| {
            let (_, theirs) = kept(measured, row, other).find(|(r, _)| *r == rep)?;
            let ratio = figure(ours)? / figure(theirs)?;
            (!ratio.is_nan()).then_some(ratio)
        })
        .collect();
    Spread::of(&values)
}

/// The highest rate of the ceiling's subjects at the point of `row`, in repetition `rep`.
pub(crate) fn ceiling(plan: &Plan, measured: &Measured, row: usize, rep: u32) -> Option<f64> {
    let of = |&subject: &usize| kept(measured, row, subject).find(|(r, _)| *r == rep);
    let rates = plan.ceilings[row].iter().filter_map(of).map(|(_, answer)| answer.rate());
    rates.max_by(f64::total_cmp)
}

/// Did one of our own locks (not a peer) hang or crash?
pub(crate) fn ours_failed(plan: &Plan, measured: &Measured) -> bool {
    measured.samples.iter().any(|s| {
        matches!(s.status, Status::Hung | Status::Failed)
            && plan.subjects[s.subject].role == Role::Ours
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of three rounds.
    pub(crate) fn measured(samples: Vec<Sample>) -> Measured {
        Measured { samples, kept: 3, ..Measured::new(1.0, Energy::here(Watts::assumed())) }
    }

    /// A measurement of `ops` operations in one second.
    pub(crate) fn sample(row: usize, subject: usize, rep: u32, ops: u64) -> Sample {
        let answer = Answer { ops, elapsed_ns: 1_000_000_000, ..Answer::default() };
        let line_ns = (None, None);
        let (kept, status) = (true, Status::Ok);
        Sample { row, subject, rep, line_ns, kept, status, hogs_cpus: None, answer: Some(answer) }
    }
}
