//! The Debian package.

use super::stage::{self, DOCS, LICENCES};
use super::{VERSION, empty, run, tool};
use anyhow::{Context, Result};
use lockwright_tests::Child;
use std::env;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The package's maintainer, unless `DEBFULLNAME` and `DEBEMAIL` are set, as for Debian's own tools.
const MAINTAINER: (&str, &str) = ("lockwright developers", "lockwright@packages.invalid");

/// Where zsh looks for completions from packages.
const ZSH: &str = "share/zsh/vendor-completions";

/// Makes `lockwright_VERSION-1_ARCH.deb` from the tarball's tree.
pub(super) fn package(root: &Path, tarred: &Path, dist: &Path) -> Result<PathBuf> {
    let tree = dist.join("deb");
    empty(&tree)?;
    let usr = tree.join("usr");
    tool("cp", [Path::new("-a"), tarred, &usr])?;
    fs::rename(usr.join(stage::ZSH), usr.join(ZSH))?;
    for file in LICENCES {
        fs::remove_file(usr.join(DOCS).join(file))?;
    }
    let architecture = tool("dpkg", ["--print-architecture"])?.trim().to_owned();
    let maintainer = format!(
        "{} <{}>",
        env::var("DEBFULLNAME").unwrap_or(MAINTAINER.0.to_owned()),
        env::var("DEBEMAIL").unwrap_or(MAINTAINER.1.to_owned())
    );
    let docs = usr.join(DOCS);
    stage::write(&docs.join("copyright"), &copyright(root)?)?;
    stage::copy(&root.join("CHANGELOG.md"), &docs.join("changelog"), 0o644)?;
    stage::write(&docs.join("changelog.Debian"), &changelog(root, &maintainer)?)?;
    stage::compress(&docs.join("changelog"))?;
    stage::compress(&docs.join("changelog.Debian"))?;
    let overrides = root.join("contrib/debian/lintian-overrides");
    stage::copy(&overrides, &usr.join("share/lintian/overrides/lockwright"), 0o644)?;

    let sums = sums(&tree)?;
    let control = fs::read_to_string(root.join("contrib/debian/control"))?
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@MAINTAINER@", &maintainer)
        .replace("@DEPENDS@", &depends(dist, &usr)?)
        .replace("@SIZE@", &kilobytes(&tree)?.to_string());
    stage::write(&tree.join("DEBIAN/control"), &control)?;
    stage::write(&tree.join("DEBIAN/md5sums"), &sums)?;
    folders_are_open(&tree)?;
    let package = dist.join(format!("lockwright_{VERSION}-1_{architecture}.deb"));
    run(Child::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([&tree, &package])
        .env("SOURCE_DATE_EPOCH", stage::committed(root)?))?;
    Ok(package)
}

/// The libraries that the command and the library need, found by Debian's own tool. It expects to run in a source
/// package.
fn depends(dist: &Path, usr: &Path) -> Result<String> {
    let folder = dist.join("shlibdeps");
    empty(&folder)?;
    stage::write(
        &folder.join("debian/control"),
        "Source: lockwright\n\nPackage: lockwright\nArchitecture: any\n",
    )?;
    let said = run(Child::new("dpkg-shlibdeps")
        .args(["-O", "--ignore-missing-info"])
        .args([usr.join("bin/lockwright"), usr.join("lib/lockwright/liblockwright.so")])
        .dir(&folder))
    .context("dpkg-shlibdeps")?;
    let depends = said.trim().strip_prefix("shlibs:Depends=").context("what it depends on")?;
    Ok(depends.to_owned())
}

/// The copyright file, with the text of the one licence that Debian doesn't ship.
fn copyright(root: &Path) -> Result<String> {
    let mut text = fs::read_to_string(root.join("contrib/debian/copyright"))?;
    for line in fs::read_to_string(root.join("LICENSE-MIT"))?.lines().skip(4) {
        let _ = writeln!(text, " {}", if line.trim().is_empty() { "." } else { line.trim_end() });
    }
    Ok(text)
}

/// Debian's changelog, which covers only the packaging and has no history.
fn changelog(root: &Path, maintainer: &str) -> Result<String> {
    let date = format!("--date=@{}", stage::committed(root)?);
    let date = tool("date", ["--utc", "--rfc-email", &date])?;
    Ok(format!(
        "lockwright ({VERSION}-1) stable; urgency=medium\n\n  * Release {VERSION}: see changelog.gz.\n\n \
         -- {maintainer}  {}\n",
        date.trim()
    ))
}

/// The files of a tree, as relative paths.
fn files(tree: &Path) -> Result<Vec<String>> {
    let list = run(Child::new("find").args([".", "-type", "f", "-printf", "%P\\n"]).dir(tree))?;
    let mut files: Vec<String> = list.lines().map(str::to_owned).collect();
    files.sort();
    Ok(files)
}

fn sums(tree: &Path) -> Result<String> {
    run(Child::new("md5sum").args(files(tree)?).dir(tree))
}

fn kilobytes(tree: &Path) -> Result<u64> {
    let sizes = files(tree)?.into_iter().map(|file| fs::metadata(tree.join(file)));
    sizes.map(|file| Ok(file?.len().div_ceil(1024))).sum()
}

/// Makes all folders accessible, whatever the umask is.
fn folders_are_open(tree: &Path) -> Result<()> {
    for folder in
        tool("find", [tree.to_str().context("a path that is text")?, "-type", "d"])?.lines()
    {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
