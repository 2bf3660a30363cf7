//! What the papers' figures say, as data: what to measure, the paper's number, and which results are accepted.
//!
//! One file for each figure, `targets/<id>.toml`:
//!
//! ```toml
//! figure = "libasl-1"
//! title = "MCS and TAS collapse when little cores join"
//! paper = "LibASL, PPoPP 2022"
//! section = "2.2"
//! machine = "m1"                  # a profile's name
//! shows = "..."
//! chosen_as = "libasl-8a"         # has that figure's chosen numbers, instead of its own
//!
//! [setup]                         # the workload as published
//! threads = "..."
//!
//! [chosen]                        # what the measurement needs beyond that
//! gap = { value = 0.0, what = "NOPs between two critical sections", why = "..." }
//!
//! [[row]]
//! name = "mcs-8/mcs-4"
//! what = "..."
//! unit = "ratio"
//! kind = "number"                 # or sign, same, direction, identity: see Kind
//! paper = 0.5                     # or bounds: paper_low, paper_high
//! high = 0.55                     # a bar of our own; without one, see Row::accepted
//! because = "..."                 # why a number's bar is wider than a quarter
//! locks = ["mcs"]
//! quote = "..."
//! fit = true                      # the machine's fitted figures were fitted to it; without this it is a prediction
//! given = "..."                   # why it was met beforehand: the same run as a fitted row, a workload chosen to meet it
//! repeats = "libasl-4: mcs-8/mcs-4"   # says nothing beyond that row
//! wrong = "mcs is tas"            # a wrong model that the row must notice: `lockwright reproduce --planted`
//!
//! [[not_reproduced]]
//! part = "..."
//! reason = "..."
//! ```

mod left_out;

pub use left_out::{LeftOut, left_out};

use crate::lock::LockSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// A figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its id on the command line: `libasl-8b`.
    pub figure: String,
    /// What it is about, in one line.
    pub title: String,
    /// The paper, its venue and year.
    pub paper: String,
    /// Section in which it is discussed.
    pub section: String,
    /// The profile of the machine.
    pub machine: String,
    /// What the figure shows.
    pub shows: String,
    /// The workload as published.
    pub setup: Setup,
    /// The figure whose chosen numbers it has: they share the workload.
    pub chosen_as: Option<String>,
    /// Numbers that the measurement needs but the paper doesn't give, by name.
    #[serde(default)]
    pub chosen: BTreeMap<String, Chosen>,
    /// What is compared.
    pub row: Vec<Row>,
    /// Parts of the figure that can't be compared.
    #[serde(default)]
    pub not_reproduced: Vec<NotReproduced>,
}

/// A workload as published; `not published` where the paper is silent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// How many threads, and on which cores.
    pub threads: String,
    /// What is done under the lock.
    pub critical_section: String,
    /// What is done between two acquisitions, or two epochs.
    pub gap: String,
    /// The locks, by the paper's names.
    pub locks: String,
    /// What is measured.
    pub metric: String,
}

/// A number that the paper does not publish.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The value that we use.
    pub value: f64,
    /// What it is, and its unit.
    pub what: String,
    /// Why this value.
    pub why: String,
    /// The rows that another value would have changed, if a look at results helped to choose: they count as
    /// given.
    #[serde(default)]
    pub serves: Vec<String>,
}

/// One comparison.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// A short name, unique within the figure.
    pub name: String,
    /// What is measured, in one sentence.
    pub what: String,
    /// The unit of its numbers.
    pub unit: Unit,
    /// What kind of statement it compares; each kind is counted separately.
    pub kind: Kind,
    /// The paper's number.
    pub paper: Option<f64>,
    /// The paper only says "at least" this.
    pub paper_low: Option<f64>,
    /// The paper only says "at most" this.
    pub paper_high: Option<f64>,
    /// Our own bar: the smallest result that is accepted.
    pub low: Option<f64>,
    /// Our own bar: the largest result that is accepted.
    pub high: Option<f64>,
    /// Why our bars accept more than the paper's number give or take a quarter.
    pub because: Option<String>,
    /// Ids of the locks that it needs.
    pub locks: Vec<String>,
    /// The paper's words, with the signs restored that its text form lost ("us", "<="), and where they are if not in
    /// the figure's section; none where the row is our own.
    pub quote: Option<String>,
    /// A profile other than the figure's.
    pub machine: Option<String>,
    /// Nothing was fitted to it, and it is only reported: any result is accepted.
    #[serde(default)]
    pub held_out: bool,
    /// The fitted figures of the machine's profile were fitted to it; any other row is a prediction.
    #[serde(default)]
    pub fit: bool,
    /// Why it was bound to be met although nothing was fitted to it: it is the same run as a fitted row, or a workload
    /// or a machine's figure was chosen to meet it.
    pub given: Option<String>,
    /// The row that says the same, as `FIGURE: ROW`: it is counted there.
    pub repeats: Option<String>,
    /// A wrong model that the row must notice: which lock is another one, what is slower, whether cores are equal.
    /// `lockwright reproduce --planted` runs it.
    pub wrong: String,
    /// Its weight in the fit, relative to other rows.
    #[serde(default = "one")]
    pub weight: f64,
    /// Other readings of the number, where the paper contradicts itself.
    #[serde(default)]
    pub reading: Vec<Reading>,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One measurement divided by another.
    Ratio,
    /// A share of a whole, 0 to 1.
    Share,
    /// Microseconds.
    Us,
    /// CAL's fairness: the smallest slowdown of any thread divided by the largest, 0 to 1.
    Fairness,
    /// Spearman's rank correlation, -1 to 1.
    Rank,
}

/// What kind of statement a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The paper has a number from which "no effect" is far: the result may be too small, or too large.
    Number,
    /// The paper has a ratio so near to 1 that 1 itself would be within a quarter. So the result must lie on the same
    /// side of 1, with all of [`lockwright_numbers::median_interval`], and be of the same order of size.
    Sign,
    /// The paper finds that two things are alike: 1, give or take [`ALIKE`].
    Same,
    /// The paper only says which of two is larger, or names a bound.
    Direction,
    /// True by construction if the lock works at all: two names for the same thing (an SLO of 0 and MCS), or the set point of a
    /// feedback (P99 latency and SLO).
    Identity,
}

/// How far a result may be off, as a share of the paper's number.
const TOLERANCE: f64 = 0.25;

/// How far two things that the paper finds alike may be apart.
const ALIKE: f64 = 0.1;

/// An effect is of the same order of size if it is at most this many times as large, or as small.
const ORDER: f64 = 3.0;

/// A row that is judged by its sign needs this many runs.
pub const SIGN_SEEDS: u32 = 11;

fn one() -> f64 {
    1.0
}

/// Another reading of the paper's number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The number in this reading.
    pub paper: f64,
    /// Why the paper may mean it.
    pub why: String,
}

/// A part of a figure that can't be compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotReproduced {
    /// Which part.
    pub part: String,
    /// The reason.
    pub reason: String,
}

/// Why a text isn't a figure.
#[derive(Debug, Error)]
pub enum TargetError {
    /// Not the TOML of a figure.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// It takes another figure's chosen numbers, but has some of its own.
    #[error("chosen_as and chosen exclude each other")]
    Chosen,
    /// A row that says nothing, or contradicts itself.
    #[error("row {row}: {why}")]
    Row {
        /// Its name.
        row: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Figure {
    /// Reads and checks a figure.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let figure: Self = toml::from_str(text)?;
        if figure.chosen_as.is_some() && !figure.chosen.is_empty() {
            return Err(TargetError::Chosen);
        }
        for (index, row) in figure.row.iter().enumerate() {
            let twice = figure.row[..index].iter().any(|earlier| earlier.name == row.name);
            if let Some(why) = twice.then_some("its name is there twice").or_else(|| row.fault()) {
                return Err(TargetError::Row { row: row.name.clone(), why });
            }
        }
        Ok(figure)
    }
}

impl Row {
    /// The smallest and the largest accepted result: our bars, or, on a side without one, the paper's bound, or its
    /// number give or take a quarter. `None`: no bound on that side, or the row is only reported.
    pub fn accepted(&self) -> (Option<f64>, Option<f64>) {
        if self.held_out {
            return (None, None);
        }
        let (low, high) = match (self.kind, self.paper) {
            (Kind::Sign, Some(paper)) => {
                let (small, large) = (paper.powf(ORDER.recip()), paper.powf(ORDER));
                (Some(small.min(large)), Some(small.max(large)))
            }
            (Kind::Same, _) => (Some(1.0 - ALIKE), Some(1.0 + ALIKE)),
            _ => self.near(),
        };
        if self.kind == Kind::Number {
            return (self.low.or(low), self.high.or(high));
        }
        if self.low.is_some() || self.high.is_some() {
            return (self.low, self.high);
        }
        (low, high)
    }

    /// The paper's number, give or take a quarter; or its bounds.
    fn near(&self) -> (Option<f64>, Option<f64>) {
        match self.paper {
            Some(paper) => (Some((1.0 - TOLERANCE) * paper), Some((1.0 + TOLERANCE) * paper)),
            None => (self.paper_low, self.paper_high),
        }
    }

    /// Whether a result is within a quarter of the paper's number, or in the paper's range, whatever our bars are;
    /// `None` where the paper has no number.
    pub fn is_near(&self, result: f64) -> Option<bool> {
        let (low, high) = self.near();
        let (low, high) = low.zip(high).filter(|_| self.kind == Kind::Number)?;
        Some((low..=high).contains(&result))
    }

    /// Does all of an interval lie on the paper's side of 1?
    pub fn is_same_sign(&self, (low, high): (f64, f64)) -> bool {
        self.paper.is_some_and(|paper| if paper > 1.0 { low > 1.0 } else { high < 1.0 })
    }

    /// Is its result independent: neither a repetition, nor from a machine that was fitted or chosen for it?
    pub fn is_free(&self) -> bool {
        !self.fit && !self.held_out && self.given.is_none() && self.repeats.is_none()
    }

    /// Whether a result is accepted. The bound of a direction that the paper states isn't: there nothing differs.
    pub fn accepts(&self, result: f64) -> bool {
        let (low, high) = self.accepted();
        let is_bound = self.kind == Kind::Direction && self.low.is_none() && self.high.is_none();
        !result.is_nan()
            && low.is_none_or(|low| result > low || !is_bound && result == low)
            && high.is_none_or(|high| result < high || !is_bound && result == high)
    }

    /// How far a result is from what the paper says: the logarithm of its ratio to the nearest acceptable value; 0
    /// within a bound. A missing result, or one that isn't above 0, is infinitely far.
    pub fn error(&self, result: f64) -> f64 {
        if !result.is_finite() || result <= 0.0 {
            return f64::INFINITY;
        }
        let low = self.paper.or(self.paper_low).filter(|low| result < *low);
        let high = self.paper.or(self.paper_high).filter(|high| result > *high);
        low.or(high).map_or(0.0, |nearest| (result / nearest).ln())
    }

    /// Locks that don't exist yet: the row can't be measured.
    pub fn missing(&self) -> Vec<&str> {
        let unknown = |id: &&str| LockSpec::parse(id).is_err();
        self.locks.iter().map(String::as_str).filter(unknown).collect()
    }

    /// Do our bars accept more than the paper's number give or take a quarter?
    fn is_wide(&self) -> bool {
        const ROUNDING: f64 = 1e-9;
        let (low, high) = self.near();
        let below = self.low.zip(low).is_some_and(|(bar, low)| bar < low - ROUNDING);
        let above = self.high.zip(high).is_some_and(|(bar, high)| bar > high + ROUNDING);
        below || above
    }

    /// Would no effect at all, a ratio of 1, be within a quarter of the paper's number?
    fn is_vague(&self) -> bool {
        let (low, high) = self.near();
        self.unit == Unit::Ratio
            && low.zip(high).is_some_and(|(low, high)| low <= 1.0 && 1.0 <= high)
    }

    fn fault(&self) -> Option<&'static str> {
        let bound = self.paper_low.is_some() || self.paper_high.is_some();
        let bar = self.low.is_some() || self.high.is_some();
        let near = self.near();
        let crossed =
            |low: Option<f64>, high: Option<f64>| low.zip(high).is_some_and(|(l, h)| l > h);
        if self.locks.is_empty() {
            Some("it takes no lock")
        } else if self.wrong.is_empty() {
            Some("it names no wrong model that it would notice")
        } else if self.paper.is_some() && bound {
            Some("the paper's number and its bound exclude each other")
        } else if self.paper.is_none() && !bound && !bar {
            Some("neither the paper nor we expect anything")
        } else if (self.paper.is_some() || bound) != self.quote.is_some() {
            Some("the paper's number and its words belong together")
        } else if crossed(self.paper_low, self.paper_high) || crossed(self.low, self.high) {
            Some("the lower bound is above the upper one")
        } else if self.kind == Kind::Number && (near.0.is_none() || near.1.is_none()) {
            Some("a number is the paper's: one, or a range")
        } else if self.kind == Kind::Number && self.is_vague() {
            Some(
                "no effect at all would be near the number: it is a sign, or says that two are alike",
            )
        } else if self.kind == Kind::Sign
            && (self.paper.is_none_or(|p| p == 1.0) || !self.is_vague())
        {
            Some("a sign is a number from which 1 is at most a quarter away, but not 1")
        } else if self.kind == Kind::Same && self.paper != Some(1.0) {
            Some("things that are alike have the ratio 1")
        } else if matches!(self.kind, Kind::Sign | Kind::Same) && bar {
            Some("a sign, and likeness, have no bars of our own")
        } else if self.kind == Kind::Direction && self.paper.is_some() {
            Some("a direction has bounds, and no number")
        } else if self.kind == Kind::Number && self.because.is_some() != self.is_wide() {
            Some("a bar of more than a quarter has a reason, and no other does")
        } else if self.fit && (self.held_out || !self.weight.is_finite() || self.weight <= 0.0) {
            Some("what is fitted to is not held out, and has a weight above 0")
        } else if self.fit
            && [self.paper, self.paper_low, self.paper_high]
                .iter()
                .flatten()
                .any(|number| *number <= 0.0)
        {
            Some("the fit compares logarithms: the paper's number must be above 0")
        } else if self.fit && self.quote.is_none() {
            Some("only what the paper says can be fitted to")
        } else {
            None
        }
    }
}

macro_rules! figures {
    ($($id:literal),* $(,)?) => {
        /// The built-in figures: id and text.
        pub const FIGURES: &[(&str, &str)] =
            &[$(($id, include_str!(concat!("../targets/", $id, ".toml")))),*];
    };
}

figures![
    "libasl-1",
    "libasl-4",
    "libasl-5",
    "libasl-8a",
    "libasl-8b",
    "libasl-8c",
    "libasl-8d",
    "libasl-8e",
    "libasl-8f",
    "libasl-8g",
    "libasl-8h",
    "libasl-8i",
    "libasl-9",
    "libasl-10",
    "libasl-platforms",
    "cal-3",
    "cal-7",
    "cal-8",
    "cal-9",
    "mutexee-1",
    "mutexee-8",
    "mutexee-9",
    "mutexee-10",
    "mutexee-11",
    "mutexee-12",
    "mutexee-13",
    "mutexee-t2",
    "rcl-micro",
    "rcl-combining",
    "rcl-crowded",
    "rcl-amp",
    "rcl-servers",
    "c3-2",
    "c3-policies",
];

/// The built-in figure of that id, with the numbers that it takes from another one.
pub fn figure(id: &str) -> Option<Figure> {
    let mut figure = alone(id)?;
    if let Some(other) = figure.chosen_as.as_deref() {
        figure.chosen = alone(other).expect("tested").chosen;
    }
    let served = figure.chosen.iter().flat_map(|(name, chosen)| {
        chosen.serves.iter().map(move |row| (row, format!("{name} was chosen so: {}", chosen.why)))
    });
    let served: Vec<(String, String)> = served.map(|(row, why)| (row.clone(), why)).collect();
    for (name, why) in served {
        // With another figure's chosen numbers, its rows don't concern this one.
        let row = figure.row.iter_mut().find(|row| row.name == name);
        row.into_iter().for_each(|row| row.given = Some(why.clone()));
    }
    Some(figure)
}

/// As its file has it.
fn alone(id: &str) -> Option<Figure> {
    let (_, text) = FIGURES.iter().find(|(known, _)| *known == id)?;
    Some(Figure::parse(text).expect("tested"))
}

#[cfg(test)]
mod tests;
