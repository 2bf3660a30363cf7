//! Results compared with targets.

use crate::Measured;
use lockwright_numbers::{Spread, median_interval};
use lockwright_sim::profile::{Profile, builtin};
use lockwright_sim::targets::{Figure, Kind, Row};
use serde::Serialize;

/// A figure's results, compared with the paper's.
#[derive(Clone, Debug, Serialize)]
pub struct FigureReport {
    /// Its id.
    pub figure: String,
    /// `simulated`: no number is a real machine's.
    pub origin: &'static str,
    /// The machine.
    pub machine: String,
    /// The machine of the paper's numbers.
    pub paper_machine: String,
    /// Runs of each point, each with its own seed.
    pub seeds: u32,
    /// Only a part of the time was simulated, so the results are rough.
    pub quick: bool,
    /// How many comparisons of each kind are accepted.
    pub counts: Tally,
    /// Each comparison.
    pub rows: Vec<ReportRow>,
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ReportRow {
    /// Its name within the figure.
    pub name: String,
    /// What is measured, in one sentence.
    pub what: String,
    /// What kind of statement it compares.
    pub kind: Kind,
    /// The paper's number, or its bound.
    pub paper: Option<f64>,
    /// The paper only says "at least" this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper_low: Option<f64>,
    /// The paper only says "at most" this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper_high: Option<f64>,
    /// The median over the seeds; `None` where a lock is missing.
    pub result: Option<f64>,
    /// The smallest result that is accepted.
    pub low: Option<f64>,
    /// The largest result that is accepted.
    pub high: Option<f64>,
    /// Is the result accepted? Never without one.
    pub ok: bool,
    /// For a sign: does all of [`interval`](Self::interval) lie on the paper's side of 1?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_sign_right: bool,
    /// The wrong model that the row must notice.
    pub wrong: String,
    /// Locks that don't exist yet, so that there is no result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// It is only reported: nothing is fitted to it, and no result counts as wrong.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// The machine was fitted to it; any other row is a prediction.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fit: bool,
    /// Why it was bound to be met: it is the same run as a fitted row, or a workload or a machine's figure was chosen
    /// to meet it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
    /// The row that says the same, `FIGURE: ROW`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<String>,
    /// For a number with a result: is it within a quarter of the paper's, or in the paper's range, whatever our bar is?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<bool>,
    /// Why the machine can't have a result: it lacks what the row is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<&'static str>,
    /// For a sign: the interval of the median, all of which must lie on the paper's side of 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// The smallest and the largest result of a seed.
    #[serde(skip)]
    pub spread: Option<(f64, f64)>,
}

impl ReportRow {
    /// Does it count against us: measured or measurable, but not accepted?
    pub fn is_missed(&self) -> bool {
        !self.ok && self.missing.is_empty() && self.impossible.is_none()
    }

    /// Was it rejected, as a wrong model must be? Not for want of seeds.
    pub fn is_noticed(&self) -> bool {
        self.is_missed() && (self.kind != Kind::Sign || self.interval.is_some())
    }

    /// Does it have a verdict: accepted or not?
    fn is_judged(&self) -> bool {
        !self.held_out && (self.ok || self.is_missed())
    }

    /// Is it an independent number: nothing was fitted to it or chosen for it, and it repeats no other?
    pub fn is_free_number(&self) -> bool {
        let made_for_it = self.fit || self.given.is_some() || self.repeats.is_some();
        self.kind == Kind::Number && self.is_judged() && !made_for_it
    }
}

/// How many comparisons are accepted, separately for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// The paper has a number that is far from "no effect".
    pub numbers: Count,
    /// Small effects.
    pub signs: Count,
    /// Those whose sign is right, whatever their size.
    pub right_signs: Count,
    /// Two things that are alike.
    pub same: Count,
    /// The paper only says which is larger, or names a bound.
    pub directions: Count,
    /// True by construction.
    pub identities: Count,
    /// Numbers that are neither fitted nor given nor repeated; accepted counts those within a quarter of the paper's number.
    pub free_numbers: Count,
}

/// Accepted comparisons, and all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many are accepted.
    pub accepted: usize,
    /// How many have a verdict.
    pub of: usize,
}

impl Count {
    fn add(&mut self, accepted: bool) {
        self.accepted += usize::from(accepted);
        self.of += 1;
    }

    /// The accepted share; `None` if there are no comparisons.
    #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
    pub fn share(self) -> Option<f64> {
        (self.of > 0).then(|| self.accepted as f64 / self.of as f64)
    }
}

impl Tally {
    /// Counts the rows that have a verdict: not rows of missing locks, rows that the machine can't have, or rows that
    /// are only reported.
    pub fn of<'a>(rows: impl Iterator<Item = &'a ReportRow>) -> Self {
        let mut tally = Self::default();
        for row in rows.filter(|row| row.is_judged()) {
            let kind = match row.kind {
                Kind::Number => &mut tally.numbers,
                Kind::Sign => &mut tally.signs,
                Kind::Same => &mut tally.same,
                Kind::Direction => &mut tally.directions,
                Kind::Identity => &mut tally.identities,
            };
            kind.add(row.ok);
            if row.kind == Kind::Sign {
                tally.right_signs.add(row.is_sign_right);
            }
            if row.is_free_number() {
                tally.free_numbers.add(row.near == Some(true));
            }
        }
        tally
    }
}

impl FigureReport {
    /// The rows that were measured but not accepted.
    pub fn missed(&self) -> impl Iterator<Item = &ReportRow> {
        self.rows.iter().filter(|row| row.is_missed())
    }
}

/// Compares what was measured on `machine` with the given number of seeds against a figure's targets.
pub fn evaluate(
    figure: &Figure,
    machine: &Profile,
    seeds: u32,
    measured: &Measured,
) -> FigureReport {
    let here = Here::new(figure, machine);
    let compare = |row: &Row| compare(row, measured.rows.get(&row.name), &here);
    let rows: Vec<ReportRow> = figure.row.iter().map(compare).collect();
    FigureReport {
        figure: figure.figure.clone(),
        origin: "simulated",
        machine: machine.name.clone(),
        paper_machine: figure.machine.clone(),
        seeds,
        quick: false,
        counts: Tally::of(rows.iter()),
        rows,
    }
}

/// How the machine differs from the figure's own.
struct Here {
    elsewhere: bool,
    /// The paper's machine has little cores, but this one has none.
    no_little_cores: bool,
}

impl Here {
    fn new(figure: &Figure, machine: &Profile) -> Self {
        let own = builtin(&figure.machine).map_or(1, |own| own.class.len());
        Self {
            elsewhere: machine.name != figure.machine,
            no_little_cores: machine.class.len() == 1 && own > 1,
        }
    }
}

fn compare(row: &Row, values: Option<&Vec<f64>>, here: &Here) -> ReportRow {
    let missing: Vec<String> = row.missing().into_iter().map(str::to_owned).collect();
    let values = values.filter(|_| missing.is_empty()).map_or(&[][..], Vec::as_slice);
    let result = median(values);
    let (low, high) = row.accepted();
    let interval = median_interval(values).filter(|_| row.kind == Kind::Sign);
    let is_sign_right = interval.is_some_and(|interval| row.is_same_sign(interval));
    // A row that names a machine stays there.
    let moved = here.elsewhere && row.machine.is_none();
    let lacks = moved && here.no_little_cores && result.is_none() && !values.is_empty();
    ReportRow {
        name: row.name.clone(),
        what: row.what.clone(),
        kind: row.kind,
        paper: row.paper.or_else(|| row.paper_low.xor(row.paper_high)),
        paper_low: row.paper_low,
        paper_high: row.paper_high,
        result,
        low,
        high,
        ok: result.is_some_and(|result| row.accepts(result))
            && (row.kind != Kind::Sign || is_sign_right),
        is_sign_right,
        wrong: row.wrong.clone(),
        missing,
        held_out: row.held_out,
        fit: row.fit && !moved,
        given: row.given.clone().filter(|_| !moved),
        repeats: row.repeats.clone(),
        near: result.and_then(|result| row.is_near(result)),
        impossible: lacks.then_some("no little cores"),
        interval,
        spread: spread(values),
    }
}

/// The middle value, or the mean of the two in the middle; `None` without values, or if one of them isn't finite.
pub fn median(values: &[f64]) -> Option<f64> {
    values.iter().all(|value| value.is_finite()).then(|| lockwright_numbers::median(values))?
}

fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let spread =
        Spread::of(values).filter(|spread| spread.min.is_finite() && spread.max.is_finite())?;
    Some((spread.min, spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::targets;

    /// The paper's machine.
    const OWN: Here = Here { elsewhere: false, no_little_cores: false };

    fn row(figure: &str, name: &str) -> Row {
        let rows = targets::figure(figure).unwrap().row;
        rows.into_iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn the_median_of_the_seeds_is_the_result() {
        let bar = row("libasl-1", "mcs-8/mcs-4");
        let good = compare(&bar, Some(&vec![0.9, 0.54, 0.5]), &OWN);
        assert_eq!((good.result, good.ok, good.spread), (Some(0.54), true, Some((0.5, 0.9))));
        let bad = compare(&bar, Some(&vec![0.9, 0.56]), &OWN);
        assert!(!bad.ok && bad.is_missed(), "{bad:?}");
    }

    #[test]
    fn a_row_without_a_number_is_never_ok() {
        let bar = row("libasl-1", "mcs-8/mcs-4");
        for values in [None, Some(vec![]), Some(vec![0.5, f64::NAN]), Some(vec![f64::INFINITY])] {
            let row = compare(&bar, values.as_ref(), &OWN);
            assert!(!row.ok && row.result.is_none() && row.is_missed(), "{row:?}");
        }
    }

    #[test]
    fn a_missing_lock_is_never_ok_whatever_was_measured() {
        let mut absent = row("libasl-1", "mcs-8/mcs-4");
        absent.locks.push("no-such-lock".to_owned());
        let row = compare(&absent, Some(&vec![0.5]), &OWN);
        assert_eq!((row.ok, row.result, row.is_missed()), (false, None, false));
        assert_eq!(row.missing, ["no-such-lock"]);
    }

    #[test]
    fn what_is_only_reported_has_no_bounds() {
        let held_out = Row { held_out: true, ..row("libasl-8a", "asl-max/mcs") };
        let row = compare(&held_out, Some(&vec![0.1]), &OWN);
        assert!(row.ok && row.held_out && row.low.is_none() && row.high.is_none(), "{row:?}");
    }

    #[test]
    fn a_bound_of_the_paper_is_its_number() {
        let row = compare(&row("libasl-1", "tas-8/tas-4"), Some(&vec![0.5]), &OWN);
        assert_eq!((row.paper, row.paper_high, row.high), (Some(1.0), Some(1.0), Some(0.5)));
    }

    #[test]
    fn each_kind_is_counted_apart_and_only_numbers_of_their_own_are_free() {
        let number = |ok, near| ReportRow {
            ok,
            near: Some(near),
            ..compare(&row("libasl-8a", "asl-50/tas"), Some(&vec![1.5]), &OWN)
        };
        let fitted = ReportRow { fit: true, ..number(true, true) };
        let given = ReportRow { given: Some("chosen so".to_owned()), ..number(true, true) };
        let repeats =
            ReportRow { repeats: Some("libasl-8h: x".to_owned()), ..number(false, false) };
        let missing = ReportRow { missing: vec!["none".to_owned()], ..number(false, false) };
        let reported = ReportRow { held_out: true, ..number(true, true) };
        let direction = ReportRow { kind: Kind::Direction, near: None, ..number(false, false) };
        let identity = ReportRow { kind: Kind::Identity, near: None, ..number(true, true) };
        let rows = [
            number(true, true),
            // Our bar may be narrower than a quarter, or wider.
            number(false, true),
            number(true, false),
            fitted,
            given,
            repeats,
            missing,
            reported,
            direction,
            identity,
        ];
        let tally = Tally::of(rows.iter());
        let count = |accepted, of| Count { accepted, of };
        assert_eq!((tally.numbers, tally.free_numbers), (count(4, 6), count(2, 3)));
        assert_eq!((tally.directions, tally.identities), (count(0, 1), count(1, 1)));
        assert_eq!(
            (count(2, 3).share().map(|share| (share * 3.0).round()), count(0, 0).share()),
            (Some(2.0), None)
        );
    }

    #[test]
    fn a_number_is_near_within_a_quarter_or_in_the_papers_range() {
        let near = |figure, name, value| compare(&row(figure, name), Some(&vec![value]), &OWN).near;
        let number = |value| near("libasl-8a", "asl-50/tas", value);
        assert_eq!((number(1.2), number(1.1), number(1.9)), (Some(true), Some(false), Some(false)));
        let range = |value| near("libasl-platforms", "hikey970 asl-max/mcs", value);
        assert_eq!((range(1.4), range(1.9)), (Some(true), Some(false)));
        assert_eq!(near("libasl-1", "tas-8/tas-4", 0.5), None);
    }

    #[test]
    fn fitted_and_predicted_rows_are_told_apart() {
        let fit = |name| compare(&row("libasl-1", name), Some(&vec![0.5]), &OWN).fit;
        assert!(fit("tas-8/mcs-8") && !fit("tas-8/tas-4"));
    }

    #[test]
    fn on_another_machine_nothing_was_fitted_and_what_it_lacks_is_said() {
        let figure = targets::figure("libasl-8a").unwrap();
        let mut measured = Measured::new();
        measured.row("p99 mcs", vec![15.0]);
        measured.row("p99 big/little of tas", vec![f64::NAN]);
        let on = |machine| evaluate(&figure, &builtin(machine).unwrap(), 1, &measured);
        let row = |report: &FigureReport, name: &str| {
            report.rows.iter().find(|row| row.name == name).unwrap().clone()
        };
        let (own, other) = (on("m1"), on("xeon-2cpu-vm"));
        assert_eq!((&*other.machine, &*other.paper_machine), ("xeon-2cpu-vm", "m1"));
        assert!(row(&own, "p99 mcs").fit && !row(&other, "p99 mcs").fit);
        assert!(row(&own, "p99 big/little of tas").is_missed());
        let lacks = row(&other, "p99 big/little of tas");
        assert!(!lacks.ok && !lacks.is_missed(), "{lacks:?}");
        assert_eq!(lacks.impossible, Some("no little cores"));
        let platforms = targets::figure("libasl-platforms").unwrap();
        let mut none = Measured::new();
        none.row("hikey970 asl-max/mcs", vec![f64::NAN]);
        let stays = evaluate(&platforms, &builtin("xeon-2cpu-vm").unwrap(), 1, &none);
        assert!(row(&stays, "hikey970 asl-max/mcs").is_missed(), "it stays on its own machine");
    }
}
