//! glibc's tests: fetches, builds, and runs them one at a time.

use super::Verdict;
use crate::pool::parallel;
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End, scratch};
use regex_lite::Regex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seconds until a test counts as hung. glibc's own limit is 20 s for most.
const LIMIT: u64 = 60;

/// Tests that leave a daemon behind, or need gdb.
const EXCLUDED: [&str; 3] = ["tst-cancel7", "tst-cancelx7", "tst-pthread-gdb-attach"];

/// Sources that are parts of other tests, need a static glibc, or test 64-bit time on 32-bit machines.
const NOT_ALONE: &str = r"time64|static|mod[a-z0-9]*\.c$|-common\.c$|tst-tls4mod|tst-execstack-";

/// Parts of glibc's test library that need glibc's build.
const NOT_SUPPORT: &str =
    r"time64|tst-|-container|links-dso|test-driver|test-run-command|_main\.c$";

/// Our replacements for glibc's internal headers.
const SHIM: [(&str, &str); 4] = [
    ("compat.h", include_str!("../../../tests/conformance/shim/compat.h")),
    ("pthreadP.h", include_str!("../../../tests/conformance/shim/pthreadP.h")),
    ("shlib-compat.h", include_str!("../../../tests/conformance/shim/shlib-compat.h")),
    ("stackinfo.h", include_str!("../../../tests/conformance/shim/stackinfo.h")),
];

/// Internal headers without dependencies, used unchanged.
const TAKEN: [&str; 6] = [
    "include/libc-pointer-arith.h",
    "include/array_length.h",
    "include/intprops.h",
    "include/scratch_buffer.h",
    "include/libc-diag.h",
    "sysdeps/unix/sysv/linux/tst-skeleton-thread-affinity.c",
];

/// glibc's built tests.
pub(super) struct Suite {
    /// Unpacked sources, replacement headers, objects, programs and logs.
    dir: PathBuf,
}

impl Suite {
    /// Fetches and builds what is missing.
    pub(super) fn prepare() -> Result<Suite> {
        let version = installed_glibc()?;
        let dir = scratch("conformance")?.join(format!("glibc-{version}"));
        fs::create_dir_all(&dir)?;
        let suite = Suite { dir };
        suite.fetch(&version)?;
        suite.build()?;
        Ok(suite)
    }

    fn fetch(&self, version: &str) -> Result<()> {
        let source = self.dir.join("src");
        if source.exists() {
            return Ok(());
        }
        eprintln!("conformance: fetching the sources of glibc {version}");
        let work = self.dir.join("fetch");
        remake(&work)?;
        fs::create_dir_all(work.join("lists/partial"))?;
        let lists = work.join("sources.d");
        fs::create_dir(&lists)?;
        write_source_lists(Path::new("/etc/apt"), &lists)?;
        let apt = |args: &[&str]| -> Result<()> {
            let outcome = Child::new("apt-get")
                .args(["-qq", "-o", "Dir::Etc::sourcelist=/dev/null"])
                .args(["-o", &format!("Dir::Etc::sourceparts={}", lists.display())])
                .args(["-o", &format!("Dir::State::lists={}", work.join("lists").display())])
                // As root, apt would switch to a user who can't write here.
                .args(["-o", "APT::Sandbox::User=root"])
                .args(args)
                .dir(&work)
                .limit(300)
                .run()?;
            ensure!(
                outcome.end == End::Code(0),
                "apt-get {}: {}\nhint: conformance needs a Debian mirror that apt-get can reach",
                args.join(" "),
                outcome.describe()
            );
            Ok(())
        };
        apt(&["update"])?;
        // A mirror has only the newest revision. If an older one is installed, its tests are the same as long as
        // glibc's own version is.
        if apt(&["--download-only", "source", &format!("glibc={version}")]).is_err() {
            apt(&["--download-only", "source", "glibc"])?;
            eprintln!("conformance: the mirror has another revision than {version}; using that");
        }
        let dsc = sole_file(&work, ".dsc")?;
        let upstream = version.split('-').next().unwrap_or(version);
        ensure!(
            dsc.to_string_lossy().contains(&format!("glibc_{upstream}-")),
            "the mirror has '{}', but glibc {version} is installed\nhint: apt-get upgrade",
            dsc.display()
        );
        let outcome = Child::new("dpkg-source")
            .args(["--no-check", "-x"])
            .args([dsc.as_os_str(), OsStr::new("unpacked")])
            .dir(&work)
            .limit(300)
            .run()
            .context("hint: apt-get install dpkg-dev")?;
        ensure!(outcome.end == End::Code(0), "dpkg-source: {}", outcome.describe());
        fs::rename(work.join("unpacked"), &source)?;
        fs::remove_dir_all(&work)?;
        Ok(())
    }

    fn build(&self) -> Result<()> {
        let bin = self.dir.join("bin");
        if bin.join(".built").exists() {
            return Ok(());
        }
        let start = Instant::now();
        self.write_shim()?;
        let cpus = std::thread::available_parallelism()?.get();
        let objects = self.dir.join("obj");
        remake(&objects)?;
        remake(&bin)?;
        fs::create_dir_all(self.dir.join("log"))?;

        let source = self.dir.join("src");
        let mut support = sources(&source.join("support"), "", &Regex::new(NOT_SUPPORT)?)?;
        support.push(source.join("support/support_test_main.c"));
        let built = parallel(cpus, &support, |file| {
            let object = objects.join(file.with_extension("o").file_name().unwrap_or_default());
            let done = self.cc(file, &["-DSUPPORT", "-c"], &[], &object)?;
            Ok(done.then_some(object))
        });
        let built = built.into_iter().collect::<Result<Vec<Option<PathBuf>>>>()?;
        let objects: Vec<PathBuf> = built.into_iter().flatten().collect();
        let library = self.dir.join("libsupport.a");
        let outcome = Child::new("ar").args([OsStr::new("rcs"), library.as_os_str()]);
        let outcome = outcome.args(&objects).run()?;
        ensure!(outcome.end == End::Code(0), "ar: {}", outcome.describe());

        let skip = Regex::new(NOT_ALONE)?;
        let mut tests = sources(&source.join("sysdeps/pthread"), "tst-", &skip)?;
        tests.extend(sources(&source.join("nptl"), "tst-", &skip)?);
        let mut seen = BTreeSet::new();
        tests.retain(|file| seen.insert(file.file_stem().unwrap_or_default().to_os_string()));
        let built = parallel(cpus, &tests, |file| {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let archive = library.to_string_lossy();
            let end = ["-Wl,--allow-multiple-definition", &archive, "-rdynamic", "-lm"];
            self.cc(file, exceptions(&name), &end, &bin.join(&name))
        });
        let built = built.into_iter().collect::<Result<Vec<bool>>>()?;
        let built = built.into_iter().filter(|&done| done).count();
        ensure!(
            built * 10 >= tests.len() * 9,
            "only {built} of {} tests compile\nhint: see {}",
            tests.len(),
            self.dir.join("log").display()
        );
        fs::write(bin.join(".built"), "")?;
        let seconds = start.elapsed().as_secs();
        eprintln!("conformance: built {built} of {} tests in {seconds} s", tests.len());
        Ok(())
    }

    /// Fills the include folder: our headers, the few glibc headers without dependencies, and links to folders that
    /// tests name.
    fn write_shim(&self) -> Result<()> {
        let (source, shim) = (self.dir.join("src"), self.dir.join("shim"));
        remake(&shim)?;
        for (name, text) in SHIM {
            fs::write(shim.join(name), text)?;
        }
        for name in ["atomic.h", "sysdep.h", "config.h", "libc-symbols.h"] {
            fs::write(shim.join(name), "")?;
        }
        for file in TAKEN {
            let name = Path::new(file).file_name().unwrap_or_default();
            fs::copy(source.join(file), shim.join(name)).with_context(|| file.to_string())?;
        }
        let folders = "support malloc nptl sysdeps posix rt time misc stdlib math elf";
        for name in folders.split(' ').chain(["test-skeleton.c"]) {
            symlink(source.join(name), shim.join(name))?;
        }
        Ok(())
    }

    /// Compiles one file; `false` if it doesn't compile.
    fn cc(&self, file: &Path, flags: &[&str], end: &[&str], output: &Path) -> Result<bool> {
        let (source, shim) = (self.dir.join("src"), self.dir.join("shim"));
        let cpp = file.extension() == Some(OsStr::new("cc"));
        let mut child = Child::new(if cpp { "g++" } else { "gcc" })
            .args(["-O2", "-g", "-w", "-pthread", "-include"])
            .args([shim.join("compat.h")])
            .args([format!("-I{}", shim.display()), format!("-I{}/support", shim.display())]);
        if cpp {
            child = child.args(["-std=gnu++17", "-fexceptions"]);
        } else {
            child = child
                .args(["-std=gnu11", "-fgnu89-inline"])
                .args(
                    ["sysdeps/pthread", "nptl"].map(|dir| format!("-I{}/{dir}", source.display())),
                )
                .args(self.defines());
        }
        let log = self
            .dir
            .join("log")
            .join(format!("{}.build", file.file_stem().unwrap_or_default().to_string_lossy()));
        let (outcome, _) = child
            .args(flags)
            .args([file.as_os_str(), OsStr::new("-o"), output.as_os_str()])
            .args(end)
            .limit(120)
            .run_logged(&log)?;
        Ok(outcome == End::Code(0))
    }

    /// What glibc's makefiles define for its tests.
    fn defines(&self) -> Vec<String> {
        let mut defines = vec!["-DTIMEOUTFACTOR=1".into(), "-DMODULE_NAME=testsuite".into()];
        let paths = [
            ("SRCDIR_PATH", self.dir.join("src").display().to_string()),
            ("OBJDIR_PATH", self.dir.display().to_string()),
            ("OBJDIR_ELF_LDSO_PATH", loader().into()),
            ("INSTDIR_PATH", "/usr".into()),
            ("BINDIR_PATH", "/usr/bin".into()),
            ("SBINDIR_PATH", "/usr/sbin".into()),
            ("ROOTSBINDIR", "/sbin".into()),
            ("ROOTSBINDIR_PATH", "/sbin".into()),
            ("LIBDIR_PATH", "/usr/lib".into()),
            ("SLIBDIR_PATH", "/lib".into()),
            ("SYSCONFDIR_PATH", "/etc".into()),
            ("COMPLOCALEDIR_PATH", "/usr/lib/locale".into()),
        ];
        defines.extend(paths.map(|(name, path)| format!("-D{name}=\"{path}\"")));
        defines
    }

    /// The names of the built tests.
    pub(super) fn tests(&self, filter: Option<&Regex>) -> Result<Vec<String>> {
        let mut tests = Vec::new();
        for entry in fs::read_dir(self.dir.join("bin"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let wanted = filter.is_none_or(|filter| filter.is_match(&name));
            if wanted && !name.starts_with('.') && !EXCLUDED.contains(&name.as_str()) {
                tests.push(name);
            }
        }
        // The longest test is late in the alphabet. It should not start last.
        tests.sort_by(|one, two| two.cmp(one));
        Ok(tests)
    }

    pub(super) fn run(&self, test: &str, lock: Option<&str>, preload: &OsStr) -> Result<Verdict> {
        let dir = tempfile::tempdir()?;
        // Some tests read a file in their working folder, and expect a makefile there.
        fs::write(dir.path().join("Makefile"), "")?;
        let log = self.dir.join("log").join(format!("{test}.{}", lock.unwrap_or("glibc")));
        let (end, _) = Child::new(self.dir.join("bin").join(test))
            .args(arguments(test))
            .lock(lock, preload)
            .dir(dir.path())
            .limit(LIMIT)
            .run_logged(&log)?;
        Ok(match end {
            End::Code(0) => Verdict::Pass,
            End::Code(77) => Verdict::Unsupported,
            end => Verdict::Fail(end),
        })
    }
}

/// glibc's own options for tests whose defaults take so long that they time out when run beside others: a million
/// rounds of `tst-mutex10` take 20 s alone.
fn arguments(test: &str) -> &'static [&'static str] {
    if test == "tst-mutex10" { &["--iterations", "100000"] } else { &[] }
}

/// The flags by which glibc's makefile turns unwinding on or off.
fn exceptions(test: &str) -> &'static [&'static str] {
    let on = ["tst-cancelx", "tst-cleanupx", "tst-oncex", "tst-backtrace", "tst-cancel24"];
    let on_exactly = ["tst-cond-except", "tst-cancel9", "tst-cancel18"];
    if on.iter().any(|prefix| test.starts_with(prefix)) || on_exactly.contains(&test) {
        &["-fexceptions"]
    } else if test.starts_with("tst-oncey") {
        &["-fno-exceptions", "-fno-asynchronous-unwind-tables"]
    } else {
        &[]
    }
}

/// The dynamic loader's path.
fn loader() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "/lib/ld-linux-aarch64.so.1"
    } else {
        "/lib64/ld-linux-x86-64.so.2"
    }
}

/// The Debian version of the glibc that programs here run on.
fn installed_glibc() -> Result<String> {
    let outcome = Child::new("dpkg-query")
        .args(["-W", "-f", "${Version}", "libc6"])
        .run()
        .context("conformance needs Debian\nhint: run it in a Debian 12 container")?;
    ensure!(outcome.end == End::Code(0), "dpkg-query libc6: {}", outcome.describe());
    Ok(outcome.text())
}

/// Copies apt's lists of binary packages to `to`, converted to lists of source packages.
fn write_source_lists(apt: &Path, to: &Path) -> Result<()> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    let mut written = 0;
    for file in files {
        let (Some(name), Ok(text)) = (file.file_name(), fs::read_to_string(&file)) else {
            continue;
        };
        let extension = file.extension().and_then(OsStr::to_str);
        let lines = text.lines().filter_map(|line| source_line(extension, line));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        if !text.trim().is_empty() {
            fs::write(to.join(name), text)?;
            written += 1;
        }
    }
    ensure!(written > 0, "'{}' names no package source", apt.display());
    Ok(())
}

/// Converts a line of a list of packages to a line of a list of sources.
fn source_line(extension: Option<&str>, line: &str) -> Option<String> {
    match extension {
        Some("sources") if line.starts_with("Types:") => Some("Types: deb-src".into()),
        Some("sources") => Some(line.into()),
        Some("list") => line.strip_prefix("deb ").map(|rest| format!("deb-src {rest}")),
        _ => None,
    }
}

/// The only file in `dir` with this ending.
fn sole_file(dir: &Path, ending: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    match found.as_slice() {
        [path] => Ok(path.clone()),
        _ => bail!("{} files '*{ending}' in '{}', not one", found.len(), dir.display()),
    }
}

/// The C and C++ files of a folder with this prefix, except those that match `skip`.
fn sources(dir: &Path, prefix: &str, skip: &Regex) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read '{}'", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let code = name.ends_with(".c") || name.ends_with(".cc");
        if code && name.starts_with(prefix) && !skip.is_match(&name) {
            files.push(path.clone());
        }
    }
    files.sort();
    Ok(files)
}

/// Makes an empty folder.
fn remake(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot make '{}'", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_packages_become_lists_of_sources() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("sources.list.d")).unwrap();
        fs::write(from.path().join("sources.list"), "# old\ndeb http://a b c\n").unwrap();
        let modern = "Types: deb\nURIs: http://a\nSuites: b\n";
        fs::write(from.path().join("sources.list.d/debian.sources"), modern).unwrap();
        fs::write(from.path().join("sources.list.d/x.list.disabled"), "deb http://x y z\n")
            .unwrap();
        write_source_lists(from.path(), to.path()).unwrap();
        let read = |name| fs::read_to_string(to.path().join(name)).unwrap();
        assert_eq!(read("sources.list"), "deb-src http://a b c\n");
        assert_eq!(read("debian.sources"), "Types: deb-src\nURIs: http://a\nSuites: b\n");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_list_without_packages_is_an_error() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let error = write_source_lists(from.path(), to.path()).unwrap_err();
        assert!(error.to_string().ends_with("names no package source"), "{error}");
    }
}
