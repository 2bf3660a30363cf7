//! A minimal Debian root in which the package is installed, used and removed.

use super::{VERSION, empty, recipes, run, stage, timed, tool};
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End, Outcome, compile};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A folder with a Debian system in which we can run programs.
pub(super) struct Root {
    pub(super) path: PathBuf,
}

/// Installs the package, uses it, and removes it again. Nothing may remain.
pub(super) fn check(package: &Path, dist: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a bare root needs the rights of root\nhint: sudo cargo xtask dist --check");
    }
    let root = timed("a bare Debian root", || Root::new(dist.join("root")))?;
    let before = root.files()?;
    timed("the package: installed", || {
        stage::copy(package, &root.path.join("root/lockwright.deb"), 0o644)?;
        root.run("dpkg --install /root/lockwright.deb && rm /root/lockwright.deb").map(drop)
    })?;
    timed("the package: used", || used(&root, dist))?;
    recipes::check(&root, package, dist)?;
    timed("the package: removed", || removed(&root, &before))
}

fn used(root: &Root, dist: &Path) -> Result<()> {
    root.prints("lockwright --version", &format!("lockwright {VERSION}\n"))?;
    let contend = contend(dist)?;
    stage::copy(&contend, &root.path.join("root/contend"), 0o755)?;
    root.prints("lockwright run -- /root/contend", "12000\n")?;
    root.prints(
        "lockwright run -- sh -c 'echo $LD_PRELOAD'",
        "/usr/lib/lockwright/liblockwright.so\n",
    )?;
    // Our library counted its locks, so they are ours.
    let profile = root.run("lockwright profile --format json -- /root/contend 2>&1 >/dev/null")?;
    let profile: serde_json::Value = serde_json::from_str(&profile).context(profile.clone())?;
    let locks = profile["processes"][0]["locks"].as_array().context("locks in the profile")?;
    ensure!(locks.iter().any(|lock| lock["name"] == "own_lock"), "no lock of it: {profile}");
    // Each command has a page that `man` finds and shows.
    for page in ["lockwright", "lockwright-run", "lockwright-profile-record"] {
        root.prints(&format!("man -w {page}"), &format!("/usr/share/man/man1/{page}.1.gz\n"))?;
    }
    let page = root.run("man lockwright-run | cat")?;
    ensure!(page.contains("--lock"), "man shows: {page}");
    // bash completes the command's subcommands.
    let offers = root.run(
        "bash -c '. /usr/share/bash-completion/completions/lockwright; COMP_WORDS=(lockwright ex); \
         COMP_CWORD=1; _lockwright lockwright ex lockwright; printf \"%s\\n\" \"${COMPREPLY[@]}\"'",
    )?;
    let offers: BTreeSet<_> = offers.lines().collect();
    ensure!(offers == BTreeSet::from(["explain", "explore"]), "bash offers {offers:?}");
    for file in ["zsh/vendor-completions/_lockwright", "fish/vendor_completions.d/lockwright.fish"]
    {
        root.run(&format!("test -s /usr/share/{file}"))?;
    }
    links(root, dist)
}

/// A program with threads that compete for mutexes.
fn contend(dist: &Path) -> Result<PathBuf> {
    let program = dist.join("contend");
    let source = super::source().join("crates/cli/tests/programs/contend.c");
    compile(&source, &program, &[])?;
    Ok(program)
}

const LINKED: &str = r#"#include <lockwright_sync.h>
#include <stdio.h>

static lw_mutex_t lock = LW_MUTEX_INIT;

int main(void) {
  int locked = lw_mutex_lock(&lock), unlocked = lw_mutex_unlock(&lock);
  return printf("%d %d\n", locked, unlocked) < 0;
}
"#;

/// A C program, built with pkg-config's flags, must run in the root.
fn links(root: &Root, dist: &Path) -> Result<()> {
    let source = dist.join("linked.c");
    stage::write(&source, LINKED)?;
    let flags = run(Child::new("pkg-config")
        .args(["--cflags", "--libs", "lockwright"])
        .env("PKG_CONFIG_LIBDIR", root.path.join("usr/lib/pkgconfig")))?;
    let flags: Vec<&str> = flags.split_whitespace().collect();
    compile(&source, &root.path.join("root/linked"), &flags)?;
    root.prints("/root/linked", "0 0\n")?;
    root.prints("lockwright run -- /root/linked", "0 0\n")
}

fn removed(root: &Root, before: &BTreeSet<String>) -> Result<()> {
    root.run("rm -r /root/contend /root/linked && dpkg --purge lockwright")?;
    let after = root.files()?;
    let left: Vec<_> = after.difference(before).collect();
    let lost: Vec<_> = before.difference(&after).collect();
    ensure!(left.is_empty() && lost.is_empty(), "left: {left:?}; lost: {lost:?}");
    Ok(())
}

/// Files that change without belonging to a package: logs, dpkg's database, `man`'s index.
const OTHERS: [&str; 3] = ["var/log", "var/lib/dpkg/status", "var/cache/man"];

impl Root {
    /// Uses the same mirror as this machine's packages.
    fn new(path: PathBuf) -> Result<Root> {
        empty(&path)?;
        let release = "Codename: bookworm";
        let format = "--format=$(REPO_URI)";
        let mirrors = tool(
            "apt-get",
            ["indextargets", format, "Created-By: Packages", release, "Component: main"],
        )?;
        let mirror = mirrors.lines().next().context(
            "apt knows no mirror of Debian 12\nhint: run it on Debian 12, after apt-get update",
        )?;
        run(Child::new("mmdebstrap")
            .args(["--quiet", "--mode=root", "--variant=essential", "--include=man-db", "bookworm"])
            .args([&path])
            .args([format!("deb {mirror} bookworm main")])
            .limit(600))
        .context("mmdebstrap")?;
        Ok(Root { path })
    }

    /// Runs a shell command in the root as a container would: with separate processes, mounts, and /dev/shm. `before`
    /// runs outside first, and can use `$ROOT`.
    pub(super) fn shell(&self, before: &str, command: &str) -> Result<Outcome> {
        let mounts = format!(
            "set -e; mount --bind \"$ROOT\" \"$ROOT\"; mount -t proc proc \"$ROOT/proc\"; mount -t tmpfs tmpfs \"$ROOT/dev\"; \
             for name in null zero random urandom; do : >\"$ROOT/dev/$name\"; \
             mount --bind /dev/$name \"$ROOT/dev/$name\"; done; \
             ln -s /proc/self/fd \"$ROOT/dev/fd\"; \
             mkdir \"$ROOT/dev/shm\"; mount -t tmpfs tmpfs \"$ROOT/dev/shm\"; {before}\n\
             exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
             chroot \"$ROOT\" sh -c \"$1\""
        );
        Child::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                &mounts,
                "sh",
                command,
            ])
            .env("ROOT", &self.path)
            .limit(120)
            .run()
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(super) fn run(&self, command: &str) -> Result<String> {
        let outcome = self.shell("", command)?;
        ensure!(outcome.end == End::Code(0), "{command}: {}", outcome.describe());
        Ok(outcome.text())
    }

    /// Runs a command that must print exactly this.
    pub(super) fn prints(&self, command: &str, wanted: &str) -> Result<()> {
        let said = self.run(command)?;
        ensure!(said == wanted, "{command}: printed '{said}', not '{wanted}'");
        Ok(())
    }

    /// Every file and folder, with its kind, mode, owner, size and target.
    fn files(&self) -> Result<BTreeSet<String>> {
        let list = run(Child::new("find")
            .args([".", "-xdev", "-type", "d", "-printf", "%P %M %U:%G\\n", "-o"])
            .args(["-printf", "%P %M %U:%G %s %l\\n"])
            .dir(&self.path))?;
        let is_kept = |line: &&str| !OTHERS.iter().any(|other| line.starts_with(other));
        Ok(list.lines().filter(is_kept).map(str::to_owned).collect())
    }
}
