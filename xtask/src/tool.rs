//! Third-party programs that the project's commands need, and that Debian 12 lacks.
//!
//! Uses an installed program if its version is in the right series. Otherwise builds it into `target/tools`, without
//! optimisation, which takes a third of the CPU time: the program only runs for a second.

use anyhow::{Result, ensure};
use lockwright_tests::{Child, End, scratch};
use std::env;
use std::path::{Path, PathBuf};

/// A program on crates.io that has the same name as its crate.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// The version to build if none is installed.
    pub(crate) version: &'static str,
    /// Replaces the default features.
    pub(crate) features: Option<&'static str>,
}

impl Tool {
    /// The installed program, or else our own build.
    ///
    /// # Errors
    /// It isn't installed, and can't be built.
    pub(crate) fn find(&self) -> Result<PathBuf> {
        let installed = PathBuf::from(self.name);
        if self.works(&installed) {
            return Ok(installed);
        }
        let folder = scratch("tools")?;
        let ours = folder.join("bin").join(self.name);
        if !self.works(&ours) {
            self.build(&folder)?;
        }
        Ok(ours)
    }

    fn works(&self, tool: &Path) -> bool {
        let outcome = Child::new(tool).args(["--version"]).run();
        outcome.is_ok_and(|outcome| outcome.end == End::Code(0) && self.is_told_by(&outcome.text()))
    }

    /// Other series have other flags and files.
    fn is_told_by(&self, text: &str) -> bool {
        let (series, _) = self.version.rsplit_once('.').unwrap_or((self.version, ""));
        text.split([' ', 'v', '\n']).any(|word| word.starts_with(&format!("{series}.")))
    }

    fn build(&self, folder: &Path) -> Result<()> {
        let Self { name, version, features } = self;
        eprintln!("building {name} {version}");
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = tempfile::tempdir_in(folder)?;
        let mut child = Child::new(cargo)
            .args(["install", name, "--version", version, "--locked", "--quiet", "--root"])
            .args([folder])
            .env("CARGO_TARGET_DIR", build.path())
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .limit(900);
        if let Some(features) = features {
            child = child.args(["--no-default-features", "--features", features]);
        }
        let outcome = child.run()?;
        ensure!(
            outcome.end == End::Code(0),
            "cannot build {name}: {}\nhint: cargo install {name} --locked",
            outcome.describe()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_series_is_not_used() {
        let tool = Tool { name: "mdbook", version: "0.5.4", features: None };
        for (text, is_used) in [
            ("mdbook v0.5.9\n", true),
            ("mdbook 0.5.4", true),
            ("mdbook v0.4.52\n", false),
            ("", false),
        ] {
            assert_eq!(tool.is_told_by(text), is_used, "{text}");
        }
    }
}
