//! Runs `cargo deny` on everything that the project is built from, with the rules of `deny.toml`: licences, versions,
//! sources, and advisories if their database is available.
//!
//! Uses an installed `cargo-deny`, or else builds one into `target/tools` ([`crate::tool`]).

use crate::answer::No;
use crate::tool::Tool;
use anyhow::{Result, bail, ensure};
use lockwright_tests::{Child, End, Outcome, source_dir};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The tool, and the version to build if none is installed.
const TOOL: Tool = Tool { name: "cargo-deny", version: "0.20.2", features: None };

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_: Args) -> Result<()> {
    let deny = Deny { tool: TOOL.find()?, config: source_dir().join("../deny.toml") };
    deny.refuses_what_is_planted()?;
    let manifest = source_dir().join("../Cargo.toml");
    deny.must_pass(&manifest, &["licenses", "bans", "sources"])?;
    println!("licences, versions and sources conform to deny.toml");
    match database() {
        Some(database) => {
            deny.must_pass(&manifest, &["--disable-fetch", "advisories"])?;
            println!("advisories: none of those in '{}'", database.display());
        }
        None => println!(
            "advisories: not checked, because there is no database\nhint: '{}' fetch db",
            deny.tool.display()
        ),
    }
    Ok(())
}

struct Deny {
    tool: PathBuf,
    config: PathBuf,
}

impl Deny {
    fn check(&self, manifest: &Path, what: &[&str]) -> Result<Outcome> {
        Child::new(&self.tool)
            .args(["--color", "never", "--manifest-path"])
            .args([manifest])
            .args(["--config"])
            .args([&self.config])
            .args(["check", "--hide-inclusion-graph"])
            .args(what)
            .limit(300)
            .run()
    }

    fn must_pass(&self, manifest: &Path, what: &[&str]) -> Result<()> {
        let outcome = self.check(manifest, what)?;
        if outcome.end == End::Code(0) {
            return Ok(());
        }
        eprint!("{}", outcome.errors());
        bail!(No("cargo deny refuses something\nhint: cargo tree --invert CRATE, deny.toml".into()))
    }

    /// A check that never fails would pass as well, so make sure that it refuses these.
    fn refuses_what_is_planted(&self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let planted = |name: &str, license: &str, dependencies: &str| -> Result<PathBuf> {
            let manifest = folder.path().join(name).join("Cargo.toml");
            fs::create_dir_all(folder.path().join(name).join("src"))?;
            fs::write(folder.path().join(name).join("src/lib.rs"), "")?;
            let text = format!(
                "[package]\nname = '{name}'\nversion = '1.0.0'\nlicense = '{license}'\n\
                 publish = false\n[dependencies]\n{dependencies}\n[workspace]\n"
            );
            fs::write(&manifest, text)?;
            Ok(manifest)
        };
        let fine = planted("fine", "MIT OR GPL-3.0-only", "")?;
        let licence = planted("licence", "GPL-3.0-only", "")?;
        let inherited = planted("inherited", "MIT", "licence = { path = '../licence' }")?;
        // It is fine if the planted crates don't use all licences that deny.toml allows.
        let check = |manifest: &Path| {
            self.check(manifest, &["--allow", "license-not-encountered", "licenses"])
        };
        let outcome = check(&fine)?;
        ensure!(outcome.end == End::Code(0), "cargo deny refuses MIT: {}", outcome.describe());
        for manifest in [licence, inherited] {
            let outcome = check(&manifest)?;
            ensure!(
                outcome.end != End::Code(0) && outcome.errors().contains("error[rejected]"),
                "cargo deny does not refuse GPL-3.0-only: {}",
                outcome.describe()
            );
        }
        Ok(())
    }
}

/// The folder in which `cargo-deny` keeps its advisory databases, if it exists.
fn database() -> Option<PathBuf> {
    let cargo = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))?;
    let folder = cargo.join("advisory-dbs");
    let entries = fs::read_dir(&folder).ok()?;
    (entries.count() > 0).then_some(folder)
}
