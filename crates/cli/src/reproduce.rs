//! The papers' figures beside our results: text, JSON, plots, a page.

mod page;
mod plot;

use crate::hints::{Failure, cause};
use crate::output;
use comfy_table::CellAlignment;
use lockwright_figures::{Measured, Report, ReportRow, experiments, median};
use lockwright_sim::targets::{self, Figure};
use serde_json::{Value, json as value};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A figure that was measured.
pub(crate) struct Done {
    pub(crate) figure: Figure,
    pub(crate) measured: Measured,
    pub(crate) report: Report,
    pub(crate) quick: bool,
}

impl Done {
    /// Where the results come from.
    fn source(&self) -> String {
        let Report { machine, seeds, .. } = &self.report;
        let rough = if self.quick { ", --quick: rough" } else { "" };
        let elsewhere = if *machine == self.figure.machine {
            String::new()
        } else {
            format!("; the paper's machine is {}", self.figure.machine)
        };
        format!(
            "{}, section {}; simulated on {machine}, {seeds} seed{}{rough}{elsewhere}",
            self.figure.paper,
            self.figure.section,
            if *seeds == 1 { "" } else { "s" },
        )
    }

    /// The table's cells.
    fn cells(&self) -> Vec<[String; 6]> {
        self.report.rows.iter().map(cells).collect()
    }
}

const HEADER: [&str; 6] = ["target", "paper", "result", "[of seeds]", "accepted", "ok"];

fn cells(row: &ReportRow) -> [String; 6] {
    let range = |low: Option<f64>, high: Option<f64>| match (low, high) {
        (Some(low), Some(high)) => format!("{} .. {}", digits(low), digits(high)),
        (Some(low), None) => format!(">= {}", digits(low)),
        (None, Some(high)) => format!("<= {}", digits(high)),
        (None, None) => "any".to_owned(),
    };
    let paper = match (row.paper_low, row.paper_high) {
        (None, None) => row.paper.map_or("-".to_owned(), digits),
        (low, high) => range(low, high),
    };
    let spread = |(low, high)| format!("[{} .. {}]", digits(low), digits(high));
    [
        row.name.clone(),
        paper,
        row.result.map_or("-".to_owned(), digits),
        row.spread.map_or(String::new(), spread),
        range(row.low, row.high),
        verdict(row),
    ]
}

fn verdict(row: &ReportRow) -> String {
    let fitted = if row.fit { ", fitted" } else { "" };
    match (row.missing.is_empty(), row.ok, row.held_out) {
        (false, ..) => format!("missing: {}", row.missing.join(", ")),
        (true, true, true) => "reported".to_owned(),
        (true, true, false) => format!("yes{fitted}"),
        (true, false, _) => format!("NO{fitted}"),
    }
}

/// Three digits, as far as they say something.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        0.0 => 0,
        _ => 4,
    };
    // 0.972 and 1.018 are judged in the third decimal.
    let decimals = if (0.9..1.1).contains(&value.abs()) { 3 } else { decimals };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// What is printed of a figure.
pub(crate) fn text(done: &Done) -> String {
    let figure = &done.figure;
    let mut text = format!("{}: {}\n{}\n\n", figure.figure, figure.title, done.source());
    let mut table = output::table(&HEADER);
    for row in done.cells() {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.to_string().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for (what, values) in &done.measured.also {
        let _ =
            writeln!(text, "beside it: {what} {}", median(values).map_or("-".to_owned(), digits));
    }
    for part in &figure.not_reproduced {
        let _ = writeln!(text, "not reproduced: {}: {}", part.part, part.reason);
    }
    text + "\n"
}

/// What all figures come to.
pub(crate) fn summary(all: &[Done]) -> String {
    let rows = || all.iter().flat_map(|done| &done.report.rows);
    let (missing, missed) = (
        rows().filter(|row| !row.missing.is_empty()).count(),
        rows().filter(|row| row.is_missed()).count(),
    );
    let judged = rows().filter(|row| row.missing.is_empty() && !row.held_out).count();
    let mut text = format!(
        "{} figures: {} of {judged} results accepted, {missed} not, {missing} rows of missing locks\n",
        all.len(),
        judged - missed,
    );
    for done in all {
        for row in done.report.missed() {
            let [name, paper, result, _, accepted, _] = cells(row);
            let figure = &done.figure.figure;
            let _ =
                writeln!(text, "  {figure}: {name}: {result}, accepted {accepted} (paper {paper})");
        }
    }
    text
}

/// What `--json` prints: an object for one figure, else an array of them.
pub(crate) fn json(all: &[Done], one: bool) -> Result<Value, Failure> {
    let object = |done: &Done| serde_json::to_value(&done.report).map_err(Failure::new);
    match all {
        [done] if one => object(done),
        all => all.iter().map(object).collect(),
    }
}

/// Prints which figures there are.
pub(crate) fn list(as_json: bool) -> Result<(), Failure> {
    let all = experiments().filter_map(|experiment| targets::figure(experiment.id));
    if as_json {
        let object = |figure: Figure| {
            let Figure { figure, title, paper, machine, row, .. } = figure;
            value!({"figure": figure, "title": title, "paper": paper, "machine": machine, "rows": row.len()})
        };
        return output::print_json(&all.map(object).collect());
    }
    let mut table = output::table(&["figure", "machine", "rows", "what"]);
    for figure in all {
        table.add_row([figure.figure, figure.machine, figure.row.len().to_string(), figure.title]);
    }
    output::print_table(&table)
}

/// Writes report, data and plots; says how many plots.
pub(crate) fn write(all: &[Done], command: &str, dir: &Path) -> Result<usize, Failure> {
    let mut plots = Vec::new();
    for done in all {
        for drawn in &done.measured.plots {
            let svg = plot::draw(drawn, &done.source()).map_err(Failure::new)?;
            plots.push((done.figure.figure.as_str(), drawn.name.as_str(), svg));
        }
    }
    let mut files = vec![
        ("report.html".to_owned(), page::page(all, command, &plots)),
        ("figures.json".to_owned(), format!("{:#}\n", json(all, false)?)),
    ];
    files.extend(plots.iter().map(|(_, name, svg)| (format!("{name}.svg"), svg.clone())));
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| {
            Failure::new(format!("cannot write '{}': {}", path.display(), cause(&error)))
                .hint("lockwright reproduce --output DIR ...")
        })?;
    }
    Ok(plots.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_figures::evaluate;

    fn done(figure: &str, measured: Measured) -> Done {
        let figure = targets::figure(figure).unwrap();
        let report = evaluate(&figure, "m1", 5, &measured);
        Done { figure, measured, report, quick: false }
    }

    #[test]
    fn json_has_the_agreed_fields() {
        let mut measured = Measured::new();
        measured.row("mcs-8/mcs-4", vec![0.5, 0.52, 0.54]);
        let all = [done("libasl-1", measured)];
        let object = json(&all, true).unwrap();
        assert_eq!(object["figure"], "libasl-1");
        assert_eq!((&object["machine"], &object["seeds"]), (&value!("m1"), &value!(5)));
        let expected = value!({
            "name": "mcs-8/mcs-4", "paper": 0.5, "paper_high": 0.5, "result": 0.52, "low": null, "high": 0.55, "ok": true, "fit": true,
        });
        assert_eq!(object["rows"][0], expected);
        assert_eq!(object["rows"][1]["ok"], false);
        assert_eq!(json(&all, false).unwrap()[0], object);
    }

    #[test]
    fn a_missing_lock_is_named_and_not_counted() {
        let all = [done("cal-7", Measured::new())];
        let text = summary(&all);
        let missing = all[0].report.rows.iter().filter(|row| !row.missing.is_empty()).count();
        assert!(
            missing > 0 && text.contains(&format!("{missing} rows of missing locks")),
            "{text}"
        );
        assert!(all[0].cells().iter().any(|cells| cells[5] == "missing: cal"));
    }

    #[test]
    fn digits_show_what_is_judged() {
        for (value, text) in [
            (0.5, "0.5"),
            (1.018, "1.018"),
            (6.183, "6.18"),
            (0.0123, "0.0123"),
            (152.4, "152"),
            (0.0, "0"),
            (15.0, "15"),
            (1.0, "1"),
        ] {
            assert_eq!(digits(value), text);
        }
    }
}
