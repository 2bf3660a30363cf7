//! Tests the Dask driver of shards (contrib/dask) on a local cluster, two of whose workers are killed. pip installs
//! Dask into a separate folder.

use crate::answer::No;
use crate::root::root;
use crate::test::install_packages;
use anyhow::{Context, Result, bail};
use lockwright_tests::{Child, End, Outcome, target_dir};
use std::fs;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_: Args) -> Result<()> {
    install_packages(&["python3", "python3-venv"])?;
    let (root, target) = (root(), target_dir()?);
    let venv = target.join("dask");
    let python = venv.join("bin/python");
    let requirements = root.join("contrib/dask/requirements.txt");
    let wanted = fs::read_to_string(&requirements).context("contrib/dask/requirements.txt")?;
    // The installation stays from one run to the next.
    let installed = venv.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|known| known == wanted) {
        eprintln!("dask: as it was installed in '{}'", venv.display());
    } else {
        good(
            "python3 -m venv",
            Child::new("python3").args(["-m", "venv", "--clear"]).args([&venv]),
        )?;
        let pip = Child::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]);
        good("pip install", pip.args([&requirements]).limit(300))?;
        fs::write(&installed, wanted)?;
    }
    // Use the build of the test command.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = Child::new(cargo).args(["build", "--quiet", "--release"]).dir(&root).limit(900);
    good("cargo build", build.env("CARGO_TARGET_DIR", &target))?;
    let test = Child::new(&python)
        .args(["-m", "unittest", "--verbose", "test_lockwright_dask"])
        .env("LOCKWRIGHT", target.join("release/lockwright"))
        .dir(&root.join("contrib/dask"))
        .limit(300)
        .run()?;
    print!("{}", test.errors());
    if test.end != End::Code(0) {
        return Err(No(format!("the driver on Dask: {}", test.describe())).into());
    }
    Ok(())
}

fn good(what: &str, child: Child) -> Result<Outcome> {
    let outcome = child.run().with_context(|| format!("cannot run {what}"))?;
    if outcome.end != End::Code(0) {
        bail!("{what}: {}", outcome.describe());
    }
    Ok(outcome)
}
