//! Evaluates the runs: compares each setting with the first one, figure by figure, and recommends a lock.

use super::Setting;
use super::figure::Figure;
use super::run::Run;
use lockwright_bench::{Finding, Interval};
use lockwright_numbers::Spread;
use serde::Serialize;

/// One figure under one setting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// The values over all rounds; `None`: the runs don't have this figure.
    pub(crate) values: Option<Spread>,
    /// How many times as good as the first setting it is, from the rounds' ratios; `None`: it is the first setting, or
    /// there are too few rounds.
    pub(crate) to_first: Option<Interval>,
    pub(crate) finding: Option<Finding>,
}

/// One figure under all settings.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FigureRow {
    pub(crate) figure: Figure,
    /// One cell per setting, in order.
    pub(crate) cells: Vec<Cell>,
}

/// The whole comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// The first row decides.
    pub(crate) rows: Vec<FigureRow>,
    pub(crate) margin: f64,
    /// The recommended setting: the best of those that are better than the first one.
    pub(crate) best: Option<usize>,
    /// Other settings that are better than the first one, and not certainly worse than the best.
    pub(crate) as_good: Vec<usize>,
}

/// A figure's value in one setting's run of one round.
fn value(runs: &[Run], figure: &Figure, setting: usize, round: usize) -> Option<f64> {
    let run = runs.iter().find(|run| run.setting == setting && run.round == round)?;
    run.figures.iter().find(|(known, _)| known == figure).map(|(_, value)| *value)
}

/// How many times as good `setting` is as `base`.
fn compare(runs: &[Run], figure: &Figure, setting: usize, base: usize) -> Option<Interval> {
    let rounds = runs.iter().map(|run| run.round).max().unwrap_or(0);
    let ratios: Vec<f64> = (1..=rounds)
        .filter_map(|round| {
            let value = |setting| value(runs, figure, setting, round);
            Some(figure.ratio(value(setting)?, value(base)?))
        })
        .collect();
    Interval::of(&ratios)
}

impl Comparison {
    pub(crate) fn of(settings: &[Setting], runs: &[Run], margin: f64) -> Self {
        let mut figures: Vec<&Figure> = Vec::new();
        for (figure, _) in runs.iter().flat_map(|run| &run.figures) {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
        let row = |figure: &Figure| {
            let cell = |setting: usize| {
                let own = runs.iter().filter(|run| run.setting == setting);
                let values = own.filter_map(|run| value(runs, figure, setting, run.round));
                let to_first = match setting {
                    0 => None,
                    _ => compare(runs, figure, setting, 0),
                };
                Cell {
                    values: Spread::of(&values.collect::<Vec<_>>()),
                    finding: to_first.map(|interval| interval.finding(margin)),
                    to_first,
                }
            };
            FigureRow { figure: figure.clone(), cells: (0..settings.len()).map(cell).collect() }
        };
        let rows: Vec<FigureRow> = figures.into_iter().map(row).collect();
        let (mut best, mut as_good) = (None, Vec::new());
        if let Some(first) = rows.first() {
            let better = |at: &usize| first.cells[*at].finding == Some(Finding::Better);
            let middle = |at: &usize| first.cells[*at].to_first.map_or(0.0, |ratio| ratio.middle);
            best = (0..settings.len())
                .filter(better)
                .max_by(|one, other| middle(one).total_cmp(&middle(other)));
            as_good = (0..settings.len())
                .filter(|at| better(at) && Some(*at) != best)
                .filter(|at| {
                    let to_best = best.and_then(|best| compare(runs, &first.figure, *at, best));
                    to_best.is_none_or(|ratio| ratio.finding(margin) != Finding::Worse)
                })
                .collect();
        }
        Self { rows, margin, best, as_good }
    }

    /// The figure that decides.
    pub(crate) fn first(&self) -> Option<&FigureRow> {
        self.rows.first().filter(|row| !row.figure.is_cost)
    }

    /// Does every setting have a finding?
    pub(crate) fn is_clear(&self) -> bool {
        let found = |cell: &Cell| cell.finding.is_some_and(|finding| finding != Finding::Unclear);
        self.first().is_some_and(|row| row.cells[1..].iter().all(found))
    }

    /// Figures in which a setting is certainly worse than the first one.
    pub(crate) fn costs(&self, setting: usize) -> impl Iterator<Item = (&Figure, Interval)> {
        self.rows.iter().skip(1).filter_map(move |row| {
            let cell = &row.cells[setting];
            let interval = cell.to_first?;
            (cell.finding == Some(Finding::Worse)).then_some((&row.figure, interval))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(names: &[&str]) -> Vec<Setting> {
        names
            .iter()
            .map(|name| Setting { name: (*name).into(), lock: None, prefers: None })
            .collect()
    }

    /// Rounds in which setting `at` takes `times[at]`, and `CPU[at]` of CPU time; both drift together.
    pub(crate) fn runs(times: &[f64], cpu: &[f64], rounds: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        for round in 1..=rounds {
            let drift = 1.0 + (round % 7) as f64 * 0.1;
            for (setting, time) in times.iter().enumerate() {
                let wobble = 1.0 + ((round * 7 + setting * 3) % 5) as f64 * 0.002;
                let figures = vec![
                    (Figure::time("time"), time * drift * wobble),
                    (Figure::time("CPU time"), cpu[setting] * drift),
                ];
                runs.push(Run { setting, round, figures, findings: Vec::new() });
            }
        }
        runs
    }

    #[test]
    fn the_best_is_taken_and_what_it_costs_is_said() {
        let three = settings(&["glibc", "auto", "fifo"]);
        let runs = runs(&[1.0, 0.8, 0.99], &[1.0, 1.5, 1.0], 12);
        let outcome = Comparison::of(&three, &runs, 0.05);
        assert!(outcome.is_clear());
        assert_eq!((outcome.best, outcome.as_good.len()), (Some(1), 0));
        let findings: Vec<_> = outcome.rows[0].cells.iter().map(|cell| cell.finding).collect();
        assert_eq!(findings, [None, Some(Finding::Better), Some(Finding::Same)]);
        let costs: Vec<_> = outcome.costs(1).map(|(figure, _)| figure.name.as_str()).collect();
        assert_eq!(costs, ["CPU time"]);
        assert!(outcome.costs(2).next().is_none());
    }

    #[test]
    fn two_that_are_equally_good_are_both_named_and_none_is_taken_for_nothing() {
        let three = settings(&["glibc", "auto", "fifo"]);
        let both = Comparison::of(&three, &runs(&[1.0, 0.7, 0.701], &[1.0; 3], 12), 0.05);
        assert_eq!(both.as_good.len(), 1);
        let none = Comparison::of(&three, &runs(&[1.0, 1.0, 1.01], &[1.0; 3], 12), 0.05);
        assert!(none.best.is_none() && none.is_clear());
        let few = Comparison::of(&three, &runs(&[1.0, 0.5, 1.0], &[1.0; 3], 3), 0.05);
        assert!(!few.is_clear() && few.best.is_none());
    }

    #[test]
    fn a_figure_that_some_settings_lack_is_compared_where_it_is() {
        let two = settings(&["glibc", "auto"]);
        let mut runs = runs(&[1.0, 0.8], &[1.0; 2], 12);
        for run in runs.iter_mut().filter(|run| run.setting == 1) {
            run.figures.push((Figure::time("epoch 'get', P99"), 50.0));
        }
        let outcome = Comparison::of(&two, &runs, 0.05);
        let row = &outcome.rows[2];
        assert!(row.cells[0].values.is_none() && row.cells[1].values.is_some());
        assert!(row.cells[1].to_first.is_none());
    }
}
