//! The crates: packs them, and uses them outside the project.

use super::{COMPLAINT, VERSION, cargo, empty, run, stage, timed, tool};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, scratch};
use serde::Deserialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::DocumentMut;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    /// The registries that a crate may be published to; `None`: any.
    publish: Option<Vec<String>>,
}

/// Packs the crates that may be published.
pub(super) fn package(root: &Path, dist: &Path) -> Result<Vec<PathBuf>> {
    let said = run(cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&said)?;
    let names = metadata.packages.into_iter().filter(|package| package.publish.is_none());
    let names: Vec<String> = names.map(|package| package.name).collect();
    let mut pack =
        cargo().args(["package", "--no-verify", "--allow-dirty", "--quiet", "--offline"]);
    for name in &names {
        pack = pack.args(["--package", name]);
    }
    run(pack.dir(root)).context("cargo package")?;
    let folder = dist.join("crates");
    empty(&folder)?;
    let packed = scratch("package")?;
    let names = names.into_iter().map(|name| format!("{name}-{VERSION}.crate"));
    names
        .map(|name| {
            let to = folder.join(&name);
            stage::copy(&packed.join(name), &to, 0o644)?;
            Ok(to)
        })
        .collect()
}

/// The program of the Rust quick start, which is on its page alone.
fn quick_start() -> Result<String> {
    let page = fs::read_to_string(super::source().join("docs/start-rust.md"))?;
    let block = page.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```"));
    Ok(block.context("docs/start-rust.md has no program")?.0.to_owned())
}

/// A program that writes the library embedded in the published crate to a folder.
const LIBRARY: &str = r#"//! Uses the published crate.
fn main() {
    let cache = std::env::args_os().nth(1).expect("a folder");
    let file = lockwright_library::write_in(cache.as_ref()).expect("it can be written");
    println!("{}", file.expect("a release build has it").display());
}
"#;

/// Builds and runs programs that use the packed crates. Checks that the command compiles; with `install`, also builds
/// and installs it.
pub(super) fn check(crates: &[PathBuf], dist: &Path, install: bool) -> Result<()> {
    let folder = dist.join("elsewhere");
    unpack(crates, &folder)?;
    let cargo = |words: &[&str]| {
        let child = cargo().args(words).args(["--quiet", "--offline"]).dir(&folder).limit(1800);
        run(child).with_context(|| format!("cargo {}", words.join(" ")))
    };
    timed("lockwright-sync from its crate: a program runs", || {
        let said = cargo(&["run", "--release", "--package", "uses-sync"])?;
        ensure!(said == "4000000\n", "it printed '{said}'");
        Ok(())
    })?;
    timed("lockwright-library from its crate: a program has our locks", || {
        let cache = folder.join("cache");
        cargo(&["build", "--release", "--package", "uses-library"])?;
        let program = scratch("release")?.join("uses-library");
        let file = run(Child::new(program).args([&cache]))?;
        serves(Path::new(file.trim()))
    })?;
    timed("lockwright-cli from its crate, with all that it needs: compiles", || {
        cargo(&["check", "--package", "lockwright-cli"]).map(drop)
    })?;
    if install {
        timed("lockwright-cli from its crate: cargo install, lockwright run", || {
            installed(crates)
        })?;
    }
    Ok(())
}

/// Checks that a program with this library uses our functions.
fn serves(library: &Path) -> Result<()> {
    let said =
        Child::new("true").env("LD_PRELOAD", library).env("LOCKWRIGHT_LOCK", "bogus").run()?;
    ensure!(said.errors().contains(COMPLAINT), "it says nothing: {}", said.describe());
    Ok(())
}

/// Makes a separate workspace in which the packed crates replace the registry's.
fn unpack(crates: &[PathBuf], folder: &Path) -> Result<()> {
    empty(folder)?;
    let ours = fs::read_to_string(super::source().join("Cargo.toml"))?;
    let ours: DocumentMut = ours.parse()?;
    let mut manifest =
        "[workspace]\nresolver = '3'\nmembers = ['*-*']\nexclude = ['cache']\n\n".to_owned();
    // The project's profile, so that dependencies are built only once.
    let mut profile = DocumentMut::new();
    profile["profile"] = ours["profile"].clone();
    manifest += &profile.to_string();
    manifest += "\n[patch.crates-io]\n";
    for path in crates {
        // Use the current time: cargo gives all packed files the same time, and would mistake them for those of the
        // last run.
        tool("tar", [Path::new("-xzmf"), path, Path::new("-C"), folder])?;
        let (name, directory) = names(path)?;
        let _ = writeln!(manifest, "{name} = {{ path = '{directory}' }}");
    }
    stage::write(&folder.join("Cargo.toml"), &manifest)?;
    for (name, main) in [("sync", &*quick_start()?), ("library", LIBRARY)] {
        let program = folder.join(format!("uses-{name}"));
        stage::write(&program.join("src/main.rs"), main)?;
        let manifest = format!(
            "[package]\nname = 'uses-{name}'\nversion = '1.0.0'\nedition = '2024'\n\n\
             [dependencies]\nlockwright-{name} = '{VERSION}'\n"
        );
        stage::write(&program.join("Cargo.toml"), &manifest)?;
    }
    stage::copy(&super::source().join("Cargo.lock"), &folder.join("Cargo.lock"), 0o644)
}

/// A crate's name, and the name of its folder.
fn names(path: &Path) -> Result<(String, String)> {
    let directory = path.file_stem().and_then(|stem| stem.to_str()).context("a crate's name")?;
    let name = directory.strip_suffix(&format!("-{VERSION}")).context("a crate of this version")?;
    Ok((name.to_owned(), directory.to_owned()))
}

/// Installs the command as a user with only cargo would: in an empty folder, without our profile. Then runs a program
/// with it, using the library that it wrote to an empty cache.
fn installed(crates: &[PathBuf]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let mut config = "[patch.crates-io]\n".to_owned();
    for path in crates {
        tool("tar", [Path::new("-xzf"), path, Path::new("-C"), folder])?;
        let (name, directory) = names(path)?;
        let _ = writeln!(config, "{name} = {{ path = '{}' }}", folder.join(directory).display());
    }
    stage::write(&folder.join(".cargo/config.toml"), &config)?;
    let cli = format!("lockwright-cli-{VERSION}");
    run(cargo()
        .args(["install", "--quiet", "--offline", "--path", &cli, "--root", "installed"])
        .dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .limit(3600))?;
    let cache = folder.join("cache");
    let said = run(Child::new(folder.join("installed/bin/lockwright"))
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("XDG_CACHE_HOME", &cache))?;
    let library = PathBuf::from(said.trim());
    ensure!(library.starts_with(cache.canonicalize()?), "it preloads '{}'", library.display());
    serves(&library)
}
