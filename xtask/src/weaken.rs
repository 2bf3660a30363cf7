//! `cargo xtask weaken`: is every stated ordering needed, and would a lost wake be noticed?
//!
//! Builds one instrumented copy of the locks and their models under the target directory, in which each ordering and each
//! wake is a numbered site, and runs the models once per mutation of a site. A mutant that no model catches has to be named
//! on its line by a comment `// SURVIVES: reason`. The sources themselves are never touched.

use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Weaken each ordering and drop each wake of the locks, one at a time: some model must notice.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only sites in files whose path contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only every N-th site.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Seconds for one run of the models.
    #[arg(long, value_name = "S", default_value_t = 60)]
    limit: u64,
}

/// A place in the sources that can be made weaker.
struct Site {
    file: String,
    line: usize,
    text: &'static str,
    weaker: &'static [&'static str],
    survives: Option<String>,
}

const ORDERINGS: [(&str, &[&str]); 4] = [
    ("AcqRel", &["Acquire", "Release"]),
    ("Acquire", &["Relaxed"]),
    ("Release", &["Relaxed"]),
    ("SeqCst", &["AcqRel"]),
];

pub(crate) fn main(args: Args) -> Result<()> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let copy = target_dir(root).join("weaken");
    let sites = instrument(root, &copy)?;
    let tests = build(&copy)?;
    let mut failed = Vec::new();
    let mut sound = std::collections::HashSet::new();
    println!("{:<34} {:<22} result", "site", "mutation");
    for (number, site) in sites.iter().enumerate() {
        if number % args.every != 0
            || args.only.as_ref().is_some_and(|only| !site.file.contains(only))
        {
            continue;
        }
        // Whatever fails without a mutation would "catch" every mutant.
        if sound.insert(reached_from(&site.file)) {
            let broken = caught_by(&tests, usize::MAX, 0, &site.file, args.limit)?;
            ensure!(
                broken.is_none(),
                "the models of '{}' fail as it is: {}",
                site.file,
                broken.unwrap_or_default()
            );
        }
        for (which, weaker) in site.weaker.iter().enumerate() {
            let caught = caught_by(&tests, number, which, &site.file, args.limit)?;
            let place = format!("{}:{}", site.file, site.line);
            let result = match (&caught, &site.survives) {
                (Some(model), None) => format!("caught by {model}"),
                (None, Some(reason)) => format!("survives: {reason}"),
                (None, None) => {
                    failed.push(place.clone());
                    "SURVIVES, and the file does not say why".into()
                }
                (Some(model), Some(_)) if site.weaker.len() == 1 => {
                    failed.push(place.clone());
                    format!("caught by {model}, but the file says it survives")
                }
                (Some(model), Some(_)) => format!("caught by {model}"),
            };
            println!("{place:<34} {:<22} {result}", format!("{} -> {weaker}", site.text));
        }
    }
    ensure!(
        failed.is_empty(),
        "{} sites are not as the files say: {}",
        failed.len(),
        failed.join(", ")
    );
    Ok(())
}

fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Copies the workspace's three crates to `copy`; every site of the locks becomes a call.
fn instrument(root: &Path, copy: &Path) -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    for name in ["platform", "locks", "model"] {
        let (from, to) = (root.join("crates").join(name), copy.join("crates").join(name));
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        copy_tree(&from, &to, &mut |path, text| {
            let inside = path.strip_prefix(&from).unwrap_or(path).to_string_lossy().into_owned();
            match inside.strip_prefix("src/") {
                Some(file) if name == "locks" && file != "testing.rs" => {
                    mutate(file, &text, &mut sites)
                }
                _ => text,
            }
        })?;
    }
    let platform = copy.join("crates/platform/src");
    let lib = fs::read_to_string(platform.join("lib.rs"))?;
    fs::write(
        platform.join("lib.rs"),
        format!("{lib}\n#[allow(missing_docs)]\npub mod weaken;\n"),
    )?;
    fs::write(platform.join("weaken.rs"), SITE)?;
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let kept: Vec<&str> =
        manifest.lines().filter(|line| !line.starts_with("default-members")).collect();
    let manifest = kept
        .join("\n")
        .replace(r#"members = ["crates/*", "tests", "xtask"]"#, r#"members = ["crates/*"]"#);
    fs::write(copy.join("Cargo.toml"), manifest)?;
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(sites)
}

/// What an instrumented site calls: as stated, unless it is the one under test.
const SITE: &str = r#"extern crate std;
use crate::{Ordering, Platform};
use std::sync::OnceLock;

fn active() -> (usize, usize) {
    static ACTIVE: OnceLock<(usize, usize)> = OnceLock::new();
    *ACTIVE.get_or_init(|| {
        let get = |name| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX);
        (get("LOCKWRIGHT_SITE"), get("LOCKWRIGHT_MUTATION"))
    })
}

pub fn order(site: usize, stated: Ordering, weaker: [Ordering; 2]) -> Ordering {
    let (active, which) = active();
    if site == active { weaker[which] } else { stated }
}

pub fn unpark<P: Platform>(site: usize, word: *const P::Word, count: u32) {
    if site != active().0 {
        P::unpark(word, count);
    }
}
"#;

fn copy_tree(from: &Path, to: &Path, edit: &mut impl FnMut(&Path, String) -> String) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut entries = fs::read_dir(from)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &target, edit)?;
        } else {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read '{}'", path.display()))?;
            fs::write(&target, edit(&path, text))?;
        }
    }
    Ok(())
}

/// Replaces the sites of one file by calls, and lists them.
fn mutate(file: &str, text: &str, sites: &mut Vec<Site>) -> String {
    let mut out = String::new();
    let mut in_tests = false;
    let mut in_use = false;
    for (index, line) in text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        in_use |=
            line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
        let code_end = line.find("//").unwrap_or(line.len());
        let (code, comment) = line.split_at(code_end);
        let survives = comment.split_once("SURVIVES:").map(|(_, reason)| reason.trim().to_owned());
        if in_tests || in_use || file == "catalog.rs" {
            out.push_str(code);
        } else {
            let mut site = |text, weaker| {
                sites.push(Site {
                    file: file.into(),
                    line: index + 1,
                    text,
                    weaker,
                    survives: survives.clone(),
                });
                sites.len() - 1
            };
            mutate_code(code, &mut out, &mut site);
        }
        in_use &= !code.contains(';');
        out.push_str(comment);
        out.push('\n');
    }
    out
}

fn mutate_code(
    code: &str,
    out: &mut String,
    site: &mut impl FnMut(&'static str, &'static [&'static str]) -> usize,
) {
    const WAKE: &str = "P::unpark(";
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        if !is_name(before) {
            if let Some(arguments) = rest.strip_prefix(WAKE) {
                let number = site("wake", &["none"]);
                let _ = write!(out, "lockwright_platform::weaken::unpark::<P>({number}, ");
                (rest, before) = (arguments, '(');
                continue;
            }
            let word = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            if let Some((text, weaker)) = ORDERINGS.iter().find(|(text, _)| *text == word) {
                let number = site(text, weaker);
                let path = "lockwright_platform::Ordering";
                let (one, two) = (weaker[0], weaker[weaker.len() - 1]);
                let _ = write!(
                    out,
                    "lockwright_platform::weaken::order({number}, {path}::{text}, [{path}::{one}, {path}::{two}])"
                );
                (rest, before) = (&rest[word.len()..], 'x');
                continue;
            }
        }
        out.push(first);
        before = first;
        rest = &rest[first.len_utf8()..];
    }
}

/// Builds the models on the copy; returns their executables.
fn build(copy: &Path) -> Result<Vec<PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--no-run", "--message-format=json", "-q", "-p", "lockwright-model"])
        .args(["--test", "locks", "--test", "timed", "--test", "condvar"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .env("RUSTFLAGS", "-Awarnings")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "the instrumented copy in '{}' does not build",
        copy.display()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let after = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split('"').next()?))
    };
    let tests: Vec<PathBuf> = text.lines().filter_map(after).collect();
    if tests.len() != 3 {
        bail!("cargo named {} of 3 model executables", tests.len());
    }
    Ok(tests)
}

/// Which locks' models can reach a file: its own, or for what they share, all front locks.
fn reached_from(file: &str) -> String {
    match file {
        "condvar.rs" => "condvar".into(),
        "front/mod.rs" | "front/line.rs" | "front/alone.rs" => "barging,fifo,condvar".into(),
        _ => {
            let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs");
            stem.replace('_', "-")
        }
    }
}

/// The first model that fails with the mutation.
fn caught_by(
    tests: &[PathBuf],
    site: usize,
    which: usize,
    file: &str,
    limit: u64,
) -> Result<Option<String>> {
    for test in tests {
        for filter in ["loom_threads_that_sleep", "loom_threads_that_spin", "loom_2", "loom_3"] {
            let mut child = Command::new(test)
                .args([filter, "--test-threads=2"])
                .env("LOCKWRIGHT_SITE", site.to_string())
                .env("LOCKWRIGHT_MUTATION", which.to_string())
                .env("LOCKWRIGHT_MODEL", reached_from(file))
                .env("RUST_BACKTRACE", "0")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot run '{}'", test.display()))?;
            if !passes(&mut child, Duration::from_secs(limit))? {
                let stem = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let name = stem.rsplit_once('-').map_or(stem.as_str(), |(name, _)| name);
                return Ok(Some(format!("{name} {filter}")));
            }
        }
    }
    Ok(None)
}

/// Did the models pass, or the time? A model that does not end is not one that noticed something.
fn passes(child: &mut Child, limit: Duration) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
