//! The Rust example as a program, with each lock, with and without the preloaded library.

use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End, library};
use std::path::{Path, PathBuf};

const LOCKS: [&str; 4] = ["auto", "fifo", "glibc", "mcs-stp"];

/// The path of an example; cargo built it beside this test.
fn example(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = this.parent().and_then(Path::parent).context("a folder")?;
    Ok(folder.join("examples").join(name))
}

fn orders(lock: &str, preload: Option<&Path>) -> Result<String> {
    let mut child = Child::new(example("orders")?).env("LOCKWRIGHT_LOCK", lock).limit(60);
    if let Some(library) = preload {
        child = child.env("LD_PRELOAD", library);
    }
    let outcome = child.run_fairly()?;
    ensure!(outcome.end == End::Code(0), "{lock}: {}", outcome.describe());
    ensure!(outcome.text() == "60000 orders, sum 1799970000, price 61\n", "{}", outcome.describe());
    Ok(outcome.errors())
}

#[test]
fn the_example_runs_with_each_lock() -> Result<()> {
    for lock in LOCKS {
        assert_eq!(orders(lock, None)?, "", "{lock}");
    }
    Ok(())
}

#[test]
fn the_example_runs_with_each_lock_under_the_preloaded_library() -> Result<()> {
    let library = library()?;
    for lock in LOCKS {
        assert_eq!(orders(lock, Some(&library))?, "", "{lock}");
    }
    Ok(())
}

/// Each epoch is counted once, by the runtime that serves the process: under the preload, by the library's alone.
#[test]
fn each_epoch_is_recorded_once() -> Result<()> {
    let library = library()?;
    for preload in [None, Some(&library)] {
        let folder = tempfile::tempdir()?;
        let mut child = Child::new(example("orders")?).env("LOCKWRIGHT_STATS", folder.path());
        if let Some(library) = preload {
            child = child.env("LD_PRELOAD", library);
        }
        let outcome = child.limit(60).run_fairly()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let processes = lockwright_stats::read_dir(folder.path())?;
        let [process] = processes.as_slice() else { bail!("{} processes", processes.len()) };
        let [epoch] = process.epochs.as_slice() else { bail!("{:?}", process.epochs) };
        assert_eq!((epoch.id, epoch.name.as_str(), epoch.slo_ns), (1, "hand in", 300_000));
        assert_eq!(epoch.all().count, 60_000);
    }
    Ok(())
}

/// One runtime serves a process: with two, both would complain.
#[test]
fn a_misspelt_lock_is_told_once() -> Result<()> {
    let library = library()?;
    for preload in [None, Some(&*library)] {
        let errors = orders("fifi", preload)?;
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains("unknown lock 'fifi', the nearest is 'fifo'"), "{errors}");
    }
    Ok(())
}
