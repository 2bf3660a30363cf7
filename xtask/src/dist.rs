//! `cargo xtask dist`: builds what users install: a tarball, a Debian package, and crates. With `--check`, installs and
//! uses each one as users would, in a minimal Debian root and in a folder outside the workspace.

mod crates;
mod deb;
mod recipes;
mod root;
mod stage;

use crate::root::root as source;
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, scratch};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install, use and remove what was made (needs root, and Debian's mirror).
    #[arg(long)]
    check: bool,
    /// Build the command from its crate, too, as `cargo install` does: minutes.
    #[arg(long, requires = "check")]
    install: bool,
}

/// What a program with our library prints for LOCKWRIGHT_LOCK=bogus.
const COMPLAINT: &str = "unknown lock 'bogus'";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn main(args: Args) -> Result<()> {
    let root = source();
    let target = scratch("")?;
    let dist = scratch("dist")?;
    timed("build the command and the libraries", || {
        run(cargo().args(["build", "--release", "--quiet"]).limit(1800)).map(drop)
    })?;
    let release = target.join("release");
    let (tarball, tree) = timed("tarball", || stage::tarball(&root, &release, &dist))?;
    let package = timed("Debian package", || deb::package(&root, &tree, &dist))?;
    let crates = timed("crates", || crates::package(&root, &dist))?;
    for path in [&tarball, &package].into_iter().chain(&crates) {
        println!("{:>9} {}", size(path)?, path.display());
    }
    if args.check {
        timed("tarball: unpacked elsewhere, it works", || stage::check(&tarball))?;
        root::check(&package, &dist)?;
        crates::check(&crates, &dist, args.install)?;
    }
    Ok(())
}

/// Runs a step, and prints how long it took.
fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = work().with_context(|| what.to_owned())?;
    eprintln!("dist: {:>5.1} s  {what}", start.elapsed().as_secs_f64());
    Ok(result)
}

/// Cargo for the workspace, with the target folder that contains this program.
fn cargo() -> Child {
    let target = scratch("").unwrap_or_default();
    Child::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .dir(&source())
        .env("CARGO_TARGET_DIR", target)
}

/// Runs a command that must succeed, and returns its standard output.
fn run(child: Child) -> Result<String> {
    let outcome = child.run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    Ok(outcome.text())
}

/// Runs a program with these arguments.
fn tool<S: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = S>) -> Result<String> {
    run(Child::new(program).args(words)).with_context(|| program.to_owned())
}

/// Makes an empty folder.
fn empty(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("cannot empty '{}'", path.display()))?;
    }
    fs::create_dir_all(path).with_context(|| format!("cannot make '{}'", path.display()))
}

fn size(path: &Path) -> Result<String> {
    let bytes = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    Ok(format!("{:.1} kB", bytes as f64 / 1000.0))
}
