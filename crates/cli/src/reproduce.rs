//! The papers' figures next to our results: text, JSON, plots, a page.

pub(crate) mod folder;
mod page;
mod plot;
pub(crate) mod runs;

use crate::hints::Failure;
use crate::output;
use lockwright_figures::{Count, FigureReport, Measured, ReportRow, Tally, experiments, median};
use lockwright_sim::targets::{self, Figure, Kind, LeftOut};
use serde_json::{Value, json as value};
use std::fmt::Write as _;

/// A measured figure.
pub(crate) struct Done {
    pub(crate) figure: Figure,
    pub(crate) measured: Measured,
    pub(crate) report: FigureReport,
}

impl Done {
    /// The origin of the results.
    fn source(&self) -> String {
        let FigureReport { machine, seeds, quick, .. } = &self.report;
        let rough = if *quick { ", --quick: rough" } else { "" };
        let elsewhere = match self.is_elsewhere() {
            true => format!("; the paper's machine is {}", self.figure.machine),
            false => String::new(),
        };
        format!(
            "{}, section {}; simulated on {machine}, {}{rough}{elsewhere}",
            self.figure.paper,
            self.figure.section,
            count(*seeds as usize, "seed"),
        )
    }

    /// Was it measured on a machine other than the paper's?
    fn is_elsewhere(&self) -> bool {
        self.report.machine != self.report.paper_machine
    }

    /// The cells of the table.
    fn cells(&self) -> Vec<[String; 7]> {
        self.report.rows.iter().map(cells).collect()
    }
}

/// The note for a figure on a machine other than the paper's.
const ELSEWHERE: &str = "the paper used another machine, so the verdicts say little";

const HEADER: [&str; 7] = ["target", "kind", "paper", "result", "[of seeds]", "accepted", "ok"];

fn cells(row: &ReportRow) -> [String; 7] {
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
        kind(row.kind).to_owned(),
        paper,
        row.result.map_or("-".to_owned(), digits),
        row.spread.map_or(String::new(), spread),
        range(row.low, row.high),
        verdict(row),
    ]
}

/// The short names for the table.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "num",
        Kind::Sign => "sign",
        Kind::Same => "same",
        Kind::Direction => "dir",
        Kind::Identity => "id",
    }
}

fn verdict(row: &ReportRow) -> String {
    if let Some(why) = row.impossible {
        return why.to_owned();
    }
    let mark = match (row.fit, &row.given, &row.repeats) {
        (true, ..) => ", fitted",
        (_, Some(_), _) => ", given",
        (_, _, Some(_)) => ", again",
        _ => "",
    };
    match (row.missing.is_empty(), row.ok, row.held_out) {
        (false, ..) => format!("missing: {}", row.missing.join(", ")),
        (true, true, true) => "reported".to_owned(),
        (true, true, false) => format!("yes{mark}"),
        (true, false, _) => format!("NO{mark}"),
    }
}

/// Up to three significant digits.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return lockwright_numbers::format::digits(value);
    }
    let value = value + 0.0; // zero has no sign
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        0.0 => 0,
        _ => 4,
    };
    // Values near 1 are judged by their third decimal: 0.972, 1.018.
    let decimals = if (0.9..1.1).contains(&value.abs()) { 3 } else { decimals };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// The text for one figure.
pub(crate) fn text(done: &Done) -> String {
    let figure = &done.figure;
    let head = format!("{}: {}\n{}", figure.figure, figure.title, done.source());
    let mut text = output::wrapped(&head) + "\n\n";
    let mut table = output::table(&HEADER).least(&["kind", "[of seeds]"]).all_by("--format json");
    for row in done.cells() {
        table.add_row(row);
    }
    output::right(&mut table, 2..4);
    text += &output::plain(&table);
    let mut notes = format!("accepted: {}\n", kinds(&done.report.counts));
    if done.is_elsewhere() {
        let _ = writeln!(notes, "note: {ELSEWHERE}");
    }
    for (what, values) in &done.measured.also {
        let value = median(values).map_or("-".to_owned(), digits);
        let _ = writeln!(notes, "beside it: {what} {value}");
    }
    for part in &figure.not_reproduced {
        let _ = writeln!(notes, "not reproduced: {}: {}", part.part, part.reason);
    }
    for row in &done.report.rows {
        for note in marks(row) {
            let _ = writeln!(notes, "{note}");
        }
    }
    text + &output::wrapped(&notes) + "\n\n"
}

/// The text for one figure whose rows were measured on wrong models.
pub(crate) fn planted_text(figure: &Figure, rows: &[ReportRow]) -> String {
    let header = ["target", "wrong model", "result", "accepted", "noticed"];
    let mut table = output::table(&header).least(&["accepted"]).all_by("--quick");
    for row in rows {
        let [name, _, _, result, _, accepted, _] = cells(row);
        let noticed = if row.is_noticed() { "yes" } else { "NO" };
        table.add_row([name, row.wrong.clone(), result, accepted, noticed.to_owned()]);
    }
    format!("{}: {}\n\n{}\n", figure.figure, figure.title, output::plain(&table))
}

/// Why a row proves less than it seems to.
fn marks(row: &ReportRow) -> impl Iterator<Item = String> {
    let given = row.given.as_ref().map(|why| format!("given: {}: {why}", row.name));
    let again = row.repeats.as_ref().map(|other| format!("again: {}: as {other}", row.name));
    given.into_iter().chain(again)
}

/// Each kind separately: `3 of 4 numbers, 5 of 5 directions`.
fn kinds(counts: &Tally) -> String {
    let all = [
        (counts.numbers, "number"),
        (counts.signs, "sign"),
        (counts.same, "likeness"),
        (counts.directions, "direction"),
        (counts.identities, "identity"),
    ];
    let some = all.iter().filter(|(count, _)| count.of > 0);
    let text =
        |(count, what): &(Count, &str)| format!("{} of {}", count.accepted, plural(count.of, what));
    let text: Vec<String> = some.map(text).collect();
    if text.is_empty() { "nothing to judge".to_owned() } else { text.join(", ") }
}

/// `1 identity`, `2 identities`.
fn plural(number: usize, what: &str) -> String {
    match what.strip_suffix('y') {
        Some(stem) if number != 1 => format!("{number} {stem}ies"),
        None if number != 1 && what.ends_with('s') => format!("{number} {what}es"),
        _ => count(number, what),
    }
}

/// The headline: the wanted share of independent results that agree with the paper's numbers.
const WANTED: f64 = 0.8;

fn headline(free: Count) -> String {
    let share = free.share().unwrap_or_default();
    format!(
        "{} of {} that nothing was fitted to or chosen for are within 25 % of the paper's: {:.0} %, wanted {:.0} %",
        free.accepted,
        plural(free.of, "number"),
        100.0 * share,
        100.0 * WANTED,
    )
}

/// `1 figure`, `2 figures`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The summary of all figures.
pub(crate) fn summary(all: &[Done]) -> String {
    let rows = || all.iter().flat_map(|done| &done.report.rows);
    let (missing, missed) = (
        rows().filter(|row| !row.missing.is_empty()).count(),
        rows().filter(|row| row.is_missed()).count(),
    );
    let impossible = rows().filter(|row| row.impossible.is_some()).count();
    let accepted = rows().filter(|row| row.ok && !row.held_out).count();
    let lacking = match impossible {
        0 => String::new(),
        some => format!(", {} that the machine can't have", count(some, "row")),
    };
    let tally = Tally::of(rows());
    let mut text = format!(
        "{}: {accepted} of {} accepted, {missed} not, {} for missing locks{lacking}\n  {}\n  {}\n",
        count(all.len(), "figure"),
        count(accepted + missed, "result"),
        count(missing, "row"),
        kinds(&tally),
        headline(tally.free_numbers),
    );
    for done in all {
        for row in done.report.missed() {
            let [name, kind, paper, result, _, accepted, _] = cells(row);
            let figure = &done.figure.figure;
            let _ = writeln!(
                text,
                "  {kind} {figure}: {name}: {result}, accepted {accepted} (paper {paper})"
            );
        }
    }
    output::wrapped(&text) + "\n"
}

/// The output of `--format json`: an object for one figure, else an array.
pub(crate) fn json(all: &[Done], one: bool) -> Result<Value, Failure> {
    let object = |done: &Done| serde_json::to_value(&done.report).map_err(Failure::new);
    match all {
        [done] if one => object(done),
        all => all.iter().map(object).collect(),
    }
}

/// Prints the available figures.
pub(crate) fn list(as_json: bool) -> Result<(), Failure> {
    let all = experiments().filter_map(|experiment| targets::figure(experiment.id));
    if as_json {
        let object = |figure: Figure| {
            let Figure { figure, title, paper, machine, row, .. } = figure;
            value!({"figure": figure, "title": title, "paper": paper, "machine": machine, "rows": row.len()})
        };
        let left_out = |one: LeftOut| {
            let LeftOut { figure, paper, what, reason } = one;
            value!({"figure": figure, "title": what, "paper": paper, "left_out": reason})
        };
        let left_out = targets::left_out().into_iter().map(left_out);
        return output::print_json(&all.map(object).chain(left_out).collect());
    }
    let mut table = output::table(&["figure", "machine", "rows", "what"])
        .least(&["rows", "machine"])
        .all_by("--format json");
    for figure in all {
        table.add_row([figure.figure, figure.machine, figure.row.len().to_string(), figure.title]);
    }
    output::print_table(&table)?;
    let mut table = output::table(&["left out", "what", "why"]).all_by("--format json");
    for LeftOut { figure, what, reason, .. } in targets::left_out() {
        table.add_row([figure, what, reason]);
    }
    output::print("\n")?;
    output::print_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_figures::evaluate;
    use lockwright_sim::profile::builtin;

    fn done(figure: &str, machine: &str, measured: Measured) -> Done {
        let figure = targets::figure(figure).unwrap();
        let report = evaluate(&figure, &builtin(machine).unwrap(), 5, &measured);
        Done { figure, measured, report }
    }

    #[test]
    fn json_has_the_agreed_fields() {
        let mut measured = Measured::new();
        measured.row("mcs-8/mcs-4", vec![0.5, 0.52, 0.54]);
        let all = [done("libasl-1", "m1", measured)];
        let object = json(&all, true).unwrap();
        assert_eq!(object["figure"], "libasl-1");
        assert_eq!((&object["machine"], &object["seeds"]), (&value!("m1"), &value!(5)));
        assert_eq!((&object["origin"], &object["quick"]), (&value!("simulated"), &value!(false)));
        assert_eq!(object["paper_machine"], "m1");
        let expected = value!({
            "name": "mcs-8/mcs-4", "what": "Throughput of MCS on all 8 cores to that on the 4 big ones.", "kind": "number", "paper": 0.5, "result": 0.52, "low": 0.375, "high": 0.55, "ok": true, "wrong": "cores are equal", "fit": true, "near": true,
        });
        assert_eq!(object["rows"][0], expected);
        assert_eq!(object["rows"][1]["ok"], false);
        assert_eq!(json(&all, false).unwrap()[0], object);
    }

    #[test]
    fn a_missing_lock_is_named_and_not_counted() {
        let mut all = [done("rcl-micro", "opteron-4x12", Measured::new())];
        all[0].report.rows[0].missing = vec!["no-such-lock".to_owned()];
        let text = summary(&all);
        let missing = all[0].report.rows.iter().filter(|row| !row.missing.is_empty()).count();
        assert!(missing == 1 && text.contains("1 row for missing locks"), "{text}");
        assert!(all[0].cells().iter().any(|cells| cells[6] == "missing: no-such-lock"));
    }

    #[test]
    fn on_another_machine_the_marks_say_less() {
        let measured = || {
            let mut measured = Measured::new();
            measured.row("p99 mcs", vec![15.0]);
            measured.row("p99 big/little of tas", vec![f64::NAN]);
            measured
        };
        let own = text(&done("libasl-8a", "m1", measured()));
        assert!(own.contains("yes, fitted") && !own.contains("note:"), "{own}");
        let other = done("libasl-8a", "xeon-2cpu-vm", measured());
        let said = text(&other);
        // A cell may span two lines.
        let words: Vec<&str> = said.split_whitespace().collect();
        assert!(!said.contains("fitted") && words.join(" ").contains("no little cores"), "{said}");
        assert!(said.contains("note: the paper used another machine"), "{said}");
        let summed = summary(&[other]).replace("\n  ", " ");
        assert!(summed.contains("1 row that the machine can't have"), "{summed}");
    }

    #[test]
    fn a_page_says_what_rows_are_and_what_was_chosen() {
        let page = page::page(&[done("libasl-8b", "m1", Measured::new())], "command", &[]);
        let what = "P99 latency of little cores to the SLO of 20 µs.";
        assert!(page.contains(&format!("p99 little/slo 20us<span class=\"what\">{what}</span>")));
        assert!(page.contains("<li>Chosen as libasl-8a: gap = 600"), "{page}");
    }

    #[test]
    fn a_summary_counts_each_kind_apart_and_has_a_headline() {
        let mut measured = Measured::new();
        // Fitted, near, and far: the latter two count as independent. Then a direction and an identity.
        for (row, value) in [
            ("p99 mcs", 15.0),
            ("asl-50/tas", 1.5),
            ("pb10/mcs", 0.7),
            ("glibc/worst other", 0.9),
            ("asl-0/mcs", 1.0),
        ] {
            measured.row(row, vec![value]);
        }
        let done = done("libasl-8a", "m1", measured);
        let Tally { numbers, free_numbers, .. } = done.report.counts;
        assert_eq!((numbers.accepted, free_numbers.accepted), (2, 1));
        let (numbers, free) = (numbers.of, free_numbers.of);
        let said = text(&done).split_whitespace().collect::<Vec<_>>().join(" ");
        let kinds = format!(
            "2 of {numbers} numbers, 0 of 3 signs, 0 of 3 likenesses, 1 of 4 directions, 1 of 1 identity"
        );
        assert!(said.contains(&format!("accepted: {kinds}")), "{said}");
        assert!(
            said.contains(" num ") && said.contains(" dir ") && said.contains(" id "),
            "{said}"
        );
        let all = [done];
        let summed = summary(&all).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(summed.contains(&kinds), "{summed}");
        assert!(
            summed.contains(&format!("1 of {free} numbers that nothing was fitted to")),
            "{summed}"
        );
        assert!(summed.contains("sign libasl-8a: pb10/mcs: 0.7"), "{summed}");
        let page = page::page(&all, "command", &[]);
        assert!(page.contains(&kinds) && page.contains("<th>kind</th>"), "{page}");
        let object = json(&all, true).unwrap();
        assert_eq!(object["counts"]["free_numbers"], value!({"accepted": 1, "of": free}));
    }

    #[test]
    fn what_was_met_beforehand_is_marked_and_says_why() {
        let mut measured = Measured::new();
        measured.row("fairness ticket-10", vec![0.54]);
        let said = text(&done("cal-3", "i5-13400", measured));
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("yes, given"), "{said}");
        assert!(
            words.contains("given: fairness ticket-10: the same run as cal-7's fitted row"),
            "{said}"
        );
    }

    #[test]
    fn one_is_one() {
        assert_eq!(
            (&*plural(1, "identity"), &*plural(2, "identity")),
            ("1 identity", "2 identities")
        );
        assert_eq!((&*count(1, "plot"), &*count(2, "plot")), ("1 plot", "2 plots"));
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
