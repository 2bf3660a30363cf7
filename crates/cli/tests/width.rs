//! Help, listings and tables fit 80 columns, even if the output isn't a terminal.

mod helps;
mod recorded;

use anyhow::{Context, Result, ensure};
use helps::helps;
use lockwright_stats::trace::Step;
use lockwright_tests::{Child, End};
use tempfile::TempDir;

const WIDTH: usize = 80;

/// What it says, on both outputs.
fn said(words: &[&str]) -> Result<String> {
    let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright")).args(words).run()?;
    ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
    Ok(outcome.text() + &outcome.errors())
}

fn fits(words: &[&str]) -> Result<()> {
    narrow(words, &said(words)?)
}

fn narrow(words: &[&str], text: &str) -> Result<()> {
    // A command to be copied stays on one line.
    let long = text.lines().find(|line| line.chars().count() > WIDTH && !line.contains("replay: "));
    ensure!(long.is_none(), "{words:?} is wider than {WIDTH} columns: {long:?}");
    Ok(())
}

/// A command whose help is in no snapshot could change without anybody's knowledge.
#[test]
fn the_snapshot_of_help_has_every_command() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/help.trycmd");
    let text = std::fs::read_to_string(path)?;
    for help in helps()? {
        let session = format!("$ {} --help", help.command());
        let is_there = text.lines().any(|line| line == session);
        ensure!(
            is_there,
            "help.trycmd lacks a session '{session}'\nhint: docs/contributing/cli-command.md, step 5"
        );
    }
    Ok(())
}

#[test]
fn every_help_and_every_listing_fits() -> Result<()> {
    let all = helps()?;
    for command in ["run", "profile --record", "switch set", "--man"] {
        let is_there = all.iter().any(|help| help.words.join(" ") == command);
        ensure!(is_there, "no '{command}' among {} helps", all.len());
    }
    for help in &all {
        let words: Vec<_> = help.words.iter().map(String::as_str).collect();
        narrow(&words, &help.text)?;
        fits(&[&words[..], &["-h"]].concat())?;
    }
    for words in [
        &["list"][..],
        &["doctor", "--topology"],
        &["sim", "--list"],
        &["sim", "--list", "--machine", "m1,xeon-2x10,niagara2-128,i5-13400"],
        &["reproduce", "--list"],
        &["explore", "ticket,fifo,runtime", "--schedules", "20", "--jobs", "1"],
        &["explore", "ticket,mcs", "--mutants", "--schedules", "20", "--jobs", "1"],
    ] {
        // How many faults so few schedules find does not matter here.
        match words.contains(&"--mutants") {
            true => {
                let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright")).args(words).run()?;
                let text = outcome.text();
                ensure!(text.contains("faults of the hand-over: "), "{}", outcome.describe());
                narrow(words, &text)?;
            }
            false => fits(words)?,
        }
    }
    let list: serde_json::Value = serde_json::from_str(&said(&["list", "--json"])?)?;
    for lock in list.as_array().context("locks")? {
        fits(&["explain", lock["name"].as_str().context("a name")?])?;
    }
    fits(&["explain", "glibc"])
}

/// A narrow terminal has whole words: sentences go below their rows, then columns are left out.
#[test]
fn narrow_tables_say_what_they_leave_out() -> Result<()> {
    let run = |words: &[&str], columns: &str| -> Result<String> {
        let child = Child::new(env!("CARGO_BIN_EXE_lockwright")).args(words);
        Ok(child.env("COLUMNS", columns).run()?.text())
    };
    for (words, gone) in [
        (&["doctor", "--topology"][..], "left out: from"),
        (&["list"], ""),
        (&["reproduce", "--list"], ""),
    ] {
        let first = |text: &str| -> Vec<String> {
            text.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        let wide = run(words, "300")?;
        let known: Vec<_> = wide.split_whitespace().collect();
        for width in [60, 40] {
            let text = run(words, &width.to_string())?;
            let lines = first(&text);
            let long = lines.iter().find(|line| line.chars().count() > width);
            ensure!(long.is_none(), "{words:?} is wider than {width} columns: {long:?}");
            let at = lines.iter().position(|line| line.starts_with("left out: "));
            let (cells, told) = lines.split_at(at.unwrap_or(lines.len()));
            let broken = cells.iter().flat_map(|line| line.split_whitespace());
            let is_known =
                |word: &str| known.contains(&word) || known.contains(&word.trim_end_matches(':'));
            let broken = broken.into_iter().find(|word| !is_known(word));
            ensure!(broken.is_none(), "{words:?}, {width} columns: a broken word: {broken:?}");
            let told =
                told.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ");
            ensure!(width > 40 || told.starts_with(gone), "{words:?}: {text}");
            ensure!(told.is_empty() || told.contains("--format json"), "{words:?}: {text}");
        }
        ensure!(!wide.contains("left out: "), "{words:?}: {wide}");
    }
    Ok(())
}

#[test]
fn every_table_of_results_fits() -> Result<()> {
    let short = ["--seeds", "2", "--duration", "50us", "--warmup", "10us"];
    for words in [
        &["--machine", "m1", "--lock", "mcs,asl-mcs,fifo:spin=5000", "--threads", "2,8"][..],
        &["--machine", "m1,xeon-2x10", "--lock", "mcs,tas", "--threads", "1,max"],
        &["--machine", "m1", "--lock", "mcs,tas", "--sweep", "memory.occupancy=0.3,1"],
        &["--machine", "m1", "--lock", "mcs"],
    ] {
        fits(&[&["sim"], words, &short].concat())?;
    }
    let steps = vec![
        Step::Compute(123_456),
        Step::Acquire { lock: 0, wait_ns: 1_234_567 },
        Step::Compute(12_345),
        Step::Release(0),
    ];
    let folder = TempDir::new()?;
    let file = &*recorded::write(&folder, vec![recorded::thread(steps); 5], 2_000_000)?;
    fits(&["profile", "--record", "--show", file])?;
    fits(&["sim", "--machine", "m1", "--lock", "mcs,asl", "--seeds", "1", "--trace", file])
}
