//! A stock kernel from Debian's packages, unpacked and not installed, and our module for it.

use crate::test::install_packages;
use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use lockwright_policy::HEADER;
use lockwright_tests::{Child, End, source_dir};
use std::fs;
use std::path::{Path, PathBuf};

/// An unpacked kernel.
pub(super) struct Kernel {
    /// Such as `6.1.0-56-cloud-amd64`.
    version: String,
    /// Where it is unpacked.
    folder: PathBuf,
}

/// The module's name.
pub(super) const MODULE: &str = "lockwright_livepatch";

/// Fetches and unpacks a kernel with its headers below `folder`, unless it is there.
pub(super) fn fetch(package: &str, folder: &Path, bar: &ProgressBar) -> Result<Kernel> {
    bar.set_message(format!("asking apt about {package}"));
    // The package of a series depends on that of its newest version.
    let image = needed(package)?.into_iter().find(|name| name.starts_with("linux-image-"));
    let image = image.unwrap_or_else(|| package.to_owned());
    let version = image.strip_prefix("linux-image-").with_context(|| {
        format!("'{package}' isn't a kernel\nhint: apt-cache search ^linux-image")
    })?;
    let headers = format!("linux-headers-{version}");
    let needed = needed(&headers)?;
    let compiler: Vec<&str> = needed.iter().filter_map(|name| compiler(name)).collect();
    install_packages(&compiler)?;
    let kernel = Kernel { version: version.to_owned(), folder: folder.join(version) };
    let root = kernel.root();
    if !root.exists() {
        let parts = needed
            .iter()
            .filter(|name| name.ends_with("-common") || name.starts_with("linux-kbuild-"));
        let packages: Vec<&str> = [image.as_str(), headers.as_str()]
            .into_iter()
            .chain(parts.map(String::as_str))
            .collect();
        let unpacked = kernel.folder.join("unpacking");
        // What an interrupted run has left.
        let _ = fs::remove_dir_all(&unpacked);
        fs::create_dir_all(&unpacked)?;
        bar.set_message(format!("fetching {}", packages.join(" ")));
        run("apt-get", |apt| {
            apt.dir(&unpacked).args(["-qq", "download"]).args(&packages).limit(900)
        })?;
        for file in fs::read_dir(&unpacked)? {
            let file = file?.path();
            bar.set_message(format!(
                "unpacking {}",
                file.file_name().unwrap_or_default().display()
            ));
            run("dpkg-deb", |dpkg| {
                dpkg.args(["-x".as_ref(), file.as_os_str(), unpacked.join("root").as_os_str()])
            })?;
            fs::remove_file(&file)?;
        }
        // The headers' makefile names the place where they would be installed.
        let makefile = unpacked.join("root/usr/src").join(&headers).join("Makefile");
        let text = fs::read_to_string(&makefile)?;
        let usr_src = format!("{}/usr/src/", root.display());
        fs::write(&makefile, text.replace("/usr/src/", &usr_src))?;
        fs::rename(unpacked.join("root"), &root)?;
    }
    kernel.has_livepatch()?;
    Ok(kernel)
}

/// The compiler that a dependency of the headers stands for.
fn compiler(package: &str) -> Option<&str> {
    let gcc = package
        .strip_prefix("linux-compiler-")
        .and_then(|rest| rest.strip_suffix("-x86"))
        .unwrap_or(package);
    let number = gcc.strip_prefix("gcc-")?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some(gcc)
}

/// What a package depends on.
fn needed(package: &str) -> Result<Vec<String>> {
    let outcome = Child::new("apt-cache").args(["depends", package]).run()?;
    ensure!(
        outcome.end == End::Code(0),
        "apt knows no package '{package}'\nhint: sudo apt-get update; apt-cache search ^linux-image"
    );
    let lines = outcome.text();
    let depends = lines
        .lines()
        .filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "));
    Ok(depends.map(str::to_owned).collect())
}

impl Kernel {
    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Its image.
    pub(super) fn image(&self) -> PathBuf {
        self.root().join("boot").join(format!("vmlinuz-{}", self.version))
    }

    fn has_livepatch(&self) -> Result<()> {
        let config =
            fs::read_to_string(self.root().join("boot").join(format!("config-{}", self.version)))?;
        if !config.lines().any(|line| line == "CONFIG_LIVEPATCH=y") {
            bail!(
                "Linux {} has no live patches (CONFIG_LIVEPATCH)\nhint: --kernel linux-image-cloud-amd64",
                self.version
            );
        }
        Ok(())
    }

    /// Builds our module for it.
    pub(super) fn module(&self, bar: &ProgressBar) -> Result<PathBuf> {
        bar.set_message(format!("building {MODULE} for Linux {}", self.version));
        let build = self.folder.join("module");
        let source = source_dir().join("../crates/kernel/livepatch");
        fs::create_dir_all(&build)?;
        for name in ["Kbuild", &format!("{MODULE}.c")] {
            keep(&build.join(name), &fs::read(source.join(name))?)?;
        }
        keep(&build.join("lockwright_policy.h"), HEADER.as_bytes())?;
        let headers = self.root().join("usr/src").join(format!("linux-headers-{}", self.version));
        run("make", |make| {
            make.args(["-C".as_ref(), headers.as_os_str()])
                .args([format!("M={}", build.display())])
                // Without types for programs that look into the module: they would need pahole.
                .args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
        })?;
        Ok(build.join(format!("{MODULE}.ko")))
    }
}

/// Writes a file unless it is like that already: make goes by its time.
fn keep(path: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|known| known == contents) {
        return Ok(());
    }
    fs::write(path, contents).with_context(|| format!("cannot write '{}'", path.display()))
}

/// Runs a tool to its end.
pub(super) fn run(name: &str, configure: impl FnOnce(Child) -> Child) -> Result<()> {
    let outcome = configure(Child::new(name)).run()?;
    ensure!(outcome.end == End::Code(0), "{name}: {}", outcome.describe());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_the_headers() {
        assert_eq!(compiler("gcc-12"), Some("gcc-12"));
        assert_eq!(compiler("linux-compiler-gcc-12-x86"), Some("gcc-12"));
        assert_eq!(compiler("linux-kbuild-6.1"), None);
    }
}
