//! The table of `--transfers`: what lies on the way from a holder's unlock to the next holder's section.

use super::plan::Plan;
use super::{SeedRuns, place};
use crate::output;
use lockwright_numbers::format::{si, time};
use lockwright_sim::{HandOverPath, Outcome};

/// A table's header and rows.
pub(super) type Cells = (Vec<String>, Vec<Vec<String>>);

/// What the table shows.
pub(super) const TITLE: &str =
    "Transfers of lines from the beginning of an unlock until a waiter has the lock";

type Column = (&'static str, fn(&HandOverPath) -> f64);

/// The columns of a run's line in CSV.
pub(super) const COLUMNS: [Column; 16] = [
    ("path_hand_overs", |path| path.hand_overs as f64),
    ("path_transfers", |path| path.transfers),
    ("path_p50", |path| path.p50 as f64),
    ("path_p99", |path| path.p99 as f64),
    ("path_max", |path| path.max as f64),
    ("path_releaser_copies", |path| path.releaser.copies),
    ("path_releaser_takes", |path| path.releaser.takes),
    ("path_releaser_upgrades", |path| path.releaser.upgrades),
    ("path_next_copies", |path| path.next.copies),
    ("path_next_takes", |path| path.next.takes),
    ("path_next_upgrades", |path| path.next.upgrades),
    ("path_mean_ns", |path| path.mean_ns),
    ("path_p50_ns", |path| path.p50_ns as f64),
    ("path_p99_ns", |path| path.p99_ns as f64),
    ("path_free", |path| path.free as f64),
    ("path_passed_over", |path| path.passed_over as f64),
];

/// How a figure of the table is written.
type Shown = (&'static str, fn(&HandOverPath) -> f64, fn(f64) -> String);

const SHOWN: [Shown; 10] = [
    ("hand-overs", |path| path.hand_overs as f64, si),
    ("transfers", |path| path.transfers, hundredths),
    ("P50", |path| path.p50 as f64, whole),
    ("P99", |path| path.p99 as f64, whole),
    ("releaser", |path| path.releaser.all(), hundredths),
    ("next", |path| path.next.all(), hundredths),
    ("time", |path| path.mean_ns, time),
    ("P50 time", |path| path.p50_ns as f64, time),
    ("free", |path| path.free as f64, si),
    ("passed over", |path| path.passed_over as f64, si),
];

/// These have a value without any hand-over.
const COUNTS: [&str; 3] = ["hand-overs", "free", "passed over"];

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// The medians over the seeds; `None`: nobody asked for them.
pub(super) fn cells(plan: &Plan, rows: &[SeedRuns<'_>]) -> Option<Cells> {
    plan.transfers.then(|| {
        let mut header: Vec<String> =
            place(&rows[0], None).into_iter().map(|(key, _)| key).collect();
        header.push("lock".into());
        header.extend(SHOWN.map(|(name, ..)| name.to_owned()));
        (header, rows.iter().map(of_row).collect())
    })
}

fn of_row(row: &SeedRuns<'_>) -> Vec<String> {
    let mut cells: Vec<String> = place(row, None).into_iter().map(|(_, value)| value).collect();
    cells.push(row.lock().to_owned());
    let figure = |of: fn(&HandOverPath) -> f64| {
        row.spread(|outcome: &Outcome| outcome.path.as_ref().map_or(0.0, of))
    };
    let any = figure(|path| path.hand_overs as f64).is_some_and(|spread| spread.median > 0.0);
    cells.extend(SHOWN.map(|(name, of, text)| {
        let shown = figure(of).filter(|_| any || COUNTS.contains(&name));
        shown.map_or("-".into(), |spread| text(spread.median))
    }));
    cells
}

/// The table, with `left` columns before the figures.
pub(super) fn table((header, body): &Cells, left: usize) -> output::Table {
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    let least = ["P50 time", "passed over", "free", "P50"];
    let mut table = output::table(&names).least(&least).all_by("--format json");
    for cells in body {
        table.add_row(cells.clone());
    }
    output::right(&mut table, left..header.len());
    table
}
