//! The runs of the lessons in docs/ work, and have the rows that their pages show. Figures are not compared: tests are built with
//! assertions, whose looks at a lock's words take simulated time, too.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A run on a page: its command, and what the page shows of its output.
struct Run {
    page: String,
    command: String,
    shown: String,
}

fn runs() -> Result<Vec<Run>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut runs = Vec::new();
    for entry in fs::read_dir(&docs)? {
        let path = entry?.path();
        let page = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !page.starts_with("lesson") {
            continue;
        }
        let text = fs::read_to_string(&path)?.replace("\\\n", " ");
        for block in text.split("```console\n").skip(1) {
            let (block, _) = block.split_once("```").with_context(|| page.clone())?;
            for run in block.split("$ lockwright ").skip(1) {
                let (command, shown) = run.split_once('\n').with_context(|| page.clone())?;
                let (command, shown) = (command.to_owned(), shown.to_owned());
                runs.push(Run { page: page.clone(), command, shown });
            }
        }
    }
    Ok(runs)
}

/// Words that name rows and columns: without figures and units.
fn words(text: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| {
        word.len() > 2 && word.chars().all(|c| c.is_ascii_alphabetic() || "-/:".contains(c))
    };
    text.split_whitespace().filter(is_name).collect()
}

#[test]
fn runs_of_the_lessons_have_the_rows_of_their_pages() -> Result<()> {
    let runs = runs()?;
    ensure!(runs.len() > 10, "{} runs: the pages are not read as they are written", runs.len());
    for Run { page, command, shown } in runs {
        let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright"))
            .args(command.split_whitespace())
            .env("COLUMNS", "80")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .limit(300)
            .run()?;
        // A short run may miss a figure.
        let missed = outcome.end == End::Code(1) && command.starts_with("reproduce ");
        ensure!(outcome.end == End::Code(0) || missed, "{page}: {command}: {}", outcome.describe());
        let text = outcome.text();
        let printed = words(&text);
        let lost: Vec<_> =
            words(&shown).into_iter().filter(|word| !printed.contains(word)).collect();
        ensure!(lost.is_empty(), "{page}: {command}: no {lost:?} in\n{text}");
    }
    Ok(())
}
