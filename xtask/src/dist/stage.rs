//! The file tree of both packages, below the prefix.

use super::{VERSION, empty, run, tool};
use anyhow::{Context, Result, ensure};
use lockwright_observer::multilib;
use lockwright_tests::Child;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files that are copied unchanged from the repository, with their target folders.
const FILES: &[(&str, &str)] = &[
    ("include/lockwright.h", "include"),
    ("include/lockwright.hpp", "include"),
    ("include/lockwright_sync.h", "include"),
    ("README.md", "share/doc/lockwright"),
    ("SECURITY.md", "share/doc/lockwright"),
    ("ARCHITECTURE.md", "share/doc/lockwright"),
    ("contrib/grafana.json", "share/doc/lockwright/examples"),
    ("contrib/docker/Dockerfile", "share/doc/lockwright/examples"),
    ("contrib/kubernetes.yaml", "share/doc/lockwright/examples"),
    ("contrib/systemd/lockwright.conf", "share/doc/lockwright/examples"),
    ("contrib/prometheus-alerts.yaml", "share/doc/lockwright/examples"),
    ("contrib/dask/lockwright_dask.py", "share/doc/lockwright/examples"),
    ("contrib/dask/requirements.txt", "share/doc/lockwright/examples"),
    ("examples/kv.c", "share/doc/lockwright/examples"),
    ("examples/bank.c", "share/doc/lockwright/examples"),
    ("examples/cache.cpp", "share/doc/lockwright/examples"),
    ("examples/orders.cpp", "share/doc/lockwright/examples"),
];
pub(super) const DOCS: &str = "share/doc/lockwright";
/// Files for which Debian uses other names.
pub(super) const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"];
/// Where zsh looks for completions.
pub(super) const ZSH: &str = "share/zsh/site-functions";

/// Fills the empty folder `to` with the tree.
fn lay_out(root: &Path, release: &Path, to: &Path) -> Result<()> {
    let command = to.join("bin/lockwright");
    let library = to.join("lib/lockwright/liblockwright.so");
    let archive = to.join("lib/liblockwright_static.a");
    copy(&release.join("lockwright"), &command, 0o755)?;
    copy(&release.join("liblockwright.so"), &library, 0o644)?;
    let delegate = to.join("lib/lockwright/liblockwright_delegate.so");
    copy(&release.join("liblockwright_delegate.so"), &delegate, 0o644)?;
    copy(&release.join("liblockwright_static.a"), &archive, 0o644)?;
    for (how, path) in [
        ("--strip-all", &command),
        ("--strip-unneeded", &library),
        ("--strip-unneeded", &delegate),
        ("--strip-debug", &archive),
    ] {
        // Debian's strip removes these two sections, too.
        tool("strip", ["--remove-section=.comment", how, &path.display().to_string()])?;
    }
    if cfg!(target_arch = "x86_64") {
        multilib::make(&library)?;
    }
    for (file, folder) in FILES {
        let name = Path::new(file).file_name().context("a file's name")?;
        copy(&root.join(file), &to.join(folder).join(name), 0o644)?;
    }
    let docs = to.join("share/doc/lockwright/docs");
    for part in ["", "contributing", "decisions"] {
        for entry in fs::read_dir(root.join("docs").join(part))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "md" || end == "svg") {
                let name = path.file_name().context("a file's name")?;
                copy(&path, &docs.join(part).join(name), 0o644)?;
            }
        }
    }
    let pc = fs::read_to_string(root.join("contrib/lockwright.pc"))?;
    write(&to.join("lib/pkgconfig/lockwright.pc"), &pc.replace("@VERSION@", VERSION))?;

    let man = to.join("share/man/man1");
    let ours = release.join("lockwright");
    let ours = ours.to_str().context("a path that is text")?;
    tool(ours, ["--man", "--output", man.to_str().context("a path that is text")?])?;
    for folder in [man.clone(), man.with_file_name("man7")] {
        for entry in fs::read_dir(&folder)? {
            compress(&entry?.path())?;
        }
    }
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/lockwright"),
        ("fish", "share/fish/vendor_completions.d/lockwright.fish"),
        ("zsh", &format!("{ZSH}/_lockwright")),
    ] {
        write(&to.join(file), &tool(ours, ["--completions", shell])?)?;
    }
    Ok(())
}

/// Makes `lockwright-VERSION-ARCH-linux.tar.gz` with the tree and the licences, and also returns the tree's path. The
/// same source gives the same bytes.
pub(super) fn tarball(root: &Path, release: &Path, dist: &Path) -> Result<(PathBuf, PathBuf)> {
    let name = format!("lockwright-{VERSION}-{}-linux", std::env::consts::ARCH);
    let folder = dist.join("tarball");
    empty(&folder)?;
    let top = folder.join(&name);
    lay_out(root, release, &top)?;
    let licences = LICENCES.map(|file| (file, top.join(DOCS).join(file)));
    for (file, to) in &licences {
        copy(&root.join(file), to, 0o644)?;
    }
    let tarball = dist.join(format!("{name}.tar.gz"));
    let date = committed(root)?;
    run(Child::new("tar")
        .args(["--create", "--auto-compress", "--sort=name", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "--mode=go=rX,u+rw", &format!("--mtime=@{date}")])
        .args([Path::new("--directory"), &folder, Path::new("--file"), &tarball])
        .args([&name])
        // Keeps gzip from storing the time.
        .env("GZIP", "-9n"))?;
    Ok((tarball, top))
}

/// Checks that the command runs wherever the tarball is unpacked, and finds its library there.
pub(super) fn check(tarball: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    tool("tar", [Path::new("-xzf"), tarball, Path::new("-C"), folder.path()])?;
    let top = fs::read_dir(folder.path())?.next().context("a folder in it")??.path();
    let said = run(Child::new(top.join("bin/lockwright"))
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("HOME", folder.path()))?;
    let wanted = top.canonicalize()?.join("lib/lockwright/liblockwright.so");
    let wanted = multilib::path(&wanted).unwrap_or(wanted);
    ensure!(said.trim() == wanted.display().to_string(), "it preloads '{}'", said.trim());
    ensure!(!folder.path().join(".cache").exists(), "it wrote another library to the cache");
    Ok(())
}

/// The time of the source's last commit, in seconds since 1970. All files in packages get this time.
pub(super) fn committed(root: &Path) -> Result<String> {
    let git = Child::new("git").args(["log", "-1", "--format=%ct"]).dir(root);
    Ok(run(git).context("git log")?.trim().to_owned())
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read '{}'", from.display()))?;
    put(to, &bytes, mode)
}

pub(super) fn write(to: &Path, text: &str) -> Result<()> {
    put(to, text.as_bytes(), 0o644)
}

fn put(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let folder = to.parent().context("it lies in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(to, bytes).with_context(|| format!("cannot write '{}'", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Compresses `path` to `path.gz`.
pub(super) fn compress(path: &Path) -> Result<()> {
    tool("gzip", ["-9nf", path.to_str().context("a path that is text")?]).map(drop)
}
