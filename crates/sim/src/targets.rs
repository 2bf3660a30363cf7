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
//! paper_high = 0.5                # a bound; or paper = 0.5
//! high = 0.55                     # a bar of our own; without one, see Row::accepted
//! locks = ["mcs"]
//! quote = "..."
//! fit = true                      # the machine's fitted figures were fitted to it; without this it is a prediction
//!
//! [[not_reproduced]]
//! part = "..."
//! reason = "..."
//! ```

use crate::lock::LockSpec;
use serde::Deserialize;
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
    /// The smallest and the largest result that is accepted: our bar; else what the paper says at least or at most;
    /// else its number, a quarter up or down. None: no bound on that side, or the row is only reported.
    pub fn accepted(&self) -> (Option<f64>, Option<f64>) {
        if self.held_out {
            return (None, None);
        }
        if self.low.is_some() || self.high.is_some() {
            return (self.low, self.high);
        }
        match self.paper {
            Some(paper) => (Some(0.75 * paper), Some(1.25 * paper)),
            None => (self.paper_low, self.paper_high),
        }
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

    fn fault(&self) -> Option<&'static str> {
        let bound = self.paper_low.is_some() || self.paper_high.is_some();
        let bar = self.low.is_some() || self.high.is_some();
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
    use crate::profile;
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

    #[test]
    fn errors_are_ratios_and_there_is_none_within_a_bound() {
        let bound = row("libasl-1", "mcs-8/mcs-4");
        assert_eq!((bound.error(0.4), bound.error(0.5)), (0.0, 0.0));
        assert!((bound.error(1.0) - 2.0_f64.ln()).abs() < 1e-9);
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
        near(&row("libasl-1", "mcs-8/mcs-4"), None, Some(0.55));
        near(&row("libasl-4", "tas-8/mcs-8"), Some(1.122), Some(1.518));
        near(&row("libasl-1", "tas-8/mcs-8"), Some(0.5525), Some(0.7475));
        near(&row("libasl-1", "p99 tas-8/mcs-8"), Some(4.65), Some(7.75));
        near(&row("libasl-8a", "asl-max/mcs"), Some(1.7), None);
        near(&row("libasl-8a", "asl-0/mcs"), Some(0.98), Some(1.02));
        near(&row("libasl-8g", "transition asl/mcs-4"), Some(0.84), None);
        near(&row("cal-7", "fairness ticket"), None, Some(0.60));
        assert!(row("libasl-8a", "hikey970 asl-max/mcs").held_out);
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
                 [[row]]\nname = 'r'\nwhat = 'x'\nunit = 'ratio'\n{row}"
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
            ("locks = ['mcs']\nlow = 2.0\nfit = true\n", "paper says"),
        ] {
            let why = Figure::parse(&text(bad)).unwrap_err().to_string();
            assert!(why.contains(says), "{says}: {why}");
        }
    }

    #[test]
    fn no_result_is_no_pass() {
        assert!(!row("libasl-8a", "asl-max/mcs").accepts(f64::NAN));
    }
}
