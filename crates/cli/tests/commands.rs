//! Every word that the command prints, as snapshots in `tests/commands/`.
//!
//! `TRYCMD=overwrite cargo test -p lockwright-cli --test commands` writes them anew.

use std::time::Duration;

#[test]
fn words_are_as_in_the_snapshots() {
    trycmd::TestCases::new()
        .env("COLUMNS", "80")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("LOCKWRIGHT_LIBRARY", "/nonexistent/liblockwright.so")
        .timeout(Duration::from_secs(60))
        .case("tests/commands/*.trycmd");
}

use lockwright_locks::catalog::all;

/// The page has a row for each lock of the catalogue, and for no other.
#[test]
fn the_table_of_mutants_names_every_lock() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explore.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, table) = page.split_once("| lock | faults of the hand-over |").expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
    let named: Vec<_> = rows.filter_map(|line| line.split('`').nth(1)).collect();
    let all = all();
    let all: Vec<_> = all.map(|entry| entry.id).collect();
    assert_eq!(named, all);
}
