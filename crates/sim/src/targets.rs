//! What the papers' figures say, as data: what to measure, which number the paper has, which result is accepted.
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
//! kind = "number"                 # or direction, identity: see Kind
//! paper = 0.5                     # or bounds: paper_low, paper_high
//! high = 0.55                     # a bar of our own; without one, see Row::accepted
//! because = "..."                 # why a number's bar is wider than a quarter
//! locks = ["mcs"]
//! quote = "..."
//! fit = true                      # the machine's fitted figures were fitted to it; without this it is a prediction
//! given = "..."                   # why it was met beforehand: the same run as a fitted row, a workload chosen to meet it
//! repeats = "libasl-4: mcs-8/mcs-4"   # says nothing beyond that row
//!
//! [[not_reproduced]]
//! part = "..."
//! reason = "..."
//! ```

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
    /// Numbers that the measurement needs and the paper does not give, by name.
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
    /// What we take.
    pub value: f64,
    /// Of what, in which unit.
    pub what: String,
    /// Why this value.
    pub why: String,
}

/// One comparison.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Short, and its own within the figure.
    pub name: String,
    /// What is measured, in one sentence.
    pub what: String,
    /// Of what the numbers are.
    pub unit: Unit,
    /// What kind of statement it compares; each kind is counted apart.
    pub kind: Kind,
    /// The paper's number.
    pub paper: Option<f64>,
    /// The paper says only: at least.
    pub paper_low: Option<f64>,
    /// The paper says only: at most.
    pub paper_high: Option<f64>,
    /// Our own bar: the smallest result that is accepted.
    pub low: Option<f64>,
    /// Our own bar: the largest result that is accepted.
    pub high: Option<f64>,
    /// Why our bars accept more than a quarter up and down from the paper's number.
    pub because: Option<String>,
    /// Ids of the locks that it takes.
    pub locks: Vec<String>,
    /// The paper's words, with signs that its text form lost ("us", "<=") put back, and where they are if not in the
    /// figure's section; none where the row is our own.
    pub quote: Option<String>,
    /// Another profile than the figure's.
    pub machine: Option<String>,
    /// Nothing was fitted to it, and it is only reported: any result is acceptable.
    #[serde(default)]
    pub held_out: bool,
    /// The fitted figures of the machine's profile were fitted to it; any other row is a prediction.
    #[serde(default)]
    pub fit: bool,
    /// Why it was met beforehand although nothing is fitted to it: the same run as a fitted row, or a workload or a machine's
    /// figure that was chosen so.
    pub given: Option<String>,
    /// The row that says the same, as `FIGURE: ROW`: it is counted there.
    pub repeats: Option<String>,
    /// How much it counts in the fit, to other rows.
    #[serde(default = "one")]
    pub weight: f64,
    /// Other readings of the number, where the paper contradicts itself.
    #[serde(default)]
    pub reading: Vec<Reading>,
}

/// Of what a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One measurement to another.
    Ratio,
    /// A share of a whole, 0 to 1.
    Share,
    /// Microseconds.
    Us,
    /// CAL's fairness: the smallest slowdown of a thread to the largest, 0 to 1.
    Fairness,
    /// Spearman's rank correlation, -1 to 1.
    Rank,
}

/// What kind of statement a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The paper has a number: the result may be too small, or too large.
    Number,
    /// The paper only says which of two is larger, or names a bound.
    Direction,
    /// True by construction if the lock works at all: two names for the same thing (an SLO of 0 and MCS), or the set point of a
    /// feedback (P99 latency and SLO).
    Identity,
}

/// What share of the paper's number a result may be off.
const TOLERANCE: f64 = 0.25;

fn one() -> f64 {
    1.0
}

/// Another reading of the paper's number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The number in this reading.
    pub paper: f64,
    /// Why it may be meant.
    pub why: String,
}

/// A part of a figure that can't be compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotReproduced {
    /// Which.
    pub part: String,
    /// Why.
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
    /// The smallest and the largest result that is accepted: our bars; on a side without one, what the paper says at
    /// least or at most, or its number, a quarter up or down. None: no bound on that side, or the row is only reported.
    pub fn accepted(&self) -> (Option<f64>, Option<f64>) {
        if self.held_out {
            return (None, None);
        }
        let (low, high) = self.near();
        if self.kind == Kind::Number {
            return (self.low.or(low), self.high.or(high));
        }
        if self.low.is_some() || self.high.is_some() {
            return (self.low, self.high);
        }
        (low, high)
    }

    /// The paper's number, a quarter up and down; or its bounds.
    fn near(&self) -> (Option<f64>, Option<f64>) {
        match self.paper {
            Some(paper) => (Some((1.0 - TOLERANCE) * paper), Some((1.0 + TOLERANCE) * paper)),
            None => (self.paper_low, self.paper_high),
        }
    }

    /// Whether a result is within a quarter of the paper's number, or in the range that it gives, whatever our bars are; none where
    /// the paper has no number.
    pub fn is_near(&self, result: f64) -> Option<bool> {
        let (low, high) = self.near();
        let (low, high) = low.zip(high).filter(|_| self.kind == Kind::Number)?;
        Some((low..=high).contains(&result))
    }

    /// Does its result say something of its own, of a machine that was not made for it?
    pub fn is_free(&self) -> bool {
        !self.fit && !self.held_out && self.given.is_none() && self.repeats.is_none()
    }

    /// Whether a result is accepted.
    pub fn accepts(&self, result: f64) -> bool {
        let (low, high) = self.accepted();
        !result.is_nan()
            && low.is_none_or(|low| result >= low)
            && high.is_none_or(|high| result <= high)
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

    /// Do our bars accept more than the paper's number, a quarter up and down?
    fn is_wide(&self) -> bool {
        const ROUNDING: f64 = 1e-9;
        let (low, high) = self.near();
        let below = self.low.zip(low).is_some_and(|(bar, low)| bar < low - ROUNDING);
        let above = self.high.zip(high).is_some_and(|(bar, high)| bar > high + ROUNDING);
        below || above
    }

    fn fault(&self) -> Option<&'static str> {
        let bound = self.paper_low.is_some() || self.paper_high.is_some();
        let bar = self.low.is_some() || self.high.is_some();
        let near = self.near();
        let crossed =
            |low: Option<f64>, high: Option<f64>| low.zip(high).is_some_and(|(l, h)| l > h);
        if self.locks.is_empty() {
            Some("it takes no lock")
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
        /// The figures that come with the program: id and text.
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
    "libasl-platforms",
    "cal-3",
    "cal-7",
    "cal-8",
    "mutexee-8",
    "mutexee-9",
    "mutexee-10",
    "mutexee-11",
    "mutexee-12",
    "mutexee-t2",
    "rcl-micro",
];

/// A figure, or a family of figures, that is not run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Which, as the others are named.
    pub figure: String,
    /// The paper, its venue and year.
    pub paper: String,
    /// What it shows, in a few words.
    pub what: String,
    /// Why it is not run, and what there is instead.
    pub reason: String,
}

/// The papers' figures with locks' results that are not run.
///
/// # Panics
/// Never: the file comes with the program, and is tested.
pub fn left_out() -> Vec<LeftOut> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct All {
        figure: Vec<LeftOut>,
    }
    let all: All = toml::from_str(include_str!("../targets/left-out.toml")).expect("tested");
    all.figure
}

/// The figure of that id, of those that come with the program; with the numbers that it has from another one.
pub fn figure(id: &str) -> Option<Figure> {
    let mut figure = alone(id)?;
    if let Some(other) = figure.chosen_as.as_deref() {
        figure.chosen = alone(other).expect("tested").chosen;
    }
    Some(figure)
}

/// As its file has it.
fn alone(id: &str) -> Option<Figure> {
    let (_, text) = FIGURES.iter().find(|(known, _)| *known == id)?;
    Some(Figure::parse(text).expect("tested"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{self, Origin};
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = Figure> {
        FIGURES.iter().map(|(id, text)| {
            let figure = Figure::parse(text).unwrap_or_else(|why| panic!("{id}: {why}"));
            assert_eq!(figure.figure, *id);
            figure
        })
    }

    fn row(figure: &str, name: &str) -> Row {
        let rows = super::figure(figure).unwrap().row;
        rows.into_iter()
            .find(|row| row.name == name)
            .unwrap_or_else(|| panic!("{figure}: no {name}"))
    }

    #[test]
    fn every_figure_reads_and_names_machines_that_there_are() {
        for figure in all() {
            assert!(!figure.row.is_empty(), "{}", figure.figure);
            let machines = figure.row.iter().filter_map(|row| row.machine.as_ref());
            for machine in machines.chain([&figure.machine]) {
                assert!(profile::builtin(machine).is_some(), "{}: {machine}", figure.figure);
            }
        }
    }

    #[test]
    fn figures_of_one_workload_have_the_same_chosen_numbers() {
        for (id, same) in [
            ("libasl-8b", "libasl-8a"),
            ("libasl-8e", "libasl-4"),
            ("libasl-8f", "libasl-4"),
            ("libasl-8h", "libasl-8a"),
            ("libasl-8i", "libasl-8a"),
        ] {
            assert_eq!(super::figure(id).unwrap().chosen_as.as_deref(), Some(same), "{id}");
        }
        for figure in all() {
            let Some(other) = &figure.chosen_as else { continue };
            let theirs = super::figure(other).unwrap_or_else(|| panic!("{}", figure.figure));
            assert!(theirs.chosen_as.is_none() && !theirs.chosen.is_empty(), "{}", figure.figure);
            let ours = super::figure(&figure.figure).unwrap().chosen;
            assert!(ours.keys().eq(theirs.chosen.keys()), "{}", figure.figure);
        }
    }

    #[test]
    fn shares_and_fairness_stay_between_0_and_1() {
        for figure in all() {
            for row in
                figure.row.iter().filter(|row| matches!(row.unit, Unit::Share | Unit::Fairness))
            {
                let given = [row.paper, row.paper_low, row.paper_high, row.low, row.high];
                let inside = given.into_iter().flatten().all(|value| (0.0..=1.0).contains(&value));
                assert!(inside, "{}: {}", figure.figure, row.name);
            }
        }
    }

    #[test]
    fn a_fitted_figure_of_a_profile_names_figures_that_there_are() {
        for (name, _) in profile::BUILTIN {
            for (path, from) in &profile::builtin(name).unwrap().provenance {
                for target in &from.targets {
                    assert!(super::figure(target).is_some(), "{name}: {path}: {target}");
                }
            }
        }
    }

    #[test]
    fn what_a_machine_is_fitted_to_and_the_fitted_figures_name_each_other() {
        let mut of_profiles = BTreeSet::new();
        for (name, _) in profile::BUILTIN {
            for from in profile::builtin(name).unwrap().provenance.values() {
                of_profiles
                    .extend(from.targets.iter().map(|target| ((*name).to_owned(), target.clone())));
            }
        }
        let mut of_rows = BTreeSet::new();
        for figure in all() {
            for row in figure.row.iter().filter(|row| row.fit) {
                let machine = row.machine.as_ref().unwrap_or(&figure.machine);
                of_rows.insert((machine.clone(), figure.figure.clone()));
            }
        }
        assert_eq!(of_rows, of_profiles);
    }

    /// A profile with as many free figures as rows meets them all and says nothing.
    #[test]
    fn no_more_figures_are_fitted_than_rows() {
        for (name, _) in profile::BUILTIN {
            let profile = profile::builtin(name).unwrap();
            let is_fitted = |path: &String| {
                profile.provenance_of(path).is_some_and(|from| from.kind == Origin::Fitted)
            };
            let paths: BTreeSet<String> =
                profile.figures().into_iter().map(|(path, _)| path).collect();
            let figures = paths.iter().filter(|path| is_fitted(path)).count();
            let of_profile = |figure: &Figure, row: &Row| {
                row.fit && row.machine.as_ref().unwrap_or(&figure.machine) == name
            };
            let rows: usize = all()
                .map(|figure| figure.row.iter().filter(|row| of_profile(&figure, row)).count())
                .sum();
            assert!(figures <= rows, "{name}: {figures} figures, {rows} rows");
            assert!(*name != "m1" || figures < rows, "{name}: {figures} figures, {rows} rows");
        }
    }

    #[test]
    fn errors_are_ratios_and_there_is_none_within_a_bound() {
        let bound = row("libasl-1", "tas-8/tas-4");
        assert_eq!((bound.error(0.4), bound.error(1.0)), (0.0, 0.0));
        assert!((bound.error(2.0) - 2.0_f64.ln()).abs() < 1e-9);
        let number = row("libasl-1", "tas-8/mcs-8");
        assert!((number.error(1.3) - 2.0_f64.ln()).abs() < 1e-9);
        assert!((number.error(0.325) + 2.0_f64.ln()).abs() < 1e-9);
        assert!([f64::NAN, 0.0, f64::INFINITY].iter().all(|none| bound.error(*none).is_infinite()));
    }

    #[test]
    fn the_paper_does_not_contradict_what_is_accepted() {
        for figure in all() {
            for row in figure.row.iter().filter(|row| row.paper.is_some()) {
                let readings = row.reading.iter().map(|reading| reading.paper).chain(row.paper);
                let some = readings.into_iter().any(|paper| row.accepts(paper));
                assert!(some, "{}: {}", figure.figure, row.name);
            }
        }
    }

    #[test]
    fn the_bars_are_as_agreed() {
        let near = |row: &Row, low: Option<f64>, high: Option<f64>| {
            let same = |a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() < 1e-9,
                (a, b) => a == b,
            };
            let (l, h) = row.accepted();
            assert!(same(l, low) && same(h, high), "{}: {l:?} to {h:?}", row.name);
        };
        near(&row("libasl-1", "mcs-8/mcs-4"), Some(0.375), Some(0.55));
        near(&row("libasl-4", "tas-8/mcs-8"), Some(1.122), Some(1.518));
        near(&row("libasl-1", "tas-8/mcs-8"), Some(0.5525), Some(0.7475));
        near(&row("libasl-1", "p99 tas-8/mcs-8"), Some(4.65), Some(7.75));
        near(&row("libasl-8a", "asl-max/mcs"), Some(1.275), Some(2.125));
        near(&row("libasl-8a", "asl-0/mcs"), Some(0.98), Some(1.02));
        near(&row("libasl-8g", "transition asl/mcs-4"), Some(0.84), None);
        near(&row("cal-7", "fairness ticket"), Some(0.477), Some(0.583));
        near(&row("libasl-8h", "asl-pthread/glibc"), Some(1.35), Some(2.25));
        near(&row("libasl-8a", "asl-25/tas"), Some(0.75), Some(1.25));
    }

    #[test]
    fn a_lock_that_the_catalogue_lacks_is_missing() {
        assert_eq!(row("rcl-micro", "rcl overtakes glibc").missing(), ["rcl"]);
        assert!(row("libasl-8a", "asl-max/glibc").missing().is_empty());
    }

    #[test]
    fn rows_that_say_nothing_are_refused() {
        let text = |row: &str| {
            format!(
                "figure = 'x'\ntitle = 'x'\npaper = 'x'\nsection = 'x'\nmachine = 'm1'\nshows = 'x'\n\
                 [setup]\nthreads = 'x'\ncritical_section = 'x'\ngap = 'x'\nlocks = 'x'\nmetric = 'x'\n\
                 [[row]]\nname = 'r'\nwhat = 'x'\nunit = 'ratio'\nkind = 'number'\n{row}"
            )
        };
        let good = "locks = ['mcs']\npaper = 2.0\nquote = 'x'\n";
        assert!(Figure::parse(&text(good)).unwrap().row[0].accepts(2.4));
        let both =
            format!("chosen_as = 'y'\n{}[chosen.a]\nvalue = 1\nwhat = 'x'\nwhy = 'x'", text(good));
        assert!(Figure::parse(&both).unwrap_err().to_string().contains("exclude"));
        for (bad, says) in [
            ("locks = []\npaper = 2.0\nquote = 'x'\n", "no lock"),
            ("locks = ['mcs']\n", "expect anything"),
            ("locks = ['mcs']\npaper = 2.0\n", "belong together"),
            ("locks = ['mcs']\nlow = 2.0\nhigh = 1.0\n", "above"),
            ("locks = ['mcs']\npaper = 2.0\npaper_low = 1.0\nquote = 'x'\n", "exclude"),
            ("locks = ['mcs']\npaper = 2.0\nquote = 'x'\ncolour = 1\n", "colour"),
            ("locks = ['mcs']\npaper = 0.0\nquote = 'x'\nfit = true\n", "logarithms"),
            ("locks = ['mcs']\npaper = 2.0\nquote = 'x'\nfit = true\nweight = 0\n", "weight"),
            (
                "locks = ['mcs']\npaper = 2.0\nquote = 'x'\nfit = true\nheld_out = true\n",
                "held out",
            ),
            ("locks = ['mcs']\nlow = 2.0\n", "one, or a range"),
            ("locks = ['mcs']\npaper_low = 2.0\nquote = 'x'\n", "one, or a range"),
            ("locks = ['mcs']\npaper = 2.0\nhigh = 2.6\nquote = 'x'\n", "has a reason"),
            (
                "locks = ['mcs']\npaper = 2.0\nlow = 1.8\nquote = 'x'\nbecause = 'x'\n",
                "no other does",
            ),
        ] {
            let why = Figure::parse(&text(bad)).unwrap_err().to_string();
            assert!(why.contains(says), "{says}: {why}");
        }
    }

    #[test]
    fn a_kind_is_stated_and_fits_what_the_paper_says() {
        let text = |row: &str| {
            format!(
                "figure = 'x'\ntitle = 'x'\npaper = 'x'\nsection = 'x'\nmachine = 'm1'\nshows = 'x'\n\
                 [setup]\nthreads = 'x'\ncritical_section = 'x'\ngap = 'x'\nlocks = 'x'\nmetric = 'x'\n\
                 [[row]]\nname = 'r'\nwhat = 'x'\nunit = 'ratio'\nlocks = ['mcs']\n{row}"
            )
        };
        let why = |row: &str| Figure::parse(&text(row)).unwrap_err().to_string();
        assert!(why("paper = 2.0\nquote = 'x'\n").contains("kind"));
        let direction = "kind = 'direction'\nquote = 'x'\n";
        assert!(why(&format!("{direction}paper = 2.0\n")).contains("no number"));
        assert!(Figure::parse(&text(&format!("{direction}paper_low = 2.0\n"))).is_ok());
        assert!(why("kind = 'direction'\nlow = 2.0\nfit = true\n").contains("paper says"));
        let wide = "kind = 'number'\npaper = 2.0\nhigh = 3.0\nquote = 'x'\nbecause = 'x'\n";
        let row = Figure::parse(&text(wide)).unwrap().row.remove(0);
        assert_eq!((row.accepted(), row.is_near(2.8)), ((Some(1.5), Some(3.0)), Some(false)));
    }

    #[test]
    fn each_number_is_two_sided_and_what_it_repeats_is_there() {
        for figure in all() {
            for row in &figure.row {
                let (low, high) = row.accepted();
                if row.kind == Kind::Number {
                    assert!(low.is_some() && high.is_some(), "{}: {}", figure.figure, row.name);
                }
                let Some((other, name)) = row.repeats.as_ref().map(|r| r.split_once(": ").unwrap())
                else {
                    continue;
                };
                let first = self::row(other, name);
                assert!(first.repeats.is_none(), "{}: {}: of a chain", figure.figure, row.name);
            }
        }
    }

    #[test]
    fn what_is_left_out_is_not_run_and_says_why() {
        let left_out = left_out();
        assert!(!left_out.is_empty());
        for one in left_out {
            assert!(super::figure(&one.figure).is_none(), "{}", one.figure);
            assert!(one.reason.len() > 20 && !one.what.is_empty(), "{}", one.figure);
        }
    }

    #[test]
    fn no_result_is_no_pass() {
        assert!(!row("libasl-8a", "asl-max/mcs").accepts(f64::NAN));
    }
}
