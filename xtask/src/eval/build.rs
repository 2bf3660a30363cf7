//! Builds the drivers of `eval/`.

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, scratch};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Builds a driver of this name from `source` in `eval/`, with the database's library.
pub(super) fn driver(id: &str, name: &str, source: &str, library: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a workspace")?;
    let program = scratch("eval/bin")?.join(id);
    let source = root.join("eval").join(source);
    eprintln!("building the driver of {name}");
    let flags = ["-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let outcome = Child::new("g++")
        .args(flags)
        .args([OsString::from("-I"), root.join("include").into()])
        .args([source.as_os_str(), "-o".as_ref(), program.as_os_str(), library.as_ref()])
        .limit(300)
        .run()?;
    ensure!(
        outcome.end == End::Code(0),
        "cannot build '{}': {}",
        source.display(),
        outcome.describe()
    );
    Ok(program)
}
