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

use anyhow::{Result, ensure};
use lockwright_locks::catalog::all;
use lockwright_tests::Child;

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

/// Names that commands had before, and how the same is said now. `4194305` is no process.
const OLD: [(&str, &str, &str, &str); 13] = [
    ("ctl", "4194305", "switch", "4194305"),
    ("ctl", "4194305 switch all fofo", "switch", "4194305 all fofo"),
    ("ctl", "4194305 set all spin=5", "switch", "4194305 set all spin=5"),
    ("detach", "4194305", "attach --undo", "4194305"),
    ("record", "--show missing.bin", "profile --record", "--show missing.bin"),
    ("kernel", "--format json --stacks", "profile --kernel", "--format json --stacks"),
    ("export", "--interval 1ms", "top --export", "--interval 1ms"),
    ("topology", "--set big", "doctor --topology", "--set big"),
    ("calibrate", "--output nowhere/x", "sim --calibrate", "--output nowhere/x"),
    ("validate", "--profile missing.toml", "sim --validate", "--profile missing.toml"),
    ("merge", "nowhere", "sim --merge", "nowhere"),
    ("completions", "bash", "--completions", "bash"),
    ("man", "run", "--man", "run"),
];

/// For a release: one line, then the same.
#[test]
fn old_names_lead_to_the_new_ones() -> Result<()> {
    let said = |words: &str| {
        Child::new(env!("CARGO_BIN_EXE_lockwright"))
            .args(words.split(' '))
            .env("COLUMNS", "80")
            .run()
    };
    for (old, its, new, ours) in OLD {
        let line = format!("note: lockwright {old} is now lockwright {new}\n");
        let helps = [format!("{old} --help"), format!("help {old}")];
        let pairs = helps.map(|help| (help, format!("{new} --help")));
        for (old, new) in
            pairs.into_iter().chain([(format!("{old} {its}"), format!("{new} {ours}"))])
        {
            let (before, now) = (said(&old)?, said(&new)?);
            ensure!(
                before.end == now.end,
                "{old}: {}; {new}: {}",
                before.describe(),
                now.describe()
            );
            ensure!(
                before.text() == now.text(),
                "{old}: {}; {new}: {}",
                before.describe(),
                now.describe()
            );
            ensure!(
                before.errors() == format!("{line}{}", now.errors()),
                "{old}: {}",
                before.describe()
            );
            ensure!(
                now.text().len() + now.errors().len() > 20,
                "{new} says nothing: {}",
                now.describe()
            );
        }
    }
    Ok(())
}
