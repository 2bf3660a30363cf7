//! Every figure measures exactly the rows whose locks exist.

use lockwright_figures::{Context, Measured, evaluate, find, models, planted};
use lockwright_sim::targets::Kind;
use lockwright_sim::{profile, targets};
use std::path::Path;
use std::sync::Arc;

/// One seed, a fiftieth of the time; where 80 threads begin at once, as long as they take to stand in line.
fn quick(id: &str) -> (targets::Figure, Measured) {
    let target = targets::figure(id).unwrap();
    let profile = Arc::new(profile::builtin(&target.machine).unwrap());
    let length = if id == "c3-2" { 0.08 } else { 0.02 };
    let context = Context { length, ..Context::new(profile, 1) };
    let measured = (find(id).unwrap_or_else(|| panic!("no experiment {id}")).measure)(&context);
    (target, measured.unwrap_or_else(|why| panic!("{id}: {why}")))
}

fn rows_are_measured(id: &str) {
    let (target, measured) = quick(id);
    let report = evaluate(&target, &profile::builtin(&target.machine).unwrap(), 1, &measured);
    for row in &report.rows {
        let measured = measured.rows.get(&row.name).is_some_and(|values| values.len() == 1);
        assert_eq!(measured, row.missing.is_empty(), "{id}: {row:?}");
    }
    // In so short a time the little cores of an oversubscribed machine may end no epoch: such a row has no number.
    let numbers = report.rows.iter().filter(|row| row.result.is_some()).count();
    let measurable = report.rows.iter().filter(|row| row.missing.is_empty()).count();
    assert!(2 * numbers >= measurable, "{id}: {numbers} of {measurable}");
    for name in measured.rows.keys() {
        assert!(target.row.iter().any(|row| row.name == *name), "{id}: no row is called {name}");
    }
    for plot in &measured.plots {
        assert!(plot.name.starts_with(id), "{}", plot.name);
        assert!(plot.series.iter().any(|series| !series.points.is_empty()), "{}", plot.name);
    }
}

macro_rules! figures {
    ($($test:ident: $id:literal,)*) => {
        const TESTED: &[&str] = &[$($id),*];
        $(#[test]
        fn $test() {
            rows_are_measured($id);
        })*
    };
}

figures! {
    libasl_1: "libasl-1",
    libasl_4: "libasl-4",
    libasl_5: "libasl-5",
    libasl_8a: "libasl-8a",
    libasl_8b: "libasl-8b",
    libasl_8c: "libasl-8c",
    libasl_8d: "libasl-8d",
    libasl_8e: "libasl-8e",
    libasl_8f: "libasl-8f",
    libasl_8g: "libasl-8g",
    libasl_8h: "libasl-8h",
    libasl_8i: "libasl-8i",
    libasl_9: "libasl-9",
    libasl_10: "libasl-10",
    libasl_platforms: "libasl-platforms",
    cal_3: "cal-3",
    cal_7: "cal-7",
    cal_8: "cal-8",
    cal_9: "cal-9",
    mutexee_1: "mutexee-1",
    mutexee_8: "mutexee-8",
    mutexee_9: "mutexee-9",
    mutexee_10: "mutexee-10",
    mutexee_11: "mutexee-11",
    mutexee_12: "mutexee-12",
    mutexee_13: "mutexee-13",
    mutexee_t2: "mutexee-t2",
    rcl_micro: "rcl-micro",
    rcl_combining: "rcl-combining",
    rcl_crowded: "rcl-crowded",
    rcl_amp: "rcl-amp",
    rcl_servers: "rcl-servers",
    c3_2: "c3-2",
    c3_policies: "c3-policies",
}

#[test]
fn every_figure_is_tested_here() {
    let ids: Vec<&str> = targets::FIGURES.iter().map(|(id, _)| *id).collect();
    assert_eq!(TESTED, ids, "each figure has a line in `figures!` of this file, in the same order");
}

/// The judge can say no: each row of these figures, which take little time, rejects the wrong model that it names.
/// `cargo xtask soak` does the same with all figures.
#[test]
fn rows_notice_their_planted_wrong_models() {
    for id in ["cal-3", "libasl-5", "libasl-platforms", "mutexee-1", "mutexee-t2"] {
        let target = targets::figure(id).unwrap();
        let profile = Arc::new(profile::builtin(&target.machine).unwrap());
        let experiment = find(id).unwrap();
        let context = |wrong| Context {
            wrong: Some(wrong),
            length: 0.25,
            often: targets::SIGN_SEEDS,
            ..Context::new(profile.clone(), 1)
        };
        let models = models(&target);
        let rows = planted(&target, experiment, context, &models).unwrap();
        assert_eq!(rows.len(), target.row.len(), "{id}");
        for row in rows {
            assert!(row.is_noticed(), "{id}: {}: '{}' went unnoticed", row.name, row.wrong);
        }
    }
}

/// A figure that docs/reproduce.md doesn't name, or whose rows its results don't count, would go unnoticed.
#[test]
fn the_docs_name_each_figure_and_count_each_row() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduce.md");
    let page = std::fs::read_to_string(page).unwrap();
    let figures: Vec<_> = targets::FIGURES.iter().map(|(id, _)| *id).collect();
    for id in &figures {
        assert!(page.contains(&format!("`{id}`")), "docs/reproduce.md doesn't say what {id} shows");
    }
    let rows: Vec<_> = figures.iter().flat_map(|id| targets::figure(id).unwrap().row).collect();
    for (kind, name) in [
        (Kind::Number, "numbers"),
        (Kind::Sign, "signs"),
        (Kind::Same, "likenesses"),
        (Kind::Direction, "directions"),
        (Kind::Identity, "identities"),
    ] {
        let is_judged = |row: &&targets::Row| row.missing().is_empty() && !row.held_out;
        let count = rows.iter().filter(|row| row.kind == kind).filter(is_judged).count();
        let line = page.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
        let again =
            "lockwright reproduce all --seeds 5, and write what came out into docs/reproduce.md";
        assert!(line.contains(&format!(" of {count}")), "{count} {name}, not '{line}': {again}");
    }
}
