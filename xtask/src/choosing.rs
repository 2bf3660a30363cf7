//! Which lock suits which program? This measures all locks on every simulated machine and, on request, on this one. It
//! keeps the results, and makes `docs/choosing.md` from them.
//!
//! ```text
//!   grid (virtual machine) ─► data: bench/runs/DATE-choosing/results.json ─► sums ─► tables ─► page, picture
//!   real (lockwright bench) ─┘
//! ```

mod data;
mod grid;
mod page;
mod picture;
mod real;
mod sums;
mod tables;

use crate::eval::save;
use crate::progress::progress;
use crate::root::root;
use crate::{demo, fit};
use anyhow::{Context, Result};
use data::Results;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page, relative to the root; its picture has the same folder.
const PAGE: &str = "docs/choosing.md";
const PICTURE: &str = "docs/choosing.svg";
/// The folder of raw data, relative to the root. Subfolders begin with the date.
const RUNS: &str = "bench/runs";
const FOLDER: &str = "-choosing";
const FILE: &str = "results.json";

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure this machine instead of the simulated ones: takes a quarter of an hour, during which nothing else
    /// should run.
    #[arg(long)]
    real: bool,
    /// Measure nothing: render the results in this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["real", "quick"])]
    from: Option<PathBuf>,
    /// A few short runs, written to target/choosing: shows that everything works.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let root = root();
    if let Some(file) = &args.from {
        return render(&root, &root, file);
    }
    if cfg!(debug_assertions) && !args.real {
        return fit::again_optimised();
    }
    // One part is measured anew; keep the other.
    let mut results = match newest(&root)? {
        Some(file) if !args.quick => read(&file)?,
        _ => Results::default(),
    };
    let version = version(&root);
    if args.real {
        let command = "cargo xtask choosing --real".to_owned();
        let target = root.join("target");
        results.real = Some(real::measure(&target, args.quick, command, version)?);
    } else {
        let bar = progress(1, "runs")?;
        let done = |total: usize| {
            bar.set_length(total as u64);
            bar.inc(1);
        };
        let command = "cargo xtask choosing".to_owned();
        let measured = grid::measure(args.quick, command, version, done);
        bar.finish_and_clear();
        results.simulated = Some(measured?);
    }
    let out = if args.quick { root.join("target/choosing") } else { root.clone() };
    let day = demo::report::date()?;
    let day = day.split(' ').next().unwrap_or(&day).to_owned();
    let folder = out.join(RUNS).join(day + FOLDER);
    make(&folder)?;
    let file = folder.join(FILE);
    save(&file, &results.write()?)?;
    println!("results: {}", file.display());
    render(&root, &out, &file)
}

/// Makes the page in `out` from a file of results.
fn render(root: &Path, out: &Path, file: &Path) -> Result<()> {
    let shown = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let shown = shown.strip_prefix(out).or(shown.strip_prefix(root)).unwrap_or(file).to_owned();
    let results = read(file)?;
    let (page, picture) = (out.join(PAGE), out.join(PICTURE));
    make(page.parent().unwrap_or(out))?;
    save(&page, &page::page(&results, &shown.to_string_lossy()))?;
    save(&picture, &picture::svg(&results))?;
    println!("page: {}", page.display());
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make '{}'", folder.display()))
}

fn read(file: &Path) -> Result<Results> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| {
        format!(
            "cannot read '{name}'\nhint: cargo xtask choosing --from bench/runs/*{FOLDER}/{FILE}"
        )
    })?;
    Results::read(&text).with_context(|| format!("'{name}'"))
}

/// The latest results.
fn newest(root: &Path) -> Result<Option<PathBuf>> {
    let runs = root.join(RUNS);
    let mut all = Vec::new();
    for entry in fs::read_dir(&runs).with_context(|| format!("cannot read '{}'", runs.display()))? {
        let path = entry?.path();
        let is_ours = path.to_string_lossy().ends_with(FOLDER) && path.join(FILE).exists();
        all.extend(is_ours.then(|| path.join(FILE)));
    }
    Ok(all.into_iter().max())
}

/// Version and commit of the measured code.
fn version(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let number = env!("CARGO_PKG_VERSION");
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else { return number.to_owned() };
    // This folder contains all measured code.
    let changed = git(&["status", "--porcelain", "crates"]).is_some_and(|list| !list.is_empty());
    format!("{number}, commit {commit}{}", if changed { " and changes" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_its_results_say() {
        let root = root();
        let file = newest(&root).unwrap().expect("there are results");
        let results = read(&file).unwrap();
        let shown = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let again = "cargo xtask choosing --from";
        let is = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert!(is(PAGE) == page::page(&results, &shown), "{PAGE} is stale: {again} {shown}");
        assert!(is(PICTURE) == picture::svg(&results), "{PICTURE} is stale: {again} {shown}");
        for part in [&results.simulated, &results.real].into_iter().flatten() {
            assert!(!part.quick, "a quick run is nothing to publish");
        }
        for line in is(PAGE).lines().filter(|line| line.starts_with('|')) {
            assert!(line.chars().count() <= 80, "more than 80 columns: {line}");
        }
    }
}
