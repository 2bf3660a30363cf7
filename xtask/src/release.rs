//! `cargo xtask release X.Y.Z`: version, changelog, commit and tag in one step. It pushes nothing.

use crate::root::root as source;
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End};
use std::env;
use std::fs;
use std::path::Path;
use toml_edit::{DocumentMut, Item, Value};

/// Flags.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask release 0.2.0 --dry-run
  cargo xtask release 0.2.0 && git push --follow-tags")]
pub(crate) struct Args {
    /// The new version, X.Y.Z, newer than the last.
    #[arg(value_name = "VERSION")]
    version: String,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
}

/// Files that contain versioned package names.
pub(crate) const NAMING: [&str; 3] =
    ["docs/install.md", "contrib/docker/Dockerfile", "contrib/kubernetes.yaml"];
/// The prefixes of versions in these files.
const NAMES: [&str; 3] = ["lockwright_", "lockwright-", "lockwright:"];

pub(crate) fn main(args: Args) -> Result<()> {
    let said = release(&source(), &args.version, args.dry_run)?;
    print!("{said}");
    Ok(())
}

/// Makes the release in the repository `root`. Returns a description of the changes.
fn release(root: &Path, version: &str, is_dry: bool) -> Result<String> {
    let new = numbers(version).with_context(|| {
        format!("version '{version}' is not X.Y.Z\nhint: cargo xtask release 0.2.0")
    })?;
    let changes = git(root, &["status", "--porcelain", "--untracked-files=no"])?;
    ensure!(
        changes.is_empty(),
        "the source has changes that are not committed\nhint: git commit, or git stash"
    );
    let tag = format!("v{version}");
    ensure!(
        git(root, &["tag", "--list", &tag])?.is_empty(),
        "the tag '{tag}' exists\nhint: git tag --list"
    );
    let old = {
        let manifest: DocumentMut = read(root, "Cargo.toml")?.parse()?;
        let old = manifest["workspace"]["package"]["version"].as_str();
        old.context("Cargo.toml: no version in [workspace.package]")?.to_owned()
    };
    ensure!(
        numbers(&old).is_some_and(|old| old < new),
        "version {version} is not newer than {old}\nhint: cargo xtask release --help"
    );

    let date = Child::new("date").args(["--utc", "+%F"]).run()?.text();
    let mut files = vec![
        ("Cargo.toml", manifest(&read(root, "Cargo.toml")?, version)?),
        ("CHANGELOG.md", changelog(&read(root, "CHANGELOG.md")?, version, date.trim())?),
    ];
    for file in NAMING {
        let mut text = read(root, file)?;
        for name in NAMES {
            text = text.replace(&format!("{name}{old}"), &format!("{name}{version}"));
        }
        files.push((file, text));
    }
    files.retain(|(file, text)| read(root, file).is_ok_and(|known| known != *text));
    let mut names: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
    names.push("Cargo.lock");
    let list = names.join(", ");
    if is_dry {
        return Ok(format!(
            "{old} would become {version} in {list};\nthen a commit, and the tag {tag}\n"
        ));
    }
    for (file, text) in &files {
        fs::write(root.join(file), text).with_context(|| format!("cannot write '{file}'"))?;
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let update = Child::new(cargo).args(["update", "--workspace", "--offline", "--quiet"]);
    let outcome = update.dir(root).run()?;
    if outcome.end != End::Code(0) {
        git(root, &[&["checkout", "--quiet", "--"], names.as_slice()].concat())?;
        bail!("cargo update: {}", outcome.describe());
    }
    let message = format!("release {version}");
    let commit = [&["commit", "--quiet", "--message", &message, "--"], names.as_slice()].concat();
    if let Err(error) = git(root, &commit) {
        git(root, &[&["checkout", "--quiet", "HEAD", "--"], names.as_slice()].concat())?;
        return Err(error);
    }
    git(root, &["tag", "--annotate", &tag, "--message", &format!("lockwright {version}")])
        .with_context(|| format!("{version} is committed, but has no tag\nhint: git tag {tag}"))?;
    Ok(format!(
        "{old} is {version} in {list};\ncommitted, with the tag {tag}; not pushed\nhint: git push --follow-tags\n"
    ))
}

/// X.Y.Z.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let numbers: Vec<u32> = version
        .split('.')
        .map(|part| part.parse().ok().filter(|number: &u32| number.to_string() == part))
        .collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// Updates the workspace's version, and the versions of members that depend on each other by path and version. These
/// work only with exactly the same version.
fn manifest(text: &str, version: &str) -> Result<String> {
    let mut manifest: DocumentMut = text.parse().context("Cargo.toml")?;
    put(&mut manifest["workspace"]["package"]["version"], version);
    let dependencies = manifest["workspace"]["dependencies"]
        .as_table_like_mut()
        .context("Cargo.toml: no [workspace.dependencies]")?;
    for (_, dependency) in dependencies.iter_mut() {
        let Some(dependency) = dependency.as_table_like_mut() else { continue };
        if dependency.contains_key("path")
            && let Some(old) = dependency.get_mut("version")
        {
            put(old, &format!("={version}"));
        }
    }
    Ok(manifest.to_string())
}

/// Replaces a text, and keeps the formatting around it.
fn put(item: &mut Item, text: &str) {
    let around = item.as_value().map(|old| old.decor().clone()).unwrap_or_default();
    *item = Item::Value(Value::from(text).decorated(
        around.prefix().cloned().unwrap_or_default(),
        around.suffix().cloned().unwrap_or_default(),
    ));
}

/// Turns the unreleased changes into this version.
fn changelog(text: &str, version: &str, date: &str) -> Result<String> {
    const UNRELEASED: &str = "## Unreleased\n";
    let (before, after) = text
        .split_once(UNRELEASED)
        .context("CHANGELOG.md: no line '## Unreleased'\nhint: put it above the newest version")?;
    let own = after.split("\n## ").next().unwrap_or_default();
    ensure!(
        own.lines().any(|line| line.starts_with("- ")),
        "CHANGELOG.md: nothing is unreleased\nhint: list what is new there, one line each: - ..."
    );
    Ok(format!("{before}{UNRELEASED}\n## {version} - {date}\n{after}"))
}

fn read(root: &Path, file: &str) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read '{file}'"))
}

fn git(root: &Path, words: &[&str]) -> Result<String> {
    let outcome = Child::new("git").args(words).dir(root).run()?;
    ensure!(outcome.end == End::Code(0), "git {}: {}", words.join(" "), outcome.describe());
    Ok(outcome.text().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace]\nmembers = ['a', 'b']\nresolver = '3'\n\n[workspace.package]\nversion = \"0.1.0\" # ours\n\n\
        [workspace.dependencies]\na = { path = \"a\", version = \"=0.1.0\" }\n";

    /// A repository with two crates.
    fn repository() -> Result<tempfile::TempDir> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        let write = |file: &str, text: &str| -> Result<()> {
            let path = root.join(file);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            Ok(fs::write(path, text)?)
        };
        write("Cargo.toml", MANIFEST)?;
        for (name, dependencies) in [("a", ""), ("b", "a.workspace = true\n")] {
            let head = "version.workspace = true\nedition = '2024'\n";
            write(
                &format!("{name}/Cargo.toml"),
                &format!("[package]\nname = '{name}'\n{head}\n[dependencies]\n{dependencies}"),
            )?;
            write(&format!("{name}/src/lib.rs"), "")?;
        }
        write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Added\n- this\n")?;
        for file in NAMING {
            write(file, "lockwright_0.1.0-1_amd64.deb and other 0.1.0\n")?;
        }
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let lock = Child::new(cargo).args(["generate-lockfile", "--offline"]).dir(root).run()?;
        ensure!(lock.end == End::Code(0), "{}", lock.describe());
        git(root, &["init", "--quiet", "--initial-branch", "main"])?;
        git(root, &["config", "user.name", "somebody"])?;
        git(root, &["config", "user.email", "somebody@localhost"])?;
        git(root, &["add", "--all"])?;
        git(root, &["commit", "--quiet", "--message", "start"])?;
        Ok(folder)
    }

    #[test]
    fn a_release_is_a_version_a_commit_and_a_tag() -> Result<()> {
        let folder = repository()?;
        let root = folder.path();
        let start = git(root, &["rev-parse", "HEAD"])?;
        let said = release(root, "0.2.0", true)?;
        assert!(said.contains("would become 0.2.0 in Cargo.toml, CHANGELOG.md, "), "{said}");
        assert_eq!(git(root, &["status", "--porcelain"])?, "");
        assert_eq!(git(root, &["rev-parse", "HEAD"])?, start);

        release(root, "0.2.0", false)?;
        assert_eq!(git(root, &["status", "--porcelain"])?, "");
        assert_eq!(
            git(root, &["rev-parse", "v0.2.0^{commit}"])?,
            git(root, &["rev-parse", "HEAD"])?
        );
        assert_eq!(git(root, &["rev-parse", "HEAD~1"])?, start);
        assert_eq!(read(root, "Cargo.toml")?, MANIFEST.replace("0.1.0", "0.2.0"));
        let lock = read(root, "Cargo.lock")?;
        assert_eq!((lock.matches("0.2.0").count(), lock.matches("0.1.0").count()), (2, 0));
        let log = read(root, "CHANGELOG.md")?;
        let head = log.split(" - ").next().unwrap_or_default();
        assert_eq!(head, "# Changelog\n\n## Unreleased\n\n## 0.2.0");
        assert!(log.ends_with("\n\n### Added\n- this\n"), "{log}");
        for file in NAMING {
            assert_eq!(read(root, file)?, "lockwright_0.2.0-1_amd64.deb and other 0.1.0\n");
        }

        let nothing = release(root, "0.3.0", false).unwrap_err().to_string();
        assert!(nothing.starts_with("CHANGELOG.md: nothing is unreleased"), "{nothing}");
        Ok(())
    }

    #[test]
    fn what_cannot_be_released_changes_nothing() -> Result<()> {
        let folder = repository()?;
        let root = folder.path();
        git(root, &["tag", "v0.4.0"])?;
        for (version, told) in [
            ("0.2", "version '0.2' is not X.Y.Z"),
            ("0.02.0", "version '0.02.0' is not X.Y.Z"),
            ("0.1.0", "version 0.1.0 is not newer than 0.1.0"),
            ("0.0.9", "version 0.0.9 is not newer than 0.1.0"),
            ("0.4.0", "the tag 'v0.4.0' exists"),
        ] {
            let error = release(root, version, false).unwrap_err().to_string();
            assert!(error.starts_with(told), "{version}: {error}");
        }
        fs::write(root.join("CHANGELOG.md"), "changed")?;
        let error = release(root, "0.2.0", true).unwrap_err().to_string();
        assert!(error.starts_with("the source has changes"), "{error}");
        assert_eq!(read(root, "CHANGELOG.md")?, "changed");
        assert_eq!(git(root, &["rev-list", "--count", "HEAD"])?, "1");
        Ok(())
    }
}
